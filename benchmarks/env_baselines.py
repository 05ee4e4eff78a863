"""What a perfect, a random and a silent agent get in the bundled environments: the table of docs/envs.md. No model, no torch.

    python benchmarks/env_baselines.py                    # prints the table; a minute
    python benchmarks/env_baselines.py --write            # puts it into docs/envs.md
    python benchmarks/env_baselines.py sokoban --tasks 20

Mean rewards on the first held-out tasks, which are the same on every machine, by the policies of `envs/policies`; one
figure for each level. In a game of several agents the policy is the first, and the others are random. Same loop, tools and
rewards as in training.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from agentrl import registry
from agentrl.agent import agents_of, plays
from agentrl.config import EnvConfig, SandboxConfig
from agentrl.engine import Sampling
from agentrl.env import Env
from agentrl.envs.policies import POLICIES, policy
from agentrl.person import CONTEXT, Person, PlainRenderer
from agentrl.rollout.limits import Limits
from agentrl.rollout.loop import play
from agentrl.task import Task
from agentrl.toolbox import toolbox
from agentrl.world import World, build, sandboxes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "envs.md"
BEGIN, END = "<!-- written by benchmarks/env_baselines.py -->", "<!-- end -->"
LIMITS = Limits(max_new_tokens=CONTEXT, max_episode_tokens=CONTEXT, episode_timeout=600.0, turn_timeout=120.0)
AT_ONCE = 8
"""Episodes in flight, and sandboxes at most."""
WHO = ("gold", "random", "noop")
HEAD = (
    "| environment | what an agent does | turns | tools | reward | gold | random | silence |",
    "|---|---|---|---|---|---|---|---|",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("env", nargs="*", help="which (default: all)")
    parser.add_argument("--tasks", type=int, default=100, help="held-out tasks of each level")
    parser.add_argument("--write", action="store_true", help="puts the table into docs/envs.md")
    args = parser.parse_args()
    lines = [*HEAD, *(row(name, args.tasks) for name in args.env or sorted(POLICIES))]
    print("\n".join(lines))
    if args.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text("\n".join([before + BEGIN, *lines, END]) + rest.partition(END)[2])


def row(name: str, count: int) -> str:
    """One environment's line: what its class says of itself, and what the policies get at each level."""
    cls = registry.find("env", name)
    return f"| {' | '.join([*described(name, cls), *map(shown, means(name, count))])} |"


def shown(by_level: Sequence[float]) -> str:
    """One figure for each level, or one where all are the same.

    >>> shown([0.5, 0.25]), shown([1.0, 1.0, 1.0])
    ('0.50 / 0.25', '1')
    """
    figures = [f"{mean:g}" if mean == int(mean) else f"{mean:.2f}" for mean in by_level]
    return figures[0] if len(set(figures)) == 1 else " / ".join(figures)


def described(name: str, cls: type[Env]) -> Iterator[str]:
    text = " ".join((inspect.getdoc(cls) or "").split())
    yield f"`{name}`"
    yield re.split(r"(?<=\.) ", text)[0].replace("|", "\\|")
    yield str(cls.max_turns)
    yield ", ".join(f"`{spec.name}`" for spec in toolbox(cls()).specs) or "none"
    found = re.search(r"Reward: (.*?\.)(?: [A-Z]|$)", text)
    yield found[1].replace("|", "\\|") if found else "1 at the goal, else 0."


def means(name: str, count: int) -> list[list[float]]:
    """[policy][level] -> mean reward."""
    worlds = [build(EnvConfig(id=name, tasks=arguments), seed=0) for arguments in levels(registry.find("env", name))]
    return [[asyncio.run(mean(name, who, world, count)) for world in worlds] for who in WHO]


def levels(cls: type[Env]) -> list[dict[str, Any]]:
    """The arguments of `tasks` for each level; one without any where there are no levels."""
    family = getattr(cls.tasks(), "family", None)
    return [{"levels": level} for level in family.levels] if family else [{}]


async def mean(name: str, who: str, world: World, count: int) -> float:
    tasks = world.tasks.held_out(count)
    slots = asyncio.Semaphore(AT_ONCE)
    async with sandboxes(world, SandboxConfig(slots=AT_ONCE)) as pool:

        async def one(task: Task) -> float:
            env, renderer = world.make(), PlainRenderer()
            others = {agent: policy(name, "random", task, seat) for seat, agent in enumerate(asked(env)[1:], 1)}
            person = Person(policy(name, who, task), renderer, others)
            async with slots:
                episode = await play(env, person, renderer, task, seed=0, sampling=Sampling(), limits=LIMITS, pool=pool)
            if episode.outcome.is_aborted:
                raise RuntimeError(f"{name}, task {task.id}, {who}: {episode.outcome}: {episode.reason}")
            return episode.reward

        return fmean(await asyncio.gather(*map(one, tasks)))


def asked(env: Env) -> list[str]:
    """The agents that no script speaks for; one without a name where there is but one."""
    return [name for name, spec in agents_of(env).items() if spec.says is None] if plays(type(env)) else [""]


def table(page: str) -> Sequence[str]:
    """The rows that stand in a page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[len(HEAD) :]


if __name__ == "__main__":
    main()
