"""The command line: what is printed, what a mistake costs (one line, exit code 2), and that looking loads no torch."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import keys
from agentrl.cli import COMMANDS, main
from agentrl.commands.env import describe
from agentrl.person import Person, PlainRenderer, script
from agentrl.registry import find

ROOT = Path(__file__).resolve().parents[2]

ENV_FILE = '''
import agentrl as rl

class Number(rl.Env):
    """Say the number."""
    max_turns = 4

    def reset(self, task):
        self.number = self.rng.randint(1, 9)
        return "Which number from 1 to 9?"

    def step(self, action):
        if action.parse(int) == self.number:
            return rl.done("Right.", reward=1.0)
        return "Wrong."

    @rl.tool
    def peek(self) -> str:
        """Shows the number."""
        return str(self.number)
'''


@pytest.fixture
def number(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(ENV_FILE)
    return f"env={file}:Number"


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "agentrl", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def test_the_version_and_the_help_come_without_a_command() -> None:
    import agentrl

    shown = call("--version")
    assert (shown.returncode, shown.stdout) == (0, f"agentrl {agentrl.__version__}\n")
    helped = call()
    assert helped.returncode == 0
    assert all(f"  {name} " in helped.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["trian"], "there is no command 'trian'; did you mean 'train'?"),
        (["train", "trainer.lerning_rate=1"], "there is no key 'trainer.lerning_rate'; did you mean 'trainer.lr'?"),
        (["train", "env=gess_number"], "there is no env 'gess_number'; did you mean 'guess_number'?"),
        (["train", "--dry-rum"], "agentrl train has no option '--dry-rum'; did you mean '--dry-run'?"),
        (["train", "resume=nothing"], "there is no run 'nothing'"),
        (["train", "--config", "no.yaml"], "there is no config file no.yaml"),
        (["train", "env=guess_number", "env.args.max_trns=3", "--dry-run"], "did you mean 'max_turns' or 'max_tokens'?"),
        (["train", "env=guess_number", "env.args.low=x", "--dry-run"], "env.args.low='x' must be like its default, 1"),
        (["train", "env=guess_number", "env.tasks.level=3", "--dry-run"], "GuessNumber.tasks has no argument 'level'"),
        (["eval", "model=smolm2"], "there is no model 'smolm2'; did you mean 'smollm2-135m'?"),
        (
            ["play", "env=guess_number", "--policy", "glod"],
            "there is no policy 'glod', nor a file of that name; did you mean 'gold'?",
        ),
        (["play", "env=guess_number", "--task", "x"], "argument --task: invalid int value: 'x'"),
        (["env", "lst"], "there is no 'agentrl env lst'; did you mean 'list'?"),
        (["env", "info"], "agentrl env info needs a name"),
        (["env", "info", "gess_number"], "did you mean 'guess_number'?"),
        (["doctor", "--ofline"], "did you mean '--offline'?"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error_and_exit_code_2(
    arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert answer in err
    assert err.startswith("agentrl: ")
    assert err.count("\n") == 1
    assert out == ""


def test_a_mistake_in_a_real_process_shows_no_traceback() -> None:
    wrong = call("train", "trainer.lr=fast")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "agentrl: trainer.lr must be a number, got 'fast'\n"


def test_looking_and_planning_loads_no_torch_and_writes_nothing(tmp_path: Path) -> None:
    program = """
