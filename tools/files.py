"""Files of the episode's sandbox: view with line numbers, create, replace a text that occurs once, insert lines.

Edits are answered with the lines around them, and what cannot be done with what stands there instead, so that the next try
can be right.
"""

from __future__ import annotations

import difflib
import posixpath
import re

from agentrl.errors import nearest
from agentrl.sandbox import Sandbox, Status
from agentrl.tool import ToolError, tool

MOST_LINES = 400
"""That are shown of a file at once."""

AROUND = 3
"""Lines that are shown before and after an edit."""

MAX_BYTES = 2 << 20
"""Of a file that can be viewed or edited."""

MAX_OUTPUT = 20_000  # characters


class IsFolder(ToolError):
    """What is asked for is a folder."""


class Files:
    """View, create and edit files of the sandbox.

    Paths are relative to the working folder; an absolute one that lies below it is understood."""

    def __init__(self) -> None:
        self._home = ""

    @tool(max_output=MAX_OUTPUT)
    async def view_file(self, path: str, sandbox: Sandbox, first: int = 1, last: int = 0) -> str:
        """Show a file with line numbers, or what a folder holds.

        Args:
            path: relative to the working folder; "." is the working folder itself
            first: the first line shown
            last: the last line shown; 0 for the end
        """
        name = await self._name(path, sandbox)
        if name == ".":
            return await _folder(name, sandbox)
        try:
            lines = _lines(await _read(name, sandbox))
        except IsFolder:
            return await _folder(name, sandbox)
        if not lines:
            return f"{path} is empty"
        end = min(last or len(lines), len(lines))
        if not 1 <= first <= end:
            raise ToolError(f"{path} has lines 1 to {len(lines)}, there is no {first} to {last or len(lines)}")
        shown = min(end, first + MOST_LINES - 1)
        note = f"\n[{path} has {len(lines)} lines; go on with first={shown + 1}]" if shown < end else ""
        return numbered(lines, first, shown) + note

    @tool
    async def create_file(self, path: str, text: str, sandbox: Sandbox) -> str:
        """Write a whole file, and the folders above it. A file that is there already is replaced.

        Args:
            path: relative to the working folder
            text: the whole content
        """
        name = await self._name(path, sandbox)
        await _write(name, text, sandbox)
        return f"{path} written: {len(_lines(text))} lines"

    @tool
    async def replace_in_file(self, path: str, old: str, new: str, sandbox: Sandbox) -> str:
        """Replace a text that occurs exactly once in a file.

        Args:
            path: relative to the working folder
            old: the text as it stands there, with its spaces and line ends, and enough around it to be the only one
            new: what stands there afterwards
        """
        name = await self._name(path, sandbox)
        text = await _read(name, sandbox)
        old, new = _with_ends(old, text), _with_ends(new, text)
        found = occurrences(text, old)
        if not found:
            raise ToolError(f"{path} does not hold this text{_closest(text, old)}")
        if len(found) > 1:
            lines = ", ".join(map(str, found[:10]))
            raise ToolError(f"{path} holds this text {len(found)} times, in lines {lines}; give more of what stands around it")
        changed = text.replace(old, new)
        await _write(name, changed, sandbox)
        return _around(path, changed, found[0], new.count("\n"))

    @tool
    async def insert_in_file(self, path: str, line: int, text: str, sandbox: Sandbox) -> str:
        """Insert lines into a file.

        Args:
            path: relative to the working folder
            line: after which line; 0 for the top
            text: the lines
        """
        name = await self._name(path, sandbox)
        content = await _read(name, sandbox)
        lines = re.findall(r"[^\n]*\n|[^\n]+", content)
        if not 0 <= line <= len(lines):
            raise ToolError(f"{path} has lines 1 to {len(lines)}; there is no line {line}")
        end = "\r\n" if "\r\n" in content else "\n"
        if line and not lines[line - 1].endswith("\n"):
            lines[line - 1] += end
        added = _with_ends(text if text.endswith("\n") else text + "\n", content)
        changed = "".join([*lines[:line], added, *lines[line:]])
        await _write(name, changed, sandbox)
        return _around(path, changed, line + 1, added.count("\n") - 1)

    async def _name(self, path: str, sandbox: Sandbox) -> str:
        """Relative to the working folder. Raises ToolError for a path out of it."""
        if path.startswith("/"):
            if not self._home:
                self._home = (await sandbox.run("pwd")).stdout.strip()
            path = posixpath.relpath(path, self._home or "/")
        name = posixpath.normpath(path)
        if name.startswith(".."):
            raise ToolError(f"{path!r} lies outside of the working folder{' ' + self._home if self._home else ''}")
        return name


