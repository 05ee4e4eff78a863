"""A chat template that a person can read: one id per character, five role marks. The double of `agentrl.renderer`.

<system> text <end> <user> text <end> <assistant> ... with ids 2, 1, 3, 1, 4. A tool call is written `<call>{json}</call>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agentrl.messages import Action, Message, ToolCall
from agentrl.renderer import Fork
from agentrl.tool import ToolSpec
from agentrl.transcript import Transcript

END, SYSTEM, USER, ASSISTANT, TOOL = 1, 2, 3, 4, 5
ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": TOOL}
CALL = re.compile(r"<call>(.*?)</call>", re.DOTALL)


def encode(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


class CharRenderer:
    """`fork_at`: the number of messages at which the template pretends to rewrite history."""

    stop_ids = (END,)
    banned_ids = (SYSTEM, USER, TOOL)

    def __init__(self, fork_at: int | None = None) -> None:
        self.fork_at = fork_at

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        body = tuple(i for m in messages for i in (ROLES[m.role], *encode(_spoken(m)), END))
        return (*body, ASSISTANT)

    def extend(
        self, transcript: Transcript, messages: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> tuple[int, ...] | Fork:
        if self.fork_at is not None and len(messages) == self.fork_at:
            return Fork(ids=self.render([*messages, *new], tools), reason="the test asked for it")
        closing = () if transcript.ids[-1] == END else (END,)
        return (*closing, *self.render(new))

    def parse(self, ids: Sequence[int], tools: Sequence[ToolSpec] | None = None) -> Action:
        raw = "".join(chr(i) for i in ids if i > ASSISTANT)
        if tools is not None and not tools:
            return Action(text=raw, raw=raw)
        calls, problem = [], ""
        for index, body in enumerate(CALL.findall(raw)):
            try:
                data = json.loads(body)
                calls.append(ToolCall(id=f"call_{index}", name=data["name"], arguments=data["arguments"]))
            except (ValueError, KeyError) as error:
                problem = f"This tool call could not be read: {error}"
        return Action(text=CALL.sub("", raw), tool_calls=tuple(calls), raw=raw, parse_error=problem)


def _spoken(message: Message) -> str:
    calls = [json.dumps({"name": c.name, "arguments": dict(c.arguments)}) for c in message.tool_calls]
    return message.text + "".join(f"<call>{call}</call>" for call in calls)
