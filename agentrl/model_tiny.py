"""Random models with a tokenizer of their own, made in a moment without any download. For tests; they know nothing.

The tokenizer is a byte-level BPE whose few merges are learned from `CORPUS`, so that pieces merge over borders as in a
real one; its chat template is ChatML with tools as in Qwen2.5. The same name gives the same weights on every call.
"""

from __future__ import annotations

from typing import Any

NAMES = {
    "tiny": "random weights, Llama, 2 layers, tied embeddings; for tests",
    "tiny-untied": "random weights, Llama, 2 layers, an output layer of its own; for tests",
    "tiny-qwen3": "random weights, Qwen3, 2 layers, tied embeddings; for tests",
}

CONTEXT = 4096
"""Positions; more than any test's conversation."""

SPREAD = 0.2
"""Standard deviation of the weights. With the usual 0.02 all logits are nearly equal, and an engine that forgets to attend
would pass for a right one."""

VOCABULARY = 448
"""Pieces at most, the added ones not counted."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Single pieces that stay in decoded text."""

CORPUS = (
    "system\nYou are a helpful assistant.",
    "user\nWrite a function that returns the sum of the numbers in a list.",
    "assistant\nHere is the code:\n```python\ndef add(a, b):\n    return a + b\n```\n",
    "def solve(values):\n    total = 0\n    for value in values:\n        total += value\n    return total\n",
    'Traceback (most recent call last):\n  File "solution.py", line 3, in <module>\nAssertionError: expected 3, got 4\n',
    "I think of a number between 1 and 100. What is it? Higher. Lower. Correct.",
    '{"name": "python", "arguments": {"code": "print(1 + 2)"}}',
    "The tests passed. The tests failed. The function returns the wrong value for the first example.",
)

CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- 'Call one with <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function or call %}
            {%- if not loop.first or message.content %}{{- '\\n' }}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- (call.arguments if call.arguments is string else call.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def build(name: str = "tiny", *, seed: int = 0) -> tuple[Any, Any]:
    """(model in float32, tokenizer) of one of NAMES. The caller's random state is left as it was."""
    import torch
    from transformers import AutoModelForCausalLM

    words = tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(_config(name, words), attn_implementation="sdpa", dtype=torch.float32)
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    return model.eval(), words


def _config(name: str, words: Any) -> Any:
    from transformers import LlamaConfig, Qwen3Config

    shape = {
        "vocab_size": len(words),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "initializer_range": SPREAD,
        "tie_word_embeddings": name != "tiny-untied",
        "bos_token_id": None,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
    }
    return Qwen3Config(**shape) if name == "tiny-qwen3" else LlamaConfig(**shape)


def tokenizer() -> Any:
    """Byte-level, so that any text encodes and decodes to itself; pad differs from the end of turn."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
