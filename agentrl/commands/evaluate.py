"""`agentrl eval`: measures a model, a run or a checkpoint on held-out tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentrl.commands.arguments import Parser, overrides
from agentrl.compose import Resolved, compose
from agentrl.config import Config
from agentrl.errors import UsageError
from agentrl.live import duration
from agentrl.rundir import find_if_meant
from agentrl.scores import Score, check_measured, to_lines
from agentrl.stop import EXIT_CODE
from agentrl.whole_write import replace_text

if TYPE_CHECKING:
    from agentrl.measure import Measured

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
    kept = Path(args.episodes).expanduser() if args.episodes else None
    if kept is not None:
        check_file(kept)
    from time import monotonic

    from agentrl.run import evaluate

    began = monotonic()
    measured = evaluate(resolved.config)
    if kept is not None:
        replace_text(kept, to_lines(measured.episodes))
    print("\n".join(table(measured, resolved.config, monotonic() - began)))
    if measured.stopped:
        return EXIT_CODE
    check_measured(measured.episodes)
    return 0


def table(measured: Measured, config: Config, seconds: float) -> Iterator[str]:
    """What was measured and what came of it, a line each."""
    score = measured.score
    yield f"model      {measured.what}"
    yield f"tasks      {config.eval.tasks} held-out tasks of {config.env.id} x {config.eval.samples}"
    if measured.stopped:
        yield f"stopped    after {len(measured.episodes)} of {measured.planned} episodes, those that ended first"
    low, high = score.pass_interval
    if score.episodes:
        yield f"pass rate  {100 * score.pass_rate:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
        yield f"reward     {score.reward:.3f} ± {score.reward_half:.3f}"
    aborted, cut_short = _outcomes(score, "aborted"), _outcomes(score, "truncated", "cut by a limit")
    yield f"episodes   {score.episodes} counted, {aborted}, {cut_short}"
    turns, cut, unread = (int(score.counts.get(name, 0)) for name in ("turns", "answers_cut", "parse_errors"))
    yield f"answers    {turns}, {cut} cut at sampling.max_new_tokens={config.sampling.max_new_tokens}, {unread} unreadable"
    tokens = int(score.counts.get("sampled_tokens", 0))
    yield f"time       {duration(seconds)}, {tokens:,} tokens sampled"


def check_file(file: Path) -> None:
    """Can it be written? Asked before the work is done. Makes nothing. Raises UsageError."""
    folder = file.parent
    if file.is_dir():
        raise UsageError(f"--episodes {file} is a folder; give a file in it")
    if not folder.is_dir():
        raise UsageError(f"--episodes {file}: there is no folder {folder}; make it, or choose another place")
    if not os.access(file if file.exists() else folder, os.W_OK) or not os.access(folder, os.W_OK):
        raise UsageError(f"--episodes {file}: you may not write there; choose another place")


def resolve(overrides: Sequence[str], file: Path | None) -> Resolved:
    """The config to evaluate with. A run, or a folder in one, brings its own config along; overrides win over it."""
    given = dict(text.partition("=")[::2] for text in overrides)
    name = given.get("model", given.get("model.id", ""))
    run = find_if_meant(name, given.get("out", Config().out)) if name else None
    if run is None:
        return compose(overrides, file=file)
    rest = [text for text in overrides if not text.startswith(("model=", "model.id="))]
    folder = Path(name) if Path(name).is_dir() else run.path
    return compose([*rest, f"model.id={folder}"], file=run.config, file_origins=run.read_origins(), complete=True)


def _outcomes(score: Score, kind: str, words: str = "") -> str:
    """As in: 3 aborted (2 env_error, 1 sandbox_lost)."""
    each = {name.removeprefix(f"{kind}/"): int(n) for name, n in score.counts.items() if name.startswith(f"{kind}/")}
    which = f" ({', '.join(f'{count} {outcome}' for outcome, count in each.items())})" if each else ""
    return f"{int(score.counts.get(kind, 0))} {words or kind}{which}"
