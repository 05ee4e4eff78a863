"""Viewing and editing files in a real sandbox: numbers, unique texts, and answers that help when it goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

import agentrl as rl
from agentrl.messages import ToolCall
from agentrl.tool import ToolBox
from agentrl.toolbox import toolbox
from agentrl.tools.files import MAX_BYTES, MOST_LINES, occurrences

SONG = "def verse(n):\n    print(n)\n    return n\n\n\ndef song():\n    verse(1)\n    verse(2)\n"


def box() -> ToolBox:
    env = rl.Env()
    env.tools, env.sandbox = ["files"], rl.SandboxSpec()
    return toolbox(env)


def edit(
    best: Any, *calls: tuple[str, dict[str, Any]], files: dict[str, bytes] | None = None
) -> tuple[list[str], dict[str, bytes]]:
    """(the answers of calls in one sandbox, the files afterwards)."""

    async def work() -> tuple[list[str], dict[str, bytes]]:
        async with await best.pool.acquire() as sandbox:
            for name, data in (files or {"song.py": SONG.encode()}).items():
                await sandbox.write(name, data)
            tools = box()
            asked = [ToolCall(id=str(i), name=name, arguments=arguments) for i, (name, arguments) in enumerate(calls)]
            answers = await tools.run(asked, {"sandbox": sandbox, "env": None})
            listed = (await sandbox.run("find . -type f")).stdout.splitlines()
            return [message.text for message, _ in answers], {name[2:]: await sandbox.read(name[2:]) for name in listed}

    done: tuple[list[str], dict[str, bytes]] = best.run(work())
    return done


def answer(best: Any, tool: str, files: dict[str, bytes] | None = None, **arguments: Any) -> str:
    return edit(best, (tool, arguments), files=files)[0][0]


def test_the_tools_and_what_they_need() -> None:
    specs = {spec.name: spec.parameters["required"] for spec in box().specs}
    assert specs == {
        "create_file": ["path", "text"],
        "insert_in_file": ["path", "line", "text"],
        "replace_in_file": ["path", "old", "new"],
        "view_file": ["path"],
    }


def test_a_file_is_shown_with_numbers(best: Any) -> None:
    assert answer(best, "view_file", path="song.py", first=2, last=3) == "     2\t    print(n)\n     3\t    return n"
    assert answer(best, "view_file", path="./song.py").count("\n") == 7
    assert answer(best, "view_file", path="song.py", first=7, last=99).startswith("     7\t    verse(1)")
    assert answer(best, "view_file", path="song.py", first=9) == "Error: song.py has lines 1 to 8, there is no 9 to 8"
    assert answer(best, "view_file", path="e", files={"e": b""}) == "e is empty"


def test_a_long_file_is_shown_in_parts(best: Any) -> None:
    files = {"long": b"x\n" * 1000}
    text = answer(best, "view_file", path="long", files=files)
    assert text.endswith(f"   {MOST_LINES}\tx\n[long has 1000 lines; go on with first={MOST_LINES + 1}]")
    assert answer(best, "view_file", path="long", first=999, files=files) == "   999\tx\n  1000\tx"


def test_a_folder_is_listed(best: Any) -> None:
    files = {"a/b/c.txt": b"1", "a/d.txt": b"2"}
    assert answer(best, "view_file", path="a", files=files) == "b/\nd.txt\n"
    assert answer(best, "view_file", path=".", files=files) == "a/\n"


def test_a_file_is_created_with_the_folders_above_it(best: Any) -> None:
    (text, again), files = edit(
        best, ("create_file", {"path": "a/b.txt", "text": "1\n2"}), ("create_file", {"path": "song.py", "text": ""})
    )
    assert (text, again) == ("a/b.txt written: 2 lines", "song.py written: 0 lines")
    assert files == {"a/b.txt": b"1\n2", "song.py": b""}


def test_a_text_that_occurs_once_is_replaced(best: Any) -> None:
    (text,), files = edit(
        best, ("replace_in_file", {"path": "song.py", "old": "    return n\n", "new": "    n += 1\n    return n\n"})
    )
    assert files["song.py"] == SONG.replace("    return n\n", "    n += 1\n    return n\n").encode()
    assert text == (
        "song.py now:\n     1\tdef verse(n):\n     2\t    print(n)\n     3\t    n += 1\n     4\t    return n\n"
        "     5\t\n     6\t\n     7\tdef song():\n     8\t    verse(1)"
    )


def test_a_text_may_be_taken_out(best: Any) -> None:
    (text,), files = edit(best, ("replace_in_file", {"path": "one", "old": "x", "new": ""}), files={"one": b"x"})
    assert (text, files["one"]) == ("one is empty now", b"")


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("verse(", "song.py holds this text 3 times, in lines 1, 7, 8; give more of what stands around it"),
        (
            "  print(n)\n  return n",
            "song.py does not hold this text; line 2 begins like it: the spaces, or the lines after it, differ: '    print(n)'",
        ),
        ("    verse(3)", "song.py does not hold this text; the nearest is line 8: '    verse(2)'"),
        ("zzzzzzzzzz", "song.py does not hold this text"),
        ("", "the text to replace is empty"),
    ],
)
def test_a_text_that_is_not_there_once_is_not_replaced(best: Any, old: str, told: str) -> None:
    (text,), files = edit(best, ("replace_in_file", {"path": "song.py", "old": old, "new": "x"}))
    assert text == f"Error: {told}"
    assert files["song.py"] == SONG.encode()


def test_overlapping_occurrences_count() -> None:
    assert occurrences("aaa", "aa") == [1, 1]


def test_lines_are_inserted(best: Any) -> None:
    for line, new in ((0, b"x\ny\na\nb"), (1, b"a\nx\ny\nb"), (2, b"a\nb\nx\ny\n")):
        (text,), files = edit(best, ("insert_in_file", {"path": "f", "line": line, "text": "x\ny"}), files={"f": b"a\nb"})
        assert files["f"] == new
        assert f"     {line + 1}\tx\n     {line + 2}\ty" in text
    assert (
        answer(best, "insert_in_file", path="song.py", line=9, text="x")
        == "Error: song.py has lines 1 to 8; there is no line 9"
    )
    (_,), files = edit(best, ("insert_in_file", {"path": "f", "line": 0, "text": "x\n"}), files={"f": b""})
    assert files["f"] == b"x\n"


def test_line_ends_of_windows_stay(best: Any) -> None:
    given = {"w": b"a\r\nb\r\nc\r\n"}
    (_, shown), files = edit(
        best,
        ("replace_in_file", {"path": "w", "old": "a\nb", "new": "A\nB"}),
        ("view_file", {"path": "w"}),
        files=given,
    )
    assert files["w"] == b"A\r\nB\r\nc\r\n"
    assert shown == "     1\tA\n     2\tB\n     3\tc"
    assert edit(best, ("insert_in_file", {"path": "w", "line": 1, "text": "x"}), files=given)[1]["w"] == b"a\r\nx\r\nb\r\nc\r\n"


def test_only_a_line_feed_ends_a_line(best: Any) -> None:
    files = {"f": "a\fb\u2028c\nd\n".encode()}
    assert answer(best, "view_file", path="f", files=files) == "     1\ta\fb\u2028c\n     2\td"
    assert (
        edit(best, ("insert_in_file", {"path": "f", "line": 1, "text": "x"}), files=files)[1]["f"]
        == "a\fb\u2028c\nx\nd\n".encode()
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("view_file", {"path": "sonng.py"}, "there is no file 'sonng.py'; did you mean 'song.py'?"),
        ("view_file", {"path": "none/x"}, "there is no file 'none/x'"),
        ("view_file", {"path": "../x"}, "'../x' lies outside of the working folder"),
        ("view_file", {"path": "a/../../x"}, "'a/../../x' lies outside of the working folder"),
        ("create_file", {"path": "song.py/x", "text": ""}, "song.py/x cannot be written: "),
        ("create_file", {"path": ".", "text": ""}, ". cannot be written: "),
        ("replace_in_file", {"path": ".", "old": "a", "new": "b"}, "'.' leads out of the working folder"),
    ],
)
def test_wrong_paths_are_explained(best: Any, tool: str, arguments: dict[str, Any], told: str) -> None:
    assert answer(best, tool, **arguments).startswith(f"Error: {told}")


def test_editing_a_folder_is_an_error(best: Any) -> None:
    assert answer(best, "replace_in_file", path="a", old="x", new="y", files={"a/b": b""}) == "Error: a is a folder"


def test_what_is_no_text_is_not_shown(best: Any) -> None:
    assert answer(best, "view_file", path="b", files={"b": b"\xff\xfe"}) == "Error: b is no text: it is not UTF-8"
    big = {"b": b"x" * (MAX_BYTES + 1)}
    assert (
        answer(best, "view_file", path="b", files=big) == f"Error: b has {MAX_BYTES + 1} bytes, too many to be shown or edited"
    )


def test_an_absolute_path_below_the_working_folder_is_understood(best: Any) -> None:
    async def work() -> list[str]:
        async with await best.pool.acquire() as sandbox:
            await sandbox.write("a/b", b"x\n")
            home = (await sandbox.run("pwd")).stdout.strip()
            tools = box()
            paths = [f"{home}/a/b", "/etc/passwd"]
            calls = [ToolCall(id=path, name="view_file", arguments={"path": path}) for path in paths]
            return [message.text for message, _ in await tools.run(calls, {"sandbox": sandbox})]

    shown, refused = best.run(work())
    assert shown == "     1\tx"
    assert refused.startswith("Error: '../../etc/passwd' lies outside of the working folder /")
