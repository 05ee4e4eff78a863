"""The append-only ledger of an episode's tokens: what was shown, what was sampled, with which logprob, by which policy.

The heart of promise 1, token-exact: sampled ids are stored as they came and are never re-encoded. This file knows
nothing of text or templates; `agentrl.renderer` decides which ids come next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, get_args

SegmentRole = Literal["prompt", "sampled", "observation"]

NOT_SAMPLED = -1
"""The policy version of an id that no engine sampled."""


class TranscriptError(ValueError):
    """An append would break the ledger: its lists differ in length, or its numbers cannot be true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A picture's place in the ids: placeholder span [start, stop) within its segment, patch grid, content hash."""

    start: int
    stop: int
    grid: tuple[int, int, int]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of ids with one origin. All lists have the same length [n].

    >>> Segment(role="sampled", ids=(17, 2), logprobs=(-0.1, -0.7), versions=(3, 3)).mask
    (1, 1)
    """

    role: SegmentRole
    ids: tuple[int, ...]  # [n]
    logprobs: tuple[float, ...] = ()  # [n]; 0.0 where not sampled
    versions: tuple[int, ...] = ()  # [n]; NOT_SAMPLED where not sampled
    media: tuple[Media, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in get_args(SegmentRole):
            raise TranscriptError(f"a segment's role is one of {', '.join(get_args(SegmentRole))}, not {self.role!r}")
        set_ = object.__setattr__
        try:
            set_(self, "ids", tuple(map(index, self.ids)))
            set_(self, "versions", tuple(map(index, self.versions)))
            set_(self, "logprobs", tuple(map(float, self.logprobs)))
        except (TypeError, ValueError) as error:
            raise TranscriptError(
                f"a {self.role} segment holds whole ids and versions, and logprobs that are numbers: {error}"
            ) from error
        set_(self, "media", tuple(self.media))
        if self.role != "sampled":
            self._fill()
        self._check()

    def _fill(self) -> None:
        """Nothing sampled these ids: that is what their logprobs and versions say, and all that may have been given."""
        if any(self.logprobs) or any(version != NOT_SAMPLED for version in self.versions):
            raise TranscriptError(f"a {self.role} segment has no logprobs and no versions: nothing sampled it")
        object.__setattr__(self, "logprobs", (0.0,) * len(self.ids))
        object.__setattr__(self, "versions", (NOT_SAMPLED,) * len(self.ids))

    def _check(self) -> None:
        if not len(self.ids) == len(self.logprobs) == len(self.versions):
            raise TranscriptError(
                f"a {self.role} segment needs lists of one length: "
                f"{len(self.ids)} ids, {len(self.logprobs)} logprobs, {len(self.versions)} versions"
            )
        if any(token < 0 for token in self.ids):
            raise TranscriptError(f"a token id is at least 0, not {min(self.ids)}")
        if self.role == "sampled":
            if any(not -math.inf < value <= 1e-6 for value in self.logprobs):  # also catches nan
                raise TranscriptError("a logprob is above 0, infinite or not a number: no id can be sampled with it")
            if any(version < 0 for version in self.versions):
                raise TranscriptError("a sampled id needs the version of the policy that sampled it (>= 0)")
        end = 0
        for item in self.media:
            if not end <= item.start < item.stop <= len(self.ids):
                raise TranscriptError(
                    f"media span [{item.start}, {item.stop}) lies over another one, or outside its segment of {len(self)} ids"
                )
            end = item.stop

    @property
    def mask(self) -> tuple[int, ...]:
        """[n]: 1 exactly where an engine sampled that id."""
        return (int(self.role == "sampled"),) * len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


class Transcript:
    """An episode's segments in order. Append or fork, nothing else.

    >>> t = Transcript()
    >>> t.append(Segment(role="prompt", ids=(1, 2, 3)))
    >>> t.append(Segment(role="sampled", ids=(9, 4), logprobs=(-0.5, 0.0), versions=(0, 0)))
    >>> t.ids, t.mask
    ((1, 2, 3, 9, 4), (0, 0, 0, 1, 1))
    """

    __slots__ = ("_segments",)

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments: list[Segment] = []
        for segment in segments:
            self.append(segment)

    def append(self, segment: Segment) -> None:
        """Adds a segment. The first one is a prompt, and not empty: what is sampled needs ids before it. Raises
        TranscriptError."""
        if not self._segments and (segment.role != "prompt" or not segment.ids):
            raise TranscriptError(
                f"a transcript starts with a prompt of at least one id, not with a {segment.role} segment of {len(segment)}"
            )
        if self._segments and segment.role == "prompt":
            raise TranscriptError("a transcript has one prompt, at its start; later ids are observations")
        self._segments.append(segment)

    def fork(self, segments: int) -> Transcript:
        """A new transcript that shares the first `segments` segments. Raises TranscriptError when there are fewer."""
        if not 0 <= segments <= len(self._segments):
            raise TranscriptError(f"cannot share {segments} of {len(self._segments)} segments")
        return Transcript(self._segments[:segments])

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(i for s in self._segments for i in s.ids)

    @property
    def mask(self) -> tuple[int, ...]:
        return tuple(m for s in self._segments for m in s.mask)

    @property
    def logprobs(self) -> tuple[float, ...]:
        return tuple(x for s in self._segments for x in s.logprobs)

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple(v for s in self._segments for v in s.versions)

    @property
    def prompt_length(self) -> int:
        return len(self._segments[0]) if self._segments else 0

    @property
    def sampled_length(self) -> int:
        return sum(len(s) for s in self._segments if s.role == "sampled")

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transcript) and self._segments == other._segments

    def to_list(self) -> list[dict[str, Any]]:
        """For JSON; `from_list` gives an equal transcript back."""
        out = []
        for s in self._segments:
            item: dict[str, Any] = {"role": s.role, "ids": list(s.ids)}
            if s.role == "sampled":
                item |= {"logprobs": list(s.logprobs), "versions": list(s.versions)}
            if s.media:
                item["media"] = [[m.start, m.stop, list(m.grid), m.sha256] for m in s.media]
            out.append(item)
        return out

    @classmethod
    def from_list(cls, data: Sequence[dict[str, Any]]) -> Transcript:
        def media(item: dict[str, Any]) -> tuple[Media, ...]:
            return tuple(Media(start=a, stop=b, grid=tuple(g), sha256=h) for a, b, g, h in item.get("media", ()))

        return cls(
            [
                Segment(
                    role=item["role"],
                    ids=tuple(item["ids"]),
                    logprobs=tuple(item.get("logprobs", ())),
                    versions=tuple(item.get("versions", ())),
                    media=media(item),
                )
                for item in data
            ]
        )
