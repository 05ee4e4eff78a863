"""Chromium by Playwright: one process for all episodes of an event loop that allow the same hosts, a context for each.

Consumes: `opened`, one per episode. Produces: a context that shares no cookies, storage or cache with others. The process
starts with the first and ends with the last. Waits for: Chromium's start, under Playwright's own deadline.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from agentrl.errors import MissingExtra, UsageError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
"""No traffic of the browser's own, and none of a page's that goes around its requests."""


def playwright() -> Any:
    """Playwright's asynchronous module. Raises MissingExtra."""
    try:
        import playwright.async_api
    except ModuleNotFoundError:
        raise MissingExtra("playwright", extra="browser") from None
    return playwright.async_api


def program() -> str:
    """The system's Chromium. Raises UsageError where there is none."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        raise UsageError(f"the browser needs Chromium, as one of {', '.join(PROGRAMS)}; on Debian: apt-get install chromium")
    return found


@dataclass
class _Process:
    """Of one event loop and one set of hosts."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    driver: Any = None
    browser: Any = None

    async def start(self, hosts: Sequence[str]) -> Any:
        """Chromium, started when it is not running (any more)."""
        async with self.lock:
            if self.browser is None or not self.browser.is_connected():
                self.driver = self.driver or await playwright().async_playwright().start()
                self.browser = await self.driver.chromium.launch(
                    executable_path=program(),
                    chromium_sandbox=os.geteuid() != 0,  # Chromium refuses to sandbox itself as root
                    args=[*QUIET, f"--host-resolver-rules={_rules(hosts)}"],
                )
            return self.browser

    async def stop(self) -> None:
        async with self.lock:
            if self.users == 0 and self.driver is not None:
                driver, browser, self.driver, self.browser = self.driver, self.browser, None, None
                try:
                    if browser is not None:
                        await browser.close()
                finally:
                    await driver.stop()


_processes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, ...], _Process]] = WeakKeyDictionary()


@asynccontextmanager
async def opened(hosts: Sequence[str], **settings: Any) -> AsyncIterator[Any]:
    """A context of its own (`settings`: those of Playwright's new_context). Chromium itself finds no other hosts than these."""
    key = tuple(sorted(hosts))
    process = _processes.setdefault(asyncio.get_running_loop(), {}).setdefault(key, _Process())
    process.users += 1
    try:
        browser = await process.start(key)
        context = await browser.new_context(**settings, accept_downloads=False, service_workers="block")
        try:
            yield context
        finally:
            if browser.is_connected():
                await context.close()
    finally:
        process.users -= 1
        await process.stop()


def _rules(hosts: Sequence[str]) -> str:
    """Names that Chromium may look up; all others do not exist for it.

    >>> _rules(["a.example"])
    'MAP * ~NOTFOUND , EXCLUDE a.example'
    """
    return " , ".join(["MAP * ~NOTFOUND", *(f"EXCLUDE {host}" for host in hosts)])
