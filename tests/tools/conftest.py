"""The sandboxes' fixtures, for all tests of tools."""

from .sandboxes.conftest import background, best, each, pools

__all__ = ["background", "best", "each", "pools"]
