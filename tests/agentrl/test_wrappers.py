"""Wrappers: what each changes, that they combine, and how the command line names them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import agentrl as rl
from agentrl.cli import main
from agentrl.config import EnvConfig
from agentrl.engine import GenerateRequest
from agentrl.episode import EpisodeGroup, Outcome, from_json
from agentrl.errors import UsageError
from agentrl.sample import samples_of
from agentrl.sandbox import SandboxLost
from agentrl.world import build, check
from agentrl.wrappers import apply
from tests.support.chat import CharRenderer
from tests.support.engine import FakeEngine
from tests.support.playing import CALL, Adder, Chatty, played, run

W = rl.wrappers


class Talks(rl.Env):
    max_turns = 4

    async def play(self, task: rl.Task, a: rl.Agent, b: rl.Agent) -> None:
        for number in range(9):
            await a.say(f"a{number}")
            await b.say(f"b{number}")


def test_limit_turns() -> None:
    episode = run(W.limit_turns(Chatty, 2)(), "a")
    assert (episode.outcome, len(episode.turns)) == (Outcome.MAX_TURNS, 2)
    assert W.limit_turns(Chatty, 9).max_turns == 3
    assert len(run(W.limit_turns(Talks, 1)(), "x").turns) == 2


def test_budget_tokens() -> None:
    # the prompt "Hi" has 5 ids, "ab" and its end 3, the observation "more" 7: two are left of 17
    episode = run(W.budget_tokens(Chatty, 17)(), "ab")
    assert (episode.outcome, [len(s) for s in episode.transcript]) == (Outcome.MAX_TOKENS, [5, 3, 7, 2])
    assert W.budget_tokens(W.budget_tokens(Chatty, 17), 99).max_tokens == 17


def test_add_tools() -> None:
    def double(a: int) -> int:
        """Doubles."""
        return 2 * a

    episode = run(W.add_tools(Adder, double)(), '<call>{"name": "double", "arguments": {"a": 4}}</call>', CALL, "5")
    assert [m.text for m in episode.messages if m.role == "tool"] == ["8", "5"]


def test_history_window_shows_the_opening_and_the_last_turns() -> None:
    words = iter(["one", "two", "three", "four"])
    engine = FakeEngine(lambda request: next(words))

    class Long(Chatty):
        max_turns = 4

    episode = run(W.history_window(Long, 2)(), engine=engine)
    assert [m.text for m in episode.messages if m.role == "assistant"] == ["one", "two", "three", "four"]
    messages = episode.messages
    assert engine.requests[2].prompt_ids == CharRenderer().render(messages[:5])  # two of two: nothing falls out yet
    assert engine.requests[3].prompt_ids == CharRenderer().render([messages[0], *messages[3:7]])
    samples = samples_of([EpisodeGroup(id="g", number=0, task=episode.task, episodes=(episode,))])
    assert [(sample.trained_runs, sample.weight) for sample in samples] == [(3, 0.5), (1, 0.5)]
    assert all(sample.reward == 4.0 for sample in samples)


def by_seat(request: GenerateRequest) -> str:
    return "y" if request.session_id.endswith("/b") else "x"


def test_format_reward_is_the_share_of_answers_with_the_form() -> None:
    episode = run(W.format_reward(Chatty, r"<a>.*</a>", weight=0.3)(), "<a>1</a>", "2", "<a>3</a>")
    assert episode.rewards == {"env": 3.0, "format": pytest.approx(0.2)}
    both = run(W.format_reward(W.limit_turns(Talks, 1), "x", weight=1.0)(), engine=FakeEngine(by_seat))
    assert (both.rewards, both.others[0].rewards) == ({"format": 1.0}, {"format": 0.0})


class Breaks(rl.Env):
    max_turns = 2
    error: Any = KeyError("lost")

    def step(self, action: rl.Action) -> Any:
        if action.text == "break":
            raise self.error
        return rl.done(reward=action.parse(float))


def test_mask_errors_tells_the_agent_instead_of_aborting() -> None:
    assert run(Breaks(), "break").outcome is Outcome.ENV_ERROR
    episode = run(W.mask_errors(Breaks, "No.")(), "break", "2")
    assert (episode.outcome, episode.reward, episode.metrics) == (Outcome.TERMINATED, 2.0, {"masked_errors": 1.0})
    assert episode.messages[2].text == "No."
    unread = run(W.mask_errors(Breaks)(), "what?", "2")
    assert (unread.messages[2].text, unread.metrics) == ("Your answer must hold a number.", {"masked_errors": 0.0})
    lost = W.mask_errors(Breaks)()
    lost.error = SandboxLost("gone")
    assert run(lost, "break").outcome is Outcome.SANDBOX_LOST


def test_inject_faults_breaks_tools_or_steps_the_same_ones_each_time() -> None:
    episode = run(W.inject_faults(Adder, 1.0)(), CALL, "5")
    assert [m.text for m in episode.messages if m.role == "tool"] == ["Error: add is not available just now"]
    assert (episode.turns[0].tool_errors, episode.reward) == (1, 1.0)

    def broken(rate: float, task: str) -> list[int]:
        class Long(Adder):
            max_turns = 12

        return [t.tool_errors for t in run(W.inject_faults(Long, rate)(), CALL, task=rl.Task(id=task, prompt="Hi")).turns]

    assert broken(0.0, "a") == [0] * 12
    assert broken(0.5, "a") == broken(0.5, "a") != broken(0.5, "b")
    crashed = run(W.inject_faults(Adder, 0.0, crash=1.0)(), "5")
    assert (crashed.outcome, crashed.error[:14]) == (Outcome.ENV_ERROR, "InjectedFault:")


def test_injected_faults_leave_the_worlds_own_draws_alone() -> None:
    class Dice(Adder):
        def step(self, action: rl.Action) -> rl.Step:
            return rl.done(str(self.rng.random()))

    plain, faulty = run(Dice(), CALL, "5"), run(W.inject_faults(Dice, 0.5, crash=0.0)(), CALL, "5")
    assert plain.messages[-1] == faulty.messages[-1]


def test_record_appends_each_finished_episode(tmp_path: Path) -> None:
    seen: list[rl.Episode] = []

    class Watches(Adder):
        def finished(self, episode: rl.Episode) -> None:
            seen.append(episode)

    cls = W.record(Watches, str(tmp_path / "all.jsonl"))

    async def main() -> list[rl.Episode]:
        return list(await asyncio.gather(*(played(cls(), "5") for _ in range(8))))

    episodes = asyncio.run(main())
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert [from_json(json.loads(line)).rewards for line in lines] == [{"env": 1.0}] * 8
    assert len(seen) == len(episodes) == 8


def test_they_combine_and_keep_the_classs_name_and_checks() -> None:
    cls = W.format_reward(W.mask_errors(W.limit_turns(W.inject_faults(Breaks, 0.0, crash=1.0), 1)), "b")
    check(cls, {})
    episode = run(cls(), "b")
    assert (cls.__name__, episode.outcome, episode.metrics) == ("Breaks", Outcome.MAX_TURNS, {"masked_errors": 1.0})
    assert episode.rewards == {"format": 0.1}
    assert Breaks.max_turns == 2


@pytest.mark.parametrize(
    ("wrap", "problem"),
    [
        ({"limit_turn": 3}, "there is no wrapper 'limit_turn' (env.wrap.limit_turn); did you mean 'limit_turns'?"),
        ({"limit_turns": 0}, "limit_turns takes a whole number of at least 1, not 0"),
        ({"limit_turns": True}, "it takes turns"),
        ({"format_reward": {"patern": "x"}}, "it takes pattern, weight"),
        ({"format_reward": "("}, "is no regular expression"),
        ({"inject_faults": 2}, "rate is a share from 0 to 1, not 2"),
        ({"record": "/no/such/folder/x"}, "there is no folder"),
    ],
)
def test_what_cannot_be_meant(wrap: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as error:
        apply(Chatty, wrap)
    assert problem in str(error.value)


@pytest.mark.parametrize("wrap", [{"mask_errors": True}, {"inject_faults": {"rate": 0.1, "crash": 0.1}}])
def test_what_is_about_steps_is_not_for_play(wrap: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has play instead"):
        apply(Talks, wrap)


def test_the_command_line_wraps(capsys: pytest.CaptureFixture[str]) -> None:
    world = build(EnvConfig(id="guess_number", wrap={"limit_turns": 2, "history_window": 1}), seed=0)
    assert (world.make().max_turns, world.make().history_window) == (2, 1)
    assert main(["play", "env=guess_number", "env.wrap.limit_turns=2", "--policy", "noop"]) == 0
    assert "max_turns after 2 turns" in capsys.readouterr().out
    assert main(["play", "env=guess_number", "env.wrap.limit_turn=2", "--policy", "noop"]) == 2
    assert "did you mean 'limit_turns'" in capsys.readouterr().err
