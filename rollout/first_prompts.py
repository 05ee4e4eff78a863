"""A look at the first tasks before anything is written: can the environment begin them, and do their prompts leave room?

Plays nothing: each task is begun once, in an instance of its own that is closed again. Waits for: the environment, under
the limits' `turn_timeout`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.blame import frames, one_line
from agentrl.episode import EpisodeFailed, RolloutError
from agentrl.errors import UsageError
from agentrl.messages import Action, Message
from agentrl.renderer import Renderer
from agentrl.task import Task
from agentrl.tool import ToolSpec
from agentrl.transcript import Transcript

from .agent import SeatedAgent
from .ending import Over
from .group import Setup
from .limits import Limits
from .loop import FATAL
from .seat import Seat, leaf
from .seeds import derive
from .voices import Scripted


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPrompt:
    """What came of one task's reset.

    >>> FirstPrompt(task="add-1", tokens=212).failure is None
    True
    """

    task: str
    tokens: int = 0
    failure: Exception | None = None


async def check_first_prompts(setup: Setup, tasks: Sequence[Task]) -> str:
    """Looks at these tasks, the first ones. Returns a note about prompts that leave too little room; empty when all is well.

    Raises RolloutError when none of them can be begun, UsageError when no prompt leaves room for a single token.
    """
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(_look(setup, number, task)) for number, task in enumerate(tasks)]
    prompts = [job.result() for job in jobs]
    _check_begun(setup, prompts)
    return _check_room(setup.limits, setup.engine.max_context, [p for p in prompts if p.failure is None])


class _Seen(Exception):
    """The first prompt is known: nothing is sampled after it."""


class _Reader:
    """A voice in the agent's place that looks at its first prompt."""

    messages: Sequence[Message] = ()
    transcripts: Sequence[Transcript] = ()

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self.tokens = 0

    async def answer(self, said: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Action, bool]:
        self.tokens = len(self._renderer.render(said, tools))
        raise _Seen

    def close(self, said: Sequence[Message]) -> None:
        """Nothing is kept of it."""


async def _look(setup: Setup, number: int, task: Task) -> FirstPrompt:
    reader = _Reader(setup.renderer)
    try:
        env = setup.make_env()
        seat = Seat(env, task, seed=derive(setup.seed, "world", number), limits=setup.limits, pool=setup.pool)
        agents = seat.agents(lambda name, spec: Scripted(env, spec.says) if spec.says is not None else reader)
        async with seat, seat.clock.deadline(setup.limits.turn_timeout, "the way to the first prompt"):
            await _until_seen(seat, agents)
    except Exception as error:  # told by `_check_begun`, or an exception that retries will see again
        return FirstPrompt(task=task.id, failure=_plain(error))
    return FirstPrompt(task=task.id, tokens=reader.tokens)


async def _until_seen(seat: Seat, agents: Sequence[SeatedAgent]) -> None:
    with contextlib.suppress(_Seen, Over):
        await seat.play(agents)


def _plain(error: Exception) -> Exception:
    cause = leaf(error)
    return cause if isinstance(cause, Exception) else error


def _check_begun(setup: Setup, prompts: Sequence[FirstPrompt]) -> None:
    failed = [prompt for prompt in prompts if prompt.failure is not None]
    for prompt in failed:
        if isinstance(prompt.failure, FATAL):
            raise prompt.failure
    if failed and len(failed) == len(prompts):
        name, first = type(setup.make_env()).__name__, failed[0]
        assert first.failure is not None
        raise RolloutError(
            f"{name} cannot begin any of the first {len(prompts)} tasks; task {first.task}: {one_line(first.failure)}"
        ) from _cause(first.task, first.failure)


def _cause(task: str, failure: Exception) -> Exception:
    """The author's frames alone, where there are any."""
    trace = tuple(map(str, frames(failure)))
    return EpisodeFailed(f"task {task}", trace, f"{type(failure).__name__}: {failure}") if trace else failure


def _check_room(limits: Limits, context: int, prompts: Sequence[FirstPrompt]) -> str:
    size = min(limits.max_episode_tokens, context)
    longest = max(prompts, key=lambda prompt: prompt.tokens)
    without = [prompt for prompt in prompts if prompt.tokens >= size]
    tight = [prompt for prompt in prompts if prompt.tokens + limits.max_new_tokens > size]
    if not tight:
        return ""
    text = f"the prompt of task {longest.task} has {longest.tokens} tokens"
    keys = _keys(limits, context, longest.tokens + limits.max_new_tokens)
    if len(without) == len(prompts):
        raise UsageError(f"{text}, and an episode may have {size}: nothing could be sampled; raise {keys}")
    return (
        f"note: {text}, and an episode may have {size}: of the first {len(prompts)} tasks {len(without)} leave no room for an "
        f"answer, {len(tight)} none for one of sampling.max_new_tokens={limits.max_new_tokens}; raise {keys}"
    )


def _keys(limits: Limits, context: int, need: int) -> str:
    """What must be raised so that `need` tokens fit."""
    small = {"sampling.max_episode_tokens": limits.max_episode_tokens, "engine.max_context": context}
    return " and ".join(f"{key}={value} to at least {need}" for key, value in small.items() if value < need)
