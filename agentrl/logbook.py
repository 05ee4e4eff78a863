"""The rows of a run: what a row is made of, where it goes, and how rows that a kill has lost are made again.

Consumes what the parts of a step say of themselves; gives rows to trackers and to the person who watches. Each step has
one row, also when it is done again after a kill.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.alarms import Alarms
from agentrl.episode import EpisodeGroup
from agentrl.live import Watch
from agentrl.record import of_groups
from agentrl.run_files import append_metrics, cut_metrics, read_metrics
from agentrl.rundir import RunDir
from agentrl.scores import Score
from agentrl.trackers import Tracker
from agentrl.world import World

Row = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Logbook:
    """One run's rows, the oldest first."""

    rows: list[Row]
    trackers: Sequence[Tracker]
    watch: Watch
    alarms: Alarms

    def log(self, row: Row, groups: Sequence[EpisodeGroup]) -> None:
        """Writes a step's row down, with its alarms, and shows it. `groups`: what the step was trained on. A step that is
        replayed has its row already."""
        if any(known["step"] == row["step"] for known in self.rows):
            return
        counts, said = self.alarms.look(row, [episode for group in groups for episode in group.episodes])
        row = {**row, **counts}
        self.rows.append(row)
        for tracker in self.trackers:
            tracker.log(row)
        self.watch.step(row)
        for text in said:
            self.watch.note(text)


def row_of(
    step: int,
    *,
    groups: Sequence[EpisodeGroup],
    training: Mapping[str, float],
    engine: Mapping[str, float],
    score: Score | None,
    times: Mapping[str, float],
) -> dict[str, Any]:
    """A step's row. Names without a prefix are of the episodes that were trained on, `rollout/...` of all that were played
    meanwhile (both of them and the trainer's own in `training`)."""
    return {
        "step": step,
        **training,
        **of_groups(groups),
        **{f"engine/{name}": value for name, value in engine.items()},
        **(score.metrics() if score else {}),
        **times,
        "time/train": training.get("step_s", 0.0),
        "memory_gib": peak_memory() / (1 << 30),
    }


def rows_so_far(run: RunDir, world: World, store: Any, step: int) -> list[Row]:
    """The rows of a run that is gone on with from a checkpoint of `step`. A kill between a checkpoint and its row loses the
    row: it is made again from the episodes. Raises Damaged."""
    cut_metrics(run.metrics, store.last_step)
    rows: dict[int, Row] = {row["step"]: row for row in read_metrics(run.metrics)}
    lost = [batch for batch in store.trained_batches_after(0) if batch.step <= step and batch.step not in rows]
    for batch in lost:
        groups: list[EpisodeGroup] = [store.group(number, world.tasks.get(number)) for number in batch.groups]
        rows[batch.step] = {"step": batch.step, **of_groups(groups)}
        append_metrics(run.metrics, rows[batch.step])
    return [rows[number] for number in sorted(rows)]


def peak_memory() -> int:
    """Bytes that this process has had resident at most."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
