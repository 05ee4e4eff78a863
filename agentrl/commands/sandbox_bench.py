"""`agentrl sandbox bench BACKEND`: what an execution costs, as a table; with --soak N, what becomes of N of them.

Exit code 1 when a soak finds a wrong result, growing memory or left-overs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from agentrl.commands.arguments import Parser
from agentrl.commands.sandbox_options import add_backend, parse_options, sizes
from agentrl.errors import UsageError
from agentrl.sandbox import SandboxSpec

EXAMPLES = """agentrl sandbox bench local
agentrl sandbox bench docker --parallel 1,8 --json
agentrl sandbox bench local --soak 10000

CPU ms: of all processes involved, for one execution. of plain: its share of what `subprocess.run([python, "-c", ...])` took in
the same moments, which a busy machine changes least. Rates and latencies say as much of the machine as of the sandbox."""
COLUMNS = f"{'':40} {'parallel':>8} {'CPU ms':>9} {'of plain':>9} {'p50 ms':>9} {'p99 ms':>9} {'a second':>9}"


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl sandbox bench", "Measures what an execution costs, beside subprocess.run.", EXAMPLES)
    add_backend(parser)
    parser.add_argument("--parallel", default="1,8,64", metavar="N,...", help="sandboxes at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--memory", default="512M", help="of one sandbox (default: %(default)s)")
    parser.add_argument("--isolation", default="auto", help="the least that is accepted (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="prints the figures as JSON")
    parser.add_argument("--soak", type=int, metavar="N", help="N runs instead, hostile and cancelled ones among them")
    parser.add_argument("--hostile", type=int, help="of the runs of a soak (default: one in 50)")
    parser.add_argument("--cancelled", type=int, help="of the runs of a soak (default: one in 500)")
    parser.add_argument("--slots", type=int, default=8, help="of a soak, sandboxes at once (default: %(default)s)")
    args = parser.parse(argv)
    bench = import_module("agentrl.tools.sandboxes.bench")
    backend = bench.Backend(name=args.backend, options=parse_options(args.option))
    if args.soak is not None:
        return _soak(backend, args)
    spec = sizes(SandboxSpec(memory=args.memory, isolation=args.isolation, timeout=60.0, cpu=60.0))
    rows = asyncio.run(_measure(bench, backend, spec, parallel=_numbers(args.parallel), seconds=args.seconds, quiet=args.json))
    if args.json:
        print(json.dumps({"backend": args.backend, "rows": [asdict(row) for row in rows]}, indent=2))
    return 0


def _numbers(text: str) -> list[int]:
    """Raises UsageError."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--parallel {text!r} must be whole numbers, as in 1,8,64") from None
    if min(numbers) < 1:
        raise UsageError(f"--parallel {text!r} must be numbers of at least 1")
    return numbers


async def _measure(
    bench: Any, backend: Any, spec: SandboxSpec, *, parallel: Sequence[int], seconds: float, quiet: bool
) -> list[Any]:
    """All rows; printed one by one as they come, unless `quiet`."""
    rows = []
    if not quiet:
        print(COLUMNS)
    async for row in bench.bench(backend, spec, parallel=parallel, seconds=seconds):
        rows.append(row)
        if not quiet:
            print(line(row), flush=True)
    return rows


def line(row: Any) -> str:
    return f"{row.name:40} {row.parallel:8} {row.cpu:9.2f} {row.of_plain:9.3f} {row.p50:9.1f} {row.p99:9.1f} {row.rate:9.0f}"


def _soak(backend: Any, args: Any) -> int:
    if args.soak < 1:
        raise UsageError(f"--soak {args.soak} must be at least 1")
    counts = {
        "hostile": args.soak // 50 if args.hostile is None else args.hostile,
        "cancelled": args.soak // 500 if args.cancelled is None else args.cancelled,
    }
    soak = import_module("agentrl.tools.sandboxes.soak")
    say = _progress(args.soak) if sys.stderr.isatty() else lambda done: None
    found = asyncio.run(soak.soak(backend, args.soak, slots=args.slots, progress=say, **counts))
    print(json.dumps({**asdict(found), "growth": found.growth, "ok": found.ok}, indent=2) if args.json else told(found, counts))
    return 0 if found.ok else 1


def told(found: Any, counts: dict[str, int]) -> str:
    """What came of a soak, for a person."""
    endings = ", ".join(f"{count} {name}" for name, count in sorted(found.hostile.items()))
    memory = " ".join(f"{size >> 20}" for size in found.memory)
    lines = [
        f"runs        {found.runs}, {counts['hostile']} of them hostile ({endings}), {counts['cancelled']} cancelled midway",
        f"time        {found.seconds:.0f} s, {found.runs / found.seconds:.0f} runs a second",
        f"CPU         {1000 * found.cpu:.1f} ms a run",
        f"supervisor  killed: {found.supervisor}; {found.lost} runs were lost with it, and said so",
        f"wrong       {len(found.wrong)}{''.join(f'{chr(10)}  {each}' for each in found.wrong[:10])}",
        f"memory      {memory} MB as it went on: {found.growth:.2f} times the early one at the end",
        f"left        {', '.join(found.left) or 'no process, control group, mount, file or container'}",
    ]
    return "\n".join([*lines, "all well" if found.ok else "NOT WELL"])


def _progress(total: int) -> Any:
    def say(done: int) -> None:
        end = "\n" if done == total else ""
        if done % 50 == 0 or end:
            print(f"\r\x1b[K{done}/{total} runs", end=end, file=sys.stderr, flush=True)

    return say
