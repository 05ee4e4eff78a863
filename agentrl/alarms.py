"""What goes wrong without an error: looked for after each step, counted in its row, and said.

An alarm is a condition on one step. `alarm/<name>` of a row is the number of steps in a row, this one included, in which it
held; it is said when that number reaches the alarm's patience, and again each time it has doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.advice import key_for
from agentrl.episode import Episode, Outcome

Row = Mapping[str, Any]

MANY = 0.1
"""The share of a step's episodes that a deadline may cut before it is said: they are trained on, yet say how fast the
machine is, not how good the policy."""

MOST = 0.5
"""The share of answers that are cut at their budget from which on the budget is what is learnt from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One thing that may be wrong.

    >>> Alarm(name="x", patience=3, holds=lambda row: row["reward"] == 0, text="reward 0").due(12)
    True
    """

    name: str
    patience: int
    """Steps in a row after which it is said first."""
    holds: Callable[[Row], bool]
    text: str

    def due(self, count: int) -> bool:
        """3, 6, 12, ... for a patience of 3."""
        times, rest = divmod(count, self.patience)
        return count > 0 and not rest and times & (times - 1) == 0


class Alarms:
    """The alarms of one run.

    >>> Alarms(tools=["python"]).look({"tool_calls": 0, "episodes": 8, "turns": 8})[0]["alarm/no_tool_calls"]
    1
    """

    def __init__(self, *, tools: Sequence[str] = (), max_new_tokens: int = 0, last: Row | None = None) -> None:
        """`tools`: what the environment offers. `last`: the last row of a run that is gone on with."""
        self._alarms = [*_general(max_new_tokens), *([_no_tool_calls(tools)] if tools else [])]
        self._counts = {alarm.name: int((last or {}).get(f"alarm/{alarm.name}", 0)) for alarm in self._alarms}

    def look(self, row: Row, episodes: Sequence[Episode] = ()) -> tuple[dict[str, int], list[str]]:
        """(what goes into the row, what is to be said). `episodes`: those of the step, for the text of their deadlines."""
        said = []
        for alarm in self._alarms:
            count = self._counts[alarm.name] = self._counts[alarm.name] + 1 if alarm.holds(row) else 0
            if alarm.due(count):
                said.append(f"note: {_when(row, count)}{alarm.text}{_deadline(alarm, episodes)}")
        return {f"alarm/{name}": count for name, count in self._counts.items()}, said


def _general(max_new_tokens: int) -> list[Alarm]:
    return [
        Alarm(
            name="no_signal",
            patience=3,
            holds=lambda row: row.get("optimizer_steps") == 0,
            text="no group's rewards differed, so that nothing was learnt; try easier or harder tasks, more "
            "trainer.samples_per_prompt, or a reward with steps between 0 and 1",
        ),
        Alarm(
            name="deadlines",
            patience=1,
            holds=lambda row: row.get("truncated/deadline", 0) > MANY * row.get("episodes", 0),
            text="a deadline cut more than a tenth of the episodes; they are trained on as they were",
        ),
        Alarm(
            name="answers_cut",
            patience=3,
            holds=lambda row: row.get("answers_cut", 0) > MOST * row.get("turns", 0),
            text=f"more than half of the answers were cut; raise sampling.max_new_tokens ({max_new_tokens})",
        ),
    ]


def _no_tool_calls(tools: Sequence[str]) -> Alarm:
    return Alarm(
        name="no_tool_calls",
        patience=3,
        holds=lambda row: row.get("episodes", 0) > 0 and not row.get("tool_calls"),
        text=f"no episode has called a tool ({', '.join(tools)}); can the model reach them, and does the prompt say so?",
    )


def _when(row: Row, count: int) -> str:
    return f"in step {row['step']} " if count == 1 else f"in {count} steps in a row "


def _deadline(alarm: Alarm, episodes: Sequence[Episode]) -> str:
    if alarm.name != "deadlines":
        return ""
    text = next((e.error for e in episodes if e.outcome is Outcome.DEADLINE), "")
    key = key_for(Outcome.DEADLINE, text)
    return f": {text}; raise {key}" if key else ""
