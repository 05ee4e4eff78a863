"""What the trainers' tests are made of: tiny random models of several families, samples, groups, and a plain reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers as hf
from torch import Tensor

from agentrl.episode import Episode, EpisodeGroup, Outcome
from agentrl.sample import Sample
from agentrl.task import Task
from agentrl.trainers.backends.local import LocalBackend
from agentrl.transcript import Segment, Transcript

torch.set_num_threads(1)

VOCABULARY = 61
SIZE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
HEADS = {"head_dim": 8}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

FAMILIES: dict[str, tuple[type, type, dict[str, Any]]] = {
    "llama": (hf.LlamaConfig, hf.LlamaForCausalLM, {}),
    "llama-tied": (hf.LlamaConfig, hf.LlamaForCausalLM, {"tie_word_embeddings": True}),
    "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM, {}),
    "qwen3": (hf.Qwen3Config, hf.Qwen3ForCausalLM, HEADS),
    "qwen3-moe": (hf.Qwen3MoeConfig, hf.Qwen3MoeForCausalLM, HEADS | MOE),
    "mistral": (hf.MistralConfig, hf.MistralForCausalLM, HEADS | {"sliding_window": 5}),
    "gemma2": (
        hf.Gemma2Config,
        hf.Gemma2ForCausalLM,
        HEADS
        | {"sliding_window": 5, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": (hf.Gemma3TextConfig, hf.Gemma3ForCausalLM, HEADS | {"sliding_window": 5, "query_pre_attn_scalar": 8}),
    "granite": (hf.GraniteConfig, hf.GraniteForCausalLM, {"logits_scaling": 4.0, "attention_multiplier": 0.3}),
    "cohere": (hf.CohereConfig, hf.CohereForCausalLM, {"logit_scale": 0.25}),
    "phi": (hf.PhiConfig, hf.PhiForCausalLM, {}),
    "gpt-oss": (
        hf.GptOssConfig,
        hf.GptOssForCausalLM,
        HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
}


def tiny(family: str = "llama", seed: int = 0) -> Any:
    """A random model in float32, with weights large enough that its logits are far from uniform."""
    config_class, model_class, extra = FAMILIES[family]
    torch.manual_seed(seed)
    model = model_class(config_class(**(SIZE | extra))).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    return model


def backend(model: Any = None, **settings: Any) -> LocalBackend:
    """In float32 on one thread, without gradient clipping, unless told otherwise."""
    defaults = {"dtype": "float32", "threads": 1, "max_grad_norm": 0.0, "logits_chunk": 5}
    return LocalBackend(tiny() if model is None else model, **(defaults | settings))


def sample(
    ids: Sequence[int], mask: Sequence[int], *, prompt: int = 0, group: str = "g", episode: str = "e", **fields: Any
) -> Sample:
    fields = {"reward": 0.0, "logprobs": tuple(-1.0 * m for m in mask)} | fields
    return Sample(
        episode=episode,
        group=group,
        ids=tuple(ids),
        mask=tuple(mask),
        versions=tuple(0 if m else -1 for m in mask),
        prompt_length=prompt,
        **fields,
    )


def siblings(groups: int = 2, count: int = 3, seed: int = 0) -> list[Sample]:
    """Groups of samples with a common prompt, two turns with an observation between, and one that ends with an observation."""
    generator = torch.Generator().manual_seed(seed)

    def draw(n: int) -> list[int]:
        return torch.randint(3, VOCABULARY, (n,), generator=generator).tolist()

    out = []
    for g in range(groups):
        prompt = draw(4 + 3 * g)
        for i in range(count):
            first, observation, second, trailing = draw(2 + i), draw(3), draw(4 - i % 3), draw(2 if i == 1 else 0)
            ids = prompt + first + observation + second + trailing
            mask = [0] * len(prompt) + [1] * len(first) + [0] * 3 + [1] * len(second) + [0] * len(trailing)
            out.append(sample(ids, mask, prompt=len(prompt), group=f"g{g}", episode=f"g{g}-{i}"))
    return out


def inputs_for(samples: Sequence[Sample], seed: int = 0) -> list[dict[str, Tensor]]:
    """Advantages, old, engine and reference logprobs for each sample, all different."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for s in samples:
        n = s.trained_tokens
        old = -4.0 + torch.randn(n, generator=generator)
        out.append(
            {
                "advantages": torch.randn(n, generator=generator),
                "weights": torch.full((n,), s.weight),
                "old_logprobs": old,
                "engine_logprobs": old + 0.3 * torch.randn(n, generator=generator),
                "reference_logprobs": old + torch.randn(n, generator=generator),
            }
        )
    return out


def plain_logprobs(model: Any, s: Sample, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """(logprobs, entropy) of a sample's trained tokens by transformers alone: one sequence, all logits, eager attention."""
    before, model.config._attn_implementation = model.config._attn_implementation, "eager"
    logits = model(input_ids=torch.tensor([s.ids]), use_cache=False).logits[0].float() / temperature
    model.config._attn_implementation = before
    table = torch.log_softmax(logits, dim=-1)
    positions = [i for i, m in enumerate(s.mask) if m]
    rows = table[[i - 1 for i in positions]]
    return rows[range(len(positions)), [s.ids[i] for i in positions]], -(rows.exp() * rows).sum(-1)


def gradients(
    b: LocalBackend, samples: Sequence[Sample], inputs: Sequence[Mapping[str, Tensor]], loss: Any, **settings: Any
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(gradient by parameter, metrics) of a step that is not taken."""
    found: dict[str, Tensor] = {}
    optimizer = b._optimizer
    take_step = optimizer.step

    def collect(lr: float) -> float:
        found.update({name: m.grad.clone() for name, m in optimizer._masters.items() if m.grad is not None})
        optimizer.zero_grad()
        return 0.0

    optimizer.step = collect  # type: ignore[method-assign]
    try:
        metrics = b.step(samples, inputs, loss, **({"denominator": 7.0, "lr": 0.0, "temperature": 1.0} | settings))
    finally:
        optimizer.step = take_step  # type: ignore[method-assign]
    return found, dict(metrics)


def distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Relative distance of two sets of gradients, as one vector each."""
    assert a.keys() == b.keys()
    difference = sum((a[k].double() - b[k].double()).square().sum() for k in a)
    return float((difference / sum(a[k].double().square().sum() for k in a)) ** 0.5)


def episode(
    group: str,
    index: int,
    reward: float,
    *,
    prompt: Sequence[int] = (5, 6, 7),
    sampled: Sequence[int] = (8, 9),
    logprob: float = -1.0,
    outcome: Outcome = Outcome.TERMINATED,
    transcripts: int = 1,
) -> Episode:
    """An episode with one sampled segment in each of its transcripts."""
    ledger = Transcript(
        [
            Segment(role="prompt", ids=tuple(prompt)),
            Segment(role="sampled", ids=tuple(sampled), logprobs=(logprob,) * len(sampled), versions=(0,) * len(sampled)),
        ]
    )
    return Episode(
        id=f"{group}-{index}",
        group=group,
        index=index,
        task=Task(id=group),
        seed=0,
        transcripts=(ledger,) * transcripts,
        outcome=outcome,
        rewards={"r": reward},
    )


def group(name: str, rewards: Sequence[float], **fields: Any) -> EpisodeGroup:
    episodes = tuple(episode(name, i, reward, **fields) for i, reward in enumerate(rewards))
    return EpisodeGroup(id=name, number=0, task=Task(id=name), episodes=episodes)
