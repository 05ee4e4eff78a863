"""Short forms for tests of conversations: messages, calls, results, sampled segments."""

from __future__ import annotations

from agentrl.messages import Message, Text, ToolCall
from agentrl.renderer import Renderer
from agentrl.tool import ToolSpec
from agentrl.transcript import Segment, Transcript

ADD = ToolSpec(
    name="add",
    description="Adds.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}},
)


def say(role: str, text: str, **more) -> Message:
    return Message(role=role, content=(Text(text=text),) if text else (), **more)


def call(name: str = "add", call_id: str = "abcdefghi", **arguments) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id=call_id, name=name, arguments=arguments),))


def result(text: str, call_id: str = "abcdefghi") -> Message:
    return say("tool", text, tool_call_id=call_id, name="add")


def ids_of(tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def sampled(ids) -> Segment:
    ids = tuple(ids)
    return Segment(role="sampled", ids=ids, logprobs=(-0.5,) * len(ids), versions=(0,) * len(ids))


def started(renderer: Renderer, messages, tools=()) -> Transcript:
    return Transcript([Segment(role="prompt", ids=renderer.render(messages, tools))])


AWKWARD = [" lead", "\n", "\n\nx", "7", "0042", "  ", "\t", ".", "é", "🙂", "｜", "▁", "<", "]", "", "a\n", "} ", "```\n"]
"""Texts that merge with, or look like, what may stand beside them."""

CALLS = {
    "mistral": '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "abcdefgh1"}]',
    "llama3": '{"name": "add", "parameters": {"a": 1}}',
    "gemma": '```tool_call\n{"name": "add", "parameters": {"a": 1}}\n```',
    "deepseek": (
        "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n"
        '```json\n{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "qwen3_coder": "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "harmony": (
        "<|channel|>analysis<|message|>I add.<|end|><|start|>assistant<|channel|>commentary to=functions.add "
        '<|constrain|>json<|message|>{"a": 1}'
    ),
    "glm": "\n<think></think>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
}
HERMES = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
"""How each family writes the call add(a=1); those not named in CALLS write HERMES."""
