"""Remote sandboxes against a server of ours, one that is not ours, and ones that are busy, broken or lie."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agentrl.errors import UsageError
from agentrl.sandbox import Call, Exec, IsolationError, Sandbox, SandboxError, SandboxLost, SandboxSpec, Status
from agentrl.tools.sandboxes import remote, server
from agentrl.tools.sandboxes.remote import RemotePool, RemoteSandbox
from agentrl.tools.sandboxes.remote_link import Answer
from agentrl.tools.sandboxes.scripted import ScriptedPool
from tests.support.isolation import missing

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.verl_client import check_correctness

from .conftest import Background, Local

SPEC = SandboxSpec(timeout=20.0, output="1K")


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


async def forever(app: web.Application, address: asyncio.Future[str], stop: asyncio.Event) -> None:
    async with listening(app) as url:
        address.set_result(url)
        await stop.wait()


def foreign(ours: web.Application) -> web.Application:
    """As another's server: it says nothing of itself, and nothing beyond what SandboxFusion answers."""
    app = web.Application(client_max_size=server.LARGEST)
    run_code = next(route.handler for route in ours.router.routes() if route.resource.canonical == "/run_code")

    async def plain(request: web.Request) -> web.Response:
        response = await run_code(request)
        body = json.loads(response.body)
        (body.get("run_result") or {}).pop("agentrl", None)
        return web.json_response(body, status=response.status)

    async def ping(request: web.Request) -> web.Response:
        return web.json_response("pong")

    app.add_routes([web.post("/run_code", plain), web.get("/v1/ping", ping)])
    return app


@pytest.fixture(scope="module", params=["ours", "theirs"])
def address(request: pytest.FixtureRequest, pools: dict[str, Local | str], background: Background) -> Iterator[str]:
    local = next((pool for pool in pools.values() if isinstance(pool, Local)), None)
    if local is None:
        missing("this machine gives no isolation at all")
    app = server.Server(local.pool, backend="local", slots=3).app

    async def start() -> tuple[str, asyncio.Event, asyncio.Task[None]]:
        told, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = asyncio.create_task(forever(app if request.param == "ours" else foreign(app), told, stop))
        return await told, stop, task

    url, stop, task = background.run(start())
    yield url
    background.loop.call_soon_threadsafe(stop.set)

    async def wait() -> None:
        await task

    background.run(wait())


Use = Callable[[Any], Any]


@pytest.fixture
def use(address: str, background: Background) -> Use:
    def run(work: Any) -> Any:
        async def main() -> Any:
            async with await RemotePool.open(SPEC, 3, url=address) as pool, await pool.acquire() as sandbox:
                return await work(sandbox)

        return background.run(main())

    return run


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("print(1)", Status.OK, 0),
        ("1 / 0", Status.ERROR, 1),
        ("import sys; sys.exit(3)", Status.ERROR, 3),
        ("def f(:", Status.ERROR, 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", Status.KILLED, 128 + 15),
        ("bytearray(1 << 40)", Status.MEMORY, 1),
    ],
)
def test_how_it_ended(use: Use, code: str, status: Status, exit_code: int) -> None:
    async def work(sandbox: RemoteSandbox) -> list[Exec]:
        return [await sandbox.python(code), *(await sandbox.run_many([code]))]

    for done in use(work):
        assert (done.status, done.exit_code) == (status, exit_code), done


def test_timeout(use: Use) -> None:
    done = use(lambda sandbox: sandbox.python("print('so far', flush=True)\nwhile True: pass", timeout=0.5))
    assert (done.status, done.exit_code, done.stdout) == (Status.TIMEOUT, 137, "so far\n")
    assert 0.4 < done.wall_s < 10


