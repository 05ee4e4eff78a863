"""The embedded engine against transformers `generate`: sampled tokens per CPU-second, same prompts, same run.

    python benchmarks/engine.py                       # SmolLM2-135M, 1, 8, 32 and 64 sequences, one thread
    python benchmarks/engine.py --batch 32 --threads 2 --repeats 5

A group's siblings share a prompt of 64 tokens, as in GRPO: the engine reads it once, `generate` once per sequence. The
prompt is another one in each repeat, so that the engine finds nothing of it in its cache. CPU-seconds are those of the
whole process (user and system, all threads): wall times on a shared machine say nothing. Medians.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import resource
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

import agentrl.models
from agentrl.engine import GenerateRequest, Sampling
from agentrl.rollout.engines.torch_engine import TorchEngine


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def prompts(groups: int, length: int, vocabulary: int, seed: int) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(10, vocabulary, (length,), generator=generator).tolist()) for _ in range(groups)]


class Case:
    """One batch size on both sides."""

    def __init__(self, model: torch.nn.Module, batch: int, groups: int, length: int, new: int) -> None:
        self.model, self.batch, self.groups, self.length, self.new = model, batch, groups, length, new

    def rows(self, seed: int) -> list[tuple[int, ...]]:
        shared = prompts(self.groups, self.length, self.model.config.vocab_size, seed)
        return [shared[i * self.groups // self.batch] for i in range(self.batch)]

    def rate(self, generate: Callable[[list[tuple[int, ...]]], int], repeats: int) -> float:
        """Tokens per CPU-second: the median of the repeats, after one that is not counted."""
        rates = []
        for repeat in range(repeats + 1):
            rows, begin = self.rows(seed=repeat), cpu_seconds()
            tokens = generate(rows)
            rates.append(tokens / (cpu_seconds() - begin))
            assert tokens == self.batch * self.new, f"{tokens} tokens instead of {self.batch * self.new}"
        return statistics.median(rates[1:])

    def transformers(self, repeats: int) -> float:
        def generate(rows: list[tuple[int, ...]]) -> int:
            ids = torch.tensor(rows)
            with torch.inference_mode():
                out = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=self.new,
                    min_new_tokens=self.new,
                    do_sample=True,
                    top_k=0,
                    pad_token_id=0,
                )
            return out[:, self.length :].numel()

        return self.rate(generate, repeats)

    def engine(self, repeats: int, *, threads: int, packed: bool) -> float:
        async def run() -> float:
            engine = TorchEngine(self.model, slots=64, max_context=512, threads=threads, packed=packed)
            loop = asyncio.get_running_loop()

            def generate(rows: list[tuple[int, ...]]) -> int:
                return asyncio.run_coroutine_threadsafe(self._all(engine, rows), loop).result()

            try:
                return await asyncio.to_thread(self.rate, generate, repeats)
            finally:
                await engine.aclose()

        return asyncio.run(run())

    async def _all(self, engine: TorchEngine, rows: list[tuple[int, ...]]) -> int:
        requests = [
            GenerateRequest(prompt_ids=row, max_new_tokens=self.new, sampling=Sampling(seed=i)) for i, row in enumerate(rows)
        ]
        return sum(len(done.ids) for done in await asyncio.gather(*map(engine.generate, requests)))


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--group", type=int, default=8, help="sequences that share a prompt")
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--new", type=int, default=64, help="tokens sampled per sequence")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    model = agentrl.models.load(args.model, dtype=args.dtype).model
    model.generation_config.eos_token_id = None
    shape = f"{args.prompt} prompt + {args.new} new tokens, groups of {args.group}"
    print(f"{args.model} {args.dtype}, {shape}, {args.threads} thread(s)")
    print(f"{processor()}, torch {torch.__version__}; tokens per CPU-second, medians of {args.repeats}")
    print(f"{'batch':>5} {'generate':>10} {'shared':>10} {'packed':>10} {'ratio':>7}")
    for batch in args.batch:
        case = Case(model, batch, max(1, batch // args.group), args.prompt, args.new)
        theirs = case.transformers(args.repeats)
        shared = case.engine(args.repeats, threads=args.threads, packed=False)
        packed = case.engine(args.repeats, threads=args.threads, packed=True)
        print(f"{batch:>5} {theirs:>10.1f} {shared:>10.1f} {packed:>10.1f} {packed / theirs:>6.2f}x", flush=True)


if __name__ == "__main__":
    main()
