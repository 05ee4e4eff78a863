"""Graders: whether what a candidate made is what was asked for. Each is found by its name in the registry (docs/graders.md)."""

from .equality import equal, same_tokens
from .functions import function_cases, record_cases
from .hidden_tests import PYTEST_PACKAGES, HiddenResult, pytest_cases
from .programs import stdin_cases
from .result import CaseResult, GradeResult

__all__ = [
    "PYTEST_PACKAGES",
    "CaseResult",
    "GradeResult",
    "HiddenResult",
    "equal",
    "function_cases",
    "pytest_cases",
    "record_cases",
    "same_tokens",
    "stdin_cases",
]
