"""An episode that is played from outside: who calls asks for what the agent sees, and gives what it says, when it likes.

The same loop as in training runs in a thread of its own, beside whatever the caller does. `agentrl.gym` and `agentrl.vector`
are two ways to call it. An agent's tools are called as `agentrl play` reads them: a line `/call NAME {json}`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, NamedTuple

from agentrl.agent import agents_of, main_agent, plays
from agentrl.assembly import play_by_hand
from agentrl.config import SandboxConfig
from agentrl.engine import Completion, GenerateRequest
from agentrl.env import Env
from agentrl.episode import Episode, RolloutError, as_cause
from agentrl.messages import Message
from agentrl.person import CONTEXT, END, PlainRenderer, encode, show_tool
from agentrl.sandbox import SandboxPool
from agentrl.task import Task
from agentrl.world import World, sandboxes

DAY = 86_400.0
"""Seconds of an episode: who calls may take its time."""
TURN_TIMEOUT = 120.0
CLOSE_TIMEOUT = 60.0


class Shown(NamedTuple):
    """What has come: gymnasium's five. `reward` is what the last answer brought; at the end, with all rewards that look at the
    whole episode."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


Arrived = Callable[["Shown | Exception"], None]
"""Told of each thing that comes, from the thread of the loop."""


class Outside:
    """The episodes of one environment, one at a time."""

    def __init__(self, world: World, arrived: Arrived, *, sandbox: SandboxConfig | None = None) -> None:
        self._world, self._arrived = world, arrived
        self._sandbox = sandbox or SandboxConfig()
        self._stack = AsyncExitStack()
        self._pool: SandboxPool | None = None
        self._opened = False
        self._table: _Table | None = None
        self._job: asyncio.Task[None] | None = None

    def start(self, task: Task, seed: int) -> None:
        """Begins an episode; one that goes on is given up. Its first observation arrives."""
        _call(self._start(task, seed))

    def answer(self, text: str) -> None:
        """What the agent says that was shown something last. Raises ValueError when nobody is waiting for it."""
        if self._table is None:
            raise ValueError("no episode has begun: call reset first")
        _call(self._table.answer(text))

    def close(self) -> None:
        """Gives up the episode and gives back the sandboxes. Idempotent."""
        _call(self._close())

    async def _start(self, task: Task, seed: int) -> None:
        await self._give_up()
        if not self._opened:
            self._pool = await self._stack.enter_async_context(sandboxes(self._world, self._sandbox))
            self._opened = True
        env = self._world.make()
        self._table = _Table(env, self._arrived)
        self._job = asyncio.create_task(self._play(env, self._table, task, seed))

    async def _play(self, env: Env, table: _Table, task: Task, seed: int) -> None:
        try:
            episode = await play_by_hand(
                env, table, table.renderer, task, seed=seed, pool=self._pool, seconds=DAY, turn_timeout=TURN_TIMEOUT
            )
            self._arrived(table.last(episode))
        except Exception as error:  # raised to the caller, who waits in another thread
            self._arrived(error)

    async def _give_up(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.wait([self._job], timeout=CLOSE_TIMEOUT)
        self._job = self._table = None

    async def _close(self) -> None:
        await self._give_up()
        await self._stack.aclose()
        self._opened = False


class _Table:
    """The engine of one episode, whose tokens are the caller's characters."""

    max_context = CONTEXT

    def __init__(self, env: Env, arrived: Arrived) -> None:
        self.renderer = PlainRenderer()
        self._env, self._arrived = env, arrived
        self._main = main_agent(agents_of(env)) if plays(type(env)) else ""
        self._seen: dict[str, int] = {}
        self._paid = 0.0
        self._turn = asyncio.Lock()  # agents that are asked at the same time are shown one after the other
        self._answer: asyncio.Future[str] | None = None

    async def generate(self, request: GenerateRequest) -> Completion:
        async with self._turn:
            agent = request.session_id.partition("/")[2] or self._main
            conversation = self.renderer.conversation(request.prompt_ids)
            info: dict[str, Any] = {"agent": agent} if plays(type(self._env)) else {}
            if agent not in self._seen and self.renderer.tools:
                info["tools"] = "".join(map(show_tool, self.renderer.tools))
            reward = sum(turn.reward for turn in vars(self._env)["_seat"].turns if turn.agent == self._main)
            self._answer = asyncio.get_running_loop().create_future()
            self._arrived(Shown(self._new(agent, conversation), self._owed(reward), False, False, info))
            ids = (*encode(await self._answer), END)
        return Completion(ids=ids, logprobs=(0.0,) * len(ids), versions=(0,) * len(ids), finish="stop")

    async def answer(self, text: str) -> None:
        if self._answer is None or self._answer.done():
            raise ValueError("nobody waits for an answer: the episode is over, or the last answer is being worked on")
        self._answer.set_result(text)

    def last(self, episode: Episode) -> Shown:
        """Raises RolloutError for an episode that broke."""
        if episode.outcome.is_aborted:
            raise RolloutError(f"the episode was aborted ({episode.outcome}): {episode.reason}") from as_cause(episode)
        info: dict[str, Any] = {"outcome": episode.outcome.value, "rewards": dict(episode.rewards)}
        info |= {"metrics": dict(episode.metrics)} if episode.metrics else {}
        info |= {"others": {side.name: side.reward for side in episode.others}} if episode.others else {}
        shown = self._new(self._main, episode.messages)
        return Shown(shown, self._owed(episode.reward), episode.outcome.is_terminated, episode.outcome.is_truncated, info)

    def _new(self, agent: str, conversation: Sequence[Message]) -> str:
        """What this agent has not seen yet; its own answer comes before it."""
        new = conversation[self._seen.get(agent, 0) :]
        self._seen[agent] = len(conversation) + 1
        return "\n\n".join(map(_text, new))

    def _owed(self, reward: float) -> float:
        owed, self._paid = reward - self._paid, reward
        return owed


def _text(message: Message) -> str:
    return "\n".join([message.text, *(f"<image {p.width}x{p.height}>" for p in message.images)])


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of all episodes that are played from outside, in a daemon thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="agentrl-outside", daemon=True).start()
    return loop


def _call(work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(timeout=CLOSE_TIMEOUT + TURN_TIMEOUT)
