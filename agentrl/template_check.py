"""The start-up self-test of a chat template: does extending a conversation give what rendering it whole gives, id by id?

Short conversations of every kind are rendered whole; the assistant's turn in them is taken for sampled; the transcript is
extended and compared. Differences are told in words, with the policy that applies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.encoding import Encoder, common_length
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
    rewrite: bool = False
    unread: bool = False


def check(renderer: _Renderer, template: ChatTemplate, encoder: Encoder, *, tools: bool = True) -> TemplateReport:
    """The self-test. Raises nothing for what it finds; a template that renders nothing has been refused before."""
    found: list[_Finding] = []
    merges = False
    for case in (case for case in _cases() if (tools or not case.tools) and _can_say(template, case)):
        try:
            findings, merged = _compare(case, renderer, template, encoder)
        except UsageError as error:
            findings, merged = [_Finding(text=f"{case.name}: {error}")], False
        found += findings
        merges |= merged
    if not renderer.stop_ids:
        found.append(_Finding(text="no token ends a turn: sampling only stops at its length limit"))
    return TemplateReport(
        ok=all(finding.rewrite for finding in found),
        rewrites_history=any(finding.rewrite for finding in found),
        problems=tuple(dict.fromkeys(finding.text for finding in found)),
        notes=(*template.notes, *([_MERGES] if merges else []), *([_FORMATS] if any(f.unread for f in found) else [])),
    )


_MERGES = "the same text has other tokens when rendered whole (merges across a turn's border): those sampled are kept"


_FORMATS = "calls that are not read back: model.tool_format names another format, hermes for one, and the model is told of it"


def _can_say(template: ChatTemplate, case: _Case) -> bool:
    return len(case.said.tool_calls) < 2 or not template.one_call


def difference(encoder: Encoder, was: Sequence[int], now: Sequence[int]) -> str:
    """Where two lists of ids part, with the text around: "at token 12: the transcript has '...', the template writes '...'"."""
    at = common_length(was, now)
    start = max(0, at - 3)
    old, new = encoder.decode(was[start : at + 8]), encoder.decode(now[start : at + 8])
    return f"at token {at}: the transcript has {old!r}, the template writes {new!r}"


def _compare(case: _Case, renderer: _Renderer, template: ChatTemplate, encoder: Encoder) -> tuple[list[_Finding], bool]:
    """(what is wrong, whether only tokens differ while the text is the same)."""
    asked = template.render(case.before, case.tools, prompt=True).text
    said = template.render([*case.before, case.said], case.tools, prompt=False).text
    whole = template.render([*case.before, case.said, *case.new], case.tools, prompt=True).text
    sampled = encoder.encode(_spoken(asked, said, whole, renderer.stop_ids, encoder))
    prompt = Segment(role="prompt", ids=renderer.render(case.before, case.tools))
    turn = Segment(role="sampled", ids=sampled, logprobs=(0.0,) * len(sampled), versions=(0,) * len(sampled))
    found, merged = _extended(case, Transcript([prompt, turn]), encoder.encode(whole), renderer, encoder)
    return [*_read_back(case, sampled, renderer), *found], merged


def _spoken(asked: str, said: str, whole: str, stops: Sequence[int], encoder: Encoder) -> str:
    """The assistant's turn as the template writes it after the generation prompt, with what stops the sampling."""
    own = said[encoder.common_start(asked, said) :]
    for place, token in encoder.controls(own):
        if encoder.control[token] in stops:
            own = own[: place + len(token)]
            break
    else:
        if whole.startswith(said):
            own += next((token for at, token in encoder.controls(whole[len(said) :]) if at == 0), "")
    if asked.rstrip().endswith("<think>") and "</think>" not in own:
        return "\n</think>\n\n" + own  # what a model writes that has nothing to think about
    return own


def _read_back(case: _Case, sampled: tuple[int, ...], renderer: _Renderer) -> Iterator[_Finding]:
    action = renderer.parse(sampled, case.tools)
    wrote = [(call.name, dict(call.arguments)) for call in case.said.tool_calls]
    read = [(call.name, dict(call.arguments)) for call in action.tool_calls]
    if wrote != read:
        error = f": {action.parse_error}" if action.parse_error else ""
        yield _Finding(text=f"{case.name}: the calls {wrote} are read back as {read}{error}", unread=True)
    elif case.said.text.strip() not in action.text:
        text = f"{case.name}: the template rewrites {case.said.text!r} to {action.text!r}; {_policy(renderer)}"
        yield _Finding(text=text, rewrite=True)


def _extended(
    case: _Case, transcript: Transcript, whole: tuple[int, ...], renderer: _Renderer, encoder: Encoder
) -> tuple[list[_Finding], bool]:
    ids = transcript.ids
    tail = renderer.extend(transcript, [*case.before, case.said], case.new, case.tools)
    if not isinstance(tail, tuple):
        text = f"{case.name}: the template rewrites earlier turns, {tail.reason}; {_policy(renderer)}"
        return [_Finding(text=text, rewrite=True)], False
    if ids + tail == whole:
        return [], False
    if encoder.decode(ids + tail) == encoder.decode(whole):
        return [], True
    rewrite = encoder.decode(whole).endswith(encoder.decode(tail))
    what = "the template rewrites earlier turns" if rewrite else "what is appended is not what the template writes"
    text = f"{case.name}: {what}, {difference(encoder, ids + tail, whole)}; {_policy(renderer)}"
    return [_Finding(text=text, rewrite=rewrite)], False


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
