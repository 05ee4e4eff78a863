"""Python in WebAssembly: the contract as far as it can hold without processes, and what must not get out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrl.errors import UsageError
from agentrl.sandbox import Call, Exec, IsolationError, Sandbox, SandboxError, SandboxSpec, Status

pytest.importorskip("wasmtime", reason="the extra 'wasm' is not installed")
from agentrl.tools.sandboxes.wasm import WasmPool, WasmSandbox

from .conftest import Background

pytestmark = pytest.mark.slow
SPEC = SandboxSpec(memory="128M", disk="8M", output="4K", timeout=30.0, cpu=20.0, packages=())
Use = Callable[[Any], Any]


@pytest.fixture(scope="module")
def pool(background: Background) -> Iterator[WasmPool]:
    made = background.run(WasmPool.open(SPEC, 2))
    yield made
    background.run(made.aclose())


@pytest.fixture
def use(pool: WasmPool, background: Background) -> Use:
    def run(work: Any) -> Any:
        async def main() -> Any:
            async with await pool.acquire() as sandbox:
                return await work(sandbox)

        return background.run(main())

    return run


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("print(1)", Status.OK, 0),
        ("1 / 0", Status.ERROR, 1),
        ("import sys; sys.exit(3)", Status.ERROR, 3),
        ("import os; os._exit(9)", Status.ERROR, 9),
        ("def f(:", Status.ERROR, 1),
        ("x = bytearray(200 << 20)", Status.MEMORY, 1),
        ("def f(n): return f(n + 1)\nf(0)", Status.ERROR, 1),
    ],
)
def test_how_it_ended(use: Use, code: str, status: Status, exit_code: int) -> None:
    done = use(lambda sandbox: sandbox.python(code))
    assert (done.status, done.exit_code) == (status, exit_code), done


@pytest.mark.parametrize("loop", ["while True: pass", "import time; time.sleep(1000)", "10 ** 10 ** 9"])
def test_timeout_ends_what_cannot_be_interrupted(use: Use, loop: str) -> None:
    done = use(lambda sandbox: sandbox.python(f"print('so far')\n{loop}", timeout=1.5))
    assert (done.status, done.exit_code, done.stdout) == (Status.TIMEOUT, 137, "so far\n")


def test_output_input_and_traceback(use: Use) -> None:
    async def work(sandbox: WasmSandbox) -> list[Exec]:
        assert isinstance(sandbox, Sandbox)
        return [
            await sandbox.python("print('x' * 5000)"),
            await sandbox.python("while True: print('y' * 1000)"),
            await sandbox.python("print(input(), '\\udcff')", stdin="ä🚀\n"),
            await sandbox.python("x = 1\ny = x / 0"),
            await sandbox.run(["ls"]),
        ]

    over, flood, echo, failed, program = use(work)
    assert (len(over.stdout), over.stdout_cut, over.status) == (4096, True, Status.OK)
    assert (len(flood.stdout), flood.stdout_cut) == (4096, True)
    assert flood.wall_s < 20
    assert echo.stdout == "ä🚀 \\udcff\n"
    assert failed.stderr.splitlines()[1:3] == ['  File "main.py", line 2, in <module>', "    y = x / 0"]
    assert (program.exit_code, program.stderr) == (127, "ls: no programs can run here, only Python code\n")


def test_nothing_of_the_host_is_there(use: Use, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("S")
    code = f"""
import os
def tried(call, *arguments):
    try: return call(*arguments)
    except BaseException as error: return type(error).__name__
