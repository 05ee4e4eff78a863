"""What is said: messages, their parts, tool calls, and the action an agent takes.

Everything an environment's author sees. Tokens never appear here; `agentrl.renderer` turns messages into tokens and back.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args, overload

from agentrl.answers import canonical, code_blocks, last_of, numbers, whole_numbers
from agentrl.errors import MissingExtra

Role = Literal["system", "user", "assistant", "tool"]
T = TypeVar("T")


class ParseError(ValueError):
    """An action does not have the asked form. The episode goes on: the text becomes the next observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture, held as PNG bytes and named by its content.

    >>> Image.of(b"...png bytes...")            # doctest: +SKIP
    Image(sha256='9f86d0...', width=64, height=64)
    """

    png: bytes = field(repr=False)
    sha256: str
    width: int
    height: int

    @classmethod
    def of(cls, value: Any) -> Image:
        """From a PIL image, a numpy array [height, width, 3] of uint8, or encoded bytes. Raises TypeError otherwise."""
        module = type(value).__module__.partition(".")[0]
        shaped = getattr(value, "ndim", 0) in (2, 3) and hasattr(value, "__array_interface__")
        if not (isinstance(value, bytes) or shaped or module == "PIL"):
            raise TypeError(f"{value!r:.80} is neither text nor an image (a PIL image, a uint8 array or encoded bytes)")
        try:
            import PIL.Image
        except ModuleNotFoundError:
            raise MissingExtra("pillow", extra="images") from None
        if isinstance(value, bytes):
            value = PIL.Image.open(io.BytesIO(value))
        elif shaped:
            value = PIL.Image.fromarray(value)
        buffer = io.BytesIO()
        value.convert("RGB").save(buffer, format="PNG")
        png = buffer.getvalue()
        return cls(png=png, sha256=hashlib.sha256(png).hexdigest(), width=value.width, height=value.height)


Part = Text | Image


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A request of the model to run a tool.

    >>> ToolCall(id="call_0", name="python", arguments={"code": "print(1+1)"}).arguments["code"]
    'print(1+1)'
    """

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    >>> Message(role="user", content="What is 2 + 2?").text
    'What is 2 + 2?'
    """

    role: Role
    content: tuple[Part, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ValueError(f"a message's role is one of {', '.join(get_args(Role))}, not {self.role!r}")
        content = (self.content,) if isinstance(self.content, str) else self.content or ()
        object.__setattr__(self, "content", tuple(_part(part) for part in content))
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls))

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.content if isinstance(part, Image))

    def to_dict(self) -> dict[str, Any]:
        """The form that Hugging Face chat templates and OpenAI-compatible endpoints take."""
        out: dict[str, Any] = {"role": self.role}
        if self.images:
            out["content"] = [
                {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": "image", "image": part.sha256}
                for part in self.content
            ]
        else:
            out["content"] = self.text
        if self.reasoning:
            out["reasoning_content"] = self.reasoning
        if self.tool_calls:
            out["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            out["name"] = self.name
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Text messages only. Raises ValueError for one with images (they live in the media store, a dict cannot restore
        them), for one without a role, and for calls that cannot be read."""
        if "role" not in data:
            raise ValueError(f"a message needs a role; this one has only {', '.join(map(repr, data)) or 'nothing'}")
        content = data.get("content") or ""
        return cls(
            role=data["role"],
            content=(Text(text=text),) if (text := content if isinstance(content, str) else _joined(content)) else (),
            reasoning=data.get("reasoning_content") or "",
            tool_calls=tuple(_call(call, i) for i, call in enumerate(data.get("tool_calls") or ())),
            tool_call_id=data.get("tool_call_id"),
            name=data.get("name"),
        )


def _joined(parts: Iterable[Mapping[str, Any]]) -> str:
    texts = []
    for part in parts:
        if part.get("type") != "text":
            raise ValueError(f"a message with a part of type {part.get('type')!r} cannot be made from a dict, only text can")
        texts.append(part["text"])
    return "".join(texts)


def _call(data: Mapping[str, Any], index: int) -> ToolCall:
    function = data.get("function", data)
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of a call of {function['name']!r} are no JSON object: {arguments!r}")
    return ToolCall(id=data.get("id") or f"call_{index}", name=function["name"], arguments=dict(arguments))