import sys
from agentrl.cli import main
codes = [main(arguments.split()) for arguments in sys.argv[1:]]
assert not any(codes), codes
heavy = [name for name in ("torch", "transformers", "matplotlib") if name in sys.modules]
assert not heavy, heavy
"""
    commands = [
        f"train env=guess_number out={tmp_path}/runs --dry-run",
        "train --help",
        "env list",
        "env info guess_number",
        "play env=guess_number --policy gold",
    ]
    done = subprocess.run([sys.executable, "-c", program, *commands], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_plan_says_who_runs_where_and_how_much_there_is_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["trainer.steps=10", "trainer.prompts_per_step=4", "trainer.samples_per_prompt=8", "eval.tasks=20", "eval.every=5"]
    more = ["sampling.max_new_tokens=16", "sampling.max_episode_tokens=512", "trainer.epochs=2", "trainer.minibatches=2"]
    assert main(["train", "env=guess_number", "model=tiny", *given, *more, "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert "step     4 prompts x 8 samples = 32 episodes of at most 8 turns x 16 new tokens" in plan
    assert "at most 16,384 tokens to train on" in plan  # 32 x 512
    assert "4 optimizer steps" in plan
    assert "run      10 steps = 320 episodes; staleness 0" in plan
    assert "eval     3 x 20 held-out tasks x 1 = 60 episodes, after steps 0, 5, 10" in plan
    assert "trainer.epochs                   2  (override: trainer.epochs=2)" in plan
    assert "sandboxes" not in plan  # guess_number needs none
    assert main(["train", "env=code_sandbox", "model=tiny", "sandbox.slots=3", "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert "local, 3 at once, each at most 256M" in plan
    assert " 0.75\n" in plan  # 3 x 256 MiB


def test_the_plan_knows_the_sizes_of_a_model_that_is_on_this_machine(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    from agentrl.plan import shape_of

    (tmp_path / "config.json").write_text(
        '{"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3}'
    )
    save_file({"a": np.zeros((10, 20), np.float32), "b": np.zeros(7, np.float32)}, tmp_path / "model.safetensors")
    shape = shape_of(str(tmp_path))
    assert shape is not None
    assert (shape.parameters, shape.layers, shape.hidden, shape.kv_width) == (207, 3, 64, 32)
    assert shape.kv_bytes(100, "bfloat16") == 2 * 3 * 32 * 100 * 2
    assert shape_of("tiny") is None


def test_help_lists_every_key_with_its_default_and_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for key in keys.table().values():
        assert f"  {key.name}" in text
        assert not key.doc or key.doc in text
    assert f"trainer.lr [{keys.table()['trainer.lr'].default}]" in text
    for preset in ("rloo", "dapo", "unsafe_local", "smollm2-135m"):
        assert preset in text


def test_environments_are_listed_and_described(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "list"]) == 0
    listed = capsys.readouterr().out
    assert "guess_number" in listed
    assert "agentrl.envs.code_sandbox:CodeSandbox" in listed
    assert main(["env", "info", number.removeprefix("env=")]) == 0
    told = capsys.readouterr().out
    for part in ("Say the number.", "max_turns   4", "tools       peek", "sandbox     none needed", "env.args.max_turns=4"):
        assert part in told
    assert "hidden_tests x 1" in describe("code_sandbox", find("env", "code_sandbox"))
    assert "memory 256M" in describe("code_sandbox", find("env", "code_sandbox"))


def test_an_environment_that_cannot_be_loaded_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from agentrl import registry

    monkeypatch.setitem(registry.BUNDLED["env"], "broken", "agentrl.envs.no_such_module:X")
    assert main(["env", "list"]) == 0
    listed = capsys.readouterr().out
    assert "broken" in listed
    assert "cannot be loaded" in listed
    assert "guess_number" in listed


def test_a_person_plays_with_numbers_and_tools(
    number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('none\n/call peek {}\n/call peek {"x": 1}\n/call peek [\n'))
    assert main(["play", number]) == 0
    shown = capsys.readouterr().out
    assert "[tool] /call peek {}   Shows the number." in shown
    assert "Which number from 1 to 9?" in shown
    assert "Your answer must hold a whole number." in shown
    assert "[tool peek]\n" in shown
    assert "invalid arguments for peek" in shown
    assert "Your call of peek could not be read" in shown
    assert "max_turns after 4 turns; reward 0" in shown


def test_a_fence_is_one_turn_and_the_input_may_not_end_early(
    number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("```\n1\n\n0\n```\n"))
    assert main(["play", number]) == 2
    shown = capsys.readouterr()
    assert shown.out.count("Wrong.") == 1  # the three lines of the fence were one answer
    assert "the input ended before the episode did" in shown.err


def test_a_script_speaks_turn_by_turn_and_repeats_its_last_part(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "script.txt"
    file.write_text("first\n---\nsecond\nline\n")
    assert main(["play", number, "--policy", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("[policy]\nfirst\n") == 1
    assert shown.count("[policy]\nsecond\nline\n") == 3


@pytest.mark.parametrize(("policy", "reward"), [("gold", 1), ("noop", 0)])
def test_scripted_policies_get_what_they_deserve(policy: str, reward: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "env=guess_number", "--policy", policy, "--task", "3", "--held-out"]) == 0
    assert f"; reward {reward} (env {reward})" in capsys.readouterr().out


def test_only_the_bundled_environments_have_a_gold_policy(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", number, "--policy", "gold"]) == 2
    assert "nobody has written a gold policy" in capsys.readouterr().err
    assert main(["play", number, "--policy", "random"]) == 0


def test_an_environment_that_breaks_ends_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import agentrl as rl\nclass Broken(rl.Env):\n    def reset(self, task):\n        return 1 / 0\n")
    assert main(["play", f"env={file}:Broken", "--policy", "noop"]) == 1
    assert "env_error: ZeroDivisionError: division by zero" in capsys.readouterr().out


def test_a_run_that_fails_says_why_shows_where_and_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from agentrl.commands import doctor
    from agentrl.episode import RolloutError

    def fail(argv: object) -> int:
        raise RolloutError("playing failed: KeyError: 'x'") from KeyError("x")

    monkeypatch.setattr(doctor, "run", fail)
    assert main(["doctor"]) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[0] == "KeyError: 'x'"
    assert err.splitlines()[-1] == "agentrl: the run failed: playing failed: KeyError: 'x'"


def test_what_a_person_says_goes_through_characters_and_back() -> None:
    import asyncio

    from agentrl.engine import GenerateRequest
    from agentrl.messages import Message

    renderer = PlainRenderer()
    ids = renderer.render([Message(role="user", content="Hé?")])
    assert "".join(map(chr, ids)) == "[user]\nHé?\n\n"
    person = Person(script('näin\n/call f {"a": 1}'), renderer)
    said = asyncio.run(person.generate(GenerateRequest(prompt_ids=ids, max_new_tokens=9)))
    action = renderer.parse(said.ids)
    assert (action.text, action.raw) == ("näin", 'näin\n/call f {"a": 1}')
    assert [(call.name, call.arguments) for call in action.tool_calls] == [("f", {"a": 1})]
    assert len(said.ids) == len(said.logprobs) == len(said.versions)
