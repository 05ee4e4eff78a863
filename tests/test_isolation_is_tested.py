"""A build that could not test the isolation must not be green."""

from __future__ import annotations

import pytest

from .support.isolation import missing


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_isolation_is_a_failure_in_ci_only(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no user namespaces"):
        missing("no user namespaces")
