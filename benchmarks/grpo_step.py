"""A whole GRPO step, sampling to updated weights, beside TRL's GRPOTrainer: same model, prompts, group size and lengths.

    python benchmarks/grpo_step.py --trl PYTHON_OF_A_VENV_WITH_TRL [--prompts 6] [--samples 8] [--tokens 96]

Both run one after the other, each in a process of its own. Ours includes the sandbox and its graders, TRL's reward is a
count of letters. Seconds are those of the step alone, without loading. Prints a table; CPU seconds are the ones to trust.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agentrl import models
from agentrl.envs.code_sandbox import CodeSandbox
from agentrl.messages import as_messages

HERE = Path(__file__).parent
MODEL = "smollm2-135m"


def conversations(count: int) -> list[list[dict[str, Any]]]:
    """What the first `count` training tasks of code_sandbox show the model, as chat messages."""
    source = CodeSandbox.tasks()
    return [_conversation(source.get(i)) for i in range(count)]


def _conversation(task: Any) -> list[dict[str, Any]]:
    env = CodeSandbox()
    env.task = task
    shown = env.reset(task)
    value = asyncio.run(shown) if asyncio.iscoroutine(shown) else shown
    messages = (*as_messages(env.system_prompt, "system"), *as_messages(value))
    return [message.to_dict() for message in messages]


def ours(given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One step of `agentrl train`, from its own metrics."""
    command = [sys.executable, "-m", "agentrl.cli", "train", "env=code_sandbox", f"model={MODEL}", f"out={folder}", "run=step"]
    command += ["env.args.max_turns=1", "trainer.steps=1", f"trainer.prompts_per_step={given.prompts}"]
    command += [f"trainer.samples_per_prompt={given.samples}", f"sampling.max_new_tokens={given.tokens}"]
    command += ["eval.tasks=0", "eval.at_start=false", "log.report=false", "log.tensorboard=false"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    row = json.loads((folder / "step" / "metrics.jsonl").read_text().splitlines()[-1])
    wall = row["time/rollout"] + row["time/train"] + row["time/publish"]
    cpu = row["cpu/step"] - row.get("cpu/checkpoint", 0.0)
    return {"samples": row["episodes"], "wall_s": wall, "cpu_s": cpu, "peak_bytes": row["memory_gib"] * 2**30}


def trl(given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One step of TRL's trainer."""
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps(conversations(given.prompts)))
    model = models.resolve(MODEL).folder
    command = [given.trl, str(HERE / "trl_grpo.py"), f"--model={model}", f"--prompts={prompts}"]
    command += [f"--samples={given.samples}", f"--tokens={given.tokens}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trl", required=True, help="the python of a virtual environment that holds TRL")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = {"agentrl": ours(given, Path(name)), "trl": trl(given, Path(name))}
    print(f"{'':8} {'samples':>8} {'wall s':>8} {'CPU s':>8} {'samples/CPU s':>14} {'peak GiB':>9}")
    for who, row in rows.items():
        rate, peak = row["samples"] / row["cpu_s"], row["peak_bytes"] / 2**30
        print(f"{who:8} {row['samples']:8.0f} {row['wall_s']:8.1f} {row['cpu_s']:8.1f} {rate:14.3f} {peak:9.2f}")
    a, b = rows["agentrl"], rows["trl"]
    print(f"ratio of samples per second: {b['wall_s'] / a['wall_s']:.1f} wall, {b['cpu_s'] / a['cpu_s']:.1f} CPU")


if __name__ == "__main__":
    main()
