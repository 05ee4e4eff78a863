"""Tools: the schema a model sees, what happens with its arguments, and how calls end."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, Literal

import pydantic
import pytest

from agentrl.errors import UsageError
from agentrl.messages import Image, Message, Text, ToolCall
from agentrl.sandbox import Exec, SandboxLost, Status
from agentrl.tool import FunctionTool, ToolBox, ToolCrash, ToolError, ToolResult, ToolSpec, as_result, tool


def run(function, arguments: dict[str, Any] | None = None, **context: Any) -> ToolResult:
    return asyncio.run(FunctionTool(function)(arguments or {}, context))


def text(result: ToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


def box_of(*functions) -> ToolBox:
    return ToolBox([FunctionTool(function) for function in functions])


def calls(*pairs: tuple[str, dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(id=f"call_{i}", name=name, arguments=arguments) for i, (name, arguments) in enumerate(pairs)]


@tool(timeout=5, max_output=100, parallel=True)
def search(query: str, limit: int = 3, order: Literal["new", "old"] = "new") -> str:
    """Searches the
    index.

    Args:
        query: what to look for: words,
            not a sentence
        limit (int): how many
        order: which first

    Returns:
        order: not an argument
    """
    return f"{query} {limit} {order}"


def test_what_a_model_is_told():
    spec = FunctionTool(search).spec
    assert (spec.name, spec.description, spec.timeout, spec.max_output, spec.parallel) == (
        "search",
        "Searches the index.",
        5,
        100,
        True,
    )
    assert spec.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "query": {"type": "string", "description": "what to look for: words, not a sentence"},
            "limit": {"type": "integer", "default": 3, "description": "how many"},
            "order": {"type": "string", "enum": ["new", "old"], "default": "new", "description": "which first"},
        },
        "required": ["query"],
    }
    assert spec.to_dict()["function"]["name"] == "search"


class Shop:
    @tool(name="price_of")
    async def price(self, item: str, sandbox: Any, env: Any, quick: bool = False) -> str:
        """The price. Args: item: its name; quick: guess it."""
        return f"{item} {sandbox} {env} {quick}"


def test_a_method_hides_what_the_framework_fills_in():
    spec = FunctionTool(Shop().price).spec
    assert spec.name == "price_of"
    assert spec.description == "The price."
    assert {k: v["description"] for k, v in spec.parameters["properties"].items()} == {"item": "its name", "quick": "guess it."}
    assert text(run(Shop().price, {"item": "tea"}, sandbox="S", env="E")) == "tea S E False"


def test_a_tool_that_needs_a_sandbox_says_so_when_there_is_none():
    with pytest.raises(UsageError, match=r"tool price_of asks for 'sandbox'.*declares no SandboxSpec"):
        run(Shop().price, {"item": "tea"}, env="E", sandbox=None)


def test_a_model_cannot_fill_in_what_is_hidden():
    assert "there is no 'sandbox'; valid: 'item', 'quick'" in text(
        run(Shop().price, {"item": "x", "sandbox": "mine"}, sandbox=1, env=2)
    )


def test_names_that_mean_something_to_pydantic_are_ordinary_parameters():
    def store(json: str, schema: int, model_config: str, copy: str = "c") -> str:
        return f"{json} {schema} {model_config} {copy}"

    assert list(FunctionTool(store).spec.parameters["properties"]) == ["json", "schema", "model_config", "copy"]
    assert text(run(store, {"json": "a", "schema": 1, "model_config": "b"})) == "a 1 b c"


class Point(pydantic.BaseModel):
    title: str
    x: int


def test_nested_models_keep_a_property_called_title():
    def mark(point: Point, weight: Annotated[float, pydantic.Field(ge=0)] = 1) -> str:
        return f"{point.title} {point.x} {weight}"

    parameters = FunctionTool(mark).spec.parameters
    assert parameters["$defs"]["Point"]["properties"] == {"title": {"type": "string"}, "x": {"type": "integer"}}
    assert parameters["properties"]["weight"]["minimum"] == 0
    assert text(run(mark, {"point": {"title": "t", "x": 2}})) == "t 2 1"
    assert "weight" in text(run(mark, {"point": {"title": "t", "x": 2}, "weight": -1}))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "'query' is missing"),
        (
            {"query": "a", "limit": "many"},
            "limit: Input should be a valid integer, unable to parse string as an integer, not 'many'",
        ),
        ({"query": "a", "order": "up"}, "order: Input should be 'new' or 'old', not 'up'"),
        ({"query": "a", "Limit": 2}, "there is no 'Limit'; did you mean 'limit'?"),
    ],
)
def test_invalid_arguments_are_answered_with_what_is_wrong(arguments, problem):
    result = run(search, arguments)
    assert result.is_error
    assert text(result).startswith("Error: invalid arguments for search: ")
    assert problem in text(result)
    assert text(result).endswith(". search takes query: string, limit: integer = 3, order: 'new' | 'old' = 'new'")


def test_numbers_and_their_texts_stand_for_each_other():
    assert text(run(search, {"query": 5, "limit": "2"})) == "5 2 new"


@pytest.mark.parametrize("kind", ["*args", "**kwargs", "positional"])
def test_parameters_without_a_name_are_refused(kind):
    def several(*args: int) -> str: ...
    def named(**kwargs: int) -> str: ...
    def positional(a: int, /) -> str: ...

    function = {"*args": several, "**kwargs": named, "positional": positional}[kind]
    with pytest.raises(UsageError, match="cannot be described to a model"):
        _ = FunctionTool(function).spec


def test_a_hint_without_json_form_is_named():
    class Own: ...

    def strange(x: Any) -> str: ...

    strange.__annotations__["x"] = Own
    with pytest.raises(UsageError, match="tool strange: a type hint has no JSON form"):
        _ = FunctionTool(strange).spec
    strange.__annotations__["x"] = "Nowhere"
    with pytest.raises(UsageError, match=r"tool strange: a type hint cannot be read \(.*Nowhere"):
        _ = FunctionTool(strange).spec


def test_an_expected_failure_is_text_for_the_model():
    def fails() -> str:
        raise ToolError("no such file")

    result = run(fails)
    assert (text(result), result.is_error) == ("Error: no such file", True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_unexpected_failure_is_a_crash(asynchronous):
    def fails() -> str:
        raise KeyError("x")

    async def fails_too() -> str:
        raise KeyError("x")

    with pytest.raises(ToolCrash, match=r"tool fails.* raised KeyError: 'x'"):
        run(fails_too if asynchronous else fails)


def test_a_lost_sandbox_is_no_crash():
    async def uses() -> str:
        raise SandboxLost("gone")

    with pytest.raises(SandboxLost):
        run(uses)


def test_time_limit():
    @tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.sleep(60)
        return ""

    @tool(timeout=0.01)
    def stuck() -> str:
        never.wait(60)
        return ""

    never = threading.Event()
    assert text(run(slow)) == "Error: slow took longer than 0.01 s and was stopped"
    assert text(run(stuck)) == "Error: stuck took longer than 0.01 s and was given up"
    never.set()


def test_after_a_timeout_an_async_tool_is_tried_again_and_a_sync_one_is_not():
    """Nothing can stop the thread of a sync tool: a second call would run beside the first."""
    seen, never, begun = [], threading.Event(), threading.Event()

    @tool(timeout=0.01, retries=2)
    async def slow() -> str:
        seen.append("slow")
        await asyncio.sleep(60)
        return ""

    @tool(timeout=0.01, retries=2)
    def stuck() -> str:
        seen.append("stuck")
        begun.set()
        never.wait(60)
        return ""

    assert run(slow).is_error
    assert run(stuck).is_error
    assert begun.wait(60)  # on a busy machine the thread may begin when its time is over
    never.set()
    assert seen == ["slow"] * 3 + ["stuck"]


def test_a_timeout_of_its_own_is_a_crash():
    async def socket() -> str:
        raise TimeoutError("peer")

    with pytest.raises(ToolCrash, match="raised TimeoutError: peer"):
        run(socket)


def test_sync_tools_run_beside_the_event_loop():
    def where() -> str:
        return str(threading.current_thread() is threading.main_thread())

    assert text(run(where)) == "False"


def test_only_errors_are_tried_again():
    seen: list[str] = []

    @tool(retries=2)
    def flaky() -> str:
        seen.append("flaky")
        if len(seen) < 3:
            raise ToolError("later")
        return "done"

    @tool(retries=5)
    def code() -> Exec:
        seen.append("code")
        return Exec(status=Status.ERROR, exit_code=1, stderr="bad")

    assert text(run(flaky)) == "done"
    assert seen == ["flaky"] * 3
    assert run(code).is_error  # the code that the model wrote is wrong: a result, and not to be run again
    assert seen.count("code") == 1


def test_tried_again_as_often_as_was_said():
    seen = []

    @tool(retries=1)
    def never() -> str:
        seen.append(1)
        raise ToolError("no")

    assert text(run(never)) == "Error: no"
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        ("", "[no output]"),
        (None, "[no output]"),
        (3, "3"),
        (True, "true"),
        ({"a": [1, None], "ü": "é"}, '{"a": [1, null], "ü": "é"}'),
        (["a", "b"], '["a", "b"]'),
        ([{"a": 1}], '[{"a": 1}]'),
        ((1, 2), "[1, 2]"),
        (Text(text="t"), "t"),
        ([Text(text="t"), "u"], "tu"),
        ("x" * 30, "xxxxxxx\n[... 20 characters left out ...]\nxxx"),
        (ToolResult(content=(Text(text="y" * 30),)), "yyyyyyy\n[... 20 characters left out ...]\nyyy"),
        (Exec(status=Status.OK, stdout="out\n"), "out\n"),
    ],
)
def test_what_a_tool_may_return(value, shown):
    limit = 10 if isinstance(value, (str, ToolResult)) and value not in ("text", "") else 100
    assert text(as_result(value, limit)) == shown


def test_pictures_pass_and_errors_stay_errors():
    picture = Image(png=b"", sha256="a", width=1, height=1)
    assert as_result(["see", picture], 100).content == (Text(text="see"), picture)
    assert as_result(ToolResult.error("no"), 100).is_error
    assert as_result(Exec(status=Status.TIMEOUT, wall_s=1.0), 100).is_error


def test_calls_are_answered_in_order_with_their_ids():
    box = box_of(search, Shop().price)
    answers = asyncio.run(
        box.run(
            calls(("search", {"query": "a"}), ("price_of", {"item": "b"}), ("serch", {}), ("search", {})),
            {"sandbox": 1, "env": 2},
        )
    )
    messages = [message for message, _ in answers]
    assert [m.tool_call_id for m in messages] == ["call_0", "call_1", "call_2", "call_3"]
    assert [m.name for m in messages] == ["search", "price_of", "serch", "search"]
    assert [result.is_error for _, result in answers] == [False, False, True, True]
    assert messages[0] == Message(role="tool", content="a 3 new", tool_call_id="call_0", name="search")
    assert messages[2].text == "Error: there is no tool 'serch'; did you mean 'search'?"


def test_neighboring_parallel_calls_run_together_and_others_alone():
    running: list[str] = []
    seen: list[tuple[str, ...]] = []

    async def note(name: str) -> str:
        running.append(name)
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append(tuple(running))
        running.remove(name)
        return name

    @tool(parallel=True)
    async def reader(name: str) -> str:
        return await note(name)

    @tool
    async def writer(name: str) -> str:
        return await note(name)

    plan = calls(("reader", {"name": "a"}), ("reader", {"name": "b"}), ("writer", {"name": "c"}), ("reader", {"name": "d"}))
    answers = asyncio.run(box_of(reader, writer).run(plan, {}))
    assert [message.text for message, _ in answers] == ["a", "b", "c", "d"]
    assert seen[0] == ("a", "b")
    assert seen[2:] == [("c",), ("d",)]


def test_a_crash_beside_others_is_a_crash_and_no_group():
    stopped: list[str] = []

    @tool(parallel=True)
    async def waits() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("waits")
            raise
        return ""

    @tool(parallel=True)
    async def fails() -> str:
        await asyncio.sleep(0)
        raise RuntimeError("boom")

    with pytest.raises(ToolCrash, match="tool fails raised RuntimeError: boom"):
        asyncio.run(box_of(waits, fails).run(calls(("waits", {}), ("fails", {})), {}))
    assert stopped == ["waits"]


def test_cancelling_reaches_the_tools():
    stopped: list[int] = []
    started = asyncio.Semaphore(0)

    @tool(parallel=True)
    async def waits() -> str:
        started.release()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(1)
        return ""

    async def main() -> None:
        task = asyncio.ensure_future(box_of(waits).run(calls(("waits", {}), ("waits", {})), {}))
        await started.acquire()
        await started.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert stopped == [1, 1]


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"name": "two words"}, "tool 'two words': a name may hold letters, digits, _ and -, 64 at most"),
        ({"timeout": 0}, "tool 'f': timeout=0 must be seconds above 0"),
        ({"timeout": float("inf")}, "tool 'f': timeout=inf must be seconds above 0"),
        ({"timeout": None}, "tool 'f': timeout=None must be seconds above 0"),
        ({"max_output": 0}, "tool 'f': max_output=0 must be a whole number of at least 1"),
        ({"retries": -1}, "tool 'f': retries=-1 must be a whole number of at least 0"),
    ],
)
def test_limits_that_cannot_be_held_to_are_refused(limits, told):
    @tool(**limits)
    def f() -> str:
        """F."""
        return ""

    with pytest.raises(UsageError, match=told):
        box_of(f)


def test_a_function_without_a_name_is_refused():
    with pytest.raises(UsageError, match="tool '<lambda>': a name may hold letters"):
        box_of(lambda: 1)


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two tools are called 'search'"):
        box_of(search, search)
    assert len(box_of(search)) == 1
    assert box_of(search).specs[0] == FunctionTool(search).spec
    assert isinstance(box_of(search).specs[0], ToolSpec)
