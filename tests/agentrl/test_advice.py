"""What is said of episodes that came to nothing: the commonest end, how many, the first one's words, and the key to raise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrl.advice import commonest, key_for
from agentrl.episode import Episode, Outcome
from tests.support.episodes import episode


def ended(outcome: Outcome, error: str, **more: object) -> Episode:
    return replace(episode(outcome=outcome), error=error, **more)


def test_the_commonest_end_is_told_with_the_words_of_the_first_that_ended_so() -> None:
    episodes = [
        episode(),
        ended(Outcome.ENV_ERROR, "KeyError: 'x'", trace=("mine.py:4 in Mine.step\n    return {}['x']",)),
        ended(Outcome.ENV_ERROR, "KeyError: 'y'"),
    ]
    assert commonest(episodes) == "2 of 3 episodes ended as env_error: KeyError: 'x' (mine.py:4 in Mine.step)"


@pytest.mark.parametrize(
    ("outcome", "error", "key"),
    [
        (Outcome.MAX_TOKENS, "the conversation has 9 tokens; an episode may have 8", "sampling.max_episode_tokens"),
        (Outcome.MAX_TURNS, "", "env.args.max_turns"),
        (Outcome.DEADLINE, "the episode took longer than 300 s", "rollout.episode_timeout"),
        (Outcome.DEADLINE, "turn 2 took longer than 120 s", "rollout.turn_timeout"),
        (Outcome.ENV_ERROR, "RewardError: grading took longer than 300 s", "rollout.episode_timeout"),
        (Outcome.ENGINE_ERROR, "EngineError: a generation took more than request_timeout=9 s of an", "engine.request_timeout"),
        (Outcome.ENGINE_ERROR, "EngineError: a generation and its continuations took more than 9 s", "rollout.step_timeout"),
    ],
)
def test_a_limit_names_its_key(outcome: Outcome, error: str, key: str) -> None:
    assert commonest([ended(outcome, error)]).partition("; raise ")[2].startswith(key)


def test_a_fault_of_the_environment_has_no_key() -> None:
    assert key_for(Outcome.ENV_ERROR, "ValueError: no") == ""
    assert key_for(Outcome.SANDBOX_LOST, "SandboxLost: gone") == ""
