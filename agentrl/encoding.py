"""Text to ids and back for one tokenizer, with its control tokens kept apart from text that merely spells them.

No messages and no templates here. A literal "<|im_end|>" in what a user or a tool says is text; only the template may
write control tokens. `guard` marks such text by a separator character, which a template carries along like any other;
`encode` tokenizes the whole in one piece, so no border changes a merge, and then drops the separator's ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl.errors import UsageError

SEPARATORS = ("\U000f5eaf", "\U000f5ebf", "\U000f5ecf")
"""Private-use characters: no template writes them, and no vocabulary has merges for their first byte pairs."""

_STEERING = re.compile(r"<[|｜].*[|｜]>|\[/?[A-Z_]+\]")
"""Tokens of this form steer, even where a tokenizer does not flag them special (DeepSeek's roles are not)."""


class Encoder:
    """Wraps a fast Hugging Face tokenizer. Raises UsageError for a slow one: its offsets are needed."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UsageError(
                f"{type(tokenizer).__name__} is no fast tokenizer; use AutoTokenizer.from_pretrained(..., use_fast=True)"
            )
        self._tokenizer = tokenizer
        added: dict[int, Any] = tokenizer.added_tokens_decoder
        self.added: dict[str, int] = {str(token): index for index, token in added.items()}
        self.control: dict[str, int] = {
            str(token): index for index, token in added.items() if token.special or _STEERING.fullmatch(str(token))
        }
        """Control tokens by their text."""
        self._by_start: dict[str, tuple[int, ...]] = {}
        for start in {text[0] for text in self.control if len(text) > 1}:
            lengths = {len(text) for text in self.control if text[0] == start and len(text) > 1}
            self._by_start[start] = tuple(sorted(lengths))
        self._starts = re.compile("|".join(map(re.escape, self._by_start)) or r"(?!)")

    def separator(self, value: Any) -> str:
        """The separator to guard `value` (nested dicts and lists of text) with; "" when nothing in it needs one."""
        if not any(self._breaks(text) for text in _texts(value)):
            return ""
        blob = json.dumps(value, ensure_ascii=False, default=str)
        free = [mark for mark in SEPARATORS if mark not in blob]
        if not free:
            raise UsageError(f"a message holds all of the private-use characters {', '.join(map(ascii, SEPARATORS))}")
        return free[0]

    def guard(self, value: Any, separator: str) -> Any:
        """`value` with the separator put into every text that spells a control token; unchanged when it is ""."""
        if not separator:
            return value
        if isinstance(value, str):
            pieces, last = [], 0
            for place in self._breaks(value):
                pieces.append(value[last:place])
                last = place
            return separator.join([*pieces, value[last:]])
        if isinstance(value, Mapping):
            return {self.guard(key, separator): self.guard(item, separator) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.guard(item, separator) for item in value]
        return value

    def encode(self, text: str, separator: str = "") -> tuple[int, ...]:
        """Ids of `text`, without the separator's. Nothing is added at either end."""
        if not separator or separator not in text:
            ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            return tuple(ids)
        coded = self._tokenizer(text, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
        kept: list[int] = []
        for index, (start, stop) in zip(coded["input_ids"], coded["offset_mapping"], strict=True):
            if separator not in text[start:stop]:
                kept.append(index)
            elif text[start:stop] != separator:
                raise UsageError(f"the tokenizer merges a private-use character into {text[start:stop]!r}; choose another one")
        return tuple(kept)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, control tokens written out. Bytes that are no UTF-8 become U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def controls(self, text: str) -> list[tuple[int, str]]:
        """(where, which) of every control token written in `text`, in order. Of those that start alike, the longest."""
        found, end = [], 0
        for match in self._starts.finditer(text):
            if match.start() >= end and (token := self._token_at(text, match.start())):
                found.append((match.start(), token))
                end = match.start() + len(token)
        return found

    def common_start(self, one: str, other: str) -> int:
        """How many characters two texts have in common at their start, no added token of either cut in two."""
        cut = common_length(one, other)
        for text in (one, other):
            for token in self.added:
                start = text.find(token, max(0, cut - len(token) + 1), cut + len(token) - 1)
                if 0 <= start < cut < start + len(token):
                    cut = start
        return cut

    def _token_at(self, text: str, start: int) -> str:
        for length in reversed(self._by_start[text[start]]):
            if text[start : start + length] in self.control and start + length <= len(text):
                return text[start : start + length]
        return ""

    def _breaks(self, text: str) -> list[int]:
        """Where to put a separator: after the first character of whatever spells a control token, overlaps included."""
        return [m.start() + 1 for m in self._starts.finditer(text) if self._token_at(text, m.start())]


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two lists (or characters two texts) have in common at their start.

    >>> common_length([1, 2, 3], [1, 2, 4, 5])
    2
    """
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
