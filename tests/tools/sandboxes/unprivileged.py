"""Runs all probes in a process of its own: python unprivileged.py LEVEL. Exit code 77 where the level is not to be had."""

from __future__ import annotations

import asyncio
import os
import sys

from agentrl.sandbox import IsolationError
from agentrl.tools.sandboxes.probes import Backend, Outcome, check


async def main(level: str) -> int:
    assert os.getuid() != 0
    try:
        isolation, findings = await check(Backend(name="local", options={"level": level}))
    except IsolationError as error:
        print(error)
        return 77
    failed = [finding for finding in findings if not finding.ok]
    for finding in findings:
        if finding.outcome is not Outcome.PASSED:
            print(f"{finding.group}: {finding.name}: {finding.outcome}: {finding.reason}")
    print(f"{len(failed)} failed" if failed else "none failed", "at", isolation)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
