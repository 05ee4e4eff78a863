# ruff: noqa: E501  # programs in strings
"""What ordinary programs do must work in a sandbox. Where Landlock's level cannot, the reason stands beside the case."""

from __future__ import annotations

import importlib.util

import pytest

from agentrl.sandbox import Status

from .conftest import Local

PROGRAMS = {
    "asyncio": ("import asyncio\nasync def f():\n    await asyncio.sleep(.01)\n    return 5\nprint(asyncio.run(f()))", "5"),
    "asyncio subprocess": (
        "import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n"
        "    return (await p.communicate())[0]\nprint(asyncio.run(f()))",
        "b'hi\\n'",
    ),
    "subprocess": (
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(3)'], capture_output=True, text=True).stdout)",
        "3",
    ),
    "shell": ("import os; print(os.system('test -w . && test -d $HOME && test -d $TMPDIR'))", "0"),
    "pipes": ("import os; print(os.popen('printf \"b\\na\\n\" | sort | tr a-z A-Z').read().split())", "['A', 'B']"),
    "multiprocessing": (
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n"
        "    with m.Pool(2) as p: print(p.map(f, range(5)))",
        "[0, 1, 4, 9, 16]",
    ),
    "spawned queue": (
        "import multiprocessing as m; m.set_start_method('spawn')\nq = m.Queue(); q.put(1); print(q.get())",
        "1",
    ),
    "shared memory": (
        "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=9); m.buf[0] = 7\n"
        "n = s.SharedMemory(m.name); print(n.buf[0]); n.close(); m.close(); m.unlink()",
        "7",
    ),
    "process pool": (
        "from concurrent.futures import ProcessPoolExecutor as E\nwith E(2) as e: print(list(e.map(abs, [-1, 2])))",
        "[1, 2]",
    ),
    "threads": (
        "import threading\nt = threading.Thread(target=lambda: print('t')); t.start()  # not joined: the end waits for it",
        "t",
    ),
    "thread pool": ("from concurrent.futures import ThreadPoolExecutor as E\nprint(list(E(4).map(abs, [-1, 2])))", "[1, 2]"),
    "tempfile": (
        "import tempfile\nwith tempfile.NamedTemporaryFile('w') as f, tempfile.TemporaryDirectory() as d: print(f.write(d) > 3)",
        "True",
    ),
    "sqlite": (
        "import sqlite3; c = sqlite3.connect('a.db'); c.execute('create table t(x)'); c.execute('insert into t values(1)')\n"
        "c.commit(); print(c.execute('select * from t').fetchall())",
        "[(1,)]",
    ),
    "end of input": ("try: input()\nexcept EOFError: print('EOF')", "EOF"),
    "main": ("import sys; print(sys.argv, __name__, sorted(k for k in globals() if k[0] != '_'))", "['-c'] __main__ ['sys']"),
    "atexit": ("import atexit; atexit.register(print, 'bye'); print('hi')", "hi\nbye"),
    "much memory": ("print(len(bytearray(150 << 20)))", str(150 << 20)),
    "sources": ("import inspect\ndef f(): return 7\nprint(inspect.getsource(f))", "def f(): return 7"),
    "pickle": ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)", "A"),
    "dataclass": ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\nprint(A())", "A(x=1)"),
    "time zones": ("import zoneinfo; print(zoneinfo.ZoneInfo('Europe/Paris'))", "Europe/Paris"),
    "hashes": ("import hashlib, ssl, uuid, secrets; print(hashlib.sha256(b'x').hexdigest()[:8])", "2d711642"),
    "fork": ("import os\np = os.fork()\nif p == 0: os._exit(5)\nprint(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))", "5"),
    "signals": (
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('got'))\nos.kill(os.getpid(), signal.SIGUSR1)",
        "got",
    ),
    "interrupt": ("import os\ntry: os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt: print('caught')", "caught"),
    "timer": (
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: print('ring'))\nsignal.setitimer(0, .05); time.sleep(.3)",
        "ring",
    ),
    "socketpair": ("import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))", "b'x'"),
    "copying": ("import shutil; open('a', 'w').write('1'); shutil.copy('a', 'b'); print(open('b').read())", "1"),
    "user": ("import getpass, os; print(getpass.getuser(), os.path.expanduser('~') == os.getcwd())", "sandbox True"),
    "own status": ("import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0)", "True"),
    "annotations": ("def f(x: undefined_name) -> 3: pass", None),  # not our own `from __future__`
    "numpy": (
        "import numpy as np; print(np.linalg.solve(np.eye(2) * 2, np.ones(2)), np.fft.fft([1, 0]).real)",
        "[0.5 0.5] [1. 1.]",
    ),
    "numpy in a child": (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import numpy; print(numpy.arange(3))'],"
        " capture_output=True, text=True).stdout)",
        "[0 1 2]",
    ),
    "/tmp": ("open('/tmp/x', 'w').write('1'); print(open('/tmp/x').read())", "1"),
    "stderr by name": ("import os; print(os.system('echo x >&2'))", "0"),
}
NOT_WITH_LANDLOCK = {
    "multiprocessing": "semaphores live in /dev/shm, which all processes of the user share",
    "spawned queue": "as multiprocessing",
    "shared memory": "as multiprocessing",
    "process pool": "as multiprocessing",
    "/tmp": "it is everyone's; the folder in TMPDIR is the sandbox's",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(each: Local, name: str) -> None:
    if each.pool.isolation == "landlock" and name in NOT_WITH_LANDLOCK:
        pytest.skip(NOT_WITH_LANDLOCK[name])
    if "numpy" in name and importlib.util.find_spec("numpy") is None:
        pytest.skip("NumPy is not installed")
    code, printed = PROGRAMS[name]
    done = each.python(code, timeout=60)
    if printed is None:
        assert done.status is Status.ERROR
        assert "NameError" in done.stderr
    else:
        assert (done.status, done.stdout.strip()) == (Status.OK, printed), done
