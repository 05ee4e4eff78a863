"""gymnasium's and PettingZoo's environments played here: spaces in words, actions from text, rewards summed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agentrl.cli import main
from agentrl.engine import Sampling
from agentrl.episode import Episode, Outcome
from agentrl.errors import UsageError
from agentrl.from_gym import from_gymnasium, from_pettingzoo, zoo_class
from agentrl.messages import ParseError
from agentrl.person import Person, PlainRenderer
from agentrl.rollout.limits import Limits
from agentrl.rollout.loop import play
from agentrl.spaces import asked, read, reader, shown
from agentrl.task import Task
from agentrl.world import check, find

LIMITS = Limits(max_new_tokens=9999, max_episode_tokens=99999, episode_timeout=60.0, turn_timeout=60.0)


def says(*texts: str) -> Any:
    rest = iter(texts)
    return lambda messages: next(rest)


def played(cls: Any, *texts: str, others: Any = None, **settings: Any) -> Episode:
    env, renderer = cls(), PlainRenderer()
    for name, value in settings.items():
        setattr(env, name, value)
    person = Person(says(*texts), renderer, others or {})
    return asyncio.run(play(env, person, renderer, Task(id="t"), seed=0, sampling=Sampling(), limits=LIMITS))


def test_a_lake_is_crossed() -> None:
    lake = from_gymnasium("FrozenLake-v1", is_slippery=False)
    episode = played(lake, "down", "I go down.", "fly", "Right", "right", "down", "right")
    assert (episode.outcome, episode.reward, lake.max_turns) == (Outcome.TERMINATED, 1.0, 100)
    first = episode.messages[0].text
    assert first.startswith("Your action is one of: left, down, right, up.\n")
    assert "[S]FFF" in first
    assert episode.messages[6].text == "Your answer must be one of: left, down, right, up."


class Steps(gymnasium.Env):  # type: ignore[type-arg]
    """Go to 3 by steps of a number; each step costs."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), dtype=np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), dtype=np.float32)
    closed = 0

    def __init__(self, goal: float = 3.0) -> None:
        self.goal = goal

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = np.zeros(1, dtype=np.float32)
        return self.at.copy(), {}

    def step(self, action: Any) -> Any:
        self.at = self.at + action
        return self.at.copy(), -0.5, bool(self.at[0] >= self.goal), False, {}

    def close(self) -> None:
        Steps.closed += 1


def test_a_class_of_ones_own_is_an_environment() -> None:
    Steps.closed = 0
    episode = played(from_gymnasium(Steps), "1.5", "5", "no", "It is 2")
    assert (episode.outcome, episode.reward, Steps.closed) == (Outcome.TERMINATED, -1.0, 1)
    assert [m.text for m in episode.messages if m.role == "user"] == [
        "Your action is a number from -2 to 2.\n[0.0]",
        "[1.5]",
        "Your answer must be a number from -2 to 2.",
        "Your answer must be a number from -2 to 2.",
        "[3.5]",
    ]
    assert played(from_gymnasium(Steps), "1", "1", make_args={"goal": 2.0}).reward == -1.0


def test_the_command_line_takes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "import gymnasium\nfrom gymnasium import spaces\n"
        "class Mine(gymnasium.Env):\n"
        "    '''Say one.'''\n"
        "    observation_space = action_space = spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None): return 0, {}\n"
        "    def step(self, action): return 1, float(action), True, False, {}\n"
    )
    (tmp_path / "one.txt").write_text("1")
    assert main(["play", f"env={tmp_path}/mine.py:Mine", "--policy", str(tmp_path / "one.txt")]) == 0
    assert "; reward 1 (env 1)" in capsys.readouterr().out
    assert main(["env", "info", f"{tmp_path}/mine.py:Mine"]) == 0
    assert "Say one." in capsys.readouterr().out
    assert main(["train", "env=gymnasium:FrozenLake-v1", "model=tiny", "env.args.max_turns=3", "--dry-run"]) == 0
    assert main(["play", "env=gymnasium:FrozenLak-v1"]) == 2
    assert "did you mean 'FrozenLake-v1'" in capsys.readouterr().err


def test_the_same_seed_is_the_same_world() -> None:
    cart = from_gymnasium("CartPole-v1")
    one, again = played(cart, *["left"] * 500), played(cart, *["left"] * 500)
    assert [m.text for m in one.messages] == [m.text for m in again.messages]
    assert one.reward == len(one.turns)


def test_what_observe_may_be() -> None:
    lake = from_gymnasium("FrozenLake-v1", is_slippery=False)
    assert "0 (of 0 to 15)" in played(lake, *["left"] * 100, observe="words").messages[0].text
    with pytest.raises(UsageError, match="did you mean 'words'"):
        played(lake, observe="wrods")


