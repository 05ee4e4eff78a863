"""The browser, with a real Chromium: what a model sees of a page, what its actions do, and what cannot be reached."""

from __future__ import annotations

import asyncio
import builtins
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentrl as rl
from agentrl.errors import MissingExtra, UsageError
from agentrl.messages import ToolCall
from agentrl.tool import ToolBox, ToolCrash, ToolResult
from agentrl.toolbox import toolbox
from agentrl.tools import browser_process
from agentrl.tools.browser import Browser
from tests.support import chromium
from tests.support.playing import played
from tests.support.wait import until

HOME = """<title>Shop</title><h1>Shop</h1><a href="/cart?item=tea">Tea</a>
<button onclick="document.title='pressed'">Press</button>
<form action="/search"><input name="q" aria-label="Search"></form>
<select aria-label="Color" onchange="document.title=this.value"><option>red<option>blue</select>
<a href="/two" target="_blank">Other window</a><a href="/none">Gone</a><p style="display:none">secret</p>"""


@pytest.fixture(autouse=True)
def _chromium() -> None:
    chromium.needed()


class Surfs(rl.Env):
    """Has pages of its own."""

    tools = ("browser",)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def pages(self, path: str) -> str | None:
        self.asked.append(path)
        if path.startswith("/search"):
            return f"<p>found {path.partition('q=')[2]}"
        return {"/": HOME, "/cart?item=tea": "<title>Cart</title>1 tea", "/two": "<title>Two</title>2"}.get(path)


Plan = Callable[["Talk"], Any]


class Talk:
    """One episode's browser."""

    def __init__(self, box: ToolBox, env: rl.Env) -> None:
        self._box, self._env = box, env

    async def result(self, name: str, **arguments: Any) -> ToolResult:
        ((_, result),) = await self._box.run([ToolCall(id="1", name=name, arguments=arguments)], {"env": self._env})
        return result

    async def __call__(self, name: str, **arguments: Any) -> str:
        return (await self.result(name, **arguments)).text

    async def ref(self, what: str) -> str:
        """The reference of the element whose line holds `what`."""
        (line,) = [line for line in (await self("read_page")).splitlines() if what in line]
        return line.partition("[ref=")[2].partition("]")[0]


def surf(plan: Plan, env: rl.Env | None = None, **settings: Any) -> None:
    async def main() -> None:
        made = env or Surfs()
        made.tools = [rl.use("browser", **settings)]
        box = toolbox(made)
        try:
            await plan(Talk(box, made))
        finally:
            await box.aclose()

    asyncio.run(main())


def test_a_page_is_read_clicked_and_left() -> None:
    async def plan(talk: Talk) -> None:
        home = await talk("read_page")
        assert home.startswith("Shop (http://site/)\n")
        assert 'heading "Shop"' in home
        assert "secret" not in home
        assert (await talk("click", ref=await talk.ref('link "Tea"'))).startswith("Cart (http://site/cart?item=tea)\n")
        assert (await talk("go_back")).startswith("Shop (")
        assert (await talk("click", ref=await talk.ref('button "Press"'))).startswith("pressed (")
        assert (await talk("select_option", ref=await talk.ref('combobox "Color"'), option="blue")).startswith("blue (")
        assert "found a+b" in await talk("type_text", ref=await talk.ref('textbox "Search"'), text="a b", submit=True)
        assert "1 tea" in await talk("open_page", url="/cart?item=tea")

    surf(plan)


def test_a_window_that_opens_is_the_one_that_is_read() -> None:
    async def plan(talk: Talk) -> None:
        await talk("click", ref=await talk.ref('link "Other window"'))
        await until_title(talk, "Two (http://site/two)")

    surf(plan)


async def until_title(talk: Talk, title: str) -> None:
    for _ in range(100):
        if (await talk("read_page")).startswith(title):
            return
    raise AssertionError(f"no page {title}")


def test_what_does_not_work_is_told() -> None:
    async def plan(talk: Talk) -> None:
        assert "There is no such page." in await talk("click", ref=await talk.ref('link "Gone"'))
        await talk("go_back")
        heading = await talk.ref('heading "Shop"')
        assert (await talk("type_text", ref=heading, text="x")).startswith(f"Error: {heading!r} did not take this: ")

    surf(plan)


def test_a_reference_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.tools.browser.ACTION", 300)

    async def plan(talk: Talk) -> None:
        assert (
            await talk("click", ref="e99") == "Error: 'e99' did not take this; read the page for the references that there are"
        )

    surf(plan)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://127.0.0.1:9/", "http://example.org/", "chrome://version", "javascript:1"]
)
def test_nothing_else_can_be_opened(url: str) -> None:
    async def plan(talk: Talk) -> None:
        assert await talk("open_page", url=url) == f"Error: {url} cannot be opened; pages of site can"

    surf(plan)


