"""Calls in a row: a token opens the row, and each call has a token before and after it (DeepSeek, Kimi)."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.parsers.json_text import Unreadable, skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The tokens of a format. The row's own may be left out by a model; a call's opening and `between` may not."""

    opening: str
    closing: str
    call: str
    call_end: str
    between: str
    """Stands between what names the function and its arguments."""

    def next(self, text: str, place: int) -> int:
        """Where the next call starts, with the row's opening when that comes first; -1 when there is none."""
        starts = [at for mark in (self.opening, self.call) if (at := text.find(mark, place)) >= 0]
        return min(starts, default=-1)

    def unread(self, text: str, start: int) -> int:
        """Where a call that cannot be read is over: after its end, or before the next call."""
        opened = text.find(self.call, start)
        inside = opened + len(self.call) if opened >= 0 else start + len(self.opening)
        end, following = text.find(self.call_end, inside), text.find(self.call, inside)
        if end >= 0 and not 0 <= following < end:
            return self._after_row(text, end + len(self.call_end))
        return following if following >= 0 else len(text)

    def head(self, text: str, start: int) -> tuple[str, int]:
        """(what names the function, where the arguments start) of the call at `start`. Raises Unreadable."""
        place = skip(text, start + len(self.opening)) if text.startswith(self.opening, start) else start
        if not text.startswith(self.call, place):
            raise Unreadable(f"{self.call} is missing")
        place += len(self.call)
        between = text.find(self.between, place)
        if between < 0 or 0 <= text.find(self.call_end, place) < between:
            raise Unreadable(f"{self.between} is missing")
        return text[place:between], between + len(self.between)

    def after(self, text: str, place: int) -> int:
        """The place after a call whose arguments end at `place`, and after the row if it was the last. Raises Unreadable."""
        place = skip(text, place)
        if text.startswith(self.call_end, place):
            return self._after_row(text, place + len(self.call_end))
        if place < len(text) and not text.startswith((self.call, self.closing), place):
            raise Unreadable(f"{self.call_end} is missing after the arguments")
        return self._after_row(text, place)

    def write(self, bodies: list[str], separator: str = "") -> str:
        """A row of calls, each given as all that stands between its tokens."""
        row = separator.join(f"{self.call}{body}{self.call_end}" for body in bodies)
        return f"{self.opening}{row}{self.closing}" if bodies else ""

    def _after_row(self, text: str, place: int) -> int:
        after = skip(text, place)
        return after + len(self.closing) if text.startswith(self.closing, after) else place
