"""Grades the answer to a mathematical question: is what the text ends in equal to what is expected.

Plain numbers are compared here, exactly. All else goes to math-verify (extra `math`) in a process of its own: sympy can hang
on a short text, and a thread cannot be stopped. One process at a time is kept; it is killed at the deadline.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from agentrl.errors import MissingExtra
from agentrl.sandbox import SandboxError, Status

from . import plain_numbers
from .result import SHOWN, CaseResult, failed, passed, shown

BOXES = (r"\boxed", r"\fbox")
LONGEST = 1000  # characters of an answer; the longer cost more than they are worth
TAIL = 400  # characters of a text without a box that are searched for an answer
START_TIMEOUT = 120.0  # seconds; a loaded machine imports sympy slowly
WORKER = Path(__file__).with_name("math_worker.py")


async def math_equal(answer: str, expected: str, *, boxed: bool = False, timeout: float = 5.0) -> CaseResult:
    r"""Is the answer in a text (its last \boxed{...}, else its end; nothing else with `boxed`) equal to `expected`?

    `timeout` is seconds of math-verify. An answer that it cannot decide in time is wrong, with Status.TIMEOUT. Raises
    MissingExtra for what needs math-verify where it is not installed, ValueError when `expected` cannot be read, SandboxError
    when the process cannot be started.
    """
    found = last_boxed(answer)
    if found is None and boxed:
        return failed(r"there is no \boxed{...}")
    text = (answer[-TAIL:] if found is None else found).strip()
    want = last_boxed(expected) or expected
    if not text or len(text) > LONGEST:
        return failed("there is no answer" if not text else f"an answer of {len(text)} characters; at most {LONGEST} are read")
    got_number, want_number = plain_numbers.parse(text), plain_numbers.parse(want)
    if got_number is not None and want_number is not None:
        return _verdict(plain_numbers.same(got_number, want_number), text, want)
    if plain_numbers.unwrapped(text) == plain_numbers.unwrapped(want):
        return passed()
    if importlib.util.find_spec("math_verify") is None:
        raise MissingExtra("math-verify", extra="math")
    said = await asyncio.to_thread(_WORKER.ask, _as_math(text, found is not None), _as_math(want, True), timeout)
    if "unreadable" in said:
        raise ValueError(f"the expected answer {shown(expected)} cannot be read: {said['unreadable']}")
    if "status" in said:
        return failed(f"no verdict on {shown(text)}", said["status"])
    return _verdict(said["equal"], text, want)


def _verdict(is_equal: bool, text: str, want: str) -> CaseResult:
    return passed() if is_equal else failed(f"got {shown(text)}, expected {shown(want)}"[: 2 * SHOWN])


def _as_math(text: str, whole: bool) -> str:
    """As math-verify finds it: all of the text is the answer when `whole`."""
    return rf"$\boxed{{{plain_numbers.unwrapped(text)}}}$" if whole else text


def last_boxed(text: str) -> str | None:
    r"""What is in the last \boxed{...} (or \fbox) whose braces close. None without one.

    >>> last_boxed(r"\boxed{1} or \boxed{\frac{1}{2}}, \boxed{3")
    '\\frac{1}{2}'
    """
    end = len(text)
    while (start := max(text.rfind(box, 0, end) for box in BOXES)) >= 0:
        rest = text[start:].removeprefix(BOXES[0]).removeprefix(BOXES[1]).lstrip()
        inside = _braced(rest)
        if inside is not None:
            return inside.strip()
        end = start
    return None


def _braced(text: str) -> str | None:
    if not text.startswith("{"):
        return None
    depth, skip = 0, False
    for i, character in enumerate(text):
        if skip:
            skip = False
        elif character == "\\":
            skip = True  # \{ and \} are set braces
        else:
            depth += (character == "{") - (character == "}")
            if depth == 0:
                return text[1:i]
    return None


class _Worker:
    """One process, made when it is first needed and anew when it was killed. Used by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, answer: str, expected: str, timeout: float) -> dict[str, Any]:
        """What the worker says, or {"status": TIMEOUT or KILLED}. Waiting for a turn and its start take no time of it."""
        request = json.dumps({"answer": answer, "expected": expected, "timeout": timeout})
        with self._lock:
            for fresh in (False, True):
                process = self._start() if fresh or self._process is None or self._process.poll() is not None else self._process
                said = self._exchange(process, request, timeout)
                if said is not None:
                    return said
                self.kill()  # hung, or ended: tried once more only when it had ended, perhaps long ago
        return {"status": Status.KILLED}

    def _exchange(self, process: subprocess.Popen[str], request: str, timeout: float) -> dict[str, Any] | None:
        """None when the process has ended."""
        assert process.stdin is not None
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            return self._read(process, timeout)
        except TimeoutError:
            self.kill()
            return {"status": Status.TIMEOUT}
        except (BrokenPipeError, EOFError):
            return None

    def _read(self, process: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
        """One line; it is written at once, so that after its first byte nothing is waited for."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], timeout)
        if not ready:
            raise TimeoutError
        line = process.stdout.readline()
        if not line:
            raise EOFError
        found: dict[str, Any] = json.loads(line)
        return found

    def _start(self) -> subprocess.Popen[str]:
        """Raises SandboxError."""
        command = [sys.executable, "-P", str(WORKER)]  # -P: our folder is no place of imports
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            self._read(process, START_TIMEOUT)
        except (TimeoutError, EOFError):
            self.kill()
            raise SandboxError("the process for math-verify does not start; is `import math_verify` possible?") from None
        return process

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


_WORKER = _Worker()
atexit.register(_WORKER.kill)
