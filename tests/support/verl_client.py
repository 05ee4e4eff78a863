"""verl's own client of a SandboxFusion server, unmodified, in an environment of its own.

The environment lies in the user's cache, under a name that holds the pins: it is made once. To be imported verl needs
torch, Ray and more; its client needs requests, and is imported from the folder that it lies in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

PINS = ("verl==0.9.1", "requests==2.32.5")
INSTALL_TIMEOUT = 400.0
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from sandbox_fusion.utils import check_correctness
asked = json.load(sys.stdin)
print(json.dumps(check_correctness(**asked)))
"""


def environment() -> Path:
    """The environment's folder. Raises CalledProcessError when it cannot be installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "agentrl" / "clients"
    folder = cache / "-".join(
        [*(pin.replace("==", "-") for pin in PINS), f"py{sys.version_info.major}{sys.version_info.minor}"]
    )
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    making = cache / f"making-{os.getpid()}"
    venv.create(making, with_pip=True)
    pip = [str(making / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([*pip, "--no-deps", PINS[0]], check=True, timeout=INSTALL_TIMEOUT, capture_output=True, text=True)
        subprocess.run([*pip, *PINS[1:]], check=True, timeout=INSTALL_TIMEOUT, capture_output=True, text=True)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def check_correctness(**asked: Any) -> Any:
    """Calls verl's function of this name, with these arguments, in a process of its own."""
    folder = environment()
    client = next(folder.glob("lib/python*/site-packages/verl/utils/reward_score"))
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-c", PROGRAM, str(client)],
        input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=120, cwd="/",
    )  # fmt: skip
    return json.loads(done.stdout)
