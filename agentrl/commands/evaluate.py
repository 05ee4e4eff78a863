"""`agentrl eval`: measures a model, a run or a checkpoint on held-out tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agentrl.commands.arguments import Parser, overrides
from agentrl.compose import Resolved, compose
from agentrl.episode import to_json
from agentrl.errors import UsageError
from agentrl.live import duration
from agentrl.rundir import RunDir, find

EPILOG = """examples:
  agentrl eval env=code_sandbox model=smollm2-135m eval.tasks=200
  agentrl eval model=runs/my-run                  (its best checkpoint, in its own environment)
  agentrl eval model=runs/my-run/checkpoints/last eval.tasks=200"""


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl eval", "Measures a model, a run or a checkpoint on held-out tasks, with a 95% interval.", EPILOG)
    parser.add_argument("--episodes", metavar="FILE", help="write the episodes there, one JSON object a line")
    overrides(parser)
    args = parser.parse(argv)
    resolved = resolve(args.overrides, Path(args.config) if args.config else None)
    from time import monotonic

    from agentrl.run import evaluate

    began = monotonic()
    score, episodes = evaluate(resolved.config)
    if args.episodes:
        Path(args.episodes).write_text("".join(json.dumps(to_json(episode)) + "\n" for episode in episodes))
    print(f"{resolved.config.model.id}: {score}, in {duration(monotonic() - began)}")
    return 0


def resolve(overrides: Sequence[str], file: Path | None) -> Resolved:
    """The config to evaluate with. A run, or a folder in one, brings its own config along; overrides win over it."""
    given = dict(text.partition("=")[::2] for text in overrides)
    name = given.get("model", given.get("model.id", ""))
    run = _run(name, given.get("out", "runs"))
    if run is None:
        return compose(overrides, file=file)
    rest = [text for text in overrides if not text.startswith(("model=", "model.id="))]
    folder = Path(name) if Path(name).is_dir() else run.path
    return compose([*rest, f"model.id={folder}"], file=run.config, file_origins=run.read_origins(), complete=True)


def _run(name: str, out: str) -> RunDir | None:
    if not name:
        return None
    try:
        return find(name, out)
    except UsageError:
        return None  # a model's name or a hub id
