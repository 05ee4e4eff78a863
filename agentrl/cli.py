"""The command line: `agentrl <command> ...`. Finds the command and turns a person's mistakes into one line.

Exit codes: 0 done, 1 the run failed, 2 a mistake in what was asked for (or a file that is damaged), 130 stopped by Ctrl-C. A
failure that comes from code (an environment's, for one) is shown with its traceback; one that says everything in its text
is not.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import agentrl
from agentrl.engine import EngineError
from agentrl.episode import RolloutError
from agentrl.errors import UsageError, nearest
from agentrl.sandbox import IsolationError, SandboxError
from agentrl.tool import ToolCrash
from agentrl.whole_write import WriteError

FAILURES = (RolloutError, EngineError, SandboxError, FloatingPointError, ToolCrash, WriteError)
"""What may end a run that was set up well."""

COMMANDS = {
    "train": ("agentrl.commands.train", "trains a model in an environment; --dry-run shows the plan, resume=RUN goes on"),
    "eval": ("agentrl.commands.evaluate", "measures a model, a run or a checkpoint on held-out tasks"),
    "play": ("agentrl.commands.play", "puts you (or a script) in the model's seat of an environment"),
    "env": ("agentrl.commands.env", "lists and describes environments"),
    "tool": ("agentrl.commands.tool", "lists and describes tools, and calls one by hand"),
    "sandbox": ("agentrl.commands.sandbox", "checks, measures and serves sandboxes"),
    "doctor": ("agentrl.commands.doctor", "looks at this machine and says what works and what to do"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except (UsageError, IsolationError) as error:
        print(f"agentrl: {_one_line(error)}", file=sys.stderr)
        return 2
    except FAILURES as error:
        if error.__cause__ is not None and not isinstance(error, WriteError):
            traceback.print_exception(error.__cause__)
        print(f"agentrl: the run failed: {_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("agentrl: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `agentrl env list | head`
        sys.stderr.close()
        return 0


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if argv[0] in ("-V", "--version", "version"):
        print(f"agentrl {agentrl.__version__}")
        return 0
    if argv[0] not in COMMANDS:
        raise UsageError(f"there is no command {argv[0]!r}; {nearest(argv[0], COMMANDS)}")
    module = importlib.import_module(COMMANDS[argv[0]][0])
    return int(module.run(argv[1:]))


def _one_line(error: BaseException) -> str:
    """Its text, and what was noted on it: how to go on."""
    return " ".join("; ".join([str(error), *getattr(error, "__notes__", ())]).split())


def _help() -> str:
    commands = "\n".join(f"  {name:8} {about}" for name, (_, about) in COMMANDS.items())
    return f"""agentrl {agentrl.__version__}: reinforcement learning of LLM agents in multi-turn environments

usage: agentrl <command> ...

{commands}

first steps:
  agentrl play env=guess_number
  agentrl train env=code_sandbox --dry-run
  agentrl train env=code_sandbox

agentrl <command> --help says more; agentrl --version."""


if __name__ == "__main__":
    sys.exit(main())
