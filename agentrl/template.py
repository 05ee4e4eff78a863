"""A tokenizer's chat template: what it can render, and messages brought into the form it takes.

Text only; ids are `agentrl.encoding`'s and `agentrl.renderer`'s. Templates differ in what they take: some refuse a system
message, ignore tools, want arguments as a string or call ids of nine letters. `ChatTemplate` finds out by rendering probes
and, where a template lacks something, says the same in a user or system message; `notes` lists what it had to do.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentrl.encoding import Encoder
from agentrl.errors import UsageError
from agentrl.messages import Message
from agentrl.parsers import (
    FAMILIES,
    ToolFormat,
    named,
    parse_calls,
    tool_format,
    write_calls,
    write_result,
    write_tools,
)
from agentrl.template_probe import (
    PROBE_CALL,
    REASONING,
    USER,
    Dicts,
    TemplateRefusal,
    attempt,
    probe,
    shown_call,
    shows_result_of_text,
)
from agentrl.tool import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A rendered conversation. `separator` stands inside text that only spells a control token; "" when there is none."""

    text: str
    separator: str = ""


class ChatTemplate:
    """The chat template of `tokenizer`, called with `args`. Raises UsageError when there is none, or it renders nothing.

    `form` names the format of tool calls, for a model that is to write others than its template does; auto: the template's.
    """

    def __init__(self, tokenizer: Any, encoder: Encoder, args: Mapping[str, Any], form: str = "auto") -> None:
        if not (getattr(tokenizer, "chat_template", None) or args.get("chat_template")):
            raise UsageError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '') or type(tokenizer).__name__!r} has no chat template: "
                "take an instruction-tuned model, or set tokenizer.chat_template (a Jinja text) before the run"
            )
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._args = dict(args)
        source = args.get("chat_template") or tokenizer.chat_template
        self.form: ToolFormat = tool_format(str(source), encoder.added) if form == "auto" else named(form)
        self._parts = False
        self._parts = "probeuser" not in attempt(self.apply, [USER])  # templates of models with images want content in parts
        self.shape = probe(self.apply)
        self._by_hand = form != "auto" and not self._shows_calls_in(self.form)
        if self._by_hand:
            own_role = FAMILIES[self.form].result is None and shows_result_of_text(self.apply)
            self.shape = replace(self.shape, tools=False, calls="none", tool_role=own_role)
        elif not self.shape.tools and self.shape.calls == "none" and not FAMILIES[self.form].prompted:
            self.form = "hermes"  # neither tools nor calls are the template's own: the most widely known format

    @property
    def notes(self) -> tuple[str, ...]:
        """What the template lacks and how it is made up for."""
        shape, hand = self.shape, self._by_hand
        lacks = {
            "it has no system role: the system text opens the first user message": shape.system,
            f"the system text asks for calls in {self.form} format, which is not the template's own": not hand,
            f"it ignores tools: they are described in the system text, in {self.form} format": shape.tools or hand,
            f"it does not render tool calls: they are written as text, in {self.form} format": shape.calls != "none" or hand,
            "it has no tool role: results are given in user messages": shape.tool_role or hand,
            "it takes no two user messages in a row: they are joined": not shape.alternate,
            "it does not know reasoning: it is kept in the text, in <think> tags": shape.reasoning,
        }
        return tuple(text for text, has in lacks.items() if not has)

    @property
    def one_call(self) -> bool:
        """A turn holds one call: the token that ends it ends the turn."""
        return FAMILIES[self.form].one_call

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool) -> Rendered:
        """The text of a conversation; with `prompt`, up to where the assistant speaks next. Raises UsageError."""
        plain = [_plain(message) for message in messages]
        specs = [spec.to_dict() for spec in tools]
        separator = self._encoder.separator([plain, specs])
        plain, specs = self._encoder.guard(plain, separator), self._encoder.guard(specs, separator)
        adapted = self._adapt(plain, specs)
        return Rendered(text=self.apply(adapted, specs if self.shape.tools else [], prompt), separator=separator)

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

    def _shows_calls_in(self, form: ToolFormat) -> bool:
        """Are the calls that the template writes read in this format?"""
        found = parse_calls(form, shown_call(self.apply, self.shape))
        return not found.error and [(call.name, call.arguments) for call in found.calls] == [PROBE_CALL]

    def _adapt(self, messages: Dicts, tools: Dicts) -> Dicts:
        shape = self.shape
        if self.one_call and shape.calls != "none":
            messages = _one_call_each(messages)
        out = [self._assistant(m) if m["role"] == "assistant" else dict(m) for m in messages]
        if tools and not shape.tools:
            out = _add_system(out, write_tools(self.form, tools))
        if not shape.tool_role:
            out = _results_as_user(out, self.form)
        if not shape.system:
            out = _system_as_user(out)
        if shape.ids != "any":
            _change_ids(out, _nine if shape.ids == "nine" else _with_name)
        return _merge_users(out) if shape.alternate else out

    def _assistant(self, message: dict[str, Any]) -> dict[str, Any]:
        out = dict(message)
        reasoning = out.get("reasoning_content")
        calls = out.get("tool_calls")
        if reasoning and self.shape.reasoning:
            if calls and out["content"] and not self.shape.words:
                reasoning, out["content"] = f"{reasoning}\n\n{out['content']}", ""
            out |= dict.fromkeys(REASONING, reasoning)
        elif reasoning:
            del out["reasoning_content"]
            out["content"] = f"<think>\n{reasoning}\n</think>\n\n{out['content']}"
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


def _one_call_each(messages: Dicts) -> Dicts:
    """A message of several calls as one for each, followed by its result."""
    out: Dicts = []
    waiting: Dicts = []
    for message in messages:
        out += _taken(waiting, str(message.get("tool_call_id"))) if message["role"] == "tool" else _taken(waiting)
        calls = message.get("tool_calls") or []
        if len(calls) > 1:
            waiting = [{**message, "content": "", "tool_calls": [call]} for call in calls]
            waiting[0]["content"] = message["content"]
            out += _taken(waiting, str(calls[0]["id"]))
        else:
            out.append(message)
    return out + waiting


def _taken(waiting: Dicts, call_id: str = "") -> Dicts:
    """Takes out of `waiting` what comes up to the message with this call, or all that is left where no result answers it."""
    ids = [str(message["tool_calls"][0]["id"]) for message in waiting]
    count = ids.index(call_id) + 1 if call_id in ids else 0 if call_id else len(waiting)
    taken, waiting[:count] = waiting[:count], []
    return taken


def _change_ids(messages: Dicts, change: Callable[[str, str], str]) -> None:
    """Other ids, the same for a call and its result. `change` makes one of an id and the function's name."""
    made: dict[str, str] = {}
    for message in messages:
        if message.get("tool_calls"):
            made = {call["id"]: change(call["id"], call["function"]["name"]) for call in message["tool_calls"]}
            message["tool_calls"] = [{**call, "id": made[call["id"]]} for call in message["tool_calls"]]
        if "tool_call_id" in message:
            given = message["tool_call_id"]
            message["tool_call_id"] = made.get(given) or change(given, message.get("name") or "tool")


def _nine(call_id: str, name: str) -> str:
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _with_name(call_id: str, name: str) -> str:
    """The number is the one that the id ends in: a call's place in the conversation is not known where one is extended."""
    if re.fullmatch(rf"functions\.{re.escape(name)}:\d+", call_id):
        return call_id
    number = re.search(r"\d*\Z", call_id)
    return f"functions.{name}:{int(number[0]) if number and number[0] else 0}"
