"""Tokenizers of eleven model families, built offline: their special tokens and splitting rules, a small trained vocabulary.

The vocabularies are trained on a page of text, so merges happen as in real ones, also across blanks and newlines. The
chat templates lie beside this file and follow what each family's authors publish about its format.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(__file__).parent / "templates"

TEXT = """
The answer is 42. Let me add 17 and 25: 17 + 25 = 42. What is 2 + 2? It is 4.
You are a helpful assistant. Be brief. Hello world, hello there! system user assistant model tool name arguments
def add(a, b):
    return a + b

for i in range(100):
    print(i, i * i)


{"name": "add", "arguments": {"a": 1, "note": "say hi"}} {"type": "function", "function": {"parameters": {}}}
<tool_call> </tool_call> <tool_response> </tool_response> ```json ``` <think> </think> content call_id 1234567890
Grüße aus Köln, ça va? Привет. 你好,世界。 🙂 naïve café — “quotes” … tab\there
"""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class Family:
    """How a family's tokenizer differs from others. `special` tokens are flagged special, `plain` ones only added."""

    special: tuple[str, ...]
    plain: tuple[str, ...] = ()
    bos: str | None = None
    eos: str = ""
    pad: str | None = None
    pattern: str | None = None
    """Byte-level BPE with this splitting rule; None: a SentencePiece-like one with byte fallback."""
    normalizer: Any = None
    metaspace: Any = None


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_HERMES = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_QWEN = (*_CHATML, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_DEEPSEEK_TOOLS = tuple(
    f"<｜tool▁{name}｜>"
    for name in (
        *("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"),
        *("outputs▁begin", "outputs▁end", "output▁begin", "output▁end"),
    )
)

FAMILIES: dict[str, Family] = {
    "chatml": Family(special=(*_CHATML, "<repo_name>"), bos="<|im_start|>", eos="<|im_end|>", pad="<|im_end|>", pattern=GPT2),
    "qwen2_5": Family(special=_QWEN, plain=_HERMES, eos="<|im_end|>", pad="<|endoftext|>", pattern=QWEN),
    "qwen3": Family(
        special=_QWEN,
        plain=(*_HERMES, "<think>", "</think>"),
        eos="<|im_end|>",
        pad="<|endoftext|>",
        pattern=QWEN,
        normalizer=normalizers.NFC(),
    ),
    "qwen3_coder": Family(
        special=_QWEN,
        plain=(*_HERMES, "<think>", "</think>"),
        eos="<|im_end|>",
        pad="<|endoftext|>",
        pattern=QWEN,
        normalizer=normalizers.NFC(),
    ),
    "llama3": Family(
        special=(
            *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<|finetune_right_pad_id|>"),
        ),
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
        pad="<|finetune_right_pad_id|>",
        pattern=LLAMA3,
    ),
    "mistral": Family(
        special=(
            *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[IMG]"),
        ),
        bos="<s>",
        eos="</s>",
        pad="</s>",
        metaspace=pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
    ),
    "gemma": Family(
        special=("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<image_soft_token>"),
        bos="<bos>",
        eos="<eos>",
        pad="<pad>",
        normalizer=normalizers.Replace(" ", "▁"),
    ),
    "deepseek": Family(
        special=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"),
        plain=("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", *_DEEPSEEK_TOOLS),
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        pad="<｜▁pad▁｜>",
        pattern=QWEN,
    ),
    "glm": Family(
        special=(
            "<|endoftext|>",
            "[gMASK]",
            "<sop>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|observation|>",
            "<|image|>",
        ),
        plain=(
            *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
            *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        eos="<|endoftext|>",
        pad="<|endoftext|>",
        pattern=LLAMA3,
    ),
    "kimi": Family(
        special=(
            *("[BOS]", "[EOS]", "[PAD]", "[UNK]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>"),
            *("<|im_middle|>", "<|media_pad|>"),
        ),
        plain=(
            *("<think>", "</think>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
            *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
        ),
        bos="[BOS]",
        eos="[EOS]",
        pad="[PAD]",
        pattern=LLAMA3,
    ),
    "harmony": Family(
        special=(
            *("<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>"),
            *("<|message|>", "<|call|>"),
        ),
        bos="<|startoftext|>",
        eos="<|return|>",
        pad="<|endoftext|>",
        pattern=LLAMA3,
    ),
}


@cache
def build(name: str, merges: int = 300) -> PreTrainedTokenizerFast:
    """The tokenizer of a family with its chat template. Without merges, each byte (or character) is a token."""
    family = FAMILIES[name]
    tokenizer = _byte_level(family, merges) if family.pattern else _sentencepiece(family, merges)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in family.special])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in family.plain])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=family.bos,
        eos_token=family.eos,
        pad_token=family.pad,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    return fast


def _byte_level(family: Family, merges: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(family.pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if family.normalizer:
        tokenizer.normalizer = family.normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def _sentencepiece(family: Family, merges: int) -> Tokenizer:
    """Characters of the text, merges of them, and the 256 bytes for all other characters."""
    trained = Tokenizer(models.BPE())
    letters = sorted(set(TEXT.replace(" ", "▁")) | {chr(code) for code in range(33, 127)} | {"▁", "\n"})
    trainer = trainers.BpeTrainer(vocab_size=len(letters) + merges, initial_alphabet=letters, show_progress=False)
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁\n]+|▁+|\n+"), behavior="isolated")
    trained.train_from_iterator([TEXT.replace(" ", "▁")], trainer)
    learnt = json.loads(trained.to_str())["model"]
    vocabulary = dict(learnt["vocab"])
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    pairs = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in learnt["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, byte_fallback=True, fuse_unk=True))
    if family.metaspace:
        tokenizer.pre_tokenizer = family.metaspace
    if family.normalizer:
        tokenizer.normalizer = family.normalizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
