"""Where a fault stands, and what may have been meant. `test_author_faults.py` shows the whole at the command line."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentrl.blame import attribute, blaming, definition, frames, innermost, one_line, stands
from agentrl.env import as_step
from agentrl.errors import UsageError
from agentrl.load import load, neighbors, sources
from agentrl.suggest import suggestion

TEXT = '''
import functools


def twice(f):
    @functools.wraps(f)
    def call(*args):
        return f(*args)
    return call


@functools.total_ordering
class Base:
    """Not
indented.
    """
    prompt = """
a text
"""
    first: int = 1
    second: int

    def __lt__(self, other):
        return False

    @twice
    def step(self, action):
        return None


class Mine(Base):
    x = y = 2

    class Base:
        first = 3
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "mine.py").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return load(tmp_path / "mine.py")


def line(source: str) -> str:
    return f"mine.py:{TEXT.splitlines().index(source) + 1}"


def raised(function: Callable[..., Any], *args: Any) -> Exception:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_attribute_is_found_where_it_is_set(mine: ModuleType) -> None:
    assert attribute(mine.Mine, "first") == attribute(mine.Base, "first") == line("    first: int = 1")
    assert attribute(mine.Mine, "y") == line("    x = y = 2")
    assert attribute(mine.Base, "prompt") == line('    prompt = """')
    assert attribute(mine.Base, "step") == line("    def step(self, action):")
    assert attribute(mine.Mine.Base, "first") == line("        first = 3")
    assert attribute(mine.Mine, "nothing") == line("class Mine(Base):")


def test_what_is_wrapped_stands_where_it_was_written(mine: ModuleType) -> None:
    assert stands(mine.Base().step) == line("    @twice")
    assert definition(mine.Mine.Base).name == "Mine.Base"  # type: ignore[union-attr]


def test_what_stands_in_no_file_is_called_by_its_name() -> None:
    made = type("Made", (), {"x": 1})
    made.__module__ = "nowhere"
    assert (definition(made), stands(made), attribute(made, "x")) == (None, "Made", "Made")
    assert stands(len) == "len"


def test_frames_of_the_framework_and_of_libraries_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import json\nfrom agentrl.messages import Action\ndef f(): Action(text='x').parse(g)\ndef g(t): json.loads('{')\n"
    )
    module = load(tmp_path / "mine.py")
    error = raised(json.loads, "{")
    assert [Path(frame.file).name for frame in frames(error)] == ["test_blame.py"]
    assert [frame.place for frame in frames(raised(module.f))][-1:] == ["mine.py:3 in f"]  # the form's error is its cause
    assert innermost(error)[0].file.endswith("decoder.py")


def test_an_installed_authors_frames_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "theirs.py").write_text("import json\ndef f():\n    return json.loads('{')\n")
    monkeypatch.chdir(tmp_path)
    error = raised(load(folder / "theirs.py").f)
    error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]  # without this file's frame
    assert [frame.place for frame in frames(error)] == ["site-packages/theirs.py:3 in f"]


def test_a_value_is_blamed_on_its_function_unless_the_authors_code_has_raised(mine: ModuleType) -> None:
    def check(value: Any) -> None:
        with blaming(mine.Base.step):
            as_step(value)

    error = raised(check, object())
    error.__traceback__ = None  # this file's frames are an author's, too
    assert [frame.place for frame in frames(error)] == [f"{line('    @twice')} in Base.step"]
    assert frames(ValueError("never raised")) == innermost(ValueError("never raised")) == ()


def test_a_usage_error_needs_no_type() -> None:
    assert one_line(UsageError("so it\nis")) == "so it is"
    assert one_line(ValueError("so it\nis")) == "ValueError: so it is"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NameError("name 'zzzz' is not defined", name="zzzz"), ""),
        (AttributeError("no", name="uper", obj="text"), "; did you mean 'upper'?"),
        (AttributeError("an author's own"), ""),
        (ModuleNotFoundError("No module named 'jsn'", name="jsn"), "; did you mean 'json'?"),
        (ImportError("cannot import name 'lods' from 'json' (x)", name="json"), "; did you mean 'loads'?"),
        (TypeError("nowhere.f() got an unexpected keyword argument 'x'"), ""),
        (TypeError("done() got an unexpected keyword argument 'obsrvation'"), "; did you mean 'observation'?"),
        (TypeError("f() got an unexpected keyword argument 'x'. Did you mean 'y'?"), ""),
        (KeyError("x"), ""),
    ],
)
def test_what_may_have_been_meant(error: Exception, text: str) -> None:
    assert suggestion(error) == text


def test_in_a_checkout_agentrl_is_no_neighbor_of_the_file_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(sys.modules["agentrl"].__path__[-1])
    monkeypatch.delitem(sys.modules, "agentrl.finite", raising=False)
    with neighbors(root):
        importlib.import_module("agentrl.finite")
    assert sources(root) == []
