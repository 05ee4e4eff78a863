"""The process that math-verify and sympy run in: answers lines of JSON until its input ends. Run as a script, by path.

Untrusted text is parsed and simplified here, which may take for ever or all memory: so memory is limited, and a request
that its parent cannot cut short any more ends with the alarm.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import Any

MEMORY = 2 << 30  # bytes of address space; sympy itself takes a tenth
MARGIN = 2  # seconds that the parent has to kill us first


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    logging.disable(logging.CRITICAL)
    _limit_memory()
    import math_verify

    _say(answers, {"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        signal.alarm(int(asked["timeout"]) + 1 + MARGIN)
        _say(answers, _answer(math_verify, asked["answer"], asked["expected"]))
        signal.alarm(0)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):  # not on every system; the deadline holds everywhere
        logging.getLogger(__name__).info("no limit of memory here")


def _say(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _answer(library: Any, answer: str, expected: str) -> dict[str, Any]:
    """{"equal": bool}, or {"unreadable": True} when the expected text cannot be parsed."""
    try:
        gold = library.parse(expected, parsing_timeout=None)
    except (Exception, RecursionError) as error:
        return {"unreadable": repr(error)}
    if not gold:
        return {"unreadable": "no mathematics in it"}
    try:
        found = library.parse(answer, parsing_timeout=None)
        return {"equal": bool(found) and bool(library.verify(gold, found, timeout_seconds=None))}
    except (Exception, RecursionError, MemoryError) as error:
        return {"equal": False, "error": f"{type(error).__name__}: {error}"[:200]}


if __name__ == "__main__":
    main()
