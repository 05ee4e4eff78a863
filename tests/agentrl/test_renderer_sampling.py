"""Random episodes on eleven template families: what is trained is what was sampled, token for token."""

from __future__ import annotations

import json
import random

import pytest

from agentrl.renderer import Fork, Renderer
from agentrl.transcript import Segment, Transcript
from tests.support.tokenizers import FAMILIES, build
from tests.support.turns import ADD, AWKWARD, CALLS, HERMES, ids_of, result, sampled, say, started

NAMES = sorted(FAMILIES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("history", ["keep", "fork"])
def test_what_is_trained_is_what_was_sampled(name, history):
    """Random turns of random ids (fragments of characters, foreign stops, cut turns, calls) and random answers."""
    tokenizer = build(name)
    renderer = Renderer(tokenizer, history=history)
    for seed in range(12):
        rng = random.Random(f"{name} {seed}")
        tools = (ADD,) if rng.random() < 0.6 else ()
        messages = [say("system", "Be brief.")] if rng.random() < 0.5 else []
        messages.append(say("user", rng.choice(AWKWARD) + "start"))
        transcripts = [started(renderer, messages, tools)]
        drawn: list[int] = []
        for _ in range(4):
            turn = draw(rng, name, tokenizer, renderer)
            drawn += turn
            sent = transcripts[-1].ids
            transcripts[-1].append(sampled(turn))
            assert transcripts[-1].ids == sent + tuple(turn)  # the prompt that the engine saw, then its ids, nothing else
            action = renderer.parse(turn, tools)
            messages.append(action.message())
            answer = [result(rng.choice(AWKWARD), item.id) for item in action.tool_calls] or [say("user", rng.choice(AWKWARD))]
            more = renderer.extend(transcripts[-1], messages, answer, tools)
            messages += answer
            if history == "keep" and answer[0].role == "user":
                assert tokenizer.decode(more) == appended(name, tokenizer.decode(turn[-1:]), answer[0].text, tools)
            if isinstance(more, Fork):
                assert more.ids == renderer.render(messages, tools)
                assert more.reason
                transcripts.append(Transcript([Segment(role="prompt", ids=more.ids)]))
            else:
                transcripts[-1].append(Segment(role="observation", ids=more))
        trained = [i for t in transcripts for i, m in zip(t.ids, t.mask, strict=True) if m]
        assert trained == drawn
        assert history == "fork" or len(transcripts) == 1


CLOSES = {  # what ends a turn, what of it the model may have sampled, and what the next user turn looks like
    "chatml": ("<|im_end|>", (), "\n<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n"),
    "qwen2_5": ("<|im_end|>", (), "\n<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n"),
    "qwen3": ("<|im_end|>", (), "\n<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n"),
    "llama3": (
        "<|eot_id|>",
        ("<|eom_id|>",),
        "<|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "mistral": ("</s>", (), "[INST] TEXT[/INST]"),
    "gemma": ("<end_of_turn>", (), "\n<start_of_turn>user\nTEXT<end_of_turn>\n<start_of_turn>model\n"),
    "deepseek": ("<｜end▁of▁sentence｜>", (), "<｜User｜>TEXT<｜Assistant｜><think>\n"),
    "glm": ("<|user|>", (), "\nTEXT<|assistant|>"),
    "qwen3_coder": ("<|im_end|>", (), "\n<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n"),
    "kimi": ("<|im_end|>", (), "<|im_user|>user<|im_middle|>TEXT<|im_end|><|im_assistant|>assistant<|im_middle|>"),
    "harmony": ("<|end|>", ("<|return|>", "<|call|>"), "<|start|>user<|message|>TEXT<|end|><|start|>assistant"),
}


def appended(name: str, last: str, text: str, tools) -> str:
    """The text that must follow a turn whose last token is `last`, by each family's documentation."""
    close, as_good, user = CLOSES[name]
    if name in ("llama3", "gemma"):
        text = text.strip()  # their templates trim
    if name in ("mistral", "gemma"):
        text = text.replace("▁", " ")  # the one character that their tokenizers cannot tell from a blank
    if name == "mistral" and tools:
        user = f"[AVAILABLE_TOOLS] {json.dumps([ADD.to_dict()])}[/AVAILABLE_TOOLS]{user}"
    return ("" if last in (close, *as_good) else close) + user.replace("TEXT", text)


def draw(rng: random.Random, name: str, tokenizer, renderer: Renderer) -> list[int]:
    """One turn: noise, or a well-formed call; ended by any of the stop ids or by the length limit."""
    if rng.random() < 0.4:
        turn = list(ids_of(tokenizer, CALLS.get(name, HERMES)))
    else:
        allowed = sorted(set(range(len(tokenizer))) - set(renderer.banned_ids) - set(renderer.stop_ids))
        turn = [rng.choice(allowed) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.7:
        turn.append(rng.choice(renderer.stop_ids))
    return turn
