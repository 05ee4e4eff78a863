"""What ends an episode before its time: turns, tokens and seconds, each with what is kept of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

import agentrl as rl
from agentrl.episode import Outcome
from agentrl.rollout.seat import CLOSE_TIMEOUT
from agentrl.tool import tool
from tests.support.chat import ASSISTANT, END, USER, encode
from tests.support.clock import Clock
from tests.support.engine import FakeEngine, says
from tests.support.playing import CALL, Adder, Chatty, Closing, played, run
from tests.support.pool import FakePool
from tests.support.rollouts import limited
from tests.support.wait import until


def test_max_turns_truncates_and_keeps_the_rewards() -> None:
    episode = run(Chatty(), "a")
    assert (episode.outcome, len(episode.turns), episode.reward) == (Outcome.MAX_TURNS, 3, 3.0)
    assert episode.outcome.is_truncated
    assert [s.role for s in episode.transcript] == ["prompt", *(["sampled", "observation"] * 2), "sampled"]


# Budgets. The prompt "Hi" is 5 ids: <user> H i <end> <assistant>; "more" as an observation 7.


def test_a_turn_that_is_cut_by_length_reaches_the_environment() -> None:
    heard = []

    class Listener(rl.Env):
        def step(self, action: rl.Action) -> rl.Step:
            heard.append(action.text)
            return rl.done()

    limits = limited(max_new_tokens=3, max_episode_tokens=100)
    episode = run(Listener(), "abcdef", limits=limits)
    assert heard == ["abc"]
    assert episode.transcript.sampled_length == 3
    assert episode.outcome is Outcome.TERMINATED


def test_the_close_of_a_cut_turn_is_not_trained() -> None:
    limits = limited(max_new_tokens=3, max_episode_tokens=100)
    episode = run(Chatty(), "abcdef", limits=limits)
    assert episode.transcript.segments[2].ids == (END, USER, *encode("more"), END, ASSISTANT)
    assert episode.transcript.segments[2].mask == (0,) * 8


def test_the_last_turn_gets_what_is_left_of_the_episode() -> None:
    # 5 prompt + 3 ("ab" and its end) + 7 observation = 15, so that 2 of 17 are left for the second turn
    episode = run(Chatty(), "ab", limits=limited(max_new_tokens=50, max_episode_tokens=17))
    assert [len(s) for s in episode.transcript] == [5, 3, 7, 2]
    assert (episode.outcome, len(episode.turns), episode.reward) == (Outcome.MAX_TOKENS, 2, 2.0)


def test_no_room_ends_the_transcript_with_the_last_sampled_id() -> None:
    episode = run(Chatty(), "ab", limits=limited(max_new_tokens=50, max_episode_tokens=15))
    assert [s.role for s in episode.transcript] == ["prompt", "sampled"]
    assert episode.messages[-1].text == "more"
    assert episode.outcome is Outcome.MAX_TOKENS


def test_the_engines_context_is_a_budget_too() -> None:
    episode = run(Chatty(), engine=FakeEngine(says("ab"), max_context=17))
    assert len(episode.transcript) == 17
    assert "an episode may have 17" in episode.error


def test_a_prompt_without_room_samples_nothing() -> None:
    episode = run(Chatty(), "ab", limits=limited(max_new_tokens=5, max_episode_tokens=5))
    assert (episode.outcome, episode.transcript.sampled_length, episode.turns) == (Outcome.MAX_TOKENS, 0, ())
    assert "has 5 tokens" in episode.error


# Turns that bring nothing count as well.


@pytest.mark.parametrize("said", [CALL, "<call>{not json}</call>", "no number"], ids=["calls", "unreadable calls", "no answer"])
def test_max_turns_ends_an_agent_that_never_answers(said: str) -> None:
    episode = run(Adder(), said)
    assert (episode.outcome, len(episode.turns)) == (Outcome.MAX_TURNS, 3)


# Seconds. Each deadline is of 20 s or more, which pass when the test says so.


def test_the_episodes_deadline_truncates_and_frees_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock, engine, env = Clock(monkeypatch), FakeEngine(says("a" * 150), tick=0.001), Closing()
        playing = asyncio.create_task(played(env, engine=engine))
        await until(lambda: engine.emitted >= 3)
        clock.let_pass(30.0)
        episode = await playing
        assert (episode.outcome, episode.outcome.is_truncated) == (Outcome.DEADLINE, True)
        assert episode.error == "the episode took longer than 20 s"
        assert (engine.running, env.closed, episode.turns) == (0, 1, ())

    asyncio.run(main())


def test_a_turns_deadline_truncates_after_a_turn_for_the_action(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Slow(Closing):
        async def step(self, action: rl.Action) -> rl.Step:
            clock.let_pass(30.0)
            await asyncio.sleep(60)
            return rl.done(reward=1.0)

    episode = run(Slow(), "a", limits=limited(episode_timeout=50.0))
    assert (episode.outcome, len(episode.turns), episode.reward) == (Outcome.DEADLINE, 1, 0.0)
    assert episode.error == "turn 1 took longer than 20 s"


def test_a_slow_reset_is_cut_by_a_turns_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Slow(Closing):
        async def reset(self, task: rl.Task) -> str:
            clock.let_pass(30.0)
            await asyncio.sleep(60)
            return "Hi"

    env = Slow()
    episode = run(env, "a", limits=limited(episode_timeout=50.0))
    assert (episode.outcome, episode.error) == (Outcome.DEADLINE, "reset took longer than 20 s")
    assert (episode.turns, env.closed) == ((), 1)


@pytest.mark.parametrize(
    ("seconds", "outcome", "error"),
    [
        (10.0, Outcome.TERMINATED, ""),
        (30.0, Outcome.DEADLINE, "turn 1 took longer than 20 s"),
        (60.0, Outcome.DEADLINE, "the episode took longer than 50 s"),
    ],
    ids=["tool", "turn", "episode"],
)
def test_of_nested_deadlines_each_ends_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, seconds: float, outcome: Outcome, error: str
) -> None:
    """Tool, turn and episode may take 5, 20 and 50 s: a tool that is late is told to the model, the others truncate."""
    clock = Clock(monkeypatch)

    class Late(Adder):
        @tool(timeout=5)
        async def add(self, a: int, b: int) -> int:
            """Adds."""
            clock.let_pass(seconds)
            await asyncio.sleep(60)
            return a + b

    episode = run(Late(), CALL, "5", limits=limited(episode_timeout=50.0))
    assert (episode.outcome, episode.error) == (outcome, error)
    if outcome is Outcome.TERMINATED:
        assert episode.messages[2].text == "Error: add took longer than 5 s and was stopped"
        assert [turn.tool_errors for turn in episode.turns] == [1, 0]


def test_a_grader_that_hangs_is_an_error_and_no_low_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Graded(rl.Env):
        @rl.reward()
        async def tests(self) -> float:
            clock.let_pass(30.0)
            await asyncio.sleep(60)
            return 1.0

    episode = run(Graded(), "a")
    assert (episode.outcome, episode.error) == (Outcome.ENV_ERROR, "RewardError: grading took longer than 20 s")
    assert episode.rewards == {}


def test_an_environment_that_does_not_close_is_an_error_and_keeps_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pool = Clock(monkeypatch), FakePool()

    class Stuck(rl.Env):
        sandbox = rl.SandboxSpec()

        async def step(self, action: rl.Action) -> rl.Step:
            await self.sandbox.python("1")
            return rl.done(reward=1.0)

        async def close(self) -> None:
            clock.let_pass(CLOSE_TIMEOUT + 1.0)
            await asyncio.sleep(60)

    episode = run(Stuck(), "a", pool=pool)
    assert (episode.outcome, episode.rewards) == (Outcome.ENV_ERROR, {})
    assert "closing took longer than 30 s" in episode.error
    assert (pool.acquired, pool.open) == (1, 0)


def test_a_sync_environment_that_hangs_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, release = Clock(monkeypatch), threading.Event()
    stuck: list[threading.Thread] = []

    async def main() -> rl.Episode:
        loop = asyncio.get_running_loop()

        class Stuck(rl.Env):
            def step(self, action: rl.Action) -> rl.Step:
                stuck.append(threading.current_thread())
                loop.call_soon_threadsafe(clock.let_pass, 30.0)
                release.wait(60)
                return rl.done()

        return await played(Stuck(), "a")

    try:
        assert asyncio.run(main()).outcome is Outcome.DEADLINE
        assert stuck[0].is_alive()  # it is not joined at the end of asyncio.run
    finally:
        release.set()


def test_sync_environments_do_not_block_each_other_or_the_loop() -> None:
    """All sixteen must be in `step` at once before any may go on, while the loop still turns."""

    async def main() -> None:
        barrier = threading.Barrier(16, timeout=20)

        class Blocking(rl.Env):
            def step(self, action: rl.Action) -> rl.Step:
                barrier.wait()
                return rl.done(reward=1.0)

        episodes = await asyncio.gather(*(played(Blocking(), "a") for _ in range(16)))
        assert [e.reward for e in episodes] == [1.0] * 16

    asyncio.run(main())