def test_tracebacks_show_the_program_alone(use: Use) -> None:
    done = use(lambda sandbox: sandbox.python("x = 1\ny = x / 0"))
    lines = done.stderr.splitlines()
    assert lines[:3] == ["Traceback (most recent call last):", '  File "main.py", line 2, in <module>', "    y = x / 0"]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_output_is_cut_and_flagged(use: Use) -> None:
    done = use(lambda sandbox: sandbox.python("print('x' * 1023); import sys; print('y' * 1024, file=sys.stderr)"))
    assert (len(done.stdout), done.stdout_cut, len(done.stderr), done.stderr_cut) == (1024, False, 1024, True)
    assert done.status is Status.OK


def test_input_and_any_text(use: Use) -> None:
    async def work(sandbox: RemoteSandbox) -> list[str]:
        echo = await sandbox.python("print(input(), input())", stdin="ä\nb🚀\n")
        return [echo.stdout, (await sandbox.python("import sys; print(repr(sys.stdin.read()))")).stdout]

    assert use(work) == ["ä b🚀\n", "''\n"]


def test_run_takes_arguments_or_a_shell_text(use: Use) -> None:
    async def work(sandbox: RemoteSandbox) -> list[Exec]:
        assert isinstance(sandbox, Sandbox)
        with pytest.raises(ValueError, match="no list of arguments"):
            await sandbox.run([])
        return [
            await sandbox.run(["echo", "a b", ""]),
            await sandbox.run("echo $((1 + 2)); cat; exit 5", stdin="given"),
            await sandbox.run(["no-such-program"]),
        ]

    echo, shell, missing = use(work)
    assert (echo.stdout, echo.status) == ("a b \n", Status.OK)
    assert (shell.stdout, shell.exit_code, shell.status) == ("3\ngiven", 5, Status.ERROR)
    assert (missing.exit_code, missing.stderr) == (127, "no-such-program: No such file or directory\n")


def test_files_last_from_run_to_run(use: Use) -> None:
    async def work(sandbox: RemoteSandbox) -> None:
        data = bytes(range(256)) * 1000
        await sandbox.write("data/in.bin", data)
        code = (
            "d = open('data/in.bin', 'rb').read(); open('out', 'wb').write(d[::-1]); import os; print(sorted(os.listdir('.')))"
        )
        assert (await sandbox.python(code)).stdout == "['data', 'out']\n"
        assert await sandbox.read("out") == data[::-1]
        await sandbox.run("chmod 700 out; ln -s out link; mkdir -p deep/er; rm data/in.bin; echo 1 > deep/er/f; exit 3")
        assert (
            await sandbox.run("ls; stat -c %a out; cat deep/er/f; readlink link")
        ).stdout == "data\ndeep\nlink\nout\n700\n1\nout\n"
        await sandbox.python("open('lost', 'w').close()\nwhile True: pass", timeout=0.5)
        assert "lost" not in (await sandbox.run("ls")).stdout
        with pytest.raises(FileNotFoundError, match="nope"):
            await sandbox.read("nope")
        many = await sandbox.run_many(["import os; print(sorted(os.listdir('.'))); open('new', 'w')"] * 2)
        assert [each.stdout for each in many] == ["['data', 'deep', 'link', 'out']\n"] * 2
        assert "new" not in (await sandbox.run("ls")).stdout

    use(work)


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../evil", "", ".", "link/passwd", "etc", "x\0y", "folder"])
def test_paths_do_not_leave_the_working_folder(use: Use, path: str) -> None:
    async def work(sandbox: RemoteSandbox) -> None:
        await sandbox.run("ln -s /etc link; ln -s /etc/passwd etc; mkdir folder")
        with pytest.raises((ValueError, OSError)):
            await sandbox.read(path)
        with pytest.raises((ValueError, OSError)):
            await sandbox.write(path, b"x")

    use(work)


