"""Composing a config: what a person may write, what it becomes, and the one line that answers a mistake."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import yaml

from agentrl import config as schema
from agentrl import keys
from agentrl.compose import compose, groups, summary, to_yaml
from agentrl.errors import UsageError
from agentrl.validate import ABOVE_ZERO, AT_LEAST_ONE, CHOICES, NOT_NEGATIVE, UP_TO_ONE, get, problems

WRONG = {
    # keys
    "trainer.lerning_rate=1": "there is no key 'trainer.lerning_rate'; did you mean 'trainer.lr'?",
    "trainer.step=1": "there is no key 'trainer.step'; did you mean 'trainer.steps'?",
    "trianer.lr=1": "there is no key 'trianer.lr'; did you mean 'trainer.lr'?",
    "lr=1": "there is no key 'lr'; did you mean 'trainer.lr'?",
    "temperature=1": "there is no key 'temperature'; did you mean 'sampling.temperature' or 'eval.temperature'?",
    "max_turns=3": "there is no key 'max_turns'; did you mean 'env.args.max_turns'?",
    "trainer.num_generations=4": "there is no key 'trainer.num_generations'; did you mean 'trainer.samples_per_prompt'?",
    "checkpoint.zzz=1": "there is no key 'checkpoint.zzz'; keys of 'checkpoint': every, keep",
    # groups
    "trainer=grop": "there is no trainer 'grop'; did you mean 'grpo'?",
    "env=code_sandbx": "there is no env 'code_sandbx'; did you mean 'code_sandbox'?",
    "engine=torhc": "there is no engine 'torhc'; did you mean 'torch'?",
    "model=smolm2": "there is no model 'smolm2'; did you mean 'smollm2-135m'?",
    "model=": "there is no model ''; valid: ",
    "engine=scripted": "there is no engine 'scripted'; valid: 'torch'",
    "sandbox=none": "there is no sandbox 'none'; valid: 'docker', 'local', 'remote', 'unsafe_local', 'wasm'",
    "env=nowhere.py:X": "there is no file nowhere.py (for env=nowhere.py:X)",
    # form
    "trainer": "'trainer' is no override; they read key=value",
    "tiny": "did you mean 'model=tiny'?",
    "trainer.lr": "did you mean 'trainer.lr=...'?",
    "=3": "'=3' is no override",
    "+trainer.lerning_rate=1": "+ cannot add a key that the schema does not have; did you mean 'trainer.lr'?",
    "~trainer.lr": "'~trainer.lr': keys cannot be deleted",
    "trainer.lr=1e-4,1e-5": "a run takes one value",
    "env.args.x=[1": "the value cannot be read",
    # types
    "trainer.lr=fast": "trainer.lr must be a number, got 'fast'",
    "trainer.lr=null": "trainer.lr must be a number, got null",
    "trainer.steps=1.5": "trainer.steps must be a whole number, got 1.5",
    "trainer.steps=true": "trainer.steps must be a whole number, got True",
    "log.live=maybe": "log.live must be true or false, got 'maybe'",
    "trainer.betas=0.9": "trainer.betas must be a list of numbers, as in [0.9,0.95], got 0.9",
    "trainer.betas=[a,b]": "trainer.betas must be a list of numbers, as in [0.9,0.95], got ['a', 'b']",
    "env.args=3": "env.args must be a mapping, as in {a: 1}, got 3",
    "env.args.a=${nope}": "env.args.a: Interpolation key 'nope' not found",
    # values
    "rollout.mode=kep": "rollout.mode='kep' is not known; did you mean 'keep'?",
    "trainer.kl=k4": "trainer.kl='k4' is not known; valid: 'k1', 'k2', 'k3', 'none'",
    "model.dtype=fp8": "model.dtype='fp8' is not known; valid: 'bfloat16', 'float32'",
    "trainer.steps=0": "trainer.steps=0 must be at least 1",
    "trainer.lr=-1": "trainer.lr=-1.0 must be above 0 and finite",
    "trainer.lr=nan": "trainer.lr=nan must be above 0 and finite",
    "trainer.lr=inf": "trainer.lr=inf must be above 0 and finite",
    "sampling.top_p=1.1": "sampling.top_p=1.1 must be above 0 and at most 1",
    "seed=-1": "seed=-1 must not be negative",
    "trainer.betas=[0.9]": "trainer.betas=[0.9] must be two numbers",
    "trainer.betas=[0.9,1]": "trainer.betas=[0.9, 1.0] must be two numbers from 0 to below 1",
    "trainer.max_grad_norm=-1": "trainer.max_grad_norm=-1.0 must not be negative",
    "run=a/b": "run='a/b' must be a name without slashes",
    # what must fit together
    "trainer.minibatches=7": "must divide trainer.prompts_per_step=8 (a minibatch holds whole groups of siblings); 8 does",
    "trainer.samples_per_prompt=1": "gives trainer.advantage=group_norm nothing to compare",
    "sampling.max_new_tokens=4096": "leaves no room for a prompt in engine.max_context=1024",
    "sampling.max_episode_tokens=4096": "is more than engine.max_context=1024 can hold",
    "sampling.temperature=0": "makes all samples of a group equal",
    "rollout.max_groups=2": "a step could never be filled",
    "trainer.kl=k3": "trainer.kl=k3 has no effect with trainer.kl_coef=0",
    "trainer.kl_coef=0.1": "trainer.kl_coef=0.1 has no effect with trainer.kl=none",
    "trainer.correction=tis": "set trainer.old_logprobs=recompute with it",
    "sampling.top_p=0.9": "or trainer.old_logprobs=recompute",
    "trainer.dual_clip=0.5": "must be above 1 (3 is usual), or 0 for off",
    "rollout.mode=abort": "set rollout.staleness=1",
}

BASE = [
    "trainer.prompts_per_step=8",
    "trainer.samples_per_prompt=8",
    "engine.max_context=1024",
    "sampling.max_episode_tokens=768",
]


@pytest.mark.parametrize("override", WRONG)
def test_a_mistake_is_answered_in_one_line_that_says_what_to_write(override: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose([*BASE, override])
    assert WRONG[override] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_defaults_are_those_of_the_dataclasses_and_pass_the_checks() -> None:
    resolved = compose()
    assert list(problems(schema.Config())) == []
    assert resolved.config.trainer == schema.TrainerConfig(lr=5e-5, tokens_per_microbatch=768)  # the default model's own
    assert resolved.origins["trainer.lr"] == "configs/model/smollm2-135m.yaml"
    assert resolved.config.checkpoint == schema.CheckpointConfig()
    assert resolved.origins["trainer.steps"] == "default"
    assert resolved.origins["trainer.advantage"] == "configs/trainer/grpo.yaml"


def test_numbers_are_numbers_however_they_are_written() -> None:
    assert compose(["trainer.lr=1e-6"]).config.trainer.lr == 1e-6
    assert compose(["trainer.lr='1e-6'"]).config.trainer.lr == 1e-6
    assert compose(["trainer.lr=1"]).config.trainer.lr == 1.0
    assert compose(["trainer.steps=1e3"]).config.trainer.steps == 1000
    assert compose(["trainer.betas=[0.8,0.9]"]).config.trainer.betas == [0.8, 0.9]
    assert compose(["trainer.max_grad_norm=0"]).config.trainer.max_grad_norm == 0.0  # no clipping


def test_texts_need_no_quotes() -> None:
    config = compose(["run=a(b),c d", "model=./my folder/x=y", "out='quoted'"]).config
    assert (config.run, config.model.id, config.out) == ("a(b),c d", "./my folder/x=y", "quoted")


def test_free_mappings_take_new_keys_with_and_without_plus_and_as_a_whole() -> None:
    overrides = ["env.args.max_turns=3", "+env.args.hint=yes", "env.tasks={level: 1, kinds: [a,b]}", "env.tasks.level=2"]
    env = compose(overrides).config.env
    assert env.args == {"max_turns": 3, "hint": "yes"}
    assert env.tasks == {"level": 2, "kinds": ["a", "b"]}


def test_interpolations_are_resolved() -> None:
    assert compose(["run=${env.id}-x", "env=guess_number"]).config.run == "guess_number-x"


@pytest.mark.parametrize("name", ["my_pkg.mod:Env", "examples.first:Env"])
def test_an_env_that_is_no_group_file_is_found_by_module(name: str) -> None:
    resolved = compose([f"env={name}"])
    assert resolved.config.env.id == name
    assert resolved.origins["env.id"] == f"override: env={name}"


def test_an_env_in_a_file_needs_its_class_and_the_answer_names_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class First: pass\n")
    assert compose([f"env={file}:First"]).config.env.id == f"{file}:First"
    for wrong in (f"env={file}", f"env={file}:"):
        with pytest.raises(UsageError, match=rf"the class is missing; did you mean env={file}:First\?"):
            compose([wrong])
    file.write_text("def broken(:\n")
    with pytest.raises(UsageError, match="no valid Python: line 1"):
        compose([f"env={file}"])


@pytest.mark.parametrize("model", ["tiny", "HuggingFaceTB/SmolLM2-135M-Instruct", "/models/mine", "runs/x/checkpoints/best"])
def test_a_model_is_a_name_a_hub_id_or_a_folder(model: str) -> None:
    assert compose([f"model={model}"]).config.model.id == model


def test_a_group_file_sets_its_keys_and_an_override_wins_wherever_it_stands() -> None:
    for overrides in (["trainer=dapo", "trainer.clip_high=0.3"], ["trainer.clip_high=0.3", "trainer=dapo"]):
        resolved = compose(overrides)
        assert (resolved.config.trainer.clip_high, resolved.config.trainer.filter_groups) == (0.3, True)
        assert resolved.origins["trainer.clip_high"] == "override: trainer.clip_high=0.3"
        assert resolved.origins["trainer.filter_groups"] == "configs/trainer/dapo.yaml"


def test_a_group_file_may_set_keys_of_other_sections() -> None:
    resolved = compose(["env=guess_number"])
    assert resolved.config.sampling.max_new_tokens == 16
    assert resolved.origins["sampling.max_new_tokens"] == "configs/env/guess_number.yaml"


def test_a_file_of_keys_lies_between_groups_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("trainer: {lr: 1e-4, steps: 7, advantage: leave_one_out}\nenv: {args: {max_turns: 2}}\n")
    resolved = compose(["trainer.steps=9"], file=file)
    assert (resolved.config.trainer.lr, resolved.config.trainer.steps) == (1e-4, 9)
    assert resolved.config.trainer.advantage == "leave_one_out"
    assert resolved.origins["trainer.lr"] == str(file)
    assert resolved.origins["env.args.max_turns"] == str(file)
    assert compose(["trainer=grpo"], file=file).config.trainer.advantage == "group_norm"  # named, so it wins


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("trainer: {lerning_rate: 1}", "there is no key 'trainer.lerning_rate'"),
        ("trainer: {lr: fast}", "trainer.lr must be a number, got 'fast'"),
        ("trainer: [", "is no valid YAML"),
        ("- 1", "must hold keys and values"),
    ],
)
def test_a_file_of_keys_is_checked_like_an_override(tmp_path: Path, text: str, answer: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=answer):
        compose(file=file)
    with pytest.raises(UsageError, match="there is no config file"):
        compose(file=tmp_path / "none.yaml")


def test_a_written_config_gives_the_same_config_again(tmp_path: Path) -> None:
    first = compose(["trainer=rloo", "env=guess_number", "env.args.max_turns=3", "trainer.lr=3e-7", "run=é"]).config
    (tmp_path / "config.yaml").write_text(to_yaml(first))
    assert compose(file=tmp_path / "config.yaml").config == first


def test_every_preset_composes_and_says_what_it_is() -> None:
    found = groups()
    assert set(found) == {"backend", "engine", "env", "model", "sandbox", "trainer"}
    assert {"grpo", "rloo", "dr_grpo", "dapo", "reinforce"} <= set(found["trainer"])
    for group, options in found.items():
        for option in options:
            compose([f"{group}={option}"])
            assert len(summary(group, option)) > 10


def test_the_chosen_preset_is_known_by_where_values_came_from() -> None:
    assert compose().chosen("trainer") == ("grpo",)
    assert compose(["trainer=dapo", "trainer.clip_high=0.3"]).chosen("trainer") == ("dapo",)
    with pytest.raises(UsageError, match=r"there is no key 'trainer\.algorithm'"):  # a name that would decide nothing
        compose(["trainer.algorithm=ppo"])


def test_trainer_presets_set_the_same_keys_so_that_none_is_left_from_another() -> None:
    for option in groups()["trainer"]:
        origins = compose([f"trainer={option}"]).origins
        for key in ("advantage", "loss", "loss_denominator"):
            assert origins[f"trainer.{key}"] == f"configs/trainer/{option}.yaml"


def test_every_key_has_an_origin_and_the_checks_name_only_real_keys() -> None:
    origins = compose().origins
    assert {key for key, spec in keys.table().items() if not spec.is_mapping} == set(origins)
    for key in (*CHOICES, *AT_LEAST_ONE, *NOT_NEGATIVE, *ABOVE_ZERO, *UP_TO_ONE):
        assert key in keys.table(), key
        get(schema.Config(), key)
    for synonym in keys.SYNONYMS.values():
        assert keys.known(synonym), synonym


def test_the_documented_choices_are_the_ones_that_are_checked() -> None:
    for key, valid in CHOICES.items():
        words = keys.table()[key].doc.split(":")[0].replace("|", " ").replace(".", " ").replace(",", " ").split()
        if "|" in keys.table()[key].doc:
            assert [word for word in words if word in valid] == list(valid), key


def test_the_key_table_reads_types_defaults_and_docstrings() -> None:
    table = keys.table()
    assert (table["trainer.lr"].type, table["trainer.lr"].default) == (float, schema.TrainerConfig().lr)
    assert table["engine.slots"].doc == "Sequences decoded together."
    assert table["env.args"].is_mapping
    attributes = sum(isinstance(node, ast.AnnAssign) for node in ast.walk(ast.parse(inspect.getsource(schema))))
    assert len(table) == attributes - 11  # the eleven sections are no keys
    assert len(table) < 150


def test_yaml_keeps_the_order_of_the_schema() -> None:
    data = yaml.safe_load(to_yaml(schema.Config()))
    assert list(data)[:3] == ["env", "model", "engine"]


def test_an_environment_or_model_of_ones_own_inherits_nothing_from_the_default_one() -> None:
    config = compose(["env=examples/first_env.py:CountLetters", "model=./some/folder"]).config
    assert (config.env.id, config.model.id) == (f"{Path.cwd()}/examples/first_env.py:CountLetters", "./some/folder")
    assert (config.sampling, config.engine) == (schema.SamplingConfig(), schema.EngineConfig())
    assert (config.trainer, config.backend) == (schema.TrainerConfig(), schema.BackendConfig())
