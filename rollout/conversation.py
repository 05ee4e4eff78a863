"""An episode's messages and, beside them, its tokens. Sampled ids enter the ledger as they came.

An observation enters it together with the action that was sampled after it: no transcript ends in ids that nothing
was sampled after.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.engine import Completion
from agentrl.messages import Action, Message
from agentrl.renderer import Fork, Renderer
from agentrl.tool import ToolSpec
from agentrl.transcript import Segment, Transcript


class Conversation:
    """begin, then hear and tell in turns, and at most one `close`."""

    def __init__(self, renderer: Renderer, *, window: int = 0) -> None:
        """`window`: how many of its own last turns the agent is shown besides the opening; 0: all. What falls out of it starts
        a transcript anew."""
        self._renderer = renderer
        self._window = window
        self._opening = 0
        self._tools: tuple[ToolSpec, ...] = ()
        self.messages: list[Message] = []
        self.transcripts: list[Transcript] = [Transcript()]
        self._next = Transcript()
        """The transcript with the observation that is not yet answered."""
        self._forked = False

    @property
    def prompt(self) -> tuple[int, ...]:
        """All ids that the next action is sampled after."""
        return self._next.ids

    def begin(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)
        self.messages = list(messages)
        self._opening = len(self.messages)
        self._next = Transcript([Segment(role="prompt", ids=self._renderer.render(self.messages, self._tools))])
        self.transcripts = [self._next.fork(1)]

    def hear(self, completion: Completion) -> Action:
        """Takes the sampled ids down and reads them. Raises TranscriptError for numbers that cannot be true."""
        self._next.append(
            Segment(role="sampled", ids=completion.ids, logprobs=completion.logprobs, versions=completion.versions)
        )
        if self._forked:
            self.transcripts.append(self._next)
            self._forked = False
        else:
            self.transcripts[-1] = self._next
        action = self._renderer.parse(completion.ids, self._tools)
        self.messages.append(action.message())
        return action

    def tell(self, answer: Sequence[Message]) -> None:
        """The answer to the last action, to be answered in turn."""
        current = self.transcripts[-1]
        shown = self._shown(answer)
        if shown is not None:
            more: Fork | Sequence[int] = Fork(ids=self._renderer.render(shown, self._tools), reason="the history's window")
        else:
            more = self._renderer.extend(current, self.messages, answer, self._tools)
        self.messages.extend(answer)
        if isinstance(more, Fork):
            self._forked = True
            self._next = Transcript([Segment(role="prompt", ids=more.ids)])
        else:
            self._next = current.fork(len(current.segments))
            self._next.append(Segment(role="observation", ids=tuple(more)))

    def _shown(self, answer: Sequence[Message]) -> list[Message] | None:
        """What is left of the conversation where some of it falls out of the window; None where nothing does."""
        own = [i for i, message in enumerate(self.messages) if message.role == "assistant" and i >= self._opening]
        if not self._window or len(own) <= self._window:
            return None
        return [*self.messages[: self._opening], *self.messages[own[-self._window] :], *answer]

    def close(self, answer: Sequence[Message]) -> None:
        """The last words of the episode: no token is spent on them."""
        self.messages.extend(answer)
