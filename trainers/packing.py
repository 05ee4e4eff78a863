"""Samples into packed rows: several sequences end to end in one row, no padding, one row per micro-batch.

Siblings of a group begin with the same prompt. Its tokens are computed once per row, and each sibling's continuation
attends to the prompt and to itself (shared-prefix packing), with position ids that go on from the prompt:

    row        p0 p1 p2 | a3 a4 | b3 b4 b5 | c0 c1
    segment    0        | 1     | 2        | 3
    prefix     -        | 0     | 0        | -
    positions  0  1  2  | 3  4  | 3  4  5  | 0  1

Both a3 and b3 are predicted from p2's hidden state. A sample is cut before its last trained token: what comes after it has
no influence on any trained token. Pure functions; nothing here knows of models. T: tokens of a row; N: its trained tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run [start, stop) of a row's tokens. It attends to itself, causally, and to all of segment `prefix`.

    >>> Segment(start=3, stop=5, prefix=0).length
    2
    """

    start: int
    stop: int
    prefix: int | None = None
    """Index of a segment that stands earlier in the row and has no prefix of its own."""

    @property
    def length(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """One micro-batch as one row. The row above, where a3, a4, a5 (never an input: it is last), b5, b6 and c1, c2 are trained:

    ids [T=10], position_ids [0 1 2 3 4 3 4 5 0 1], segments 4, samples (0, 1, 2), counts (3, 2, 2),
    sources [2 3 4 | 6 7 | 8 9] and targets [a3 a4 a5 | b5 b6 | c1 c2], both [N=7].
    """

    ids: Tensor  # [T] int64
    position_ids: Tensor  # [T] int64
    segments: tuple[Segment, ...]
    sources: Tensor  # [N] int64: the position in the row whose hidden state predicts each trained token
    targets: Tensor  # [N] int64: the trained tokens, sample by sample
    samples: tuple[int, ...]
    """Which samples (indices into what was packed) are in the row, in the order of `targets`."""
    counts: tuple[int, ...]
    """Trained tokens of each of `samples`; they sum to N."""

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device) -> PackedBatch:
        return PackedBatch(
            ids=self.ids.to(device),
            position_ids=self.position_ids.to(device),
            segments=self.segments,
            sources=self.sources.to(device),
            targets=self.targets.to(device),
            samples=self.samples,
            counts=self.counts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Samples that stand together in a row. `prefix`: how many first ids they share; 0 for a sample by itself."""

    prefix: int
    members: tuple[int, ...]
    tokens: int


def pack(samples: Sequence[Sample], *, tokens: int, share_prefix: bool = True) -> list[PackedBatch]:
    """Rows of at most `tokens` tokens (a sample that is longer has a row to itself), by first-fit decreasing: the same rows
    for the same samples, always. Samples without a trained token are in no row. Raises ValueError when the very first id
    of a sample is trained (nothing predicts it) or `tokens` is below 1.
    """
    if tokens < 1:
        raise ValueError(f"tokens_per_microbatch must be at least 1, got {tokens}")
    lengths = [_input_length(sample) for sample in samples]
    blocks = [block for family in _families(samples, lengths, share_prefix) for block in _blocks(*family, lengths, tokens)]
    blocks.sort(key=lambda block: (-block.tokens, block.members))
    rows = _first_fit([block.tokens for block in blocks], tokens)
    return [_row(samples, lengths, [blocks[i] for i in row]) for row in rows]


def trained_positions(sample: Sample) -> list[int]:
    """Where the mask is 1.

    >>> trained_positions(Sample(episode="", group="", ids=(7, 8, 9), mask=(0, 1, 1), logprobs=(0.0, -1.0, -1.0),
    ...                          versions=(-1, 0, 0), reward=0.0))
    [1, 2]
    """
    return [i for i, trained in enumerate(sample.mask) if trained]


def _input_length(sample: Sample) -> int:
    """How many of the sample's ids are inputs: those before its last trained one. 0 when none is trained."""
    positions = trained_positions(sample)
    if positions and positions[0] == 0:
        raise ValueError(f"sample of episode {sample.episode}: its first id is trained, but nothing precedes it to predict it")
    return positions[-1] if positions else 0


def _families(samples: Sequence[Sample], lengths: Sequence[int], share_prefix: bool) -> list[tuple[int, list[int]]]:
    """(shared first ids, members): samples with an equal prompt, and each other sample by itself."""
    families: dict[object, tuple[int, list[int]]] = {}
    for i, sample in enumerate(samples):
        if lengths[i] == 0:
            continue
        prompt = sample.prompt_length
        shareable = share_prefix and 0 < prompt <= lengths[i] and not any(sample.mask[:prompt])
        key: object = sample.ids[:prompt] if shareable else i
        families.setdefault(key, (prompt if shareable else 0, []))[1].append(i)
    return [(prefix if len(members) > 1 else 0, members) for prefix, members in families.values()]


def _blocks(prefix: int, members: list[int], lengths: Sequence[int], tokens: int) -> list[_Block]:
    """A family as blocks that fit a row, each with a copy of the prefix."""
    members = sorted(members, key=lambda i: (-lengths[i], i))
    own = [lengths[i] - prefix for i in members]
    blocks = []
    for chunk in _first_fit(own, tokens - prefix):
        shared = prefix if len(chunk) > 1 else 0
        total = shared + sum(lengths[members[c]] - shared for c in chunk)
        blocks.append(_Block(prefix=shared, members=tuple(members[c] for c in chunk), tokens=total))
    return blocks


def _first_fit(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Indices by bin, in order: each size goes into the first bin with room. One above the limit has a bin to itself."""
    bins: list[list[int]] = []
    room: list[int] = []
    for i, size in enumerate(sizes):
        fitting = next((b for b, free in enumerate(room) if size <= free), None)
        if fitting is None:
            bins.append([i])
            room.append(limit - size)
        else:
            bins[fitting].append(i)
            room[fitting] -= size
    return bins


def _row(samples: Sequence[Sample], lengths: Sequence[int], blocks: Sequence[_Block]) -> PackedBatch:
    ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    sources: list[int] = []
    targets: list[int] = []

    def add(part: Sequence[int], first_position: int, prefix: int | None) -> int:
        start = len(ids)
        ids.extend(part)
        positions.extend(range(first_position, first_position + len(part)))
        if part:
            segments.append(Segment(start=start, stop=len(ids), prefix=prefix))
        return start

    for block in blocks:
        shared = block.prefix
        prefix_start = add(samples[block.members[0]].ids[:shared], 0, None)
        prefix = len(segments) - 1 if shared else None
        for i in block.members:
            start = add(samples[i].ids[shared : lengths[i]], shared, prefix)
            for target in trained_positions(samples[i]):
                source = target - 1
                sources.append(prefix_start + source if source < shared else start + source - shared)
                targets.append(samples[i].ids[target])
    order = tuple(i for block in blocks for i in block.members)
    return PackedBatch(
        ids=torch.tensor(ids),
        position_ids=torch.tensor(positions),
        segments=tuple(segments),
        sources=torch.tensor(sources),
        targets=torch.tensor(targets),
        samples=order,
        counts=tuple(samples[i].trained_tokens for i in order),
    )
