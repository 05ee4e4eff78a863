"""Rooms for sokoban, made by playing backwards from the solved room: each has a solution, and a shortest one is known."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .drawn import Family, Puzzle
from .moves import OPPOSITE, STEPS, Cell, beside, spaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What is drawn. A solution has between `shortest` and `longest` moves."""

    size: int
    """Rows and columns inside of the outer walls."""
    walls: int
    """Inside."""
    boxes: int
    shortest: int
    longest: int


LEVELS = {
    1: Level(size=4, walls=2, boxes=1, shortest=2, longest=8),
    2: Level(size=5, walls=4, boxes=1, shortest=8, longest=20),
    3: Level(size=5, walls=4, boxes=2, shortest=10, longest=24),
    4: Level(size=5, walls=4, boxes=3, shortest=16, longest=32),
}
MOST_STATES = 12_000
"""Positions that are looked at; the rest of a large room is left alone."""
RULES = (
    "Push every box B onto a goal G. You are P. # is a wall, _ is free, X is a box on a goal, S is you on a goal. "
    "You can push one box, and pull none."
)

SOLVED = ("# # # # #\n# P B G #\n# _ _ _ #\n# # # # #", ["right"])
"""A board, and its solution."""

State = tuple[Cell, frozenset[Cell]]
"""(player, boxes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A room without player and boxes.

    >>> room = Room(floor=frozenset({(0, 0), (0, 1), (0, 2)}), goals=frozenset({(0, 2)}))
    >>> print(room.drawing((0, 0), frozenset({(0, 1)})))
    # # # # #
    # P B G #
    # # # # #
    """

    floor: frozenset[Cell]
    """Goals among them."""
    goals: frozenset[Cell]

    @property
    def key(self) -> str:
        return f"{sorted(self.floor)} {sorted(self.goals)}"

    def drawing(self, player: Cell, boxes: frozenset[Cell]) -> str:
        rows, columns = (range(min(axis) - 1, max(axis) + 2) for axis in zip(*self.floor, strict=True))
        return spaced([self._sign((row, column), player, boxes) for column in columns] for row in rows)

    def _sign(self, cell: Cell, player: Cell, boxes: frozenset[Cell]) -> str:
        if cell not in self.floor:
            return "#"
        on_goal = cell in self.goals
        if cell == player:
            return "S" if on_goal else "P"
        return ("X" if on_goal else "B") if cell in boxes else ("G" if on_goal else "_")


def sketch(level: int, rng: random.Random) -> Room:
    """A connected room with goals."""
    spec = LEVELS[level]
    cells = [(row, column) for row in range(spec.size) for column in range(spec.size)]
    while True:
        floor = frozenset(cells) - frozenset(rng.sample(cells, spec.walls))
        if _is_connected(floor):
            return Room(floor=floor, goals=frozenset(rng.sample(sorted(floor), spec.boxes)))


def finish(level: int, room: Room, rng: random.Random) -> Puzzle | None:
    """A start among those from which the solution is neither too short nor too long, no box on a goal yet."""
    spec = LEVELS[level]
    ways = solutions(room, spec.longest)
    starts = [state for state, (length, _, _) in ways.items() if length >= spec.shortest and not state[1] & room.goals]
    if not starts:
        return None
    player, boxes = start = rng.choice(starts)
    public = {"floor": sorted(room.floor), "goals": sorted(room.goals), "boxes": sorted(boxes), "player": player}
    return Puzzle(prompt=RULES, public=public, secret={"solution": _moves(ways, start)})


Ways = dict[State, tuple[int, str, State | None]]
"""state -> (moves to the end, the first of them, the state after it)."""


def solutions(room: Room, longest: int) -> Ways:
    """All states from which the room is solved in at most `longest` moves, shortest first, up to MOST_STATES of them."""
    ends: list[State] = [(cell, room.goals) for cell in sorted(room.floor - room.goals)]
    ways: Ways = dict.fromkeys(ends, (0, "", None))
    layer = ends
    for length in range(1, longest + 1):
        found = []
        for state in layer:
            for move, before in _before(room, state):
                if before not in ways:
                    ways[before] = (length, move, state)
                    found.append(before)
        layer = found
        if len(ways) > MOST_STATES:
            break
    return ways


def _before(room: Room, state: State) -> Iterator[tuple[str, State]]:
    """(move, the state in which that move leads to this one): a step back, with or without pulling a box along."""
    player, boxes = state
    for direction in STEPS:
        back = beside(player, direction)
        if back not in room.floor or back in boxes:
            continue
        move = OPPOSITE[direction]
        yield move, (back, boxes)
        if (box := beside(player, move)) in boxes:
            yield move, (back, boxes - {box} | {player})


def _moves(ways: Ways, start: State) -> list[str]:
    moves = []
    state: State | None = start
    while state is not None:
        _, move, state = ways[state]
        moves.append(move)
    return moves[:-1]


def _is_connected(floor: frozenset[Cell]) -> bool:
    reached: set[Cell] = set()
    edge = [min(floor)]
    while edge:
        cell = edge.pop()
        reached.add(cell)
        edge += [after for direction in STEPS if (after := beside(cell, direction)) in floor - reached]
    return reached == floor


FAMILY = Family(name="sokoban", levels=tuple(LEVELS), sketch=sketch, finish=finish, key=lambda room: room.key)
