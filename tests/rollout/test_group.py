"""Siblings: the same start, draws of their own, retries, and what an aborted one means for the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentrl as rl
from agentrl.engine import EngineDead, EngineError
from agentrl.episode import EpisodeGroup, Outcome, RolloutError
from agentrl.rollout.group import Start, Watch, all_equal, play_group, unusable
from tests.support.engine import FakeEngine
from tests.support.episodes import Numbered, episode, group
from tests.support.rollouts import Paid, draws, setup

ABORTED = Outcome.TOOL_CRASH


def play(engine: Any, *, size: int = 4, number: int = 0, reports: list[Any] | None = None, **more: Any) -> EpisodeGroup:
    kept = more.pop("kept", {})
    start = Start(id=f"g{number}", task=Numbered().get(number), size=size, number=number, kept=kept)
    made = setup(engine, **more)
    log = reports if reports is not None else []
    return asyncio.run(play_group(made, start, engine=made.engine, report=lambda e, final: log.append((e, final))))


def test_siblings_share_the_start_and_draw_for_themselves() -> None:
    class Dice(rl.Env):
        def reset(self, task: rl.Task) -> str:
            return str(self.rng.random())

    engine = FakeEngine(draws)
    played = play(engine, make_env=Dice)
    assert [(e.id, e.index) for e in played.episodes] == [("g0-0", 0), ("g0-1", 1), ("g0-2", 2), ("g0-3", 3)]
    assert len({e.messages[0].text for e in played.episodes}) == 1
    assert len({e.seed for e in played.episodes}) == 1
    assert len({r.sampling.seed for r in engine.requests}) == 4
    again, other = play(draws, make_env=Dice), play(draws, make_env=Dice, number=1)
    assert [e.transcripts for e in again.episodes] == [e.transcripts for e in played.episodes]
    assert other.episodes[0].messages[0] != played.episodes[0].messages[0]


def test_worlds_and_draws_are_of_the_runs_seed() -> None:
    class Dice(rl.Env):
        def reset(self, task: rl.Task) -> str:
            return str(self.rng.random())

    starts, draws_of = [], []
    for seed in (1, 1, 2):
        engine = FakeEngine(draws)
        starts.append(play(engine, make_env=Dice, seed=seed).episodes[0].messages[0].text)
        draws_of.append({request.sampling.seed for request in engine.requests})
    assert starts[0] == starts[1] != starts[2]
    assert draws_of[0] == draws_of[1]
    assert not draws_of[1] & draws_of[2]


def test_siblings_play_at_the_same_time() -> None:
    engine = FakeEngine(draws, tick=0.0)
    play(engine)
    assert engine.most_running == 4


class FailsFirst:
    """An engine's script that fails the first `count` requests."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.seeds: list[Any] = []

    def __call__(self, request: Any) -> Any:
        self.seeds.append(request.sampling.seed)
        self.left -= 1
        return EngineError("once") if self.left >= 0 else "1"


def test_an_aborted_sibling_is_played_again_with_other_draws() -> None:
    script, reports = FailsFirst(2), []
    played = play(script, size=1, retries=2, reports=reports)
    assert played.episodes[0].reward == 1.0
    assert [(e.outcome, final) for e, final in reports] == [
        (Outcome.ENGINE_ERROR, False),
        (Outcome.ENGINE_ERROR, False),
        (Outcome.TERMINATED, True),
    ]
    assert len(set(script.seeds)) == 3


def test_retries_come_to_an_end_and_the_others_are_not_harmed() -> None:
    reports: list[Any] = []
    played = play(FailsFirst(1), size=3, retries=0, reports=reports)
    assert sorted(e.outcome for e in played.episodes) == [Outcome.ENGINE_ERROR, Outcome.TERMINATED, Outcome.TERMINATED]
    assert len(played.usable) == 2
    assert all(final for _, final in reports)


def test_kept_siblings_are_not_played_again() -> None:
    engine, kept = FakeEngine(draws), {0: episode(0, 0), 2: episode(0, 2)}
    played = play(engine, size=3, kept=kept)
    assert (played.episodes[0], played.episodes[2]) == (kept[0], kept[2])
    assert len(engine.requests) == 1


def test_what_ends_the_run_stops_the_siblings() -> None:
    closed = []

    class Closing(Paid):
        async def close(self) -> None:
            closed.append(1)

    def script(request: Any) -> Any:
        script.calls += 1  # type: ignore[attr-defined]
        return EngineDead("gone") if script.calls == 3 else "1" * 100  # type: ignore[attr-defined]

    script.calls = 0  # type: ignore[attr-defined]
    engine = FakeEngine(script, tick=0.01)
    with pytest.raises(EngineDead, match="gone"):
        play(engine, make_env=Closing, retries=5)
    assert (len(closed), engine.running) == (4, 0)


def test_what_is_done_about_aborted_siblings() -> None:
    whole = group(0, episode(0, 0), episode(0, 1))
    part = group(0, episode(0, 0), episode(0, 1, outcome=ABORTED))
    none = group(0, episode(0, 0, outcome=ABORTED))
    assert unusable(whole, "drop") == unusable(part, "mask") == unusable(whole, "stop") == ""
    assert unusable(part, "drop") == unusable(none, "mask") == "aborted"
    with pytest.raises(RolloutError, match=r"g0-1 was aborted \(tool_crash\): it broke"):
        unusable(part, "stop")


def test_a_group_without_a_difference_teaches_nothing() -> None:
    assert all_equal(group(0, episode(0, 0), episode(0, 1), episode(0, 2, outcome=ABORTED)))
    assert not all_equal(group(0, episode(0, 0), episode(0, 1, reward=0.0)))
    assert all_equal(group(0, episode(0, 0)))


def test_a_watch_knows_the_oldest_token() -> None:
    watch = Watch(engine=FakeEngine(draws))
    assert watch.oldest is None
    for version, oldest in [(-1, None), (4, 4), (3, 3), (5, 3)]:
        watch.note(version)
        assert watch.oldest == oldest


def test_what_one_sibling_or_its_reward_does_to_the_task_no_other_sees() -> None:
    class Takes(rl.Env):
        def reset(self, task: rl.Task) -> str:
            return f"{task.public['cases'].pop()} {task.secret['answers'].pop()}"

        @rl.reward()
        def last(self, task: rl.Task, episode: rl.Episode) -> float:
            return float(task.secret["answers"].pop() * 10 + episode.task.public["cases"].pop())

    task = rl.Task(id="t", public={"cases": [1, 2, 3]}, secret={"answers": [7, 8, 9]})
    start = Start(id="g0", task=task, size=3)
    made = setup(FakeEngine(draws), make_env=Takes)
    played = asyncio.run(play_group(made, start, engine=made.engine, report=lambda *_: None))
    assert [e.messages[0].text for e in played.episodes] == ["3 9"] * 3
    assert [e.reward for e in played.episodes] == [93.0] * 3
    assert (task.public["cases"], task.secret["answers"]) == ([1, 2, 3], [7, 8, 9])
