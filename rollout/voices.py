"""What speaks for an agent: an engine, with the conversation's tokens, or a script, without any.

A voice is shown messages and gives the next action. It knows nothing of tools, turns or rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from agentrl.agent import Says
from agentrl.messages import Action, Message
from agentrl.threads import invoke
from agentrl.tool import ToolSpec
from agentrl.transcript import Transcript

from .conversation import Conversation
from .policy import Policy


class Voice(Protocol):
    """One agent's side of what is said."""

    @property
    def messages(self) -> Sequence[Message]: ...

    @property
    def transcripts(self) -> Sequence[Transcript]: ...

    async def answer(self, said: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Action, bool]:
        """(what it says to that, was it cut by its budget of tokens)."""
        ...

    def close(self, said: Sequence[Message]) -> None:
        """What it is told last, and does not answer."""
        ...


class Sampled:
    """The policy speaks."""

    def __init__(self, policy: Policy, talk: Conversation) -> None:
        self._policy, self._talk = policy, talk
        self._begun = False

    @property
    def messages(self) -> Sequence[Message]:
        return self._talk.messages

    @property
    def transcripts(self) -> Sequence[Transcript]:
        return self._talk.transcripts

    async def answer(self, said: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Action, bool]:
        """Raises LimitReached where no token is left, EngineError."""
        if self._begun:
            self._talk.tell(said)
        else:
            self._talk.begin(said, tools)
            self._begun = True
        completion = await self._policy.generate(self._talk.prompt)
        return self._talk.hear(completion), completion.finish == "length"

    def close(self, said: Sequence[Message]) -> None:
        self._talk.close(said)


class Scripted:
    """A function of the author's speaks: `says(env, messages)`."""

    transcripts: Sequence[Transcript] = ()

    def __init__(self, env: Any, says: Says) -> None:
        self._env, self._says = env, says
        self.messages: list[Message] = []

    async def answer(self, said: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Action, bool]:
        self.messages.extend(said)
        text = await invoke(self._says, self._env, tuple(self.messages))
        action = text if isinstance(text, Action) else Action(text=str(text), raw=str(text))
        self.messages.append(action.message())
        return action, False

    def close(self, said: Sequence[Message]) -> None:
        self.messages.extend(said)
