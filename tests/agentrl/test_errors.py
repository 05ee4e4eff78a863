"""Errors that a person can mend."""

from __future__ import annotations

import pytest

from agentrl.errors import MissingExtra, UsageError, nearest


@pytest.mark.parametrize(
    ("wrong", "valid", "clause"),
    [
        ("stpes", ["steps", "seed"], "did you mean 'steps'?"),
        ("lerning_rate", {"learning_rate": 1, "x": 2}, "did you mean 'learning_rate'?"),
        ("abc", ["abd", "abe", "zzz"], "did you mean 'abe' or 'abd'?"),
        ("zzz", ["b", "a", "a"], "valid: 'a', 'b'"),
        ("zzz", [], "there are none"),
        ("zzz", [f"n{i:02}" for i in range(13)], "valid: " + ", ".join(f"'n{i:02}'" for i in range(12)) + ", ..."),
    ],
)
def test_nearest(wrong, valid, clause):
    assert nearest(wrong, valid) == clause


def test_a_missing_extra_says_how_to_install_it():
    error = MissingExtra("vllm", extra="vllm")
    assert isinstance(error, UsageError)
    assert "pip install 'agentrl-gym[vllm]'" in str(error)