paths = ("/etc/passwd", {str(tmp_path / "secret")!r}, "../request.json", "/work/../../etc/passwd")
print([tried(open, path) for path in paths])
print(tried(os.symlink, "/etc", "link"), sorted(os.environ))
tried(os.symlink, "../../../../../../etc/passwd", "out")
print(tried(open, "out"))
import socket
print(tried(socket.socket), tried(socket.create_connection, ("127.0.0.1", 80)))
print([hasattr(os, name) for name in ("fork", "execv", "kill", "system")])
import threading
print(tried(threading.Thread(target=print).start))
"""
    lines = use(lambda sandbox: sandbox.python(code)).stdout.splitlines()
    assert lines[0] in (str(["FileNotFoundError"] * 4), str(["FileNotFoundError"] * 2 + ["PermissionError"] * 2)), lines[0]
    assert lines[1] == "PermissionError ['HOME', 'PYTHONDONTWRITEBYTECODE']"
    assert lines[2] in ("PermissionError", "FileNotFoundError")
    assert all(word.endswith("Error") for word in lines[3].split())
    assert lines[4].count("True") == 0
    assert lines[5].endswith("Error")


def test_files(use: Use) -> None:
    async def work(sandbox: WasmSandbox) -> None:
        await sandbox.write("data/in.bin", bytes(range(256)))
        assert (await sandbox.python("open('out', 'wb').write(open('data/in.bin', 'rb').read()[::-1])")).ok
        assert await sandbox.read("out") == bytes(range(256))[::-1]
        await sandbox.python("import os; os.symlink('../../../../../../../../etc/passwd', 'out2'); os.mkdir('folder')")
        for path in ("../evil", "/etc/passwd", "a/../../evil", "", ".", "out2", "x\0y", "folder", "nope"):
            with pytest.raises((ValueError, OSError)):
                await sandbox.read(path)
        with pytest.raises(OSError, match="disk limit"):
            await sandbox.write("big", bytes(9 << 20))
        many = await sandbox.run_many(
            ["import os; print(sorted(os.listdir('.'))); open('new', 'w'); print(input())"] * 2, stdins=["a", "b"]
        )
        assert [done.stdout.split("\n")[1] for done in many] == ["a", "b"]
        assert "new" not in many[1].stdout
        assert "new" not in (await sandbox.python("import os; print(os.listdir('.'))")).stdout

    use(work)


def test_disk_is_limited(use: Use) -> None:
    code = "\n".join(
        f"with open('f{i}', 'wb') as file: file.write(bytes(2 << 20))\nimport time; time.sleep(.1)" for i in range(40)
    )
    done = use(lambda sandbox: sandbox.python(code))
    assert done.status is not Status.OK
    done = use(lambda sandbox: sandbox.python("open('f', 'wb').write(bytes(20 << 20))"))
    assert done.status is not Status.OK


def test_calls(use: Use) -> None:
    code = """
import os
state = []
print("noise")
def f(x):
    state.append(x)
    if x == "exit": os._exit(0)
    if x == "hang":
        while True: pass
    if x == "raise": raise ValueError("no " + x)
    if x == "big": return "y" * (20 << 20)
    if x == "object": return object()
    return len(state), {x: (None, True, {1.5}, b"z")}
"""
    inputs = ["a", "b", "exit", "c", "raise", "hang", "d", "big", "object"]

    def value(x: str, count: int) -> Call:
        return Call(status=Status.OK, value=(count, {x: (None, True, {1.5}, b"z")}))

    calls = use(lambda sandbox: sandbox.call_many(code, "f", [(x,) for x in inputs], timeout=3, total=90))
    by_input = dict(zip(inputs, calls, strict=True))
    assert by_input["a"] == value("a", 1)
    assert by_input["b"] == value("b", 2)
    assert by_input["exit"] == Call(status=Status.ERROR, error="the process ended: exit code 0")
    assert by_input["c"] == value("c", 1)
    assert by_input["raise"] == Call(status=Status.ERROR, error="ValueError: no raise")
    assert by_input["hang"].status is Status.TIMEOUT
    assert by_input["d"] == value("d", 1)
    assert by_input["big"].status is not Status.OK
    assert by_input["object"] == Call(status=Status.ERROR, error="TypeError: a object is no plain data")
    refused = use(lambda sandbox: sandbox.call_many("1 / 0", "f", [(1,)] * 3, timeout=5))
    assert [(call.status, call.error) for call in refused] == [(Status.ERROR, "ZeroDivisionError: division by zero")] * 3


def test_mistakes_are_named_and_closing_leaves_nothing(pool: WasmPool, background: Background) -> None:
    with pytest.raises(IsolationError, match="namespace"):
        asyncio.run(WasmPool.open(SandboxSpec(isolation="namespace"), 1))
    with pytest.raises(UsageError, match="network"):
        asyncio.run(WasmPool.open(SandboxSpec(network=True), 1))
    sandbox = background.run(pool.acquire())
    ground = sandbox._ground
    background.run(sandbox.aclose())
    assert not ground.exists()
    with pytest.raises(SandboxError, match="closed"):
        background.run(sandbox.python("1"))
