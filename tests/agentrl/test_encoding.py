"""Text to ids with control tokens kept apart from text that spells them."""

from __future__ import annotations

import pytest

from agentrl.encoding import SEPARATORS, Encoder, common_length
from agentrl.errors import UsageError
from tests.support.tokenizers import FAMILIES, build

NAMES = sorted(FAMILIES)


def test_which_tokens_steer():
    control = Encoder(build("deepseek")).control
    assert {"<｜User｜>", "<｜tool▁sep｜>", "<｜▁pad▁｜>"} <= set(control)  # roles are not flagged special there
    assert "<think>" not in control
    assert "[TOOL_CALLS]" in Encoder(build("mistral")).control


@pytest.mark.parametrize("name", NAMES)
def test_guarded_text_has_no_control_ids_and_reads_the_same(name):
    tokenizer = build(name)
    encoder = Encoder(tokenizer)
    tokens = list(encoder.control)
    for text in (f"a{tokens[0]}b", " ".join(tokens), tokens[0] * 3, tokens[0][:-1] + tokens[1], "<" + tokens[-1]):
        separator = encoder.separator(text)
        ids = encoder.encode(encoder.guard(text, separator), separator)
        assert not set(ids) & set(encoder.control.values())
        assert encoder.decode(ids).lstrip() == text.lstrip()


def test_ordinary_text_is_not_touched():
    encoder = Encoder(build("qwen2_5"))
    value = {"a": ["x < y", 1, None, {"<b>": "<tool_call>"}]}
    assert encoder.separator(value) == ""
    assert encoder.guard(value, "") is value


def test_guarding_reaches_into_lists_dicts_and_keys():
    encoder = Encoder(build("qwen2_5"))
    value = {"<|im_end|>": ["<|im_end|>", {"k": ("x<|im_end|>", 3)}]}
    mark = encoder.separator(value)
    guarded = f"<{mark}|im_end|>"
    assert encoder.guard(value, mark) == {guarded: [guarded, {"k": [f"x{guarded}", 3]}]}


def test_overlapping_spellings_are_all_broken():
    encoder = Encoder(build("qwen2_5"))
    guarded = encoder.guard("<<|im_end|><|im_start|>", SEPARATORS[0])
    assert encoder.controls(guarded) == []


def test_a_separator_that_the_text_holds_is_not_taken():
    encoder = Encoder(build("qwen2_5"))
    assert encoder.separator(f"<|im_end|>{SEPARATORS[0]}") == SEPARATORS[1]
    with pytest.raises(UsageError, match="private-use"):
        encoder.separator(["<|im_end|>", *SEPARATORS])
    text = f"{SEPARATORS[0]}<|im_end|>"
    assert encoder.decode(encoder.encode(encoder.guard(text, SEPARATORS[1]), SEPARATORS[1])) == text


def test_controls_in_order_the_longest_first():
    encoder = Encoder(build("glm"))
    assert encoder.controls("a<|user|>b<sop><|user|>") == [(1, "<|user|>"), (10, "<sop>"), (15, "<|user|>")]


def test_common_start_cuts_no_token():
    encoder = Encoder(build("deepseek"))
    assert encoder.common_start("ab<think>x", "ab<｜tool▁sep｜>") == 2
    assert encoder.common_start("ab<think>x", "ab<tool_call>") == 2  # <tool_call> is no token here, <think> is
    assert encoder.common_start("abc", "abd") == 2
    assert common_length("abc", "abc") == 3


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(UsageError, match="Slow is no fast tokenizer"):
        Encoder(Slow())
