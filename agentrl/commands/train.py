"""`agentrl train`: begins a run, goes on with one (`resume=`), or shows the plan (`--dry-run`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentrl import doctor, keys, plan
from agentrl.commands.arguments import Parser, overrides
from agentrl.compose import compose, groups, summary
from agentrl.config import Config
from agentrl.resume import reopen
from agentrl.rundir import RunDir, find_if_meant

if TYPE_CHECKING:
    from agentrl.run import RunResult

EXAMPLES = """examples:
  agentrl train env=code_sandbox
  agentrl train env=guess_number trainer=rloo trainer.lr=3e-6 trainer.steps=50
  agentrl train env=my_pkg.my_env:MyEnv model=path/to/model --dry-run
  agentrl train resume=code_sandbox-smollm2-135m-20270102-030405"""


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl train", "Trains a model in an environment by reinforcement learning.")
    parser.add_argument("--dry-run", action="store_true", help="resolve everything, print the plan, run nothing")
    overrides(parser)
    parser.epilog = "\n".join([EXAMPLES, "", *group_help(), "", *key_help()]) if {"-h", "--help"} & set(argv) else ""
    args = parser.parse(argv)
    given = dict(text.partition("=")[::2] for text in args.overrides)
    out = given.get("out", Config().out)
    name = given.get("resume", "")
    if model := given.get("model", given.get("model.id", "")):
        find_if_meant(model, out)  # a run that is not there must not be asked for on the hub
    rest = [text for text in args.overrides if not text.startswith("resume=")]
    if args.dry_run:
        resolved = reopen(name, rest, out)[1] if name else compose(rest, file=Path(args.config) if args.config else None)
        note = plan.check_memory(resolved, doctor.memory()[1])
        print("\n".join([*plan.lines(resolved), *(["", note] if note else [])]))
        return 0
    from agentrl import run as runs
    from agentrl.stop import EXIT_CODE

    if name:
        result = runs.resume(name, rest, out=out)
    else:
        result = runs.train(compose(rest, file=Path(args.config) if args.config else None))
    print("\n".join(verdict(result)))
    return 0 if result.status == "finished" else EXIT_CODE


def verdict(result: RunResult) -> Iterator[str]:
    """What became of the run, and what can be done with it."""
    if result.status == "stopped":
        yield f"stopped after step {result.steps}; go on with: agentrl train resume={RunDir(path=result.folder).reference}"
        return
    yield f"finished {result.steps} steps; everything lies in {result.folder}"
    if len(result.scores) > 1:
        yield f"  before: {result.scores[0]}"
        yield f"  after:  {result.scores[-1]}"
    for path in result.report:
        yield f"  {path}"
    yield f"  agentrl eval model={result.folder}"


def group_help() -> Iterator[str]:
    """The options of each group with what they are."""
    yield "groups (group=option):"
    for group, options in groups().items():
        for number, option in enumerate(options):
            yield f"  {group if not number else '':8} {option:14} {summary(group, option)}"


def key_help() -> Iterator[str]:
    """Every key with its default and what it says of itself."""
    yield "keys (key=value; defaults in brackets; groups may set others):"
    section = ""
    for key in keys.table().values():
        if key.name.partition(".")[0] != section and "." in key.name:
            section = key.name.partition(".")[0]
            yield ""
        default = "" if key.default in ("", {}) else f" [{key.default}]"
        yield f"  {key.name + default:44} {key.doc}".rstrip()
