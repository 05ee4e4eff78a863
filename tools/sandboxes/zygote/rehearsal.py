"""Does before the first fork, once, what every program will do: what Python sets up at its first use is there for all forks.

Without, each child would fill caches, specialize bytecode and find code on pages of its own. Nothing of it is visible: modules
that are made here are forgotten again, and what is printed goes nowhere.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys
import traceback

from . import pages, script, values

TIMES = 10  # the interpreter specializes code that has run eight times
PROGRAM = b"""
import sys, math, collections
from typing import List

class Solution:
    def __init__(self): self.seen = {}
    def add(self, a, b=1, *rest, **named):
        total = a + b
        for i, x in enumerate(range(3)):
            if x % 2: total += x * 2
            else: total -= x // 2
        self.seen[a] = [total, (a, b), f"{a} {b:.2f}", {1, 2}]
        return sorted(self.seen[a][1], key=lambda x: -x)

def f(x):
    try: return [i for i in range(x)][x]
    except IndexError as error: return str(error)

print(1 + 1, Solution().add(1, 2), f(3), len("text".split()), max(1, 2), sum([1, 2]), {"a": 1}.get("a"))
print("text", 1.5, True, None, [1, 2])
1 / 0
"""
NUMPY = b"""
import numpy as np

a = np.arange(6.0).reshape(2, 3)
b = np.array([[1, 2], [3, 4], [5, 6]])
print(a, b, a @ b, a.sum(), b.mean(axis=0), a.max(), np.ones(3).sum(), np.zeros((2, 2)), a[0, 1], a[:, 1], b[b > 2])
print(np.dot(b, b.T), np.sort(b, axis=None), np.where(a > 1, a, 0), np.sqrt(a), np.linspace(0, 1, 3), b.dtype, b.tolist())
1 / 0
"""


def settle() -> None:
    """When all is imported: the last that is done before the forks."""
    play()
    pages.inherit_code()
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, the pages of every object


def play() -> None:
    real = sys.stdout, sys.stderr, sys.modules["__main__"]
    quiet = os.open(os.devnull, os.O_RDWR)
    kept = [os.dup(fd) for fd in (1, 2)]
    for fd in (1, 2):
        os.dup2(quiet, fd)
    for _ in range(TIMES):
        _perform(PROGRAM)
        if "numpy" in sys.modules:
            _perform(NUMPY)
    for fd, saved in zip((1, 2), kept, strict=True):
        os.dup2(saved, fd)
    for fd in (quiet, *kept):
        os.close(fd)
    sys.stdout, sys.stderr, sys.modules["__main__"] = real
    linecache.cache.clear()


def _perform(program: bytes) -> None:
    module = script.start(program)
    try:
        exec(compile(program, script.NAME, "exec", dont_inherit=True), module.__dict__)
    except ZeroDivisionError as error:
        script.report(error)
    traceback.format_exc()
    values.loads(values.dumps((1, "a", [1.5, None, {"b": True}])))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
