"""`agentrl doctor`: prints what `agentrl.doctor` finds. Exit code 1 when something that training needs does not work."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl import doctor
from agentrl.commands.arguments import Parser
from agentrl.doctor import Check, Level

MARKS = {Level.OK: "ok  ", Level.NOTE: "note", Level.BAD: "BAD "}


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl doctor", "Looks at this machine: what works, what does not, what to do. Changes nothing.")
    parser.add_argument("--offline", action="store_true", help="do not ask whether the hub and the package index answer")
    parser.add_argument("--out", default="runs", help="the folder that runs will lie in")
    args = parser.parse(argv)
    checks = doctor.examine(args.out, online=not args.offline)
    print("\n".join(lines(checks)))
    return int(any(check.level is Level.BAD for check in checks))


def lines(checks: Sequence[Check]) -> list[str]:
    """One line for each check, its advice below it, and a verdict at the end."""
    width = max(len(check.name) for check in checks)
    out = []
    for check in checks:
        out.append(f"{MARKS[check.level]}  {check.name:{width}}  {check.text}")
        if check.advice:
            out.append(f"{'':{width + 6}}  -> {check.advice}")
    bad = [check.name for check in checks if check.level is Level.BAD]
    return [*out, "", f"not ready: {', '.join(bad)}" if bad else "ready: agentrl train env=code_sandbox"]
