"""Starts `agentrl` commands in processes that have torch imported already: a fork of one parent that has computed nothing.

A fresh interpreter spends seconds on imports; a test that starts the command line some thirty times cannot. The parent is a
process of its own, since forking one that has run torch's threads is not safe. Use `Nursery` from a test; this file is also
the parent's program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 120.0
"""Seconds that any one command may take before the test fails instead of hanging."""


class Nursery:
    """The parent, seen from a test. `with Nursery() as nursery: child = nursery.start([...], log)`."""

    def __enter__(self) -> Nursery:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._parent = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__))],  # -P: no module beside this file is to shadow a library
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(DEADLINE)

    def start(self, arguments: Sequence[str], log: Path) -> Child:
        return Child(self, int(self._ask({"start": list(arguments), "log": str(log)})), log)

    def _ask(self, question: dict[str, Any]) -> str:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(json.dumps(question), file=self._parent.stdin, flush=True)
        return self._parent.stdout.readline()


class Child:
    """One command. Its output goes to `log`."""

    def __init__(self, nursery: Nursery, pid: int, log: Path) -> None:
        self._nursery, self.pid, self.log = nursery, pid, log

    def says(self, text: str) -> bool:
        """Waits until `text` stands in its output; False when it ended without."""
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            if text in self.log.read_text():
                return True
            if self.ended() is not None:
                return text in self.log.read_text()
            time.sleep(0.002)
        raise TimeoutError(f"{text!r} was not said in {DEADLINE} s:\n{self.log.read_text()}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """To be called only after `ended` gave None: the parent has not waited for it, so that the id is still its own."""
        os.kill(self.pid, number)

    def ended(self) -> int | None:
        """The exit code (minus the signal that killed it); None while it runs."""
        answer = self._nursery._ask({"poll": self.pid}).strip()
        return None if answer == "running" else int(answer)

    def wait(self) -> int:
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            if (code := self.ended()) is not None:
                return code
            time.sleep(0.005)
        raise TimeoutError(f"process {self.pid} did not end in {DEADLINE} s:\n{self.log.read_text()}")


def _parent() -> None:
    """Answers one JSON line on standard input with one line on standard output, until the input ends."""
    import tensorboard.summary  # noqa: F401
    import torch
    import transformers  # noqa: F401
    from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: F401

    import agentrl.cli
    import agentrl.run
    import agentrl.trainers.backends.local  # noqa: F401

    torch.set_num_threads(1)
    codes: dict[int, int] = {}
    for line in sys.stdin:
        question = json.loads(line)
        if "start" in question:
            answer = str(_fork(question["start"], question["log"]))
        else:
            answer = _poll(question["poll"], codes)
        print(answer, flush=True)


def _poll(pid: int, codes: dict[int, int]) -> str:
    if pid not in codes:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return "running"
        codes[pid] = os.waitstatus_to_exitcode(status)
    return str(codes[pid])


def _fork(arguments: list[str], log: str) -> int:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    pid = os.fork()
    if pid:
        os.close(file)
        return pid
    code = 70  # what is seen when even the reporting below fails
    try:
        for stream in (1, 2):
            os.dup2(file, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        from agentrl.cli import main

        code = main(arguments)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _parent()
