"""The environment's side of an episode: threads, tools, sandbox and deadlines, so that the loop sees none.

Consumes actions, produces messages and turns. Waits for: the environment, its tools and its sandboxes, each under a
deadline. `async with` closes environment and sandboxes however the episode ends.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from types import TracebackType
from typing import Any

from agentrl.agent import AgentSpec, agents_of, main_agent, plays
from agentrl.blame import blaming
from agentrl.env import Env, Step, as_step
from agentrl.episode import Episode, Outcome, Turn
from agentrl.errors import UsageError, nearest
from agentrl.messages import Action, Message, ParseError, as_messages
from agentrl.reward import RewardError, score
from agentrl.sandbox import SandboxError, SandboxPool
from agentrl.task import Task
from agentrl.threads import invoke
from agentrl.tool import ToolBox, ToolCrash
from agentrl.toolbox import toolbox

from .agent import SeatedAgent
from .ending import Draft, Ending
from .lease import Leased, Leases
from .limits import Clock, LimitReached, Limits, deadline
from .seeds import derive
from .voices import Voice

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
        self.clock = Clock()
        """What the deadlines of this episode go by."""
        self.ending = Ending()
        self.specs: Mapping[str, AgentSpec] = agents_of(env) if plays(type(env)) else {"": AgentSpec()}
        """The agents by name; one without a name where the environment steps."""
        self.main = main_agent(self.specs)
        self._task = copy.deepcopy(task)  # what one sibling does to it, no other sees
        self._limits = limits
        self._toolbox: ToolBox = toolbox(env).mapped(env.wrap_tool)
        self._leases = Leases(pool, self.clock) if pool is not None else None
        self._sandbox: Leased | None = None
        if env.sandbox is not None and self._leases is not None:
            self._sandbox = env.sandbox = self._leases.lazy()
        env.task = self._task
        env.rng = random.Random(derive(task.id, seed))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Of all agents, in their order."""
        return tuple(draft.turn(self.ending.elapsed) for draft in self.ending.drafts)

    @property
    def usage(self) -> dict[str, float]:
        """What was used so far, as metrics of the episode."""
        return {} if self._leases is None else {"sandbox_calls": float(self._leases.calls)}

    def agents(self, voice: Callable[[str, AgentSpec], Voice]) -> list[SeatedAgent]:
        """All of them, in their order; `voice(name, spec)` speaks for each."""
        return [self._seated(name, spec, voice(name, spec)) for name, spec in self.specs.items()]

    def _seated(self, name: str, spec: AgentSpec, voice: Voice) -> SeatedAgent:
        prompt = spec.system_prompt
        return SeatedAgent(
            name,
            spec,
            voice,
            ending=self.ending,
            toolbox=_own_tools(self._toolbox, spec),
            react=self._react,
            system_prompt=(self.env.system_prompt if spec.trained else "") if prompt is None else prompt,
            max_turns=self.env.max_turns,
        )

    async def play(self, agents: Sequence[SeatedAgent]) -> None:
        """The whole conversation. Raises Over, where it is not the environment that ends it."""
        if plays(type(self.env)):
            await self._by_play(agents)
        else:
            await self._by_steps(*agents)

    async def _by_steps(self, agent: SeatedAgent) -> None:
        """`reset`, then `step` for each action."""
        agent.show(await self._reset())
        while self.ending.outcome is None:
            agent.show(await self._step(agent, await agent.say()))

    async def _by_play(self, agents: Sequence[SeatedAgent]) -> None:
        """The author's coroutine. An answer that it could not read, and did not ask for again, ends the episode."""
        assert self.env.play is not None, "the class is written as a coroutine"
        value = None
        try:
            value = await self.env.play(self._task, *agents)
        except ParseError as error:
            if not self.ending.drafts:
                raise
            self.ending.drafts[-1].parse_error = str(error) or "The answer could not be read."
        self.ending.check()
        with blaming(self.env.play):
            conclude(value, agents, main=self.main, ending=self.ending)

    async def _reset(self) -> tuple[Message, ...]:
        """The conversation's first messages, without the system prompt."""
        async with self.clock.deadline(self._limits.turn_timeout, "reset"):
            value = await invoke(self.env.reset, self._task)
        with blaming(self.env.reset):
            messages = as_messages(_without_info(value))
            if not messages:
                raise ValueError("reset gave no observation (and the task has no prompt)")
        return messages

    async def _step(self, agent: SeatedAgent, action: Action) -> tuple[Message, ...]:
        """What the action brings about."""
        draft = agent.turn
        try:
            async with self.clock.deadline(self._limits.turn_timeout, f"turn {len(agent.turns)}"):
                messages = await self._stepped(action, draft)
        finally:
            draft.ended_s = self.ending.elapsed
        if self.ending.outcome is None and not messages and not agent.is_spent:
            with blaming(self.env.step):
                raise ValueError("step gave no observation and did not end the episode")
        return messages

    async def _stepped(self, action: Action, draft: Draft) -> tuple[Message, ...]:
        try:
            value = await invoke(self.env.step, action)
            with blaming(self.env.step):
                step = as_step(value)
        except ParseError as error:
            draft.parse_error = str(error) or "Your answer could not be read."
            return as_messages(draft.parse_error)
        take(step, draft, self.ending)
        return as_messages(step.observation)

    async def _react(self, agent: SeatedAgent, action: Action) -> tuple[Message, ...]:
        """What the calls of an action give, and what could not be read of it."""
        draft = agent.turn
        try:
            if action.tool_calls and self._sandbox is not None:
                await self._sandbox.open()  # a tool's own timeout must not count the wait for a free one
            async with self.clock.deadline(self._limits.turn_timeout, f"turn {len(agent.turns)}"):
                told = await self._run_tools(agent.toolbox, action, draft) if action.tool_calls else ()
        finally:
            draft.ended_s = self.ending.elapsed
        if action.parse_error:
            draft.parse_error = action.parse_error
        return (*told, *as_messages(action.parse_error))

    async def _run_tools(self, tools: ToolBox, action: Action, draft: Draft) -> tuple[Message, ...]:
        draft.tool_calls = len(action.tool_calls)
        try:
            context = {"env": self.env, "sandbox": self._sandbox, "waiting": self.clock.stopped}
            results = await tools.run(action.tool_calls, context)
        except Exception as error:
            cause = leaf(error)
            if isinstance(cause, (UsageError, SandboxError, ToolCrash)):
                raise cause from cause.__cause__  # not the group around it
            raise ToolCrash(f"{type(cause).__name__}: {cause}") from error
        draft.tool_errors = sum(result.is_error for _, result in results)
        for _, result in results:
            if result.step is not None:
                take(result.step, draft, self.ending)
        return tuple(message for message, _ in results)

    async def score(self, episode: Episode) -> Episode:
        """With its rewards and metrics. Raises RewardError, SandboxLost; a grading that takes too long is no low reward."""
        if self._sandbox is not None and _grades_fresh(self.env):
            # Held while waiting for a second one, the sandboxes of all episodes would wait for each other for ever.
            await self._sandbox.aclose()
        try:
            async with self.clock.deadline(self._limits.episode_timeout, "grading"):
                scored = await score(self.env, episode, self._leases)
        except LimitReached as error:
            raise RewardError(str(error)) from error
        scored = replace(scored, metrics={**scored.metrics, **self.usage}, wall_s=self.ending.elapsed)
        await invoke(self.env.finished, scored)
        return scored

    async def __aenter__(self) -> Seat:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes all. What fails here is raised when the episode was well, and logged when it has failed already."""
        await self.ending.cancel_busy()
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


def take(step: Step, draft: Draft, ending: Ending) -> None:
    """What a step, the environment's or a tool's, does to the episode."""
    draft.reward += float(step.reward)
    if step.terminated:
        ending.outcome = Outcome.TERMINATED
    elif step.truncated:
        ending.outcome = ending.outcome or Outcome.MAX_TURNS


def conclude(value: Any, agents: Sequence[SeatedAgent], *, main: str, ending: Ending) -> None:
    """What `play` has returned: nothing, a step, a reward, or the reward of each agent by name. Raises ValueError, TypeError,
    RewardError."""
    by_name = {agent.name: agent for agent in agents}
    ending.outcome = Outcome.TERMINATED
    if isinstance(value, Step):
        step = as_step(value)
        by_name[main].show(step.observation)
        by_name[main].add_reward(step.reward)
        if step.truncated:
            ending.outcome = Outcome.MAX_TURNS
    elif isinstance(value, Mapping):
        for name, reward in value.items():
            if name not in by_name:
                raise ValueError(f"play gave a reward to {name!r}; {nearest(str(name), by_name)}")
            by_name[name].add_reward(reward)
    elif isinstance(value, (int, float)):
        by_name[main].add_reward(value)
    elif value is not None:
        what = "nothing, rl.done(...), a reward, or a dict of rewards by agent"
        raise TypeError(f"play may return {what}, not {value!r:.60}")


def _own_tools(tools: ToolBox, spec: AgentSpec) -> ToolBox:
    if spec.tools is not None:
        return tools.only(spec.tools)
    return tools if spec.trained else tools.only(())


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
