"""Faults in an environment author's own file, at the command line: exit code 2 and one line with file, line and the nearest
valid name, before anything is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.cli import main

HEAD = "import agentrl as rl\n\nclass Mine(rl.Env):\n"
"""Three lines; what follows is indented and begins in line 4."""

IN_THE_FILE = {
    "a syntax error": (
        "x = 1\ndef f(:\n",
        "mine.py:2: SyntaxError: invalid syntax: def f(:",
    ),
    "a wrong indentation": (
        "x = 1\n  y = 2\n",
        "mine.py:2: IndentationError: unexpected indent",
    ),
    "a module that is not there": (
        "\nimport helpr\n",
        "mine.py:2: ModuleNotFoundError: No module named 'helpr'; did you mean 'helper'?",
    ),
    "a package that is not installed": (
        "import zzqqx\n",
        "mine.py:1: ModuleNotFoundError: No module named 'zzqqx'; is it installed?",
    ),
    "a name that a module lacks": (
        "from agentrl import Enw\n",
        "mine.py:1: ImportError: cannot import name 'Enw'",
    ),
    "a relative import": (
        "from . import helper\n",
        "write 'import helper' for the helper.py beside it",
    ),
    "an exception": (
        "import json\n\nx = json.loads('{')\n",
        "mine.py:3: JSONDecodeError: Expecting property name",
    ),
    "an exit": (
        "import sys\nsys.exit(3)\n",
        "mine.py:2: SystemExit: 3",
    ),
    "an exception inside a function": (
        "def f():\n    return {}['a']\nf()\n",
        "mine.py:2 in f: KeyError: 'a'",
    ),
    "a misspelt attribute of a module": (
        "import agentrl as rl\nclass Mine(rl.Enw): ...\n",
        "mine.py:2: AttributeError: module 'agentrl' has no attribute 'Enw'; did you mean 'Env'?",
    ),
    "a misspelt name": (
        "number = 1\nx = numbr\n",
        "mine.py:2: NameError: name 'numbr' is not defined; did you mean 'number'?",
    ),
    "a misspelt field of a spec": (
        "import agentrl as rl\n\nclass Mine(rl.Env):\n    sandbox = rl.SandboxSpec(memroy='1G')\n",
        (
            "mine.py:4 in Mine: TypeError: SandboxSpec.__init__() got an unexpected keyword argument 'memroy'; "
            "did you mean 'memory'?"
        ),
    ),
    "a misspelt argument of a decorator": (
        "import agentrl as rl\n\nclass Mine(rl.Env):\n    @rl.tool(timout=5)\n    def f(self): ...\n",
        (
            "mine.py:4 in Mine: TypeError: Limits.__init__() got an unexpected keyword argument 'timout'; did "
            "you mean 'timeout'?"
        ),
    ),
    "a weight that is no number": (
        "import agentrl as rl\n\nclass Mine(rl.Env):\n    @rl.reward(weight=float('nan'))\n    def f(self): ...\n",
        "mine.py:4 in Mine: a reward's weight is a finite number, not nan",
    ),
    "a misspelt class": (
        "import agentrl as rl\nclass Min(rl.Env): ...\n",
        "holds no 'Mine'; did you mean 'Min'?",
    ),
    "no environment": (
        "class Mine: ...\n",
        "is the class Mine; it must be a class that derives from agentrl.Env",
    ),
    "a function": (
        "def Mine(): ...\n",
        "is a function; it must be a class that derives from agentrl.Env",
    ),
}

IN_THE_CLASS = {
    "__init__ wants arguments": (
        "    def __init__(self, words): ...",
        (
            "mine.py:4: Mine.__init__ needs 'words', but an environment is made without arguments; make it a "
            "plain attribute of the class, which env.args.words=... sets"
        ),
    ),
    "__init__ raises": (
        "    def __init__(self):\n        self.x = {}['a']",
        "Mine cannot be made: mine.py:5 in Mine.__init__: KeyError: 'a'",
    ),
    "no turns": (
        "    x = 1\n    max_turns = 0",
        "mine.py:5: Mine.max_turns = 0 must be a whole number of at least 1",
    ),
    "turns that are no number": (
        "    max_turns = '3'",
        "mine.py:4: Mine.max_turns = '3' must be a whole number of at least 1",
    ),
    "turns set in __init__": (
        "    def __init__(self):\n        self.max_turns = -1",
        "mine.py:4: Mine.max_turns = -1 must be",
    ),
    "a system prompt that is none": (
        "    system_prompt = 3",
        "mine.py:4: Mine.system_prompt = 3 must be a text",
    ),
    "a misspelt attribute": (
        "    max_turn = 3",
        "mine.py:4: Mine.max_turn means nothing to an environment; did you mean 'max_turns'?",
    ),
    "a misspelt method": (
        "    def stpe(self, action): ...",
        "mine.py:4: Mine.stpe means nothing to an environment; did you mean 'step'?",
    ),
    "a step without an action": (
        "    def step(self): ...",
        "mine.py:4: Mine.step takes () besides self, but is called as step(action)",
    ),
    "a reset with too much": (
        "    def reset(self, task, seed): ...",
        "mine.py:4: Mine.reset takes (task, seed) besides self, but is called as reset(task)",
    ),
    "a close that wants something": (
        "    def close(self, hard): ...",
        "mine.py:4: Mine.close takes (hard) besides self, but is called as close()",
    ),
    "a property that raises": (
        "    @property\n    def max_turns(self): return [][0]",
        "mine.py:5 in Mine.max_turns: IndexError",
    ),
    "a method that is missing": (
        (
            "    ...\nimport abc\nclass Base(rl.Env, abc.ABC):\n"
            "    @abc.abstractmethod\n    def judge(self): ...\nclass Mine(Base): ..."
        ),
        "Mine cannot be made: mine.py:3 in Mine: TypeError: Can't instantiate abstract class Mine",
    ),
    "the rng in __init__": (
        "    def __init__(self):\n        self.x = self.rng.random()",
        "mine.py:5 in Mine.__init__: AttributeError: 'Mine' object has no attribute 'rng'; rng is there from reset on",
    ),
    "nothing to show": (
        "    def step(self, action): return rl.done()",
        "mine.py:3: Mine has no reset(task), and its tasks have no prompt: nothing would be shown",
    ),
    "a step that is no method": (
        "    step = 'left'",
        "mine.py:4: Mine.step is a str; it must be a method",
    ),
    "a size that is none": (
        "    sandbox = rl.SandboxSpec(memory='256Q')",
        "mine.py:4: Mine.sandbox: memory: '256Q' is no size; write bytes or a number with K, M, G or T, as in '256M'",
    ),
    "an isolation that does not exist": (
        "    sandbox = rl.SandboxSpec(isolation='namspace')",
        "mine.py:4: Mine.sandbox: isolation='namspace' does not exist; did you mean 'namespace'",
    ),
    "no time": (
        "    sandbox = rl.SandboxSpec(timeout=0)",
        "mine.py:4: Mine.sandbox: timeout=0 must be seconds above 0",
    ),
    "no processes": (
        "    sandbox = rl.SandboxSpec(pids=0)",
        "mine.py:4: Mine.sandbox: pids=0 must be a whole number",
    ),
    "packages as a text": (
        "    sandbox = rl.SandboxSpec(packages='numpy')",
        "mine.py:4: Mine.sandbox: packages='numpy' must be a list of names",
    ),
    "the class of a spec": (
        "    sandbox = rl.SandboxSpec",
        "mine.py:4: Mine.sandbox = SandboxSpec must be SandboxSpec()",
    ),
    "a sandbox that is no spec": (
        "    sandbox = True",
        "mine.py:4: Mine.sandbox = True must be a SandboxSpec, as in rl.SandboxSpec(memory='256M'), or None",
    ),
    "a sandbox of the instance": (
        "    def __init__(self):\n        self.sandbox = rl.SandboxSpec()",
        "mine.py:4: Mine.sandbox = SandboxSpec(memory='512M'",
    ),
    "a misspelt tool": (
        "    tools = 'pyhton'",
        "mine.py:4: Mine: there is no tool 'pyhton'; did you mean 'python'?",
    ),
    "a tool without its sandbox": (
        "    tools = ['python']",
        "mine.py:4: Mine: tool 'python' needs a sandbox: set `sandbox = SandboxSpec()` on Mine",
    ),
    "tools that are no list": (
        "    tools = 3",
        "mine.py:4: Mine.tools = 3 must be a list of names and functions",
    ),
    "a tool's file that is not there": (
        "    tools = ['helpers.py:f']",
        "; did you mean 'helper.py'?",
    ),
    "a tool without type hints": (
        "    @rl.tool\n    def look(self, item): ...",
        (
            "tool look: parameter 'item' has no type hint, from which the model learns what to give; write item: "
            "str, for one (mine.py:4)"
        ),
    ),
    "a tool with *": (
        "    @rl.tool\n    def look(self, *items: str): ...",
        "mine.py:3: Mine: tool look: parameter 'items' cannot be described to a model",
    ),
    "two tools of one name": (
        "    @rl.tool(name='f')\n    def a(self): ...\n    @rl.tool(name='f')\n    def b(self): ...",
        "mine.py:3: Mine: two tools are called 'f'",
    ),
    "a tool that is a class method": (
        "    @rl.tool\n    @classmethod\n    def f(cls): ...",
        "Mine.f is marked with @tool and is a classmethod; it must be a plain method",
    ),
    "a metric that is a property": (
        "    @property\n    @rl.metric\n    def f(self): ...",
        "Mine.f is marked with @reward and is a property",
    ),
    "a reward's misspelt parameter": (
        "    @rl.reward\n    def right(self, eposide): ...",
        "mine.py:4: reward Mine.right cannot ask for 'eposide'; did you mean 'episode'?",
    ),
    "a metric's unknown parameter": (
        "    @rl.metric\n    def long(self, x): ...",
        "mine.py:4: metric Mine.long cannot ask for 'x'; valid: 'episode', 'fresh', 'task'",
    ),
    "a reward without its sandbox": (
        "    @rl.reward\n    def right(self, fresh): ...",
        "mine.py:4: reward Mine.right asks for a fresh sandbox, but Mine declares no SandboxSpec",
    ),
}

IN_ITS_TASKS = {
    "no class method": (
        "    def tasks(self): ...",
        "mine.py:4: Mine.tasks must be a class method: write @classmethod above it",
    ),
    "a list in its place": (
        "    tasks = []",
        "mine.py:4: Mine.tasks must be a class method",
    ),
    "nothing": (
        "    @classmethod\n    def tasks(cls): ...",
        (
            "mine.py:4: Mine.tasks gave None; it must give a list of Task, or a source with get and held_out; is "
            "the return missing?"
        ),
    ),
    "no tasks": (
        "    @classmethod\n    def tasks(cls): return []",
        "mine.py:4: Mine.tasks gave no tasks",
    ),
    "a dict": (
        "    @classmethod\n    def tasks(cls): return {'a': 1}",
        "Mine.tasks gave a dict; it must give a list of Task",
    ),
    "a list of something else": (
        "    @classmethod\n    def tasks(cls): return [rl.Task(id='a'), 'b']",
        "mine.py:4: Mine.tasks gave a str at 1, not a Task; write rl.Task(id=..., prompt=...)",
    ),
    "one id twice": (
        "    @classmethod\n    def tasks(cls): return [rl.Task(id='a'), rl.Task(id='a')]",
        "mine.py:4: Mine.tasks gave the id 'a' at 1, which the task at 0 has",
    ),
    "a generator that raises": (
        "    @classmethod\n    def tasks(cls):\n        yield rl.Task(id='a')\n        yield 1 / 0",
        "Mine.tasks: mine.py:7 in Mine.tasks: ZeroDivisionError: division by zero",
    ),
    "async": (
        "    @classmethod\n    async def tasks(cls): return []",
        "mine.py:4: Mine.tasks is async; it must be a plain class method",
    ),
    "it raises": (
        "    @classmethod\n    def tasks(cls, a=1): return open('no.txt')",
        "Mine.tasks(): mine.py:5 in Mine.tasks: FileNotFoundError",
    ),
    "half a source": (
        (
            "    @classmethod\n"
            "    def tasks(cls): return Half()\n"
            "class Half:\n"
            "    def get(self, index): ...\n"
            "    def heldout(self, count): ..."
        ),
        "mine.py:6: Half is no source of tasks: it lacks held_out (did you mean 'heldout'?)",
    ),
    "the class of a source": (
        "    @classmethod\n    def tasks(cls): return Half\nclass Half:\n    def get(self, index): ...",
        "mine.py:4: Mine.tasks gave the class Half; write Half(...)",
    ),
    "a source's method without a parameter": (
        (
            "    @classmethod\n"
            "    def tasks(cls): return S()\n"
            "class S:\n"
            "    def get(self): ...\n"
            "    def held_out(self, count): ..."
        ),
        "mine.py:7: S.get takes (), but is called with one number",
    ),
    "a source that gives something else": (
        (
            "    @classmethod\n"
            "    def tasks(cls): return S()\n"
            "class S:\n"
            "    def get(self, index): return index\n"
            "    def held_out(self, count): ..."
        ),
        "mine.py:7: Mine.tasks: get(0) gave a int, not a Task",
    ),
    "a source that raises": (
        (
            "    @classmethod\n"
            "    def tasks(cls): return S()\n"
            "class S:\n"
            "    def get(self, index): return [][index]\n"
            "    def held_out(self, count): ..."
        ),
        "Mine.tasks: get(0): mine.py:7 in S.get: IndexError: list index out of range",
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "helper.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on standard error of a command that refuses."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("agentrl: ")) == ("", 1, True), err
    return err


@pytest.mark.parametrize(("text", "answer"), IN_THE_FILE.values(), ids=IN_THE_FILE)
def test_a_file_that_cannot_be_loaded(text: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(text)
    assert answer in said(capsys, "play", "env=mine.py:Mine", "--policy", "noop")
    assert answer in said(capsys, "train", "env=mine.py:Mine", "model=tiny", "--dry-run")


@pytest.mark.parametrize(
    ("text", "answer"), [*IN_THE_CLASS.values(), *IN_ITS_TASKS.values()], ids=[*IN_THE_CLASS, *IN_ITS_TASKS]
)
def test_a_class_that_cannot_be_played(text: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(f"{HEAD}{text}\n")
    assert answer in said(capsys, "train", "env=mine.py:Mine", "model=tiny", "--dry-run")
    assert answer in said(capsys, "env", "info", "mine.py:Mine")
