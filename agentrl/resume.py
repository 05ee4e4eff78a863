"""Going on with a run: its own config, with the few changes that a run that has begun can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl import models, rundir
from agentrl.compose import Resolved, compose, flatten
from agentrl.errors import UsageError
from agentrl.run_files import read_json
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


WHY = {
    "model.": "its checkpoints hold the weights and its episodes the tokens of that model",
    "env.": "its tasks and the episodes on its disk are of that environment",
    "engine.": "its episodes were sampled under it",
    "sampling.": "its episodes were sampled under it",
    "rollout.": "its episodes were played under it",
    "backend.": "its checkpoints are of that backend",
    "eval.": "its evaluations would no longer compare",
    "seed": "its tasks and everything that it draws follow from it",
    "run": "it is the name of the run",
}
"""Key, or section by its dot -> why it cannot change."""

WHY_ELSE = "what was trained after the last checkpoint is trained again, and must come out the same"


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
    """The steps of a run that came to its end with everything written; None for one that did not. Raises Damaged."""
    if not run.result.is_file():
        return None
    result = read_json(run.result, ("status", "steps"))
    return int(result["steps"]) if result["status"] == "finished" else None


def check_source(run: RunDir, id: str, source: str) -> None:
    """Is the model loaded from what it was loaded from when the run began? Raises UsageError when it is not."""
    before = run.read_source()
    if before == source:
        return
    name, kind = _plain(id), before.partition(":")[0]
    pinned = name in models.KNOWN and kind in ("hub", "wheel")
    again = f"; give model={name}@{kind} beside resume={run.name}" if pinned else ""
    raise UsageError(
        f"run {run.name!r} began with model={id} from {before}, and now it comes from {source}: its tokens and the reference "
        f"policy may be others{again}"
    )


def _check_changes(run: RunDir, before: Resolved, after: Resolved) -> None:
    old, new = _flat(before), _flat(after)
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key) and not _may_change(key)]
    changed.sort(key=lambda key: (not after.origins.get(key, "").startswith("override"), not key.endswith(".id")))
    for key in changed:  # first what was asked for by name, then what an option of a group is about
        if key == "model.id" and _plain(old[key]) == _plain(new[key]) and _plain(old[key]) in models.KNOWN:
            continue  # the same model by its source: `check_source` compares those
        if key == "env.id" and ".py:" in old[key] and Path(old[key]).name == Path(new[key]).name:
            continue  # the file was moved; what has changed in it is noted
        raise UsageError(
            f"resume={run.name} cannot change {key} from {old.get(key)!r} to {new.get(key)!r}: {_why(key)}; "
            f"{_instead(run, key, new.get(key))}"
        )


def _why(key: str) -> str:
    fitting = (why for start, why in WHY.items() if key == start or (start.endswith(".") and key.startswith(start)))
    return next(fitting, WHY_ELSE)


def _instead(run: RunDir, key: str, value: Any) -> str:
    if key == "model.id":
        return "leave model= out, or start a new run without resume="
    if not (run.checkpoints / "last").is_dir():
        return f"start a new run without resume=: {key}={value}"
    return f"start a new run from its weights: model={run.checkpoints / 'last'} {key}={value}"


def _plain(model: str) -> str:
    """smollm2-135m of smollm2-135m@wheel."""
    return model.partition("@")[0]


def _may_change(key: str) -> bool:
    return any(key.startswith(may) if may.endswith(".") else key == may for may in MAY_CHANGE)


def _flat(resolved: Resolved) -> Mapping[str, Any]:
    return dict(flatten(asdict(resolved.config)))
