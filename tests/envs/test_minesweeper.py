"""minesweeper: all ways in which mines can lie are tried: the numbers are right, and can be played by; opening, rewards."""

import re
from itertools import combinations

import pytest

from agentrl.env import as_step
from agentrl.envs.minesweeper import Minesweeper, read_cells
from agentrl.envs.minesweeper_tasks import LEVELS, SOLVED, laid, neighbors, put
from agentrl.messages import Action, ParseError
from agentrl.task import Task

from .bundled import new


def around(cell):
    return {(cell[0] + i, cell[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} - {cell}


def shown(text, size):
    """cell -> number, of the open cells of a board."""
    rows = [line.split(" ")[1:] for line in text.splitlines() if re.fullmatch(r"\d( [\d?])+", line)]
    assert len(rows) == size
    return {(i, j): int(sign) for i, row in enumerate(rows) for j, sign in enumerate(row) if sign != "?"}


def consistent(numbers, size, mines):
    """Every way in which the mines can lie, by trying all."""
    closed = [(i, j) for i in range(size) for j in range(size) if (i, j) not in numbers]
    ways = [set(way) for way in combinations(closed, mines)]
    return [way for way in ways if all(len(way & around(cell)) == number for cell, number in numbers.items())]


def test_a_player_who_tries_all_ways_is_never_wrong_and_wins_most_fields():
    """Opens what is safe in every way that fits; where nothing is sure, what is safe in most."""
    won = 0
    for task in Minesweeper.tasks(1).held_out(25):
        env = new("minesweeper", task)
        text = env.reset(task)[-1].text
        cell, sure = (2, 2), True
        for _ in range(env.max_turns):
            step = as_step(env.step(Action(text=f"{cell[0] + 1} {cell[1] + 1}")))
            text = step.observation[0].text
            if step.terminated:
                break
            numbers = shown(text, 5)
            ways = consistent(numbers, 5, 4)
            assert env._mines in ways
            closed = [(i, j) for i in range(5) for j in range(5) if (i, j) not in numbers]
            cell = min(closed, key=lambda at: sum(at in way for way in ways))
            sure = not any(cell in way for way in ways)
        assert step.terminated
        assert not ("mine" in text and "held" in text and sure)
        won += env.cleared() == 1.0
    assert won >= 18


@pytest.mark.parametrize("level", LEVELS)
def test_the_first_cell_is_safe_wherever_it_is(level):
    size, mines = LEVELS[level]
    for index in range(10):
        task = Minesweeper.tasks(level).get(index)
        for row in range(size):
            for column in range(size):
                lie = laid(task.secret["order"], size, mines, (row, column))
                assert len(lie) == mines
                assert not lie & {(row, column), *around((row, column))}
                env = new("minesweeper", task)
                env.reset(task)
                assert not as_step(env.step(Action(text=f"{row + 1} {column + 1}"))).reward
                assert (row, column) in env._open


def test_neighbors_stop_at_the_border():
    assert sorted(neighbors((0, 0), 3)) == [(0, 1), (1, 0), (1, 1)]
    assert len(neighbors((1, 1), 3)) == 8
    assert set(neighbors((2, 1), 4)) == around((2, 1))


ROW = [4, 9, *(cell for cell in range(25) if cell not in (4, 9))]
TASK = Task(id="t", prompt=put(5, 2, "?"), public={"size": 5, "mines": 2}, secret={"order": ROW})
"""Mines in the last cells of the first two rows, when the beginning is far from them."""


def begun():
    env = new("minesweeper", TASK)
    return env, env.reset(TASK)[-1].text


def test_boards():
    env, text = begun()
    assert text == TASK.prompt
    assert env.board() == "\n".join(["  1 2 3 4 5", *(f"{row} ? ? ? ? ?" for row in range(1, 6))])
    step = as_step(env.step(Action(text="open 1 1")))
    assert (
        step.observation[0].text
        == "  1 2 3 4 5\n1 0 0 0 2 ?\n2 0 0 0 2 ?\n3 0 0 0 1 1\n4 0 0 0 0 0\n5 0 0 0 0 0\nAll cells without a mine are open."
    )
    assert step.terminated
    assert env.cleared() == 1.0


def test_what_the_first_cell_opens_can_be_all():
    wall = [20, 21, 22, 23, 24, *range(20)]  # the whole last row
    task = Task(id="t", prompt="?", public={"size": 5, "mines": 5}, secret={"order": wall})
    env = new("minesweeper", task)
    env.reset(task)
    assert env.cleared() == 0.0
    assert as_step(env.step(Action(text="1 1"))).terminated
    assert env.cleared() == 1.0


def test_credit_is_for_cells_after_the_first():
    checkered = [1, 3, 7, 11, 13, *(cell for cell in range(25) if cell not in (1, 3, 7, 11, 13))]
    task = Task(id="t", prompt="?", public={"size": 5, "mines": 5}, secret={"order": checkered})
    env = new("minesweeper", task)
    env.reset(task)
    as_step(env.step(Action(text="5 5")))
    opened, left = len(env._open), 20 - len(env._open)
    assert left > 0
    assert env.cleared() == 0.0
    closed = next((i, j) for i in range(5) for j in range(5) if (i, j) not in env._open | env._mines)
    before = len(env._open)
    as_step(env.step(Action(text=f"{closed[0] + 1} {closed[1] + 1}")))
    gained = len(env._open) - before
    assert env.cleared() == pytest.approx(0.5 * gained / left)
    assert opened == before
    mine = next(iter(env._mines))
    step = as_step(env.step(Action(text=f"{mine[0] + 1} {mine[1] + 1}")))
    assert step.terminated
    assert step.observation[0].text == f"Row {mine[0] + 1}, column {mine[1] + 1} held a mine."
    assert env.cleared() == pytest.approx(0.5 * gained / left)


def test_cells_that_cannot_be_opened_are_told():
    env = new("minesweeper", Minesweeper.tasks(3).get(0))
    env.reset(env.task)
    step = as_step(env.step(Action(text="9 1, 0 0, 4 4, 4 4")))
    assert step.observation[0].text.startswith(
        "There is no row 9, column 1.\nThere is no row 0, column 0.\nRow 4, column 4 is open already.\n"
    )


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("2 3", [(2, 3)]),
        ("open 2 3", [(2, 3)]),
        ("Row 2, column 3.", [(2, 3)]),
        ("(2, 3), (4, 1)", [(2, 3), (4, 1)]),
        ("r2c3 r4c1", [(2, 3), (4, 1)]),
        ("2 3\n4 1", [(2, 3), (4, 1)]),
        ("open 2 3\nopen 4 1", [(2, 3), (4, 1)]),
        ("Row 1 shows 2, so I take\nopen 2 3", [(2, 3)]),
        ("2 3\nThe mine must be at 1 1, I open 4 1", [(1, 1), (4, 1)]),
        ("2 3\nThat is safe.", [(2, 3)]),
        ("<answer>2 3</answer> since 1 1 is a mine", [(2, 3)]),
    ],
)
def test_reading(text, cells):
    assert read_cells(text) == cells


@pytest.mark.parametrize("text", ["", "open", "3", "2 3 4", "two three"])
def test_no_cells(text):
    with pytest.raises(ParseError, match="row and column"):
        read_cells(text)


def test_the_first_board_is_that_of_the_prompt():
    for level in LEVELS:
        task = Minesweeper.tasks(level).get(0)
        env = new("minesweeper", task)
        env.reset(task)
        assert f"\n{env.board()}\n" in task.prompt


def test_what_the_demonstration_opens_is_the_one_safe_cell():
    numbers = shown(SOLVED[0], 3)
    (way,) = consistent(numbers, 3, 1)
    (row, column), *others = read_cells(SOLVED[1])
    assert not others
    assert {(row - 1, column - 1)} | way | set(numbers) == {(i, j) for i in range(3) for j in range(3)}
