"""`agentrl sandbox check BACKEND`: runs the probes of tools/sandboxes/probes on a backend and reports what held.

Exit code 0 when all that apply passed, 1 when one failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from agentrl.commands.arguments import Parser
from agentrl.commands.sandbox_options import add_backend, parse_options, sizes
from agentrl.errors import UsageError

EXAMPLES = """agentrl sandbox check local
agentrl sandbox check docker --option runtime=runsc --only network,secrets
agentrl sandbox check my_package.sandboxes:MyPool --json
agentrl sandbox check path/to/file.py:MyPool --html report.html

Every probe is bounded (400 processes, 1 GB, 200 MB of files) and harms nothing where it succeeds; what it leaves is removed.
A backend of one's own is a class with `async open(spec, slots)`; see agentrl/sandbox.py for what its sandboxes must do.
What they cannot do at all they answer with NotImplementedError: those probes then do not apply. For `remote`, give the
limits that the server was started with, so that the probes know what to expect."""


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl sandbox check", "Tries to get out of a sandbox, and reports what held.", EXAMPLES)
    add_backend(parser)
    parser.add_argument("--only", metavar="GROUP,...", action="append", default=[], help="groups, or the name of a probe")
    parser.add_argument("--list", action="store_true", help="lists the probes and runs none")
    parser.add_argument("--json", action="store_true", help="prints the report as JSON")
    parser.add_argument("--html", metavar="FILE", help="also writes the report as a web page")
    parser.add_argument("--memory", help="of one sandbox (default: 256M)")
    parser.add_argument("--disk", help="(default: 64M)")
    parser.add_argument("--pids", type=int, help="processes at once (default: 64)")
    parser.add_argument("--isolation", default="auto", help="the least that is accepted, as sandbox.isolation (default: auto)")
    args = parser.parse(argv)
    probes = import_module("agentrl.tools.sandboxes.probes")
    chosen = probes.chosen(args.only)
    if args.list:
        print("\n".join(f"{probe.group:10} {probe.name}" for probe in chosen))
        return 0
    given = {name: getattr(args, name) for name in ("memory", "disk", "pids") if getattr(args, name) is not None}
    spec = sizes(replace(probes.SPEC, isolation=args.isolation, **given))
    backend = probes.Backend(name=args.backend, options=parse_options(args.option))
    watch = _Progress(len(chosen)) if sys.stderr.isatty() else None
    work = probes.check(backend, chosen, spec=spec, **({"begin": watch.begin, "end": watch.end} if watch else {}))
    isolation, findings = asyncio.run(work)
    report = as_report(args.backend, isolation, findings)
    if args.json:
        print(json.dumps(report, indent=2))
    show(report, args.html, quiet=args.json)
    return int(report["failed"] > 0)


def as_report(backend: str, isolation: str, findings: Sequence[Any]) -> dict[str, Any]:
    """The findings as plain data, with what they were found on."""
    counts = Counter(str(finding.outcome) for finding in findings)
    return {
        "backend": backend,
        "isolation": isolation,
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}",
        "user": "root" if hasattr(os, "getuid") and os.getuid() == 0 else "an ordinary user",
        "passed": counts["passed"],
        "failed": counts["FAILED"],
        "not_applicable": counts["not applicable"],
        "findings": [{**asdict(finding), "outcome": str(finding.outcome)} for finding in findings],
    }


def summary(report: dict[str, Any]) -> str:
    """
    >>> summary({"passed": 3, "failed": 1, "not_applicable": 2})
    '3 of 4 passed, 1 FAILED, 2 do not apply'
    """
    applied = report["passed"] + report["failed"]
    parts = [f"{report['passed']} of {applied} passed"]
    parts += [f"{report['failed']} FAILED"] if report["failed"] else []
    return ", ".join([*parts, *([f"{report['not_applicable']} do not apply"] if report["not_applicable"] else [])])


COLORS = {"passed": "green", "FAILED": "bold red", "not applicable": "dim"}


def show(report: dict[str, Any], html: str | None, *, quiet: bool) -> None:
    """The report as a table, on the terminal unless `quiet`, and in a file where one is asked for. Raises UsageError."""
    if quiet and html is None:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if sys.stdout.isatty() else 140
    console = Console(record=True, quiet=quiet, highlight=False, width=width)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in ("group", "probe", "", ""):
        table.add_column(name, overflow="fold")
    last = ""
    for row in report["findings"]:
        group, last = ("" if row["group"] == last else row["group"]), row["group"]
        outcome = Text(row["outcome"], style=COLORS[row["outcome"]])
        table.add_row(group, Text(row["name"]), outcome, Text(row["reason"], style="" if row["outcome"] == "FAILED" else "dim"))
    console.print(Text(f"{report['backend']} ({report['isolation']}), {report['machine']}, {report['user']}", style="bold"))
    console.print(table)
    console.print(Text(summary(report), style="bold red" if report["failed"] else "bold green"))
    if html is not None:
        try:
            Path(html).write_text(console.export_html())
        except OSError as error:
            raise UsageError(f"--html {html} cannot be written: {error.strerror}") from None


class _Progress:
    """One line on stderr that says what is being tried."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._failed = total, 0, 0

    def begin(self, probe: Any) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        line = f"{self._done + 1}/{self._total}{failed}  {probe.group}: {probe.name}"
        print(f"\r\x1b[K{line[:110]}", end="", file=sys.stderr, flush=True)

    def end(self, finding: Any) -> None:
        self._done += 1
        self._failed += not finding.ok
        if self._done == self._total:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
