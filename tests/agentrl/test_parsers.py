"""Tool calls, reasoning and the text around them, in each family's format."""

from __future__ import annotations

import pytest

from agentrl.errors import UsageError
from agentrl.parsers import FORMATS, named, parse_calls, tool_format, write_result, write_tools
from agentrl.tool import ToolSpec

SPEC = ToolSpec(
    name="run",
    description="Runs.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}, "n": {"type": "integer"}}},
)


def read(form, text, tools=()):
    found = parse_calls(form, text, tools)
    return [(call.name, dict(call.arguments)) for call in found.calls], found.text, found.error


def deepseek(*bodies: str) -> str:
    calls = "\n".join(f"<｜tool▁call▁begin｜>{body}<｜tool▁call▁end｜>" for body in bodies)
    return f"<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>"


ONE = [("run", {"code": "x", "n": 2})]
N1 = [("run", {"n": 1})]
ARGUMENTS = '{"code": "x", "n": 2}'
OBJECT = f'{{"name": "run", "arguments": {ARGUMENTS}}}'
SAME = None
"""The text is left as it was."""


@pytest.mark.parametrize(
    ("form", "text", "calls", "rest"),
    [
        ("hermes", f"<tool_call>\n{OBJECT}\n</tool_call>", ONE, ""),
        ("hermes", f"Wait.\n<tool_call>{OBJECT}</tool_call>\n<tool_call>\n{OBJECT}\n</tool_call>", ONE * 2, "Wait."),
        ("hermes", f"Wait. \n\n<tool_call>{OBJECT}</tool_call>", ONE, "Wait. \n"),
        ("hermes", f"<tool_call>\n{OBJECT}", ONE, ""),  # complete, only the closing tag is missing
        ("hermes", f"<tool_call>\n{OBJECT}\n{OBJECT}\n</tool_call>", ONE * 2, ""),
        ("hermes", '<tool_call>{"name": "run"}</tool_call> done', [("run", {})], "done"),
        ("hermes", '<tool_call>{"name": "run", "arguments": "{\\"n\\": 1}"}</tool_call>', N1, ""),
        ("hermes", '<tool_call>{"name": "run", "arguments": {"code": "a\nb"}}</tool_call>', [("run", {"code": "a\nb"})], ""),
        ("hermes", '<tool_call>{"name": " run\n", "arguments": null}</tool_call>', [("run", {})], ""),
        ("hermes", f'<tool_call>{{"type": "function", "function": {OBJECT}}}</tool_call>', ONE, ""),
        ("hermes", "no call <b>", [], SAME),
        (
            "qwen3_coder",
            "<tool_call>\n<function=run>\n<parameter=code>\n1\n\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>\n"
            "</tool_call>",
            [("run", {"code": "1\n", "n": 2})],
            "",
        ),
        ("qwen3_coder", f"<tool_call>{OBJECT}</tool_call>", ONE, ""),
        ("qwen3_coder", "So\n<function=run><parameter=n>1</parameter></function> then", N1, "So\nthen"),
        ("qwen3_coder", "<tool_call><function=run></function><function=run></function>", [("run", {})] * 2, ""),
        ("llama3", '{"name": "run", "parameters": {"code": "x", "n": 2}}', ONE, ""),
        ("llama3", '<|python_tag|>{"name": "run", "parameters": {}}; {"name": "run", "parameters": {"n": 1}}', SAME, ""),
        ("llama3", '{"name": "run", "parameters": {}}; {"name": "run", "parameters": {"n": 1}}', SAME, ""),
        ("llama3", '{"name": "Bob"}', [], SAME),
        ("llama3", 'I say {"name": "run", "parameters": {"n": 1}}', N1, "I say "),
        ("llama3", '```json\n{"name": "run", "parameters": {"n": 1}}\n```', N1, ""),
        ("llama3", '{"type": {"name": "x"}} {"name": "run"', [], SAME),
        ("llama3", '<|python_tag|>run.call(code="x", n=2)', ONE, ""),
        ("pythonic", "So: \n[run(code='x', n=2), run('x', 2)]", ONE * 2, "So: "),
        (
            "pythonic",
            "[run(code=']\\'', n=true), run(**{'n': None})]",
            [("run", {"code": "]'", "n": True}), ("run", {"n": None})],
            "",
        ),
        ("pythonic", "[[1, 2], [run]]", [], SAME),
        ("mistral", f"[TOOL_CALLS] [{OBJECT}, {OBJECT}]", ONE * 2, ""),
        ("mistral", 'Now.[TOOL_CALLS]run[ARGS]{"code": "x", "n": 2}[TOOL_CALLS]run{"n": 1}', [*ONE, *N1], "Now."),
        ("mistral", f"[TOOL_CALLS] [{OBJECT}] I called.", ONE, "I called."),
        ("deepseek", "Now." + deepseek('function<｜tool▁sep｜>run\n```json\n{"code": "x", "n": 2}\n```'), ONE, "Now."),
        ("deepseek", deepseek('run<｜tool▁sep｜>{"code": "x", "n": 2}', 'run<｜tool▁sep｜>{"code": "x", "n": 2}'), ONE * 2, ""),
        ("kimi", f"So.<|tool_call_begin|>run<|tool_call_argument_begin|>{ARGUMENTS}", ONE, "So."),
        (
            "glm",
            "\nNow.\n<tool_call>run\n<arg_key>code</arg_key>\n<arg_value>5</arg_value>\n<arg_key>n</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>",
            [("run", {"code": "5", "n": 2})],
            "\nNow.",
        ),
        ("glm", "<tool_call>run</tool_call>", [("run", {})], ""),
        ("glm", f"<tool_call>{OBJECT}</tool_call>", ONE, ""),
        ("gemma", "```tool_code\nrun(code='x', n=2)\n```", ONE, ""),
        ("gemma", "So:\n```tool_code\nprint(run('x', n=2))\nrun(n=1)\n```", [*ONE, *N1], "So:"),
        ("gemma", "[run(code='x', n=2)]", ONE, ""),
        ("gemma", "run(code='x', n=2)", ONE, ""),
        ("gemma", '{"name": "run", "parameters": {"code": "x", "n": 2}}', ONE, ""),
        ("gemma", f"```json\n[{OBJECT}]\n```", ONE, ""),
        ("gemma", "```json\n[1, 2]\n```", [], SAME),
        ("gemma", "```python\nx = run(code='x')\n```", [], SAME),
        ("gemma", "[print(x) for x in run()]\nis a list", [], SAME),
        ("function_gemma", '<start_function_call>call:run{"code":"x", n : 2,}', ONE, ""),
        ("react", f"**Thought:** x\n**Action:** `run`\n**Action Input:** ```json\n{ARGUMENTS}\n```", ONE, "**Thought:** x"),
        ("react", f"Action: run\nAction Input:\n{ARGUMENTS}\nThought: y", ONE, "Thought: y"),
        ("react", "Thought: easy\nFinal Answer: Action: run is an action\nAction: none", [], SAME),
        ("fenced", f"```run\n{ARGUMENTS}\n```", ONE, ""),
        ("fenced", f"```json\n{ARGUMENTS}\n```\n```\nrun", [], SAME),
        ("harmony", "Just text.", [], SAME),
    ],
)
def test_calls_and_the_text_around_them(form, text, calls, rest):
    expected = [("run", {}), *N1] if calls is SAME else calls
    assert read(form, text, [SPEC]) == (expected, text if rest is SAME else rest, "")


