"""How moves are read out of answers."""

import pytest

from agentrl.envs.moves import beside, read_moves, spaced
from agentrl.messages import ParseError


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("up", "up"),
        ("Left, RIGHT; down", "left right down"),
        ("1. up\n2. left\n3. left", "up left left"),
        ("**up**", "up"),
        ("u l d r", "up left down right"),
        ("ULLR", "up left left right"),
        ("→ → ↓", "right right down"),
        ("go → then ↓", "right down"),
        ("I cannot go left, there is a hole.\n\nup", "up"),
        ("The gift is down and right of me.\ndown, down", "down down"),
        ("Heads up. I go left, left and then down.", "left left down"),
        ("Not up but right, right", "right right"),
        ("<answer>down, right</answer> because left is a hole", "down right"),
        ("<answer>up</answer> no: <answer>down</answer>", "down"),
        ("right, right, right.", "right right right"),
        ("My moves: up, left", "up left"),
        ("upright leftover", ""),
        ("", ""),
        ("north", ""),
    ],
)
def test_reading(text, moves):
    if moves:
        assert read_moves(text) == moves.split()
    else:
        with pytest.raises(ParseError, match="up, down, left or right"):
            read_moves(text)


def test_the_last_line_with_moves_counts_alone_when_it_has_words():
    assert read_moves("up\ndown\nso I go left") == ["left"]
    assert read_moves("so I go left\nup\ndown") == ["up", "down"]


def test_cells_beside():
    assert [beside((1, 1), move) for move in ("up", "down", "left", "right")] == [(0, 1), (2, 1), (1, 0), (1, 2)]


def test_boards_have_a_space_between_cells():
    assert spaced(["ab", ["c", "d"]]) == "a b\nc d"