def numbered(lines: list[str], first: int, last: int) -> str:
    """Lines `first` to `last`, counted from 1.

    >>> numbered(["a", "b", "c"], 2, 3)
    '     2\\tb\\n     3\\tc'
    """
    return "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1))


def occurrences(text: str, part: str) -> list[int]:
    """The lines in which `part` begins, overlapping ones too. Raises ToolError for an empty one.

    >>> occurrences("a\\nb\\na", "a")
    [1, 3]
    """
    if not part:
        raise ToolError("the text to replace is empty")
    starts, at = [], text.find(part)
    while at >= 0:
        starts.append(text.count("\n", 0, at) + 1)
        at = text.find(part, at + 1)
    return starts


def _lines(text: str) -> list[str]:
    """Without their ends. Only a line feed ends a line: str.splitlines knows a dozen others, and would count differently."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _with_ends(text: str, like: str) -> str:
    """With the line ends of a file that has those of Windows."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in like else text


def _closest(text: str, old: str) -> str:
    """The line of the file that is most like the first line of what was looked for."""
    lines = _lines(text)
    wanted = next((line for line in _lines(old) if line.strip()), "")
    same = [number for number, line in enumerate(lines, 1) if line.strip() and line.strip() == wanted.strip()]
    if same:
        return f"; line {same[0]} begins like it: the spaces, or the lines after it, differ: {lines[same[0] - 1]!r}"
    near = difflib.get_close_matches(wanted, lines, n=1, cutoff=0.6)
    return f"; the nearest is line {lines.index(near[0]) + 1}: {near[0]!r}" if near else ""


def _around(path: str, text: str, line: int, more: int) -> str:
    lines = _lines(text)
    first, last = max(1, line - AROUND), min(len(lines), line + more + AROUND)
    return f"{path} now:\n{numbered(lines, first, last)}" if lines else f"{path} is empty now"


async def _read(name: str, sandbox: Sandbox) -> str:
    """Raises IsFolder, and ToolError for what else is no text file."""
    try:
        data = await sandbox.read(name)
    except FileNotFoundError:
        raise ToolError(f"there is no file {name!r}{await _neighbors(name, sandbox)}") from None
    except ValueError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        if (await sandbox.run(["test", "-d", name])).ok:
            raise IsFolder(f"{name} is a folder") from error
        raise ToolError(str(error)) from error
    if len(data) > MAX_BYTES:
        raise ToolError(f"{name} has {len(data)} bytes, too many to be shown or edited")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{name} is no text: it is not UTF-8") from None


async def _write(name: str, text: str, sandbox: Sandbox) -> None:
    try:
        await sandbox.write(name, text.encode("utf-8", "surrogatepass"))
    except (OSError, ValueError) as error:
        raise ToolError(f"{name} cannot be written: {error}") from error


async def _neighbors(name: str, sandbox: Sandbox) -> str:
    """The names nearest to one that is not there."""
    folder, base = posixpath.split(name)
    listed = await sandbox.run(["ls", "-Ap", "--", folder or "."])
    names = [line for line in listed.stdout.splitlines() if listed.ok]
    return f"; {nearest(base, names)}" if names else ""


async def _folder(name: str, sandbox: Sandbox) -> str:
    listed = await sandbox.run(["ls", "-Ap", "--", name])
    if listed.status is not Status.OK:
        raise ToolError(listed.render())
    return listed.stdout or "[an empty folder]"
