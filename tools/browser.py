"""A web browser: a model reads a page as an outline of its elements, each with a reference, and acts on these.

Pages come from hosts that are named, from a folder, or from the environment itself; nothing else can be reached. Chromium is
the system's, the outline is Playwright's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentrl.errors import UsageError
from agentrl.messages import Image
from agentrl.threads import invoke
from agentrl.tool import ToolError, tool

from .browser_process import opened, playwright, program

SITE = "site"
"""The host name of pages that come from a folder or from the environment."""

TIMEOUT = 60.0  # seconds of a call
ACTION = 5_000  # milliseconds for an element to be there and take an action
LOADING = 15_000  # milliseconds for a page to load
MAX_OUTPUT = 12_000  # characters

Pages = Mapping[str, str] | Callable[[str], str | None]
"""Path -> HTML, or a function of the path with its query; None: there is no such page."""


class Browser:
    """A web browser that reaches only what it is told to.

    `hosts` are the names that may be reached; `folder` holds files that are served as http://site/...; or the environment's own
    `pages`, which `reset` may set: a mapping from paths ("/", "/cart") to HTML, or a function of the path with its query.
    `start` is where it begins. `width` and `height` (pixels) are those of the window.
    """

    def __init__(
        self,
        env: Any,
        start: str = "",
        hosts: Sequence[str] = (),
        folder: str | Path = "",
        width: int = 1024,
        height: int = 768,
    ) -> None:
        self._hosts = tuple(hosts)
        self._folder = Path(folder).expanduser().resolve() if folder else None
        self._pages: Pages | None = getattr(env, "pages", None)
        self._start = start or (f"http://{SITE}/" if self._folder or self._pages is not None else "")
        if not self._start:
            raise UsageError(f"browser has no pages: give hosts=, folder=, or set self.pages in {type(env).__name__}.reset")
        self._size = {"width": width, "height": height}
        self._stack = AsyncExitStack()
        self._context: Any = None

    @classmethod
    def prepare(cls, hosts: Sequence[str] = (), folder: str | Path = "", start: str = "", **size: Any) -> None:
        """Raises UsageError, MissingExtra."""
        playwright()
        program()
        if isinstance(hosts, str) or any("/" in host for host in hosts):
            raise UsageError(f"browser: hosts={hosts!r} must be a list of names, as in ['example.org']")
        if hosts and not start:
            raise UsageError("browser: with hosts, say where it begins: start='http://...'")
        if folder and not Path(folder).expanduser().is_dir():
            raise UsageError(f"browser: there is no folder {folder}")

    @tool(timeout=TIMEOUT, max_output=MAX_OUTPUT)
    async def read_page(self) -> str:
        """Read the page that is open: its elements, each with a reference such as e5."""
        return await self._shown(await self._page())

    @tool(timeout=TIMEOUT, max_output=MAX_OUTPUT)
    async def open_page(self, url: str) -> str:
        """Open an address.

        Args:
            url: a whole address, or one relative to the page that is open
        """
        page = await self._page()
        await self._goto(page, url)
        return await self._shown(page)

    @tool(timeout=TIMEOUT, max_output=MAX_OUTPUT)
    async def click(self, ref: str) -> str:
        """Click an element.

        Args:
            ref: its reference, such as e5
        """
        return await self._act(ref, "click")

    @tool(timeout=TIMEOUT, max_output=MAX_OUTPUT)
    async def type_text(self, ref: str, text: str, submit: bool = False) -> str:
        """Fill a field; what it held is replaced.

        Args:
            ref: its reference, such as e5
            text: what it holds afterwards
            submit: press Enter afterwards
        """
        shown = await self._act(ref, "fill", text)
        return await self._act(ref, "press", "Enter") if submit else shown

    @tool(timeout=TIMEOUT, max_output=MAX_OUTPUT)
    async def select_option(self, ref: str, option: str) -> str:
        """Choose from a list.

        Args:
            ref: the list's reference, such as e5
            option: the text of the option
        """
        return await self._act(ref, "select_option", label=option)

    @tool(timeout=TIMEOUT, max_output=MAX_OUTPUT)
    async def go_back(self) -> str:
        """Go back to the page before."""
        page = await self._page()
        if await page.go_back(timeout=LOADING, wait_until="load") is None and page.url == "about:blank":
            await self._goto(page, self._start)
        return await self._shown(page)

    @tool(timeout=TIMEOUT)
    async def screenshot(self) -> Image:
        """See the page as a picture."""
        page = await self._page()
        return Image.of(await page.screenshot(timeout=LOADING))

    async def close(self) -> None:
        await self._stack.aclose()

    async def _page(self) -> Any:
        """The page that was opened last; the first time, the start."""
        if self._context is None:
            self._context = await self._stack.enter_async_context(opened(self._hosts, viewport=self._size))
            self._context.set_default_timeout(ACTION)
            await self._context.route("**/*", self._route)
            await self._context.route_web_socket("**/*", lambda socket: socket.close())
            await self._goto(await self._context.new_page(), self._start)
        return self._context.pages[-1] if self._context.pages else await self._context.new_page()

    async def _goto(self, page: Any, url: str) -> None:
        whole = await page.evaluate("url => new URL(url, document.baseURI).href", url) if "://" not in url else url
        parts = urlsplit(whole)
        if parts.scheme not in ("http", "https") or not self._allows(parts.hostname or ""):
            raise ToolError(f"{url} cannot be opened; pages of {', '.join((*self._hosts, *self._own))} can")
        try:
            await page.goto(whole, timeout=LOADING, wait_until="load")
        except playwright().Error as error:
            raise ToolError(f"{url} cannot be opened: {_first_line(error)}") from error

    async def _act(self, ref: str, action: str, *arguments: Any, **more: Any) -> str:
        page = await self._page()
        try:
            await getattr(page.locator(f"aria-ref={ref.strip('[]').removeprefix('ref=')}"), action)(*arguments, **more)
            await page.wait_for_load_state("load", timeout=LOADING)
        except playwright().TimeoutError as error:
            raise ToolError(f"{ref!r} did not take this; read the page for the references that there are") from error
        except playwright().Error as error:
            if not page.is_closed():
                raise ToolError(f"{ref!r} did not take this: {_first_line(error)}") from error
        return await self._shown(await self._page())

    async def _shown(self, page: Any) -> str:
        try:
            outline = await page.locator("body").aria_snapshot(mode="ai", timeout=LOADING)
        except playwright().TimeoutError as error:
            raise ToolError("the page does not answer") from error
        return f"{await page.title()} ({page.url})\n{outline or '[an empty page]'}"

    @property
    def _own(self) -> tuple[str, ...]:
        return (SITE,) if self._folder or self._pages is not None else ()

    def _allows(self, host: str) -> bool:
        return host in self._own or host in self._hosts

    async def _route(self, route: Any) -> None:
        """Answers, passes or refuses one request of a page."""
        parts = urlsplit(route.request.url)
        if parts.hostname in self._own:
            await self._serve(route, parts.path, parts.query)
        elif parts.scheme in ("http", "https") and parts.hostname in self._hosts:
            await route.continue_()
        else:
            await route.abort("blockedbyclient")

    async def _serve(self, route: Any, path: str, query: str) -> None:
        if self._folder is not None:
            file = (self._folder / path.lstrip("/")).resolve()
            file = file / "index.html" if file.is_dir() else file
            if file.is_file() and file.is_relative_to(self._folder):
                return await route.fulfill(path=file)
        if self._pages is not None:
            whole = f"{path}?{query}" if query else path
            page = await invoke(self._pages, whole) if callable(self._pages) else self._pages.get(path)
            if page is not None:
                return await route.fulfill(body=page, content_type="text/html; charset=utf-8")
        return await route.fulfill(status=404, body="There is no such page.", content_type="text/plain")


def _first_line(error: Exception) -> str:
    """Without the log of what was tried."""
    return str(error).partition("\n")[0].rpartition(": ")[2]
