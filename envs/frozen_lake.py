"""Cross a frozen lake without falling in: a grid as text, several moves a turn. No tools, no sandbox."""

from __future__ import annotations

from agentrl.env import Env, Step, done
from agentrl.messages import Action, Message
from agentrl.task import Task, TaskSource

from .drawn import drawn
from .frozen_lake_tasks import FAMILY, SOLVED, is_inside
from .moves import STEPS, asked, beside, read_moves, spaced
from .opening import opening


class FrozenLake(Env):
    """Walk to the gift over ice with holes in it.

    Reward: 1 on the gift, else 0. A hole ends the episode.
    Levels: 1 is a lake of 4 x 4 cells, 2 of 6 x 6, 3 of 8 x 8; each has a way.
    """

    max_turns = 12
    demonstration: bool = True
    """Whether a solved one is shown first. Right for small models; large ones do without."""
    moves_per_turn: int = 4
    slip: float = 0.0
    """Chance that a move goes to one of the two sides instead; 0.67 is gymnasium's slippery lake."""

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """Endless lakes."""
        return drawn(FAMILY, levels, seed)

    def reset(self, task: Task) -> list[Message]:
        self._lake: list[str] = task.public["lake"]
        self._cell = (0, 0)
        ice = " The ice is slippery: a move may go aside." if self.slip else ""
        board, way = SOLVED
        texts = [f"{task.prompt}{ice}\n{shown}\n{asked(self.moves_per_turn)}" for shown in (board, self.board())]
        return opening(texts[1], (texts[0], ", ".join(way[: self.moves_per_turn])), shown=self.demonstration)

    def step(self, action: Action) -> Step | str:
        notes = []
        moves = action.parse(read_moves)
        for move in moves[: self.moves_per_turn]:
            after = beside(self._cell, self._slipped(move))
            if not is_inside(self._lake, after):
                notes.append(f"{move}: there is the shore.")
                continue
            self._cell = after
            if self._under() == "O":
                return done("You fell into a hole.")
            if self._under() == "G":
                return done("You have the gift.", reward=1.0)
        if len(moves) > self.moves_per_turn:
            notes.append(f"Only {self.moves_per_turn} moves were made.")
        return "\n".join([*notes, self.board()])

    def board(self) -> str:
        """The lake with P on it."""
        rows = [list(row) for row in self._lake]
        rows[self._cell[0]][self._cell[1]] = "P"
        return spaced(rows)

    def _under(self) -> str:
        return self._lake[self._cell[0]][self._cell[1]]

    def _slipped(self, move: str) -> str:
        if self.rng.random() >= self.slip:
            return move
        across = STEPS[move][0] == 0
        return self.rng.choice(("up", "down") if across else ("left", "right"))
