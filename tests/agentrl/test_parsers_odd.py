"""Calls in another form, in reasoning, in several messages, with bare values: what is read, what is told of."""

from __future__ import annotations

import pytest

from agentrl.parsers import parse_calls, parse_turn, split_reasoning
from agentrl.tool import ToolSpec

SPEC = ToolSpec(
    name="run",
    description="Runs.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}, "n": {"type": "integer"}}},
)
ONE = [("run", {"code": "x", "n": 2})]
OBJECT = '{"name": "run", "arguments": {"code": "x", "n": 2}}'
OBJECT_THINKS = '<tool_call>{"name": "run", "arguments": {"code": "</think>"}}</tool_call>'


def read(form, text, tools=(SPEC,)):
    found = parse_calls(form, text, tools)
    return [(call.name, dict(call.arguments)) for call in found.calls], found.text, found.error


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", "<function=run>\n<parameter=n>\n1\n</parameter>\n</function>"),
        ("hermes", '<|python_tag|>{"name": "run", "parameters": {}}'),
        ("hermes", 'I call:\n{"name": "run", "arguments": {}}'),
        ("hermes", '{"name": "other", "arguments": {}} {"name": "run", "arguments": {"n": 1'),
        ("hermes", "{'name': 'run', 'arguments': {}}"),
        ("llama3", '{"name" "run", "parameters": {}}'),
        ("llama3", '{"type": "function", "name": run, "parameters": {}}'),
        ("hermes", "run(code='x')"),
        ("hermes", "```python\nrun(code='x')\n```"),
        ("hermes", "[run(code='x')]"),
        ("hermes", "Action: run\nAction Input: x"),
        ("mistral", f"<tool_call>\n{OBJECT}\n</tool_call>"),
        ("glm", "[TOOL_CALLS] []"),
        ("kimi", "<｜tool▁call▁begin｜>"),
        ("deepseek", "<|tool_call_begin|>"),
        ("fenced", OBJECT),
        ("react", "Thought: x\n```tool_code\nrun()\n```"),
        ("harmony", "<|channel|>final<|message|><tool_call>"),
        ("gemma", "<start_function_call>call:run{}<end_function_call>"),
    ],
)
def test_a_call_in_another_form_is_told_of(form, text):
    found = parse_calls(form, text, [SPEC])
    assert found.calls == ()
    assert "form that is read here. Write it as:" in found.error


def test_a_call_in_another_form_beside_a_good_one_is_told_of():
    calls, text, error = read("hermes", f"<tool_call>{OBJECT}</tool_call>\n<function=run></function>")
    assert (calls, text) == (ONE, "<function=run></function>")
    assert "'<function=' begins a call" in error


@pytest.mark.parametrize(
    "text",
    [
        'The config is {"name": "Bob", "arguments": {}}.',  # no tool of that name
        '{"name": "run"}',
        "Use run(code='x') for it.",
        "```python\nprint(1)\n```",
        "Then </tool_call> alone.",
        "<think>Not <function=run> but the other.</think>Done.",
    ],
)
def test_other_text_is_no_call(text):
    assert read("hermes", text) == ([], text, "")


def test_calls_in_reasoning_between_calls_are_not_run():
    call, draft = f"<tool_call>{OBJECT}</tool_call>", '<tool_call>{"name": "no", "arguments": {}}</tool_call>'
    text = f"A {call}<think>{draft} or <tool_call></think>{call}<think>{draft}</think>"
    calls, rest, error = read("hermes", text)
    assert (calls, error) == (ONE * 2, "")
    assert rest.startswith("A \n<think>")


def test_an_argument_may_spell_a_reasoning_tag():
    text = '<tool_call>{"name": "run", "arguments": {"code": "<think>"}}</tool_call>'
    assert read("hermes", text * 2) == ([("run", {"code": "<think>"})] * 2, "", "")


@pytest.mark.parametrize(
    "raw", [f"<think>I try.\n<tool_call>{OBJECT}</tool_call>", f"Well, <think><tool_call>{OBJECT}</tool_call>"]
)
def test_a_call_in_reasoning_that_is_never_closed_is_told_of(raw):
    _, found = parse_turn("hermes", raw, [SPEC])
    assert found.calls == ()
    assert "it stands in reasoning that </think> does not close" in found.error


def test_reasoning_that_is_never_closed_and_calls_nothing_is_no_error():
    assert parse_turn("hermes", "<think>I try", [SPEC]) == ("I try", parse_calls("hermes", ""))


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("Hi", False, ("", "Hi")),
        (" Hi\n", False, ("", " Hi\n")),
        ("<think>\na\n</think>\n\nHi", False, ("a", "Hi")),
        ("\n<think></think>\nHi", False, ("", "Hi")),
        ("<think>a", False, ("a", "")),
        ("a</think>Hi", False, ("a", "Hi")),  # the opening tag was in the prompt of a template nobody asked about
        ("a\n</think>\n\nHi", True, ("a", "Hi")),
        ("a", True, ("a", "")),
        ("Hi <think>a</think>", False, ("", "Hi <think>a</think>")),
        ("<think>a</think>b</think>c", False, ("a", "b</think>c")),
        (f"<tool_call>{OBJECT}</tool_call>a</think>b", False, (f"<tool_call>{OBJECT}</tool_call>a", "b")),  # a draft
        (OBJECT_THINKS, False, ("", OBJECT_THINKS)),
        (f"a</think>{OBJECT_THINKS}", False, ("a", OBJECT_THINKS)),
        (f"<think>{OBJECT_THINKS}b</think>c", False, (f"{OBJECT_THINKS}b", "c")),
    ],
)
def test_reasoning(text, opened, expected):
    assert split_reasoning(text, opened) == expected


