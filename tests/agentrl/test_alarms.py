"""What goes wrong without an error is counted, and said once, then each time it has lasted twice as long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentrl.alarms import Alarms
from agentrl.episode import Outcome
from tests.support.episodes import episode

WELL: dict[str, Any] = {"episodes": 8, "turns": 8, "tool_calls": 3, "optimizer_steps": 1.0}


def rung(alarms: Alarms, rows: list[dict[str, Any]]) -> dict[int, str]:
    """step -> what was said after it."""
    said = {step: alarms.look({"step": step, **row})[1] for step, row in enumerate(rows, 1)}
    return {step: texts[0] for step, texts in said.items() if texts}


@pytest.mark.parametrize(
    ("row", "name", "steps", "text"),
    [
        ({"tool_calls": 0}, "no_tool_calls", [3, 6, 12], r"no episode has called a tool (look, act)"),
        ({"optimizer_steps": 0.0}, "no_signal", [3, 6, 12], "no group's rewards differed"),
        (
            {"answers_cut": 5},
            "answers_cut",
            [3, 6, 12],
            "answers were cut; raise sampling.max_new_tokens (96)",
        ),
        ({"truncated/deadline": 1}, "deadlines", [1, 2, 4, 8], "a deadline cut more than a tenth of the episodes"),
    ],
)
def test_an_alarm_is_said_when_it_has_lasted_and_when_that_has_doubled(
    row: dict[str, Any], name: str, steps: list[int], text: str
) -> None:
    alarms = Alarms(tools=("look", "act"), max_new_tokens=96)
    said = rung(alarms, [{**WELL, **row}] * 12)
    assert list(said) == steps
    assert all(text in words for words in said.values())
    assert alarms.look({"step": 13, **WELL, **row})[0][f"alarm/{name}"] == 13


def test_one_good_step_sets_it_back() -> None:
    alarms = Alarms(tools=("look",))
    silent = {**WELL, "tool_calls": 0}
    assert rung(alarms, [silent, silent, WELL, silent, silent]) == {}
    assert list(rung(alarms, [silent])) == [1]  # the third in a row


def test_where_all_is_well_or_there_are_no_tools_nothing_is_said() -> None:
    assert rung(Alarms(tools=("look",)), [WELL] * 12) == {}
    assert rung(Alarms(), [{**WELL, "tool_calls": 0}] * 12) == {}
    assert rung(Alarms(max_new_tokens=9), [{**WELL, "answers_cut": 4}] * 12) == {}  # half of them is not most


def test_a_run_that_is_gone_on_with_counts_on() -> None:
    alarms = Alarms(tools=("look",), last={"step": 5, "alarm/no_tool_calls": 5})
    assert list(rung(alarms, [{**WELL, "tool_calls": 0}])) == [1]  # the sixth in a row


@pytest.mark.parametrize(
    ("error", "key"),
    [
        ("the episode took longer than 300 s", "rollout.episode_timeout"),
        ("turn 3 took longer than 120 s", "rollout.turn_timeout"),
        ("reset took longer than 120 s", "rollout.turn_timeout"),
    ],
)
def test_a_deadline_names_the_key_that_sets_it(error: str, key: str) -> None:
    late = replace(episode(outcome=Outcome.DEADLINE), error=error)
    _, said = Alarms().look({"step": 4, **WELL, "truncated/deadline": 8}, [episode(), late])
    assert said == [
        "note: in step 4 a deadline cut more than a tenth of the episodes; they are trained on as they were: "
        f"{error}; raise {key}"
    ]
