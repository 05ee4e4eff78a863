"""The start-up self-test of a chat template: does extending a conversation give what rendering it whole gives, id by id?

Short conversations of every kind are rendered whole; the assistant's turn in them is taken for sampled; the transcript is
extended and compared. Differences are told in words, with the policy that applies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.encoding import Encoder
from agentrl.errors import UsageError
from agentrl.messages import Action, Message, Text, ToolCall
from agentrl.template import ChatTemplate
from agentrl.tool import ToolSpec
from agentrl.transcript import Segment, Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReport:
    """What the self-test found.

    >>> print(TemplateReport(ok=True, rewrites_history=False))
    the chat template is append-only: extending and rendering whole give the same ids
    """

    ok: bool
    """What `extend` appends is what the template writes there, and calls are read back as they were written."""
    rewrites_history: bool
    """Rendered again, an earlier turn looks otherwise than it was sampled: the keep or fork policy is at work."""
    problems: tuple[str, ...] = ()
    """Every difference, in words."""
    notes: tuple[str, ...] = ()
    """What the template lacks, and how it is made up for."""

    def __str__(self) -> str:
        if not (self.problems or self.notes):
            return "the chat template is append-only: extending and rendering whole give the same ids"
        return "\n".join([*self.problems, *self.notes])


class _Renderer(Protocol):
    history: Any

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]: ...
    def extend(
        self, transcript: Transcript, messages: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> Any: ...
    def parse(self, ids: Sequence[int], tools: Sequence[ToolSpec] | None = None) -> Action: ...
    @property
    def stop_ids(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    name: str
    before: tuple[Message, ...]
    said: Message
    new: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    text: str
    rewrite: bool


def check(renderer: _Renderer, template: ChatTemplate, encoder: Encoder) -> TemplateReport:
    """The self-test. Raises nothing for what it finds; a template that renders nothing has been refused before."""
    found: list[_Finding] = []
    for case in _cases():
        try:
            found += _compare(case, renderer, template, encoder)
        except UsageError as error:
            found.append(_Finding(text=f"{case.name}: {error}", rewrite=False))
    if not renderer.stop_ids:
        found.append(_Finding(text="no token ends a turn: sampling only stops at its length limit", rewrite=False))
    return TemplateReport(
        ok=all(finding.rewrite for finding in found),
        rewrites_history=any(finding.rewrite for finding in found),
        problems=tuple(dict.fromkeys(finding.text for finding in found)),
        notes=template.notes,
    )


def difference(encoder: Encoder, was: Sequence[int], now: Sequence[int]) -> str:
    """Where two lists of ids part, with the text around it.

    "at token 12: '...<think>' was sampled or shown, '...Hello' is rendered now"
    """
    at = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
    start = max(0, at - 3)
    old, new = encoder.decode(was[start : at + 8]), encoder.decode(now[start : at + 8])
    return f"at token {at}: the transcript has {old!r}, the template writes {new!r}"


def _compare(case: _Case, renderer: _Renderer, template: ChatTemplate, encoder: Encoder) -> Iterator[_Finding]:
    prompt = renderer.render(case.before, case.tools)
    said = template.render([*case.before, case.said], case.tools, prompt=False)
    whole = renderer.render([*case.before, case.said, *case.new], case.tools)
    turn = encoder.encode(said.text, said.separator)
    if turn[: len(prompt)] != prompt:
        text = f"{case.name}: a turn does not start as the generation prompt does, {difference(encoder, prompt, turn)}"
        yield _Finding(text=f"{text}; {_policy(renderer)}", rewrite=True)
    sampled = _sampled(case, turn, whole, prompt, renderer)
    if encoder.decode(prompt).rstrip().endswith("<think>") and "</think>" not in encoder.decode(sampled):
        sampled = encoder.encode("\n</think>\n\n") + sampled  # what a model writes that has nothing to think about
    yield from _calls(case, sampled, renderer)
    first = Segment(role="prompt", ids=prompt)
    turns = Segment(role="sampled", ids=sampled, logprobs=(0.0,) * len(sampled), versions=(0,) * len(sampled))
    yield from _extended(case, Transcript([first, turns]), whole, renderer, encoder)


def _sampled(
    case: _Case, turn: tuple[int, ...], whole: tuple[int, ...], prompt: tuple[int, ...], renderer: _Renderer
) -> tuple[int, ...]:
    """The assistant's turn as it would have been sampled: up to and with the token that stops."""
    own = turn[len(prompt) :] if turn[: len(prompt)] == prompt else turn[_common(prompt, turn) :]
    stops = [i for i, token in enumerate(own) if token in renderer.stop_ids]
    if stops:
        return own[: stops[0] + 1]
    after = whole[len(turn) : len(turn) + 1] if whole[: len(turn)] == turn else ()
    return own + tuple(token for token in after if token in renderer.stop_ids)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _calls(case: _Case, sampled: tuple[int, ...], renderer: _Renderer) -> Iterator[_Finding]:
    action = renderer.parse(sampled, case.tools)
    wrote = [(call.name, dict(call.arguments)) for call in case.said.tool_calls]
    read = [(call.name, dict(call.arguments)) for call in action.tool_calls]
    if wrote != read:
        text = f"{case.name}: the calls {wrote} are read back as {read}{': ' * bool(action.parse_error)}{action.parse_error}"
        yield _Finding(text=text, rewrite=False)
    if case.said.text.strip() not in action.text:
        yield _Finding(text=f"{case.name}: the text {case.said.text!r} is read back as {action.text!r}", rewrite=False)


