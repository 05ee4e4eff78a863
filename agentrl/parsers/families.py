"""The table of families, and which of them a chat template belongs to. A new family is a file and a line here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

from agentrl.errors import UsageError, nearest
from agentrl.parsers import (
    deepseek,
    dsml,
    fenced,
    gemma,
    gemma_call,
    glm,
    harmony,
    hermes,
    kimi,
    llama3,
    mistral,
    pythonic,
    qwen3_coder,
    react,
)
from agentrl.parsers.family import Family

ToolFormat = Literal[
    "hermes",
    "qwen3_coder",
    "llama3",
    "pythonic",
    "mistral",
    "mistral_v11",
    "deepseek",
    "deepseek_v31",
    "deepseek_v32",
    "glm",
    "kimi",
    "harmony",
    "gemma",
    "function_gemma",
    "gemma4",
    "react",
    "fenced",
]
FORMATS: tuple[ToolFormat, ...] = get_args(ToolFormat)

FAMILIES: dict[ToolFormat, Family] = {
    "hermes": hermes.FAMILY,
    "qwen3_coder": qwen3_coder.FAMILY,
    "llama3": llama3.FAMILY,
    "pythonic": pythonic.FAMILY,
    "mistral": mistral.LIST,
    "mistral_v11": mistral.EACH,
    "deepseek": deepseek.V3,
    "deepseek_v31": deepseek.V31,
    "deepseek_v32": dsml.FAMILY,
    "glm": glm.FAMILY,
    "kimi": kimi.FAMILY,
    "harmony": harmony.FAMILY,
    "gemma": gemma.FAMILY,
    "function_gemma": gemma_call.FUNCTION_GEMMA,
    "gemma4": gemma_call.GEMMA4,
    "react": react.FAMILY,
    "fenced": fenced.FAMILY,
}


def named(form: str) -> ToolFormat:
    """The format of that name. Raises UsageError."""
    for known in FORMATS:
        if form == known:
            return known
    raise UsageError(f"there is no tool format {form!r}; {nearest(form, FORMATS)}")


def tool_format(template: str, vocabulary: Collection[str]) -> ToolFormat:
    """The format of the family a chat template and its added tokens belong to; hermes (Qwen, most others) when unknown.

    What is special to a family comes first: a Hermes tuned from Llama has Llama's tokens and a template of its own.
    """
    tokens = set(vocabulary)
    signs: list[tuple[bool, ToolFormat]] = [
        ("<|channel|>" in template and "<|message|>" in template, "harmony"),
        ("<|tool_call_argument_begin|>" in tokens or "<|tool_call_argument_begin|>" in template, "kimi"),
        ("｜DSML｜" in template, "deepseek_v32"),
        ("<｜tool▁sep｜>" in template and "```json" not in template, "deepseek_v31"),
        ("<｜tool▁calls▁begin｜>" in tokens, "deepseek"),
        ("[TOOL_CALLS]" in tokens and "[ARGS]" in template, "mistral_v11"),
        ("[TOOL_CALLS]" in tokens, "mistral"),
        ("<start_function_call>" in tokens or "<start_function_call>" in template, "function_gemma"),
        ("<|tool_call>" in tokens or "<|tool_call>" in template, "gemma4"),
        ("<arg_key>" in template, "glm"),
        ("<function=" in template and "<parameter=" in template, "qwen3_coder"),
        ("<tool_call>" in template, "hermes"),
        ("[func_name1(" in template or "<|python_start|>" in tokens, "pythonic"),
        ("<|python_tag|>" in tokens or "ipython" in template, "llama3"),
        ("Action Input:" in template, "react"),
        ("<start_of_turn>" in tokens, "gemma"),
    ]
    return next((form for holds, form in signs if holds), "hermes")
