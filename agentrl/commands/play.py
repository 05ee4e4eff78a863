"""`agentrl play env=...`: a person or a scripted policy in the model's seat; shows the messages and the reward.

The episode runs through the same loop as in training. Needs neither a model nor torch.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentrl.commands.arguments import Parser, overrides
from agentrl.compose import compose
from agentrl.config import Config
from agentrl.engine import Sampling
from agentrl.env import Env
from agentrl.episode import Episode
from agentrl.errors import UsageError, nearest
from agentrl.person import CONTEXT, Answer, Person, PlainRenderer, script
from agentrl.task import Task
from agentrl.world import World, build, sandboxes

POLICIES = ("human", "gold", "noop", "random")
HOUR = 3600.0  # seconds: a person may think

EPILOG = """examples:
  agentrl play env=guess_number
  agentrl play env=code_sandbox --policy gold
  agentrl play env=code_sandbox --policy answers.txt     (turns divided by lines of ---)

A line is a turn; a ``` fence is one up to its end. A line "/call NAME {json}" calls a tool."""


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl play", "Puts you, or a script, in the model's seat of an environment.", EPILOG)
    parser.add_argument("--policy", default="human", help=f"{' | '.join(POLICIES)} | a script's file (default: human)")
    parser.add_argument("--task", type=int, default=0, metavar="N", help="the N-th task (default: 0)")
    parser.add_argument("--held-out", action="store_true", help="of the evaluation tasks instead of the training tasks")
    overrides(parser)
    args = parser.parse(argv)
    config = compose(args.overrides, file=Path(args.config) if args.config else None).config
    world = build(config.env)
    task = _task(world, args.task, held_out=args.held_out)
    env = world.make()
    episode = asyncio.run(play(config, world, env, task, policy(args.policy, env, task)))
    print(verdict(episode))
    return int(episode.outcome.is_aborted)


async def play(config: Config, world: World, env: Env, task: Task, answer: Answer) -> Episode:
    """One episode with `answer` in the model's seat, shown as it goes."""
    loop = importlib.import_module("agentrl.rollout.loop")
    limits = importlib.import_module("agentrl.rollout.limits").Limits(
        max_new_tokens=CONTEXT,
        max_episode_tokens=CONTEXT,
        episode_timeout=HOUR,
        turn_timeout=config.rollout.turn_timeout,
    )
    async with sandboxes(world, config.sandbox) as pool:
        episode: Episode = await loop.play(
            env,
            Person(answer),
            PlainRenderer(),
            task,
            seed=config.seed,
            sampling=Sampling(),
            limits=limits,
            pool=pool,
            id="play",
        )
    return episode


def policy(name: str, env: Env, task: Task) -> Answer:
    """What sits in the model's seat. Raises UsageError for an unknown name, or gold where the environment has none."""
    if name == "human":
        return _human
    if name == "noop":
        return _shown(lambda new: "")
    if name == "random":
        rng = random.Random(task.id)
        return _shown(lambda new: _words(new, rng))
    if name == "gold":
        return _shown(_gold(env, task))
    if Path(name).expanduser().is_file():
        return _shown(script(Path(name).expanduser().read_text()))
    raise UsageError(f"there is no policy {name!r}, nor a file of that name; {nearest(name, POLICIES)}")


def verdict(episode: Episode) -> str:
    """How it ended, and what each reward function gave."""
    last = episode.messages[-1] if episode.messages else None
    tail = f"[{last.role}]\n{last.text}\n\n" if last is not None and last.role != "assistant" else ""
    parts = ", ".join(f"{name} {value:g}" for name, value in {**episode.rewards, **episode.metrics}.items())
    error = f": {episode.error}" if episode.error else ""
    return f"{tail}{episode.outcome.value}{error} after {len(episode.turns)} turns; reward {episode.reward:g}" + (
        f" ({parts})" if parts else ""
    )


def _task(world: World, index: int, *, held_out: bool) -> Task:
    if index < 0:
        raise UsageError(f"--task {index}: tasks are counted from 0")
    return world.tasks.held_out(index + 1)[index] if held_out else world.tasks.get(index)


def _human(new: str) -> str:
    """Shows what is new and reads a turn from standard input."""
    print(new, end="", flush=True)
    print("[you] ", end="", flush=True)
    lines: list[str] = []
    while True:
        line = sys.stdin.readline()
        if not line:
            raise UsageError("the input ended before the episode did")
        lines.append(line.rstrip("\n"))
        if sum(text.lstrip().startswith("```") for text in lines) % 2 == 0:
            return "\n".join(lines)


def _shown(answer: Callable[[str], Any]) -> Answer:
    def say(new: str) -> str:
        text = str(answer(new))
        print(f"{new}[policy]\n{text}\n", flush=True)
        return text

    return say


def _gold(env: Env, task: Task) -> Answer:
    """The environment's own `gold(task, new)`: what a perfect agent would say."""
    gold = getattr(env, "gold", None)
    if gold is None:
        raise UsageError(f"{type(env).__name__} has no gold policy (a method gold(task, observation) that gives the answer)")
    return lambda new: gold(task, new)


def _words(text: str, rng: random.Random) -> str:
    """A few words of what was said, and a number: enough to move most environments at random."""
    words = text.split() or ["?"]
    return " ".join([*rng.choices(words, k=3), str(rng.randint(0, 100))])
