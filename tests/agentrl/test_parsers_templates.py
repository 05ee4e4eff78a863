"""Calls that a family's chat template writes, tokenized with its special tokens and read back; and formats named by hand."""

from __future__ import annotations

import copy
import re
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from agentrl import assembly
from agentrl.config import Config, ModelConfig
from agentrl.errors import UsageError
from agentrl.messages import Message, ToolCall
from agentrl.parsers import FAMILIES as TABLE
from agentrl.parsers import FORMATS
from agentrl.renderer import Renderer
from agentrl.tool import ToolSpec
from agentrl.validate import problems
from tests.support.tokenizers import FAMILIES, build
from tests.support.turns import ADD, call, ids_of, result, sampled, say, started

SPEC = ToolSpec(
    name="note",
    description="Notes.",
    parameters={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "flag": {"type": "boolean"},
            "many": {"type": "array"},
            "deep": {"type": "object"},
        },
    },
)
AWKWARD = [
    *("say \"hi\" and 'bye'", "a\nb\n\n", " lead", "5", "true", "null", '{"a": 1}', "back\\slash", "你好 🙂", "```", ""),
    *("<|im_end|>", "<|end|>", "<|call|>", "[TOOL_CALLS]", "</s>", "<｜User｜>", "<|tool_call_end|>", "</tool_call>"),
    *("<think>", "</think>", "<|user|>", "<end_of_turn>"),
]
TEXTS = st.sampled_from(AWKWARD)
ARGUMENTS = st.fixed_dictionaries(
    {"text": TEXTS},
    optional={
        "count": st.integers(-(10**9), 10**9),
        "flag": st.booleans(),
        "many": st.lists(st.one_of(TEXTS, st.none(), st.integers(), st.booleans()), max_size=3),
        "deep": st.dictionaries(st.sampled_from(["a", "b c", "ü"]), st.one_of(TEXTS, st.lists(TEXTS, max_size=2)), max_size=2),
    },
)


def spoken(renderer: Renderer, said: Message, tools) -> tuple[int, ...]:
    """The ids of an assistant's turn as its template writes it after the prompt, up to what ends it."""
    template, encoder = renderer._template, renderer._encoder
    asked = template.render([say("user", "Hi")], tools, prompt=True)
    shown = template.render([say("user", "Hi"), said], tools, prompt=False)
    thought = "\n</think>\n\n" if asked.text.rstrip().endswith("<think>") else ""
    ids = encoder.encode(thought + shown.text[encoder.common_start(asked.text, shown.text) :], shown.separator)
    return tuple(takewhile(lambda index: index not in renderer.stop_ids, ids))


@pytest.mark.parametrize("name", sorted(FAMILIES))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_calls_that_a_template_writes_are_read_back(name, data):
    renderer = Renderer(build(name))
    many = 1 if name == "harmony" else 2
    arguments = data.draw(st.lists(ARGUMENTS, min_size=1, max_size=many))
    calls = tuple(ToolCall(id=f"call_{i}", name="note", arguments=given) for i, given in enumerate(arguments))
    said = Message(role="assistant", content=data.draw(st.sampled_from(["", "I note it."])), tool_calls=calls)
    action = renderer.parse(spoken(renderer, said, (SPEC,)), (SPEC,))
    assert action.parse_error == ""
    assert [(found.name, dict(found.arguments)) for found in action.tool_calls] == [("note", given) for given in arguments]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["chatml", "qwen3", "gemma", "mistral"])
def test_any_format_can_be_named_for_any_template(name, form):
    """The model is told of it in the system text; its calls and their results are shown in it, and are read back."""
    tokenizer = build(name)
    if name in ("gemma", "mistral") and form in ("deepseek", "deepseek_v31"):
        pytest.skip("▁, which their tokens hold, is a blank to this tokenizer")
    renderer = Renderer(tokenizer, tool_format=form)
    assert renderer.self_test().ok, renderer.self_test().problems
    prompt = tokenizer.decode(renderer.render([say("user", "Hi")], (ADD,)))
    assert "Adds." in prompt
    action = renderer.parse(spoken(renderer, call(a=1, s="x"), (ADD,)), (ADD,))
    assert [dict(found.arguments) for found in action.tool_calls] == [{"a": 1, "s": "x"}]


