"""What one forward pass computes, and where its keys and values go. Built by the scheduler, read by cache and attention.

All tokens of a step stand in one row without padding: first one token each of the sequences that decode, then the
stretches of prompts that are being read.

Shape legend: _T tokens of the step, _R rows of the cache (one per running sequence), _C columns of the cache (positions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Tokens of one sequence: positions [start, stop) of cache row `row`, at `offset` in the step's tokens."""

    row: int
    start: int
    stop: int
    offset: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(slots=True, kw_only=True)
class Step:
    """The layout of one forward pass, with masks that all layers share."""

    rows_T: torch.Tensor
    positions_T: torch.Tensor
    decoding: int
    """The first so many tokens are one each of a sequence that decodes."""
    high: int
    """Decoding rows lie below this one."""
    dense: bool
    """Token i of the decoding ones belongs to row i, with no row left out."""
    stretches: tuple[Stretch, ...]
    columns: int
    """_C: of the cache while this step runs."""
    windows: list[int] = field(default_factory=list)
    """[layers so far] the sliding window each attended through; 0: none."""
    _masks: dict[tuple[int, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def decode_mask(self, window: int, dtype: torch.dtype) -> torch.Tensor:
        """[high, _C], added to the scores: 0 where a decoding row may look, -inf elsewhere. window 0: no sliding window."""
        key = (window, dtype)
        if key not in self._masks:
            self._masks[key] = self._decode_mask(window, dtype)
        return self._masks[key]

    def _decode_mask(self, window: int, dtype: torch.dtype) -> torch.Tensor:
        device = self.positions_T.device
        # Rows that do not decode in this step look at their first column: any finite result will do, nobody reads it.
        position_R = torch.zeros(self.high, dtype=torch.long, device=device)
        position_R[self.rows_T[: self.decoding]] = self.positions_T[: self.decoding]
        column_C = torch.arange(self.columns, device=device)
        hidden = column_C[None, :] > position_R[:, None]
        if window:
            hidden |= column_C[None, :] <= position_R[:, None] - window
        return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))

    def stretch_mask(self, stretch: Stretch, window: int) -> torch.Tensor | None:
        """[len(stretch), stretch.stop]: True where a token may look; None for a plain causal square."""
        if stretch.start == 0 and (not window or len(stretch) <= window):
            return None
        device = self.positions_T.device
        query = torch.arange(stretch.start, stretch.stop, device=device)[:, None]
        key = torch.arange(stretch.stop, device=device)[None, :]
        seen = key <= query
        return seen & (key > query - window) if window else seen


def build_step(
    singles: Sequence[tuple[int, int]], parts: Sequence[tuple[int, int, int]], columns: int, device: torch.device
) -> Step:
    """singles: (row, position) of tokens that come alone; parts: (row, start, stop) of longer stretches."""
    singles = sorted(singles)
    rows, positions = [row for row, _ in singles], [position for _, position in singles]
    stretches = []
    for row, start, stop in parts:
        stretches.append(Stretch(row=row, start=start, stop=stop, offset=len(rows)))
        rows += [row] * (stop - start)
        positions += range(start, stop)
    high = singles[-1][0] + 1 if singles else 0
    return Step(
        rows_T=torch.tensor(rows, dtype=torch.long, device=device),
        positions_T=torch.tensor(positions, dtype=torch.long, device=device),
        decoding=len(singles),
        high=high,
        dense=high == len(singles),
        stretches=tuple(stretches),
        columns=columns,
    )
