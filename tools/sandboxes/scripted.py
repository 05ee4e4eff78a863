"""A sandbox for tests: nothing runs; answers come from a table or a function, and every request is recorded.

Shaped like the real ones so that code which takes a SandboxPool can be tested without processes: one object is pool and
record, its sandboxes share the answers, files are kept in memory per sandbox, and `acquire` never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.sandbox import Call, Exec, SandboxError, SandboxSpec, Status

DEFAULT = Exec(status=Status.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for.

    >>> Request(kind="python", code="print(1)", stdin="2")
    Request(kind='python', code='print(1)', stdin='2', function='', arguments=())
    """

    kind: str
    """python | run | call"""
    code: str
    """The program; of `run`, its arguments joined by spaces."""
    stdin: str = ""
    function: str = ""
    arguments: tuple[Any, ...] = ()


Answer = Exec | Call | Exception
Answers = Mapping[str, Answer] | Callable[[Request], Answer]


class ScriptedPool:
    """Answers by the request's code, or as a function says; without either, everything ends well and prints nothing.

    An exception as an answer is raised: `SandboxLost("gone")` shows what happens when a sandbox dies.

    >>> pool = ScriptedPool({"print(1)": Exec(status=Status.OK, stdout="1")})
    """

    isolation = "none"

    def __init__(self, answers: Answers | None = None) -> None:
        self.answers: Answers = answers if answers is not None else {}
        self.requests: list[Request] = []
        self.acquired = 0
        self.open_now = 0

    @classmethod
    async def open(cls, spec: SandboxSpec | None = None, slots: int = 8, *, answers: Answers | None = None) -> ScriptedPool:
        return cls(answers)

    async def acquire(self) -> ScriptedSandbox:
        self.acquired += 1
        self.open_now += 1
        return ScriptedSandbox(self)

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> ScriptedPool:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    def answer(self, request: Request) -> Answer:
        """Records and answers. Raises an answer that is an exception."""
        self.requests.append(request)
        found = self.answers(request) if callable(self.answers) else self.answers.get(request.code, DEFAULT)
        if isinstance(found, Exception):
            raise found
        return found


class ScriptedSandbox:
    def __init__(self, pool: ScriptedPool) -> None:
        self._pool = pool
        self._closed = False
        self.files: dict[str, bytes] = {}

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        return self._exec(Request(kind="run", code=argv if isinstance(argv, str) else " ".join(argv), stdin=stdin))

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        return self._exec(Request(kind="python", code=code, stdin=stdin))

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        inputs = [""] * len(programs) if stdins is None else stdins
        return [await self.python(code, stdin=stdin) for code, stdin in zip(programs, inputs, strict=True)]

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        requests = [Request(kind="call", code=code, function=function, arguments=tuple(given)) for given in inputs]
        return [self._call(request) for request in requests]

    async def write(self, path: str, data: bytes) -> None:
        self.files[path] = data

    async def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(f"there is no file {path!r}")
        return self.files[path]

    async def alive(self) -> bool:
        return not self._closed

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool.open_now -= 1

    async def __aenter__(self) -> ScriptedSandbox:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    def _exec(self, request: Request) -> Exec:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        found = self._pool.answer(request)
        if not isinstance(found, Exec):
            raise TypeError(f"the script answers {request.kind!r} with {found!r}; it must be an Exec")
        return found

    def _call(self, request: Request) -> Call:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        found = self._pool.answer(request)
        if not isinstance(found, Call):
            raise TypeError(f"the script answers 'call' with {found!r}; it must be a Call")
        return found
