"""Graders: whether what a candidate made is what was asked for. Each is found by its name in the registry (docs/graders.md)."""

from .database import compare_database, db_state
from .equality import equal, same_tokens
from .functions import function_cases, record_cases
from .hidden_tests import PYTEST_PACKAGES, HiddenResult, pytest_cases
from .math_answers import math_equal
from .programs import stdin_cases
from .result import CaseResult, GradeResult
from .sql import sql_result

__all__ = [
    "PYTEST_PACKAGES",
    "CaseResult",
    "GradeResult",
    "HiddenResult",
    "compare_database",
    "db_state",
    "equal",
    "function_cases",
    "math_equal",
    "pytest_cases",
    "record_cases",
    "same_tokens",
    "sql_result",
    "stdin_cases",
]
