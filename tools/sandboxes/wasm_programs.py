"""What the interpreter in WebAssembly is started with: texts for its `-c`."""

from __future__ import annotations

from . import carried

PROGRAM = f"""
import os, sys
{carried.AS_MAIN}
os.chdir("/work")
sys.path.insert(0, "")
for stream in (sys.stdout, sys.stderr): stream.reconfigure(errors="backslashreplace", line_buffering=True)
run_as_main(sys.argv.pop())
"""
"""Runs the text that follows as `python -c` would."""

CALLS = """
import json, os
calls, wire = zygote.calls, zygote.wire
asked = json.load(open("/calls/request.json"))
records = os.open("/calls/records", os.O_WRONLY | os.O_APPEND)
os.chdir("/work")
sys.path.insert(0, "")
def tell(kind, text, write=os.write, leave=os._exit):
    body = text.encode("utf-8", "backslashreplace")
    whole = wire.RECORD.pack(kind, len(body)) + body
    if len(whole) > {limit} - os.fstat(records).st_size or write(records, whole) != len(whole): leave(wire.TOO_LARGE)
try: function = calls._load(asked["code"], asked["function"])
except BaseException as error:
    tell(wire.REFUSED, calls.describe(error))
    os._exit(0)
tell(wire.LOADED, "")
for given in asked["inputs"]: tell(*calls._answer(function, given))
os._exit(0)
"""
"""Calls a function of /calls/request.json, which is as zygote/calls.py takes it, and appends to /calls/records as that does."""

NO_MMAP = 'import sys, types; sys.modules["mmap"] = types.SimpleNamespace(mmap=object)'
"""There is none in WebAssembly, nor any use for it, but the modules name it."""


def calls(limit: int) -> str:
    """`limit`: bytes of all records."""
    return NO_MMAP + carried.zygote() + CALLS.format(limit=limit)