def test_a_format_named_by_hand_replaces_the_templates_own():
    tokenizer = build("qwen3")
    renderer = Renderer(tokenizer, tool_format="react")
    messages = [say("user", "Hi")]
    transcript = started(renderer, messages, (ADD,))
    prompt = tokenizer.decode(transcript.ids)
    assert 'Action: function_name\nAction Input: {"argument": "value"}' in prompt
    assert "<tool_call>" not in prompt
    transcript.append(sampled(ids_of(tokenizer, 'Thought: I add.\nAction: add\nAction Input: {"a": 1}<|im_end|>')))
    action = renderer.parse(transcript.segments[-1].ids, (ADD,))
    assert [(found.name, dict(found.arguments)) for found in action.tool_calls] == [("add", {"a": 1})]
    more = renderer.extend(transcript, [*messages, action.message()], [result("7", "call_0")], (ADD,))
    assert tokenizer.decode(more) == "\n<|im_start|>user\nObservation: 7<|im_end|>\n<|im_start|>assistant\n"
    assert renderer.notes == ("the system text asks for calls in react format, which is not the template's own",)


@pytest.mark.parametrize(
    ("name", "form"), [("qwen3", "hermes"), ("mistral", "mistral_v11"), ("deepseek", "deepseek_v31"), ("kimi", "kimi")]
)
def test_a_template_that_writes_what_is_named_keeps_its_own_words(name, form):
    tokenizer = build(name)
    messages = [say("user", "Hi"), call(call_id="call_0", a=1), result("7", "call_0")]
    named, auto = Renderer(tokenizer, tool_format=form), Renderer(tokenizer)
    assert named.render(messages, (ADD,)) == auto.render(messages, (ADD,))
    assert named.notes == auto.notes


def test_an_unknown_format_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="there is no tool format 'reakt'; did you mean 'react'"):
        Renderer(build("chatml"), tool_format="reakt")


def test_ids_of_kimi_name_the_function_and_match_their_results():
    tokenizer = build("kimi")
    two = Message(role="assistant", tool_calls=(*call(call_id="call_0").tool_calls, *call(call_id="call_1").tool_calls))
    later = call(call_id="functions.add:7")
    messages = [say("user", "Hi"), two, result("1", "call_1"), result("0", "call_0"), later, result("7", "functions.add:7")]
    text = tokenizer.decode(Renderer(tokenizer).render(messages, (ADD,)))
    assert text.count("<|tool_call_begin|>functions.add:0<|") == text.count("<|tool_call_begin|>functions.add:1<|") == 1
    returned = text.partition("## Return of functions.add:1\n1<|im_end|>")[2]
    assert "## Return of functions.add:0\n0<|im_end|>" in returned
    assert "## Return of functions.add:7\n7<|im_end|>" in returned
    alone = tokenizer.decode(Renderer(tokenizer).render([say("user", "Hi"), result("7", "lost")], ()))
    assert "## Return of functions.add:0\n7" in alone


def test_gpt_oss_is_shown_one_call_a_turn_each_with_its_result():
    tokenizer = build("harmony")
    calls = (*call(call_id="a", a=1).tool_calls, *call(call_id="b", a=2).tool_calls)
    two = Message(role="assistant", content="I add.", reasoning="Twice.", tool_calls=calls)
    text = tokenizer.decode(Renderer(tokenizer).render([say("user", "Hi"), two, result("1", "a"), result("2", "b")], (ADD,)))
    shown = text.partition("<|start|>user<|message|>Hi<|end|>")[2]
    assert shown == (
        "<|start|>assistant<|channel|>analysis<|message|>Twice.\n\nI add.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'
        "<|start|>functions.add to=assistant<|channel|>commentary<|message|>1<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Twice.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 2}<|call|>'
        "<|start|>functions.add to=assistant<|channel|>commentary<|message|>2<|end|><|start|>assistant"
    )


def test_gpt_oss_calls_that_got_no_result_are_shown_before_what_follows():
    tokenizer = build("harmony")
    two = Message(role="assistant", tool_calls=(*call(call_id="a", a=1).tool_calls, *call(call_id="b", a=2).tool_calls))
    text = tokenizer.decode(Renderer(tokenizer).render([say("user", "Hi"), two, say("user", "Stop.")], (ADD,)))
    assert text.index('{"a": 1}') < text.index('{"a": 2}') < text.index("Stop.")


