"""What is written in a format is read back as it was, in every format."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.parsers import FORMATS, parse_calls, parse_turn, write_calls
from agentrl.tool import ToolSpec

PROPERTIES = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "many": {"type": "array", "items": {}},
    "deep": {"type": "object"},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "kind": {"$ref": "#/$defs/Kind"},
}
DEFINITIONS = {"Kind": {"enum": ["5", "true", "null"]}}
NAMES = ("get_weather", "get-weather", "f2")
TOOLS = [
    ToolSpec(name=name, description="", parameters={"type": "object", "properties": PROPERTIES, "$defs": DEFINITIONS})
    for name in NAMES
]
PYTHON = ToolSpec(name="python", description="", parameters={"type": "object", "properties": {"code": {"type": "string"}}})

AWKWARD = [
    *("", " ", "\n", "\n\n", " lead and trail ", "say \"hi\" and 'bye'", "back\\slash", "both \"\"\" and '''", "a\tb\r\nc"),
    *("5", "2.0", "true", "None", "null", "[1]", '{"a": 1}', "{}", "007", "-", "NaN", "1e5"),
    *(
        "grüße 你好 🙂 \u2028",
        "`x`",
        "```",
        "```python\nx\n```",
        "</parameter> and more",
        "<parameter",
        "{",
        "}",
        "]",
        ")",
        "'",
    ),
    *("<think>", "</think>", "</tool_call>", "<tool_call>", "[TOOL_CALLS]", "Observation: x", "Thought: y", "Action: f2"),
    *("<|end|>", "<|call|>", "<｜tool▁call▁end｜>", "<|tool_call_end|>", "# no comment", "a, b: c; d", "f2(text='x')"),
]
TEXTS = st.one_of(st.sampled_from(AWKWARD), st.text(max_size=20))
NUMBERS = st.one_of(st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "count": st.integers(-(10**15), 10**15),
        "ratio": NUMBERS,
        "flag": st.booleans(),
        "many": st.lists(VALUES, max_size=3),
        "deep": st.dictionaries(TEXTS, VALUES, max_size=3),
        "maybe": st.one_of(st.none(), st.integers()),
        "kind": st.sampled_from(["5", "true", "null"]),
    },
)
CALLS = st.lists(st.fixed_dictionaries({"name": st.sampled_from(NAMES), "arguments": ARGUMENTS}), min_size=1, max_size=3)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=80, deadline=None)
@given(calls=CALLS, before=st.sampled_from(["", "I look.\n", "I think.\n\n"]))
def test_calls_are_read_back(form, calls, before):
    found = parse_calls(form, before + write_calls(form, calls), TOOLS)
    assert [(c.name, c.arguments) for c in found.calls] == [(c["name"], c["arguments"]) for c in calls]
    assert (found.text.strip(), found.error) == (before.strip(), "")


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "harmony"])
@settings(max_examples=30, deadline=None)
@given(calls=CALLS)
def test_reasoning_before_calls_is_taken_off_and_says_what_it_likes(form, calls):
    opening, closing = {"mistral": ("[THINK]", "[/THINK]"), "gemma4": ("<|channel>thought\n", "<channel|>")}.get(
        form.partition("_v11")[0], ("<think>", "</think>")
    )
    thought = write_calls(form, [{"name": "f2", "arguments": {"count": 1}}])
    reasoning, found = parse_turn(form, f"{opening}\n{thought}\n{closing}\n\n{write_calls(form, calls)}", TOOLS)
    if form != "kimi":  # whose first call ends its reasoning
        assert reasoning == thought
        assert [(c.name, c.arguments) for c in found.calls] == [(c["name"], c["arguments"]) for c in calls]
    assert found.error == ""


@settings(max_examples=80, deadline=None)
@given(code=TEXTS)
def test_code_is_written_as_it_is_and_read_back(code):
    written = write_calls("fenced", [{"name": "python", "arguments": {"code": code}}])
    found = parse_calls("fenced", f"So:\n{written}\nDone.", [PYTHON])
    assert [dict(call.arguments) for call in found.calls] == [{"code": code}]
    assert (found.text, found.error) == ("So:\nDone.", "")


@pytest.mark.parametrize("form", FORMATS)
def test_keys_that_are_no_names_are_read_back(form):
    arguments = {"a-b": 1, "class": "x", "größe": [1], "with.dot": None}
    found = parse_calls(form, write_calls(form, [{"name": "f2", "arguments": arguments}]), TOOLS)
    assert [dict(call.arguments) for call in found.calls] == [arguments], found.error


@pytest.mark.parametrize("form", FORMATS)
def test_no_calls_are_no_text(form):
    assert parse_calls(form, write_calls(form, []), TOOLS) == parse_calls(form, "", TOOLS)
