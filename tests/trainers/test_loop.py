import asyncio
import threading
from dataclasses import replace

import pytest
import torch

from agentrl.config import TrainerConfig
from agentrl.trainers.backends.scripted import ScriptedBackend
from agentrl.trainers.checkpoint import Checkpoints
from agentrl.trainers.loop import train
from agentrl.trainers.trainer import Trainer
from tests.trainers.builders import backend, group, tiny


class Source:
    """Gives batch k the groups "k-0", "k-1", and writes down what it is told."""

    def __init__(self, log):
        self.log, self.cursor = log, 0

    async def next_batch(self, prompts):
        self.log.append(("batch", prompts))
        self.cursor += 1
        return batch(self.cursor - 1, prompts)

    async def trained(self, groups, *, step, version):
        self.log.append(("trained", [g.id for g in groups], step, version))

    def metrics(self):
        return {"episodes": 4.0}


def batch(step, prompts=2):
    return [group(f"{step}-{i}", [1.0, 0.0, float(i)], sampled=(8 + step, 9 + i)) for i in range(prompts)]


class Transport:
    def __init__(self, log):
        self.log = log

    async def publish(self, version):
        self.log.append(("publish", version))
        return version


def trainer(b=None, log=None):
    config = replace(TrainerConfig(advantage="group_mean", lr=0.01, warmup_steps=0, steps=10))
    t = Trainer(ScriptedBackend() if b is None else b, config, temperature=1.0)
    if log is not None:
        step = t.step

        def logged(groups, number):
            log.append(("step", number))
            return step(groups, number)

        t.step = logged
    return t


def test_order_of_a_step():
    log = []

    async def pause():
        log.append(("pause",))

    async def on_step(done, metrics):
        log.append(("seen", done, metrics["version"], metrics["episodes"], metrics["samples"]))

    t = trainer(log=log)
    asyncio.run(
        train(
            Source(log), t, Transport(log), steps=4, start=3, prompts=2, pause=pause, on_step=on_step,
            save=lambda done: log.append(("save", done)),
        )
    )  # fmt: skip
    assert log == [
        ("batch", 2),
        ("pause",),
        ("step", 3),
        ("publish", 4),
        ("trained", ["0-0", "0-1"], 4, 4),
        ("save", 4),
        ("seen", 4, 4.0, 4.0, 6.0),
    ]


def test_saves_every_so_often_and_at_the_end():
    saved = []
    asyncio.run(train(Source([]), trainer(), Transport([]), steps=7, prompts=1, save=saved.append, save_every=3))
    assert saved == [3, 6, 7]


def test_no_steps_left_is_no_step():
    log = []
    asyncio.run(train(Source(log), trainer(), Transport(log), steps=3, start=3, prompts=1))
    assert log == []


def test_the_event_loop_runs_while_a_step_computes():
    """The step waits for something that only the event loop can give."""
    given = threading.Event()
    t = trainer()
    step = t.step

    def waits(groups, number):
        assert given.wait(20), "the event loop stood still during the step"
        return step(groups, number)

    t.step = waits

    async def main():
        async def give():
            given.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(train(Source([]), t, Transport([]), steps=1, prompts=1))
            await asyncio.sleep(0.05)
            tasks.create_task(give())

    asyncio.run(main())


@pytest.mark.parametrize("part", ["source", "trainer", "transport"])
def test_whatever_fails_ends_the_loop(part):
    log = []
    source, t, transport = Source(log), trainer(), Transport(log)

    async def fail(*args, **kwargs):
        raise RuntimeError("broken")

    if part == "source":
        source.next_batch = fail
    elif part == "trainer":
        t.backend._fail_at = {0}
    else:
        transport.publish = fail
    with pytest.raises((RuntimeError, FloatingPointError)):
        asyncio.run(train(source, t, transport, steps=2, prompts=1))
    assert not [entry for entry in log if entry[0] == "trained"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_killed_and_resumed_ends_in_the_same_weights(tmp_path, dtype):
    """Six steps without a break, against: killed after step 5, a checkpoint of step 2, and its later batches once more."""

    def weights(b):
        return {name: tensor.clone() for name, tensor in b.export()}

    whole = backend(tiny("llama-tied"), dtype=dtype)
    asyncio.run(train(Source([]), trainer(whole), Transport([]), steps=6, prompts=2))

    killed = backend(tiny("llama-tied"), dtype=dtype)
    store = Checkpoints(tmp_path, keep=1)

    def save(done):
        store.save(killed.save, {"step": done})

    asyncio.run(
        train(Source([]), trainer(killed), Transport([]), steps=5, prompts=2, save=lambda d: save(d) if d == 2 else None)
    )

    resumed = backend(tiny("llama-tied", seed=5), dtype=dtype)
    checkpoint = Checkpoints(tmp_path, keep=1).latest()
    resumed.load(checkpoint.folder)
    source = Source([])
    source.cursor = checkpoint.step
    asyncio.run(train(source, trainer(resumed), Transport([]), steps=6, start=checkpoint.step, prompts=2))
    expected, got = weights(whole), weights(resumed)
    assert all(torch.equal(expected[name], got[name]) for name in expected)
