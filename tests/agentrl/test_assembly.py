"""Every key of a config reaches what it is for: none is dropped on the way, and none ends up in its neighbor's place."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentrl import assembly, registry
from agentrl import config as configs
from agentrl import run as runs
from agentrl.keys import table
from tests.support.runs import Silent, small

DISTINCT = configs.Config(
    model=configs.ModelConfig(dtype="float32"),
    engine=configs.EngineConfig(slots=5, max_context=1001, request_timeout=61.0),
    sampling=configs.SamplingConfig(temperature=0.7, top_p=0.9, top_k=11, max_new_tokens=101, max_episode_tokens=901),
    rollout=configs.RolloutConfig(
        staleness=2,
        mode="abort",
        max_groups=13,
        retries=4,
        on_abort="drop",
        max_abort_rate=0.25,
        episode_timeout=301.0,
        turn_timeout=121.0,
        step_timeout=3601.0,
    ),
    trainer=configs.TrainerConfig(
        steps=17,
        samples_per_prompt=7,
        filter_groups=True,
        weight_decay=0.01,
        betas=[0.8, 0.99],
        max_grad_norm=0.5,
        tokens_per_microbatch=1003,
    ),
    backend=configs.BackendConfig(logits_chunk=127, activation_checkpointing=True, threads=1),
    eval=configs.EvalConfig(temperature=0.3),
    seed=3,
)
"""No two of its numbers are equal."""

ONLY_LOOK = ("agentrl.compose", "agentrl.validate", "agentrl.plan", "agentrl.rundir", "dataclasses", "copy")
"""Modules that read keys to check, print or copy them."""

KL = ("trainer.kl=k3", "trainer.kl_coef=0.1")
"""No answer is worth anything in that run, and without a reward nothing but a divergence is learnt from."""

ELSEWHERE = {"resume", "run", "out"}
"""What a run is called and where it lies: dealt with before there is one."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(kind, name, positional, named): what was asked of the registry, and what the things found were made of."""
    calls: list[Any] = []
    monkeypatch.setattr(registry, "find", lambda kind, name: lambda *args, **named: calls.append((kind, name, args, named)))
    return calls


def test_what_an_episode_may_take_and_how_it_is_sampled() -> None:
    world: Any = SimpleNamespace(make=object)
    setup = assembly.setup(DISTINCT, world, "engine", "renderer", "pool")  # type: ignore[arg-type]
    limits, sampling = setup.limits, setup.sampling
    assert (limits.max_new_tokens, limits.max_episode_tokens) == (101, 901)
    assert (limits.episode_timeout, limits.turn_timeout) == (301.0, 121.0)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.7, 0.9, 11, None)
    assert (setup.make_env, setup.engine, setup.renderer, setup.pool) == (object, "engine", "renderer", "pool")
    assert (setup.seed, setup.retries) == (3, 4)
    evaluated = assembly.for_evaluation(DISTINCT, setup).sampling
    assert (evaluated.temperature, evaluated.top_p, evaluated.top_k) == (0.3, 1.0, 0)


def test_how_groups_are_scheduled() -> None:
    schedule = assembly.schedule(DISTINCT)
    assert {field.name: getattr(schedule, field.name) for field in dataclasses.fields(schedule)} == {
        "samples_per_prompt": 7,
        "staleness": 2,
        "max_groups": 13,
        "on_abort": "drop",
        "max_abort_rate": 0.25,
        "filter_groups": True,
        "step_timeout": 3601.0,
        "steps": 17,
    }


def test_what_the_engine_is_made_of(made: list[Any]) -> None:
    tokenizer = SimpleNamespace(decode="decode")
    assembly.engine(DISTINCT, "model", tokenizer, version=9)
    expected = {"slots": 5, "max_context": 1001, "threads": 1, "version": 9, "request_timeout": 61.0, "decode": "decode"}
    assert made == [("engine", "torch", ("model",), expected)]


def test_what_the_backend_is_made_of(made: list[Any]) -> None:
    loaded: Any = SimpleNamespace(model="model", tokenizer="tokenizer")
    assembly.backend(DISTINCT, loaded, (8, 9))
    expected = {
        "dtype": "float32",
        "weight_decay": 0.01,
        "betas": [0.8, 0.99],
        "max_grad_norm": 0.5,
        "banned_ids": (8, 9),
        "tokens_per_microbatch": 1003,
        "logits_chunk": 127,
        "activation_checkpointing": True,
        "threads": 1,
    }
    assert made == [("backend", "local", ("model", "tokenizer"), expected)]


def test_what_the_trainer_and_the_continuations_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(assembly, "part", lambda where: lambda *args, **named: calls.append((where, args, named)))
    backend, tokenizer = SimpleNamespace(frozen=lambda: "frozen"), SimpleNamespace(decode="decode")
    assembly.trainer(DISTINCT, backend)
    assembly.resuming(DISTINCT, "engine", tokenizer)  # type: ignore[arg-type]
    sampled = {"temperature": 0.7, "top_p": 0.9, "top_k": 11, "reference": None, "seed": 3}
    assert calls == [
        ("trainers.trainer:Trainer", (backend, DISTINCT.trainer), sampled),
        ("rollout.engines.resuming:ResumingEngine", ("engine",), {"decode": "decode", "reseed": True, "timeout": 3601.0}),
    ]
    with_reference = dataclasses.replace(DISTINCT, trainer=configs.TrainerConfig(kl="k3", kl_coef=0.1))
    assembly.trainer(with_reference, backend)
    assert calls[-1][2]["reference"] == "frozen"


def test_no_key_is_accepted_and_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys that a run and an evaluation read, as they are read."""
    used: set[str] = set()
    resolved = small(tmp_path, "run=a", "trainer.steps=1", "eval.tasks=1", *KL, env="code_sandbox")
    resolved.config.sandbox.backend = "scripted"  # the double has no name that a user may write
    for field in dataclasses.fields(configs.Config):
        section = getattr(resolved.config, field.name)
        if dataclasses.is_dataclass(section):
            note_reads(monkeypatch, type(section), f"{field.name}.", used)
    note_reads(monkeypatch, configs.Config, "", used)
    runs.train(resolved, watch=Silent())
    runs.evaluate(resolved.config)
    assert set(table()) - used - ELSEWHERE == set()


def note_reads(monkeypatch: pytest.MonkeyPatch, cls: type, prefix: str, used: set[str]) -> None:
    """Adds to `used` what anybody but ONLY_LOOK reads of the class's instances."""

    def read(self: Any, name: str) -> Any:
        if sys._getframe(1).f_globals["__name__"] not in ONLY_LOOK:
            used.add(prefix + name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(cls, "__getattribute__", read)
