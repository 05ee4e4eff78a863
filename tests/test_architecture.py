"""The house rules that a reader relies on: who may import whom, what is heavy, how long a file and a function may be.

`problems_in` takes source text, so that each rule is also shown to catch what it is there for.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("envs", "tools", "rollout", "trainers")
CODE = ("agentrl", *PARTS, "configs")

TENSORS = ("torch", "transformers", "tokenizers", "accelerate", "huggingface_hub", "gguf")
PLACES_OF_TENSORS = ("trainers/", "rollout/engines/", "agentrl/model", "agentrl/doctor.py")
"""Where tensor libraries may be imported at all; in agentrl/ only inside functions, so that importing a module is free.
The doctor imports whatever it looks at."""

PLACES = {
    **dict.fromkeys(TENSORS, PLACES_OF_TENSORS),
    **{name: (f"rollout/engines/{name}",) for name in ("vllm", "sglang")},
    "megatron": ("trainers/backends/megatron",),
    "ray": ("agentrl/ray", "trainers/ray", "rollout/ray"),
    "docker": ("tools/sandboxes/docker",),
    "mcp": ("tools/mcp",),
    "playwright": ("tools/browser",),
    "wandb": ("agentrl/wandb",),
}
"""Third-party package -> the beginnings of the paths it may be imported in, in functions or not."""

WHERE_PARTS_MEET = ("agentrl/registry.py", "agentrl/run.py", "agentrl/assembly.py", "agentrl/commands/")
"""The only files that may hold dotted names of all parts."""

LONGEST_FILE = 500
LONGEST_FUNCTION = 60

PUBLIC = {
    *("Action", "Agent", "AgentSpec", "Env", "Episode", "EpisodeGroup", "Exec", "Image", "Message", "Outcome"),
    *(
        "ParseError",
        "Sandbox",
        "SandboxSpec",
        "Secret",
        "SeededTasks",
        "Status",
        "Step",
        "Task",
        "TaskSource",
        "Text",
        "ToolCall",
        "ToolError",
    ),
    *(
        "ToolResult",
        "UsageError",
        "done",
        "from_gymnasium",
        "from_pettingzoo",
        "mcp",
        "metric",
        "openapi",
        "reward",
        "schema_tool",
        "tool",
        "use",
        "vector",
        "wrappers",
    ),
}


def sources() -> list[Path]:
    return sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("file", sources(), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_rules(file: Path) -> None:
    assert problems_in(file.read_text(), file.relative_to(ROOT).as_posix()) == []


def problems_in(text: str, path: str) -> list[str]:
    """What is against a rule in a source file; `path` is relative to the checkout."""
    tree = ast.parse(text)
    lines = text.count("\n")
    found = [f"{lines} lines; past {LONGEST_FILE}, two things live in it"] if lines > LONGEST_FILE else []
    for item in _imports(tree, path, at_import=True):
        found += [f"line {item.line}: {problem}" for problem in _import_problems(path, item)]
    for line, value in _texts(tree):
        found += [f"line {line}: names {value!r}, another part" for part in PARTS if _names_part(value, part, path)]
    return found + _length_problems(tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module, by its absolute name; `from agentrl import x` counts as agentrl.x too."""

    line: int
    module: str
    relative: bool
    """Written with leading dots."""
    at_import: bool
    """It runs when the file itself is imported, not only when a function is called."""


def _import_problems(path: str, item: Import) -> Iterator[str]:
    part, module = _part(path), item.module
    head = module.split(".")[0]
    if head in (*PARTS, "configs"):
        yield f"imports {module}, which exists in a bare checkout only; it is agentrl.{module}"
    for other in PARTS:
        if module == f"agentrl.{other}" or module.startswith(f"agentrl.{other}."):
            if part is None:
                yield f"agentrl/ imports the part {other}; it finds things there by name, through agentrl.registry"
            elif other != part:
                yield f"imports {module}: parts meet by name only, through agentrl.registry"
    if part is not None and module.startswith(f"agentrl.{'.'.join(Path(path).parent.parts)}.") and not item.relative:
        yield f"imports {module}, of its own folder; write from .{module.rpartition('.')[2]} import ..."
    if head in PLACES and not path.startswith(PLACES[head]):
        yield f"imports {head}, which belongs to {', '.join(PLACES[head])}"
    elif head in TENSORS and part is None and item.at_import:
        yield f"imports {head} when it is imported itself; do it inside the function that needs it"


