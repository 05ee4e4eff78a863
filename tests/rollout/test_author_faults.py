"""What an author's code raises while an episode is played: kept with its frames, and said with file, line and method."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import agentrl as rl
from agentrl.engine import EngineError, Sampling
from agentrl.episode import EpisodeFailed, Outcome, RolloutError, from_json, to_json
from agentrl.load import load
from agentrl.rollout.group import Start, aborted, play_group, unusable
from agentrl.rollout.loop import play
from agentrl.rollout.tally import AbortRate
from tests.support.chat import CharRenderer
from tests.support.engine import FakeEngine, resuming, says
from tests.support.rollouts import limited, setup

CALL = '<call>{"name": "look", "arguments": {}}</call>'

MINE = '''
import json

import agentrl as rl


def read(text):
    return json.loads(text)


class Reset(rl.Env):
    def reset(self, task):
        return read("{")


class Step(rl.Env):
    async def step(self, action):
        return {}["left"]


class Gives(rl.Env):
    def step(self, action):
        return object()


class Nan(rl.Env):
    def step(self, action):
        return rl.done(reward=float("nan"))


class Silent(rl.Env):
    def step(self, action):
        return ""


class Looks(rl.Env):
    @rl.tool
    def look(self) -> str:
        """Looks."""
        return 1 / 0


class Rewards(rl.Env):
    @rl.reward
    def right(self, episode):
        return episode.nothing


class Text(rl.Env):
    @rl.reward
    def right(self):
        return "1"


class Exits(rl.Env):
    def step(self, action):
        raise SystemExit(3)


class Chained(rl.Env):
    def step(self, action):
        try:
            read("{")
        except ValueError as error:
            raise RuntimeError("no answer") from error


class Recursive(rl.Env):
    def step(self, action):
        return self.step(action)
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return load(tmp_path / "mine.py")


def played(env: rl.Env, text: str = "a", engine: Any = None) -> rl.Episode:
    engine = resuming(engine or FakeEngine(says(text)))
    task = rl.Task(id="t", prompt="Hi")
    return asyncio.run(
        play(env, engine, CharRenderer(), task, seed=7, sampling=Sampling(seed=5), limits=limited(), id="g0-1", group="g0")
    )


def line(source: str) -> int:
    """The number of the first line that holds this text."""
    return next(number for number, text in enumerate(MINE.splitlines(), 1) if source in text)


@pytest.mark.parametrize(
    ("name", "said", "text", "error", "source"),
    [
        ("Reset", "a", "read", "JSONDecodeError: Expecting property name", "return json.loads(text)"),
        ("Step", "a", "Step.step", "KeyError: 'left'", 'return {}["left"]'),
        ("Looks", CALL, "Looks.look", "ToolCrash: tool look raised ZeroDivisionError: division by zero", "return 1 / 0"),
        ("Rewards", "a", "Rewards.right", "RewardError: reward 'right' raised AttributeError", "return episode.nothing"),
        ("Exits", "a", "Exits.step", "RuntimeError: SystemExit: 3", "raise SystemExit(3)"),
        ("Chained", "a", "Chained.step", "RuntimeError: no answer", 'raise RuntimeError("no answer") from error'),
    ],
)
def test_an_exception_is_kept_with_the_authors_frames(
    mine: ModuleType, name: str, said: str, text: str, error: str, source: str
) -> None:
    episode = played(getattr(mine, name)(), said)
    assert episode.outcome is (Outcome.TOOL_CRASH if name == "Looks" else Outcome.ENV_ERROR)
    assert episode.error.startswith(error)
    assert episode.trace[-1] == f"mine.py:{line(source)} in {text}\n    {source}"
    assert episode.reason.endswith(f"(mine.py:{line(source)} in {text})")
    assert all(frame.startswith("mine.py:") for frame in episode.trace)
    again = from_json(to_json(episode))
    assert (again.error, again.trace, again.reason) == (episode.error, episode.trace, episode.reason)


def test_the_frames_are_the_outermost_first(mine: ModuleType) -> None:
    outer, inner = played(mine.Reset()).trace
    assert outer == f'mine.py:{line("return read(")} in Reset.reset\n    return read("{{")'
    assert inner.startswith(f"mine.py:{line('return json.loads')} in read")


@pytest.mark.parametrize(
    ("name", "method", "error"),
    [
        ("Gives", "step", "TypeError"),
        ("Silent", "step", "ValueError: step gave no observation and did not end the episode"),
        ("Nan", "step", "ValueError: a step gave the reward nan; it must be a finite number"),
        ("Text", "right", "RewardError: reward 'right' gave '1'; it must be a finite number"),
    ],
)
def test_what_is_wrong_with_a_value_is_said_of_the_method_that_gave_it(
    mine: ModuleType, name: str, method: str, error: str
) -> None:
    episode = played(getattr(mine, name)())
    first = line(f"class {name}(")
    at = next(n for n, text in enumerate(MINE.splitlines(), 1) if n > first and text.lstrip().startswith(("def ", "@")))
    assert episode.error.startswith(error)
    assert episode.trace == (f"mine.py:{at} in {name}.{method}",)


def test_a_recursion_without_an_end_keeps_a_few_frames(mine: ModuleType) -> None:
    episode = played(mine.Recursive())
    assert episode.error.startswith("RecursionError")
    assert 0 < len(episode.trace) <= 12


def test_what_is_not_the_authors_fault_names_no_line_of_theirs() -> None:
    episode = played(rl.Env(), engine=FakeEngine(lambda _: EngineError("out of blocks")))
    assert (episode.error, episode.trace, episode.reason) == ("EngineError: out of blocks", (), "EngineError: out of blocks")


def test_an_error_that_holds_an_array_is_cut() -> None:
    class Long(rl.Env):
        def step(self, action: rl.Action) -> Any:
            raise ValueError("x" * 100_000)

    assert len(played(Long()).error) < 3000


def test_the_runs_last_words_name_file_line_and_method_and_come_from_the_trace(mine: ModuleType) -> None:
    place = f"mine.py:{line('return {}')} in Step.step"
    episode = played(mine.Step())
    error = aborted(episode)
    assert str(error) == f"episode g0-1 was aborted (env_error): KeyError: 'left' ({place})"
    assert isinstance(error.__cause__, EpisodeFailed)
    assert str(error.__cause__) == f"episode g0-1\n  {place}\n    return {{}}[\"left\"]\n  KeyError: 'left'"


def test_a_group_that_ends_the_run_keeps_where_it_came_from(mine: ModuleType) -> None:
    def report(episode: rl.Episode, final: bool) -> None:
        raise aborted(episode)

    async def main() -> None:
        used = setup(says("a"), make_env=mine.Step)
        start = Start(id="g0", task=rl.Task(id="t", prompt="Hi"), size=2)
        await play_group(used, start, engine=used.engine, report=report)

    with pytest.raises(RolloutError, match=r"KeyError: 'left' \(mine.py:\d+ in Step.step\)") as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, EpisodeFailed)


def test_when_all_break_with_one_error_it_is_said_once_with_its_place(mine: ModuleType) -> None:
    rate = AbortRate(0.5)
    for _ in range(4):
        rate.note(played(mine.Step()))
    with pytest.raises(
        RolloutError, match=r"4 of 4 .*\(4 env_error\).*; each with KeyError: 'left' \(mine.py:\d+ in"
    ) as caught:
        rate.check(at_least=4)
    assert isinstance(caught.value.__cause__, EpisodeFailed)
    rate.note(played(mine.Silent()))
    with pytest.raises(RolloutError, match=r"5 of 5 .*; 4 of them with KeyError: 'left'"):
        rate.check(at_least=4)


def test_a_group_that_must_stop_the_run_says_so_with_the_place(mine: ModuleType) -> None:
    from agentrl.episode import EpisodeGroup

    episode = played(mine.Step())
    group = EpisodeGroup(id="g0", number=0, task=episode.task, episodes=(episode,))
    with pytest.raises(RolloutError, match=r"Step\.step\)$"):
        unusable(group, "stop")


def test_what_came_before_the_agents_first_message_is_counted() -> None:
    class Shown(rl.Env):
        system_prompt = "Be kind."

        def reset(self, task: rl.Task) -> Any:
            return [rl.Message(role=role, content=role) for role in ("user", "assistant", "user")]

    episode = played(Shown())
    assert (episode.opening, len(episode.messages)) == (4, 5)
    assert from_json(to_json(episode)).opening == 4


def test_a_task_that_is_no_data_is_told_by_its_id() -> None:
    task = rl.Task(id="t9", prompt="Hi", public={"lock": threading.Lock()})
    used = setup(says("a"))
    with pytest.raises(
        rl.UsageError, match=r"task t9 cannot be copied for each of its episodes: .*lock.*; a task is plain data"
    ):
        asyncio.run(play_group(used, Start(id="g0", task=task, size=1), engine=used.engine, report=lambda *_: None))
