"""What makes forks cheap must change nothing that a program sees: hooks held back, a rehearsal, inherited page tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentrl.tools.sandboxes.zygote import forking

TOOLS = Path(__file__).parents[3] / "tools" / "sandboxes"


def alone(program: str) -> Any:
    """What a fresh interpreter, started as the zygote is, prints as JSON."""
    head = f"import json, os, sys; sys.path.insert(0, {str(TOOLS)!r})\n"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", head + program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_hooks_are_held_back_and_restored() -> None:
    before, between, after = alone("""
from zygote import forking
import random, threading
def numbers():
    def one():
        reader, writer = os.pipe()
        if os.fork() == 0: os.write(writer, str(random.random()).encode()); os._exit(0)
        os.wait()
        return os.read(reader, 100).decode()
    return one() == one()  # without the hook each child goes on from the same state
held = numbers()
forking.restore()
print(json.dumps([len(forking.HELD), held, numbers()]))
""")
    assert (before, between, after) == (2, True, False)


def test_what_was_imported_already_keeps_its_hooks() -> None:
    assert alone("import random, threading\nfrom zygote import forking\nprint(len(forking.HELD))") == 0


def test_generators_are_seeded_for_programs_that_could_draw(monkeypatch: Any, tmp_path: Path) -> None:
    import random

    seeded: list[bytes] = []
    monkeypatch.chdir(tmp_path)
    reseed = forking.reseeder(["numpy", "pandas"])
    for code in (b"print(1)", b"import random", b"import numpy as np; np.ones(3)", b"np.random.rand()", b"import pandas"):
        random.seed(1)
        first = random.random()
        random.seed(1)
        reseed(code)
        if random.random() != first:
            seeded.append(code)
    assert seeded == [b"import random", b"np.random.rand()", b"import pandas"]
    (tmp_path / "helper.py").touch()
    random.seed(1)
    reseed(b"print(1)")
    assert random.random() != first  # it could import the file


def test_a_rehearsal_leaves_nothing_behind() -> None:
    found = alone("""
from zygote import rehearsal, script
import linecache
script.furnish()
before = (sys.stdout, sys.stderr, vars(sys.modules["__main__"]).copy(), sorted(os.listdir("/proc/self/fd")))
rehearsal.play()
after = (sys.stdout, sys.stderr, vars(sys.modules["__main__"]).copy(), sorted(os.listdir("/proc/self/fd")))
strange = [name for name in sys.modules if name.split(".")[0] not in (*sys.stdlib_module_names, "zygote", "__main__")]
print(json.dumps([[a == b for a, b in zip(before, after)], len(linecache.cache), strange]))
""")
    assert found == [[True] * 4, 0, []]


def test_forks_inherit_the_page_tables_of_the_interpreter_s_code() -> None:
    """Counted in page faults of a child that runs a little Python."""
    before, after = alone("""
import resource
from zygote import pages
def faults():
    def one():
        reader, writer = os.pipe()
        if os.fork() == 0:
            exec(compile("sorted({str(i): i for i in range(20)})", "x", "exec"), {})
            os.write(writer, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt).encode()); os._exit(0)
        os.wait()
        return int(os.read(reader, 100))
    return min(one() for _ in range(5))
before = faults()
pages.inherit_code()
print(json.dumps([before, faults()]))
""")
    assert after < before - 10
