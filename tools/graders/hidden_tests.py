"""Grades a project by hidden tests of which a given set must pass. By pytest where the sandbox has it, else by a small
runner of ours (functions without arguments, plain classes, unittest).

Each test is a process of its own that knows nothing of the others: the sandbox's supervisor starts it, its files are written
anew, the hidden ones over the candidate's. A test passes when its process ends well and prints one report that holds a token
which waits unread in the kernel while the test runs, and which says that this very test was set up, called and torn down.
So these do not pass: `os._exit(0)`, printed marks, a conftest.py, settings or a plugin, test files overwritten on disk, tests
that are missing, skipped or expected to fail.

What remains, since a test's assertions run in one process with the candidate's code: code that finds the token's file
descriptor, or patches pytest or the test itself in memory, can report what it likes. To catch that, tests are run a second
time, in a random order among the others, with what they expect changed (see mutants.py). One that passes both ways was not
solved but forced, an object that equals everything included: then nothing counts. A process cannot tell which of the two it
runs unless it knows the right answer. The hole that is left: code that knows the right answers without computing them, or
that recognizes a mutant by other means (an unusual value; that of a test without a plain assertion ends in `assert 0 == 1`);
tests that cannot be mutated. Where values can be compared as plain data, function_cases has no such hole: use it.
"""

from __future__ import annotations

import ast
import base64
import inspect
import json
import random
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agentrl.sandbox import Exec, Sandbox, SandboxError, SandboxLost, Status

from . import one_test
from .mutants import mutant, normal
from .result import SHOWN, CaseResult, GradeResult, failed, passed

