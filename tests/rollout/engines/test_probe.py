"""Models that would be answered wrongly are refused; each case is one that transformers really has."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DogeConfig,
    GPT2Config,
    MixtralConfig,
    OlmoConfig,
    Phi3Config,
    PhimoeConfig,
    PreTrainedConfig,
    Qwen2MoeConfig,
)

from agentrl.errors import UsageError
from agentrl.rollout.engines import slot_attention
from agentrl.rollout.engines.probe import probe
from agentrl.rollout.engines.replica import Replica
from agentrl.rollout.engines.torch_engine import TorchEngine
from tests.support.tiny_models import FAMILIES, tiny

SHAPE = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def build(config: PreTrainedConfig) -> torch.nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_families_we_know_pass(family: str, packed: bool) -> None:
    probe(Replica(tiny(family), packed=packed))


@pytest.mark.parametrize("config", [MixtralConfig, OlmoConfig, Phi3Config, Qwen2MoeConfig])
def test_others_pass_without_having_been_thought_of(config: type[PreTrainedConfig]) -> None:
    probe(Replica(build(config(**SHAPE))))


def test_a_window_that_the_layers_keep_to_their_masks_is_refused() -> None:
    for config in (
        PhimoeConfig(**SHAPE, sliding_window=4),
        Qwen2MoeConfig(**SHAPE, use_sliding_window=True, sliding_window=4),
    ):
        model = build(config)
        with pytest.raises(UsageError, match=r"sliding windows \[4, [04]\], but they ask the attention for \[0, 0\]"):
            TorchEngine(model, max_context=64)


def test_masks_of_a_models_own_are_refused() -> None:
    with pytest.raises(UsageError, match="Doge"):
        probe(Replica(build(DogeConfig(**SHAPE))))


def test_models_of_another_make_are_refused_or_right() -> None:
    """GPT-2 has learned positions and no rope; it takes the same road."""
    probe(Replica(build(GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=2))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_that_forgets_is_found_out(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Replica(tiny(dtype=dtype))
    probe(replica)
    monkeypatch.setattr(slot_attention, "_decode", lambda q, *rest: torch.zeros_like(q))
    with pytest.raises(UsageError, match="differ from the model's own"):
        probe(replica)