def test_calls(use: Use) -> None:
    code = """
import os, sys
state = []
print("noise"); print("noise", file=sys.stderr)
def f(x):
    state.append(x)
    print("more noise")
    if x == "exit": os._exit(0)
    if x == "hang":
        while True: pass
    if x == "raise": raise ValueError("no " + x)
    if x == "big": return "y" * (20 << 20)
    if x == "forge": open("agentrl-ending.json", "w").write("[4991, 99]"); os.kill(os.getppid(), 9)
    return len(state), {x: (None, True, {1.5}, b"z")}
"""
    inputs = ["a", "b", "exit", "c", "raise", "hang", "d", "big", "forge", "e"]

    def value(x: str, count: int) -> Call:
        return Call(status=Status.OK, value=(count, {x: (None, True, {1.5}, b"z")}))

    calls = use(lambda sandbox: sandbox.call_many(code, "f", [(x,) for x in inputs], timeout=4, total=90))
    by_input = dict(zip(inputs, calls, strict=True))
    assert by_input["a"] == value("a", 1)
    assert by_input["b"] == value("b", 2)  # the same process
    assert by_input["exit"] == Call(status=Status.ERROR, error="the process ended: exit code 0")
    assert by_input["c"] == value("c", 1)  # a new one
    assert by_input["raise"] == Call(status=Status.ERROR, error="ValueError: no raise")
    assert by_input["hang"].status is Status.TIMEOUT
    assert by_input["d"] == value("d", 1)
    assert by_input["big"].error == "the values are too large"
    assert by_input["forge"].value in (value("forge", 1).value, None)  # what it forged is not believed, nor does it harm us
    assert by_input["e"].value[1] == value("e", 1).value[1]
    refused = use(lambda sandbox: sandbox.call_many("1 / 0", "f", [(1,)] * 3, timeout=5))
    assert [(call.status, call.error) for call in refused] == [(Status.ERROR, "ZeroDivisionError: division by zero")] * 3


def test_the_isolation_of_the_server_is_told_and_held_to(use: Use, address: str, background: Background, request: Any) -> None:
    async def opened(isolation: str) -> str:
        async with await RemotePool.open(SandboxSpec(isolation=isolation), 1, url=address) as pool:
            return pool.isolation

    if "ours" in request.node.name:
        assert background.run(opened("auto")) in ("namespace+cgroup", "namespace", "landlock")
    else:
        assert background.run(opened("auto")) == "remote"
        with pytest.raises(IsolationError, match="does not say"):
            background.run(opened("namespace"))


def test_a_server_that_gives_too_little_is_refused() -> None:
    async def main() -> None:
        async with listening(server.Server(ScriptedPool(), backend="scripted", slots=1).app) as url:
            await RemotePool.open(SandboxSpec(), 1, url=url)

    with pytest.raises(IsolationError, match="gives the isolation 'none', and 'landlock' is asked for"):
        asyncio.run(main())


def test_mistakes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(remote.ADDRESS, raising=False)
    with pytest.raises(UsageError, match="AGENTRL_SANDBOX_URL"):
        asyncio.run(RemotePool.open(SPEC, 1))
    monkeypatch.setenv(remote.ADDRESS, "http://127.0.0.1:1")
    with pytest.raises(SandboxError, match=r"no code server answers at http://127.0.0.1:1"):
        asyncio.run(RemotePool.open(SPEC, 1))


def with_handler(handler: Any, work: Any, slots: int = 4, **options: Any) -> Any:
    """`await work(pool)` against a server whose /run_code is `handler`."""

    async def ping(request: web.Request) -> web.Response:
        return web.json_response("pong")

    async def main() -> Any:
        app = web.Application()
        app.add_routes([web.post("/run_code", handler), web.get("/v1/ping", ping)])
        async with listening(app) as url, await RemotePool.open(SPEC, slots, url=url, **options) as pool:
            return await work(pool)

    return asyncio.run(main())


