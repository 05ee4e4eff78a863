"""Checks what the documentation says of config keys: every one exists, every command line composes, docs/config.md is current.

    python .ci/check_docs.py           # prints what is wrong, exit status 1
    python .ci/check_docs.py --write   # writes docs/config.md anew

A command is a line that calls `agentrl <command> key=value ...` in a code block or span; a key is a span such as
`trainer.lr` or `trainer.lr=1e-5`. (A method in a span is written with its parentheses, `env.step()`.)
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a bare checkout

from agentrl import compose, keys  # noqa: E402
from agentrl.errors import UsageError  # noqa: E402

CONFIG_PAGE = ROOT / "docs" / "config.md"
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md")
ASSIGNMENT = re.compile(r"[A-Za-z_][\w.]*=")
PLACEHOLDER = re.compile(r"<|\.\.\.|\$|…|\.py:")
"""Words that stand for the reader's own: <run>, ..., a shell variable, a file of theirs."""


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        CONFIG_PAGE.write_text(config_page())
        print(f"wrote {CONFIG_PAGE.relative_to(ROOT)}")
        return 0
    problems = [problem for page in pages() for problem in check(page.read_text(), str(page.relative_to(ROOT)))]
    problems += [problem for page in pages() for problem in dead_links(page)]
    if not CONFIG_PAGE.is_file() or CONFIG_PAGE.read_text() != config_page():
        problems.append("docs/config.md is not what agentrl/config.py says; run: make docs")
    print("\n".join(problems) or "documentation: every key exists, every command composes")
    return int(bool(problems))


def pages() -> list[Path]:
    return sorted(page for pattern in PAGES for page in ROOT.glob(pattern))


def check(text: str, name: str = "text") -> list[str]:
    """What is wrong in a page, one line each.

    >>> check("Set `trainer.lrr=1`.")
    ["text:1: trainer.lrr is no config key; did you mean 'trainer.lr'?"]
    """
    found = [f"{name}:{line}: {problem}" for line, words in commands(text) if (problem := _refused(words))]
    for line, key in spans(text):
        if not keys.known(key) and key not in keys.sections():
            found.append(f"{name}:{line}: {key} is no config key; {keys.suggest(key)}")
    return found


def dead_links(page: Path) -> list[str]:
    """Links to files that do not exist, one line each. Other sites are not asked."""
    lines = enumerate(page.read_text().splitlines(), 1)
    links = [(number, link) for number, line in lines for link in re.findall(r"\]\(([^)#\s]+)", line)]
    local = [(number, link) for number, link in links if "://" not in link and not link.startswith("mailto:")]
    return [
        f"{page.relative_to(ROOT)}:{number}: {link} does not exist"
        for number, link in local
        if not (page.parent / link).exists()
    ]


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, overrides) of every command line."""
    for number, line in _joined(text):
        for match in re.finditer(r"(?:^|[\s`$/\"])agentrl[ \t]+(?:train|eval|play|env)\b([^`\n]*)", line):
            words = _split(match[1])
            yield number, [word for word in words if ASSIGNMENT.match(word) and not PLACEHOLDER.search(word)]


def spans(text: str) -> Iterator[tuple[int, str]]:
    """(line number, key) of every code span that is a dotted key, with or without a value."""
    key = re.compile(rf"((?:{'|'.join(keys.sections())})\.[a-z_][\w.]*)(?:=.*)?")
    for number, line in enumerate(text.splitlines(), 1):
        for span in re.findall(r"`([^`]+)`", line):
            if match := key.fullmatch(span):
                yield number, match[1]


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those put together that end in a backslash; the number is that of the first."""
    held, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        start = start if held else number
        if line.rstrip().endswith("\\"):
            held += line.rstrip()[:-1] + " "
            continue
        yield start, held + line
        held = ""


def _split(words: str) -> list[str]:
    """As a shell would, up to a comment or the next command."""
    words = re.split(r"\s[|&;>]", words)[0]
    try:
        return shlex.split(words, comments=True)
    except ValueError:  # prose after the command, with an apostrophe in it
        return words.split()


def _refused(overrides: list[str]) -> str:
    try:
        compose.compose(overrides)
    except UsageError as error:
        return f"agentrl {' '.join(overrides)}: {error}"
    return ""


def config_page() -> str:
    """docs/config.md: all keys with default and meaning, and the options of each group."""
    out = [
        "# Config keys",
        "",
        "Written by `make docs` from `agentrl/config.py` and `configs/`; do not edit. Set a key on the command line,",
        "`agentrl train trainer.lr=3e-6`, or choose an option of a group, `agentrl train trainer=rloo`. A key that does",
        "not exist is refused with the nearest that do. `runs/<name>/origins.yaml` says where each value came from.",
    ]
    for section in [*keys.sections(), ""]:
        rows = [key for key in keys.table().values() if key.name.rpartition(".")[0].partition(".")[0] == section]
        out += ["", f"## {section or 'The run itself'}", ""]
        for option in compose.groups().get(section, ()):
            out.append(f"- `{section}={option}`: {compose.comment(section, option)}")
        out += ["", "| key | default | meaning |", "|---|---|---|"]
        out += [f"| `{key.name}` | `{_shown(key.default)}` | {_cell(key.doc)} |" for key in rows]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)) + "\n"


def _shown(default: object) -> str:
    return '""' if default == "" else str(default).lower() if isinstance(default, bool) else str(default)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
