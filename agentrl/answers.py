"""Reading answers out of a model's text: numbers, words, fenced code. Pure functions; `messages.Action` says what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][+-]?\d+)?")
"""A minus after a word or a number is a dash ("10-20"); commas group thousands."""
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([\w+#.-]*)([^`\n]*)")
_ALIASES = {"py": "python", "python3": "python", "js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash"}


def numbers(text: str) -> list[float]:
    """All finite numbers, in order.

    >>> numbers("from 10-20, not -3.5 but 1,000 or .5")
    [10.0, 20.0, -3.5, 1000.0, 0.5]
    """
    found = (float(match.replace(",", "")) for match in _NUMBER.findall(text.replace("−", "-")))
    return [value for value in found if math.isfinite(value)]


def whole_numbers(text: str) -> list[int]:
    """All whole numbers, in order; "4.0" is one, "4.5" is none. Those of more than 300 digits are left out.

    >>> whole_numbers("4.5 is between 4 and 5.0")
    [4, 5]
    """
    found = [match.replace(",", "") for match in _NUMBER.findall(text.replace("−", "-"))]
    plain = re.compile(r"-?\d{1,300}")
    return [
        int(match) if plain.fullmatch(match) else int(float(match))
        for match in found
        if plain.fullmatch(match) or (not match.lstrip("-").isdigit() and float(match).is_integer())
    ]


def last_of(text: str, choices: Sequence[str]) -> str | None:
    """The last of `choices` that stands in the text by itself, in any case. Markdown's _ and * around it do not matter.

    >>> last_of("Not left, but **Right**.", ["left", "right"])
    'right'
    """
    by_length = sorted(choices, key=len, reverse=True)
    pattern = rf"(?<![^\W_])(?<![^\W_]-)({'|'.join(map(re.escape, by_length))})(?!-?[^\W_])"
    found = re.findall(pattern, text, re.IGNORECASE) if choices else []
    by_lowered = {choice.lower(): choice for choice in choices}
    return by_lowered[found[-1].lower()] if found else None


def code_blocks(text: str) -> list[tuple[str, str]]:
    """(language, code) of each complete fenced block. A block that is opened but never closed is none.

    >>> code_blocks("So:\\n```py\\nx = 1\\n```\\n```\\nunfinished")
    [('python', 'x = 1')]
    """
    blocks: list[tuple[str, str]] = []
    fence, language, indent, body = "", "", 0, list[str]()
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line.rstrip("\r"))
        named = match is not None and bool(match.group(3) or match.group(4).strip())
        if match and (not fence or named):  # a second opening: the first block was never closed
            fence, language, indent, body = match.group(2), canonical(match.group(3)), len(match.group(1)), []
        elif fence and match and match.group(2).startswith(fence):
            blocks.append((language, "\n".join(body)))
            fence = ""
        elif fence:
            body.append(line[min(indent, len(line) - len(line.lstrip())) :])
            if line.rstrip().endswith(fence):  # closed at the end of a line of code
                blocks.append((language, "\n".join(body).rstrip().removesuffix(fence)))
                fence = ""
    return blocks


def canonical(language: str) -> str:
    """A language's usual name, in lower case.

    >>> canonical("Py")
    'python'
    """
    return _ALIASES.get(language.lower(), language.lower())
