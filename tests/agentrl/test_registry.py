"""Finding things by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentrl import registry
from agentrl.errors import UsageError
from agentrl.registry import BUNDLED, find, names


def test_module_and_attribute():
    import collections

    assert find("env", "collections:OrderedDict") is collections.OrderedDict


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, known in BUNDLED.items() for name in known])
def test_every_bundled_name_leads_somewhere(kind, name):
    assert callable(find(kind, name))


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="there is no env 'code_sandbx'; did you mean 'code_sandbox'"):
        find("env", "code_sandbx")
    with pytest.raises(UsageError, match="holds no 'OrderdDict'; did you mean 'OrderedDict'"):
        find("env", "collections:OrderdDict")
    with pytest.raises(UsageError, match="names the module 'no_such_module', which cannot be found"):
        find("env", "no_such_module:X")


def test_a_missing_import_inside_a_module_is_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("\nimport no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"needs_more.py:2: ModuleNotFoundError: .*no_such_dependency.*is it installed\?"):
        find("env", "needs_more:X")


def test_a_file_is_loaded_once_and_its_classes_can_be_pickled(tmp_path, monkeypatch):
    import pickle

    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    pass\n")
    found = find("env", f"{path}:Mine")
    monkeypatch.chdir(tmp_path)
    assert find("env", "mine.py:Mine") is found
    assert pickle.loads(pickle.dumps(found)) is found


def test_a_file_has_the_same_module_name_in_every_process(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    pass\n")
    code = f"from agentrl.registry import find; print(find('env', {str(path) + ':Mine'!r}).__module__)"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}, cwd="."
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {find("env", f"{path}:Mine").__module__ + "\n"}


def test_a_file_that_fails_is_not_half_there(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\nraise RuntimeError('halfway')\n")
    before = set(sys.modules)
    with pytest.raises(UsageError, match=r"broken.py:2: RuntimeError: halfway"):
        find("env", f"{path}:x")
    assert set(sys.modules) == before
    with pytest.raises(UsageError, match="there is no file"):
        find("env", "nowhere.py:X")


def test_installed_packages_add_names(monkeypatch):
    class Point:
        name, value = "theirs", "collections:Counter"

    class Taken:
        name, value = "guess_number", "collections:Counter"

    monkeypatch.setattr(registry, "entry_points", lambda group: [Point, Taken] if group == "agentrl.envs" else [])
    assert names("env")["theirs"] == "collections:Counter"
    assert set(BUNDLED["env"]) < set(names("env"))
    assert find("env", "theirs").__name__ == "Counter"
    assert find("env", "guess_number").__name__ == "GuessNumber"
    assert "theirs" not in names("tool")
