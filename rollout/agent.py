"""One agent of an episode, as `play` gets it: it says things, its tools run in between, and its turns are counted.

Both ways of writing an environment talk to it. Waits for: its voice (an engine or a script) and its tools.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from agentrl.agent import AgentSpec
from agentrl.episode import Outcome, Side
from agentrl.messages import Action, Message, ParseError, as_messages
from agentrl.reward import RewardError
from agentrl.tool import ToolBox

from .ending import Draft, Ending
from .voices import Voice

T = TypeVar("T")


class SeatedAgent:
    """An `agentrl.agent.Agent`."""

    def __init__(
        self,
        name: str,
        spec: AgentSpec,
        voice: Voice,
        *,
        ending: Ending,
        toolbox: ToolBox,
        react: Callable[[SeatedAgent, Action], Awaitable[tuple[Message, ...]]],
        system_prompt: str,
        max_turns: int,
    ) -> None:
        """`react` runs the calls of an action and gives what answers them."""
        self.name = name
        self.spec = spec
        self.voice = voice
        self.toolbox = toolbox
        self.turns: list[Draft] = []
        self.opening = 0
        """Messages before its first; 0 until it speaks."""
        self.early_reward = 0.0
        """What it was given before its first turn."""
        self._ending = ending
        self._react = react
        self._system_prompt = system_prompt
        self._max_turns = max_turns
        self._pending: tuple[Message, ...] = ()
        self._speaking = False

    @property
    def system_prompt(self) -> str:
        return self._system_prompt

    @system_prompt.setter
    def system_prompt(self, text: str) -> None:
        if self.opening:
            raise ValueError(f"the agent {self.name!r} has begun; its system prompt is set before it first speaks")
        self._system_prompt = text

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self.voice.messages)

    @property
    def turn(self) -> Draft:
        """Its last one."""
        return self.turns[-1]

    @property
    def is_spent(self) -> bool:
        """Has it had all its turns?"""
        return len(self.turns) >= self._max_turns

    def show(self, *observation: Any) -> None:
        self._pending = (*self._pending, *_joined(observation))

    def add_reward(self, reward: float) -> None:
        """Raises RewardError for what is no finite number."""
        if not isinstance(reward, (int, float)) or not math.isfinite(reward):
            raise RewardError(f"the agent {self.name!r} was given the reward {reward!r}; it must be a finite number")
        if self.turns:
            self.turn.reward += float(reward)
        else:
            self.early_reward += float(reward)

    async def say(self, *observation: Any) -> Action:
        """Raises Over where the episode ends here, as it does when all turns are used up. Catching it changes nothing."""
        self.show(*observation)
        while True:
            action = await self._act()
            if not (action.tool_calls or action.parse_error):
                return action
            self._pending = await self._guarded(self._react(self, action))

    async def ask(self, observation: Any, form: Any, *, tries: int | None = None) -> Any:
        asked = 0
        while True:
            action = await self.say(observation)
            asked += 1
            try:
                return action.word(*form) if isinstance(form, (list, tuple)) else action.parse(form)
            except ParseError as error:
                observation = self.turn.parse_error = str(error) or "Your answer could not be read."
                if asked == tries:
                    raise

    def close(self) -> None:
        """What it was shown and has not answered is the end of its conversation."""
        self.voice.close(self._pending)
        self._pending = ()

    def side(self) -> Side:
        return Side(
            name=self.name,
            trained=self.spec.trained,
            transcripts=tuple(self.voice.transcripts),
            messages=self.messages,
            opening=self.opening,
            rewards={"env": self.early_reward} if self.early_reward else {},
        )

    async def _act(self) -> Action:
        """One answer, which is a turn."""
        self._ending.check()
        if self._speaking:
            raise RuntimeError(f"the agent {self.name!r} is asked again before it has answered; await each answer")
        began = self._ending.elapsed if self.turns else 0.0
        if self.turns and self.turn.ended_s is None:
            self.turn.ended_s = began
        if self.is_spent:
            self._ending.end(Outcome.MAX_TURNS)
        self._speaking = True
        try:
            action, cut = await self._guarded(self.voice.answer(self._next(), self.toolbox.specs))
        finally:
            self._speaking = False
        self.turns.append(Draft(started_s=began, sampled_s=self._ending.elapsed, answer_cut=cut, agent=self.name))
        self._ending.drafts.append(self.turn)
        return action

    def _next(self) -> tuple[Message, ...]:
        """What it is told now; the first time with its system prompt before it."""
        said, self._pending = self._pending, ()
        if not said:
            raise ValueError(f"the agent {self.name!r} was shown nothing to answer")
        if not self.opening:
            said = (*as_messages(self._system_prompt, "system"), *said)
            self.opening = len(said)
        return said

    async def _guarded(self, work: Awaitable[T]) -> T:
        """What breaks here ends the episode, also where an author's `except Exception` would go on."""
        job = asyncio.current_task()
        assert job is not None, "an agent is awaited in a task"
        self._ending.busy.add(job)
        try:
            return await work
        except Exception as error:
            self._ending.broken = self._ending.broken or error
            raise
        finally:
            self._ending.busy.discard(job)


def _joined(observation: Sequence[Any]) -> tuple[Message, ...]:
    """Several texts and pictures are one message."""
    return as_messages(observation[0] if len(observation) == 1 else list(observation))
