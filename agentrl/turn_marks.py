"""How a chat template ends an assistant's turn, opens the next one, and which control tokens it keeps to itself.

Found by rendering stand-in conversations, once for each template. Text only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentrl.encoding import Encoder
from agentrl.messages import Message, Text, ToolCall
from agentrl.template import ChatTemplate
from agentrl.template_probe import TemplateRefusal
from agentrl.tool import ToolSpec

MARK, NEXT = "xborder", "ynext"
_THOUGHT = "zthought"
_TOOL = ToolSpec(name="xtool", description="x", parameters={"type": "object", "properties": {"x": {"type": "string"}}})
_CALL = ToolCall(id="call_0", name="xtool", arguments={})
_RESULT = Message(role="tool", content=(Text(text=NEXT),), tool_call_id="call_0", name="xtool")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMarks:
    """What stands around an assistant's words."""

    after_text: str
    """What the template writes after the content of the conversation's last message."""
    after_call: str
    """The same after the last argument of the last call."""
    closes: tuple[str, ...]
    """Control tokens that follow an assistant's turn: its end, or (`by_role`) the role that speaks next."""
    within: frozenset[str]
    """Those of `closes` that an assistant's turn also holds before its end, as after each of gpt-oss's messages."""
    by_role: bool
    """No token ends a turn; the next role's does (GLM)."""
    thinks: bool
    """The generation prompt opens <think>."""
    thinks_after_tool: bool
    outside: frozenset[str]
    """Control tokens of the template that an assistant's turn never holds."""

    @classmethod
    def of(cls, template: ChatTemplate, encoder: Encoder) -> TurnMarks:
        said, called = [user("x"), stand_in(MARK)], [user("x"), stand_in(MARK, (_CALL,))]
        after_text, after_call = _after(template, said), _after(template, called)
        followed = [_after(template, [*said, m], until=NEXT) for m in (user(NEXT), _RESULT)]
        ends = [_first(encoder, after_text), *(_last(encoder, after_call) if encoder.controls(after_text) else [])]
        ends += [_first(encoder, text) for text in followed]
        prompt = _show(template, [user("x")], prompt=True)
        after_tool = _show(template, [*called, _RESULT], prompt=True)
        closes = tuple(dict.fromkeys(token for token in ends if token))
        return cls(
            after_text=after_text,
            after_call=after_call,
            closes=closes,
            within=_within(template, encoder) & frozenset(closes),
            by_role=not encoder.controls(after_text),
            thinks=prompt.rstrip().endswith("<think>"),
            thinks_after_tool=(after_tool or prompt).rstrip().endswith("<think>"),
            outside=_outside(template, encoder),
        )

    def rest(self, after: str, called: bool) -> str:
        """From `after` (all that follows an assistant's last word or argument), what follows its turn: its close first."""
        own = self.after_call if called else self.after_text
        known = after.startswith(own)
        places = [place for token in self.closes if (place := (own if known else after).find(token)) >= 0]
        if not places and known:  # no token ends the turn: what the template writes after any content does
            places = [len(own.removesuffix(self.after_text))]
        return after[min(places, default=0) :]


def user(text: str) -> Message:
    return Message(role="user", content=(Text(text=text),))


def stand_in(mark: str, calls: Sequence[ToolCall] = ()) -> Message:
    """An assistant's message whose last content, or last argument of the last call, is `mark`."""
    if not calls:
        return Message(role="assistant", content=(Text(text=mark),))
    *others, last = [replace(call, arguments={}) for call in calls]
    return Message(role="assistant", tool_calls=(*others, replace(last, arguments={"x": mark})))


def _show(template: ChatTemplate, messages: Sequence[Message], *, prompt: bool = False) -> str:
    """The text, or "" where the template refuses: not every one takes a call without a result, for one."""
    try:
        return template.render(messages, [_TOOL], prompt=prompt).text
    except TemplateRefusal:
        return ""


def _after(template: ChatTemplate, messages: Sequence[Message], until: str = "") -> str:
    text = _show(template, messages).partition(MARK)[2]
    return text.partition(until)[0] if until else text


def _first(encoder: Encoder, text: str) -> str:
    return next((token for _, token in encoder.controls(text)), "")


def _last(encoder: Encoder, text: str) -> list[str]:
    return [token for _, token in encoder.controls(text)][-1:]


def _within(template: ChatTemplate, encoder: Encoder) -> frozenset[str]:
    """Control tokens between an assistant's reasoning and its answer."""
    thought = _show(template, [user("x"), _thoughtful(MARK)]).partition(_THOUGHT)[2].partition(MARK)[0]
    return frozenset(token for _, token in encoder.controls(thought))


def _thoughtful(mark: str) -> Message:
    return replace(stand_in(mark), reasoning=_THOUGHT)


def _outside(template: ChatTemplate, encoder: Encoder) -> frozenset[str]:
    said, called = [user("x"), _thoughtful(MARK)], [user("x"), stand_in(MARK, (_CALL,))]
    system = Message(role="system", content=(Text(text="x"),))
    asked = _show(template, [user("x")], prompt=True)
    turns = [text[encoder.common_start(asked, text) :] for text in (_show(template, said), _show(template, called))]
    others = [
        _show(template, [system, *said, user(NEXT)], prompt=True),
        _show(template, [*called, _RESULT], prompt=True),
    ]
    own = {token for text in turns for _, token in encoder.controls(text)}
    return frozenset(token for text in (asked, *others) for _, token in encoder.controls(text) if token not in own)
