"""The embedded engine over a tiny model, for one test: opened, closed whatever happens, and held before a step if need be."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import torch

from agentrl.engine import GenerateRequest, Sampling
from agentrl.rollout.engines.torch_engine import TorchEngine

from .tiny_models import CONTEXT, tiny


def greedy(ids: tuple[int, ...], new: int = 12, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(prompt_ids=ids, max_new_tokens=new, sampling=Sampling(**{"temperature": 0.0, **sampling}))


def letters(ids: list[int]) -> str:
    """A decoder in which each id is one letter."""
    return "".join(chr(ord("a") + i % 26) for i in ids)


@contextlib.asynccontextmanager
async def serving(model: torch.nn.Module | None = None, **args: Any) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(model if model is not None else tiny(), **{"slots": 8, "max_context": CONTEXT, "threads": 1, **args})
    try:
        yield engine
    finally:
        await engine.aclose()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 280))  # a hang; a busy machine takes its time


class Gate:
    """Holds the engine's thread before each step until the test lets it take one."""

    def __init__(self, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._permits, self._taken = threading.Semaphore(0), threading.Semaphore(0)
        original = engine._scheduler.step

        def step(**args: Any) -> None:
            # Bounded, so that commands get their turn between two steps that are not taken.
            if not self._permits.acquire(timeout=0.005):
                return
            original(**args)
            self._taken.release()

        monkeypatch.setattr(engine._scheduler, "step", step)

    async def steps(self, count: int) -> None:
        for _ in range(count):
            self._permits.release()
            assert await asyncio.to_thread(self._taken.acquire, timeout=30)

    def open(self) -> None:
        self._permits.release(10**6)
