"""The KV cache of the running sequences: row r belongs to the r-th of them. A transformers `Cache` for one `Step` at a time.

Rows are kept dense (the last one moves into a hole) and columns just wide enough, so that attention reads contiguous
memory and nothing but what is used: on a CPU this halves its time against a view into a wide slab.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache

from .prefix_store import KV
from .step import Step

COLUMN_BLOCK = 32
"""Columns come in multiples of this: one re-layout per 32 sampled tokens costs about 1% of their time."""

ROW_BLOCK = 8
"""Rows come in powers of two from here."""


class SlotCache(Cache):
    """[rows, heads, columns, head_dim] keys and values for each layer, allocated when a layer first writes."""

    def __init__(self) -> None:
        self.layers: list[Any] = []  # transformers asks for them; ours are below, and no mask is made from them
        self.layer_classes = None
        self.rows = 0
        self.columns = 0
        self._keys: list[torch.Tensor] = []  # [layers] of [rows, heads, columns, head_dim]
        self._values: list[torch.Tensor] = []
        self._step: Step | None = None
        self._written: int | None = None

    # What transformers calls

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> KV:
        """Writes [1, heads, _T, head_dim] where the step says, and hands them back; the attention reads the cache itself."""
        step = self._current()
        if layer_idx == len(self._keys):
            self._keys.append(self._blank(key_states))
            self._values.append(self._blank(value_states))
        self._keys[layer_idx][step.rows_T, :, step.positions_T] = key_states[0].transpose(0, 1)
        self._values[layer_idx][step.rows_T, :, step.positions_T] = value_states[0].transpose(0, 1)
        self._written = layer_idx
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self._current().positions_T[0])

    def _current(self) -> Step:
        assert self._step is not None, "the cache is used outside a step"
        return self._step

    def _blank(self, states: torch.Tensor) -> torch.Tensor:
        # Zeros, not empty: what no one has written is masked, but 0 * nan would still be nan.
        return states.new_zeros(self.rows, states.shape[1], self.columns, states.shape[3])

    # What the attention calls

    def take(self) -> tuple[Step, torch.Tensor, torch.Tensor]:
        """The step and the layer that was written last; each is read once."""
        assert self._written is not None, "attention without a cache update before it"
        layer, self._written = self._written, None
        return self._current(), self._keys[layer], self._values[layer]

    # What the scheduler calls

    def begin(self, step: Step | None) -> None:
        self._step, self._written = step, None

    def fit(self, rows: int, columns: int) -> None:
        """Makes room for so many rows and columns; gives columns back when less than half of them are needed."""
        columns = -(-columns // COLUMN_BLOCK) * COLUMN_BLOCK
        if rows <= self.rows and columns <= self.columns <= 2 * columns:
            return
        while self.rows < rows:
            self.rows = max(ROW_BLOCK, 2 * self.rows)
        if not columns <= self.columns <= 2 * columns:
            self.columns = columns
        self._keys = [self._resized(t) for t in self._keys]
        self._values = [self._resized(t) for t in self._values]

    def _resized(self, old: torch.Tensor) -> torch.Tensor:
        rows, heads, columns, width = old.shape
        new = old.new_zeros(self.rows, heads, self.columns, width)
        kept = min(columns, self.columns)
        new[:rows, :, :kept] = old[:, :, :kept]
        return new

    def move(self, source: int, target: int, tokens: int) -> None:
        for tensor in (*self._keys, *self._values):
            tensor[target, :, :tokens] = tensor[source, :, :tokens]

    def read(self, row: int, tokens: int) -> Sequence[KV]:
        """A copy of a row's first tokens."""
        return [(k[row, :, :tokens].clone(), v[row, :, :tokens].clone()) for k, v in zip(self._keys, self._values, strict=True)]

    def write(self, row: int, layers: Sequence[KV], tokens: int) -> None:
        for keys, values, (k, v) in zip(self._keys, self._values, layers, strict=True):
            keys[row, :, :tokens] = k[:, :tokens]
            values[row, :, :tokens] = v[:, :tokens]

    def wipe(self, row: int) -> None:
        """Forgets what a row held: after weights that are not finite its numbers would poison whoever comes next."""
        for tensor in (*self._keys, *self._values):
            tensor[row] = 0

    def free(self) -> None:
        """Gives all memory back."""
        self._keys, self._values = [], []
        self.rows = self.columns = 0
        self.begin(None)

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self._keys, *self._values))