def _extended(
    case: _Case, transcript: Transcript, whole: tuple[int, ...], renderer: _Renderer, encoder: Encoder
) -> Iterator[_Finding]:
    ids = transcript.ids
    tail = renderer.extend(transcript, [*case.before, case.said], case.new, case.tools)
    if not isinstance(tail, tuple):
        yield _Finding(
            text=f"{case.name}: the template rewrites earlier turns, {tail.reason}; {_policy(renderer)}", rewrite=True
        )
    elif ids + tail != whole:
        same_end = whole[-len(tail) :] == tail if tail else True
        what = "the template rewrites earlier turns" if same_end else "extending differs from rendering whole"
        text = f"{case.name}: {what}, {difference(encoder, ids + tail, whole)}"
        yield _Finding(text=f"{text}; {_policy(renderer)}", rewrite=same_end)


def _policy(renderer: _Renderer) -> str:
    if renderer.history == "fork":
        return "policy fork: a new transcript starts from what the template writes"
    return "policy keep: the transcript goes on after what was sampled"


_SYSTEM = Message(role="system", content=(Text(text="You are a careful assistant."),))
_ASKED = Message(role="user", content=(Text(text="What is 17 + 25?"),))
_AGAIN = Message(role="user", content=(Text(text=" 2 more?\n\n7"),))
_SAID = Message(role="assistant", content=(Text(text="It is 42."),))
_THOUGHT = Message(role="assistant", reasoning="17 + 25 = 42", content=(Text(text="It is 42."),))
_ADD = ToolSpec(
    name="add",
    description="Adds numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["a"],
    },
)
_CALLS = tuple(ToolCall(id=f"call_{i}", name="add", arguments={"a": i, "note": 'say "hi"\n'}) for i in range(2))


def _result(index: int) -> Message:
    return Message(role="tool", content=(Text(text=f"{index + 40}\n"),), tool_call_id=f"call_{index}", name="add")


def _cases() -> list[_Case]:
    one = Message(role="assistant", tool_calls=_CALLS[:1])
    words = Message(role="assistant", content=(Text(text="I add."),), tool_calls=_CALLS[:1])
    two = Message(role="assistant", tool_calls=_CALLS)
    tools = (_ADD,)
    called = (_SYSTEM, _ASKED, one, _result(0))
    return [
        _Case(name="a user's answer", before=(_ASKED,), said=_SAID, new=(_AGAIN,)),
        _Case(name="with a system text", before=(_SYSTEM, _ASKED), said=_SAID, new=(_AGAIN,)),
        _Case(name="a third turn", before=(_SYSTEM, _ASKED, _SAID, _AGAIN), said=_SAID, new=(_AGAIN,)),
        _Case(name="a tool's result", before=(_ASKED,), said=one, new=(_result(0),), tools=tools),
        _Case(name="words beside a call", before=(_SYSTEM, _ASKED), said=words, new=(_result(0),), tools=tools),
        _Case(name="two calls in a turn", before=(_ASKED,), said=two, new=(_result(0), _result(1)), tools=tools),
        _Case(name="an answer after a tool's result", before=called, said=_SAID, new=(_AGAIN,), tools=tools),
        _Case(name="a second call", before=called, said=one, new=(_result(0),), tools=tools),
        _Case(name="reasoning", before=(_ASKED,), said=_THOUGHT, new=(_AGAIN,)),
    ]
