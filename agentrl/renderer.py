"""Messages to tokens and back, for one tokenizer and its chat template.

Sampled ids are never re-encoded: `extend` gives only what is new after them. What a template would rewrite is found by
`self_test` at start-up, on ids; the policy then is explicit: keep (train on what was sampled) or fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentrl.messages import Action, Message
from agentrl.tool import ToolSpec
from agentrl.transcript import Transcript

History = Literal["keep", "fork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The template rewrote what is already in the transcript: go on in a new one that starts with `ids`."""

    ids: tuple[int, ...]
    reason: str


class Renderer:
    """Renders for one tokenizer (a Hugging Face one, or anything with `apply_chat_template`, `encode`, `decode`)."""

    def __init__(self, tokenizer: Any, *, history: History = "keep", chat_template_args: dict[str, Any] | None = None) -> None:
        raise NotImplementedError

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """The prompt for the next action: all messages and the generation prompt."""
        raise NotImplementedError

    def extend(
        self,
        transcript: Transcript,
        messages: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> tuple[int, ...] | Fork:
        """What follows the transcript's last sampled id: the close of that turn, `new`, and the generation prompt.

        `messages`: the conversation up to and including the last action; `new`: the answer to it. The transcript's ids
        and the returned ones together are the next prompt.
        """
        raise NotImplementedError

    def parse(self, ids: Sequence[int]) -> Action:
        """Sampled ids as an action: stop ids dropped, reasoning and tool calls taken apart. Never raises."""
        raise NotImplementedError

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a turn."""
        raise NotImplementedError

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Ids a model must not sample: media placeholders, padding, role markers that are no stop."""
        raise NotImplementedError