def good(stdout: str = "") -> web.Response:
    return web.json_response(server.result(Exec(status=Status.OK, stdout=stdout), {}))


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    asked: list[float] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(time.monotonic())
        if len(asked) == 1:
            return web.Response(status=503, headers={"Retry-After": "0.6"})
        if len(asked) == 2:
            return web.Response(status=429, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
        return good("at last")

    async def work(pool: RemotePool) -> str:
        async with await pool.acquire() as sandbox:
            return (await sandbox.python("1")).stdout

    assert with_handler(handler, work) == "at last"
    assert len(asked) == 3
    assert asked[1] - asked[0] >= 0.6


def test_a_server_that_stays_busy_loses_the_sandbox_in_the_end() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "0.05"})

    async def work(pool: RemotePool) -> None:
        async with await pool.acquire() as sandbox:
            await sandbox.python("1", timeout=0.2)

    with pytest.raises(SandboxLost, match="no result within"):
        with_handler(handler, work, patience=0.5)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda: web.json_response(server.failure("it burns")), SandboxLost),
        (lambda: web.json_response({"status": "Success"}), SandboxLost),
        (lambda: web.Response(status=404, text="who?"), SandboxError),
    ],
)
def test_a_failure_of_the_server_is_no_result(answer: Any, error: type[Exception]) -> None:
    async def handler(request: web.Request) -> web.Response:
        return answer()

    async def work(pool: RemotePool) -> None:
        async with await pool.acquire() as sandbox:
            await sandbox.python("1")

    with pytest.raises(error, match=r"burns|Success|who"):
        with_handler(handler, work)


def test_no_more_requests_than_slots_are_under_way() -> None:
    now = most = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return good((await request.json())["code"])

    async def work(pool: RemotePool) -> list[str]:
        async with await pool.acquire() as one, await pool.acquire() as two:
            results = await asyncio.gather(
                one.run_many([f"a{i}" for i in range(10)]), two.run_many([f"b{i}" for i in range(10)])
            )
        return [done.stdout for result in results for done in result]

    assert with_handler(handler, work, slots=3) == [f"{x}{i}" for x in "ab" for i in range(10)]
    assert most == 3


def test_an_answer_of_another_server_is_read() -> None:
    """Shapes as SandboxFusion's own tests and documents show them."""
    spec = SandboxSpec(output="1K")

    def read(**run: Any) -> Exec:
        return remote.as_exec(Answer(run=run), spec, 3.0)

    done = read(status="Finished", return_code=0, stdout="hi\n", stderr="", execution_time=0.016735553741455078)
    assert (done.status, done.stdout, done.wall_s) == (Status.OK, "hi\n", 0.016735553741455078)
    done = read(status="TimeLimitExceeded", execution_time=None, return_code=None, stdout=None, stderr=None)
    assert (done.status, done.exit_code, done.stdout, done.wall_s) == (Status.TIMEOUT, 137, "", 3.0)
    assert read(status="Finished", return_code=-9, stdout="", stderr="").status is Status.KILLED
    assert read(status="Finished", return_code=-9, stdout="", stderr="").exit_code == 137
    assert read(status="Finished", return_code=1, stderr="...\nMemoryError\n").status is Status.MEMORY
    assert read(status="Finished", return_code=2, stderr="x").status is Status.ERROR
    assert read(status="Finished", return_code=0, stdout="é" * 2000).stdout_cut


async def ask(app: web.Application, *bodies: Any) -> list[tuple[int, Any]]:
    async with listening(app) as url, aiohttp.ClientSession() as session:

        async def post(body: Any) -> tuple[int, Any]:
            async with session.post(f"{url}/run_code", json=body) as response:
                return response.status, await response.json()

        return await asyncio.gather(*(post(body) for body in bodies))