UNREADABLE = [
    ("hermes", '<tool_call>{"name": "run", "arguments": {"n": }}</tool_call>', "invalid JSON at character 36"),
    ("hermes", '<tool_call>{"name": "run", "argum', "invalid JSON"),
    ("hermes", f"<tool_call>{OBJECT}}}</tool_call>", f"invalid JSON at character {len(OBJECT) + 1}: Extra data"),
    ("hermes", f"<tool_call>{OBJECT} done", "Extra data"),
    ("hermes", "<tool_call>[]1</tool_call>", "invalid JSON"),
    ("hermes", "<tool_call>\n</tool_call>", "nothing between the tags"),
    ("hermes", "<tool_call>", "invalid JSON at character 1: Expecting value"),
    ("hermes", '<tool_call>"run"</tool_call>', 'a JSON object with "name" and "arguments"'),
    ("hermes", '<tool_call>{"name": 3, "arguments": {}}</tool_call>', '"name" must be the name of a function'),
    ("hermes", '<tool_call>{"name": "\\udc00", "arguments": {}}</tool_call>', "surrogates not allowed"),
    ("hermes", '<tool_call>{"name": "run", "arguments": [1]}</tool_call>', "arguments must be a JSON object"),
    ("hermes", '<tool_call>{"name": "run", "arguments": "{} {}"}</tool_call>', "arguments must be one JSON object"),
    ("hermes", '<tool_call>{"name": "run", "arguments": {"n": NaN}}</tool_call>', "must be JSON values"),
    ("hermes", '<tool_call>{"name": "run", "arguments": {"code": "\\ud800"}}</tool_call>', "must be JSON values"),
    ("hermes", f"<tool_call>{'[' * 100000}</tool_call>", "could not be read"),
    ("qwen3_coder", "<tool_call><function=run><parameter=code>x</function></tool_call>", "</parameter> is missing"),
    ("qwen3_coder", "<tool_call>run</tool_call>", "<function=name> that holds"),
    ("qwen3_coder", "<tool_call><function=run>x</function></tool_call>", "and then </function>"),
    ("qwen3_coder", "<tool_call><function=run></function> done", "after </function> comes </tool_call>"),
    ("qwen3_coder", "<function=\n>", "a tag has the form"),
    ("llama3", '<|python_tag|>run.call(query="x"', "')' is missing"),
    ("llama3", "<|python_tag|>import os", "a JSON object is expected"),
    ("llama3", '{"name": "run", "parameters": {"n": 1}', "invalid JSON"),
    ("llama3", "<function=run>{}<function>", "</function> is missing"),
    ("llama3", "<function=>{}", "a tag has the form"),
    ("pythonic", "[run(code='x'", "'[' at character 1 of the call is never closed"),
    ("pythonic", "[run(code='x')}", "never closed"),
    ("pythonic", "<|python_start|>run", "a list of calls is expected"),
    ("mistral", "[TOOL_CALLS] I call", "a JSON list of calls is expected"),
    ("mistral", '[TOOL_CALLS] [{"name": "run"', "invalid JSON"),
    ("mistral_v11", "[TOOL_CALLS]run[ARGS]{", "invalid JSON"),
    ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function run", "<｜tool▁sep｜> is missing"),
    ("deepseek", deepseek("function<｜tool▁sep｜>run\nx"), "must stand in a ```json block"),
    ("deepseek", "<｜tool▁calls▁begin｜>run", "<｜tool▁call▁begin｜> is missing"),
    ("deepseek_v31", "<｜tool▁call▁begin｜>run<｜tool▁sep｜>{} then", "<｜tool▁call▁end｜> is missing"),
    ("deepseek_v32", "<｜DSML｜function_calls>\n<｜DSML｜invoke run>", 'is an <｜DSML｜invoke name="..."'),
    ("deepseek_v32", '<｜DSML｜invoke name="run">x</｜DSML｜invoke>', "an argument is a"),
    (
        "deepseek_v32",
        '<｜DSML｜invoke name="run">\n<｜DSML｜parameter name="n" string="false">1 2</｜DSML｜parameter>\n</｜DSML｜invoke>',
        "'1 2' is not one JSON value",
    ),
    ("kimi", "<|tool_call_begin|>functions.run:0{}<|tool_call_end|>", "<|tool_call_argument_begin|> is missing"),
    ("kimi", "<|tool_calls_section_begin|>run()", "<|tool_call_begin|> is missing"),
    ("kimi", "<|tool_call_begin|><|tool_call_argument_begin|>{}", '"name" must be the name of a function'),
    ("glm", "<tool_call>run\n<arg_key>code</arg_key>\n</tool_call>", "an <arg_key> followed by an <arg_value>"),
    ("glm", "<tool_call></tool_call>", '"name" must be the name of a function'),
    ("gemma", "```tool_code\nrun(code=\n```", "could not be read"),
    ("gemma", "```tool_code\nx = run()\n```", "only calls may stand"),
    ("gemma", "```tool_code\nrun(open('f'))\n```", "could not be read"),
    ("gemma", "```tool_code\nrun(1, 2, 3)\n```", "name each argument"),
    ("gemma", "```tool_code\nrun(**1)\n```", "name each argument"),
    ("gemma", "```tool_code\nf()(a=1)\n```", "form name(argument=value)"),
    ("gemma", "```tool_code\nrun(code={1})\n```", "must be JSON values"),
    ("gemma", "```tool_code\nrun()", "not closed"),
    ("gemma", "```tool_code\n```", "form name(argument=value)"),
    ("function_gemma", "<start_function_call>run{}<end_function_call>", "form call:name{argument:value}"),
    ("function_gemma", "<start_function_call>call:run{code:x}<end_function_call>", "a text stands between two <escape>"),
    ("gemma4", '<|tool_call>call:run{code:<|"|>x}<tool_call|>', "is not closed"),
    ("gemma4", "<|tool_call>call:run{n 2}<tool_call|>", "':' is missing"),
    ("gemma4", "<|tool_call>call:run{n:[1 2}<tool_call|>", "'1 2' is no value"),
    ("gemma4", "<|tool_call>call:run{n:{}{}}<tool_call|>", "after a value ',' or '}' is missing"),
    ("gemma4", "<|tool_call>call:run{}then", "<tool_call|> is missing"),
    ("react", "Action: run", "comes the line 'Action Input: '"),
    ("react", "Action: run\nAction Input: x", "must be a JSON object"),
    ("react", 'Action: run\nAction Input: {"n": 1', "invalid JSON"),
    ("react", 'Action: run\nAction Input: {"n": 1} and so on', "must be a JSON object"),
    ("react", "Thought: x\nObservation: 42", "you wrote an Observation"),
    ("fenced", "```run\nx", "is not closed with ```"),
    ("fenced", "```run\nx\n```", "must be a JSON object"),
]


