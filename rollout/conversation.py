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

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
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
        more = self._renderer.extend(current, self.messages, answer, self._tools)
        self.messages.extend(answer)
        if isinstance(more, Fork):
            self._forked = True
            self._next = Transcript([Segment(role="prompt", ids=more.ids)])
        else:
            self._next = current.fork(len(current.segments))
            self._next.append(Segment(role="observation", ids=more))

    def close(self, answer: Sequence[Message]) -> None:
        """The last words of the episode: no token is spent on them."""
        self.messages.extend(answer)
