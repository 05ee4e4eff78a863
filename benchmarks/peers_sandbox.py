"""Other projects' ways to run a model's code, as backends for `agentrl sandbox check` and `bench`.

Each runs in an environment of its own that has the peer, rich and aiohttp, with this checkout on PYTHONPATH:

    python -m venv skyrl && skyrl/bin/pip install skyrl-gym==0.4.0 rich aiohttp numpy
    PYTHONPATH=$PWD skyrl/bin/python -m agentrl sandbox check $PWD/benchmarks/peers_sandbox.py:SkyRLGym \
        --only processes,resources,files,network,secrets,time

They take code and give text. What they do not offer (files, functions, exit codes) they say, and those probes do not apply.
Each gets the limits that it has settings for. A tool works in the current folder; here that is an empty one.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

from agentrl.sandbox import Call, Exec, SandboxSpec, Status

OFFERS_TEXT = "it takes code and gives text"
GRACE = 30.0  # seconds beyond its own timeout until a peer is given up


class Peer:
    """One object is pool and factory; `slots` calls at once, in threads."""

    isolation: ClassVar[str] = "none"

    def __init__(self, spec: SandboxSpec, slots: int) -> None:
        self.spec = spec
        self.threads = ThreadPoolExecutor(slots)
        self._free = asyncio.Semaphore(slots)

    @classmethod
    async def open(cls, spec: SandboxSpec | None = None, slots: int = 8) -> Peer:
        os.environ.pop("PYTHONPATH", None)  # it is ours, and the tools hand it on
        os.chdir(tempfile.mkdtemp(prefix="peer-"))
        return cls(spec or SandboxSpec(), slots)

    async def acquire(self) -> PeerSandbox:
        await self._free.acquire()
        return PeerSandbox(self, await self.threaded(self.start))

    async def threaded(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.threads, partial(work, *arguments))

    def release(self) -> None:
        self._free.release()

    async def aclose(self) -> None:
        self.threads.shutdown(wait=False)

    def start(self) -> Any:
        """What one sandbox holds; given to `execute` and `stop`."""

    def stop(self, held: Any) -> None:
        """Ends it."""

    def execute(self, held: Any, code: str, timeout: float) -> Exec:
        """In a thread."""
        raise NotImplementedError

    def calls(self, code: str, function: str, inputs: Sequence[Sequence[Any]], timeout: float) -> list[Call]:
        raise NotImplementedError(OFFERS_TEXT)


class PeerSandbox:
    def __init__(self, peer: Peer, held: Any) -> None:
        self._peer, self._held, self._closed = peer, held, False

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        if stdin:
            raise NotImplementedError("it takes no input")
        seconds = self._peer.spec.timeout if timeout is None else min(timeout, self._peer.spec.timeout)
        return await self._peer.threaded(self._peer.execute, self._held, code, seconds)

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        return await self._peer.threaded(self._peer.calls, code, function, inputs, timeout)

    async def run(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(OFFERS_TEXT)

    run_many = write = read = run

    async def alive(self) -> bool:
        return not self._closed

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._peer.threaded(self._peer.stop, self._held)
            self._peer.release()


class SkyRLGym(Peer):
    """skyrl-gym's python tool."""

    def execute(self, held: Any, code: str, timeout: float) -> Exec:
        from skyrl_gym.tools.python import PythonCodeExecutorToolGroup

        begun = time.monotonic()
        text = PythonCodeExecutorToolGroup(timeout=timeout).python(code)
        return _told(text, begun, failed=text.startswith("Error executing"), timed_out="Execution timed out" in text)


class Gem(Peer):
    """GEM's python tool as it is by default. It looks for forbidden words, which code that is encoded does not have."""

    kind = "none"

    def execute(self, held: Any, code: str, timeout: float) -> Exec:
        from gem.tools.python_code_tool import PythonCodeTool

        hidden = base64.b64encode(code.encode()).decode()
        tool, begun = PythonCodeTool(timeout=timeout, sandbox_type=self.kind), time.monotonic()
        action = f"<python>import base64; exec(base64.b64decode({hidden!r}).decode())</python>"
        _, failed, text, _ = tool.execute_action(action)
        late = time.monotonic() - begun >= timeout
        return _told(text.removeprefix("Code execution result: "), begun, failed=failed, timed_out=failed and late)


class GemBubblewrap(Gem):
    """The same with sandbox_type="bwrap"."""

    kind = "bwrap"


def _told(text: str, begun: float, *, failed: bool, timed_out: bool) -> Exec:
    """A text is all there is: how it ended is guessed from it, in the peer's favor."""
    status = Status.TIMEOUT if timed_out else Status.ERROR if failed else Status.OK
    if status is Status.ERROR and "MemoryError" in text[-300:]:
        status = Status.MEMORY
    return Exec(status=status, exit_code=int(failed), stdout=text, wall_s=time.monotonic() - begun)


