"""Continuous batching: which sequences run, what the next forward pass computes, what each gets from it.

Synchronous and single-threaded: the engine's thread calls `step` in a loop. Sequences join and leave at any step. A new
one takes over what the cache holds of its prompt: from a running sibling, or from the store of finished turns.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import torch

from agentrl.engine import EngineError

from .generation import Generation, common_prefix
from .prefix_store import SHORTEST, PrefixStore
from .replica import Replica
from .sampler import Draw, Sampler
from .slot_cache import SlotCache
from .step import Step, build_step

PROMPT_TOKENS = 1024
"""Prompt tokens read in one step: bounds the memory of its activations, and how long the others wait for it."""


class Scheduler:
    """`active[r]` is the sequence whose keys and values lie in row r of the cache."""

    def __init__(self, replica: Replica, *, slots: int, store_tokens: int, version: int) -> None:
        self.replica = replica
        self.slots = slots
        self.version = version
        self.epoch = 0
        """Counts weight updates: only keys and values of this epoch are handed on."""
        self.waiting: deque[Generation] = deque()
        self.active: list[Generation] = []
        self.cache = SlotCache()
        self.store = PrefixStore(store_tokens)
        self._sampler = Sampler()
        self._counts = dict.fromkeys(("prompt_tokens", "cached_tokens", "sampled_tokens", "requests", "busy_s"), 0.0)
        self._counting = threading.Lock()

    # Between steps

    @property
    def busy(self) -> bool:
        return bool(self.active or self.waiting)

    def add(self, generation: Generation) -> None:
        self._count(requests=1)
        self.waiting.append(generation)

    def reap(self) -> None:
        """Frees the rows of those that are done or whose callers have given them up."""
        self.waiting = deque(g for g in self.waiting if not g.done)
        for row in reversed(range(len(self.active))):
            if self.active[row].done:
                self._release(row)

    def abort(self) -> None:
        """Ends all with what they have."""
        for generation in (*self.active, *self.waiting):
            generation.end("abort")
        self.reap()

    def fail(self, error: Callable[[], EngineError]) -> None:
        """Fails all, each with an error of its own. Nothing may run afterwards."""
        for generation in (*self.active, *self.waiting):
            generation.fail(error())

    def updated(self, version: int) -> None:
        """New weights: what runs keeps its cache, what comes later gets nothing of it."""
        self.version, self.epoch = version, self.epoch + 1
        self.store.clear()

    def drop_cache(self) -> None:
        """Gives the cache's memory back. What runs waits, first in line, and is computed again."""
        for generation in self.active:
            generation.restart()
        self.waiting.extendleft(reversed(self.active))
        self.active = []
        self.cache.free()
        self.store.clear()

    def metrics(self) -> Mapping[str, float]:
        with self._counting:
            counts, self._counts = self._counts, dict.fromkeys(self._counts, 0.0)
        return {**counts, "running": float(len(self.active)), "queued": float(len(self.waiting))}

    def _count(self, **more: float) -> None:
        with self._counting:
            for name, value in more.items():
                self._counts[name] += value

    # One step

    def step(self, *, admit: bool = True) -> None:
        """One forward pass over all running sequences. admit=False starts no new ones."""
        begin = time.perf_counter()
        self.reap()
        if admit:
            self._admit()
        if self.active:
            self._advance()
        self._count(busy_s=time.perf_counter() - begin)

    def _advance(self) -> None:
        step, ids, ready = self._plan()
        last = torch.tensor([index for index, _ in ready], dtype=torch.long, device=self.replica.device)
        logits = self.replica.forward(ids, step, last, self.cache)
        for generation, stop in self._reached:
            generation.computed = stop
        self._sample(logits, [generation for _, generation in ready])
        self.reap()

    def _plan(self) -> tuple[Step, torch.Tensor, list[tuple[int, Generation]]]:
        """(layout, ids [_T], where a next id is due: (index into the step's tokens, whose))."""
        singles, parts, budget = [], [], PROMPT_TOKENS
        for row, g in enumerate(self.active):
            left = g.length - g.computed
            if left == 1:
                singles.append((row, g.computed))
            elif budget > 0:
                taken = min(left, budget)
                budget -= taken
                parts.append((row, g.computed, g.computed + taken))
        spans = [(row, at, at + 1) for row, at in singles] + parts
        columns = max(g.length for g in self.active)
        self.cache.fit(len(self.active), columns)
        ids = [i for row, start, stop in spans for i in self.active[row].ids[start:stop].tolist()]
        self._reached = [(self.active[row], stop) for row, _, stop in spans]
        ready, end = [], 0
        for row, start, stop in spans:
            end += stop - start
            if stop == self.active[row].length:
                ready.append((end - 1, self.active[row]))
        device = self.replica.device
        step = build_step(singles, parts, self.cache.columns, device)
        return step, torch.tensor(ids, dtype=torch.long, device=device), ready

    def _sample(self, logits: torch.Tensor, generations: list[Generation]) -> None:
        draws = [Draw(sampling=g.request.sampling, seed=g.seed, position=g.length) for g in generations]
        if not draws:
            return
        drawn = self._sampler.draw(logits, draws)
        self._count(sampled_tokens=sum(drawn.finite))  # before anyone is answered, so that the numbers agree
        for g, token, logprob, finite in zip(generations, drawn.ids, drawn.logprobs, drawn.finite, strict=True):
            if finite:
                g.append(token, logprob, self.version)
            else:
                g.fail(EngineError(f"the logits of version {self.version} are not finite, or every id is banned"))

    # Joining and leaving

    def _admit(self) -> None:
        """Starts waiting sequences in their order. One whose prompt is just being read by a sibling waits for it."""
        later: deque[Generation] = deque()
        while self.waiting and len(self.active) < self.slots:
            generation = self.waiting.popleft()
            if self._worth_waiting(generation):
                later.append(generation)
            else:
                self._start(generation)
        self.waiting.extendleft(reversed(later))

    def _worth_waiting(self, generation: Generation) -> bool:
        """Whether a running sequence is about to compute more of this prompt than is at hand now."""
        return any(
            g.epoch == self.epoch
            and g.length - g.computed > 1
            and min(common_prefix(g.ids, generation.ids), generation.length - 1) >= g.computed + SHORTEST
            for g in self.active
        )

    def _start(self, generation: Generation) -> None:
        row = len(self.active)
        generation.epoch = self.epoch
        generation.computed = self._inherit(generation, row)
        if generation.cached is None:
            generation.cached = generation.computed
            self._count(prompt_tokens=generation.prompt_length, cached_tokens=generation.cached)
        self.active.append(generation)

    def _inherit(self, generation: Generation, row: int) -> int:
        """Copies the longest known prefix into `row`; returns its length, which leaves at least one token to compute."""
        most = generation.length - 1
        sibling, shared = None, SHORTEST - 1
        for other, g in enumerate(self.active):
            if g.epoch == self.epoch and (n := min(common_prefix(g.ids[: g.computed], generation.ids), most)) > shared:
                sibling, shared = other, n
        entry, n = self.store.match(generation.ids) if shared < most else (None, 0)
        n = min(n, most)
        if entry is not None and n > shared:
            self.cache.fit(row + 1, max(n, self._widest()))
            self.cache.write(row, entry.layers, n)
            return n
        if sibling is None:
            return 0
        self.cache.fit(row + 1, max(shared, self._widest()))
        self.cache.move(sibling, row, shared)
        return shared

    def _widest(self) -> int:
        return max((g.length for g in self.active), default=0)

    def _release(self, row: int) -> None:
        """Frees a row: what it holds may go to the store, and the last row moves into the hole."""
        generation, last = self.active[row], len(self.active) - 1
        known = generation.ids[: generation.computed]
        if generation.future.done() and not generation.future.cancelled() and generation.future.exception() is not None:
            self.cache.wipe(row)
        elif generation.epoch == self.epoch and self.store.wants(known):
            self.store.put(known, self.cache.read(row, len(known)))
        if row != last:
            self.cache.move(last, row, self.active[last].computed)
            self.active[row] = self.active[last]
        self.active.pop()
