"""Keeps the KV cache of finished generations, so that the next turn of an episode computes only what is new.

Entries are found by their ids alone: a session's next prompt, or a sibling's, starts with them. The least recently used
go first when `capacity` tokens are held. Entries know nothing of weights: who updates those clears the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .generation import common_prefix

KV = tuple[torch.Tensor, torch.Tensor]
"""One layer's keys and values, each [heads, tokens, head_dim]."""

SHORTEST = 16
"""Tokens: shorter prefixes are computed again as fast as they are copied."""


@dataclass(frozen=True, slots=True)
class Entry:
    ids: np.ndarray  # [n]
    layers: Sequence[KV]  # [layers], n tokens each


class PrefixStore:
    """An LRU of prefixes, bounded in tokens."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tokens = 0
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def match(self, ids: np.ndarray) -> tuple[Entry | None, int]:
        """The entry that shares the most leading ids with `ids`, and how many; it counts as used."""
        best, shared, key = None, 0, b""
        for name, entry in self._entries.items():
            if entry.ids[0] == ids[0] and (n := common_prefix(entry.ids, ids)) > shared:
                best, shared, key = entry, n, name
        if best is not None:
            self._entries.move_to_end(key)
        return best, shared

    def wants(self, ids: np.ndarray) -> bool:
        """Whether these would be kept: long enough to pay, short enough to fit, and not here yet."""
        return SHORTEST <= len(ids) <= self.capacity and ids.tobytes() not in self._entries

    def put(self, ids: np.ndarray, layers: Sequence[KV]) -> None:
        """Takes an entry over; the previous turn's, which it extends, goes."""
        for key, entry in list(self._entries.items()):
            if len(entry.ids) <= len(ids) and common_prefix(entry.ids, ids) == len(entry.ids):
                self._remove(key)
        self._entries[ids.tobytes()] = Entry(ids.copy(), layers)
        self.tokens += len(ids)
        while self.tokens > self.capacity:
            self._remove(next(iter(self._entries)))

    def _remove(self, key: bytes) -> None:
        self.tokens -= len(self._entries.pop(key).ids)

    def clear(self) -> None:
        self._entries.clear()
        self.tokens = 0
