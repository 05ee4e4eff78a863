"""Where in a text the answer stands, when the agent has marked it."""

from __future__ import annotations

import re

_BEGIN, _END = re.compile("<answer>", re.IGNORECASE), re.compile("</answer>", re.IGNORECASE)


def answer_part(text: str) -> str:
    """What stands in the last complete <answer>...</answer>; the whole text where there is none.

    >>> answer_part("Not left: <answer> up </answer>"), answer_part("up")
    (' up ', 'up')
    """
    ends = [match.start() for match in _END.finditer(text)]
    begins = [match.end() for match in _BEGIN.finditer(text, 0, ends[-1])] if ends else []
    return text[begins[-1] : ends[-1]] if begins else text
