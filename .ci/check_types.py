"""Runs mypy over the whole package as it is imported: agentrl/ with its parts inside, not beside it.

mypy cannot see that `agentrl/__init__.py` looks beside itself, so that it would take everything that a part imports of
another file for unknown. Links in a folder of mypy's cache give it the layout of an installed wheel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / ".mypy_cache" / "tree"
PARTS = ("envs", "tools", "rollout", "trainers", "configs")


def main() -> int:
    shutil.rmtree(TREE, ignore_errors=True)
    package = TREE / "agentrl"
    package.mkdir(parents=True)
    for source in (*(ROOT / "agentrl").iterdir(), *(ROOT / part for part in PARTS)):
        if source.name != "__pycache__":
            (package / source.name).symlink_to(source)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(TREE.parent)]
    return subprocess.run([*command, "-p", "agentrl"], cwd=TREE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