@pytest.mark.parametrize(
    ("form", "raw", "expected"),
    [
        ("mistral_v11", "[THINK]a[/THINK]b", ("a", "b")),
        ("gemma4", "<|channel>thought\na\n<channel|>b", ("a", "b")),
        ("harmony", "<|channel|>analysis<|message|>a<|end|>", ("a", "")),
        ("harmony", "<|channel|>analysis<|message|>a", ("a", "")),
        ("harmony", "b", ("", "b")),
        ("kimi", "<think>a</think>b<|tool_calls_section_begin|>", ("a", "b<|tool_calls_section_begin|>")),
    ],
)
def test_reasoning_of_other_families(form, raw, expected):
    assert split_reasoning(raw, form=form) == expected


@pytest.mark.parametrize(
    ("raw", "text", "problem"),
    [
        ("<|channel|>commentary to=functions.run <|constrain|>json<|message|>{oh<|call|>", None, "invalid JSON at character 2"),
        ("<|channel|>commentary to=functions.run", None, "<|message|> is missing"),
        (
            '<|channel|>commentary to=functions.run json<|message|>{"n": 1} done<|call|>',
            None,
            "after the JSON object comes <|call|>",
        ),
        ("<|channel|>final<|message|>Use to=functions.run", "Use to=functions.run", "'to=functions.' begins a call"),
    ],
)
def test_messages_of_gpt_oss_that_cannot_be_read(raw, text, problem):
    calls, rest, error = read("harmony", raw)
    assert (calls, rest) == ([], raw if text is None else text)
    assert problem in error


def test_a_string_in_a_call_may_spell_a_token_of_gpt_oss():
    raw = '<|channel|>commentary to=functions.run <|constrain|>json<|message|>{"code": "<|end|>"}<|call|>'
    found = read("harmony", f"{raw}<|start|>assistant<|channel|>final<|message|>Done.<|end|>")
    assert found == ([("run", {"code": "<|end|>"})], "Done.", "")


def test_headers_without_messages_and_results_made_up_are_text():
    assert read("harmony", "Hi<|end|><|start|>assistant<|channel|>")[1] == "Hi"
    made_up = "<|channel|>final<|message|>A<|end|><|start|>functions.run to=assistant<|channel|>commentary<|message|>7<|end|>"
    assert read("harmony", made_up) == ([], "A\n7", "")


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, " x\n", " x\n"),
        ({"type": "integer"}, " 5 ", 5),
        ({"type": "integer"}, "five", "five"),  # the tool's own check tells the model
        ({"type": "number"}, "5", 5),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": ["integer", "null"]}, "None", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "5", "5"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5", 5),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5.5", "5.5"),
        ({"type": "array"}, '["a"]', ["a"]),
        ({"type": "object"}, '{"a": "x\ny"}', {"a": "x\ny"}),
        ({"enum": ["5", "6"]}, "5", "5"),
        ({"const": 5}, "5", 5),
        ({"$ref": "#/$defs/Kind"}, "5", "5"),
        ({"$ref": "#/$defs/Loop"}, "5", 5),
        ({"$ref": "#/$defs/Lost"}, "5", 5),
        ({}, "5", 5),
        ({}, "True", "True"),
        ({}, "NaN", "NaN"),
        (True, "[1]", [1]),
    ],
)
@pytest.mark.parametrize("form", ["qwen3_coder", "glm"])
def test_the_schema_says_what_a_bare_value_is(form, schema, text, value):
    definitions = {"Kind": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}
    spec = ToolSpec(name="f", description="", parameters={"properties": {"x": schema}, "$defs": definitions})
    written = {
        "qwen3_coder": f"<tool_call>\n<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>\n</tool_call>",
        "glm": f"<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>",
    }
    assert read(form, written[form], [spec]) == ([("f", {"x": value})], "", "")


def test_values_without_a_schema_are_json_where_they_parse():
    pairs = "<arg_key>a</arg_key>\n<arg_value>[1]</arg_value>\n<arg_key>b</arg_key>\n<arg_value>x</arg_value>"
    assert read("glm", f"<tool_call>f\n{pairs}</tool_call>", ())[0] == [("f", {"a": [1], "b": "x"})]


@pytest.mark.parametrize(
    ("required", "given", "arguments"),
    [
        (["n"], "5", {"n": 5}),
        ([], '{"n": 5}', {"n": 5}),
        (["q"], '"x y"', {"q": "x y"}),
        (["q"], '{"z": 1}', {"q": '{"z": 1}'}),
        (["n", "q"], '{"z": 1}', {"z": 1}),
    ],
)
def test_a_bare_input_is_the_only_argument_that_is_required(required, given, arguments):
    properties = {"n": {"type": "integer"}, "q": {"type": "string"}}
    spec = ToolSpec(name="f", description="", parameters={"properties": properties, "required": required})
    assert read("fenced", f"```f\n{given}\n```", [spec]) == ([("f", arguments)], "", "")


def test_fences_are_read_as_markdown_has_them():
    python = ToolSpec(name="code_interpreter", description="", parameters={"properties": {"code": {"type": "string"}}})
    text = "1. So:\n   ````py\n   if x:\n       '```'\n   ````\n```js\nx\n```\nDone."
    calls, rest, error = read("fenced", text, [python])
    assert calls == [("code_interpreter", {"code": "if x:\n    '```'"})]
    assert (rest, error) == ("1. So:\n```js\nx\n```\nDone.", "")