@pytest.mark.parametrize(("form", "text", "problem"), UNREADABLE)
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


def test_a_good_call_after_a_bad_one_that_is_not_closed_is_kept():
    calls, _, error = read("hermes", f"<tool_call>oh <tool_call>{OBJECT}</tool_call>")
    assert calls == ONE
    assert "invalid JSON at character 1" in error


def test_a_made_up_observation_ends_what_is_run():
    text = f"Action: run\nAction Input: {ARGUMENTS}\nObservation: 3\nAction: run\nAction Input: {ARGUMENTS}"
    calls, _, error = read("react", text, [SPEC])
    assert calls == ONE
    assert "you wrote an Observation: that is what the tool answers" in error


def test_noise_is_answered_briefly():
    error = read("hermes", "".join(f"<tool_call>{'[' * i}</tool_call>" for i in range(1, 50)))[2]
    assert "; and 46 more. Write it as:" in error


def test_ids_count_up_and_those_of_the_model_are_kept():
    found = parse_calls("hermes", f"<tool_call>{OBJECT}</tool_call>" * 3)
    assert [call.id for call in found.calls] == ["call_0", "call_1", "call_2"]
    found = parse_calls("mistral", '[TOOL_CALLS] [{"name": "run", "arguments": {}, "id": "abc123def"}, {"name": "run"}]')
    assert [call.id for call in found.calls] == ["abc123def", "call_1"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_example_shown_to_a_model_is_in_the_format_that_is_read(form):
    text = write_tools(form, [SPEC.to_dict()])
    assert '"description": "Runs."' in text
    example = text.rpartition("write:\n")[2]
    expected = ("python", {"code": "print(1 + 1)"}) if form == "fenced" else ("function_name", {"argument": "value"})
    assert read(form, example) == ([expected], "", "")


def test_results_inside_user_messages():
    assert write_result("hermes", "7") == "<tool_response>\n7\n</tool_response>"
    assert write_result("gemma", "7") == "```tool_output\n7\n```"
    assert write_result("react", "7") == "Observation: 7"
    assert write_result("fenced", "```\n7\n```") == "````output\n```\n7\n```\n````"


@pytest.mark.parametrize(
    ("template", "tokens", "form"),
    [
        ("", [], "hermes"),
        ("<tool_call>", ["<|im_start|>"], "hermes"),
        ("<tool_call>", ["<|python_tag|>"], "hermes"),  # Hermes 3, tuned from Llama
        ("<tool_call><function=name><parameter=key>", [], "qwen3_coder"),
        ("<tool_call>", ["<function="], "hermes"),
        ("<tool_call><arg_key>", [], "glm"),
        ("ipython", ["<|eot_id|>"], "llama3"),
        ("", ["<|python_tag|>"], "llama3"),
        ("in the format of [func_name1(params)]", ["<|python_tag|>"], "pythonic"),
        ("", ["<|python_start|>"], "pythonic"),
        ("", ["[TOOL_CALLS]"], "mistral"),
        ("[TOOL_CALLS] + name + [ARGS]", ["[TOOL_CALLS]", "[ARGS]"], "mistral_v11"),
        ("", ["<｜tool▁calls▁begin｜>"], "deepseek"),
        ("<｜tool▁sep｜> + name + ```json", ["<｜tool▁calls▁begin｜>"], "deepseek"),
        ("name + <｜tool▁sep｜>", ["<｜tool▁calls▁begin｜>"], "deepseek_v31"),
        ("<｜DSML｜invoke", ["｜DSML｜"], "deepseek_v32"),
        ("", ["<|tool_call_argument_begin|>"], "kimi"),
        ("<|channel|>final<|message|>", ["<|call|>"], "harmony"),
        ("", ["<start_of_turn>"], "gemma"),
        ("", ["<start_of_turn>", "<start_function_call>"], "function_gemma"),
        ("", ["<|tool_call>"], "gemma4"),
        ("<|tool_call>call:", [], "gemma4"),
        ("Action Input:", [], "react"),
    ],
)
def test_format_of_a_family(template, tokens, form):
    assert tool_format(template, tokens) == form


def test_a_format_named_by_hand_is_checked():
    assert named("kimi") == "kimi"
    with pytest.raises(UsageError, match="there is no tool format 'qwen_coder'; did you mean 'qwen3_coder'"):
        named("qwen_coder")
