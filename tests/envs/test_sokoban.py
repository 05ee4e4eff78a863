"""sokoban: an independent solver finds the same shortest solutions in the boards as they are shown; pushing; rewards."""

from collections import deque

import pytest

from agentrl.env import as_step
from agentrl.envs.sokoban import Sokoban
from agentrl.envs.sokoban_tasks import LEVELS, SOLVED
from agentrl.messages import Action
from agentrl.task import Task

from .bundled import new

STEPS = {"up": -1j, "down": 1j, "left": -1, "right": 1}


def read(board):
    """(walls, goals, boxes, player) of a board as it is shown; a cell is a complex number."""
    rows = [row for row in board.splitlines() if row.startswith("#")]
    signs = {x + 1j * y: sign for y, row in enumerate(rows) for x, sign in enumerate(row.split(" "))}
    find = lambda wanted: frozenset(cell for cell, sign in signs.items() if sign in wanted)  # noqa: E731
    (player,) = find("PS")
    return find("#"), find("GXS"), find("BX"), player


def shortest(board):
    """The least number of moves, by search forwards from the board; None when there is no solution."""
    walls, goals, boxes, player = read(board)
    seen = {(player, boxes)}
    queue = deque([(player, boxes, 0)])
    while queue:
        player, boxes, length = queue.popleft()
        if boxes == goals:
            return length
        for step in STEPS.values():
            to, after = player + step, boxes
            if to in walls:
                continue
            if to in boxes:
                if to + step in walls or to + step in boxes:
                    continue
                after = boxes - {to} | {to + step}
            if (to, after) not in seen:
                seen.add((to, after))
                queue.append((to, after, length + 1))
    return None


@pytest.mark.parametrize(("level", "count"), [(1, 40), (2, 40), (3, 12), (4, 4)])
def test_an_independent_solver_finds_the_same_length(level, count):
    spec = LEVELS[level]
    for index in range(count):
        task = Sokoban.tasks(level).get(index)
        env = new("sokoban", task)
        board = env.reset(task)[-1].text.partition("\n")[2]
        _, goals, boxes, _ = read(board)
        assert len(goals) == len(boxes) == spec.boxes
        assert not goals & boxes
        assert shortest(board) == len(task.secret["solution"])
        assert spec.shortest <= len(task.secret["solution"]) <= spec.longest


def room(*rows, goals, boxes, player):
    floor = [(i, j) for i, row in enumerate(rows) for j, sign in enumerate(row) if sign == "_"]
    public = {"floor": floor, "goals": goals, "boxes": boxes, "player": player}
    return Task(id="t", prompt="Push.", public=public)


TWO = room("____", "____", goals=[(0, 3), (1, 3)], boxes=[(0, 1), (1, 1)], player=(0, 0))


def begun(task, **settings):
    env = new("sokoban", task, **settings)
    return env, env.reset(task)[-1].text


def test_the_first_board():
    _, text = begun(TWO)
    assert (
        text == "Push.\n# # # # # #\n# P B _ G #\n# _ B _ G #\n# # # # # #\nSay only moves, up to 8 a turn, as in: down, right"
    )


def test_pushing_and_rewards():
    env, _ = begun(TWO)
    assert env.solved() == 0.0
    step = as_step(env.step(Action(text="right right")))
    assert step.observation[0].text == "# # # # # #\n# _ _ P X #\n# _ B _ G #\n# # # # # #"
    assert env.solved() == 0.25  # one of two boxes, half credit
    step = as_step(env.step(Action(text="right")))
    assert step.observation[0].text.startswith("right: the box cannot move there.\n")
    step = as_step(env.step(Action(text="up, left, left, down, right, right")))
    assert step.terminated
    assert step.observation[0].text.endswith("All boxes are on goals.")
    assert env.solved() == 1.0


def test_two_boxes_in_a_row_cannot_be_pushed():
    env, _ = begun(room("_____", goals=[(0, 3), (0, 4)], boxes=[(0, 1), (0, 2)], player=(0, 0)))
    assert "the box cannot move there" in as_step(env.step(Action(text="right"))).observation[0].text


def test_walls_and_you_on_a_goal():
    env, _ = begun(room("___", goals=[(0, 0)], boxes=[(0, 1)], player=(0, 2)))
    step = as_step(env.step(Action(text="up")))
    assert step.observation[0].text.startswith("up: there is a wall.")
    env, text = begun(room("___", "___", goals=[(0, 0)], boxes=[(1, 1)], player=(0, 0)))
    assert "# S _ _ #" in text


def test_moves_beyond_the_limit_are_not_made_and_those_after_the_end_neither():
    env, _ = begun(TWO, moves_per_turn=1)
    assert "Only 1 moves were made." in as_step(env.step(Action(text="right, right"))).observation[0].text
    env, _ = begun(room("____", goals=[(0, 2)], boxes=[(0, 1)], player=(0, 0)))
    assert as_step(env.step(Action(text="right, right, right"))).terminated
    assert env.solved() == 1.0


def test_rooms_that_are_held_out_are_not_trained_on_from_another_start():
    source = Sokoban.tasks([1, 2])
    rooms = lambda tasks: {(str(t.public["floor"]), str(t.public["goals"])) for t in tasks}  # noqa: E731
    assert not rooms(source.held_out(60)) & rooms(source.get(index) for index in range(600))


def test_the_demonstration_is_solved():
    board, moves = SOLVED
    assert shortest(board) == len(moves) == 1
    env = new("sokoban", TWO, demonstration=True)
    question, answer, real = env.reset(TWO)
    assert (answer.role, answer.text) == ("assistant", "right")
    assert board in question.text
    assert env.board() in real.text
