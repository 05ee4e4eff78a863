"""How many CPU threads torch is worth giving: measured, since cores are not alike.

Two virtual cores may be two cores or the two halves of one, which share their arithmetic units, and a container may see more
cores than it is given time on. One more thread then gains nothing, and each operation waits for the slowest of them. A
product of matrices of a small model's size is timed with 1, 2, 4, ... threads, about 0.1 s in all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import torch

PAYS = 1.3
"""Twice the threads are taken while they make the product this many times as fast."""

REPEATS = 5


def set_threads(threads: int) -> int:
    """Sets torch's CPU threads for the whole process, and returns them; 0: as many as pay."""
    torch.set_num_threads(threads or threads_that_pay())
    return torch.get_num_threads()


def threads_that_pay(most: int | None = None, seconds: Callable[[int], float] | None = None) -> int:
    """From 1 to `most` (None: the cores this process may use, or OMP_NUM_THREADS if that is less), doubling.

    seconds: what the product takes with so many threads; None: measured. Leaves torch's number of threads as it was.

    >>> threads_that_pay(8, {1: 1.0, 2: 0.55, 4: 0.3, 8: 0.28}.get)
    4
    """
    measured = seconds or _seconds
    before = torch.get_num_threads()
    try:
        taken, best = 1, None
        for threads in _doubling(allowed() if most is None else most):
            now = measured(threads)
            if best is not None and best < PAYS * now:
                break
            taken, best = threads, now
    finally:
        torch.set_num_threads(before)
    return taken


def allowed() -> int:
    """Cores that this process may use, less where OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(asked)) if asked.isdigit() and int(asked) else cores


def _doubling(most: int) -> Iterator[int]:
    threads = 1
    while threads < most:
        yield threads
        threads *= 2
    yield most


def _seconds(threads: int) -> float:
    """The fastest of some products: what else runs for a moment does not count."""
    torch.set_num_threads(threads)
    a, b = torch.ones(512, 576), torch.ones(576, 1536)
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - began)
    return min(times)
