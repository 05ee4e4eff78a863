"""The sandboxes of an episode: opened late, counted, waited for without a deadline, and given back however it ends."""

from __future__ import annotations

import asyncio

import pytest

import agentrl as rl
from agentrl.episode import Outcome
from agentrl.tool import tool
from tests.support.clock import Clock
from tests.support.engine import FakeEngine, says
from tests.support.playing import CALL, Closing, played, run
from tests.support.pool import FakePool
from tests.support.rollouts import limited
from tests.support.wait import until


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
def test_waiting_for_a_free_sandbox_counts_against_no_deadline(monkeypatch: pytest.MonkeyPatch, limit: str, where: str) -> None:
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
        clock, pool = Clock(monkeypatch), FakePool(slots=1)
        holder = await pool.acquire()
        limits = limited(**{"turn_timeout": 500.0, "episode_timeout": 500.0, limit: 20.0})
        playing = asyncio.create_task(played(Waits(), "a", pool=pool, limits=limits))
        await until(lambda: pool.waiting == 1)
        clock.let_pass(30.0)
        await asyncio.sleep(0.001)  # what is due now ends the wait
        assert pool.waiting == 1
        await holder.aclose()
        episode = await playing
        assert (episode.outcome, episode.reward, episode.error) == (Outcome.TERMINATED, 1.0, "")

    asyncio.run(main())


def test_what_is_done_with_the_sandbox_counts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Slow(rl.Env):
        sandbox = rl.SandboxSpec()

        async def step(self, action: rl.Action) -> rl.Step:
            await self.sandbox.python("1")
            clock.let_pass(30.0)
            await asyncio.sleep(60)
            return rl.done()

    episode = run(Slow(), "a", pool=FakePool(), limits=limited(episode_timeout=50.0))
    assert (episode.outcome, episode.error) == (Outcome.DEADLINE, "turn 1 took longer than 20 s")


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


def test_a_grader_of_a_fresh_sandbox_cannot_use_the_agents_any_more() -> None:
    class Peeks(Boxed):
        @rl.reward()
        async def tests(self, fresh: rl.Sandbox) -> float:
            return float((await self.sandbox.python("grade")).ok)

    pool = FakePool()
    episode = run(Peeks(), CALL, "done", pool=pool)
    assert (episode.outcome.is_aborted, episode.rewards) == (True, {})
    assert "this sandbox is closed" in episode.error
    assert (pool.acquired, pool.open) == (2, 0)


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
