"""One episode: its tokens worked out by hand, what a turn may be, and what is drawn from which seed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentrl as rl
from agentrl.episode import Outcome
from agentrl.messages import Message, ToolCall
from agentrl.transcript import Segment, Transcript
from tests.support.chat import ASSISTANT, END, TOOL, USER, CharRenderer, encode
from tests.support.engine import FakeEngine, says
from tests.support.playing import CALL, Adder, Chatty, Closing, played, run
from tests.support.rollouts import limited
from tests.support.wait import until


def test_two_turns_with_a_tool_by_hand() -> None:
    env = Adder()
    episode = run(env, CALL, "It is 5")
    first, second = (*encode(CALL), END), (*encode("It is 5"), END)
    assert episode.transcripts == (
        Transcript(
            [
                Segment(role="prompt", ids=(USER, *encode("Hi"), END, ASSISTANT)),
                Segment(role="sampled", ids=first, logprobs=(-0.5,) * len(first), versions=(0,) * len(first)),
                Segment(role="observation", ids=(TOOL, *encode("5"), END, ASSISTANT)),
                Segment(role="sampled", ids=second, logprobs=(-0.5,) * len(second), versions=(0,) * len(second)),
            ]
        ),
    )
    assert [m.role for m in episode.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert episode.messages[1].tool_calls == (ToolCall(id="call_0", name="add", arguments={"a": 2, "b": 3}),)
    assert episode.messages[2] == Message(role="tool", content="5", tool_call_id="call_0", name="add")
    assert [(t.tool_calls, t.tool_errors, t.reward) for t in episode.turns] == [(1, 0, 0.0), (0, 0, 1.0)]
    assert (episode.outcome, episode.reward, episode.error) == (Outcome.TERMINATED, 1.0, "")
    assert env.closed == 1


def test_the_first_message_is_the_system_prompt() -> None:
    class Polite(rl.Env):
        system_prompt = "Be kind."

    episode = run(Polite(), "ok")
    assert [(m.role, m.text) for m in episode.messages] == [("system", "Be kind."), ("user", "Hi"), ("assistant", "ok")]


def test_without_tools_what_looks_like_a_call_is_the_answer() -> None:
    seen: list[rl.Action] = []

    class Plain(rl.Env):
        def step(self, action: rl.Action) -> rl.Step:
            seen.append(action)
            return rl.done()

    run(Plain(), CALL)
    assert [(action.text, action.tool_calls) for action in seen] == [(CALL, ())]


def test_a_misread_call_is_answered_and_counted() -> None:
    episode = run(Adder(), "<call>{not json}</call>", "5")
    assert episode.turns[0].parse_error.startswith("This tool call could not be read")
    assert episode.turns[0].tool_calls == 0
    assert episode.messages[2].role == "user"
    assert episode.outcome is Outcome.TERMINATED


def test_readable_calls_run_beside_a_misread_one() -> None:
    episode = run(Adder(), CALL + "<call>{not json}</call>", "5")
    assert [m.role for m in episode.messages[2:4]] == ["tool", "user"]
    assert (episode.turns[0].tool_calls, bool(episode.turns[0].parse_error)) == (1, True)


def test_an_unknown_tool_is_a_counted_tool_error() -> None:
    episode = run(Adder(), CALL.replace("add", "ad"), "5")
    assert episode.turns[0].tool_errors == 1
    assert "did you mean 'add'" in episode.messages[2].text


def test_a_parse_error_of_step_goes_back_to_the_model() -> None:
    episode = run(Adder(), "no number", "5")
    assert episode.turns[0].parse_error == episode.messages[2].text == "Your answer must hold a whole number."
    assert (episode.outcome, episode.reward) == (Outcome.TERMINATED, 1.0)


def test_an_environment_may_truncate_itself() -> None:
    class Gym(rl.Env):
        def step(self, action: rl.Action) -> Any:
            return "late", 0.25, False, True, {}

    episode = run(Gym(), "a")
    assert (episode.outcome, episode.reward) == (Outcome.MAX_TURNS, 0.25)


def test_reset_may_give_gymnasiums_pair() -> None:
    class Gym(rl.Env):
        def reset(self, task: rl.Task) -> Any:
            return "look", {"info": 1}

    assert run(Gym(), "a").messages[0].text == "look"


def test_an_instance_is_played_once() -> None:
    env = Closing()
    run(env, "a")
    with pytest.raises(rl.UsageError, match="has been played"):
        run(env, "a")


# Seeds, forks, weight updates.


def test_the_worlds_randomness_is_of_task_and_seed() -> None:
    class Dice(rl.Env):
        def reset(self, task: rl.Task) -> str:
            return str(self.rng.randint(0, 10**9))

    def start(task: str, seed: int) -> str:
        return run(Dice(), "a", task=rl.Task(id=task), seed=seed).messages[0].text

    assert start("a", 1) == start("a", 1)
    assert len({start("a", 1), start("a", 2), start("b", 1)}) == 3


def test_each_turn_has_a_sampling_seed_of_its_own() -> None:
    engine = FakeEngine(says("a"))
    run(Chatty(), engine=engine)
    seeds = [r.sampling.seed for r in engine.requests]
    assert len(set(seeds)) == 3
    other = FakeEngine(says("a"))
    run(Chatty(), engine=other)
    assert [r.sampling.seed for r in other.requests] == seeds
    assert all(r.sampling.stop_ids == (END,) and USER in r.sampling.banned_ids for r in engine.requests)
    assert {r.session_id for r in engine.requests} == {"e"}


def test_a_template_that_rewrites_history_forks_a_transcript() -> None:
    episode = run(Chatty(), "a", renderer=CharRenderer(fork_at=2))
    first, second = episode.transcripts
    assert [s.role for s in first] == ["prompt", "sampled"]
    assert [s.role for s in second] == ["prompt", "sampled", "observation", "sampled"]
    assert second.segments[0].ids == CharRenderer().render(episode.messages[:3])
    assert len(episode.turns) == 3


@pytest.mark.parametrize("mode", ["keep", "abort"])
def test_a_generation_goes_on_over_weight_updates(mode: Any) -> None:
    """Tokens and logprobs are as without the update; each token keeps the version that sampled it."""

    async def main() -> None:
        engine = FakeEngine(says("abcdefghij" * 4), tick=0.004)
        task = asyncio.create_task(played(rl.Env(), engine=engine))
        for version in (1, 2):
            await until(lambda seen=10 * version: engine.emitted >= seen)
            await engine.update(version, mode)
        episode = await task
        sampled = episode.transcript.segments[1]
        assert sampled.ids == (*encode("abcdefghij" * 4), END)
        assert len(sampled.logprobs) == len(sampled.versions) == 41
        assert list(sampled.versions) == sorted(sampled.versions)
        assert set(sampled.versions) == {0, 1, 2}
        assert episode.versions == (0, 2)

    asyncio.run(main())


def test_a_resumed_generation_keeps_its_budget() -> None:
    async def main() -> None:
        engine = FakeEngine(says("a" * 100), tick=0.003)
        limits = limited(max_new_tokens=30, max_episode_tokens=500)
        task = asyncio.create_task(played(rl.Env(), engine=engine, limits=limits))
        await until(lambda: engine.emitted >= 10)
        await engine.update(1, "abort")
        episode = await task
        assert episode.transcript.sampled_length == 30
        assert len(engine.requests) == 2
        assert engine.requests[1].max_new_tokens < 30

    asyncio.run(main())
