"""The answer tool: what is handed in reaches `step`, as a final message would."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import agentrl as rl
from tests.support.playing import played


class Sum(rl.Env):
    tools = ("answer",)
    max_turns = 4

    def reset(self, task: rl.Task) -> str:
        return "What is 2 + 3?"

    async def step(self, action: rl.Action) -> Any:
        if action.parse(int) == 7:
            raise KeyError("seven")
        if action.parse(int) != 5:
            return "No. Try again.", 0.25
        return rl.done("Yes.", reward=1.0)


def hand_in(answer: str) -> str:
    return f"<call>{json.dumps({'name': 'answer', 'arguments': {'answer': answer}})}</call>"


def test_an_answer_ends_the_episode_with_its_reward() -> None:
    episode = asyncio.run(played(Sum(), hand_in("It is 5.")))
    assert (episode.outcome, episode.reward) == (rl.Outcome.TERMINATED, 1.0)
    assert (episode.messages[-1].role, episode.messages[-1].text) == ("tool", "Yes.")


def test_what_is_not_the_end_goes_on() -> None:
    episode = asyncio.run(played(Sum(), hand_in("4"), hand_in("many"), "5"))
    assert (episode.outcome, episode.reward) == (rl.Outcome.TERMINATED, 1.25)
    assert [message.text for message in episode.messages if message.role == "tool"] == [
        "No. Try again.",
        "Error: Your answer must hold a whole number.",
    ]
    assert [turn.tool_errors for turn in episode.turns] == [0, 1, 0]


def test_a_fault_of_the_environment_keeps_its_place() -> None:
    episode = asyncio.run(played(Sum(), hand_in("7")))
    assert episode.outcome is rl.Outcome.TOOL_CRASH
    assert "KeyError: 'seven'" in episode.error
    assert any("test_answer.py" in frame and "Sum.step" in frame for frame in episode.trace)
