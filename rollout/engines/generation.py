"""One request on its way: its ids so far, what was sampled, and when it is over. No tensors, no model, no thread."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

import numpy as np

from agentrl.engine import Completion, EngineError, Finish, GenerateRequest

Decode = Callable[[list[int]], str]


class Generation:
    """A request, its ids (prompt and sampled, in one array) and the future its caller waits for.

    `length` ids are known, the first `computed` of them lie in the KV cache: 0 <= computed < length. `epoch` tells under
    which weights that cache was begun.
    """

    __slots__ = (
        "_ids",
        "cached",
        "computed",
        "decode",
        "epoch",
        "future",
        "length",
        "limit",
        "logprobs",
        "prompt_length",
        "request",
        "seed",
        "versions",
    )

    def __init__(self, request: GenerateRequest, *, max_context: int, decode: Decode | None = None) -> None:
        self.request = request
        self.prompt_length = self.length = len(request.prompt_ids)
        self.limit = min(self.prompt_length + request.max_new_tokens, max_context)
        self._ids = np.empty(max(self.limit, self.length), dtype=np.int64)
        self._ids[: self.length] = request.prompt_ids
        seed = request.sampling.seed
        self.seed = secrets.randbits(64) if seed is None else seed % 2**64
        self.decode = decode
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.computed = 0
        self.cached: int | None = None
        self.epoch = -1
        self.future: Future[Completion] = Future()

    @property
    def ids(self) -> np.ndarray:
        """[length]: a view."""
        return self._ids[: self.length]

    @property
    def sampled(self) -> list[int]:
        return self._ids[self.prompt_length : self.length].tolist()

    @property
    def done(self) -> bool:
        """Answered, failed or given up by its caller."""
        return self.future.done()

    def append(self, token: int, logprob: float, version: int) -> None:
        """Takes one sampled id; ends the generation when that was its last."""
        self._ids[self.length] = token
        self.length += 1
        self.logprobs.append(logprob)
        self.versions.append(version)
        if self._stops(token):
            self.end("stop")
        elif self.length >= self.limit:
            self.end("length")

    def _stops(self, token: int) -> bool:
        sampling = self.request.sampling
        if token in sampling.stop_ids:
            return True
        if not sampling.stop:
            return False
        assert self.decode is not None, "requests with stop texts are refused where nothing decodes"
        text = self.decode(self.sampled)
        return any(stop in text for stop in sampling.stop)

    def end(self, finish: Finish) -> None:
        completion = Completion(
            ids=tuple(self.sampled),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            finish=finish,
            cached_tokens=self.cached or 0,
        )
        with suppress(InvalidStateError):  # its caller has cancelled it meanwhile: nobody waits
            self.future.set_result(completion)

    def fail(self, error: EngineError) -> None:
        with suppress(InvalidStateError):  # as above
            self.future.set_exception(error)

    def restart(self) -> None:
        """Its cache is gone: everything so far must be computed again."""
        self.computed, self.epoch = 0, -1


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """How many leading ids two arrays share.

    >>> common_prefix(np.array([1, 2, 3]), np.array([1, 2, 4, 5]))
    2
    """
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n
