"""`agentrl play env=...`: a person or a scripted policy in the model's seat; shows the messages and the reward.

The episode runs through the same loop as in training. Needs neither a model nor torch.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentrl import registry
from agentrl.agent import agents_of, main_agent, plays
from agentrl.assembly import play_by_hand
from agentrl.blame import one_line, stands
from agentrl.commands.arguments import Parser, overrides
from agentrl.compose import compose
from agentrl.config import Config, EnvConfig
from agentrl.env import Env
from agentrl.episode import DEMONSTRATION, Episode, demonstrated
from agentrl.errors import UsageError, nearest
from agentrl.messages import Message
from agentrl.person import Answer, Person, PlainRenderer, script, show, show_tool
from agentrl.task import Task
from agentrl.world import World, build, sandboxes

POLICIES = ("human", "gold", "noop", "random")
HOUR = 3600.0  # seconds: a person may think

EPILOG = """examples:
  agentrl play env=guess_number
  agentrl play env=code_sandbox --policy gold
  agentrl play env=code_sandbox --policy answers.txt     (turns divided by lines of ---)
  agentrl play env=mine.py:Mine --policy mine.py:gold    (gold(task, rng) gives a function: messages -> text)
  agentrl play env=tictactoe --policy=o=random           (one of several agents; you are the others)

