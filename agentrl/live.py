"""What a person sees while a run goes on: a live table on a terminal, one plain line for each step elsewhere.

Consumes the rows of `agentrl.record` and what the run is busy with. Writes to a terminal or stream and nowhere else.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

from agentrl.record import aborted

BARS = "▁▂▃▄▅▆▇█"
ROWS = 12
"""Steps in the table: fits a terminal of 24 lines with the header."""
RECENT = 5
"""Steps that the estimate of the time left is made from: times change as answers grow longer."""

HEARTBEAT = 15.0
"""Seconds between two lines about the progress of a phase, where there is no table."""

Row = Mapping[str, Any]


class Watch(Protocol):
    """Takes what happens in a run."""

    def begin(self, title: str, *, steps: int, rows: Sequence[Row] = ()) -> None:
        """`rows`: those of a run that is gone on with."""
        ...

    def phase(self, name: str) -> None:
        """What the run is busy with from now on; empty: nothing."""
        ...

    def progress(self, name: str, done: int, total: int) -> None:
        """How far the phase is."""
        ...

    def step(self, row: Row) -> None: ...

    def note(self, text: str) -> None:
        """One line that stays."""
        ...

    def close(self) -> None: ...


class PlainWatch:
    """One line for each step: for files, CI and pipes."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stdout
        self._steps = 0
        self._rows: list[Row] = []
        self._told = time.monotonic()

    def begin(self, title: str, *, steps: int, rows: Sequence[Row] = ()) -> None:
        self._steps, self._rows = steps, list(rows)
        self.note(title)

    def phase(self, name: str) -> None:
        """Not shown: a line for each would bury the steps."""

    def progress(self, name: str, done: int, total: int) -> None:
        """Now and then, so that a long evaluation is seen to move."""
        now = time.monotonic()
        if now - self._told >= HEARTBEAT and done < total:
            self._told = now
            self.note(f"  {name} {done}/{total}")

    def step(self, row: Row) -> None:
        self._rows.append(row)
        self._told = time.monotonic()
        left = remaining(self._rows, self._steps)
        cells = cells_of(row)
        shown = "  ".join(f"{name} {cells[name]}".strip() for name in COLUMNS if name != "step" and cells[name])
        self.note(f"step {int(row['step'])}/{self._steps}  {shown}  left {duration(left)}")

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing is held."""


class LiveWatch:
    """A table that is redrawn in place, by a thread of rich's own: it moves also while a training step computes."""

    def __init__(self, console: Any = None) -> None:
        import rich.console
        import rich.live

        self._console = console or rich.console.Console()
        self._title, self._steps, self._rows = "", 0, list[Row]()
        self._phase, self._since = "", time.monotonic()
        self._live = rich.live.Live(console=self._console, refresh_per_second=4, get_renderable=self._render)

    def begin(self, title: str, *, steps: int, rows: Sequence[Row] = ()) -> None:
        self._title, self._steps, self._rows = title, steps, list(rows)
        self._live.start()

    def phase(self, name: str) -> None:
        self._phase, self._since = name, time.monotonic()

    def progress(self, name: str, done: int, total: int) -> None:
        self._phase = f"{name} {done}/{total},"

    def step(self, row: Row) -> None:
        self._rows = [*self._rows, row]  # the drawing thread reads the list

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._phase = ""
        self._live.stop()

    def _render(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        rows = [cells_of(row) for row in self._rows[-ROWS:]]
        shown = [name for name in COLUMNS if any(cells[name] for cells in rows)]
        table = Table(box=None, padding=(0, 1), header_style="bold")
        for name in shown:
            table.add_column(name, justify="right" if name else "left")
        for cells in rows:
            table.add_row(*(cells[name] for name in shown))
        return Group(Text(self._title, style="bold"), *map(Text, self._summary()), table)

    def _summary(self) -> list[str]:
        done = int(self._rows[-1]["step"]) if self._rows else 0
        full = round(30 * done / self._steps) if self._steps else 0
        busy = f"{self._phase} {duration(time.monotonic() - self._since)}" if self._phase else ""
        left = duration(remaining(self._rows, self._steps)) if self._rows else "?"
        rewards = [float(row["reward"]) for row in self._rows if "reward" in row]
        lines = [f"{'━' * full}{'─' * (30 - full)} {done}/{self._steps} steps, about {left} left   {busy}"]
        return [*lines, f"reward {sparkline(rewards)} {trend(rewards)}"] if rewards else lines


def watch(*, live: bool, stream: IO[str] | None = None) -> Watch:
    """The one that fits: a table where a person looks at a terminal, lines elsewhere."""
    if live and (stream or sys.stdout).isatty():
        return LiveWatch()
    return PlainWatch(stream)


COLUMNS = (
    "step",
    "reward",
    "pass",
    "eval",
    "sampled/s",
    "trained/s",
    "sandbox",
    "cut",
    "answers cut",
    "unreadable",
    "aborted",
    "time",
    "",
)
"""The last one, without a name, is a remark. Columns that are empty are not shown."""


def cells_of(row: Row) -> dict[str, str]:
    """A row's numbers as a person reads them; empty where the row does not have them. Rates: tokens of a second in which the
    engine samples, or the trainer trains. cut: episodes that a limit ended; answers cut: those that reached their budget of
    tokens; unreadable: answers whose form the environment could not read."""
    episodes, turns = int(row.get("episodes", 0)), int(row.get("turns", 0))
    return {
        "step": str(int(row["step"])),
        "reward": _number(row.get("reward")),
        "pass": _percent(row.get("pass_rate")),
        "eval": _percent(row.get("eval/pass_rate")),
        "sampled/s": _rate(row.get("engine/sampled_tokens", 0.0), row.get("engine/busy_s", 0.0)),
        "trained/s": _rate(row.get("tokens_per_s", 0.0), 1.0),
        "sandbox": str(int(row["sandbox_calls"])) if row.get("sandbox_calls") else "",
        "cut": f"{int(row['truncated'])}/{episodes}" if "truncated" in row else "",
        "answers cut": _share(row.get("answers_cut"), turns),
        "unreadable": _share(row.get("parse_errors"), turns),
        "aborted": str(aborted(row) or ""),
        "time": duration(row["time/step"]) if "time/step" in row else "",
        "": "no group differed" if row.get("optimizer_steps") == 0 else "",
    }


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The course of the values in `width` characters at most, neighbours averaged.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    if not values:
        return ""
    low, span = min(values), (max(values) - min(values)) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)


