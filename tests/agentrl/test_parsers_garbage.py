"""Nothing a model writes raises, hangs, or passes for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.parsers import FAMILIES, FORMATS, parse_calls, parse_turn, split_reasoning, write_calls
from agentrl.parsers.parse import MAX_PLACES
from agentrl.tool import ToolSpec

SPEC = ToolSpec(
    name="run",
    description="Runs.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}, "n": {"type": "integer"}}},
)
CALL = {"name": "run", "arguments": {"code": "x", "n": 1}}
MARKS = sorted({mark for family in FAMILIES.values() for mark in family.marks})
PIECES = [
    *MARKS,
    *("</tool_call>", "</function>", "</parameter>", "</arg_key>", "</arg_value>", "</｜DSML｜parameter>", "</｜DSML｜invoke>"),
    *(
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "<|message|>",
        "<|end|>",
    ),
    *("<|start|>assistant", "<|channel|>final", "<|channel|>commentary ", "<|call|>", "<end_function_call>", "<tool_call|>"),
    *("<escape>", '<|"|>', "call:run", "[CALL_ID]", "run.call(", "<|python_end|>", "\nAction: run\n", "\nObservation: "),
    *("\n```python\n", "\n```run\n", "\n```\n", "````", '{"name": "run", ', '"arguments": ', '"parameters": ', "{}", "{", "}"),
    *("[", "]", "(", ")", '"', "'", "run(", "a=1", ",", ":", "n>", "\\", "<think>", "</think>", "[THINK]", "[/THINK]"),
    *("\x00", "\ud83d", "x", "\n", " ", "1e999", "-", "0x" + "f" * 5000, "9" * 5000),
]


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=120, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=14), opened=st.booleans())
def test_nothing_a_model_writes_raises(form, pieces, opened):
    text = "".join(pieces)
    found = parse_calls(form, text, [SPEC])
    assert found.calls or found.text == text or form == "harmony"
    for call in found.calls:
        assert call.name
        assert isinstance(call.arguments, dict)
    split_reasoning(text, opened, form)
    parse_turn(form, text, opened=opened)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_spoilt_call_is_read_or_told_of_but_never_passes_for_text(form, data):
    """A written call with a few characters taken out, put in or changed, as long as a mark of the format is left whole."""
    text = write_calls(form, [CALL])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.sampled_from(["", "x", "}", '"', "\n", "<", " "])) + text[at + gone :]
    found = parse_calls(form, text, [SPEC])
    whole = any(mark in text for mark in FAMILIES[form].marks)
    assert found.calls or found.error or not whole


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cut", [0.3, 0.6, 0.9])
def test_a_call_that_is_cut_off_is_told_of(form, cut):
    text = write_calls(form, [{"name": "run", "arguments": {"code": "some longer text " * 4}}])
    start = min((text.find(mark) + len(mark) for mark in FAMILIES[form].marks if mark in text), default=len("[run("))
    found = parse_calls(form, text[: start + int((len(text) - start) * cut)], [SPEC])
    assert found.error or found.calls


LONG = 100_000
NOISE = [
    *MARKS,
    *("a", " ", "\n", "{", "[", "(", "`", "~", ", ", '"', "<think>", "</think>", "<think></think>", "A ", "```a", "\n```py\n"),
    *(
        '{"name":',
        '{"name": "run", "arguments": ',
        "[run(",
        "\n[run(",
        "\n[foo(a)]\n",
        "run(",
        "Action: run\n",
        "[TOOL_CALLS]a ",
    ),
    *("\nAction: run\nAction Input: x\n", "<tool_call>{}", "<function=f>", "<parameter=n>1</parameter>", "to=x ", "<|start|>"),
]


@pytest.mark.parametrize("form", FORMATS)
def test_long_noise_is_read_in_a_moment(form):
    """In time about linear in its length: a test that hangs, where each mark is tried with all that follows it."""
    for piece in NOISE:
        parse_turn(form, piece * (LONG // len(piece)), [SPEC])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("mistral", "[TOOL_CALLS]a" + " " * LONG),
        ("fenced", "```" + "a" * LONG + "`"),
        ("react", "Action: run\nAction Input: ```" + " " * LONG + "x"),
        ("hermes", "```" + " " * LONG),
    ],
)
def test_a_long_run_of_one_letter_is_not_tried_in_every_split(form, text):
    assert not parse_calls(form, text, [SPEC]).calls


@pytest.mark.parametrize("form", FORMATS)
def test_a_turn_that_repeats_a_call_without_end_is_cut(form):
    """What gpt-oss writes after its first call is cut as well: it could not have been sampled."""
    text = "\n".join([write_calls(form, [CALL])] * 200)
    found = parse_calls(form, text, [SPEC])
    assert len(found.calls) == MAX_PLACES
    assert "a turn holds at most 64 calls; the rest was not run" in found.error


@pytest.mark.parametrize(
    ("form", "head", "pair", "tail"),
    [
        ("qwen3_coder", "<tool_call><function=run>", "<parameter=n>1</parameter>", "x</function></tool_call>"),
        ("glm", "<tool_call>run", "<arg_key>n</arg_key><arg_value>1</arg_value>", "x</tool_call>"),
        (
            "deepseek_v32",
            '<｜DSML｜invoke name="run">',
            '<｜DSML｜parameter name="n" string="false">1</｜DSML｜parameter>',
            "x",
        ),
    ],
)
def test_many_arguments_before_a_fault_are_not_tried_in_every_grouping(form, head, pair, tail):
    found = parse_calls(form, head + pair * 200 + tail, [SPEC])
    assert found.calls == ()
    assert found.error


@pytest.mark.parametrize("form", ["pythonic", "gemma", "llama3"])
@pytest.mark.parametrize("deep", ["(" * 3000, "[" * 3000, "-" * 100_000, "{'a':" * 3000, "x." * 100_000, "not " * 50_000])
def test_python_that_is_nested_without_end_is_refused(form, deep):
    for text in (f"[run(code={deep})]", f"```tool_code\nrun(code={deep})\n```", f"<|python_tag|>run.call(code={deep})"):
        assert not parse_calls(form, text, [SPEC]).calls
