"""What an environment's file may be and do: forms that are accepted, files beside it, paths that hold from every folder, and
what is shown when it breaks while it is played."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl import registry
from agentrl.cli import main
from agentrl.compose import compose
from agentrl.config import EnvConfig
from agentrl.env_source import compare, files
from agentrl.errors import UsageError
from agentrl.finite import FiniteTasks, content
from agentrl.load import load
from agentrl.task import Task
from agentrl.world import World, build

HEAD = "import agentrl as rl\n\nclass Mine(rl.Env):\n"
TASKS = FiniteTasks(name="sums", tasks=tuple(Task(id=f"{n}", prompt=f"{n} + {n}?") for n in range(9)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before


def mine(text: str, *, head: str = HEAD, **config: object) -> World:
    shows = "" if "def reset" in text else "Mine.reset = lambda self, task: 'Go.'\n"
    Path("mine.py").write_text(f"{head}{text}\n{shows}")
    return build(EnvConfig(id="mine.py:Mine", **config), seed=1)


# Forms that are accepted


@pytest.mark.parametrize(
    "given",
    [
        "return [rl.Task(id=str(i), prompt=f'{i}?') for i in range(40)]",
        "yield from (rl.Task(id=str(i), prompt=f'{i}?') for i in range(40))",
    ],
)
def test_a_list_or_a_generator_of_tasks_is_a_source(given: str) -> None:
    tasks = mine(f"    @classmethod\n    def tasks(cls):\n        {given}").tasks
    held = {task.id for task in tasks.held_out(3)}
    trained = [tasks.get(i).id for i in range(80)]
    assert held.isdisjoint(trained)
    assert set(trained[: len(set(trained))]) == set(trained)  # each once before any twice
    assert tasks.held_out(3) == build(EnvConfig(id="mine.py:Mine"), seed=2).tasks.held_out(3)
    with pytest.raises(UsageError, match=r"Mine.tasks: \d+ tasks are held out, 30 were asked for"):
        tasks.held_out(30)


def test_tasks_that_differ_in_what_is_public_alone_are_split_too() -> None:
    tasks = tuple(Task(id=str(i), prompt="Solve it.", public={"grid": i}) for i in range(50))
    held = FiniteTasks(name="x", tasks=tasks, says=content).held_out(5)
    assert len(held) == 5
    copies = tuple(Task(id=f"copy {i}", prompt="Solve  it.", public={"grid": i}) for i in range(50))
    both = FiniteTasks(name="x", tasks=(*tasks, *copies), says=content)
    grids = {both.get(i).public["grid"] for i in range(200)}
    assert grids.isdisjoint(task.public["grid"] for task in held)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_a_few_tasks_one_is_always_left_to_train_on(count: int) -> None:
    for start in range(20):
        tasks = tuple(Task(id=str(i), prompt=f"{start + i}") for i in range(count))
        assert FiniteTasks(name="x", tasks=tasks, held_out_share=0.9).get(0) in tasks


def test_one_tool_may_be_named_without_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    mine("    tools = 'python'\n    sandbox = rl.SandboxSpec()")
    assert main(["env", "info", "mine.py:Mine"]) == 0
    assert "tools       python\n" in capsys.readouterr().out
    world = mine("    sandbox = rl.SandboxSpec()", args={"tools": "python"})
    assert world.make().tools == ["python"]


def test_settings_of_a_list_are_not_shared_by_episodes() -> None:
    world = mine("    words = []", args={"words": ["a"]})
    world.make().words.append("b")
    assert world.make().words == ["a"]


def test_a_source_may_be_for_evaluation_alone() -> None:
    world = build(EnvConfig(id="code_sandbox", tasks={"source": "humaneval"}), seed=0)
    assert len(world.tasks.held_out(3)) == 3
    with pytest.raises(UsageError, match="none is left to train on"):
        world.tasks.get(0)


SOURCE = """    @classmethod
    def tasks(cls):
        return Three()