def trend(values: Sequence[float]) -> str:
    """First against last, each a mean over a fifth of the steps (but at least one).

    >>> trend([0.0, 0.5, 1.0])
    '0.000 -> 1.000 (+1.000)'
    """
    part = max(1, len(values) // 5)
    first, last = sum(values[:part]) / part, sum(values[-part:]) / part
    return f"{first:.3f} -> {last:.3f} ({last - first:+.3f})"


def remaining(rows: Sequence[Row], steps: int) -> float:
    """Seconds left, by the last steps; evaluations are left out."""
    times = [float(row["time/step"]) - float(row.get("time/eval", 0.0)) for row in rows if row.get("time/step")][-RECENT:]
    if not times or not rows:
        return 0.0
    return sum(times) / len(times) * max(0, steps - int(rows[-1]["step"]))


def duration(seconds: float) -> str:
    """
    >>> duration(3.21), duration(75), duration(7380)
    ('3.2 s', '1 min 15 s', '2 h 03 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60):02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _share(count: float | None, of: int) -> str:
    """Empty for none: most steps have none."""
    return f"{int(count)}/{of}" if count else ""


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}%"


def _rate(tokens: float, seconds: float) -> str:
    return f"{tokens / seconds:.0f} tok" if tokens and seconds > 0 else ""