A line is a turn; a ``` fence is one up to its end. A line "/call NAME {json}" calls a tool."""


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl play", "Puts you, or a script, in the model's seat of an environment.", EPILOG)
    policies = f"{' | '.join(POLICIES)} | a script's file | path/to/file.py:function (default: human)"
    parser.add_argument("--policy", action="append", metavar="[AGENT=]NAME", help=policies)
    parser.add_argument("--task", type=int, default=0, metavar="N", help="the N-th task (default: 0)")
    parser.add_argument("--held-out", action="store_true", help="of the evaluation tasks instead of the training tasks")
    overrides(parser)
    args = parser.parse(argv)
    config = compose(args.overrides, file=Path(args.config) if args.config else None).config
    world = build(config.env, seed=config.seed)
    task = task_of(world, args.task, held_out=args.held_out)
    env = world.make()
    answers = {name: policy(chosen, config.env, task, config.seed) for name, chosen in seats(env, args.policy or []).items()}
    episode = asyncio.run(play(config, world, env, task, answers))
    print(verdict(episode))
    return int(episode.outcome.is_aborted)


async def play(config: Config, world: World, env: Env, task: Task, answers: Mapping[str, Answer]) -> Episode:
    """One episode with `answers` in the model's seats, by agent."""
    renderer = PlainRenderer()
    shows = {name: Show(answer, renderer, name if len(answers) > 1 else "") for name, answer in answers.items()}
    main = main_agent(agents_of(env)) if plays(type(env)) else ""
    person = Person(shows[main], renderer, shows)
    timeout = config.rollout.turn_timeout
    async with sandboxes(world, config.sandbox) as pool:
        return await play_by_hand(env, person, renderer, task, seed=config.seed, pool=pool, seconds=HOUR, turn_timeout=timeout)


class Show:
    """Prints what is new in one agent's conversation, and what a policy answers to it."""

    at_once = threading.Lock()
    """Of agents that are asked at the same time, one after the other is shown."""

    def __init__(self, answer: Answer, renderer: PlainRenderer, agent: str = "") -> None:
        self._answer, self._renderer, self._agent = answer, renderer, agent
        self._shown = 0

    def __call__(self, conversation: Sequence[Message]) -> str:
        with self.at_once:
            return self._turn(conversation)

    def _turn(self, conversation: Sequence[Message]) -> str:
        if self._agent:
            print(f"-- to {self._agent}", flush=True)
        if not self._shown:
            print("".join(map(show_tool, self._renderer.tools)), end="")
        examples = () if self._shown else demonstrated(conversation)
        for number, message in enumerate(conversation[self._shown :]):
            print(show(message, DEMONSTRATION if number in examples else ""), end="", flush=True)
        self._shown = len(conversation) + 1  # what comes next is the answer
        if self._answer is ask:
            return ask(conversation)
        text = str(self._answer(conversation))
        print(f"[{self._agent or 'policy'}]\n{text}\n", flush=True)
        return text


def seats(env: Env, chosen: Sequence[str]) -> dict[str, str]:
    """Agent -> the policy that sits in its seat: those named for it, else the one for all, else a person. Raises UsageError."""
    names = [name for name, spec in agents_of(env).items() if spec.says is None] if plays(type(env)) else [""]
    general, own = "human", {}
    for text in chosen:
        agent, equals, policy = text.partition("=")
        if not equals or names == [""]:
            general = text
        elif agent not in names:
            raise UsageError(f"--policy {text}: there is no agent {agent!r}; {nearest(agent, names)}")
        else:
            own[agent] = policy
    return {name: own.get(name, general) for name in names}


def policy(name: str, config: EnvConfig, task: Task, seed: int) -> Answer:
    """What sits in the model's seat. Raises UsageError for an unknown name, or one that the environment does not have."""
    if name == "human":
        return ask
    if Path(name).expanduser().is_file():
        return script(Path(name).expanduser().read_text())
    if ":" in name:
        return _by_name(name, task, seed)
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}, nor a file of that name; {nearest(name, POLICIES)}")
    bundled = importlib.import_module("agentrl.envs.policies")
    if config.id in bundled.POLICIES:
        answer: Answer = bundled.policy(config.id, name, task, seed)
        return answer
    if name == "gold":
        raise UsageError(
            f"nobody has written a gold policy for {registry.label(config.id)}; use human, noop, random, a script's file, or "
            "path/to/file.py:function, which takes (task, rng) and gives a function from the conversation to an answer"
        )
    return (lambda conversation: "") if name == "noop" else random_words(random.Random(f"{task.id} {seed}"))


def _by_name(name: str, task: Task, seed: int) -> Answer:
    """An author's own policy: what their function makes of the task. Raises UsageError."""
    make = registry.find("policy", name)
    try:
        answer: Answer = make(task, random.Random(f"{task.id} {seed}"))
    except Exception as error:
        raise UsageError(f"the policy {name} cannot be made: {one_line(error)}") from error
    if not callable(answer):
        raise UsageError(
            f"{stands(make)}: the policy {name} gave {answer!r:.60}; it must give a function from messages to a text"
        )
    return answer


def verdict(episode: Episode) -> str:
    """How it ended, and what each reward function gave; where an author's code broke, its frames above."""
    last = episode.messages[-1] if episode.messages else None
    tail = f"[{last.role}]\n{last.text}\n\n" if last is not None and last.role != "assistant" else ""
    parts = ", ".join(f"{name} {value:g}" for name, value in {**episode.rewards, **episode.metrics}.items())
    others = "".join(f"; {side.name}: reward {side.reward:g}" for side in episode.others if side.trained)
    error = f": {episode.reason}" if episode.error else ""
    trace = "".join(f"  {frame}\n" for frame in episode.trace)
    return f"{tail}{trace}{episode.outcome.value}{error} after {len(episode.turns)} turns; reward {episode.reward:g}" + (
        (f" ({parts})" if parts else "") + others
    )


def task_of(world: World, index: int, *, held_out: bool) -> Task:
    """The N-th task. Raises UsageError where there is none."""
    if index < 0:
        raise UsageError(f"--task {index}: tasks are counted from 0")
    try:
        return world.tasks.held_out(index + 1)[index] if held_out else world.tasks.get(index)
    except UsageError as error:
        raise UsageError(f"--task {index}{' --held-out' if held_out else ''}: {error}") from error


def ask(conversation: Sequence[Message]) -> str:
    """Reads a turn from standard input: a line, or lines up to the end of a fence. The name human stands for it."""
    print("[you] ", end="", flush=True)
    lines: list[str] = []
    while True:
        line = sys.stdin.readline()
        if not line:
            raise UsageError("the input ended before the episode did")
        lines.append(line.rstrip("\n"))
        if sum(text.lstrip().startswith("```") for text in lines) % 2 == 0:
            return "\n".join(lines)


def random_words(rng: random.Random) -> Answer:
    """A few words of what was said last, and a number: enough to move most environments at random."""

    def answer(conversation: Sequence[Message]) -> str:
        words = conversation[-1].text.split() or ["?"]
        return " ".join([*rng.choices(words, k=3), str(rng.randint(0, 100))])

    return answer
