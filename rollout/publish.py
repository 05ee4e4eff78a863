"""Publishing in one process: pause (or wake) the engine, give it the new weights, let it go on.

Waits for: the engine, at most `timeout`. An engine that fails stays paused: it must not serve a mix.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agentrl.engine import Engine, EngineError, EngineState, PauseMode
from agentrl.weights import WeightUpdate

if TYPE_CHECKING:
    import torch


class EnginePublisher:
    """An `agentrl.weights.WeightTransport` to one engine.

    >>> publisher = EnginePublisher(engine, mode="keep", export=None, timeout=600.0)        # doctest: +SKIP
    >>> await publisher.publish(3)                                                          # doctest: +SKIP
    3
    """

    def __init__(
        self,
        engine: Engine,
        *,
        mode: PauseMode,
        export: Callable[[], Iterator[tuple[str, torch.Tensor]]] | None,
        timeout: float,
    ) -> None:
        """`export`: the backend's; None where the engine uses the trainer's own parameters. Seconds."""
        self._engine = engine
        self._mode = mode
        self._export = export
        self._timeout = timeout

    async def publish(self, version: int) -> int:
        """Returns the version that the engine has acknowledged. Raises EngineError."""
        try:
            async with asyncio.timeout(self._timeout) as scope:
                return await self._publish(version)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise EngineError(f"the engine has not acknowledged version {version} within {self._timeout:g} s") from error

    async def _publish(self, version: int) -> int:
        if self._engine.state is EngineState.ASLEEP:
            await self._engine.wake()
        if self._engine.state is EngineState.RUNNING:  # after a failed update it is not, and takes another one as it is
            await self._engine.pause(self._mode)
        tensors = dict(self._export()) if self._export is not None else None
        served = await self._engine.update_weights(WeightUpdate(version=version, tensors=tensors))
        if served != version:
            raise EngineError(f"the engine acknowledged version {served} instead of {version}")
        await self._engine.resume()
        return served