def test_a_page_reaches_nothing_else_either() -> None:
    """By requests, frames, sockets and names: a server on this machine hears of none."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.close()

    async def plan(talk: Talk) -> None:
        server = await asyncio.start_server(hear, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        tries = f"""<title>wait</title><iframe src="http://127.0.0.1:{port}/f"></iframe><img src="http://localhost:{port}/i"><script>
          const url = "127.0.0.1:{port}";
          const tried = [fetch("http://" + url).then(() => "in", () => "out"),
            new Promise(done => {{
              const socket = new WebSocket("ws://" + url);
              socket.onerror = socket.onclose = () => done("out");
              socket.onopen = () => done("open");
            }})];
          Promise.all(tried).then(all => document.title = all.join(" "));
        </script>"""
        talk._env.pages = {"/": tries}  # type: ignore[attr-defined]
        for _ in range(200):
            text = await talk("read_page")
            if not text.startswith("wait"):
                break
        assert text.startswith("out ")
        server.close()
        assert heard == []

    surf(plan, rl.Env())


def test_a_folder_is_served_and_nothing_above_it(tmp_path: Path) -> None:
    site = tmp_path / "pages"
    site.mkdir()
    (site / "index.html").write_text("<title>Front</title><link rel=stylesheet href=/a.css><p>body")
    (site / "a.css").write_text("p { color: red }")
    (tmp_path / "above.html").write_text("above")
    (site / "link.html").symlink_to(tmp_path / "above.html")

    async def plan(talk: Talk) -> None:
        assert (await talk("read_page")).startswith("Front (http://site/)\n")
        for path in ("/../above.html", "/%2e%2e/above.html", "/link.html"):
            assert "There is no such page." in await talk("open_page", url=path)

    surf(plan, rl.Env(), folder=str(site))


def test_a_picture_of_the_page() -> None:
    async def plan(talk: Talk) -> None:
        (picture,) = (await talk.result("screenshot")).content
        assert isinstance(picture, rl.Image)
        assert (picture.width, picture.height) == (400, 300)

    surf(plan, width=400, height=300)


def test_episodes_share_a_process_and_nothing_else() -> None:
    async def main() -> None:
        pages = {"/": "<title>none</title><script>document.title = document.cookie || 'none'; document.cookie = 'a=1'</script>"}
        talks = []
        for _ in range(2):
            env = Surfs()
            env.pages = pages  # type: ignore[assignment, method-assign]
            box = toolbox(env)
            talks.append((box, Talk(box, env)))
        assert [(await talk("read_page")).split(" ")[0] for _, talk in talks] == ["none", "none"]
        assert (await talks[0][1]("open_page", url="/")).startswith("a=1 ")
        (process,) = browser_process._processes[asyncio.get_running_loop()].values()
        assert process.users == 2
        running = process.browser
        for box, _ in talks:
            await box.aclose()
        assert process.users == 0
        assert not running.is_connected()

    asyncio.run(main())


def test_a_browser_that_dies_aborts_the_episode_and_the_next_has_another() -> None:
    async def main() -> None:
        for _ in range(2):
            env = Surfs()
            box = toolbox(env)
            talk = Talk(box, env)
            assert (await talk("read_page")).startswith("Shop ")
            (process,) = browser_process._processes[asyncio.get_running_loop()].values()
            await process.browser.close()
            await until(lambda running=process.browser: not running.is_connected())
            with pytest.raises(ToolCrash):
                await talk("read_page")
            await box.aclose()

    asyncio.run(main())


def test_an_episode_is_played() -> None:
    call = '<call>{"name": "open_page", "arguments": {"url": "/two"}}</call>'
    episode = asyncio.run(played(Surfs(), call, "done"))
    assert episode.outcome is rl.Outcome.TERMINATED
    assert episode.messages[2].text.startswith("Two (http://site/two)")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"hosts": ["http://a/b"], "start": "http://a"}, "must be a list of names"),
        ({"hosts": "a.example", "start": "http://a.example"}, "must be a list of names"),
        ({"hosts": ["a.example"]}, "with hosts, say where it begins"),
        ({"folder": "nowhere"}, "browser: there is no folder nowhere"),
        ({"host": ["a"]}, "Browser has no setting 'host'; did you mean 'hosts'"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_is_played(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        surf(lambda talk: talk("read_page"), **settings)


def test_without_pages_the_run_stops() -> None:
    with pytest.raises(UsageError, match=r"browser has no pages: .* or set self\.pages in Env\.reset"):
        surf(lambda talk: talk("read_page"), rl.Env(), width=300)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("playwright"):
            raise ModuleNotFoundError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)


@pytest.mark.usefixtures("nothing_installed")
def test_without_the_package_the_command_that_installs_it_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'agentrl-gym\[browser\]'"):
        Browser.prepare()


def test_without_chromium_what_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="apt-get install chromium"):
        Browser.prepare()
