"""The real renderer and the embedded engine under the whole rollout: what is handed to a trainer is what was sampled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

import agentrl as rl
from agentrl import models
from agentrl.engine import Sampling
from agentrl.envs.guess_number import GuessNumber
from agentrl.renderer import Renderer
from agentrl.rollout.engines.resuming import ResumingEngine
from agentrl.rollout.engines.torch_engine import TorchEngine
from agentrl.rollout.group import Setup
from agentrl.rollout.limits import Limits
from agentrl.rollout.manager import RolloutManager
from agentrl.rollout.publish import EnginePublisher
from agentrl.rollout.store import GroupStore
from agentrl.sample import samples_of
from tests.support.rollouts import schedule

TEMPERATURE = 0.8


class ThreeTurns(GuessNumber):
    max_turns = 3


@pytest.mark.parametrize("staleness", [0, 1])
def test_samples_hold_the_sampled_ids_with_the_models_own_logprobs(tmp_path: Path, staleness: int) -> None:
    torch.set_num_threads(1)
    loaded = models.load("tiny", dtype="float32")
    renderer = Renderer(loaded.tokenizer)

    async def main() -> list[Any]:
        engine = TorchEngine(loaded.model, slots=8, max_context=512, threads=1, decode=loaded.tokenizer.decode)
        limits = Limits(max_new_tokens=12, max_episode_tokens=400, episode_timeout=60.0, turn_timeout=60.0)
        setup = Setup(
            make_env=ThreeTurns,
            engine=ResumingEngine(engine, decode=loaded.tokenizer.decode, reseed=False),
            renderer=renderer,
            sampling=Sampling(temperature=TEMPERATURE),
            limits=limits,
        )
        publisher = EnginePublisher(engine, mode="keep", export=None, timeout=60.0)
        plan = schedule(staleness=staleness, step_timeout=100.0)
        groups: list[Any] = []
        async with RolloutManager(setup, ThreeTurns.tasks(), GroupStore(tmp_path), schedule=plan) as manager:
            for step in (1, 2):
                batch = await manager.next_batch(2)
                groups += batch
                await manager.trained(batch, step=step, version=await publisher.publish(step))
        await engine.aclose()
        return groups

    groups = asyncio.run(main())
    samples = samples_of(groups)
    assert len(samples) == 8
    for sample in samples:
        ids = torch.tensor([sample.ids])
        with torch.no_grad():
            reference = torch.log_softmax(loaded.model(ids).logits[0].float() / TEMPERATURE, dim=-1)
        banned = list(renderer.banned_ids)
        for i, trained in enumerate(sample.mask):
            if trained:
                row = reference[i - 1].clone()
                row[banned] = -torch.inf
                expected = (row - torch.logsumexp(row, 0))[sample.ids[i]]
                assert sample.logprobs[i] == pytest.approx(float(expected), abs=1e-4)
    for episode in (e for g in groups for e in g.episodes):
        assert_is_the_conversation(episode, loaded.tokenizer)


def assert_is_the_conversation(episode: rl.Episode, tokenizer: Any) -> None:
    """The ids, as text, hold each message in its place: the environment's in what is not trained."""
    roles = [segment.role for segment in episode.transcript]
    assert roles == ["prompt", "sampled", "observation", "sampled", "observation", "sampled"]
    asked = [m.text for m in episode.messages if m.role == "user"]
    shown = [tokenizer.decode(s.ids) for s in episode.transcript if s.role != "sampled"]
    assert all(question in text for question, text in zip(asked, shown, strict=False))
    assert len(episode.turns) == 3