class LLMSandbox(Peer):
    """llm-sandbox with bubblewrap, each of its limits set; needs bwrap and libseccomp. One session per sandbox."""

    isolation = "namespace"

    def start(self) -> Any:
        from llm_sandbox.bubblewrap import BubblewrapSession
        from llm_sandbox.local.config import LocalSandboxConfig

        spec = self.spec
        config = LocalSandboxConfig(
            memory_limit_bytes=spec.memory_bytes,
            max_output_bytes=spec.output_bytes,
            cpu_time_limit=max(1, round(spec.cpu)),
            file_size_limit=spec.disk_bytes,
            open_files_limit=1024,
        )
        session = BubblewrapSession(lang="python", sandbox_config=config, encoding_errors="replace")
        session.open()
        return session

    def stop(self, held: Any) -> None:
        held.close()

    def execute(self, held: Any, code: str, timeout: float) -> Exec:
        begun = time.monotonic()
        try:
            done = held.run(code, timeout=timeout)
        except Exception as error:  # it has one class for each way to end
            name = type(error).__name__
            timed_out = "Timeout" in name or "timed out" in str(error)
            status = Status.TIMEOUT if timed_out else Status.OUTPUT if "output" in str(error).lower() else Status.KILLED
            return Exec(status=status, exit_code=1, stderr=f"{name}: {error}", wall_s=time.monotonic() - begun)
        return _ended(done.exit_code, done.stdout, done.stderr, begun)


def _ended(code: int, stdout: str, stderr: str, begun: float) -> Exec:
    if code == 0:
        status = Status.OK
    elif stderr.rstrip().rpartition("\n")[2].startswith("MemoryError"):
        status = Status.MEMORY
    else:
        status = Status.KILLED if code < 0 or code > 128 else Status.ERROR
    wall = time.monotonic() - begun
    return Exec(status=status, exit_code=128 - code if code < 0 else code, stdout=stdout, stderr=stderr, wall_s=wall)


def _run(command: Sequence[str], timeout: float) -> Exec:
    """As a usual tool does it: subprocess.run with a timeout."""
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode("utf-8", "replace")
        return Exec(status=Status.TIMEOUT, exit_code=137, stdout=text, wall_s=time.monotonic() - begun)
    return _ended(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"), begun)


class Bubblewrap(Peer):
    """bwrap, with the options that its documentation asks for, and this interpreter. It has no limits of its own."""

    isolation = "namespace"

    def execute(self, held: Any, code: str, timeout: float) -> Exec:
        binds = [word for path in _needed() for word in ("--ro-bind", path, path)]
        command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
        command += [
            *binds,
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
            "--chdir",
            "/tmp",
            sys.executable,
            "-c",
            code,
        ]
        return _run(command, timeout)


def _needed() -> list[str]:
    """The system's folders and the interpreter's."""
    paths = ["/usr", "/bin", "/lib", "/lib64", sys.prefix, sys.base_prefix]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


class DockerExec(Peer):
    """A container per sandbox, hardened as usual, and `docker exec` for each run. Needs a daemon and the extra docker."""

    isolation = "namespace+cgroup"
    uses_docker = True
    image, interpreter = "", ""

    @classmethod
    async def open(cls, spec: SandboxSpec | None = None, slots: int = 8) -> Peer:
        import docker

        from agentrl.tools.sandboxes import docker_image

        spec = spec or SandboxSpec()
        made = await asyncio.to_thread(docker_image.prepare, docker.APIClient(timeout=300), spec.packages, None)
        peer = cls(spec, slots)
        peer.image, peer.interpreter = made.name, made.python
        return peer

    def start(self) -> Any:
        spec = self.spec
        command = ["docker", "run", "--detach", "--rm", "--init", "--network", "none", "--read-only", "--cap-drop", "ALL"]
        command += ["--memory", str(spec.memory_bytes), "--memory-swap", str(spec.memory_bytes), "--pids-limit", str(spec.pids)]
        command += ["--security-opt", "no-new-privileges", "--user", "65534:65534", "--workdir", "/tmp"]
        command += ["--tmpfs", f"/tmp:size={spec.disk_bytes},exec,mode=1777", "--entrypoint", self.interpreter, self.image]
        command += ["-c", "import time; time.sleep(100000)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def stop(self, held: Any) -> None:
        subprocess.run(["docker", "rm", "--force", held], capture_output=True, check=False)

    def execute(self, held: Any, code: str, timeout: float) -> Exec:
        return _run(["docker", "exec", held, self.interpreter, "-c", code], timeout)


class VerlPrimeCode(Peer):
    """verl's grader of code, for `bench` alone: it gives verdicts, not values, so it is told what f(x) = x + 1 must give."""

    def calls(self, code: str, function: str, inputs: Sequence[Sequence[Any]], timeout: float) -> list[Call]:
        import json

        from verl.utils.reward_score.prime_code.utils import check_correctness

        expected = [given[0] + 1 for given in inputs]
        cases = {"fn_name": function, "inputs": [json.dumps(given[0]) for given in inputs], "outputs": expected}
        verdicts, _ = check_correctness(cases, code, timeout=round(timeout), debug=False)
        return [
            Call(status=Status.OK if right is True else Status.ERROR, value=value)
            for right, value in zip(verdicts, expected, strict=True)
        ]


if __name__ == "__main__":
    print(__doc__)
    print("here:", *(name for name in ("bwrap", "docker") if shutil.which(name)))
