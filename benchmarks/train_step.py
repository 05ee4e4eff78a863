"""One GRPO training step: our packed rows against a padded transformers step, on the same samples.

    python benchmarks/train_step.py                                  # SmolLM2-135M, 32 samples, about five minutes
    python benchmarks/train_step.py --model tiny --samples 4         # seconds, to see that it works

Each case runs in a process of its own (so that its peak memory is its own) on one thread, and takes the same optimizer step on
the same samples: same loss, same bfloat16 parameters with float32 masters, same AdamW, same tokens in a micro-batch. So the
padded case already has our optimizer; what differs is padding, shared prompts and the logits. Loss and gradient norm are
printed: they must agree. Speed is real tokens (no padding; a prompt counts once for each sample) by CPU-second, the best of
`--repeats` steps. Memory is the process's peak during the steps, model and optimizer included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

CASES = {
    "padded": "padded, all logits (transformers)",
    "packed": "packed",
    "shared": "packed, prompts shared",
}
LR = 0.0  # all of the optimizer's work, and every repetition starts from the same weights


def main() -> None:
    arguments = parse()
    if arguments.case:
        print(json.dumps(measure(arguments)))
        return
    results = {}
    for case in arguments.cases.split(","):
        for dtype in arguments.dtypes.split(","):
            results[case, dtype] = in_a_process(arguments, case, dtype)
            print(line(case, dtype, results[case, dtype]), flush=True)
    for (case, dtype), result in results.items():
        base = results.get(("padded", dtype))
        if case != "padded" and base is not None:
            print(f"{CASES[case]}, {dtype}: {result['tokens_per_cpu_s'] / base['tokens_per_cpu_s']:.2f}x the padded step")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--samples", type=int, default=8, help="of each group")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunk", type=int, default=128, help="tokens whose logits exist at one time")
    parser.add_argument("--tokens", type=int, default=2048, help="of a micro-batch")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--dtypes", default="bfloat16", help="bfloat16, float32 or both, with a comma")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="bfloat16", help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(arguments: argparse.Namespace, case: str, dtype: str) -> dict[str, float]:
    keep = {name: getattr(arguments, name) for name in ("model", "groups", "samples", "repeats", "chunk", "tokens")}
    options = [f"--{name}={value}" for name, value in (keep | {"case": case, "dtype": dtype}).items()]
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    done = subprocess.run([sys.executable, __file__, *options], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def line(case: str, dtype: str, r: dict[str, float]) -> str:
    return (
        f"{CASES[case]:34} {dtype:9} {r['tokens_per_cpu_s']:6.0f} tokens/CPU-s  {r['cpu_s']:6.2f} CPU-s  "
        f"{r['computed']:6.0f} computed for {r['real']:.0f} real tokens ({r['padding']:.0%} padding)  "
        f"peak {r['peak_gib']:.2f} GiB (+{r['step_gib']:.2f} in the step)  loss {r['loss']:.5f}  |g| {r['grad_norm']:.3f}"
    )


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    import torch

    from agentrl import models

    torch.set_num_threads(1)
    model = models.load(arguments.model, dtype="bfloat16").model
    samples = made(arguments.groups, arguments.samples, model.config.vocab_size)
    inputs = inputs_for(samples)
    step = (padded if arguments.case == "padded" else packed)(model, samples, inputs, arguments)
    step()  # optimizer state and caches come with the first one
    forget_peak()
    before = memory("VmRSS")
    times, out = [], {}
    for _ in range(arguments.repeats):
        began = time.process_time()
        out = step()
        times.append(time.process_time() - began)
    real = sum(map(len, samples))
    computed = out["computed_tokens"]
    return {
        "tokens_per_cpu_s": real / min(times),
        "cpu_s": min(times),
        "real": real,
        "computed": computed,
        "padding": max(0.0, 1 - real / computed),
        "peak_gib": memory("VmHWM"),
        "step_gib": memory("VmHWM") - before,
        "loss": out["loss"],
        "grad_norm": out["grad_norm"],
    }


def made(groups: int, count: int, vocabulary: int) -> list[Any]:
    """Prompts of 100 ids, answers of 16 to 400: many short ones and few long ones, as models write them. About half of a
    batch that is padded to its longest is padding."""
    from agentrl.sample import Sample

    rng = random.Random(0)
    out = []
    for g in range(groups):
        prompt = tuple(rng.randrange(vocabulary) for _ in range(100))
        for i in range(count):
            answer = tuple(rng.randrange(vocabulary) for _ in range(min(400, 16 + int(rng.expovariate(1 / 130)))))
            n = len(answer)
            out.append(
                Sample(
                    episode=f"{g}-{i}",
                    group=str(g),
                    ids=prompt + answer,
                    mask=(0,) * 100 + (1,) * n,
                    logprobs=(0.0,) * 100 + (-10.0,) * n,
                    versions=(-1,) * 100 + (0,) * n,
                    reward=0.0,
                    prompt_length=100,
                )
            )
    return out


def inputs_for(samples: Sequence[Any]) -> list[dict[str, Any]]:
    import torch

    rng = random.Random(1)
    advantages = [rng.gauss(0, 1) for _ in samples]
    return [
        {"advantages": torch.full((s.trained_tokens,), a), "weights": torch.ones(s.trained_tokens)}
        for s, a in zip(samples, advantages, strict=True)
    ]


def loss_function() -> Any:
    from agentrl.trainers.losses import policy_loss

    return policy_loss(clip_low=0.2, clip_high=0.2)


def packed(model: Any, samples: Sequence[Any], inputs: Sequence[Any], arguments: argparse.Namespace) -> Callable[[], Any]:
    from agentrl.trainers.backends.local import LocalBackend

    backend = LocalBackend(
        model,
        dtype=arguments.dtype,
        tokens_per_microbatch=arguments.tokens,
        logits_chunk=arguments.chunk,
        share_prefix=arguments.case == "shared",
        threads=1,
    )
    total = sum(s.trained_tokens for s in samples)
    return lambda: backend.step(samples, inputs, loss_function(), denominator=total, lr=LR, temperature=1.0)


def padded(model: Any, samples: Sequence[Any], inputs: Sequence[Any], arguments: argparse.Namespace) -> Callable[[], Any]:
    """As most trainers do it: rows padded to the longest, the model's own forward with all logits, micro-batches of rows."""
    import torch

    from agentrl.trainers.masters import MasterAdamW

    dtype = getattr(torch, arguments.dtype)
    settings: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.0, "max_grad_norm": 1.0}
    optimizer = MasterAdamW(dict(model.named_parameters()), dtype=dtype, **settings)
    loss, total, longest = loss_function(), sum(s.trained_tokens for s in samples), max(map(len, samples))
    rows = max(1, arguments.tokens // longest)

    def step() -> dict[str, float]:
        value = 0.0
        for batch, tensors in parts(samples, inputs, rows):
            logprobs = padded_logprobs(model, batch, longest)
            out, _ = loss(logprobs, None, {name: torch.cat([x[name] for x in tensors]) for name in tensors[0]})
            (out / total).backward()
            value += out.item() / total
        return {"loss": value, "grad_norm": optimizer.step(LR), "computed_tokens": len(samples) * longest}

    return step


def parts(samples: Sequence[Any], inputs: Sequence[Any], rows: int) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    return ((samples[i : i + rows], inputs[i : i + rows]) for i in range(0, len(samples), rows))


def padded_logprobs(model: Any, batch: Sequence[Any], longest: int) -> Any:
    """Of the trained tokens, sample by sample."""
    import torch

    ids = torch.zeros(len(batch), longest, dtype=torch.int64)
    attended, trained = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    for row, sample in enumerate(batch):
        n = len(sample)
        ids[row, :n], attended[row, :n] = torch.tensor(sample.ids), 1
        trained[row, :n] = torch.tensor(sample.mask, dtype=torch.bool)
    logits = model(input_ids=ids, attention_mask=attended, use_cache=False).logits[:, :-1].float()
    logprobs = torch.log_softmax(logits, dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)
    return logprobs[trained[:, 1:]]


def forget_peak() -> None:
    """Lets VmHWM start again from what is held now (Linux)."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def memory(field: str) -> float:
    """VmRSS or VmHWM of this process in GiB; the peak since its start where /proc is missing."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 30)
    found = next(text for text in status.read_text().splitlines() if text.startswith(field))
    return int(found.split()[1]) / (1 << 20)


if __name__ == "__main__":
    main()
