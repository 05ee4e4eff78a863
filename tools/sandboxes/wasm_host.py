"""Runs one program in CPython compiled to WebAssembly: a process of its own, started as `python -I wasm_host.py SETTINGS`.

The interpreter inside has a memory of a fixed most, two folders, and three streams. It has no other files, no network, no
processes and no threads; there is no instruction that would reach them. A call that blocks cannot be interrupted from
within, so whoever started this process ends it at its deadline.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any


def main(path: str) -> int:
    """`path`: a file with JSON of compiled, memory (bytes), disk (bytes), cpu (seconds), argv, env, folders {here: inside}."""
    with open(path) as file:
        asked = json.load(file)
    cpu = max(1, round(asked["cpu"]))
    for limit, value in ((resource.RLIMIT_FSIZE, asked["disk"]), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (value, value))
    return _run(asked)


def _run(asked: dict[str, Any]) -> int:
    import wasmtime

    engine = wasmtime.Engine()
    module = wasmtime.Module.deserialize_file(engine, asked["compiled"])
    store = wasmtime.Store(engine)
    store.set_limits(memory_size=asked["memory"])
    wasi = wasmtime.WasiConfig()
    wasi.argv = asked["argv"]
    wasi.env = list(asked["env"].items())
    for here, inside in asked["folders"].items():
        wasi.preopen_dir(here, inside)
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    store.set_wasi(wasi)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)  # type: ignore[operator]
    except wasmtime.ExitTrap as end:
        return int(end.code)
    except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
        sys.stderr.write(f"the interpreter stopped: {str(error).splitlines()[-1]}\n")
        return 134  # as after an abort
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