@pytest.mark.parametrize(
    ("space", "text", "expected"),
    [
        (spaces.Discrete(3, start=1), "3", 3),
        (spaces.MultiDiscrete([3, 2]), "first 2 then 1", [2, 1]),
        (spaces.MultiBinary(3), "0 1 1", [0, 1, 1]),
        (spaces.Box(0, 1, (2, 2)), "0 .5 1 .25", [[0, 0.5], [1, 0.25]]),
        (spaces.Text(5, charset="abc"), "abc", "abc"),
    ],
)
def test_actions_are_read(space: Any, text: str, expected: Any) -> None:
    assert np.array_equal(read(space, text), expected)
    with pytest.raises(ParseError, match="Your answer must be"):
        read(space, "zzzzzzzzz")


def test_actions_outside_and_not_allowed_now() -> None:
    with pytest.raises(ParseError):
        read(spaces.Discrete(3), "3")
    with pytest.raises(ParseError, match="allowed: 0, 2"):
        reader(spaces.Discrete(3), legal=[0, 2])("1")
    assert reader(spaces.Discrete(3), legal=[0, 2])("2") == 2


def test_spaces_in_words() -> None:
    assert asked(spaces.MultiDiscrete([3, 2])) == "2 whole numbers, from 0 to 2, from 0 to 1"
    both = spaces.Dict({"at": spaces.Discrete(4), "seen": spaces.Tuple([spaces.Discrete(2), spaces.Text(9)])})
    assert shown(both, {"at": 1, "seen": (0, "wall")}) == "at: 1 (of 0 to 3)\nseen: 0: 0 (of 0 to 1)\n1: wall"
    with pytest.raises(UsageError, match="cannot be read from a text"):
        asked(both)
    with pytest.raises(UsageError, match="4 actions, but 2 names"):
        asked(spaces.Discrete(4), ["a", "b"])
    with pytest.raises(UsageError, match="says nothing as text"):
        shown(spaces.Box(0, 1, (30, 30)), np.zeros((30, 30)))


def test_a_picture_stays_one() -> None:
    pytest.importorskip("PIL")
    picture = shown(spaces.Box(0, 255, (4, 5, 3), dtype=np.uint8), np.zeros((4, 5, 3), dtype=np.uint8))
    assert (picture.width, picture.height) == (5, 4)


# PettingZoo.


def test_a_pettingzoo_game_of_two() -> None:
    """Each says a number from 0 to 2; the higher one gets a point. `first` may not say 1."""
    pettingzoo = pytest.importorskip("pettingzoo")

    class Higher(pettingzoo.AECEnv):  # type: ignore[misc]
        metadata = {"name": "higher_v0"}

        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = ["first", "second"]

        def observation_space(self, agent: str) -> Any:
            plain = spaces.Discrete(5)
            return spaces.Dict({"observation": plain, "action_mask": spaces.MultiBinary(3)}) if agent == "first" else plain

        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(3)

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            self.agents = list(self.possible_agents)
            self.rewards = dict.fromkeys(self.agents, 0)
            self._cumulative_rewards = dict.fromkeys(self.agents, 0)
            self.terminations = dict.fromkeys(self.agents, False)
            self.truncations = dict.fromkeys(self.agents, False)
            self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
            self.said: list[int] = []
            self.agent_selection = "first"

        def observe(self, agent: str) -> Any:
            return {"observation": 4, "action_mask": np.array([1, 0, 1])} if agent == "first" else 4

        def step(self, action: Any) -> None:
            if self.terminations[self.agent_selection]:
                self._was_dead_step(action)
                return
            self.said.append(action)
            if len(self.said) == 2:
                won = self.said[0] > self.said[1]
                self.rewards = {"first": int(won), "second": int(not won)}
                self.terminations = dict.fromkeys(self.agents, True)
                self._accumulate_rewards()
            self.agent_selection = self.agents[len(self.said) % 2]

    cls = zoo_class("higher", Higher, {})
    check(cls, {})
    episode = played(cls, "1", "2", others={"second": says("1")})
    assert (episode.agent, episode.reward, episode.others[0].reward) == ("first", 1.0, 0.0)
    assert [m.text for m in episode.messages if m.role == "user"] == [
        "You are first. Your action is a whole number from 0 to 2, now of [0, 2].\n4 (of 0 to 4)",
        "That is not allowed now; allowed: 0, 2.",
        "4 (of 0 to 4)",
    ]


def test_a_classic_game() -> None:
    pytest.importorskip("pygame")
    cls = from_pettingzoo("classic.rps_v2", max_cycles=2)
    episode = played(cls, "0", "1", others={"player_1": says("2", "1")})
    assert (episode.reward, episode.others[0].reward) == (1.0, -1.0)  # rock beats scissors; then paper meets paper


def test_names_that_pettingzoo_does_not_have() -> None:
    pytest.importorskip("pettingzoo")
    with pytest.raises(UsageError, match="no module pettingzoo"):
        find("pettingzoo:classic.nothing_v9")
