"""A build that could not test the isolation must not be green, and what may be skipped is listed here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .support.isolation import MAY_BE_ABSENT, absent, missing

SANDBOXES = Path(__file__).parent / "tools" / "sandboxes"
SKIPS = {
    ("test_attacks.py", "test_attacks_as_a_user_without_rights"): "needs another user, or a level that may be absent",
    ("test_check.py", "test_webassembly_passes_what_applies"): "the extra wasm",
    ("test_compat.py", "test_program"): "what Landlock's level cannot do, beside the case; NumPy",
    ("test_docker.py", ""): "the extra docker; without a daemon the build fails",
    ("test_docker_life.py", ""): "as test_docker.py",
    ("test_local.py", "test_how_it_ended"): "a second of CPU time that one level shows",
    ("test_values.py", "test_numpy_scalars_are_numbers_and_arrays_are_refused"): "NumPy",
    ("test_wasm.py", ""): "the extra wasm",
}
"""Every place where a test of sandboxes may be skipped but for a level in MAY_BE_ABSENT: (file, function or none), and why."""


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_isolation_is_a_failure_in_ci_only(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no user namespaces"):
        missing("no user namespaces")


def test_some_levels_may_be_absent_and_namespaces_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert set(MAY_BE_ABSENT) == {"landlock", "namespace+cgroup"}
    for level in MAY_BE_ABSENT:
        with pytest.raises(pytest.skip.Exception, match="not today"):
            absent(level, "not today")
    with pytest.raises(pytest.fail.Exception, match="not today"):
        absent("namespace", "not today")


def test_no_test_of_sandboxes_is_skipped_that_is_not_listed() -> None:
    found = {(path.name, function) for path in SANDBOXES.glob("*.py") for function in _skipping(path)}
    assert found == set(SKIPS)


def _skipping(path: Path) -> set[str]:
    """Functions that call pytest.skip or pytest.importorskip, or use skipif; "" for the module itself."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in tree.body:
        name = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else ""
        if any(isinstance(part, ast.Attribute) and part.attr in ("skip", "skipif", "importorskip") for part in ast.walk(node)):
            found.add(name)
    return found
