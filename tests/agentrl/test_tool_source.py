"""Tools that hold something for an episode: classes, their settings, shared objects, and what closes them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentrl as rl
from agentrl.errors import UsageError
from agentrl.messages import ToolCall
from agentrl.sandbox import Exec, SandboxLost, Status
from agentrl.tool import ToolBox, ToolCrash, ToolResult, ToolSpec
from agentrl.tool_source import ClassSource, Use, bound_tools
from agentrl.toolbox import toolbox
from tests.support.playing import played

MADE: list[Notes] = []
PREPARED: list[dict[str, Any]] = []


class Notes:
    """Keeps lines."""

    def __init__(self, most: int = 3, mark: str = "-") -> None:
        self.lines: list[str] = []
        self.most, self.mark, self.closed = most, mark, 0
        MADE.append(self)

    @classmethod
    def prepare(cls, **settings: Any) -> None:
        PREPARED.append(settings)
        if settings.get("most", 1) < 1:
            raise UsageError("most must be at least 1")

    @rl.tool
    def note(self, line: str) -> str:
        """Keeps a line."""
        if len(self.lines) == self.most:
            raise rl.ToolError("the page is full")
        self.lines.append(f"{self.mark} {line}")
        return "\n".join(self.lines)

    @rl.tool(parallel=True)
    async def read(self) -> str:
        """Reads all lines."""
        return "\n".join(self.lines)

    def close(self) -> None:
        self.closed += 1


class Tooled(rl.Env):
    def step(self, action: rl.Action) -> rl.Step:
        return rl.done()


def box(*tools: Any, sandbox: Any = None) -> ToolBox:
    env = Tooled()
    env.tools, env.sandbox = tools, sandbox
    return toolbox(env)


async def say(tools: ToolBox, name: str, **arguments: Any) -> ToolResult:
    ((_, result),) = await tools.run([ToolCall(id="1", name=name, arguments=arguments)], {"env": None, "sandbox": None})
    return result


@pytest.mark.parametrize("item", [Notes, f"{__name__}:Notes"])
def test_each_episode_has_an_object_of_its_own_made_at_its_first_call_and_closed_at_its_end(item: Any) -> None:
    async def main() -> None:
        first, second = box(item), box(item)
        assert [spec.name for spec in first.specs] == ["note", "read"]
        MADE.clear()
        assert (await say(first, "note", line="a")).text == "- a"
        assert len(MADE) == 1
        assert (await say(first, "note", line="b")).text == "- a\n- b"
        assert (await say(second, "read")).text == "[no output]"
        assert len(MADE) == 2
        await first.aclose()
        await first.aclose()
        assert [made.closed for made in MADE] == [1, 0]

    asyncio.run(main())


def test_parallel_first_calls_make_one_object() -> None:
    async def main() -> None:
        tools = box(Notes)
        MADE.clear()
        calls = [ToolCall(id=str(i), name="read", arguments={}) for i in range(5)]
        await tools.run(calls, {})
        assert len(MADE) == 1

    asyncio.run(main())


def test_an_object_that_is_never_used_is_never_made() -> None:
    MADE.clear()
    asyncio.run(box(Notes).aclose())
    assert MADE == []


def test_settings_reach_the_constructor_and_are_prepared_once_for_the_process() -> None:
    item = rl.use(f"{__name__}:Notes", most=1, mark="*")
    PREPARED.clear()
    first, second = box(item), box(rl.use(f"{__name__}:Notes", mark="*", most=1))
    assert PREPARED == [{"most": 1, "mark": "*"}]
    assert asyncio.run(say(first, "note", line="a")).text == "* a"
    assert asyncio.run(say(first, "note", line="b")).text == "Error: the page is full"
    assert asyncio.run(say(second, "note", line="c")).text == "* c"


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (rl.use(f"{__name__}:Notes", mots=2), "Notes has no setting 'mots'; did you mean 'most'"),
        (rl.use(f"{__name__}:Notes", most=0), "most must be at least 1"),
        (rl.use("python", most=0), "tool 'python' takes no settings; write its name alone"),
        (rl.use("pyhton"), "did you mean 'python'"),
        (rl.use(f"{__name__}:Needs"), "Needs needs a setting 'path'"),
        (Tooled, "Tooled has no method marked with @tool"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_is_played(item: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        box(item)


class Needs(Notes):
    def __init__(self, path: str) -> None:
        super().__init__()


def test_an_object_is_shared_by_the_episodes_that_list_it() -> None:
    shared = Notes()
    first, second = box(shared), box(shared)
    asyncio.run(say(first, "note", line="a"))
    assert asyncio.run(say(second, "read")).text == "- a"
    asyncio.run(first.aclose())
    assert shared.closed == 0  # it is its maker's
    assert [tool.spec.name for tool in bound_tools(shared)] == ["note", "read"]


class Runner:
    """Asks for what an episode has."""

    def __init__(self, sandbox: Any, env: Any = None) -> None:
        self.sandbox, self.env = sandbox, env

    @rl.tool
    async def look(self) -> Exec:
        """Looks."""
        return await self.sandbox.python(self.env.code)

    @rl.tool
    def broken(self) -> str:
        """Fails."""
        return 1 / 0  # type: ignore[return-value]


class Given:
    code = "x"

    async def python(self, code: str) -> Exec:
        return Exec(status=Status.OK, stdout=code)


def test_a_constructor_may_ask_for_the_sandbox_and_the_environment() -> None:
    async def main() -> None:
        tools = box(Runner, sandbox=rl.SandboxSpec())
        call = ToolCall(id="1", name="look", arguments={})
        ((message, _),) = await tools.run([call], {"env": Given(), "sandbox": Given()})
        assert message.text == "x"
        with pytest.raises(ToolCrash, match="tool broken raised ZeroDivisionError"):
            await tools.run([ToolCall(id="1", name="broken", arguments={})], {"env": Given(), "sandbox": Given()})

    asyncio.run(main())
    with pytest.raises(UsageError, match="tool 'broken' needs a sandbox"):
        box(Runner)


class Fails:
    def __init__(self, error: Exception) -> None:
        raise error

    @rl.tool
    def any(self) -> str:
        """Never called."""
        return ""


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (RuntimeError("no disk"), ToolCrash, "tool Fails cannot be made: .*RuntimeError: no disk"),
        (SandboxLost("gone"), SandboxLost, "gone"),
        (UsageError("no such file"), UsageError, "no such file"),
    ],
)
def test_a_constructor_that_fails_is_a_crash(error: Exception, kind: type[Exception], text: str) -> None:
    (tool,) = ClassSource(Fails, {"error": error}).session().tools
    with pytest.raises(kind, match=text):
        asyncio.run(tool({}, {}))


def test_every_session_is_closed_and_what_failed_is_raised() -> None:
    class Stuck(Notes):
        def close(self) -> None:
            raise OSError("stuck")

    class Other(Notes):
        @rl.tool(name="other")
        def note(self, line: str) -> str:
            """Keeps another line."""
            return super().note(line)

        @rl.tool(name="another")
        async def read(self) -> str:
            """Reads others."""
            return ""

    async def main() -> None:
        tools = box(Stuck, Other)
        MADE.clear()
        await say(tools, "note", line="a")
        await say(tools, "other", line="a")
        with pytest.raises(ExceptionGroup, match="tools could not be closed") as caught:
            await tools.aclose()
        assert [str(error) for error in caught.value.exceptions] == ["stuck"]
        assert MADE[1].closed == 1

    asyncio.run(main())


def test_use_is_plain_data() -> None:
    import pickle

    item = rl.use("search", corpus="a", top=3)
    assert pickle.loads(pickle.dumps(item)) == item == Use("search", {"top": 3, "corpus": "a"})
    assert item.key == rl.use("search", top=3, corpus="a").key != rl.use("search", top=4, corpus="a").key


def test_it_is_shown_as_it_is_written_without_keys_to_servers() -> None:
    assert repr(rl.use("search", top=3)) == "rl.use('search', top=3)"
    item = rl.mcp(url="http://a", headers={"Authorization": "Bearer 123"}, timeout=0, shared=True)
    shown = "rl.use('mcp', url='http://a', headers={'Authorization': '...'}, shared=True, timeout=0)"
    assert repr(item) == shown
    assert repr(rl.mcp("python server.py")) == "rl.use('mcp', command=['python', 'server.py'])"
    assert item.settings["headers"] == {"Authorization": "Bearer 123"}


def _call(name: str, arguments: str = "{}") -> str:
    return f'<call>{{"name": "{name}", "arguments": {arguments}}}</call>'


class Noted(rl.Env):
    """Plays with what an episode must close."""

    tools = [Notes]
    max_turns = 4

    @rl.tool
    def sell(self, price: int) -> rl.Step:
        """Ends the episode."""
        return rl.done("Sold.", reward=price)

    @rl.tool
    def pay(self, price: int) -> rl.Step:
        """A reward on the way."""
        return rl.Step(reward=price)

    @rl.tool
    def bad(self) -> rl.Step:
        """Gives what is no reward."""
        return rl.Step(reward=float("nan"))


def test_a_played_episode_closes_its_tools() -> None:
    MADE.clear()
    episode = asyncio.run(played(Noted(), _call("note", '{"line": "a"}'), "done"))
    assert episode.messages[2].text == "- a"
    assert [made.closed for made in MADE] == [1]


def test_a_tool_may_give_a_reward_and_end_the_episode() -> None:
    episode = asyncio.run(
        played(Noted(), _call("pay", '{"price": 2}'), _call("sell", '{"price": 3}') + _call("pay", '{"price": 9}'))
    )
    assert episode.outcome is rl.Outcome.TERMINATED
    assert [turn.reward for turn in episode.turns] == [2.0, 3.0]
    assert [turn.tool_errors for turn in episode.turns] == [0, 1]
    texts = [message.text for message in episode.messages if message.role == "tool"]
    assert texts == ["[no output]", "Sold.", "Error: not run: a call before it has ended the episode"]


def test_a_tool_whose_reward_is_no_number_breaks_the_episode() -> None:
    episode = asyncio.run(played(Noted(), _call("bad")))
    assert episode.outcome is rl.Outcome.TOOL_CRASH
    assert "the reward nan; it must be a finite number" in episode.error


class Clocked:
    """A tool of the third kind: an object with a spec."""

    spec = ToolSpec(name="clocked", description="Waits.", parameters={"type": "object", "properties": {}})

    async def __call__(self, arguments: Any, context: Any) -> ToolResult:
        with context["waiting"]():  # of the clock of the episode, which a test of its own holds
            return ToolResult(content=(rl.Text(text=",".join(sorted(context))),))


def test_what_the_context_of_a_played_episode_holds() -> None:
    env = Noted()
    env.tools = [Clocked()]  # type: ignore[list-item]
    episode = asyncio.run(played(env, _call("clocked"), "done"))
    assert episode.messages[2].text == "env,sandbox,waiting"
