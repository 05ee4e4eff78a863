"""One GRPO step of TRL's GRPOTrainer, the peer's half of `benchmarks/grpo_step.py`, run in a virtual environment of its own.

    python -m venv trl && trl/bin/pip install torch==2.13.0 trl==1.16.0 transformers==5.24.0 psutil
    trl/bin/python benchmarks/trl_grpo.py --model FOLDER --prompts prompts.json --samples 8 --tokens 96

`prompts.json`: a list of chat conversations. The reward only looks at the text, so no sandbox's time is in TRL's figure.
Prints one JSON line: samples, wall and CPU seconds of one step, peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class StepClock(TrainerCallback):
    """Wall and CPU seconds between the begin and the end of each step."""

    def __init__(self) -> None:
        self.seconds: list[tuple[float, float]] = []

    def on_step_begin(self, *args: object, **kwargs: object) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def on_step_end(self, *args: object, **kwargs: object) -> None:
        wall, cpu = self._began
        self.seconds.append((time.perf_counter() - wall, time.process_time() - cpu))


def reward(completions: list, **_: object) -> list[float]:
    """Needs no sandbox, and differs between samples: the share of letters."""
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [sum(map(str.isalpha, text)) / max(1, len(text)) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    given = parser.parse_args()
    prompts = json.loads(Path(given.prompts).read_text())
    batch = len(prompts) * given.samples
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=given.samples,
            gradient_accumulation_steps=batch // given.samples,
            num_generations=given.samples,
            max_completion_length=given.tokens,
            max_steps=1,
            learning_rate=1e-5,
            beta=0.0,
            bf16=True,
            model_init_kwargs={"dtype": "bfloat16"},
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            temperature=1.0,
            gradient_checkpointing=False,
        )
        data = Dataset.from_list([{"prompt": prompt} for prompt in prompts])
        trainer = GRPOTrainer(model=given.model, reward_funcs=reward, args=config, train_dataset=data, callbacks=[clock])
        trainer.train()
    wall, cpu = clock.seconds[-1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"samples": batch, "wall_s": wall, "cpu_s": cpu, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
