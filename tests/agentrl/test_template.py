"""What is found out about a chat template, and the self-test of one that misbehaves."""

from __future__ import annotations

import copy

import pytest

from agentrl.errors import UsageError
from agentrl.messages import Message, Text, ToolCall
from agentrl.renderer import Renderer
from agentrl.tool import ToolSpec
from tests.support.tokenizers import FAMILIES, build

SHAPES = {  # system, tools, tool role, calls, several calls, ids of calls, strict turns
    "chatml": (True, False, True, "none", False, "any", False),
    "qwen2_5": (True, True, True, "object", True, "any", False),
    "qwen3": (True, True, True, "object", True, "any", False),
    "qwen3_coder": (True, True, True, "object", True, "any", False),
    "llama3": (True, True, True, "object", False, "any", False),
    "mistral": (True, True, True, "object", True, "nine", True),
    "gemma": (False, False, False, "none", False, "any", True),
    "deepseek": (True, True, True, "string", True, "any", False),
    "glm": (True, True, True, "object", True, "any", False),
    "kimi": (True, True, True, "object", True, "named", False),
    "harmony": (True, True, True, "object", False, "any", False),
}
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {}})


def renderer(template: str, name: str = "qwen2_5", **options) -> Renderer:
    tokenizer = copy.deepcopy(build(name))
    tokenizer.chat_template = template
    return Renderer(tokenizer, **options)


def shown(made: Renderer, *messages: Message, tools=()) -> str:
    return made.tokenizer.decode(made.render(messages, tools))


def say(role: str, text: str, **more) -> Message:
    return Message(role=role, content=(Text(text=text),), **more)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_shape_of_each_family(name):
    shape = Renderer(build(name))._template.shape
    found = (shape.system, shape.tools, shape.tool_role, shape.calls, shape.parallel, shape.ids, shape.alternate)
    assert found == SHAPES[name]


def test_what_a_template_lacks_is_said():
    notes = Renderer(build("gemma")).notes
    assert "it has no system role: the system text opens the first user message" in notes
    assert "it has no tool role: results are given in user messages" in notes
    assert Renderer(build("qwen3")).notes == ()


TURNS = """{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ BODY }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
CALLS = "m.content }}{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} {{ ARGUMENTS }}{% endfor %}{{ ''"


def test_content_in_parts_for_templates_of_models_with_images():
    made = renderer(TURNS.replace("BODY", "m.content[0].text if m.content is not string else raise_exception('text')"))
    assert shown(made, say("user", "Hi")) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_call_shown_as_a_python_dict_is_given_as_text():
    made = renderer(TURNS.replace("BODY", CALLS.replace("ARGUMENTS", "c.function.arguments")))
    call = Message(role="assistant", tool_calls=(ToolCall(id="call_0", name="add", arguments={"a": True}),))
    assert made._template.shape.calls == "string"
    assert 'CALL add {"a": true}' in shown(made, say("user", "Hi"), call, say("user", "x"))


def test_a_template_that_fails_on_everything_is_refused_with_its_reason():
    with pytest.raises(UsageError, match="cannot render a conversation of user: no thanks"):
        renderer("{{ raise_exception('no thanks') }}")


def test_a_template_of_its_own_may_be_given():
    tokenizer = build("qwen2_5")
    made = Renderer(tokenizer, chat_template_args={"chat_template": TURNS.replace("BODY", "m.content ~ '!'")})
    assert shown(made, say("user", "Hi")).startswith("<|im_start|>user\nHi!<|im_end|>")


def test_self_test_finds_what_is_appended_wrongly():
    """This template counts turns, so a turn's text depends on how many came before: appending cannot know."""
    report = renderer(TURNS.replace("BODY", "loop.index ~ '. ' ~ m.content")).self_test()
    assert not report.ok
    assert any("a third turn: what is appended is not what the template writes, at token" in text for text in report.problems)


def test_self_test_finds_rewritten_history_and_names_the_policy():
    """Each of the assistant's turns is marked as old once it is followed by another."""
    body = "m.content ~ (' (old)' if m.role == 'assistant' and not loop.last else '')"
    for history in ("keep", "fork"):
        report = renderer(TURNS.replace("BODY", body), history=history).self_test()
        assert report.ok
        assert report.rewrites_history
        assert all(f"policy {history}" in text for text in report.problems)
    assert "the template rewrites earlier turns, at token" in report.problems[0]
    assert "the transcript has" in str(report)


def test_self_test_finds_calls_that_are_not_read_back():
    report = renderer(TURNS.replace("BODY", CALLS.replace("ARGUMENTS", "c.function.arguments | tojson"))).self_test()
    assert not report.ok
    assert any("are read back as []" in text for text in report.problems)


def test_self_test_without_tools_does_not_mind_how_calls_are_written():
    made = renderer(TURNS.replace("BODY", CALLS.replace("ARGUMENTS", "c.function.arguments | tojson")))
    assert made.self_test(tools=False).ok


def test_self_test_finds_a_turn_without_an_end():
    tokenizer = copy.deepcopy(build("qwen2_5"))
    tokenizer.eos_token = None
    made = Renderer(
        tokenizer,
        chat_template_args={"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"},
    )
    assert made.stop_ids == (tokenizer.convert_tokens_to_ids("<|endoftext|>"),)


def test_self_test_tells_other_tokens_from_other_text():
    """A generation prompt that ends in blanks merges with what follows when it is all tokenized at once."""
    made = renderer(
        TURNS.replace("BODY", "m.content")
        .replace("assistant\n{% endif", "assistant\n\n{% endif")
        .replace("{{ m.role }}\n", "{{ m.role }}\n{{ '\n' if m.role == 'assistant' }}"),
        name="chatml",
    )
    report = made.self_test()
    assert report.ok
    assert not report.rewrites_history
    assert any("the same text has other tokens" in note for note in report.notes)


def test_an_append_only_template_has_nothing_to_report():
    report = Renderer(build("qwen2_5")).self_test()
    assert (report.ok, report.rewrites_history, report.problems) == (True, False, ())
