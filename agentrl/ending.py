"""What a run leaves when it ends, however it ends: result.json, and the report for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl import report
from agentrl.rundir import RunDir
from agentrl.scores import Evaluations
from agentrl.whole_write import replace_text, writing


def write_result(
    run: RunDir, *, status: str, steps: int, seconds: float, evaluations: Evaluations, error: BaseException | None = None
) -> None:
    """status: finished | stopped | failed. steps: done in all. seconds: of this process. Raises WriteError."""
    result: dict[str, Any] = {
        "status": status,
        "steps": steps,
        "seconds": round(seconds, 3),
        "scores": [asdict(score) for score in evaluations.scores],
    }
    if error is not None:
        result["error"] = f"{type(error).__name__}: {error}"
    replace_text(run.result, json.dumps(result, indent=1) + "\n")


def write_report(
    run: RunDir, *, rows: Sequence[Mapping[str, Any]], evaluations: Evaluations, changed: Mapping[str, str]
) -> list[Path]:
    """The files of the report. `changed`: the keys that are not at their defaults. Raises WriteError."""
    scores = evaluations.scores
    whole = scores if len(scores) > 1 else []
    with writing(run.report):
        return report.write(
            run.report,
            title=run.name,
            rows=rows,
            scores=scores,
            first=evaluations.episodes(whole[0].step) if whole else (),
            last=evaluations.episodes(whole[-1].step) if whole else (),
            changed=changed,
        )
