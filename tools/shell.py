"""A shell in the episode's sandbox. Each call is a process of its own; working folder, variables and functions go on.

What goes on is written by the shell itself to a hidden file of the working folder when a command ends, and read by the next
one. A command that is killed at its deadline leaves it as it was.
"""

from __future__ import annotations

from agentrl.sandbox import Exec, Sandbox
from agentrl.tool import ToolError, tool

TIMEOUT = 60.0  # seconds; the sandbox's own limit for one execution is usually lower and is what the model sees

LONGEST = 100_000
"""Bytes of a command: Linux takes 128 KB as one argument of a program."""

STATE = ".shell_state"

PROGRAM = "; ".join(
    (
        f'_command=$1 _home=$HOME _state="$HOME/{STATE}"',
        "shift",
        'if [ -f "$_state" ]; then . "$_state" 2>/dev/null; cd -- "$_folder" || cd -- "$_home"; fi',
        "trap '_code=$?; _folder=$PWD; { export -p; (declare -f) 2>/dev/null; } >\"$_state\" 2>/dev/null; exit $_code' EXIT",
        "set -a",  # exports whatever is assigned, so that `export -p` names it
        'eval "$_command"',
    )
)
"""One line, so that the shell counts the command's lines from 1."""

ANY = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$@"; else exec sh -c "$@"; fi'
"""Bash where the sandbox has it: models write its language."""


@tool(timeout=TIMEOUT)
async def shell(command: str, sandbox: Sandbox) -> Exec:
    """Run a command in a shell and get its output. The working folder, variables and functions are kept between calls;
    processes in the background are not.

    Args:
        command: one line or several, as you would type them
    """
    if "\0" in command or len(command.encode("utf-8", "replace")) > LONGEST:
        raise ToolError(f"a command is a text of at most {LONGEST} bytes, without a zero byte; write long ones to a file")
    return await sandbox.run(["sh", "-c", ANY, "sh", PROGRAM, "shell", command])
