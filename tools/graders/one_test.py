"""Runs one test of a project and reports what happened. Its text is a program that runs inside a sandbox: stdlib only.

The job comes on stdin: ten digits, that many bytes of JSON, then a token. The token stays unread, in the kernel, until the
test is over; the report, one line of JSON that holds it, is what this program prints. Whatever else is printed is dropped.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import sys
import tempfile
import types
from typing import Any, NoReturn

SHOWN = 400  # characters of a failure
Phase = tuple[str, str, str]
"""(test id, phase: setup | call | teardown | collect, outcome: passed | failed | skipped | xfail)"""


def main() -> NoReturn:
    leave, write, read = os._exit, os.write, os.read
    job = json.loads(_exactly(0, int(_exactly(0, 10))))
    token, report = os.dup(0), os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    phases: list[Phase] = []
    errors: list[str] = []
    try:
        sys.path[:] = [place for place in sys.path if place]
        importlib.import_module("pytest" if job["pytest"] else "unittest")  # before there is anything to take its place
        _unpack(job["files"], job["import_roots"])
        (_run_pytest if job["pytest"] else _run_plain)(job["id"], phases, errors)
    except BaseException as error:
        errors.append(f"{type(error).__name__}: {error}")
    said = {"token": read(token, 64).decode(), "phases": phases, "error": "\n".join(errors)[-SHOWN:]}
    write(report, json.dumps(said).encode() + b"\n")
    leave(0)


def _exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(fd, count - len(data))
        if not chunk:
            raise EOFError("the job ends early")
        data += chunk
    return data


def _unpack(files: dict[str, str], import_roots: list[str]) -> None:
    """Into a new folder, which becomes the working folder and the first place of imports."""
    base = tempfile.mkdtemp(prefix="project-", dir=os.getcwd())
    for path, content in files.items():
        target = os.path.join(base, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(base64.b64decode(content))
    os.chdir(base)
    sys.dont_write_bytecode = True
    sys.path[:] = [os.path.join(base, root) for root in import_roots] + sys.path


class Recorder:
    """A pytest plugin that writes down every report."""

    def __init__(self, phases: list[Phase], errors: list[str]) -> None:
        self.phases, self.errors = phases, errors

    def pytest_runtest_logreport(self, report: Any) -> None:
        outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
        self.phases.append((report.nodeid, report.when, outcome))
        if outcome != "passed":
            self.errors.append(report.longreprtext)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.phases.append((report.nodeid, "collect", report.outcome))
            self.errors.append(report.longreprtext)


def _run_pytest(test: str, phases: list[Phase], errors: list[str]) -> None:
    import pytest

    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    no_settings = ["-c", os.devnull, "--rootdir", os.getcwd(), "-p", "no:cacheprovider"]
    code = pytest.main([*no_settings, "--tb=short", test], plugins=[Recorder(phases, errors)])
    if code != 0:
        phases.append((test, "collect", "failed"))


def _run_plain(test: str, phases: list[Phase], errors: list[str]) -> None:
    """Functions without arguments, methods of plain classes, and unittest's TestCase."""
    import unittest

    path, *names = test.split("::")
    module = _load(path)
    owner = module if len(names) == 1 else getattr(module, names[0])
    if isinstance(owner, type) and issubclass(owner, unittest.TestCase):
        result = unittest.TestResult()
        unittest.TestSuite([owner(names[-1])]).run(result)
        errors += [text for _, text in result.errors + result.failures]
        clean = result.wasSuccessful() and result.testsRun == 1
        special = result.skipped or result.expectedFailures or result.unexpectedSuccesses
        outcome = "skipped" if special else "passed" if clean else "failed"
    else:
        outcome = _call(getattr(owner() if isinstance(owner, type) else owner, names[-1]), unittest.SkipTest, errors)
    phases += [(test, phase, outcome) for phase in ("setup", "call", "teardown")]


def _call(function: Any, skip: type[BaseException], errors: list[str]) -> str:
    try:
        function()
    except skip:
        return "skipped"
    except BaseException as error:
        errors.append(f"{type(error).__name__}: {error}")
        return "failed"
    return "passed"


def _load(path: str) -> types.ModuleType:
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
