"""Push boxes onto goals: a room as text, several moves a turn. No tools, no sandbox."""

from __future__ import annotations

from agentrl.env import Env, Step, done
from agentrl.messages import Action, Message
from agentrl.reward import reward
from agentrl.task import Task, TaskSource

from .drawn import drawn
from .moves import Cell, asked, beside, read_moves
from .opening import opening
from .sokoban_tasks import FAMILY, SOLVED, Room


class Sokoban(Env):
    """Push every box of a room onto a goal.

    Reward: 1 when all boxes are on goals; else `box_credit` times the share that is, in the end.
    Levels: 1 has one box and at most 8 moves to make, 2 one box in a larger room, 3 two boxes, 4 three.
    """

    max_turns = 10
    demonstration: bool = True
    """Whether a solved one is shown first. Right for small models; large ones do without."""
    moves_per_turn: int = 8
    box_credit: float = 0.5

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """Endless rooms, each with a solution."""
        return drawn(FAMILY, levels, seed)

    def reset(self, task: Task) -> list[Message]:
        cells = {name: [_cell(pair) for pair in task.public[name]] for name in ("floor", "goals", "boxes")}
        self._room = Room(floor=frozenset(cells["floor"]), goals=frozenset(cells["goals"]))
        self._boxes = frozenset(cells["boxes"])
        self._player = _cell(task.public["player"])
        board, moves = SOLVED
        texts = [f"{task.prompt}\n{shown}\n{asked(self.moves_per_turn)}" for shown in (board, self.board())]
        return opening(texts[1], (texts[0], ", ".join(moves)), shown=self.demonstration)

    def step(self, action: Action) -> Step | str:
        notes = []
        moves = action.parse(read_moves)
        for move in moves[: self.moves_per_turn]:
            if problem := self._move(move):
                notes.append(f"{move}: {problem}")
            if self._boxes == self._room.goals:
                return done(f"{self.board()}\nAll boxes are on goals.")
        if len(moves) > self.moves_per_turn:
            notes.append(f"Only {self.moves_per_turn} moves were made.")
        return "\n".join([*notes, self.board()])

    @reward
    def solved(self) -> float:
        """1 when all boxes are on goals, else the credit for those that are."""
        share = len(self._boxes & self._room.goals) / len(self._boxes)
        return share if share == 1 else self.box_credit * share

    def board(self) -> str:
        """The room as text."""
        return self._room.drawing(self._player, self._boxes)

    def _move(self, move: str) -> str:
        """Makes it; what is in the way, where something is."""
        after = beside(self._player, move)
        if after not in self._room.floor:
            return "there is a wall."
        if after in self._boxes:
            behind = beside(after, move)
            if behind not in self._room.floor or behind in self._boxes:
                return "the box cannot move there."
            self._boxes = self._boxes - {after} | {behind}
        self._player = after
        return ""


def _cell(pair: list[int] | Cell) -> Cell:
    row, column = pair
    return row, column
