"""Runs blocking code of a user beside the event loop: one short-lived daemon thread per call.

Not a pool, on purpose. `asyncio.to_thread` shares a few threads, so that one environment that sleeps stops others, and
joins them at exit, so that one that hangs keeps the process from ending. The number of threads is bounded by the number
of episodes in flight; starting one costs about 0.1 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls a sync function in a thread of its own. When the caller is cancelled the thread is left to itself.

    >>> asyncio.run(in_thread(max, 1, 2))
    2
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():  # cancelled meanwhile: nobody waits
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value: Any = None
        failure: Exception | None = None
        try:
            value = context.run(function, *args, **kwargs)
        except StopIteration as error:  # a future cannot carry it
            failure = RuntimeError(f"{getattr(function, '__qualname__', function)} raised StopIteration")
            failure.__cause__ = error
        except Exception as error:
            failure = error
        except BaseException as error:  # SystemExit of user code: it must not pass for a result
            failure = RuntimeError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=work, name=f"agentrl-{getattr(function, '__name__', 'call')}", daemon=True).start()
    return await future


async def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls what may be sync or async: a coroutine function is awaited, anything else runs in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    value = await in_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value
