"""frozen_lake: every lake has a way, as an independent search finds; moves, holes, the shore, slippery ice."""

import pytest

from agentrl.env import as_step
from agentrl.envs.frozen_lake import FrozenLake
from agentrl.envs.frozen_lake_tasks import LEVELS, SOLVED, path
from agentrl.messages import Action
from agentrl.task import Task

from .bundled import new

LAKE = Task(id="t", prompt="Walk.", public={"lake": ["___", "_O_", "__G"]}, secret={"path": ["down", "down", "right", "right"]})


def begun(**settings):
    env = new("frozen_lake", LAKE, **settings)
    return env, env.reset(LAKE)[-1].text


def distances(lake):
    """Moves to the first cell for every cell, by repeated relaxing until nothing changes."""
    size = len(lake)
    far = {(i, j): 0 if i == j == 0 else 10**6 for i in range(size) for j in range(size) if lake[i][j] != "O"}
    for _ in range(size**2):
        for i, j in far:
            near = [far[cell] for cell in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)) if cell in far]
            far[i, j] = min([far[i, j], *(distance + 1 for distance in near)])
    return far


@pytest.mark.parametrize("level", LEVELS)
def test_every_lake_has_a_way_and_the_known_one_is_shortest(level):
    size = LEVELS[level][0]
    longer = 0
    for index in range(60):
        task = FrozenLake.tasks(level).get(index)
        lake = task.public["lake"]
        assert [len(row) for row in lake] == [size] * size
        assert distances(lake)[size - 1, size - 1] == len(task.secret["path"])
        longer += len(task.secret["path"]) > 2 * (size - 1)
    assert longer > 0 or level == 1  # holes make ways longer


def test_a_lake_without_a_way():
    assert path(["_O", "OG"]) == []
    assert path(["_G"]) == ["right"]


def test_the_first_board():
    _, text = begun()
    assert text == "Walk.\nP _ _\n_ O _\n_ _ G\nSay only moves, up to 4 a turn, as in: down, right"


def test_moves():
    env, _ = begun()
    step = as_step(env.step(Action(text="right, right")))
    assert step.observation[0].text == "_ _ P\n_ O _\n_ _ G"
    assert (step.terminated, step.reward) == (False, 0.0)
    step = as_step(env.step(Action(text="right, down")))
    assert step.observation[0].text == "right: there is the shore.\n_ _ _\n_ O P\n_ _ G"
    step = as_step(env.step(Action(text="down, down, down")))
    assert (step.terminated, step.reward) == (True, 1.0)


def test_a_hole_ends_it_and_later_moves_do_not_count():
    env, _ = begun()
    step = as_step(env.step(Action(text="down, right, right, down")))
    assert (step.terminated, step.reward) == (True, 0.0)


def test_moves_beyond_the_limit_are_not_made():
    env, _ = begun(moves_per_turn=2)
    step = as_step(env.step(Action(text="down, down, right, right")))
    assert step.observation[0].text == "Only 2 moves were made.\n_ _ _\n_ O _\nP _ G"


def test_slippery_ice_goes_aside_by_the_share_it_says_and_is_seeded():
    def ways(seed, slip):
        env = new("frozen_lake", LAKE, seed, slip=slip)
        env.reset(LAKE)
        return [env._slipped("up") for _ in range(600)]

    assert set(ways(0, 0.0)) == {"up"}
    assert set(ways(0, 1.0)) == {"left", "right"}
    third = ways(0, 2 / 3)
    assert 150 < third.count("up") < 250  # 200 expected, deviation 12
    assert 150 < third.count("left") < 250
    assert third == ways(0, 2 / 3)
    assert third != ways(1, 2 / 3)
    assert "slippery" in begun(slip=0.5)[1]


def test_the_way_of_the_demonstration_leads_to_the_gift():
    board, way = SOLVED
    assert path(["".join(row.split()).replace("P", "_") for row in board.splitlines()]) == way
    env = new("frozen_lake", LAKE, demonstration=True, moves_per_turn=2)
    question, answer, real = env.reset(LAKE)
    assert (answer.role, answer.text) == ("assistant", "right, down")
    assert [message.text.splitlines()[0] for message in (question, real)] == ["Walk.", "Walk."]
