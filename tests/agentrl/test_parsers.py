"""Reasoning and tool calls in every family's format, well-formed and not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.parsers import parse_calls, split_reasoning, tool_format, write_calls, write_result, write_tools
from agentrl.tool import ToolSpec

SPEC = ToolSpec(
    name="run",
    description="Runs.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}, "n": {"type": "integer"}}},
)
FORMS = ("hermes", "xml", "llama3", "mistral", "deepseek", "glm", "gemma")


def read(form, text, tools=()):
    found = parse_calls(form, text, tools)
    return [(call.name, dict(call.arguments)) for call in found.calls], found.text, found.error


def deepseek(*bodies: str) -> str:
    calls = "\n".join(f"<｜tool▁call▁begin｜>{body}<｜tool▁call▁end｜>" for body in bodies)
    return f"<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>"


ONE = [("run", {"code": "x", "n": 2})]
OBJECT = '{"name": "run", "arguments": {"code": "x", "n": 2}}'


@pytest.mark.parametrize(
    ("form", "text", "calls", "rest"),
    [
        ("hermes", f"<tool_call>\n{OBJECT}\n</tool_call>", ONE, ""),
        ("hermes", f"Wait.\n<tool_call>{OBJECT}</tool_call>\n<tool_call>\n{OBJECT}\n</tool_call>", ONE * 2, "Wait."),
        ("hermes", f"Wait. \n\n<tool_call>{OBJECT}</tool_call>", ONE, "Wait. \n"),
        ("hermes", f"<tool_call>\n{OBJECT}", ONE, ""),  # complete, only the closing tag is missing
        ("hermes", '<tool_call>{"name": "run"}</tool_call> done', [("run", {})], "done"),
        ("hermes", '<tool_call>{"name": "run", "arguments": "{\\"n\\": 1}"}</tool_call>', [("run", {"n": 1})], ""),
        ("hermes", '<tool_call>{"name": "run", "arguments": {"code": "a\nb"}}</tool_call>', [("run", {"code": "a\nb"})], ""),
        ("hermes", '<tool_call>{"name": " run\n", "arguments": null}</tool_call>', [("run", {})], ""),
        ("hermes", "no call <b>", [], "no call <b>"),
        (
            "xml",
            "<tool_call>\n<function=run>\n<parameter=code>\n1\n\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n"
            "</tool_call>",
            [("run", {"code": "1\n", "n": 2})],
            "",
        ),
        ("xml", f"<tool_call>{OBJECT}</tool_call>", ONE, ""),
        ("llama3", '{"name": "run", "parameters": {"code": "x", "n": 2}}', ONE, ""),
        ("llama3", '<|python_tag|>{"name": "run", "parameters": {}}; {"name": "run", "parameters": {"n": 1}}', None, ""),
        ("llama3", '{"name": "Bob"}', [], '{"name": "Bob"}'),
        ("llama3", 'I say {"name": "run", "parameters": {}}', [], 'I say {"name": "run", "parameters": {}}'),
        ("mistral", f"[TOOL_CALLS] [{OBJECT}, {OBJECT}]", ONE * 2, ""),
        ("mistral", 'Now.[TOOL_CALLS]run[ARGS]{"code": "x", "n": 2}[TOOL_CALLS]run{"n": 1}', None, "Now."),
        ("deepseek", "Now." + deepseek('function<｜tool▁sep｜>run\n```json\n{"code": "x", "n": 2}\n```'), ONE, "Now."),
        ("deepseek", deepseek('run<｜tool▁sep｜>{"code": "x", "n": 2}', 'run<｜tool▁sep｜>{"code": "x", "n": 2}'), ONE * 2, ""),
        (
            "glm",
            "\nNow.\n<tool_call>run\n<arg_key>code</arg_key>\n<arg_value>5</arg_value>\n<arg_key>n</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>",
            [("run", {"code": "5", "n": 2})],
            "\nNow.",
        ),
        ("glm", "<tool_call>run</tool_call>", [("run", {})], ""),
        ("gemma", "```tool_code\nrun(code='x', n=2)\n```", ONE, ""),
        ("gemma", "So:\n```tool_code\nprint(run('x', n=2))\nrun(n=1)\n```", [*ONE, ("run", {"n": 1})], "So:"),
        ("gemma", "[run(code='x', n=2)]", ONE, ""),
        ("gemma", '{"name": "run", "parameters": {"code": "x", "n": 2}}', ONE, ""),
        ("gemma", '```json\n[{"name": "run", "arguments": {"code": "x", "n": 2}}]\n```', ONE, ""),
        ("gemma", "```json\n[1, 2]\n```", [], "```json\n[1, 2]\n```"),
        ("gemma", "```python\nrun(code='x')\n```", [], "```python\nrun(code='x')\n```"),
    ],
)
def test_calls_and_the_text_around_them(form, text, calls, rest):
    expected = (
        {
            "llama3": [("run", {}), ("run", {"n": 1})],
            "mistral": [*ONE, ("run", {"n": 1})],
        }[form]
        if calls is None
        else calls
    )
    assert read(form, text, [SPEC]) == (expected, rest, "")


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("hermes", '<tool_call>{"name": "run", "arguments": {"n": }}</tool_call>', "invalid JSON at character 36"),
        ("hermes", '<tool_call>{"name": "run", "argum', "invalid JSON"),
        ("hermes", "<tool_call>[]1</tool_call>", "invalid JSON"),
        ("hermes", '<tool_call>"run"</tool_call>', 'a JSON object with "name" and "arguments"'),
        ("hermes", '<tool_call>{"name": 3, "arguments": {}}</tool_call>', '"name" must be the name of a function'),
        ("hermes", '<tool_call>{"name": "run", "arguments": [1]}</tool_call>', "arguments must be a JSON object"),
        ("hermes", '<tool_call>{"name": "run", "arguments": {"n": NaN}}</tool_call>', "must be JSON values"),
        ("hermes", '<tool_call>{"name": "run", "arguments": {"code": "\\ud800"}}</tool_call>', "must be JSON values"),
        ("hermes", f"<tool_call>{'[' * 100000}</tool_call>", "could not be read"),
        ("xml", "<tool_call><function=run><parameter=code>x</function></tool_call>", "<function=name> that holds"),
        ("llama3", '<|python_tag|>run.call(query="x")', "invalid JSON"),
        ("llama3", '{"name": "run", "parameters": {"n": 1}', "invalid JSON"),
        ("mistral", "[TOOL_CALLS] I call", "a JSON list of calls is expected"),
        ("mistral", '[TOOL_CALLS] [{"name": "run"', "invalid JSON"),
        ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function run", "<｜tool▁sep｜> is missing"),
        ("deepseek", deepseek("function<｜tool▁sep｜>run\nx"), "must stand in a ```json block"),
        ("glm", "<tool_call>run\n<arg_key>code</arg_key>\n</tool_call>", "an <arg_key> followed by an <arg_value>"),
        ("glm", "<tool_call></tool_call>", '"name" must be the name of a function'),
        ("gemma", "```tool_code\nrun(code=\n```", "could not be read"),
        ("gemma", "```tool_code\nx = run()\n```", "only calls may stand"),
        ("gemma", "```tool_code\nrun(open('f'))\n```", "could not be read"),
        ("gemma", "```tool_code\nrun(1, 2, 3)\n```", "name each argument"),
        ("gemma", "```tool_code\nos.run(a=1)\n```", "form name(argument=value)"),
        ("gemma", "```tool_code\nrun(code={1})\n```", "must be JSON values"),
    ],
)
def test_a_call_that_cannot_be_read_stays_in_the_text_and_is_explained(form, text, problem):
    calls, rest, error = read(form, text, [SPEC])
    assert (calls, rest) == ([], text)
    assert error.startswith("Your tool call could not be read: ")
    assert problem in error
    assert "Write it as:\n" in error


def test_good_calls_beside_a_bad_one_are_kept():
    calls, text, error = read("hermes", f"<tool_call>{OBJECT}</tool_call>\n<tool_call>oh</tool_call>")
    assert calls == ONE
    assert text == "<tool_call>oh</tool_call>"
    assert "invalid JSON at character 1" in error


def test_ids_count_up_and_those_of_the_model_are_kept():
    found = parse_calls("hermes", f"<tool_call>{OBJECT}</tool_call>" * 3)
    assert [call.id for call in found.calls] == ["call_0", "call_1", "call_2"]
    found = parse_calls("mistral", '[TOOL_CALLS] [{"name": "run", "arguments": {}, "id": "abc123def"}, {"name": "run"}]')
    assert [call.id for call in found.calls] == ["abc123def", "call_1"]


def test_values_without_a_schema_are_json_where_they_parse():
    pairs = "<arg_key>a</arg_key>\n<arg_value>[1]</arg_value>\n<arg_key>b</arg_key>\n<arg_value>x</arg_value>"
    text = f"<tool_call>f\n{pairs}</tool_call>"
    assert read("glm", text)[0] == [("f", {"a": [1], "b": "x"})]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(
            [
                *(
                    "<tool_call>",
                    "</tool_call>",
                    '{"name": "run", ',
                    '"arguments": ',
                    '"parameters": ',
                    "{}",
                    "}",
                    "[",
                    "]",
                    '"',
                ),
                *("<function=run>", "</function>", "<parameter=n>", "</parameter>", "<arg_key>", "</arg_key>", "<arg_value>"),
                *("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
                *("```tool_code\n", "\n```", "run(", ")", "a=1", "\x00", "\ud83d", "<think>", "</think>", "x", "\n", "1e999"),
            ]
        ),
        max_size=12,
    )
)
def test_nothing_a_model_writes_raises(form, pieces):
    text = "".join(pieces)
    found = parse_calls(form, text, [SPEC])
    assert found.calls or found.text == text
    split_reasoning(text)


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
    ],
)
def test_reasoning(text, opened, expected):
    assert split_reasoning(text, opened) == expected


@pytest.mark.parametrize("form", ["hermes", "llama3", "gemma"])
def test_what_is_written_is_read_back(form):
    calls = [{"name": "run", "arguments": {"code": 'say("ü")\n```', "n": 1}}, {"name": "run", "arguments": {}}]
    calls = calls[:1] if form == "gemma" else calls
    if form == "gemma":
        calls[0]["arguments"]["code"] = 'say("ü")'  # a fence inside a fence would end it
    text = write_calls(form, calls)
    assert read(form, text)[0] == [(call["name"], call["arguments"]) for call in calls]


@pytest.mark.parametrize("form", FORMS)
def test_the_example_shown_to_a_model_is_in_the_format_that_is_read(form):
    text = write_tools(form, [SPEC.to_dict()])
    assert '"description": "Runs."' in text
    example = text.rpartition("write:\n")[2]
    assert read(form, example) == ([("function-name", {"argument": "value"})], "", "")


def test_results_inside_user_messages():
    assert write_result("hermes", "7") == "<tool_response>\n7\n</tool_response>"
    assert write_result("gemma", "7") == "```tool_output\n7\n```"


@pytest.mark.parametrize(
    ("template", "tokens", "form"),
    [
        ("", [], "hermes"),
        ("<tool_call>", ["<|im_start|>"], "hermes"),
        ("<tool_call><function=", [], "xml"),
        ("<tool_call><arg_key>", [], "glm"),
        ("ipython", ["<|eot_id|>"], "llama3"),
        ("", ["<|python_tag|>"], "llama3"),
        ("", ["[TOOL_CALLS]"], "mistral"),
        ("", ["<｜tool▁calls▁begin｜>"], "deepseek"),
        ("", ["<start_of_turn>"], "gemma"),
    ],
)
def test_format_of_a_family(template, tokens, form):
    assert tool_format(template, tokens) == form