def test_what_the_server_answers(best: Local, background: Background) -> None:
    code = "import sys; print(input(), open('d/in').read()); open('out', 'w').write('made'); print('err', file=sys.stderr)"
    files = {"d/in": base64.b64encode(b"given").decode(), "none": None}
    body = {
        "code": code,
        "language": "python",
        "stdin": "x",
        "files": files,
        "fetch_files": ["out", "missing", "../etc/passwd"],
    }
    app = server.Server(best.pool, backend="local", slots=3).app
    ok, bash, slow, killed = background.run(
        ask(
            app,
            body,
            {"code": "echo $((1+1)); exit 3", "language": "bash"},
            {
                "code": "while True: pass",
                "language": "python",
                "run_timeout": 0.5,
                "compile_timeout": 1,
                "memory_limit_MB": 1024,
            },
            {"code": "import os; os.kill(os.getpid(), 9)", "language": "python"},
        )
    )
    status, answer = ok
    assert (status, answer["status"], answer["message"], answer["compile_result"]) == (200, "Success", "", None)
    assert answer["executor_pod_name"] is None
    assert answer["files"] == {"out": base64.b64encode(b"made").decode()}
    run = answer["run_result"]
    assert (run["status"], run["return_code"], run["stdout"], run["stderr"]) == ("Finished", 0, "x given\n", "err\n")
    assert run["execution_time"] > 0
    assert (bash[1]["status"], bash[1]["run_result"]["return_code"], bash[1]["run_result"]["stdout"]) == ("Failed", 3, "2\n")
    assert slow[1]["status"] == "Failed"
    assert (slow[1]["run_result"]["status"], slow[1]["run_result"]["return_code"]) == ("TimeLimitExceeded", None)
    assert killed[1]["run_result"]["return_code"] == -9


def test_what_the_server_refuses() -> None:
    app = server.Server(ScriptedPool(), backend="scripted", slots=1).app
    good_body = {"code": "1", "language": "python"}
    bad = [
        [],
        {"language": "python"},
        {"code": "1"},
        {**good_body, "run_timeout": 0},
        {**good_body, "run_timeout": True},
        {**good_body, "files": {"a": "not base64!"}},
        {**good_body, "files": {"a": 1}},
        {**good_body, "fetch_files": "out"},
    ]
    answers = asyncio.run(ask(app, *bad, {"code": "1", "language": "lean"}))
    assert [status for status, _ in answers] == [422] * len(bad) + [200]
    assert answers[-1][1]["status"] == "SandboxError"
    assert "lean" in answers[-1][1]["message"]


def test_a_lost_sandbox_is_a_failure_of_the_server() -> None:
    app = server.Server(ScriptedPool({"1": SandboxLost("gone")}), backend="scripted", slots=1).app
    ((status, answer),) = asyncio.run(ask(app, {"code": "1", "language": "python"}))
    assert (status, answer["status"], answer["message"]) == (200, "SandboxError", "gone")


def test_the_queue_is_bounded() -> None:
    class Taken(ScriptedPool):
        async def acquire(self) -> Any:
            await asyncio.sleep(0.3)
            return await super().acquire()

    pool = Taken()
    answers = asyncio.run(
        ask(server.Server(pool, backend="scripted", slots=1, queue=2).app, *[{"code": "1", "language": "python"}] * 5)
    )
    assert sorted(status for status, _ in answers) == [200, 200, 503, 503, 503]
    assert pool.open_now == 0


@pytest.mark.slow
def test_the_command_serves_and_verl_s_own_client_works_against_it(best: Local) -> None:
    """right, wrong, crash, timeout: True, False, -2, -3, as verl's documentation has it."""
    command = [sys.executable, "-m", "agentrl", "sandbox", "serve", "--port", "0", "--slots", "2", "--timeout", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "serving 2 sandboxes (local, " in line
            url = line.split(" at ")[1].strip()
            code = "x = int(input())\nif x == 3: 1 / 0\nwhile x == 4: pass\nprint(x * 2)"
            in_outs = {"inputs": ["1", "2", "3", "4"], "outputs": ["2", "5", "6", "8"]}
            results, about = check_correctness(sandbox_fusion_url=url, in_outs=in_outs, generation=code, timeout=2)
            assert results == [True, False, -2, -3]
            assert [each["status"] for each in about] == ["success", "wrong_answer", "runtime_error", "timeout"]
            by_name = {"inputs": ["[1, 2]\n3"], "outputs": ["[1, 2, 3]"], "fn_name": "f"}
            results, _ = check_correctness(
                sandbox_fusion_url=url, in_outs=by_name, generation="def f(a, b): return [*a, b]", timeout=5
            )
            assert results == [True]
        finally:
            process.terminate()
            assert process.wait(30) == 0
