"""The environment's side of an episode: threads, tools, sandbox, turn cap and deadlines, so that the loop sees none.

Consumes actions, produces messages and turns. Waits for: the environment, its tools and its sandboxes, each under a
deadline. `async with` closes environment and sandboxes however the episode ends.
"""

from __future__ import annotations

import copy
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import signature
from types import TracebackType
from typing import Any

from agentrl.blame import blaming
from agentrl.env import Env, Step, as_step
from agentrl.episode import Episode, Outcome, Turn
from agentrl.errors import UsageError
from agentrl.messages import Action, Message, ParseError, as_messages
from agentrl.reward import RewardError, score
from agentrl.sandbox import SandboxError, SandboxPool
from agentrl.task import Task
from agentrl.threads import invoke
from agentrl.tool import ToolBox, ToolCrash, ToolSpec
from agentrl.toolbox import toolbox

from .lease import Leased, Leases
from .limits import Clock, LimitReached, Limits, deadline
from .seeds import derive

CLOSE_TIMEOUT = 30.0
"""Seconds an environment may take to close; a hung one must not stop the run from ending."""

log = logging.getLogger(__name__)


class Seat:
    """One environment, being played."""

    def __init__(self, env: Env, task: Task, *, seed: int, limits: Limits, pool: SandboxPool | None) -> None:
        if env.sandbox is not None and pool is None:
            raise UsageError(f"{type(env).__name__} declares a sandbox, but this run has no sandbox pool")
        if vars(env).setdefault("_seat", self) is not self:
            raise UsageError(f"this {type(env).__name__} has been played; an instance is one episode, make a new one")
        self.env = env
        self.turns: list[Turn] = []
        self.opening = 0
        """Messages before the agent's first, once `reset` has given them."""
        self.outcome: Outcome | None = None
        """How it ended; None while it goes on."""
        self.clock = Clock()
        """What the deadlines of this episode go by."""
        self._task = copy.deepcopy(task)  # what one sibling does to it, no other sees
        self._limits = limits
        self._toolbox: ToolBox = toolbox(env)
        self._leases = Leases(pool, self.clock) if pool is not None else None
        self._sandbox: Leased | None = None
        if env.sandbox is not None and self._leases is not None:
            self._sandbox = env.sandbox = self._leases.lazy()
        env.task = self._task
        env.rng = random.Random(derive(task.id, seed))
        self._began = time.monotonic()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return self._toolbox.specs

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def usage(self) -> dict[str, float]:
        """What was used so far, as metrics of the episode."""
        return {} if self._leases is None else {"sandbox_calls": float(self._leases.calls)}

    async def reset(self) -> tuple[Message, ...]:
        """The conversation's first messages, the system prompt included."""
        async with self.clock.deadline(self._limits.turn_timeout, "reset"):
            value = await invoke(self.env.reset, self._task)
        with blaming(self.env.reset):
            messages = as_messages(_without_info(value))
            if not messages:
                raise ValueError("reset gave no observation (and the task has no prompt)")
        messages = (*as_messages(self.env.system_prompt, "system"), *messages)
        self.opening = len(messages)
        return messages

    async def answer(self, action: Action, *, cut: bool = False) -> tuple[Message, ...]:
        """What the action brings about. `cut`: its budget of tokens has ended it. Always adds one turn, also when it raises;
        sets `outcome` at the end."""
        began = self.turns[-1].ended_s if self.turns else 0.0
        draft: dict[str, Any] = {"started_s": began, "sampled_s": self.elapsed, "answer_cut": cut}
        try:
            messages = await self._react(action, draft)
        finally:
            self.turns.append(Turn(**draft, ended_s=self.elapsed))
        if self.outcome is None and len(self.turns) >= self.env.max_turns:
            self.outcome = Outcome.MAX_TURNS
        if self.outcome is None and not messages:
            with blaming(self.env.step):
                raise ValueError("step gave no observation and did not end the episode")
        return messages

    async def score(self, episode: Episode) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """(rewards, metrics). Raises RewardError, SandboxLost; a grading that takes too long is no low reward."""
        if self._sandbox is not None and _grades_fresh(self.env):
            # Held while waiting for a second one, the sandboxes of all episodes would wait for each other for ever.
            await self._sandbox.aclose()
        try:
            async with self.clock.deadline(self._limits.episode_timeout, "grading"):
                rewards, metrics = await score(self.env, episode, self._leases)
        except LimitReached as error:
            raise RewardError(str(error)) from error
        return rewards, {**metrics, **self.usage}

    async def __aenter__(self) -> Seat:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes all. What fails here is raised when the episode was well, and logged when it has failed already."""
        closers: list[Callable[[], Awaitable[Any]]] = [self._toolbox.aclose, lambda: invoke(self.env.close)]
        if self._leases is not None:
            closers.append(self._leases.aclose)
        failures: list[Exception] = []
        for closer in closers:
            try:
                async with deadline(CLOSE_TIMEOUT, "closing"):
                    await closer()
            except Exception as failure:
                failures.append(RuntimeError(str(failure)) if isinstance(failure, LimitReached) else failure)
        if failures and error is None:
            raise ExceptionGroup(f"{type(self.env).__name__} could not be closed", failures)
        for problem in failures:
            log.warning("%s could not be closed after %r", type(self.env).__name__, error, exc_info=problem)

    async def _react(self, action: Action, draft: dict[str, Any]) -> tuple[Message, ...]:
        name = f"turn {len(self.turns) + 1}"
        if action.tool_calls and self._sandbox is not None:
            await self._sandbox.open()  # a tool's own timeout must not count the wait for a free one
        async with self.clock.deadline(self._limits.turn_timeout, name):
            told = await self._run_tools(action, draft) if action.tool_calls else ()
            if action.parse_error:
                draft["parse_error"] = action.parse_error
                return (*told, *as_messages(action.parse_error))
            return told or await self._step(action, draft)

    async def _run_tools(self, action: Action, draft: dict[str, Any]) -> tuple[Message, ...]:
        draft["tool_calls"] = len(action.tool_calls)
        try:
            results = await self._toolbox.run(action.tool_calls, {"env": self.env, "sandbox": self._sandbox})
        except Exception as error:
            cause = leaf(error)
            if isinstance(cause, (UsageError, SandboxError, ToolCrash)):
                raise cause from cause.__cause__  # not the group around it
            raise ToolCrash(f"{type(cause).__name__}: {cause}") from error
        draft["tool_errors"] = sum(result.is_error for _, result in results)
        for _, result in results:
            if result.step is not None:
                self._take(result.step, draft)
        return tuple(message for message, _ in results)

    async def _step(self, action: Action, draft: dict[str, Any]) -> tuple[Message, ...]:
        try:
            value = await invoke(self.env.step, action)
            with blaming(self.env.step):
                step = as_step(value)
        except ParseError as error:
            draft["parse_error"] = str(error) or "Your answer could not be read."
            return as_messages(draft["parse_error"])
        if not math.isfinite(step.reward):
            raise RewardError(f"step gave the reward {step.reward}; it must be a finite number")
        self._take(step, draft)
        return as_messages(step.observation)

    def _take(self, step: Step, draft: dict[str, Any]) -> None:
        """What a step, the environment's or a tool's, does to the episode."""
        draft["reward"] = draft.get("reward", 0.0) + float(step.reward)
        if step.terminated:
            self.outcome = Outcome.TERMINATED
        elif step.truncated:
            self.outcome = self.outcome or Outcome.MAX_TURNS


def leaf(error: BaseException) -> BaseException:
    """What really happened, inside of exception groups: a lost sandbox before anything that it may have caused."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [leaf(inner) for inner in error.exceptions]
    return next((inner for inner in leaves if isinstance(inner, (UsageError, SandboxError))), leaves[0])


def _without_info(value: Any) -> Any:
    """gymnasium's (observation, info) without the info; a message as a dict has a role and is no info."""
    pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping) and "role" not in value[1]
    return value[0] if pair else value


def _grades_fresh(env: Env) -> bool:
    functions = [getattr(type(env), name) for name in dir(type(env))]
    return any("fresh" in signature(f).parameters for f in functions if hasattr(f, "__agentrl_reward__"))
