"""A tokenizer's chat template: what it can render, and messages brought into the form it takes.

Text only; ids are `agentrl.encoding`'s and `agentrl.renderer`'s. Templates differ in what they take: some refuse a system
message, ignore tools, want arguments as a string or call ids of nine letters. `ChatTemplate` finds out by rendering probes
and, where a template lacks something, says the same in a user or system message; `notes` lists what it had to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentrl.encoding import Encoder
from agentrl.errors import UsageError
from agentrl.messages import Message
from agentrl.parsers import ToolFormat, tool_format, write_calls, write_result, write_tools
from agentrl.tool import ToolSpec

Dicts = list[dict[str, Any]]


class TemplateRefusal(UsageError):
    """The chat template raised for a conversation: roles in an order it does not know, for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a chat template renders by itself."""

    system: bool
    tools: bool
    tool_role: bool
    calls: Literal["object", "string", "none"]
    """How it takes a call's arguments; "none": it does not render calls."""
    parallel: bool
    """Several calls in one message."""
    nine: bool
    """Call ids must be nine letters or digits (Mistral)."""
    reasoning: bool
    """It takes `reasoning_content`, or strips reasoning on purpose."""
    alternate: bool
    """Two user messages in a row are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A rendered conversation. `separator` stands inside text that only spells a control token; "" when there is none."""

    text: str
    separator: str = ""


class ChatTemplate:
    """The chat template of `tokenizer`, called with `args`. Raises UsageError when there is none, or it renders nothing."""

    def __init__(self, tokenizer: Any, encoder: Encoder, args: Mapping[str, Any]) -> None:
        if not (getattr(tokenizer, "chat_template", None) or args.get("chat_template")):
            raise UsageError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '') or type(tokenizer).__name__!r} has no chat template: "
                "take an instruction-tuned model, or set tokenizer.chat_template (a Jinja text) before the run"
            )
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._args = dict(args)
        source = args.get("chat_template") or tokenizer.chat_template
        self.form: ToolFormat = tool_format(str(source), encoder.added)
        self._parts = False
        self._parts = "probeuser" not in _try(self.apply, [_USER])  # templates of models with images want content in parts
        self.shape = _probe(self.apply)
        if not self.shape.tools and self.shape.calls == "none" and self.form != "gemma":
            self.form = "hermes"  # neither tools nor calls are the template's own: the most widely known format

    @property
    def notes(self) -> tuple[str, ...]:
        """What the template lacks and how it is made up for."""
        lacks = {
            "it has no system role: the system text opens the first user message": self.shape.system,
            f"it ignores tools: they are described in the system text, in {self.form} format": self.shape.tools,
            f"it does not render tool calls: they are written as text, in {self.form} format": self.shape.calls != "none",
            "it has no tool role: results are given in user messages": self.shape.tool_role,
            "it takes no two user messages in a row: they are joined": not self.shape.alternate,
            "it does not know reasoning: it is kept in the text, in <think> tags": self.shape.reasoning,
        }
        return tuple(text for text, has in lacks.items() if not has)

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool) -> Rendered:
        """The text of a conversation; with `prompt`, up to where the assistant speaks next. Raises UsageError."""
        plain = [_plain(message) for message in messages]
        specs = [spec.to_dict() for spec in tools]
        separator = self._encoder.separator([plain, specs])
        plain, specs = self._encoder.guard(plain, separator), self._encoder.guard(specs, separator)
        return Rendered(text=self.apply(self._adapt(plain, specs), specs, prompt), separator=separator)

    def apply(self, messages: Dicts, tools: Dicts, prompt: bool) -> str:
        """The template itself. Raises TemplateRefusal whatever it raises: it is a program of others."""
        if self._parts:
            messages = [_in_parts(message) for message in messages]
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tools=tools or None, add_generation_prompt=prompt, tokenize=False, **self._args
            )
        except Exception as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise TemplateRefusal(f"the chat template cannot render a conversation of {roles}: {error}") from error
        return text

    def _adapt(self, messages: Dicts, tools: Dicts) -> Dicts:
        shape = self.shape
        out = [self._assistant(m) if m["role"] == "assistant" else dict(m) for m in messages]
        if tools and not shape.tools:
            out = _add_system(out, write_tools(self.form, tools))
        if not shape.tool_role:
            out = _results_as_user(out, self.form)
        if not shape.system:
            out = _system_as_user(out)
        if shape.nine:
            _shorten_ids(out)
        return _merge_users(out) if shape.alternate else out

    def _assistant(self, message: dict[str, Any]) -> dict[str, Any]:
        out = dict(message)
        reasoning = out.get("reasoning_content")
        if reasoning and not self.shape.reasoning:
            del out["reasoning_content"]
            out["content"] = f"<think>\n{reasoning}\n</think>\n\n{out['content']}"
        calls = out.get("tool_calls")
        if not calls:
            return out
        if self.shape.calls == "none" or (len(calls) > 1 and not self.shape.parallel):
            del out["tool_calls"]
            written = write_calls(self.form, [call["function"] for call in calls])
            out["content"] = f"{out['content']}\n{written}" if out["content"] else written
            return out
        if self.shape.calls == "string":
            out["tool_calls"] = [_with_arguments(c, json.dumps(c["function"]["arguments"], ensure_ascii=False)) for c in calls]
        return out


