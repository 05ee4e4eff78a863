"""A person, or a script, in the model's seat: an engine and a renderer that work on characters instead of tokens.

Both stand in for the real ones, so that an episode played by a person runs through the same loop, tools, limits and
rewards as one played by a model. An id is a character's code point; nothing here needs torch or a tokenizer.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from agentrl.engine import Completion, GenerateRequest
from agentrl.messages import Action, Message, ToolCall
from agentrl.threads import invoke
from agentrl.tool import ToolSpec
from agentrl.transcript import Transcript

END = 3  # the control character "end of text": no person types it
CALL = re.compile(r"^/call[ \t]+(\w+)[ \t]*(.*)$", re.MULTILINE)
CONTEXT = 1 << 22
"""Characters of a conversation; a person is not stopped by a context length."""

Answer = Callable[[Sequence[Message]], "str | Awaitable[str]"]
"""What stands in for the model: the conversation so far -> what it says."""


class PlainRenderer:
    """Messages as readable text, one code point for each id. Duck type of `agentrl.renderer.Renderer`.

    >>> r = PlainRenderer()
    >>> bytes(r.render([Message(role="user", content="Hi")])).decode()
    '[user]\\nHi\\n\\n'
    """

    stop_ids = (END,)
    banned_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.tools: tuple[ToolSpec, ...] = ()
        """Of the agent that was shown something last."""
        self._shown: dict[tuple[int, ...], tuple[Message, ...]] = {}

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        self.tools = tuple(tools)
        head = "".join(show_tool(spec) for spec in tools)
        ids = encode(head + "".join(show(m) for m in messages))
        self._shown[ids] = tuple(messages)
        return ids

    def extend(
        self, transcript: Transcript, messages: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> tuple[int, ...]:
        ids = encode("".join(show(m) for m in new))
        self._shown[transcript.ids + ids] = (*messages, *new)
        return ids

    def conversation(self, prompt: tuple[int, ...]) -> tuple[Message, ...]:
        """What was said up to this prompt, the answer that is being waited for left out. Forgotten when it is asked for."""
        return self._shown.pop(prompt)

    def parse(self, ids: Sequence[int], tools: Sequence[ToolSpec] | None = None) -> Action:
        """`/call NAME {json}` on a line of its own is a tool call; everything else is text."""
        raw = decode(ids)
        calls, errors = [], []
        for number, (name, arguments) in enumerate(CALL.findall(raw)):
            try:
                calls.append(ToolCall(id=f"call_{number}", name=name, arguments=_object(arguments or "{}")))
            except ValueError as error:
                errors.append(f"Your call of {name} could not be read: {error}")
        return Action(text=CALL.sub("", raw).strip(), tool_calls=tuple(calls), raw=raw, parse_error=" ".join(errors))


class Person:
    """The engine behind which `answer` sits. Duck type of the part of `agentrl.engine.Engine` that an episode needs.

    `others`: who answers for the other agents of an environment, by name; `answer` does where none is given.
    """

    max_context = CONTEXT

    def __init__(self, answer: Answer, renderer: PlainRenderer, others: Mapping[str, Answer] = MappingProxyType({})) -> None:
        self._answer, self._renderer, self._others = answer, renderer, others

    async def generate(self, request: GenerateRequest) -> Completion:
        other = request.session_id.partition("/")[2]
        text = await invoke(self._others.get(other, self._answer), self._renderer.conversation(request.prompt_ids))
        ids = (*encode(text), END)
        return Completion(ids=ids, logprobs=(0.0,) * len(ids), versions=(0,) * len(ids), finish="stop")


def script(text: str) -> Answer:
    """Says the parts of a text one after the other, divided by lines of `---`; the last one again when they run out."""
    parts = [part.strip("\n") for part in re.split(r"^---\s*$", text, flags=re.MULTILINE)]
    source = itertools.chain(parts, itertools.repeat(parts[-1]))
    return lambda conversation: next(source)


def encode(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def decode(ids: Sequence[int]) -> str:
    return "".join(chr(i) for i in ids if i != END)


def show(message: Message, note: str = "") -> str:
    """A message as a person reads it, with a note beside its role."""
    name = f"{message.role} {message.name}" if message.name else message.role
    pictures = "".join(f"\n<image {p.width}x{p.height}>" for p in message.images)
    head = f"{name}, {note}" if note else name
    return f"[{head}]\n{message.text}{pictures}\n\n"


def show_tool(spec: ToolSpec) -> str:
    """A tool as a person may call it."""
    names = ", ".join(f"{name}: {about.get('type', 'any')}" for name, about in spec.parameters.get("properties", {}).items())
    return f"[tool] /call {spec.name} {{{names}}}   {spec.description}\n"


def _object(text: str) -> dict[str, object]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"arguments are a JSON object, as in {{}}, not {text}")
    return value
