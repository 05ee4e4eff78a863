"""Going on with a run: its own config, with the few changes that a run that has begun can take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentrl import rundir
from agentrl.compose import Resolved, compose, flatten
from agentrl.errors import UsageError
from agentrl.rundir import RunDir

MAY_CHANGE = (
    "trainer.steps",
    "engine.slots",
    "engine.request_timeout",
    "rollout.episode_timeout",
    "rollout.turn_timeout",
    "rollout.step_timeout",
    "rollout.retries",
    "rollout.on_abort",
    "rollout.max_abort_rate",
    "sandbox.",
    "backend.threads",
    "backend.logits_chunk",
    "backend.activation_checkpointing",
    "eval.every",
    "checkpoint.",
    "log.",
    "out",
    "resume",
)
"""Keys, and sections by their dot, that change neither what an episode is nor what is learnt from it: batches that were
trained after the last checkpoint are trained again, and must come out the same."""


def reopen(name: str, overrides: Sequence[str], out: str) -> tuple[RunDir, Resolved]:
    """The run and the config to go on with. Raises UsageError."""
    run = rundir.find(name, out)
    before = compose(file=run.config, complete=True)
    after = compose(overrides, file=run.config, file_origins=run.read_origins(), complete=True)
    _check_changes(run, before, after)
    done = finished_steps(run)
    if done is not None and done >= after.config.trainer.steps:
        raise UsageError(
            f"run {run.name!r} has finished its {done} steps, nothing is left to do; "
            f"go on with: resume={run.name} trainer.steps={done * 2}"
        )
    return run, after


def finished_steps(run: RunDir) -> int | None:
    """The steps of a run that came to its end with everything written; None for one that did not."""
    if not run.result.is_file():
        return None
    result = json.loads(run.result.read_text())
    return int(result["steps"]) if result["status"] == "finished" else None


def _check_changes(run: RunDir, before: Resolved, after: Resolved) -> None:
    old, new = _flat(before), _flat(after)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and not _may_change(key):
            raise UsageError(
                f"{key} was {old.get(key)!r} when run {run.name!r} began and cannot become {new.get(key)!r}; start a new run "
                f"from its weights: model={run.checkpoints / 'last'} {key}={new.get(key)}"
            )


def _may_change(key: str) -> bool:
    return any(key.startswith(may) if may.endswith(".") else key == may for may in MAY_CHANGE)


def _flat(resolved: Resolved) -> Mapping[str, Any]:
    return dict(flatten(asdict(resolved.config)))
