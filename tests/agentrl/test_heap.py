"""What was freed goes back to the system, and machines without such a call are no error."""

import ctypes
import os
import sys

import pytest

from agentrl import heap, models


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_small_blocks_that_were_freed_are_given_back() -> None:
    blocks = [ctypes.create_string_buffer(b"x" * 60_000, 60_000) for _ in range(2000)]  # 120 MB below the mmap threshold
    held = resident()
    last = blocks.pop()  # the top block keeps the heap from shrinking by itself
    blocks.clear()
    heap.trim()
    assert held - resident() > 80_000_000
    assert last.raw[:1] == b"x"


def test_a_library_without_the_call_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def __init__(self, name: None) -> None: ...

    heap._malloc_trim.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", Library)
    heap.trim()
    heap._malloc_trim.cache_clear()


def test_loading_a_model_bounds_the_kernel_caches_and_leaves_the_users_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    models.load("tiny")
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "128"
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
