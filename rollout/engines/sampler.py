"""Draws the next ids of a batch, each by its own rules, and gives the logprobs of the distributions really drawn from.

An id depends on nothing but its row's logits, its rules and its uniform number, never on who else is in the batch. The
uniform number is a function of the seed and of the id's position in the sequence: a generation that is cut and continued
draws what it would have drawn in one go.

Shape legend: _B rows, _V vocabulary, _K candidates left by top-k and top-p, _N blocks of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentrl.engine import Sampling

BLOCK = 256
"""Ids per block of the two-level search: about the square root of a large vocabulary."""

FIRST_CANDIDATES = 256
"""How many of the likeliest ids are sorted at first for top-p; more when they do not hold enough probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How one row is to be drawn from."""

    sampling: Sampling
    seed: int
    position: int
    """Of the id to be drawn, in its sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """[_B] each. Where `finite` is False the logits held nan or inf, and id and logprob mean nothing."""

    ids: list[int]
    logprobs: list[float]
    finite: list[bool]


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    """[n] in [0, 1): number `position` of the SplitMix64 stream that `seed` begins (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        state = _mix(np.array(seeds, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15) * np.array(positions, dtype=np.uint64)
        return (_mix(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Sampler:
    """Draws for one engine. Holds one float32 buffer [rows, _V], which is as large as the largest batch so far: memory of
    that size is given back to the system when freed, and touching it anew each step costs more than all arithmetic."""

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """One id for each row of `logits` [_B, _V]."""
        whole, x = self._copy(logits)
        _ban(x, draws)
        _divide(x, [d.sampling.temperature or 1.0 for d in draws])
        top, best = x.max(dim=-1, keepdim=True)  # [_B, 1]
        x.sub_(top).exp_()  # from here on weights: the likeliest has 1, and what is past _V has 0
        blocks = whole.view(len(draws), -1, BLOCK)
        sums = blocks.sum(dim=-1).double()  # [_B, _N]
        norms = sums.sum(dim=-1)  # [_B]
        finite = torch.isfinite(top[:, 0]) & torch.isfinite(norms)
        ids = best[:, 0]
        u = torch.from_numpy(uniforms([d.seed for d in draws], [d.position for d in draws])).to(x.device)
        free, cut = _kinds([d.sampling for d in draws])
        if free:
            part = slice(None) if len(free) == len(draws) else free  # a slice copies nothing
            ids[part] = _search(blocks[part], sums[part], u[part])
        if cut:
            ids[cut], norms[cut] = _cut(x[cut], norms[cut], u[cut], [draws[i].sampling for i in cut])
        ids.clamp_(max=x.shape[1] - 1)  # a row of nan may lead past the vocabulary; its id is thrown away
        logprobs = (x.gather(1, ids[:, None])[:, 0].double() / norms).log()
        return Drawn(ids=ids.tolist(), logprobs=logprobs.clamp_(max=0.0).tolist(), finite=finite.tolist())

    def _copy(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits in the buffer, as whole blocks [_B, _N * BLOCK] with a tail of zeros, and without it [_B, _V]."""
        rows, size = logits.shape
        width = -(-size // BLOCK) * BLOCK
        buffer = self._buffer
        if buffer is None or buffer.shape[0] < rows or buffer.shape[1] != width:
            self._buffer = buffer = torch.zeros(rows, width, dtype=torch.float32, device=logits.device)
        buffer[:rows, :size].copy_(logits)
        return buffer[:rows], buffer[:rows, :size]


def _kinds(rules: Sequence[Sampling]) -> tuple[list[int], list[int]]:
    """Rows drawn from the whole distribution, and rows cut by top-k or top-p. The others are greedy."""
    random = [i for i, rule in enumerate(rules) if rule.temperature > 0]
    cut = [i for i in random if rules[i].top_k > 0 or rules[i].top_p < 1]
    return [i for i in random if i not in cut], cut


def _divide(logits: torch.Tensor, temperatures: Sequence[float]) -> None:
    if any(t != 1.0 for t in temperatures):
        logits.div_(torch.tensor(temperatures, device=logits.device)[:, None])


def _ban(logits: torch.Tensor, draws: Sequence[Draw]) -> None:
    """In place: -inf where a row may not go."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, d in enumerate(draws):
        if d.sampling.banned_ids:
            groups.setdefault(d.sampling.banned_ids, []).append(row)
    for banned, rows in groups.items():
        ids = torch.tensor([i for i in banned if 0 <= i < logits.shape[1]], dtype=torch.long, device=logits.device)
        logits[torch.tensor(rows, device=logits.device)[:, None], ids] = float("-inf")


def _search(blocks: torch.Tensor, sums: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """[_B]: the inverse of the cumulative distribution at u. First the block [_N], then the id in it [BLOCK]."""
    edges = sums.cumsum(dim=-1)
    block = _first_above(edges, u * edges[:, -1])  # [_B, 1]
    before = torch.where(block > 0, edges.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[torch.arange(len(u), device=u.device), block[:, 0]].double().cumsum(dim=-1)  # [_B, BLOCK]
    offset = _first_above(inside, u * edges[:, -1] - before[:, 0])
    return (block * BLOCK + offset)[:, 0]


def _first_above(edges: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """[_B, 1]: the first index whose edge lies above the target: never one of zero probability, which adds nothing."""
    last = torch.nextafter(edges[:, -1], torch.zeros_like(edges[:, -1]))  # rounding must not lead past the end
    index = torch.searchsorted(edges, torch.minimum(target.clamp(min=0.0), last)[:, None], right=True)
    return index.clamp_(max=edges.shape[-1] - 1)  # a row of nan has no such edge; its id is thrown away


def _cut(
    x: torch.Tensor, totals: torch.Tensor, u: torch.Tensor, rules: Sequence[Sampling]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, kept weight), [_B] each, after top-k, then top-p of what top-k left: the fewest ids that reach it."""
    size = x.shape[1]
    k = torch.tensor([min(r.top_k, size) or size for r in rules], device=x.device)[:, None]
    p = torch.tensor([r.top_p for r in rules], dtype=torch.float64, device=x.device)[:, None]
    count = min(size, max(FIRST_CANDIDATES, *(r.top_k for r in rules)))
    while True:
        weights, ids = x.topk(count, dim=-1)  # [_B, _K], falling
        weights = torch.where(torch.arange(count, device=x.device) < k, weights.double(), 0.0)
        edges = weights.cumsum(dim=-1)
        whole = torch.where(k < size, edges[:, -1:], totals[:, None])  # what top-p is a share of
        if count == size or bool(((k <= count) | (edges[:, -1:] >= p * whole)).all()):
            break
        count = min(size, 8 * count)
    kept = torch.where(edges - weights < p * whole, weights, 0.0)
    edges = kept.cumsum(dim=-1)
    chosen = _first_above(edges, u * edges[:, -1])
    return ids.gather(1, chosen)[:, 0], edges[:, -1]
