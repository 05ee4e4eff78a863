"""Program text for interpreters that have none of our files: on a server that runs code, or in WebAssembly."""

from __future__ import annotations

from pathlib import Path

ZYGOTE = Path(__file__).parent / "zygote"
MODULES = ("wire", "values", "leave", "script", "calls")

AS_MAIN = """
def run_as_main(code):
    import builtins, linecache, sys, traceback, types
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    linecache.cache["main.py"] = (len(code), None, code.splitlines(keepends=True), "main.py")
    try: exec(compile(code, "main.py", "exec", dont_inherit=True), module.__dict__)
    except SystemExit: raise
    except BaseException as error:
        traceback.print_exception(type(error), error, error.__traceback__.tb_next)
        sys.exit(1)
"""
"""Defines run_as_main(code), which runs a text as `python -c` would."""


def zygote() -> str:
    """A text that makes the modules of `MODULES` importable, as attributes of `zygote`."""
    texts = {name: (ZYGOTE / f"{name}.py").read_text() for name in MODULES}
    return f"""
import sys, types
zygote = types.ModuleType("zygote"); zygote.__path__ = []
sys.modules["zygote"] = zygote
for name, text in {texts!r}.items():
    module = types.ModuleType("zygote." + name); module.__package__ = "zygote"
    sys.modules[module.__name__] = module
    setattr(zygote, name, module)
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
"""