PYTEST_PACKAGES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
"""For SandboxSpec.packages: what pytest needs. With them it is loaded once, not for every test."""
STEERING = (
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "sitecustomize.py", "usercustomize.py"
)  # fmt: skip
COMPILED = (".pth", ".pyc", ".pyo")
METADATA = (".dist-info", ".egg-info", "__pycache__")
SHADOWING = (*PYTEST_PACKAGES, "unittest")
IMPORT_PYTEST = """
import sys
del sys.path[0]
try: import pytest
except (ImportError, OSError): sys.exit(3)  # hidden, a package may be there and yet not readable
"""
BATCH = 8  # tests between two looks at the time
Files = Mapping[str, str | bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenResult(GradeResult):
    """The cases, in the order of `tests`, and what was noticed.

    >>> HiddenResult(cases=(passed(),), tests=("test_a.py::test_f",), ignored=("conftest.py",)).reward
    1.0
    """

    tests: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    """Files of the candidate that were left out."""
    forced: tuple[str, ...] = ()
    """Tests that passed in spite of a changed expectation; when there is one, no case has passed."""


async def pytest_cases(
    sandbox: Sandbox,
    files: Files,
    tests: Files,
    expected: Iterable[str],
    *,
    timeout: float = 10.0,
    total: float = 120.0,
    import_roots: Sequence[str] = (".",),
    controls: int | None = None,
) -> HiddenResult:
    """Runs the tests whose ids are `expected` ("tests/test_a.py::test_f[1]"); each must pass, no other counts.

    `files` is the candidate's project, `tests` the hidden files (path -> content). `timeout` is seconds of one test, `total`
    of all; both are wall time. `controls` is how many tests, drawn at random, are also run as mutants: None for all that can
    be. Raises SandboxLost; SandboxError when the tests need pytest and the sandbox has none (see PYTEST_PACKAGES); ValueError
    for ids or files that cannot be.
    """
    wanted = tuple(dict.fromkeys(expected))
    hidden = {path: _source(path, content) for path, content in tests.items()}
    _check(wanted, hidden)
    has_pytest = await _has_pytest(sandbox)
    if not has_pytest and (reason := _needs_pytest(hidden)):
        raise SandboxError(f"{reason} needs pytest, which the sandbox lacks: add PYTEST_PACKAGES to SandboxSpec.packages")
    kept, ignored = allowed(files, hidden)
    jobs = _jobs(wanted, hidden, controls)
    common = {"import_roots": list(import_roots), "pytest": has_pytest}
    done = await _run(sandbox, [{**common, "id": job.test, "files": {**kept, **job.files}} for job in jobs], timeout, total)
    verdicts = {(job.test, job.is_control): _judge(job.test, *one) for job, one in zip(jobs, done, strict=True)}
    cases = tuple(verdicts[test, False] for test in wanted)
    forced = tuple(t for t, case in zip(wanted, cases, strict=True) if case and verdicts.get((t, True)))
    if forced:
        cases = (failed(f"forced: {forced[0]} passes whatever it expects"),) * len(wanted)
    return HiddenResult(cases=cases, tests=wanted, ignored=ignored, forced=forced)


def allowed(files: Files, hidden: Collection[str]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """(the candidate's files that are used, the paths of those that are not).

    >>> allowed({"a.py": "", "conftest.py": "", "../b": "", "tests/test_a.py": ""}, ["tests/test_a.py"])
    ({'a.py': b''}, ('conftest.py', '../b', 'tests/test_a.py'))
    """
    kept = {str(PurePosixPath(path)): _bytes(data) for path, data in files.items() if _may_stay(path, hidden)}
    taken = [path for path in kept if not any(parent in kept for parent in _parents(path))]
    return {path: kept[path] for path in taken}, tuple(path for path in files if str(PurePosixPath(path)) not in taken)


def _may_stay(text: str, hidden: Collection[str]) -> bool:
    path = PurePosixPath(text)
    if not _is_inside(text) or path.name in STEERING or path.suffix in COMPILED:
        return False
    if any(part.endswith(METADATA) for part in path.parts) or path.parts[0].removesuffix(".py") in SHADOWING:
        return False
    covered = {str(path), *_parents(str(path))}
    return not any(other in covered or str(path) in _parents(other) for other in hidden)


def _is_inside(text: str) -> bool:
    path = PurePosixPath(text)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in text


def _parents(path: str) -> set[str]:
    return {str(parent) for parent in PurePosixPath(path).parents} - {"."}


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def _source(path: str, content: str | bytes) -> bytes:
    """A hidden file; Python as a mutant of it would look. Left alone where that is not possible."""
    if not _is_inside(path) or str(PurePosixPath(path)) != path:
        raise ValueError(f"{path!r} is no path of a hidden test file")
    if not path.endswith(".py"):
        return _bytes(content)
    try:
        return normal(_bytes(content).decode()).encode()
    except ValueError:  # a SyntaxError is none: it is the author's to mend, and said so
        return _bytes(content)


def _check(wanted: Sequence[str], hidden: Mapping[str, bytes]) -> None:
    for test in wanted:
        path, *names = test.split("[")[0].split("::")
        if path not in hidden or not names:
            raise ValueError(f"{test!r} is no id of a test in the hidden files; as in 'tests/test_a.py::test_f'")


def _needs_pytest(hidden: Mapping[str, bytes]) -> str:
    """The first hidden file that our own runner cannot run; empty where there is none."""
    for path, content in hidden.items():
        if path.endswith("conftest.py"):
            return path
        if path.endswith(".py") and any(_is_pytest(node) for node in ast.walk(ast.parse(content))):
            return path
    return ""


def _is_pytest(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name.split(".")[0] == "pytest" for alias in names)
        case ast.ImportFrom(module=str(module)):
            return module.split(".")[0] == "pytest"
        case ast.FunctionDef(name=name, args=ast.arguments(args=args, defaults=defaults)) if name.startswith("test"):
            return len(args) - len(defaults) > (1 if args and args[0].arg == "self" else 0)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    test: str
    files: Mapping[str, bytes]
    is_control: bool = False


def _jobs(wanted: Sequence[str], hidden: Mapping[str, bytes], controls: int | None) -> list[_Job]:
    """In an order that says nothing."""
    rng = random.Random(secrets.randbits(128))
    jobs = [_Job(test=test, files=hidden) for test in wanted]
    mutable = {path for path, content in hidden.items() if path.endswith(".py") and _is_normal(content)}
    mutants = []
    for test in rng.sample(wanted, len(wanted)):
        path = test.split("::")[0]
        changed = mutant(hidden[path].decode(), test, rng) if path in mutable else None
        if changed is not None:
            mutants.append(_Job(test=test, files={**hidden, path: changed.encode()}, is_control=True))
    return rng.sample(jobs + mutants[:controls], len(jobs) + len(mutants[:controls]))


def _is_normal(content: bytes) -> bool:
    try:
        return normal(content.decode()).encode() == content
    except ValueError:
        return False


async def _has_pytest(sandbox: Sandbox) -> bool:
    """Asked before any code of the candidate is in the sandbox."""
    done = await sandbox.python(IMPORT_PYTEST)
    if done.exit_code not in (0, 3):
        raise SandboxError(f"the sandbox cannot run Python: {done.render(SHOWN)}")
    return done.exit_code == 0


async def _run(
    sandbox: Sandbox, requests: Sequence[Mapping[str, object]], timeout: float, total: float
) -> list[tuple[Exec | None, str]]:
    """(execution, token) of each; None for those that there was no time for. Raises SandboxLost."""
    program = inspect.getsource(one_test)
    done: list[tuple[Exec | None, str]] = []
    spent = 0.0
    for start in range(0, len(requests), BATCH):
        batch = [(_stdin(request, token), token) for request in requests[start : start + BATCH] for token in [_token()]]
        if spent >= total:
            done += [(None, token) for _, token in batch]
            continue
        ran = await sandbox.run_many([program] * len(batch), stdins=[text for text, _ in batch], timeout=timeout)
        if any(one.status is Status.LOST for one in ran):
            raise SandboxLost("the sandbox died while it ran hidden tests")
        spent += sum(one.wall_s for one in ran)
        done += [(one, token) for one, (_, token) in zip(ran, batch, strict=True)]
    return done


def _token() -> str:
    return secrets.token_hex(16)


def _stdin(request: Mapping[str, object], token: str) -> str:
    text = json.dumps(request, default=lambda content: base64.b64encode(content).decode())
    return f"{len(text):010}{text}{token}"


def _judge(test: str, done: Exec | None, token: str) -> CaseResult:
    if done is None:
        return failed("not run: the time for all tests was used up", Status.TIMEOUT)
    if not done.ok:
        return failed(f"{done.status.value}: {done.stderr.strip()[-SHOWN:]}", done.status)
    said = _report(done.stdout, token)
    if said is None:
        return failed("the process ended without a report")
    phases, error = said
    if not all(name == test and outcome == "passed" for name, _, outcome in phases):
        wrong = next(f"{outcome} in {phase}" for name, phase, outcome in phases if name != test or outcome != "passed")
        return failed(f"{wrong}: {error.strip()[-SHOWN:]}")
    if {phase for _, phase, _ in phases} != {"setup", "call", "teardown"}:
        return failed(error.strip()[-SHOWN:] or "it was not run")
    return passed()


def _report(stdout: str, token: str) -> tuple[list[tuple[str, str, str]], str] | None:
    """(phases, error), or None for what is not exactly one report with the token."""
    try:
        said = json.loads(stdout)
        if not secrets.compare_digest(said["token"].encode(), token.encode()):
            return None
        return [(str(name), str(phase), str(outcome)) for name, phase, outcome in said["phases"]], str(said["error"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
