"""Tiny random models, one for each family, and what tests of engines need. No engine is made here."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

torch.set_num_threads(1)

VOCABULARY = 307  # no multiple of the sampler's block
CONTEXT = 256

SLIDING = "sliding_attention"

FAMILIES = {
    "llama": (LlamaConfig, {}),
    "llama-tied": (LlamaConfig, {"tie_word_embeddings": True}),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, {"tie_word_embeddings": True}),
    "qwen3-moe": (Qwen3MoeConfig, {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
    "mistral": (MistralConfig, {"sliding_window": 8}),
    "gemma2": (Gemma2Config, {"sliding_window": 8, "query_pre_attn_scalar": 16}),
    "gemma3": (
        Gemma3TextConfig,
        {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "gpt-oss": (GptOssConfig, {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
}


def tiny(family: str = "llama", *, seed: int = 0, dtype: torch.dtype = torch.float32, **more: object) -> torch.nn.Module:
    """Three layers; the weights are spread widely, so that an engine that forgets to attend is found out."""
    config_class, special = FAMILIES[family]
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.2,
        "tie_word_embeddings": False,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    if family == "gemma3":  # its layers of two kinds have a rope each, which the config fills in
        del shape["rope_parameters"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config_class(**{**shape, **special, **more}), attn_implementation="eager")
        for parameter in model.parameters():  # norms and sinks begin as constants: a mistake there would not show
            parameter.data.add_(torch.randn_like(parameter) * 0.02)
    return model.to(dtype).eval()


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return tuple(torch.randint(0, VOCABULARY, (length,), generator=generator).tolist())


@torch.inference_mode()
def reference_logprobs(model: torch.nn.Module, ids: tuple[int, ...], temperature: float = 1.0) -> torch.Tensor:
    """[n, vocabulary] of a plain forward pass."""
    return torch.log_softmax(model(torch.tensor([ids])).logits[0].float() / temperature, dim=-1)


@torch.inference_mode()
def hf_greedy(model: torch.nn.Module, ids: tuple[int, ...], new: int) -> tuple[int, ...]:
    """What transformers' own `generate` gives."""
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(out[0, len(ids) :].tolist())
