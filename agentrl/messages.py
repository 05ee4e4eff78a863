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
from typing import Any, Literal, TypeVar, overload

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
        import PIL.Image

        if isinstance(value, bytes):
            value = PIL.Image.open(io.BytesIO(value))
        elif hasattr(value, "__array_interface__") and not isinstance(value, PIL.Image.Image):
            value = PIL.Image.fromarray(value)
        if not isinstance(value, PIL.Image.Image):
            raise TypeError(f"an image is a PIL image, a uint8 array or encoded bytes, not {type(value).__name__}")
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
        if isinstance(self.content, str):
            object.__setattr__(self, "content", (Text(text=self.content),))
        else:
            object.__setattr__(self, "content", tuple(self.content))
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
        """Text messages only: images live in the media store, so a dict alone cannot restore them."""
        content = data.get("content") or ""
        if not isinstance(content, str):
            content = "".join(part["text"] for part in content if part["type"] == "text")
        calls = [
            ToolCall(
                id=c.get("id") or f"call_{i}", name=c["function"]["name"], arguments=_arguments(c["function"]["arguments"])
            )
            for i, c in enumerate(data.get("tool_calls") or ())
        ]
        return cls(
            role=data["role"],
            content=(Text(text=content),) if content else (),
            reasoning=data.get("reasoning_content") or "",
            tool_calls=tuple(calls),
            tool_call_id=data.get("tool_call_id"),
            name=data.get("name"),
        )


def _arguments(value: Any) -> Mapping[str, Any]:
    return dict(json.loads(value) if isinstance(value, str) else value)


_FENCE = re.compile(r"```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:\n)?```", re.DOTALL)
_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


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
        return _THINK.sub("", self.text).strip()

    @overload
    def parse(self, form: type[T]) -> T: ...
    @overload
    def parse(self, form: str | re.Pattern[str]) -> str: ...
    @overload
    def parse(self, form: Callable[[str], T]) -> T: ...
    def parse(self, form: Any) -> Any:
        """Reads the answer as an int, a float, a str, a regex's first group, or whatever a callable makes of it.

        Numbers: the last one in the text counts. Raises ParseError with a text the model can learn from.
        """
        text = self.answer_text
        if form is str:
            return text
        if form in (int, float):
            found = re.findall(r"-?\d+(?:\.\d+)?" if form is float else r"-?\d+", text)
            if not found:
                raise ParseError(f"Your answer must hold {'a whole number' if form is int else 'a number'}.")
            return form(found[-1])
        if isinstance(form, (str, re.Pattern)):
            match = re.search(form, text, re.DOTALL)
            if match is None:
                pattern = form if isinstance(form, str) else form.pattern
                raise ParseError(f"Your answer must match {pattern!r}.")
            return str(match.group(1) if match.re.groups else match.group(0))
        try:
            return form(text)
        except ParseError:
            raise
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ParseError(f"Your answer could not be read: {error}") from error

    def word(self, *choices: str) -> str:
        """The last of `choices` that stands in the text as a word (any case); without choices, the last word."""
        words: list[str] = re.findall(r"[\w-]+", self.answer_text)
        if not choices:
            if not words:
                raise ParseError("Your answer is empty.")
            return words[-1]
        lowered = {choice.lower(): choice for choice in choices}
        for word in reversed(words):
            if word.lower() in lowered:
                return lowered[word.lower()]
        raise ParseError(f"Your answer must hold one of: {', '.join(choices)}.")

    def tag(self, name: str) -> str:
        """The content of the last complete <name>...</name>."""
        found = re.findall(rf"<{re.escape(name)}>(.*?)</{re.escape(name)}>", self.answer_text, re.DOTALL)
        if not found:
            raise ParseError(f"Your answer must stand in <{name}>...</{name}>.")
        return str(found[-1]).strip()

    def code(self, *languages: str) -> str:
        """The last complete fenced code block (of one of `languages`, if named; an unnamed fence counts for any)."""
        blocks = [(lang.lower(), body) for lang, body in _FENCE.findall(self.answer_text)]
        wanted = {language.lower() for language in languages} | {""}
        blocks = [b for b in blocks if not languages or b[0] in wanted]
        if not blocks:
            fence = f"```{languages[0] if languages else ''}\n...\n```"
            raise ParseError(f"Your answer must hold a complete code block:\n{fence}")
        return str(blocks[-1][1])

    def message(self) -> Message:
        """The action as the assistant's message of the conversation."""
        content = (Text(text=self.text),) if self.text else ()
        return Message(role="assistant", content=content, reasoning=self.reasoning, tool_calls=self.tool_calls)


def as_messages(value: Any, role: Role = "user") -> tuple[Message, ...]:
    """What an environment may return as an observation, as messages: str, image, Message, dict, or a list of these.

    A list of strings and images becomes one message with several parts. None and "" become no message.
    Raises TypeError for anything else.

    >>> as_messages("Higher.")[0].role
    'user'
    """
    if value is None or (isinstance(value, str) and not value):
        return ()
    if isinstance(value, Message):
        return (value,)
    if isinstance(value, Mapping):
        return (Message.from_dict(value),)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable) or hasattr(value, "__array_interface__"):
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
