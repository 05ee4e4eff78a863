"""Blocking code beside the loop: results, errors, and that nobody waits for a thread that hangs."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from agentrl.threads import in_thread, invoke

WHO = contextvars.ContextVar("WHO", default="nobody")


def fail(error: BaseException) -> None:
    raise error


def test_each_call_has_a_daemon_thread_of_its_own_and_the_callers_context() -> None:
    async def main() -> tuple[bool, bool, str]:
        WHO.set("me")
        return await in_thread(
            lambda: (threading.current_thread().daemon, threading.current_thread() is threading.main_thread(), WHO.get())
        )

    assert asyncio.run(main()) == (True, False, "me")


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyError("a"), KeyError), (StopIteration(), RuntimeError), (SystemExit(1), RuntimeError)]
)
def test_errors_come_back_and_none_ends_the_process(error: BaseException, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        asyncio.run(in_thread(fail, error))


def test_a_thread_that_hangs_is_left_to_itself() -> None:
    release = threading.Event()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await in_thread(release.wait)

    asyncio.run(main())
    release.set()  # its answer finds the loop closed, and says nothing


def test_more_calls_at_once_than_any_pool_has_threads() -> None:
    async def main() -> None:
        barrier = threading.Barrier(64, timeout=20)
        await asyncio.gather(*(in_thread(barrier.wait) for _ in range(64)))

    asyncio.run(main())


def test_invoke_takes_coroutine_functions_and_functions_that_give_awaitables() -> None:
    async def twice(x: int) -> int:
        return 2 * x

    async def main() -> list[int]:
        return [await invoke(twice, 1), await invoke(lambda: twice(2)), await invoke(max, 5, 6)]

    assert asyncio.run(main()) == [2, 4, 6]