def _length_problems(tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    long = [node for node in functions if _length(node) > LONGEST_FUNCTION]
    return [f"line {node.lineno}: {node.name} has {_length(node)} lines, more than {LONGEST_FUNCTION}" for node in long]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _part(path: str) -> str | None:
    return next((part for part in PARTS if path.startswith(f"{part}/")), None)


def _names_part(value: str, part: str, path: str) -> bool:
    """Is the text a dotted path into a part that is not the file's own?"""
    own = _part(path) == part or path.startswith(WHERE_PARTS_MEET)
    dotted = rf"agentrl\.{part}(\.\w+)*(:\w+)?|{part}(\.\w+)+:\w+"
    return not own and re.fullmatch(dotted, value) is not None


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _imports(node: ast.AST, path: str, *, at_import: bool) -> Iterator[Import]:
    """All imports below a node; those for type checkers only are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            for module in _modules(child, path):
                relative = isinstance(child, ast.ImportFrom) and child.level > 0
                yield Import(line=child.lineno, module=module, relative=relative, at_import=at_import)
        else:
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _imports(child, path, at_import=at_import and not inside)


def _modules(node: ast.Import | ast.ImportFrom, path: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = _absolute(node, path)
    names = [f"agentrl.{alias.name}" for alias in node.names] if module == "agentrl" else []
    return [module, *names]


def _absolute(node: ast.ImportFrom, path: str) -> str:
    """The module that a (possibly relative) import means; parts are subpackages of agentrl."""
    if not node.level:
        return node.module or ""
    package = list(Path(path).parent.parts)
    package = package if package[0] == "agentrl" else ["agentrl", *package]
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


@pytest.mark.parametrize(
    ("path", "text", "word"),
    [
        ("envs/a.py", "from agentrl.tools import python", "parts meet"),
        ("envs/a.py", "import agentrl.rollout.loop", "parts meet"),
        ("envs/a.py", "from agentrl import trainers", "parts meet"),
        ("envs/sub/a.py", "from ...tools import python", "parts meet"),
        ("envs/a.py", "def f():\n    from agentrl.tools.python import x", "parts meet"),
        ("envs/a.py", "import envs.b", "bare checkout"),
        ("envs/a.py", "from agentrl.envs.b import C", "write from .b import"),
        ("envs/a.py", "x = load('agentrl.tools.python:python')", "another part"),
        ("agentrl/world.py", "x = load('agentrl.rollout.loop')", "another part"),
        ("agentrl/world.py", "x = part('rollout.loop:play')", "another part"),
        ("agentrl/run.py", "from agentrl.trainers import loop", "the part trainers"),
        ("agentrl/run.py", "def f():\n    from .trainers import loop", "the part trainers"),
        ("agentrl/run.py", "import torch", "belongs to"),
        ("agentrl/models.py", "import torch", "inside the function"),
        ("agentrl/models.py", "if True:\n    import transformers", "inside the function"),
        ("rollout/loop.py", "def f():\n    import torch", "belongs to"),
        ("trainers/loop.py", "import vllm", "belongs to"),
        ("envs/a.py", "x = 1\n" * 501, "501 lines"),
        ("envs/a.py", "def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
    ],
)
def test_each_rule_catches_its_fault(path: str, text: str, word: str) -> None:
    problems = problems_in(text, path)
    assert len(problems) == 1, problems
    assert word in problems[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("envs/a.py", "from agentrl.task import Task\nfrom .b import C\nfrom . import d"),
        ("envs/sub/a.py", "from ..b import C"),
        ("trainers/backends/local.py", "from agentrl.trainers.packing import pack"),
        ("agentrl/registry.py", "x = 'agentrl.tools.python:python'"),
        ("agentrl/engine.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("agentrl/models.py", "def f():\n    import torch"),
        ("trainers/losses.py", "import torch"),
        ("rollout/engines/torch_engine.py", "import torch"),
        ("envs/a.py", "def f():\n" + "    x = 1\n" * 59),
    ],
)
def test_what_is_allowed_passes(path: str, text: str) -> None:
    assert problems_in(text, path) == []


def test_public_names() -> None:
    import agentrl

    assert set(agentrl.__all__) == PUBLIC
    assert len(agentrl.__all__) == len(PUBLIC)
    assert all(hasattr(agentrl, name) for name in PUBLIC)


def _fresh(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout


def test_importing_agentrl_loads_nothing_heavy() -> None:
    loaded = set(json.loads(_fresh("import agentrl, json, sys; print(json.dumps(list(sys.modules)))")))
    heavy = {*TENSORS, "numpy", "pydantic", "hydra", "omegaconf", "rich", "aiohttp", "gymnasium", "matplotlib", "jinja2"}
    assert loaded & heavy == set()


def test_importing_agentrl_takes_under_half_a_second() -> None:
    """CPU time, the best of five: what else the machine does may not decide."""
    code = "import time; t = time.process_time(); import agentrl; print(time.process_time() - t)"
    assert min(float(_fresh(code)) for _ in range(5)) < 0.5


def test_no_file_of_tests_holds_two_subjects() -> None:
    lengths = {file.relative_to(ROOT).as_posix(): file.read_text().count("\n") for file in (ROOT / "tests").rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_every_part_has_a_package_and_tests_mirror_it() -> None:
    for part in PARTS:
        folders = {file.parent for file in (ROOT / part).rglob("*.py")}
        assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]
    for folder in (ROOT / "tests").iterdir():
        if folder.is_dir() and not folder.name.startswith(("_", ".")):
            assert folder.name in ("agentrl", *PARTS, "support"), f"tests/{folder.name} mirrors nothing"