_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, RecursionError)
"""What a form may raise for a text that is not of it (SyntaxError: ast.literal_eval). Anything else is a bug of the form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What the agent did in one turn: the assistant's message, taken apart.

    `text` has the reasoning removed; `raw` is everything that was sampled, decoded.

    >>> Action(text="The answer is 42.").parse(int)
    42
    >>> Action(text="I go <move>left</move>").tag("move")
    'left'
    """

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    raw: str = ""
    parse_error: str = ""
    """Why a tool call in the text could not be read; empty when all could."""

    @property
    def answer_text(self) -> str:
        """The text without any reasoning left in it, also when a template did not separate it."""
        return _THINK.sub("", self.text).rpartition("</think>")[2].strip()

    @overload
    def parse(self, form: type[T]) -> T: ...
    @overload
    def parse(self, form: str | re.Pattern[str]) -> str: ...
    @overload
    def parse(self, form: Callable[[str], T]) -> T: ...
    def parse(self, form: Any) -> Any:
        """Reads the answer as an int, a float, a bool (yes, no), a str, a regex's first group, or what a callable makes of it.

        Numbers: the last one in the text counts (int: the last whole one). Raises ParseError with a text the model can
        learn from.
        """
        text = self.answer_text
        if form is str:
            return text
        if form is bool:
            return self.word("yes", "no", "true", "false") in ("yes", "true")
        if form in (int, float):
            found: list[Any] = whole_numbers(text) if form is int else numbers(text)
            if not found:
                raise ParseError(f"Your answer must hold {'a whole number' if form is int else 'a number'}.")
            return found[-1]
        if isinstance(form, (str, re.Pattern)):
            match = re.search(form, text, re.DOTALL) if isinstance(form, str) else form.search(text)
            if match is None:
                pattern = form if isinstance(form, str) else form.pattern
                raise ParseError(f"Your answer must match {pattern!r}.")
            return str(match.group(1) if match.re.groups else match.group(0))
        if not callable(form):  # a fault of the author's, not of the answer
            raise TypeError(f"parse takes int, float, bool, str, a pattern or a function, not {form!r:.60}")
        try:
            return form(text)
        except ParseError:
            raise
        except _UNREADABLE as error:
            raise ParseError(f"Your answer could not be read: {error}") from error

    def word(self, *choices: str) -> str:
        """The last of `choices` that stands in the text as a word (any case); without choices, the last word."""
        text = self.answer_text
        if choices:
            found = last_of(text, choices)
            if found is None:
                raise ParseError(f"Your answer must hold one of: {', '.join(choices)}.")
            return found
        words: list[str] = re.findall(r"[\w-]+", text)
        if not words:
            raise ParseError("Your answer is empty.")
        return words[-1]

    def tag(self, name: str) -> str:
        """The content of the last complete <name>...</name>."""
        found = re.findall(rf"<{re.escape(name)}>(.*?)</{re.escape(name)}>", self.answer_text, re.DOTALL)
        if not found:
            raise ParseError(f"Your answer must stand in <{name}>...</{name}>.")
        return str(found[-1]).strip()

    def code(self, *languages: str) -> str:
        """The last complete fenced code block (of one of `languages`, if named; an unnamed fence counts for any)."""
        wanted = {canonical(language) for language in languages} | {""}
        blocks = [body for language, body in code_blocks(self.answer_text) if not languages or language in wanted]
        if not blocks:
            fence = f"```{languages[0] if languages else ''}\n...\n```"
            raise ParseError(f"Your answer must hold a complete code block:\n{fence}")
        return blocks[-1]

    def message(self) -> Message:
        """The action as the assistant's message of the conversation."""
        content = (Text(text=self.text),) if self.text else ()
        return Message(role="assistant", content=content, reasoning=self.reasoning, tool_calls=self.tool_calls)


def as_messages(value: Any, role: Role = "user") -> tuple[Message, ...]:
    """What an environment may return as an observation, as messages: str, image, Message, dict, or a list of these.

    A list of strings and images becomes one message with several parts. None and "" become no message.
    Raises TypeError for anything else, ValueError for a dict that is no message.

    >>> as_messages("Higher.")[0].role
    'user'
    """
    if value is None or (isinstance(value, str) and not value):
        return ()
    if isinstance(value, Message):
        return (value,)
    if isinstance(value, Mapping):
        return (Message.from_dict(value),)
    if isinstance(value, (str, bytes, Text, Image)) or not isinstance(value, Iterable) or hasattr(value, "__array_interface__"):
        return (Message(role=role, content=(_part(value),)),)
    out: list[Message] = []
    parts: list[Part] = []
    for item in value:
        if isinstance(item, (Message, Mapping)):
            out.extend(_flush(parts, role))
            out.extend(as_messages(item))
        else:
            parts.append(_part(item))
    return (*out, *_flush(parts, role))


def _flush(parts: list[Part], role: Role) -> list[Message]:
    messages = [Message(role=role, content=tuple(parts))] if parts else []
    parts.clear()
    return messages


def _part(value: Any) -> Part:
    if isinstance(value, (Text, Image)):
        return value
    if isinstance(value, str):
        return Text(text=value)
    return Image.of(value)
