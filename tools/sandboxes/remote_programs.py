"""Programs that a stateless code server runs for us, so that it serves a sandbox that keeps files and calls functions.

Each is one text of Python that needs the standard library alone: nothing is presumed of the server but POST /run_code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from . import carried

STATE = "agentrl-state.tar"
"""The working folder as it was left, carried from one run to the next. Packed and unpacked on the server only."""
REQUEST, RECORDS, ENDING = "agentrl-request.json", "agentrl-records", "agentrl-ending.json"
WORK = "work"

KEEPING = f"""
import json, os, signal, sys, tarfile
{carried.AS_MAIN}
with open({REQUEST!r}) as file: asked = json.load(file)
top = os.getcwd()
os.makedirs({WORK!r}, exist_ok=True)
os.chmod({WORK!r}, 0o700)
if os.path.exists({STATE!r}):
    with tarfile.open({STATE!r}) as tar: tar.extractall({WORK!r}, filter="tar")
    os.unlink({STATE!r})
os.unlink({REQUEST!r})
child = os.fork()
if child == 0:
    os.setsid()
    os.chdir({WORK!r})
    os.environ["HOME"] = os.getcwd()
    if asked["argv"]:
        for number in (signal.SIGPIPE, signal.SIGXFSZ): signal.signal(number, signal.SIG_DFL)
        try: os.execvp(asked["argv"][0], asked["argv"])
        except OSError as error:
            os.write(2, os.fsencode(f"{{asked['argv'][0]}}: {{error.strerror}}\\n"))
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    run_as_main(asked["code"])
else:
    _, status = os.waitpid(child, 0)
    os.chdir(top)
    os.chmod({WORK!r}, 0o700)
    def plain(info): return info if info.isreg() or info.isdir() or info.issym() or info.islnk() else None
    try:
        with tarfile.open({STATE!r}, "w") as tar:
            for name in sorted(os.listdir({WORK!r})): tar.add(os.path.join({WORK!r}, name), name, filter=plain)
    except OSError as error:
        if os.path.exists({STATE!r}): os.unlink({STATE!r})
        os.write(2, os.fsencode(f"the files could not be kept: {{error}}\\n"))
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
"""
"""Runs a program in a child, in a folder that holds the state, and packs the folder when it has ended. Needs a STATE, if any,
and a REQUEST of {"argv", "code"}; leaves a STATE."""

FILES = f"""
import os, sys, tarfile, json
with open({REQUEST!r}) as file: asked = json.load(file)
os.makedirs({WORK!r}, exist_ok=True)
if os.path.exists({STATE!r}):
    with tarfile.open({STATE!r}) as tar: tar.extractall({WORK!r}, filter="tar")
home = os.path.realpath({WORK!r})
path = os.path.realpath(os.path.join(home, asked["path"]))
def end(code, text):
    os.write(2, text.encode("utf-8", "backslashreplace"))
    sys.exit(code)
try:
    if not asked["path"] or not path.startswith(home + "/"): end(41, f"{{asked['path']!r}} leads out of the working folder")
    if os.path.lexists(path) and not os.path.isfile(path): end(42, f"{{os.path.basename(path)!r}} is no regular file")
    if asked["write"]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open("data", "rb") as source, open(path, "wb") as target: target.write(source.read())
        with tarfile.open({STATE!r}, "w") as tar:
            for name in sorted(os.listdir(home)): tar.add(os.path.join(home, name), name)
    else:
        with open(path, "rb") as source, open("data", "wb") as target: target.write(source.read())
except FileNotFoundError: end(40, f"there is no file {{asked['path']!r}}")
except OSError as error: end(42, f"{{asked['path']!r}}: {{error.strerror}}")
"""
"""Reads or writes one file of the state. Needs a REQUEST of {"path", "write"}, and `data` to write; leaves `data`, or a STATE.
Exit codes as of zygote/wire.py's READ and WRITE."""

CALLING = """
import json, mmap, os, resource, signal, time
with open({request!r}, "rb") as file: request = file.read()
records = os.open({records!r}, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
page = mmap.mmap(-1, mmap.PAGESIZE)
begun, child = time.monotonic(), os.fork()
if child == 0:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    zygote.calls.serve(request, records, page)
reason, nap = 0, 0.001
while True:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended: break
    now = time.monotonic()
    case = max(begun, min(now, zygote.wire.PAGE.unpack_from(page)[0]))
    if now >= case + {case_timeout} or now >= begun + {timeout}:
        reason = 1
        os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        break
    time.sleep(nap)
    nap = min(0.02, nap * 1.5)
with open({ending!r}, "w") as file: json.dump([status, reason], file)
"""
"""Calls a function many times in a child and watches the time of each call. Needs a REQUEST as zygote/calls.py takes it; leaves
RECORDS, and an ENDING of [wait status, Reason]."""


def calling(*, case_timeout: float, timeout: float, limit: int) -> str:
    """The program CALLING; times in seconds, `limit` in bytes of all records."""
    return carried.zygote() + CALLING.format(
        request=REQUEST,
        records=RECORDS,
        ending=ENDING,
        limit=limit,
        case_timeout=case_timeout,
        timeout=timeout,
    )


def keeping_request(*, argv: Sequence[str] = (), code: str = "") -> bytes:
    return json.dumps({"argv": list(argv), "code": code}).encode()
