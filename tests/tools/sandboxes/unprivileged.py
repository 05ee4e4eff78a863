"""Runs all attacks in a process of its own: python unprivileged.py LEVEL. Exit code 77 where the level is not to be had."""

from __future__ import annotations

import asyncio
import os
import sys

from attacks import ATTACKS, Bait, answer

from agentrl.sandbox import IsolationError, SandboxSpec
from agentrl.tools.sandboxes.local import LocalPool

SPEC = SandboxSpec(memory="256M", pids=64, disk="64M", output="64K", timeout=60.0, cpu=30.0)


async def main(level: str) -> int:
    assert os.getuid() != 0
    try:
        pool = await LocalPool.open(SPEC, 2, level=level)
    except IsolationError as error:
        print(error)
        return 77
    failed = 0
    with Bait() as bait:
        for name, attack in ATTACKS.items():
            async with await pool.acquire() as sandbox:
                done = await sandbox.python(bait.head() + attack.code, timeout=attack.timeout)
            if not attack.stopped(answer(done), done):
                failed += 1
                print("NOT STOPPED:", name, answer(done), done)
    await pool.aclose()
    print(f"{failed} failed" if failed else "all stopped", "at", pool.isolation)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