def _plain(message: Message) -> dict[str, Any]:
    if message.images:
        raise UsageError(
            f"a {message.role} message holds an image, but this renderer is for text: use a model and a renderer for images"
        )
    return message.to_dict()


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}] if content else []}


def _with_arguments(call: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _add_system(messages: Dicts, text: str) -> Dicts:
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _results_as_user(messages: Dicts, form: ToolFormat) -> Dicts:
    """Consecutive results become one user message."""
    out: Dicts = []
    previous = ""
    for message in messages:
        if message["role"] != "tool":
            out.append(message)
        elif previous == "tool":
            out[-1]["content"] += "\n" + write_result(form, message["content"])
        else:
            out.append({"role": "user", "content": write_result(form, message["content"])})
        previous = message["role"]
    return out


def _system_as_user(messages: Dicts) -> Dicts:
    """The text of a system message goes in front of the next user message, or becomes one."""
    out: Dicts = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "system":
            waiting.append(message["content"])
        elif waiting and message["role"] == "user":
            out.append({**message, "content": "\n\n".join([*waiting, message["content"]])})
            waiting = []
        else:
            out += [{"role": "user", "content": "\n\n".join(waiting)}] if waiting else []
            out.append(message)
            waiting = []
    return [*out, {"role": "user", "content": "\n\n".join(waiting)}] if waiting else out


def _merge_users(messages: Dicts) -> Dicts:
    out: Dicts = []
    for message in messages:
        if out and message["role"] == "user" == out[-1]["role"]:
            out[-1] = {**out[-1], "content": f"{out[-1]['content']}\n\n{message['content']}"}
        else:
            out.append(message)
    return out


def _shorten_ids(messages: Dicts) -> None:
    """Nine letters or digits for each call id, the same for the call and its result."""
    for message in messages:
        if "tool_call_id" in message:
            message["tool_call_id"] = _nine(message["tool_call_id"])
        if message.get("tool_calls"):
            message["tool_calls"] = [{**call, "id": _nine(call["id"])} for call in message["tool_calls"]]


def _nine(call_id: str) -> str:
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


Apply = Callable[[Dicts, Dicts, bool], str]

_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "probename",
        "description": "probedescription",
        "parameters": {"type": "object", "properties": {"probekey": {"type": "string"}}, "required": ["probekey"]},
    },
}
_USER = {"role": "user", "content": "probeuser"}


def _probe(apply: Apply) -> Shape:
    """Finds a template's shape by what it shows of short conversations."""
    apply([_USER], [], True)  # a template that cannot do this is of no use: its error goes to the user
    system = "probesystem" in _try(apply, [{"role": "system", "content": "probesystem"}, _USER])
    calls, nine = _probe_calls(apply)
    said: dict[str, Any] = {"role": "assistant", "content": "probeanswer"}
    if calls != "none":
        said |= {"content": "", "tool_calls": [_call(0, calls, nine)]}
    two = said | {"tool_calls": [_call(0, calls, nine), _call(1, calls, nine)]}
    results = [_result(0, nine), _result(1, nine)]
    return Shape(
        system=system,
        tools="probedescription" in _try(apply, [_USER], [_TOOL]),
        tool_role="proberesult0" in _try(apply, [_USER, said, results[0]]),
        calls=calls,
        nine=nine,
        parallel=calls != "none" and "probevalue1" in _try(apply, [_USER, two, *results]),
        reasoning=_probe_reasoning(apply),
        alternate="probelast" not in _try(apply, [_USER, {"role": "user", "content": "probelast"}]),
    )


def _try(apply: Apply, messages: Dicts, tools: Sequence[dict[str, Any]] = ()) -> str:
    try:
        return apply(messages, list(tools), False)
    except TemplateRefusal:
        return ""


def _call(index: int, form: str, nine: bool) -> dict[str, Any]:
    arguments: Any = {"probekey": f"probevalue{index}"}
    if form == "string":
        arguments = json.dumps(arguments)
    name = f"00000000{index}" if nine else f"call_{index}"
    return {"id": name, "type": "function", "function": {"name": "probename", "arguments": arguments}}


def _result(index: int, nine: bool) -> dict[str, Any]:
    name = f"00000000{index}" if nine else f"call_{index}"
    return {"role": "tool", "content": f"proberesult{index}", "tool_call_id": name, "name": "probename"}


def _probe_calls(apply: Apply) -> tuple[Literal["object", "string", "none"], bool]:
    """(form of arguments, nine-letter ids) of the first way in which a call is shown in full."""
    forms: tuple[Literal["object", "string"], ...] = ("object", "string")
    for nine in (False, True):
        for form in forms:
            said = {"role": "assistant", "content": "", "tool_calls": [_call(0, form, nine)]}
            if any(_shows_call(_try(apply, [_USER, said, *tail])) for tail in ([_result(0, nine)], [])):
                return form, nine
    return "none", False


def _shows_call(text: str) -> bool:
    """In full, and as JSON or bare rather than as a Python dict or as JSON inside a JSON string."""
    whole = all(word in text for word in ("probename", "probekey", "probevalue0"))
    return whole and "'probekey'" not in text and '\\"probekey' not in text


def _probe_reasoning(apply: Apply) -> bool:
    field = {"role": "assistant", "content": "probeanswer", "reasoning_content": "probethought"}
    if "probethought" in _try(apply, [_USER, field]):
        return True
    inline = {"role": "assistant", "content": "<think>\nprobethought\n</think>\n\nprobeanswer"}
    return "probethought" not in _try(apply, [_USER, inline])
