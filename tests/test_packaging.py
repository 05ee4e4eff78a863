"""The three ways the code is imported: from an installed wheel, from an editable install, from a bare checkout.

Each is tried in a new virtual environment that borrows the dependencies of this one, from a folder that is not the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("envs", "tools", "rollout", "trainers", "configs")
NOT_CODE = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".*_cache", ".hypothesis", "dist", "build")

USE = """
import importlib, multiprocessing, pathlib, sys
from importlib import resources
import agentrl

def in_another_process():
    return importlib.import_module("agentrl.trainers").__name__

if __name__ == "__main__":
    for part in {parts!r}:
        importlib.import_module("agentrl." + part)
    assert resources.files("agentrl.configs").joinpath("config.yaml").is_file()
    from agentrl.compose import compose, groups
    assert compose(["trainer=rloo"]).config.trainer.advantage == "leave_one_out"
    assert "code_sandbox" in groups()["env"]
    import hydra
    with hydra.initialize(config_path=None, version_base="1.3"):
        config = hydra.compose(overrides=["hydra.searchpath=[pkg://agentrl.configs]", "+trainer=rloo"])
    assert config.trainer.advantage == "leave_one_out"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(in_another_process) == "agentrl.trainers"
    from agentrl.registry import find
    folders = [pathlib.Path(sys.modules[name].__file__).parent for name in ("agentrl", "agentrl.envs")]
    print(*folders, find("env", "guess_number").__name__)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is in the repository, so that a build leaves nothing behind and takes nothing along."""
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("checkout") / "agentrl", ignore=NOT_CODE))


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist; the wheel is built from the sdist, as a package index would."""
    out = tmp_path_factory.mktemp("dist")
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(checkout)])
    return {"wheel": next(out.glob("*.whl")), "sdist": next(out.glob("*.tar.gz"))}


def test_wheel_holds_the_parts_below_agentrl(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        files = wheel.namelist()
        folders = {name.split("/")[0] for name in files}
        text = wheel.read(next(name for name in files if name.endswith("/METADATA"))).decode()
    assert {name for name in folders if not name.endswith(".dist-info")} == {"agentrl"}
    assert {f"agentrl/{part}/__init__.py" for part in PARTS} <= set(files)
    assert "agentrl/configs/config.yaml" in files
    assert not [name for name in files if name.endswith(".pyc") or "/tests/" in name]
    assert "\nName: agentrl-gym\n" in text
    assert "\nLicense-Expression: Apache-2.0\n" in text


def test_sdist_holds_what_a_checkout_needs(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {"Makefile", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", ".ci/constraints.txt", ".ci/run"}
    assert needed <= files
    assert "tests/test_packaging.py" in files


def test_installed_wheel(built: dict[str, Path], tmp_path: Path) -> None:
    python = _new_environment(tmp_path / "venv")
    _pip(python, "--no-deps", str(built["wheel"]))
    agentrl, envs, found = _use(python, tmp_path)
    assert Path(agentrl).is_relative_to(tmp_path / "venv")
    assert Path(envs) == Path(agentrl) / "envs"
    assert found == "GuessNumber"
    assert "train" in _run([str(python.with_name("agentrl")), "--help"], cwd=tmp_path)


def test_editable_install(checkout: Path, tmp_path: Path) -> None:
    python = _new_environment(tmp_path / "venv")
    _pip(python, "--no-deps", "--no-build-isolation", "--editable", str(checkout))
    agentrl, envs, found = _use(python, tmp_path)
    assert (Path(agentrl), Path(envs)) == (checkout / "agentrl", checkout / "envs")
    assert found == "GuessNumber"
    assert "train" in _run([str(python.with_name("agentrl")), "--help"], cwd=tmp_path)


def test_bare_checkout(checkout: Path, tmp_path: Path) -> None:
    python = _new_environment(tmp_path / "venv")
    agentrl, envs, _ = _use(python, tmp_path, PYTHONPATH=str(checkout))
    assert (Path(agentrl), Path(envs)) == (checkout / "agentrl", checkout / "envs")
    assert "train" in _run([str(python), "-m", "agentrl", "--help"], cwd=checkout)


def test_an_installed_package_does_not_look_beside_itself(built: dict[str, Path], tmp_path: Path) -> None:
    """A folder `envs` that happens to lie in site-packages is not ours."""
    python = _new_environment(tmp_path / "venv")
    _pip(python, "--no-deps", str(built["wheel"]))
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "someone").mkdir()
    (site / "someone" / "__init__.py").write_text("")
    done = subprocess.run([str(python), "-c", "import agentrl.someone"], capture_output=True, text=True, check=False)
    assert "No module named 'agentrl.someone'" in done.stderr


def _new_environment(folder: Path) -> Path:
    """Its python. The packages of this environment can be imported, but this environment's own agentrl cannot: a path
    in a .pth file is not searched for further .pth files, which is how an editable install is found."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def _pip(python: Path, *arguments: str) -> None:
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", *arguments])


def _use(python: Path, folder: Path, **environment: str) -> list[str]:
    script = folder / "use.py"
    script.write_text(USE.format(parts=PARTS))
    return _run([str(python), str(script)], cwd=folder, **environment).split()


def _run(command: list[str], cwd: Path | None = None, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
