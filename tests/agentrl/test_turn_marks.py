"""What follows an assistant's turn, for templates with odd ideas of it."""

from __future__ import annotations

import copy

import pytest

from agentrl.messages import ToolCall
from agentrl.renderer import Renderer
from tests.support.tokenizers import build
from tests.support.turns import ADD, call, ids_of, result, sampled, say, started

TURNS = """{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ BODY }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


def renderer(template: str, name: str = "qwen2_5", **options) -> Renderer:
    tokenizer = copy.deepcopy(build(name))
    tokenizer.chat_template = template
    return Renderer(tokenizer, **options)


def tail(made: Renderer, turn: str, said, new, before=(), tools=()) -> str:
    before = [*before, say("user", "Hi")]
    transcript = started(made, before, tools)
    transcript.append(sampled(ids_of(made.tokenizer, turn)))
    more = made.extend(transcript, [*before, said], new, tools)
    assert isinstance(more, tuple)
    return made.tokenizer.decode(more)


NEXT = "\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"


def test_a_mark_that_is_put_on_old_turns_is_not_appended():
    made = renderer(TURNS.replace("BODY", "m.content ~ (' (old)' if m.role == 'assistant' and not loop.last else '')"))
    assert tail(made, "Yes<|im_end|>", say("assistant", "Yes"), [say("user", "x")]) == NEXT
    assert tail(made, "Yes", say("assistant", "Yes"), [say("user", "x")]) == "<|im_end|>" + NEXT


def test_a_blank_before_the_end_of_a_turn_is_not_appended():
    """Llama 2 writes " </s>" after each turn."""
    made = renderer(TURNS.replace("BODY", "m.content ~ ' '"))
    expected = NEXT.replace("x<", "x <")
    assert tail(made, "Yes<|im_end|>", say("assistant", "Yes"), [say("user", "x")]) == expected


def test_a_turn_that_ends_in_two_tokens_stops_at_the_first():
    made = renderer(TURNS.replace("<|im_end|>", "<|im_end|><|endoftext|>").replace("BODY", "m.content"))
    expected = NEXT.replace("<|im_end|>", "<|im_end|><|endoftext|>")
    assert tail(made, "Yes<|im_end|>", say("assistant", "Yes"), [say("user", "x")]) == "<|endoftext|>" + expected
    assert tail(made, "Yes", say("assistant", "Yes"), [say("user", "x")]) == "<|im_end|><|endoftext|>" + expected
    assert tail(made, "call<|im_end|>", call(a=1), [result("7")]).startswith("<|endoftext|>\n<|im_start|>tool")


def test_a_system_text_that_moves_to_the_last_question_is_repeated_there():
    """Mistral 7B v0.3: whoever renders the whole conversation finds it in the last user message."""
    body = "(messages[0].content ~ ' ' if m.role == 'user' and messages[0].role == 'system' and loop.last else '') ~ m.content"
    made = renderer(TURNS.replace("BODY", body))
    shown = tail(made, "Yes<|im_end|>", say("assistant", "Yes"), [say("user", "x")], before=[say("system", "Be brief.")])
    assert shown == NEXT.replace("x", "Be brief. x", 1)


ASK = "{% if add_generation_prompt %}### assistant:{% endif %}"


def test_roles_in_plain_text_without_any_token_at_the_end():
    made = renderer("{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}" + ASK)
    assert made.tokenizer.convert_ids_to_tokens(list(made.stop_ids)) == ["<|im_end|>", "<|endoftext|>"]
    shown = tail(made, " Yes", say("assistant", "Yes"), [say("user", "x")])
    assert shown == "\n### user: x\n### assistant:"
    # What ended the turn is no token of the template: it stays, and the text goes on after it.
    assert tail(made, " Yes<|im_end|>", say("assistant", "Yes"), [say("user", "x")]) == shown
    said = call(a=1)
    assert tail(made, " call", said, [result("7")], tools=(ADD,)) == "\n### tool: 7\n### assistant:"


def test_a_role_that_no_model_samples_is_kept():
    made = Renderer(build("glm"))
    new = [say("system", "s"), say("user", "x")]
    assert tail(made, "Yes<|endoftext|>", say("assistant", "Yes"), new) == "<|system|>\ns<|user|>\nx<|assistant|>"


def test_nothing_new_still_closes_the_turn_and_asks_again():
    made = Renderer(build("qwen2_5"))
    assert tail(made, "Yes", say("assistant", "Yes"), []) == "<|im_end|>\n<|im_start|>assistant\n"
    assert tail(made, "Yes<|im_end|>", say("assistant", "Yes"), []) == "\n<|im_start|>assistant\n"


STRICT = TURNS.replace(
    "BODY",
    """raise_exception('one call') if (m.tool_calls or []) | length > 1 }}{{
    raise_exception('no call') if m.role == 'tool' and not (messages[loop.index0 - 1].tool_calls or loop.index0 > 3) }}{{
    'call ' ~ m.tool_calls[0].function.name ~ (m.tool_calls[0].function.arguments | tojson) if m.tool_calls else m.content""",
)


def test_one_call_stands_for_several_where_a_template_takes_only_one():
    made = renderer(STRICT)
    calls = tuple(ToolCall(id=f"call_{i}", name="add", arguments={"a": i}) for i in range(2))
    said = say("assistant", "", tool_calls=calls)
    new = [result("1", "call_0")]
    assert tail(made, "two<|im_end|>", said, new) == NEXT.replace("user\nx", "tool\n1")


def test_a_result_that_nobody_asked_for_is_shown():
    made = renderer(STRICT)
    assert tail(made, "Yes<|im_end|>", say("assistant", "Yes"), [result("1")]) == NEXT.replace("user\nx", "tool\n1")


def test_a_message_may_hold_the_words_of_the_stand_in():
    made = Renderer(build("qwen2_5"))
    text = "xborder xborderx ynext"
    assert tail(made, "Yes<|im_end|>", say("assistant", "Yes"), [say("user", text)]) == NEXT.replace("x", text, 1)


@pytest.mark.parametrize("count", [1, 2])
def test_where_the_turn_number_counts_forking_gives_what_the_template_writes(count):
    made = renderer(TURNS.replace("BODY", "loop.index ~ ' ' ~ m.content"), history="fork")
    before = [say("user", "a"), say("assistant", "b")][: 2 * (count - 1)]
    messages = [*before, say("user", "Hi")]
    transcript = started(made, messages)
    number = len(messages) + 1
    transcript.append(sampled(ids_of(made.tokenizer, f"{number} Yes<|im_end|>")))
    more = made.extend(transcript, [*messages, say("assistant", "Yes")], [say("user", "x")])
    assert made.tokenizer.decode(more) == NEXT.replace("x", f"{number + 1} x", 1)
