"""The argument parser of the commands: argparse, with answers of one line that name the nearest valid thing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from agentrl.errors import UsageError, nearest


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of printing a usage text and leaving.

    >>> Parser(prog="agentrl train").parse(["--nonsense"])      # doctest: +SKIP
    UsageError: agentrl train has no option '--nonsense'; valid: '--dry-run', '--help'
    """

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Options and positionals may stand in any order. Raises UsageError."""
        args, rest = self.parse_known_intermixed_args(list(argv))
        if rest:
            options = [option for action in self._actions for option in action.option_strings]
            raise UsageError(f"{self.prog} has no option {rest[0]!r}; {nearest(rest[0], options)}")
        return args


def overrides(parser: Parser) -> None:
    """Adds what train and eval share: a file of keys, and key=value."""
    parser.add_argument("--config", metavar="FILE", help="a YAML file of keys; it wins over groups, and overrides win over it")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="see the list of keys in agentrl train --help")
