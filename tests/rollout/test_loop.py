"""One episode: its tokens worked out by hand, every way it can end, and what is closed when it does."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import agentrl as rl
from agentrl.engine import Completion, EngineDead, EngineError, GenerateRequest, Sampling
from agentrl.episode import Outcome
from agentrl.messages import Message, ToolCall
from agentrl.rollout.limits import Limits
from agentrl.rollout.loop import play
from agentrl.sandbox import IsolationError, SandboxLost
from agentrl.tool import ToolCrash, tool
from agentrl.transcript import Segment, Transcript
from tests.support.chat import ASSISTANT, END, TOOL, USER, CharRenderer, encode
from tests.support.engine import FakeEngine, resuming, says
from tests.support.pool import FakePool
from tests.support.wait import until

TASK = rl.Task(id="t", prompt="Hi")


def limited(**limits: Any) -> Limits:
    return Limits(
        **{"max_new_tokens": 200, "max_episode_tokens": 2000, "episode_timeout": 20.0, "turn_timeout": 20.0, **limits}
    )


async def played(env: rl.Env, *texts: str, engine: Any = None, limits: Limits = limited(), **more: Any) -> rl.Episode:
    renderer = more.pop("renderer", CharRenderer())
    task, sampling = more.pop("task", TASK), more.pop("sampling", Sampling(seed=5))
    engine = engine or FakeEngine(says(*texts))
    return await play(
        env, resuming(engine), renderer, task, seed=7, sampling=sampling, limits=limits, id="e", group="g", **more
    )


def run(env: rl.Env, *texts: str, **more: Any) -> rl.Episode:
    return asyncio.run(played(env, *texts, **more))


class Closing(rl.Env):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


class Adder(Closing):
    """Two turns: a tool call, then the answer."""

    max_turns = 3

    @tool
    def add(self, a: int, b: int) -> int:
        """Adds."""
        return a + b

    def step(self, action: rl.Action) -> rl.Step:
        return rl.done("Yes.", reward=float(action.parse(int) == 5))


CALL = '<call>{"name": "add", "arguments": {"a": 2, "b": 3}}</call>'


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


class Chatty(Closing):
    """Never ends by itself; counts a point each turn."""

    max_turns = 3

    def step(self, action: rl.Action) -> tuple[str, float]:
        return "more", 1.0


def test_max_turns_truncates_and_keeps_the_rewards() -> None:
    episode = run(Chatty(), "a")
    assert (episode.outcome, len(episode.turns), episode.reward) == (Outcome.MAX_TURNS, 3, 3.0)
    assert episode.outcome.is_truncated
    assert [s.role for s in episode.transcript] == ["prompt", *(["sampled", "observation"] * 2), "sampled"]


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


# Endings that are nobody's fault but ours.


class Broken(Closing):
    def __init__(self, error: BaseException, where: str = "step") -> None:
        self.error, self.where = error, where

    def reset(self, task: rl.Task) -> str:
        if self.where == "reset":
            raise self.error
        return "Hi"

    def step(self, action: rl.Action) -> rl.Step:
        if self.where == "step":
            raise self.error
        return rl.done(reward=1.0)

    async def close(self) -> None:
        await super().close()
        if self.where == "close":
            raise self.error


@pytest.mark.parametrize("where", ["reset", "step", "close"])
def test_an_exception_of_the_environment_aborts_the_episode(where: str) -> None:
    env = Broken(KeyError("lost"), where)
    episode = run(env, "a")
    assert (episode.outcome, episode.error, episode.rewards) == (Outcome.ENV_ERROR, "KeyError: 'lost'", {})
    assert episode.outcome.is_aborted
    assert env.closed == 1


def test_system_exit_of_user_code_does_not_end_the_run() -> None:
    assert run(Broken(SystemExit(3)), "a").outcome is Outcome.ENV_ERROR


def test_a_timeout_error_of_the_environment_is_not_our_deadline() -> None:
    assert run(Broken(TimeoutError("their server")), "a").outcome is Outcome.ENV_ERROR


def test_what_was_sampled_before_a_failure_is_kept_with_one_turn_for_each_action() -> None:
    episode = run(Broken(KeyError("lost")), "a")
    assert len(episode.turns) == 1
    assert [s.role for s in episode.transcript] == ["prompt", "sampled"]


@pytest.mark.parametrize("bad", ["", None])
def test_no_observation_and_no_end_is_an_error(bad: Any) -> None:
    class Silent(rl.Env):
        def step(self, action: rl.Action) -> Any:
            return bad

    episode = run(Silent(), "a")
    assert (episode.outcome, "no observation" in episode.error) == (Outcome.ENV_ERROR, True)


def test_a_reward_that_is_no_number_aborts() -> None:
    class Nan(rl.Env):
        def step(self, action: rl.Action) -> rl.Step:
            return rl.done(reward=float("nan"))

    assert run(Nan(), "a").outcome is Outcome.ENV_ERROR


def test_a_failing_reward_function_aborts_and_is_never_zero() -> None:
    class Graded(rl.Env):
        @rl.reward()
        def tests(self) -> float:
            raise ZeroDivisionError("grader")

    episode = run(Graded(), "a")
    assert (episode.outcome, episode.rewards) == (Outcome.ENV_ERROR, {})


class Tooled(Closing):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    @tool
    def add(self, a: int, b: int) -> int:
        """Adds."""
        raise self.error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ZeroDivisionError("x"), Outcome.TOOL_CRASH),
        (ToolCrash("x"), Outcome.TOOL_CRASH),
        (SandboxLost("x"), Outcome.SANDBOX_LOST),
    ],
)
def test_a_tool_that_crashes_aborts(error: Exception, outcome: Outcome) -> None:
    env = Tooled(error)
    episode = run(env, CALL)
    assert (episode.outcome, env.closed) == (outcome, 1)
    assert "x" in episode.error


def test_an_engine_error_aborts() -> None:
    env = Closing()
    episode = run(env, engine=FakeEngine(lambda _: EngineError("out of blocks")))
    assert (episode.outcome, episode.error, env.closed) == (Outcome.ENGINE_ERROR, "EngineError: out of blocks", 1)


@pytest.mark.parametrize("error", [EngineDead("gone"), rl.UsageError("wrong"), IsolationError("no namespaces")])
def test_what_no_episode_can_survive_ends_the_run(error: Exception) -> None:
    env = Closing()
    with pytest.raises(type(error)):
        run(env, engine=FakeEngine(lambda _: error))
    assert env.closed == 1


def test_the_episodes_deadline_truncates_and_frees_the_engine() -> None:
    async def main() -> None:
        engine = FakeEngine(says("a" * 150), tick=0.02)
        limits = limited(max_new_tokens=200, max_episode_tokens=2000, episode_timeout=0.1)
        env = Closing()
        episode = await played(env, engine=engine, limits=limits)
        assert (episode.outcome, episode.outcome.is_truncated) == (Outcome.DEADLINE, True)
        assert (engine.running, env.closed, episode.turns) == (0, 1, ())

    asyncio.run(main())


def test_a_turns_deadline_truncates_after_a_turn_for_the_action() -> None:
    class Slow(Closing):
        async def step(self, action: rl.Action) -> rl.Step:
            await asyncio.sleep(60)
            return rl.done(reward=1.0)

    limits = limited(turn_timeout=0.5)
    episode = run(Slow(), "a", limits=limits)
    assert (episode.outcome, len(episode.turns), episode.reward) == (Outcome.DEADLINE, 1, 0.0)
    assert episode.error == "turn 1 took longer than 0.5 s"


def test_a_grader_that_hangs_is_an_error_and_no_low_reward() -> None:
    class Graded(rl.Env):
        @rl.reward()
        async def tests(self) -> float:
            await asyncio.sleep(60)
            return 1.0

    episode = run(Graded(), "a", limits=limited(episode_timeout=0.5))
    assert (episode.outcome, "grading took longer" in episode.error) == (Outcome.ENV_ERROR, True)


def test_a_sync_environment_that_hangs_holds_nothing_up() -> None:
    class Stuck(rl.Env):
        def step(self, action: rl.Action) -> rl.Step:
            time.sleep(60)
            return rl.done()

    limits = limited(turn_timeout=0.5)
    before = time.monotonic()
    assert run(Stuck(), "a", limits=limits).outcome is Outcome.DEADLINE
    assert time.monotonic() - before < 30  # the thread is not joined at the end of asyncio.run


def test_sync_environments_do_not_block_each_other_or_the_loop() -> None:
    """All sixteen must be in `step` at once before any may go on, while the loop still turns."""

    async def main() -> None:
        import threading

        barrier = threading.Barrier(16, timeout=20)

        class Blocking(rl.Env):
            def step(self, action: rl.Action) -> rl.Step:
                barrier.wait()
                return rl.done(reward=1.0)

        episodes = await asyncio.gather(*(played(Blocking(), "a") for _ in range(16)))
        assert [e.reward for e in episodes] == [1.0] * 16

    asyncio.run(main())


# Sandboxes.


class Boxed(Closing):
    sandbox = rl.SandboxSpec()

    @tool
    async def add(self, a: int, b: int) -> rl.Exec:
        """Adds."""
        return await self.sandbox.python(f"{a}+{b}")


def test_the_sandbox_is_opened_at_first_use_counted_and_closed() -> None:
    pool = FakePool()
    episode = run(Boxed(), CALL, "done", pool=pool)
    assert episode.messages[2].text == "ran 2+3"
    assert (pool.acquired, pool.open, episode.metrics["sandbox_calls"]) == (1, 0, 1.0)


def test_an_episode_that_uses_no_sandbox_takes_none() -> None:
    pool = FakePool()
    assert run(Boxed(), "done", pool=pool).metrics["sandbox_calls"] == 0.0
    assert pool.acquired == 0


@pytest.mark.parametrize("limit", ["turn_timeout", "episode_timeout"])
@pytest.mark.parametrize("where", ["reset", "step", "grade"])
def test_waiting_for_a_free_sandbox_counts_against_no_deadline(limit: str, where: str) -> None:
    class Waits(rl.Env):
        sandbox = rl.SandboxSpec()

        async def reset(self, task: rl.Task) -> str:
            return "Go." if where != "reset" else (await self.sandbox.python("reset")).stdout

        async def step(self, action: rl.Action) -> rl.Step:
            if where == "step":
                await self.sandbox.python("step")
            return rl.done()

        @rl.reward()
        async def ran(self) -> float:
            return float(where != "grade" or (await self.sandbox.python("grade")).ok)

    async def main() -> None:
        pool = FakePool(slots=1)
        holder = await pool.acquire()
        playing = asyncio.create_task(played(Waits(), "a", pool=pool, limits=limited(**{limit: 0.5})))
        await asyncio.sleep(0.8)
        assert not playing.done()
        await holder.aclose()
        episode = await playing
        assert (episode.outcome, episode.reward, episode.error) == (Outcome.TERMINATED, 1.0, "")

    asyncio.run(main())


def test_what_is_done_with_the_sandbox_counts_again() -> None:
    class Slow(rl.Env):
        sandbox = rl.SandboxSpec()

        async def step(self, action: rl.Action) -> rl.Step:
            await self.sandbox.python("1")
            await asyncio.sleep(60)
            return rl.done()

    episode = run(Slow(), "a", pool=FakePool(), limits=limited(turn_timeout=0.3))
    assert (episode.outcome, episode.error) == (Outcome.DEADLINE, "turn 1 took longer than 0.3 s")


def test_a_sandbox_without_a_pool_is_a_usage_error() -> None:
    with pytest.raises(rl.UsageError, match="no sandbox pool"):
        run(Boxed(), "done")


def test_a_lost_sandbox_aborts_and_is_given_back() -> None:
    pool = FakePool(lost=True)
    episode = run(Boxed(), CALL, pool=pool)
    assert (episode.outcome, pool.acquired, pool.open) == (Outcome.SANDBOX_LOST, 1, 0)
    assert episode.metrics == {"sandbox_calls": 1.0}


def test_a_sandbox_that_cannot_be_closed_is_not_silent() -> None:
    pool = FakePool(close_fails=True)
    episode = run(Boxed(), CALL, "done", pool=pool)
    assert (episode.outcome, episode.error) == (Outcome.ENV_ERROR, "RuntimeError: cannot unmount")


class Grading(Boxed):
    @rl.reward()
    async def tests(self, fresh: rl.Sandbox) -> float:
        result = await fresh.python("grade")
        return float(result.stdout == "ran grade")


def test_graders_get_a_fresh_sandbox_even_when_agents_hold_all() -> None:
    """Four episodes, two slots: if agents kept theirs while graders waited for a second one, all would wait for ever."""

    async def main() -> None:
        pool = FakePool(slots=2)
        engine = FakeEngine(says(CALL, "done"), tick=0.0)
        episodes = await asyncio.gather(*(played(Grading(), engine=engine, pool=pool) for _ in range(4)))
        assert [(e.outcome, e.reward) for e in episodes] == [(Outcome.TERMINATED, 1.0)] * 4
        assert (pool.acquired, pool.open) == (8, 0)

    asyncio.run(main())


def test_cancellation_closes_environment_and_sandbox_and_frees_the_engine() -> None:
    async def main() -> None:
        pool, env = FakePool(), Boxed()
        engine = FakeEngine(says(CALL, "a" * 150), tick=0.005)
        task = asyncio.create_task(played(env, engine=engine, pool=pool))
        await until(lambda: len(engine.requests) == 2)  # in the second turn, with the sandbox open
        assert (pool.open, engine.running) == (1, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (pool.open, env.closed, engine.running) == (0, 1, 0)

    asyncio.run(main())


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

    def start(task: str) -> str:
        return run(Dice(), "a", task=rl.Task(id=task)).messages[0].text

    assert start("a") == start("a") != start("b")


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


@pytest.mark.parametrize(("count", "finish"), [(21, "length"), (0, "stop"), (5, "abort")])
def test_an_engine_that_does_not_do_what_was_asked_is_at_fault(count: int, finish: Any) -> None:
    class Odd:
        max_context = 100

        async def generate(self, request: GenerateRequest) -> Completion:
            return Completion(ids=(65,) * count, logprobs=(-1.0,) * count, versions=(0,) * count, finish=finish)

    limits = limited(max_new_tokens=20)
    coroutine = play(rl.Env(), Odd(), CharRenderer(), TASK, seed=0, sampling=Sampling(), limits=limits)
    assert asyncio.run(coroutine).outcome is Outcome.ENGINE_ERROR
