"""`agentrl play` with several agents: who sits where, what is shown to whom, and what each gets."""

from __future__ import annotations

import io

import pytest

from agentrl.cli import main
from agentrl.commands.play import seats
from agentrl.episode import Episode, Outcome, Side
from agentrl.messages import Message
from agentrl.record import Stats
from agentrl.report import conversations
from agentrl.task import Task
from agentrl.transcript import Transcript
from agentrl.world import find


def test_a_policy_in_each_seat(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "env=kuhn_poker", "--policy", "gold", "--policy", "second=noop"]) == 0
    out = capsys.readouterr().out
    assert "-- to first\n" in out
    assert "-- to second\n" in out
    assert out.endswith("; reward 2 (env 2); second: reward -2\n")


def test_a_person_plays_against_a_policy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("bet\nbet\n"))
    assert main(["play", "env=kuhn_poker", "--policy", "second=noop"]) == 0
    assert "[you] " in capsys.readouterr().out


def test_who_sits_where() -> None:
    kuhn, guess = find("kuhn_poker")(), find("guess_number")()
    assert seats(kuhn, []) == {"first": "human", "second": "human"}
    assert seats(kuhn, ["gold", "second=random"]) == {"first": "gold", "second": "random"}
    assert seats(guess, ["a=b.txt"]) == {"": "a=b.txt"}
    against = find("tictactoe")()
    against.opponent = "gold"
    assert seats(against, ["random"]) == {"x": "random"}


def test_a_seat_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "env=kuhn_poker", "--policy", "secnd=gold"]) == 2
    assert "there is no agent 'secnd'; did you mean 'second'?" in capsys.readouterr().err


EPISODE = Episode(
    id="g-0",
    group="g",
    index=0,
    task=Task(id="t"),
    seed=0,
    transcripts=(Transcript(),),
    messages=(Message(role="user", content="to x"),),
    outcome=Outcome.TERMINATED,
    rewards={"env": 1.0},
    agent="x",
    others=(
        Side(name="o", trained=True, transcripts=(), messages=(Message(role="user", content="to o"),), rewards={"env": -0.5}),
    ),
)


def test_the_reports_examples_show_every_side() -> None:
    text = "\n".join(conversations(EPISODE))
    assert text.index("*As x saw it:*") < text.index("to x") < text.index("*As o saw it (reward -0.5):*") < text.index("to o")


def test_the_rewards_of_other_seats_are_counted() -> None:
    row = Stats([EPISODE]).row()
    assert (row["reward"], row["agent/o/reward"]) == (1.0, -0.5)