class Three:
    def get(self, index):
        return [rl.Task(id=str(i)) for i in range(3)][index]

    def held_out(self, count):
        return self.ITEMS[:count]

    ITEMS = [rl.Task(id="h"), 5]
"""


def test_a_task_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    mine(SOURCE)
    for arguments, answer in (
        (
            ["--task", "3"],
            "agentrl: --task 3: Mine.tasks: get(3): mine.py:10 in Three.get: IndexError: list index out of range\n",
        ),
        (["--task", "-1"], "agentrl: --task -1: tasks are counted from 0\n"),
        (
            ["--task", "1", "--held-out"],
            "agentrl: --task 1 --held-out: mine.py:12: Mine.tasks: held_out(2) gave a int at 1, not a Task\n",
        ),
        (["--task", "2", "--held-out"], "agentrl: --task 2 --held-out: mine.py:12: Mine.tasks: held_out(3) gave"),
    ):
        assert main(["play", "env=mine.py:Mine", "--policy", "noop", *arguments]) == 2
        assert answer in capsys.readouterr().err
    human_eval = ["env=code_sandbox", "env.tasks.source=humaneval", "--held-out", "--task", "164"]
    assert main(["play", "--policy", "gold", *human_eval]) == 2
    assert "--task 164 --held-out: humaneval: 164 tasks are held out, 165 were asked for" in capsys.readouterr().err


# Files beside it


def test_an_environment_imports_the_files_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at = tmp_path / "project"
    (at / "words").mkdir(parents=True)
    (at / "helper.py").write_text("import words.short\nNUMBER = 7\n")
    (at / "words" / "short.py").write_text("WORD = 'hi'\n")
    (at / "late.py").write_text("TOLD = 'late'\n")
    (at / "mine.py").write_text(
        f"import helper\n{HEAD}    number = helper.NUMBER\n"
        "    def reset(self, task):\n        import late\n        return late.TOLD\n"
    )
    env = build(EnvConfig(id="project/mine.py:Mine"), seed=0).make()
    assert env.number == 7  # type: ignore[attr-defined]
    assert env.reset(Task(id="t")) == "late"  # an import inside a method
    assert str(at) not in sys.path[:-1]  # the last place: it shadows nothing
    assert [file.name for file in files(type(env))] == ["mine.py", "helper.py", "short.py"]


def test_two_folders_may_each_have_a_helper(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text(f"NAME = {name!r}\n")
        (tmp_path / name / "mine.py").write_text("import helper\nNAME = helper.NAME\n")
    assert [load(tmp_path / name / "mine.py").NAME for name in ("one", "two")] == ["one", "two"]


def test_a_file_beside_that_fails_is_named_and_can_be_mended(tmp_path: Path) -> None:
    Path("mine.py").write_text("import helper\nNAME = helper.NAME\n")
    Path("helper.py").write_text("x = 1\nNAME = x.y\n")
    with pytest.raises(UsageError, match=r"helper.py:2: AttributeError: 'int' object has no attribute 'y'"):
        registry.find("env", "mine.py:NAME")
    assert "helper" not in sys.modules
    Path("helper.py").write_text("NAME = 'a much longer one'\n")
    assert registry.find("env", "mine.py:NAME") == "a much longer one"


def test_a_tool_is_looked_for_beside_the_environment_and_then_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = tmp_path / "project"
    at.mkdir()
    (at / "shop.py").write_text("def price(item: str) -> int:\n    'The price.'\n    return 1\n")
    (at / "mine.py").write_text(
        f"{HEAD}    tools = ['shop.py:price', 'shop:price2']\n    def reset(self, task): return 'Go.'\n"
    )
    with (at / "shop.py").open("a") as file:
        file.write("def price2(item: str) -> int:\n    'Another.'\n    return 2\n")
    assert main(["env", "info", "project/mine.py:Mine"]) == 0
    assert "tools       price, price2\n" in capsys.readouterr().out
    Path("here.py").write_text("def look(x: int) -> int:\n    'Looks.'\n    return x\n")
    world = build(EnvConfig(id="project/mine.py:Mine", args={"tools": ["here.py:look"]}), seed=0)
    assert world.make().tools == ["here.py:look"]


def test_a_module_in_this_folder_that_is_not_on_the_path_is_pointed_at() -> None:
    Path("my_own_env.py").write_text(f"{HEAD}    ...\n")
    with pytest.raises(UsageError, match=r"'my_own_env', which cannot be found; did you mean my_own_env.py:Mine\?"):
        registry.find("env", "my_own_env:Mine")


# Paths that hold from every folder


def test_the_config_holds_whole_paths(tmp_path: Path) -> None:
    Path("mine.py").write_text(f"{HEAD}    ...\n")
    Path("tasks.jsonl").write_text("{}\n")
    (tmp_path / "weights").mkdir()
    given = ["env=mine.py:Mine", "model=weights", "env.tasks.source=tasks.jsonl", "env.tasks.other=none.jsonl"]
    config = compose(given).config
    assert config.env.id == f"{tmp_path}/mine.py:Mine"
    assert config.model.id == f"{tmp_path}/weights"
    assert config.env.tasks == {"source": f"{tmp_path}/tasks.jsonl", "other": "none.jsonl"}
    assert compose(["env=guess_number", "model=tiny"]).config.env.id == "guess_number"


def test_a_change_of_the_files_is_noted(tmp_path: Path) -> None:
    Path("helper.py").write_text("A = 1\n")
    cls = mine("    x = helper.A", head=f"import helper\n{HEAD}").cls
    record = tmp_path / "env.json"
    assert compare(cls, TASKS, record) == ""
    assert compare(cls, TASKS, record) == ""
    Path("helper.py").write_text("A = 2\n")
    assert compare(cls, TASKS, record).startswith("note: changed since this run began: helper.py;")
    assert sorted(json.loads(record.read_text())) == [
        "helper.py",
        "its tasks",
        "mine.py",
    ]  # not their folder: a project may be moved
    assert compare(registry.find("env", "guess_number"), TASKS, tmp_path / "other.json") == ""


def test_tasks_that_were_edited_are_noted_also_where_only_their_answer_changed(tmp_path: Path) -> None:
    def tasks(answer: int) -> FiniteTasks:
        made = tuple(Task(id=f"{n}", prompt=f"{n} + {n}?", secret={"answer": answer + n}) for n in range(9))
        return FiniteTasks(name="sums", tasks=made)

    cls, record = mine("    ...").cls, tmp_path / "env.json"
    assert compare(cls, tasks(0), record) == "" == compare(cls, tasks(0), record)
    assert compare(cls, tasks(1), record).startswith("note: changed since this run began: its tasks;")


# While it is played


def test_play_shows_where_an_environment_broke(capsys: pytest.CaptureFixture[str]) -> None:
    mine("    def reset(self, task):\n        return self.world()\n\n    def world(self):\n        return {}['map']")
    assert main(["play", "env=mine.py:Mine", "--policy", "noop"]) == 1
    assert capsys.readouterr().out == (
        "  mine.py:5 in Mine.reset\n    return self.world()\n"
        "  mine.py:8 in Mine.world\n    return {}['map']\n"
        "env_error: KeyError: 'map' (mine.py:8 in Mine.world) after 0 turns; reward 0\n"
    )


def test_a_policy_of_ones_own_plays(capsys: pytest.CaptureFixture[str]) -> None:
    mine(
        "    def reset(self, task):\n        self.number = self.rng.randint(1, 9)\n        return f'Say {self.number}.'\n"
        "    def step(self, action):\n        return rl.done(reward=float(action.parse(int) == self.number))\n\n"
        "def gold(task, rng):\n    return lambda messages: messages[-1].text\n\n"
        "def none(task, rng):\n    return None\n\ndef broken(task, rng):\n    return task.nothing\n"
    )
    assert main(["play", "env=mine.py:Mine", "--policy", "mine.py:gold"]) == 0
    assert "; reward 1 (env 1)" in capsys.readouterr().out
    for name, answer in (
        ("none", "mine.py:13: the policy mine.py:none gave None; it must give a function from messages to a text"),
        ("broken", "the policy mine.py:broken cannot be made: mine.py:17 in broken: AttributeError"),
        ("gld", "mine.py holds no 'gld'; did you mean 'gold'?"),
    ):
        assert main(["play", "env=mine.py:Mine", "--policy", f"mine.py:{name}"]) == 2
        assert answer in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:sandbox=unsafe_local")
def test_a_demonstration_is_marked_for_whoever_plays(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "env=code_sandbox", "--policy", "noop", "sandbox=unsafe_local"]) == 0
    out = capsys.readouterr().out
    assert "[user, demonstration, part of the prompt]\nWrite a function triple(x)" in out
    assert "[assistant, demonstration, part of the prompt]\n```python\ndef triple" in out
    assert out.count("demonstration, part of the prompt]") == 2


SMALL = [
    "model=tiny",
    "trainer.steps=1",
    "trainer.prompts_per_step=2",
    "trainer.samples_per_prompt=2",
    "sampling.max_new_tokens=4",
    "sampling.max_episode_tokens=200",
    "engine.max_context=256",
    "backend.threads=1",
    "eval.tasks=0",
    "log.tensorboard=false",
    "log.report=false",
]

SOUNDS = "    max_turns = 1\n    def step(self, action):\n        return rl.done(reward=float(helper.share(action.raw)))"


def test_a_run_is_gone_on_with_from_another_folder_and_says_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("helper.py").write_text("def share(text):\n    return len(set(text)) / 10\n")
    mine(SOUNDS, head=f"import helper\n{HEAD}")
    assert main(["train", "env=mine.py:Mine", *SMALL, "run=a"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["train", f"resume={tmp_path}/runs/a", "trainer.steps=2"]) == 0
    assert "changed" not in capsys.readouterr().out
    (tmp_path / "helper.py").write_text("def share(text):\n    return len(set(text)) / 20\n")
    assert main(["train", f"resume={tmp_path}/runs/a", "trainer.steps=3"]) == 0
    assert "note: changed since this run began: helper.py;" in capsys.readouterr().out


def test_a_run_whose_environment_was_moved_is_told_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "old")
    mine("    max_turns = 1")
    assert main(["train", "env=mine.py:Mine", *SMALL, "run=a"]) == 0
    for path in ("mine.py", "runs"):
        Path(path).rename(tmp_path / "new" / path)
    monkeypatch.chdir(tmp_path / "new")
    capsys.readouterr()
    assert main(["train", "resume=a", "trainer.steps=2"]) == 2
    assert f"there is no file {tmp_path}/old/mine.py" in capsys.readouterr().err
    Path("other.py").write_text(Path("mine.py").read_text())
    assert main(["train", "resume=a", "trainer.steps=2", "env=other.py:Mine"]) == 2
    assert "resume=a cannot change env.id" in capsys.readouterr().err
    assert main(["train", "resume=a", "trainer.steps=2", "env=mine.py:Mine"]) == 0


def test_a_run_that_breaks_names_the_place_in_its_last_line_and_shows_the_authors_frames_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine("    def step(self, action):\n        return self.judge()\n\n    def judge(self):\n        return {}['left']")
    assert main(["train", "env=mine.py:Mine", *SMALL]) == 1
    err = capsys.readouterr().err
    assert "KeyError: 'left' (mine.py:8 in Mine.judge)" in err.splitlines()[-1]
    assert "mine.py:5 in Mine.step\n    return self.judge()\n  mine.py:8 in Mine.judge\n    return {}['left']\n" in err
    assert err.count("mine.py:8") == 2
    assert "rollout" not in err.partition("agentrl: ")[0]


def test_a_reset_that_breaks_ends_the_run_in_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    mine("    def reset(self, task):\n        return {}['map']")
    assert main(["train", "env=mine.py:Mine", *SMALL]) == 1
    err = capsys.readouterr().err
    assert "mine.py:5 in Mine.reset: KeyError: 'map'" in err.splitlines()[-1]
    assert "    return {}['map']\n" in err
    assert "Traceback" not in err
