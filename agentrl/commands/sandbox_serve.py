"""`agentrl sandbox serve`: a code server for other machines, over a pool of sandboxes of this one."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from agentrl import registry
from agentrl.commands.arguments import Parser
from agentrl.commands.sandbox_options import sizes
from agentrl.errors import UsageError
from agentrl.sandbox import SandboxPool, SandboxSpec

EXAMPLES = """agentrl sandbox serve --port 8080 --slots 16
then elsewhere: AGENTRL_SANDBOX_URL=http://this-machine:8080 agentrl train env=code_sandbox sandbox=remote"""


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl sandbox serve", "Serves sandboxes over HTTP, as SandboxFusion does (POST /run_code).", EXAMPLES)
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen at (default: %(default)s, this machine only)"
    )
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=8, help="sandboxes at once (default: %(default)s)")
    parser.add_argument("--queue", type=int, default=1024, help="requests that may wait (default: %(default)s)")
    parser.add_argument("--backend", default="local", help="local | docker | wasm | ... (default: %(default)s)")
    parser.add_argument("--memory", default="512M", help="of one sandbox (default: %(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=30.0, help="seconds; the most a request may ask for (default: %(default)s)"
    )
    parser.add_argument("--output", default="1M", help="of stdout and of stderr, each (default: %(default)s)")
    args = parser.parse(argv)
    spec = sizes(SandboxSpec(memory=args.memory, timeout=args.timeout, cpu=args.timeout, output=args.output))
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(spec, args.backend, args.slots, args.host, args.port, args.queue))
    return 0


async def serve(
    spec: SandboxSpec,
    backend: str,
    slots: int,
    host: str,
    port: int,
    queue: int,
    ready: Callable[[int], Any] = lambda port: None,
) -> None:
    """Until SIGTERM or cancelled. `ready` is called with the port once it listens. Raises UsageError, IsolationError."""
    from aiohttp import web

    code_server = importlib.import_module("agentrl.tools.sandboxes.server")
    pool: SandboxPool = await registry.find("sandbox", backend).open(spec, slots=slots)
    try:
        server = code_server.Server(pool, backend=backend, slots=slots, queue=queue)
        runner = web.AppRunner(server.app, handler_cancellation=True)  # who has gone need not be served
        await runner.setup()
        try:
            listening = await _listen(web.TCPSite(runner, host, port), host, port)
            print(f"serving {slots} sandboxes ({backend}, {pool.isolation}) at http://{host}:{listening}/run_code", flush=True)
            if not _is_loopback(host):
                print("whoever reaches this address can run code in them: keep it to machines you trust", file=sys.stderr)
            ready(listening)
            await _until_terminated()
        finally:
            await runner.cleanup()
    finally:
        await pool.aclose()


async def _listen(site: Any, host: str, port: int) -> int:
    try:
        await site.start()
    except OSError as error:
        raise UsageError(f"{host}:{port} cannot be listened at: {error.strerror or error}; try --port 0") from None
    return int(site._server.sockets[0].getsockname()[1])


async def _until_terminated() -> None:
    stop = asyncio.Event()
    with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; a loop that is not the main thread's
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
