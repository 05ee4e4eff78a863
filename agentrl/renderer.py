"""Messages to tokens and back, for one tokenizer and its chat template.

Sampled ids are never re-encoded: `extend` gives only what is new after them. What a template would rewrite is found by
`self_test` at start-up, on ids; the policy then is explicit: keep (train on what was sampled) or fork.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from agentrl.encoding import Encoder
from agentrl.errors import UsageError
from agentrl.messages import Action, Message, ToolCall
from agentrl.parsers import parse_turn
from agentrl.template import ChatTemplate, Rendered
from agentrl.template_check import TemplateReport, check, difference
from agentrl.tool import ToolSpec
from agentrl.transcript import Transcript
from agentrl.turn_marks import MARK, TurnMarks, stand_in, user

History = Literal["keep", "fork"]

DOCUMENT_ENDS = ("<|endoftext|>", "<|end_of_text|>")
"""End a turn when sampled, but not in the way the template ends one: the template's close follows them."""
MESSAGE_ENDS = ("<|eom_id|>", "<start_function_response>", "<|tool_response>")
"""End a turn as well as the template's own close does: after a built-in tool's call (Llama 3), any (FunctionGemma, Gemma 4)."""
_MEDIA = re.compile(r"image|img|video|audio|vision|media", re.IGNORECASE)
_THINKING = re.compile(r"think", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The template rewrote what is already in the transcript: go on in a new one that starts with `ids`."""

    ids: tuple[int, ...]
    reason: str


class Renderer:
    """Renders for one fast Hugging Face tokenizer with a chat template. Text only: an image raises UsageError.

    `history`: what `extend` does where the template would show earlier turns otherwise than they were sampled; keep goes
    on after what was sampled, fork starts over from what the template shows. `chat_template_args` go to the template,
    as `{"enable_thinking": False}` does. `tool_format` names the format of tool calls; auto: the one that the template and the
    vocabulary tell. Raises UsageError when the tokenizer has no chat template, or there is no such format.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        history: History = "keep",
        chat_template_args: dict[str, Any] | None = None,
        tool_format: str = "auto",
    ) -> None:
        self.tokenizer = tokenizer
        self.history: History = history
        self._encoder = Encoder(tokenizer)
        self._template = ChatTemplate(tokenizer, self._encoder, chat_template_args or {}, tool_format)
        self._marks = TurnMarks.of(self._template, self._encoder)
        self._ends, self._stops = self._find_stops()
        self._banned = self._find_banned()

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """The prompt for the next action: all messages and the generation prompt. Raises UsageError."""
        return self._encode(self._template.render(messages, tools, prompt=True))

    def extend(
        self,
        transcript: Transcript,
        messages: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> tuple[int, ...] | Fork:
        """What follows the transcript's last sampled id: the close of that turn, `new`, and the generation prompt.

        `messages`: the conversation up to and including the last action; `new`: the answer to it. The transcript's ids
        and the returned ones together are the next prompt. Raises UsageError for what the template cannot render.
        """
        if not messages or messages[-1].role != "assistant":
            raise ValueError("extend needs the conversation up to and including the assistant's last message")
        ids = transcript.ids
        if self.history == "keep":
            return self._tail(ids, messages, new, tools)
        whole = self.render([*messages, *new], tools)
        if whole[: len(ids)] == ids:
            return whole[len(ids) :]
        tail = self._tail(ids, messages, new, tools)
        if self._encoder.decode(ids + tail) == self._encoder.decode(whole):
            return tail  # the same text in other tokens, as sampling may choose them: nothing was rewritten
        return Fork(ids=whole, reason=difference(self._encoder, ids + tail, whole))

    def parse(self, ids: Sequence[int], tools: Sequence[ToolSpec] | None = None) -> Action:
        """Sampled ids as an action: stop ids dropped, reasoning and tool calls taken apart. Never raises.

        `tools`: what the model was told of. With none at all nothing is read as a call; None: not known.
        """
        end = len(ids)
        while end and ids[end - 1] in self._stops:
            end -= 1
        raw = self._encoder.decode(ids[:end])
        opened = self._opened(raw, stopped=end < len(ids))
        reasoning, found = parse_turn(self._template.form, raw, tools, opened=opened)
        return Action(text=found.text, reasoning=reasoning, tool_calls=found.calls, raw=raw, parse_error=found.error)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a turn. The first is the template's own."""
        return self._stops

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Ids a model must not sample: media placeholders, padding, role markers that are no stop."""
        return self._banned

    @property
    def notes(self) -> tuple[str, ...]:
        """What the template lacks, and how the renderer makes up for it."""
        return self._template.notes

    def self_test(self, *, tools: bool = True) -> TemplateReport:
        """Compares `extend` with a full render, on ids, for short conversations of every kind. Takes well under a second.

        `tools=False` leaves out those with tools: an environment without any need not care how a template shows them.
        """
        return check(self, self._template, self._encoder, tools=tools)

    def _encode(self, rendered: Rendered) -> tuple[int, ...]:
        return self._encoder.encode(rendered.text, rendered.separator)

    def _opened(self, raw: str, *, stopped: bool) -> bool:
        """Did the generation prompt open <think>? Where that depends on what came before (DeepSeek: not after a tool), an
        answer that ended without closing it is no reasoning."""
        if self._marks.thinks == self._marks.thinks_after_tool or "</think>" in raw:
            return self._marks.thinks
        return not stopped

    def _tail(
        self, ids: tuple[int, ...], messages: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[int, ...]:
        """Renders `new` after a stand-in for the conversation so far, and takes what follows the stand-in's words."""
        system = messages[:1] if messages[0].role == "system" else ()
        calls = _answered_calls(messages[-1], new)
        if not self._template.shape.parallel:
            calls = calls[-1:]
        mark = MARK
        while any(mark in message.text for message in (*system, *new)):
            mark += "x"
        rendered = self._template.render([*system, user("x"), stand_in(mark, calls), *new], tools, prompt=True)
        if rendered.text.count(mark) != 1:
            raise UsageError("the chat template does not show what an assistant said, so nothing can follow it")
        rest = self._marks.rest(rendered.text.partition(mark)[2], called=bool(calls))
        return self._unless_sampled(ids, self._encoder.encode(rest, rendered.separator))

    def _unless_sampled(self, ids: tuple[int, ...], rest: tuple[int, ...]) -> tuple[int, ...]:
        """`rest` starts with the close of a turn; that close is left out when the model has sampled it."""
        if not ids or not rest:
            return rest
        same = ids[-1] == rest[0] and ids[-1] in self._stops
        return rest[1:] if same or (ids[-1] in self._ends and rest[0] in self._ends) else rest

    def _find_stops(self) -> tuple[frozenset[int], tuple[int, ...]]:
        """(ids that end a message equally well, all ids that stop sampling)."""
        added = self._encoder.added
        closes = [added[text] for text in self._marks.closes]
        within = {added[text] for text in self._marks.within}
        ends = [added[text] for text in MESSAGE_ENDS if text in added]
        others = [added[text] for text in DOCUMENT_ENDS if text in added]
        eos = [self.tokenizer.eos_token_id] if self.tokenizer.eos_token_id is not None else []
        equal = [] if self._marks.by_role else [*closes, *ends]
        stops = [index for index in (*closes, *eos, *ends, *others) if index not in within]
        return frozenset(equal), tuple(dict.fromkeys(stops))

    def _find_banned(self) -> tuple[int, ...]:
        special = (self.tokenizer.pad_token_id, self.tokenizer.bos_token_id, self.tokenizer.unk_token_id)
        added = self._encoder.added.items()
        media = [index for text, index in added if _MEDIA.search(text)]
        markers = [index for text, index in added if text in self._marks.outside and not _THINKING.search(text)]
        banned = {index for index in (*special, *media, *markers) if index is not None}
        return tuple(sorted(banned - set(self._stops)))


def _answered_calls(last: Message, new: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls that `new` starts to answer; made up from the results where the last message holds none."""
    results = list(takewhile(lambda message: message.role == "tool", new))
    if not results:
        return ()
    made_up = (ToolCall(id=m.tool_call_id or f"call_{i}", name=m.name or "tool", arguments={}) for i, m in enumerate(results))
    return last.tool_calls or tuple(made_up)
