"""Tools with a JSON schema of their own: what is checked when they are made, and what a call is answered with."""

from __future__ import annotations

import asyncio
import builtins
from typing import Any

import pytest

import agentrl as rl
from agentrl.errors import MissingExtra, UsageError
from agentrl.schema_tool import fitted
from agentrl.toolbox import toolbox

BOOK = {
    "type": "function",
    "function": {
        "name": "book_flight",
        "description": "Books a flight.",
        "parameters": {
            "type": "object",
            "title": "Booking",
            "properties": {
                "from-city": {"type": "string", "description": "where it starts"},
                "seats": {"type": "integer", "minimum": 1, "default": 1},
                "class": {"enum": ["economy", "business"]},
                "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
            },
            "required": ["from-city", "class"],
            "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
        },
    },
}


def book(**arguments: Any) -> dict[str, Any]:
    return arguments


def call(tool: Any, **arguments: Any) -> tuple[str, bool]:
    result = asyncio.run(tool(arguments, {}))
    return result.text, result.is_error


def test_what_a_model_is_told() -> None:
    spec = rl.schema_tool(BOOK, book, timeout=5, parallel=True).spec
    assert (spec.name, spec.description, spec.timeout, spec.parallel) == ("book_flight", "Books a flight.", 5, True)
    assert spec.parameters["additionalProperties"] is False
    assert "title" not in spec.parameters
    assert spec.parameters["properties"]["class"] == {"enum": ["economy", "business"]}


def test_arguments_arrive_by_name_also_such_as_python_has_no_word_for() -> None:
    text, is_error = call(rl.schema_tool(BOOK, book), **{"from-city": "Bern", "class": "economy", "people": [{"name": "Ada"}]})
    assert (text, is_error) == ('{"from-city": "Bern", "class": "economy", "people": [{"name": "Ada"}]}', False)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "'from-city' is missing; 'class' is missing. "),
        ({"from-city": "a", "class": "first"}, "class: 'first' is not one of ['economy', 'business']. "),
        ({"from-city": "a", "class": "economy", "seats": 0}, "seats: 0 is less than the minimum of 1. "),
        ({"from-city": "a", "class": "economy", "seat": 2}, "there is no 'seat'; did you mean 'seats'?. "),
        ({"from-city": "a", "class": "economy", "people": [{}]}, "'name' is missing. "),
        ({"from-city": "a", "class": "economy", "people": [{"name": 1}]}, "people.0.name: 1 is not of type 'string'. "),
    ],
)
def test_what_does_not_fit_is_said_with_the_usage(arguments: dict[str, Any], problem: str) -> None:
    text, is_error = call(rl.schema_tool(BOOK, book), **arguments)
    assert is_error
    assert text == (
        f"Error: invalid arguments for book_flight: {problem}book_flight takes from-city: string, seats: integer = 1, "
        "class: 'economy' | 'business', people: array of object (optional)"
    )


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        ("3", "integer", 3),
        (" -3 ", "integer", -3),
        ("3.5", "integer", "3.5"),
        ("3.5", "number", 3.5),
        ("many", "number", "many"),
        (3, "string", "3"),
        (True, "string", True),
        ("true", "boolean", True),
        ("False", "boolean", False),
        ("yes", "boolean", "yes"),
        ("3", None, "3"),
    ],
)
def test_numbers_and_their_texts_stand_for_each_other(value: Any, kind: str | None, fits: Any) -> None:
    schema = {"properties": {"a": {"type": kind} if kind else {}}}
    assert fitted({"a": value, "b": 1}, schema) == {"a": fits, "b": 1}
    assert type(fitted({"a": value}, schema)["a"]) is type(fits)


def test_a_schema_that_says_what_else_there_may_be_keeps_its_word() -> None:
    schema = {"name": "f", "parameters": {"properties": {}, "additionalProperties": {"type": "integer"}}}
    assert call(rl.schema_tool(schema, book), a=1) == ('{"a": 1}', False)
    assert "a: 'x' is not of type 'integer'" in call(rl.schema_tool(schema, book), a="x")[0]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, "a tool's schema needs a name"),
        ({"function": {"parameters": {}}}, "a tool's schema needs a name"),
        ({"name": "two words"}, "tool 'two words': a name may hold letters, digits, _ and -, 64 at most"),
        ({"name": "f", "parameters": {"type": "array"}}, "tool f: its parameters must be an object, not 'array'"),
        ({"name": "f", "parameters": {"properties": {"a": {"type": "int"}}}}, r"tool f: its parameters are no JSON schema: \$"),
    ],
)
def test_what_is_no_schema_is_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        rl.schema_tool(schema, book)


def test_the_limits_of_other_tools_hold() -> None:
    async def slow() -> str:
        await asyncio.sleep(60)
        return ""

    def fails() -> str:
        raise rl.ToolError("no such flight")

    assert (
        call(rl.schema_tool({"name": "slow"}, slow, timeout=0.01))[0] == "Error: slow took longer than 0.01 s and was stopped"
    )
    assert call(rl.schema_tool({"name": "fails"}, fails)) == ("Error: no such flight", True)
    assert "left out" in call(rl.schema_tool({"name": "long"}, lambda: "x" * 1000, max_output=10))[0]


def test_an_environment_may_list_it() -> None:
    env = rl.Env()
    env.tools = [rl.schema_tool(BOOK, book)]
    assert [spec.name for spec in toolbox(env).specs] == ["book_flight"]


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "jsonschema":
            raise ModuleNotFoundError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'agentrl-gym\[mcp\]'"):
        rl.schema_tool(BOOK, book)
