"""What the interpreter in WebAssembly is started with: texts for its `-c`."""

from __future__ import annotations

from pathlib import Path

ZYGOTE = Path(__file__).parent / "zygote"
MODULES = ("wire", "values", "leave", "script", "calls")

PROGRAM = """
import builtins, linecache, os, sys, traceback, types
code = sys.argv.pop()
os.chdir("/work")
sys.path.insert(0, "")
module = types.ModuleType("__main__")
module.__builtins__ = builtins
sys.modules["__main__"] = module
linecache.cache["main.py"] = (len(code), None, code.splitlines(keepends=True), "main.py")
for stream in (sys.stdout, sys.stderr): stream.reconfigure(errors="backslashreplace", line_buffering=True)
try: exec(compile(code, "main.py", "exec", dont_inherit=True), module.__dict__)
except SystemExit: raise
except BaseException as error:
    traceback.print_exception(type(error), error, error.__traceback__.tb_next)
    sys.exit(1)
"""
"""Runs the text that follows as `python -c` would."""

CALLS = """
import json, os, sys, types
sys.modules["mmap"] = types.SimpleNamespace(mmap=object)  # there is none in WebAssembly, nor any use for it
package = types.ModuleType("zygote"); package.__path__ = []
sys.modules["zygote"] = package
for name, text in {modules!r}.items():
    module = types.ModuleType("zygote." + name); module.__package__ = "zygote"
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
calls, wire = package.calls, package.wire
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


def calls(limit: int) -> str:
    """`limit`: bytes of all records."""
    return CALLS.format(modules={name: (ZYGOTE / f"{name}.py").read_text() for name in MODULES}, limit=limit)
