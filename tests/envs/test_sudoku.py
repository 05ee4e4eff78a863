"""sudoku: independent solvers find one solution each; how grids are read, what is said of broken rules, rewards."""

from itertools import permutations, product

import pytest

from agentrl.env import as_step
from agentrl.envs.sudoku import Sudoku, broken, read_grid, units
from agentrl.envs.sudoku_tasks import LEVELS, board, solutions
from agentrl.envs.sudoku_tasks import SOLVED as SHOWN
from agentrl.messages import Action, ParseError
from agentrl.task import Task

ROWS = ["".join(row) for row in permutations("1234")]
SMALL = [
    "".join(rows)
    for rows in product(ROWS, repeat=4)
    if all(len({row[i] for row in rows}) == 4 for i in range(4))
    and all(len({rows[i][j], rows[i][j + 1], rows[i + 1][j], rows[i + 1][j + 1]}) == 4 for i in (0, 2) for j in (0, 2))
]
"""All solved grids of 4 x 4, by trying every one."""


def test_there_are_288_small_ones():
    assert len(SMALL) == 288
    assert sorted(solutions("0" * 16)) == sorted(SMALL)


@pytest.mark.parametrize("level", [1, 2])
def test_small_puzzles_have_one_solution(level):
    for index in range(100):
        task = Sudoku.tasks(level).get(index)
        clues = task.public["clues"]
        fitting = [grid for grid in SMALL if all(clue in ("0", sign) for clue, sign in zip(clues, grid, strict=True))]
        assert fitting == [task.secret["solution"]]
        _, fewest, most = LEVELS[level]
        assert fewest <= clues.count("0") <= most


def covers(clues):
    """How many solutions, up to two, by exact cover: each cell, and each digit in each row, column and box, once."""
    chosen = {}
    for row, column, digit in product(range(9), range(9), "123456789"):
        if clues[9 * row + column] in ("0", digit):
            box = row // 3 * 3 + column // 3
            chosen[row, column, digit] = [("c", row, column), ("r", row, digit), ("k", column, digit), ("b", box, digit)]
    needs = {}
    for choice, needed in chosen.items():
        for need in needed:
            needs.setdefault(need, set()).add(choice)
    return _count(needs, chosen) if len(needs) == 324 else 0


def _count(needs, chosen):
    if not needs:
        return 1
    need = min(needs, key=lambda name: len(needs[name]))
    found = 0
    for choice in sorted(needs[need]):
        gone = {other for name in chosen[choice] for other in needs[name]}
        rest = {name: own - gone for name, own in needs.items() if name not in chosen[choice]}
        found += _count(rest, chosen)
        if found > 1:
            break
    return found


@pytest.mark.parametrize(("level", "count"), [(3, 6), (4, 4)])
def test_large_puzzles_have_one_solution(level, count):
    for index in range(count):
        task = Sudoku.tasks(level).get(index)
        clues, solution = task.public["clues"], task.secret["solution"]
        assert covers(clues) == 1
        assert all(clue in ("0", sign) for clue, sign in zip(clues, solution, strict=True))
        assert broken(solution, clues) == []
        _, fewest, most = LEVELS[level]
        assert fewest <= clues.count("0") <= most


def test_the_exact_cover_counts():
    solution = next(solutions("0" * 81))
    assert covers(solution) == 1
    assert covers("0" * 81) > 1
    assert covers("11" + "0" * 79) == 0


SOLVED = "1234341221434321"
CLUES = "1200341221434321"
TASK = Task(id="t", prompt="?", public={"clues": CLUES}, secret={"solution": SOLVED})


@pytest.mark.parametrize(
    "text",
    [
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
        "1234\n3412\n2143\n4321",
        "1234341221434321",
        "| 1 2 | 3 4 |\n| 3 4 | 1 2 |\n|-----+-----|\n| 2 1 | 4 3 |\n| 4 3 | 2 1 |",
        "[[1, 2, 3, 4],\n [3, 4, 1, 2],\n [2, 1, 4, 3],\n [4, 3, 2, 1]]",
        "The puzzle was\n12..\n3412\n2143\n4321\nand I say\n1234\n3412\n2143\n4321\nDone.",
        "```\n1 2 3 4\n3 4 1 2\n\n2 1 4 3\n4 3 2 1\n```",
        "4321\n2143\n3412\n1234\n<answer>1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1</answer>",
        "Row 1: 1 2 3 4\nRow 2: 3 4 1 2\nRow 3: 2 1 4 3\nRow 4: 4 3 2 1",
    ],
)
def test_reading(text):
    assert read_grid(text, 4) == SOLVED


@pytest.mark.parametrize(
    "text", ["", "1 2 3 4", "1 2 3 5\n3 4 1 2\n2 1 4 3\n4 3 2 1", "I cannot solve it.", "12343412214343211"]
)
def test_no_grid(text):
    with pytest.raises(ParseError, match="4 lines of 4 digits from 1 to 4"):
        read_grid(text, 4)


def test_free_cells_may_be_left():
    assert read_grid("1 2 . _\n3 4 1 2\n2 1 4 3\n4 3 2 0", 4) == "1200341221434320"


def test_broken_rules_are_named():
    assert broken("1243341221434321", CLUES) == ["Column 3 holds 4 more than once.", "Column 4 holds 3 more than once."]
    assert broken("1232341221434321", CLUES) == [
        *("Row 1 holds 2 more than once.", "Column 4 holds 2 more than once.", "Box 2 holds 2 more than once."),
    ]
    assert broken("2134341221434321", CLUES)[:2] == ["Row 1, column 1 was given as 1.", "Row 1, column 2 was given as 2."]
    assert broken("1230341221434321", CLUES) == ["There are free cells."]


def test_boxes_are_counted_from_left_to_right():
    assert dict(units(4))["Box 2"] == [2, 3, 6, 7]
    assert dict(units(9))["Box 4"] == [27, 28, 29, 36, 37, 38, 45, 46, 47]


def played(*texts, **settings):
    env = Sudoku()
    env.task = TASK
    for name, value in settings.items():
        setattr(env, name, value)
    return [as_step(env.step(Action(text=text))) for text in texts], env.solved()


def test_rewards():
    steps, reward = played(SOLVED)
    assert (steps[0].terminated, reward) == (True, 1.0)
    assert played("1233341221434321")[1] == 0.25  # one of two free cells, half credit
    assert played("1243341221434321")[1] == 0.0
    assert played(CLUES)[1] == 0.0
    assert played("1233341221434321", "1243341221434321")[1] == 0.0  # the last try counts
    assert played("1233341221434321", cell_credit=1.0)[1] == 0.5


def test_feedback_shows_the_puzzle_again_and_not_the_solution():
    text = played("1243341221434321")[0][0].observation[0].text
    assert text.endswith("\n1 2 . .\n3 4 1 2\n2 1 4 3\n4 3 2 1\nSay only the whole grid.")
    assert board(SOLVED) not in text


def test_the_demonstration_is_solved():
    assert list(solutions(SHOWN[0])) == [SHOWN[1]]
    env = Sudoku()
    question, answer, real = env.reset(TASK)
    assert read_grid(answer.text, 4) == SHOWN[1]
    assert board(SHOWN[0]) in question.text
    assert real.text == TASK.prompt