def test_the_end_of_a_message_of_gpt_oss_is_no_end_of_the_turn():
    tokenizer = build("harmony")
    renderer = Renderer(tokenizer)
    end, start = (tokenizer.convert_tokens_to_ids(token) for token in ("<|end|>", "<|start|>"))
    assert end not in renderer.stop_ids
    assert not {end, start} & set(renderer.banned_ids)
    turn = "<|channel|>analysis<|message|>3<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>"
    action = renderer.parse(ids_of(tokenizer, turn))
    assert (action.reasoning, action.text) == ("3", "Yes")
    assert renderer.parse(ids_of(tokenizer, turn), ()).text == "Yes"  # without tools as well


def test_the_config_names_a_format():
    config = Config(model=ModelConfig(tool_format="react"))
    assert assembly.renderer(config, build("qwen3"), tools=True)._template.form == "react"
    config.model.tool_format = "harmoni"
    assert list(problems(config)) == ["model.tool_format='harmoni' is not known; did you mean 'harmony'?"]


def test_the_page_lists_every_format():
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in page.splitlines() if line.startswith("| `")
    ]
    assert [row[0] for row in rows if row[0].strip("`") in FORMATS] == [f"`{form}`" for form in FORMATS]
    assert {row[0].strip("`"): row[2] for row in rows if row[0].strip("`") in FORMATS} == {
        form: family.models for form, family in TABLE.items()
    }


TURNS = """{%- set ns = namespace(opened=false) -%}{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ BODY }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
ONCE = "{% if not ns.opened %}FIRST {% endif %}{% set ns.opened = true %}"
RESULTS_ONCE = "{% if m.role == 'tool' %}" + ONCE + "{% endif %}{{ m.content }}"
CALLS_ONCE = (
    "{{ m.content }}{% for c in m.tool_calls or [] %}" + ONCE + "<tool_call>"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>{% endfor %}"
)


@pytest.mark.parametrize("body", [RESULTS_ONCE, CALLS_ONCE])
def test_what_a_template_shows_only_once_is_said_in_text(body):
    """As DeepSeek R1's: what follows a turn would depend on all before it, which could not be appended."""
    tokenizer = copy.deepcopy(build("qwen2_5"))
    tokenizer.chat_template = TURNS.replace("{{ BODY }}", body)
    renderer = Renderer(tokenizer)
    assert renderer.self_test().ok, renderer.self_test().problems
    messages = [say("user", "Hi"), call(a=1), result("7"), call(a=2), result("8"), say("assistant", "So.")]
    assert "FIRST" not in tokenizer.decode(renderer.render(messages, (ADD,)))


def test_a_template_that_fails_on_tools_is_given_none():
    tokenizer = copy.deepcopy(build("qwen2_5"))
    tokenizer.chat_template = TURNS.replace("BODY", "m.content ~ (raise_exception('no tools') if tools else '')")
    renderer = Renderer(tokenizer)
    assert renderer.self_test().ok
    assert "Adds." in tokenizer.decode(renderer.render([say("user", "Hi")], (ADD,)))


def test_a_template_whose_calls_nobody_reads_is_refused_with_advice():
    tokenizer = copy.deepcopy(build("qwen2_5"))
    calls = "m.content }}{% for c in m.tool_calls or [] %}CALL {{ c.function | tojson }}{% endfor %}{{ ''"
    tokenizer.chat_template = TURNS.replace("BODY", calls)
    with pytest.raises(UsageError, match=r"are read back as \[\](?s:.*)model\.tool_format names another format") as caught:
        assembly.renderer(Config(), tokenizer, tools=True)
    assert "self-test" in str(caught.value)
    assembly.renderer(Config(model=ModelConfig(tool_format="hermes")), tokenizer, tools=True)


def test_a_result_that_a_model_would_write_itself_ends_its_turn():
    tokenizer = copy.deepcopy(build("gemma"))
    tokenizer.add_tokens([AddedToken("<start_function_response>", special=True)])
    renderer = Renderer(tokenizer)
    assert tokenizer.convert_tokens_to_ids("<start_function_response>") in renderer.stop_ids
