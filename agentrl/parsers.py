"""What a model wrote, taken apart: reasoning, text, tool calls, in the format its family was trained on.

Pure functions of text; nothing here raises for what a model may write. A call that cannot be read stays in the text, and
`Parsed.error` says what is wrong in words the model can learn from.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from agentrl.messages import ToolCall
from agentrl.tool import ToolSpec

ToolFormat = Literal["hermes", "xml", "llama3", "mistral", "deepseek", "glm", "gemma"]
"""xml: Qwen3-Coder, Qwen3.5, Nemotron 3; hermes: other Qwen models and most that are trained on OpenAI-like data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """`text` without the calls that could be read.

    >>> parse_calls("hermes", 'Wait.\\n<tool_call>\\n{"name": "add", "arguments": {"a": 1}}\\n</tool_call>').calls[0].name
    'add'
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    error: str = ""


class _Unreadable(ValueError):
    """A call that has not the asked form."""


def tool_format(template: str, vocabulary: Iterable[str]) -> ToolFormat:
    """The format of the family a chat template and its added tokens belong to; hermes (Qwen, most others) when unknown."""
    tokens = set(vocabulary)
    if "<｜tool▁calls▁begin｜>" in tokens:
        return "deepseek"
    if "[TOOL_CALLS]" in tokens:
        return "mistral"
    if "<arg_key>" in template:
        return "glm"
    if "<tool_call>" in template:
        return "xml" if "<function=" in template else "hermes"
    if "<|python_tag|>" in tokens or "ipython" in template:
        return "llama3"
    return "gemma" if "<start_of_turn>" in tokens else "hermes"


def split_reasoning(text: str, opened: bool = False) -> tuple[str, str]:
    """(reasoning, the rest). `opened`: the generation prompt already wrote <think>. Cut reasoning leaves no rest.

    >>> split_reasoning("<think>\\n1 + 1\\n</think>\\n\\nTwo.")
    ('1 + 1', 'Two.')
    >>> split_reasoning("1 + 1 is", opened=True)
    ('1 + 1 is', '')
    """
    body = text.lstrip()
    if body.startswith("<think>"):
        body, opened = body.removeprefix("<think>"), True
    reasoning, closed, rest = body.partition("</think>")
    if closed and (opened or "<think>" not in reasoning):
        return reasoning.strip("\n"), rest.lstrip("\n")
    return (body.strip("\n"), "") if opened else ("", text)


def parse_calls(form: ToolFormat, text: str, tools: Sequence[ToolSpec] = ()) -> Parsed:
    """Tool calls of `text`; `tools` helps where a format does not write types (GLM) or names (Gemma's positional ones)."""
    finder = _FINDERS[form]
    calls: list[ToolCall] = []
    errors: list[str] = []
    kept: list[str] = []
    last = 0
    for start, stop, read in finder(text, tools):
        try:
            found = [(_name(name), _arguments(arguments), given) for name, arguments, given in read()]
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
            errors.append(str(error) or type(error).__name__)
            continue
        kept.append(text[last:start])
        last = stop
        calls += [ToolCall(id=g or f"call_{len(calls) + i}", name=n, arguments=a) for i, (n, a, g) in enumerate(found)]
    kept.append(text[last:])
    advice = f"Your tool call could not be read: {'; '.join(errors)}. Write it as:\n{_EXAMPLES[form]}" if errors else ""
    return Parsed(text=_join(kept) if calls else text, calls=tuple(calls), error=advice)


def write_calls(form: ToolFormat, calls: Iterable[Mapping[str, Any]]) -> str:
    """Calls ({"name", "arguments"} each) as text, for templates that cannot render them themselves."""
    if form in ("llama3", "gemma"):
        objects = [_json({"name": call["name"], "parameters": call["arguments"]}) for call in calls]
        return "; ".join(objects) if form == "llama3" else "\n".join(["```tool_call", *objects, "```"])
    return "\n".join(f"<tool_call>\n{_json({'name': c['name'], 'arguments': c['arguments']})}\n</tool_call>" for c in calls)


def write_tools(form: ToolFormat, tools: Iterable[Mapping[str, Any]]) -> str:
    """A system text that tells a model of its tools and how to call them, for templates that do not."""
    lines = "\n".join(_json(tool.get("function", tool)) for tool in tools)
    return (
        f"# Tools\n\nYou may call these functions, each described by a JSON schema:\n<tools>\n{lines}\n</tools>\n\n"
        f"To call one, write:\n{_EXAMPLES[form]}"
    )


def write_result(form: ToolFormat, content: str) -> str:
    """A tool's answer inside a user message, for templates without a role for it."""
    return f"```tool_output\n{content}\n```" if form == "gemma" else f"<tool_response>\n{content}\n</tool_response>"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


Call = tuple[Any, Any, str]
"""(name, arguments, the id the model gave it or "")"""
Found = tuple[int, int, Callable[[], list[Call]]]
"""(start, stop, reads the calls that stand there)"""

_EXAMPLES: dict[ToolFormat, str] = {
    "hermes": '<tool_call>\n{"name": "function-name", "arguments": {"argument": "value"}}\n</tool_call>',
    "xml": "<tool_call>\n<function=function-name>\n<parameter=argument>\nvalue\n</parameter>\n</function>\n</tool_call>",
    "llama3": '{"name": "function-name", "parameters": {"argument": "value"}}',
    "mistral": '[TOOL_CALLS] [{"name": "function-name", "arguments": {"argument": "value"}}]',
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>function-name\n"
        '```json\n{"argument": "value"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "glm": "<tool_call>function-name\n<arg_key>argument</arg_key>\n<arg_value>value</arg_value>\n</tool_call>",
    "gemma": '```tool_call\n{"name": "function-name", "parameters": {"argument": "value"}}\n```',
}


def _join(pieces: Sequence[str]) -> str:
    """The text around calls: one newline before a call belongs to the call, as do blanks between and after calls."""
    head, *rest = pieces
    tail = "".join(piece.strip() for piece in rest)
    return head.removesuffix("\n") + (f"\n{tail}" if head.strip() and tail else tail)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Unreadable('"name" must be the name of a function')
    return value.strip()


def _arguments(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = _load(value)
    if not isinstance(value, dict):
        raise _Unreadable("the arguments must be a JSON object")
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # no lone surrogate, no set, no nan gets past here
    except (TypeError, ValueError) as error:
        raise _Unreadable(f"the arguments must be JSON values: {error}") from None
    return value


def _load(text: str) -> Any:
    """JSON; newlines inside strings are let pass, since models write code that way."""
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise _Unreadable(f"invalid JSON at character {error.pos + 1}: {error.msg}") from None


def _calls_in(data: Any) -> list[Call]:
    """Calls of a JSON object, or of a list of them."""
    items = data if isinstance(data, list) else [data]
    out: list[Call] = []
    for item in items:
        if not isinstance(item, dict) or "name" not in item:
            raise _Unreadable('a call is a JSON object with "name" and "arguments"')
        arguments = item.get("arguments", item.get("parameters", {}))
        given = item.get("id")
        out.append((item["name"], {} if arguments is None else arguments, given if isinstance(given, str) else ""))
    return out


def _objects(text: str) -> list[Any]:
    """JSON values one after the other, with blanks, commas or semicolons between them."""
    decoder, out, place = json.JSONDecoder(strict=False), [], 0
    while rest := re.match(r"[\s;,]*", text[place:]):
        place += rest.end()
        if place >= len(text):
            break
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise _Unreadable(f"invalid JSON at character {error.pos + 1}: {error.msg}") from None
        out.append(value)
    return out


def _json_calls(body: str) -> list[Call]:
    return [call for value in _objects(body) for call in _calls_in(value)]


def _tagged(read: Callable[[str, Sequence[ToolSpec]], list[Call]], text: str, tools: Sequence[ToolSpec]) -> Iterator[Found]:
    for match in re.finditer(r"<tool_call>(.*?)(?:</tool_call>|\Z)", text, re.DOTALL):
        yield match.start(), match.end(), partial(read, match.group(1).strip(), tools)


def _hermes_call(body: str, tools: Sequence[ToolSpec]) -> list[Call]:
    return _calls_in(_load(body))


def _xml_call(body: str, tools: Sequence[ToolSpec]) -> list[Call]:
    if body.startswith("{"):
        return _calls_in(_load(body))
    named = re.fullmatch(r"<function=([^>\s]+)>(.*?)</function>", body, re.DOTALL)
    pair = r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>"
    if not named or not re.fullmatch(rf"(?:{pair})*\s*", named.group(2), re.DOTALL):
        raise _Unreadable("a call is a <function=name> that holds a <parameter=name> for each argument")
    return [(named.group(1), _typed(named.group(1), re.findall(pair, named.group(2), re.DOTALL), tools), "")]


def _llama3(text: str, tools: Sequence[ToolSpec]) -> Iterator[Found]:
    tagged = re.search(r"<\|python_tag\|>(.*)", text, re.DOTALL)
    body = tagged.group(1) if tagged else text
    looks_like_call = re.match(r'\s*\{.*"name".*"(parameters|arguments)"', body, re.DOTALL)
    if tagged or looks_like_call:
        start = tagged.start() if tagged else 0
        yield start, len(text), partial(_json_calls, body)


def _mistral(text: str, tools: Sequence[ToolSpec]) -> Iterator[Found]:
    for match in re.finditer(r"\[TOOL_CALLS\](.*?)(?=\[TOOL_CALLS\]|\Z)", text, re.DOTALL):
        body = match.group(1).strip()
        yield match.start(), match.end(), partial(_mistral_calls, body)


def _mistral_calls(body: str) -> list[Call]:
    if body[:1] in ("[", "{"):
        return _calls_in(_load(body))
    named = re.fullmatch(r"([^\[{\s]+)\s*(?:\[CALL_ID\]([^\[]*))?(?:\[ARGS\])?\s*(\{.*\})", body, re.DOTALL)
    if not named:
        raise _Unreadable("after [TOOL_CALLS] a JSON list of calls is expected")
    return [(named.group(1), named.group(3), named.group(2) or "")]


def _deepseek(text: str, tools: Sequence[ToolSpec]) -> Iterator[Found]:
    group = r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>(.*?)(?:<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?|\Z)"
    for match in re.finditer(group, text, re.DOTALL):
        body = match.group(1)
        yield match.start(), match.end(), partial(_deepseek_call, body)


def _deepseek_call(body: str) -> list[Call]:
    head, separator, tail = body.partition("<｜tool▁sep｜>")
    if not separator:
        raise _Unreadable("<｜tool▁sep｜> is missing")
    if tail.lstrip().startswith("{"):
        return [(head, tail, "")]
    name, _, rest = tail.partition("\n")
    fenced = re.fullmatch(r"\s*```(?:json)?\s*(.*?)\s*```\s*", rest, re.DOTALL)
    if not fenced:
        raise _Unreadable("the arguments must stand in a ```json block")
    return [(name, fenced.group(1), "")]


def _glm_call(body: str, tools: Sequence[ToolSpec]) -> list[Call]:
    if body.startswith("{"):
        return _calls_in(_load(body))
    name = re.split(r"[\s<]", body, maxsplit=1)[0]
    rest = body[len(name) :]
    pair = r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>"
    if not re.fullmatch(rf"(?:{pair})*\s*", rest, re.DOTALL):
        raise _Unreadable("each argument is an <arg_key> followed by an <arg_value>")
    return [(name, _typed(name, re.findall(pair, rest, re.DOTALL), tools), "")]


def _typed(name: str, pairs: Iterable[tuple[str, str]], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Arguments from a format that writes texts bare and all else as JSON: the schema tells which is which."""
    types = _property_types(name, tools)
    return {key.strip(): _value(value, types.get(key.strip())) for key, value in pairs}


def _value(value: str, kind: Any) -> Any:
    """Without a schema, what parses as JSON is JSON."""
    if kind == "string":
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _property_types(name: str, tools: Sequence[ToolSpec]) -> dict[str, Any]:
    for spec in tools:
        if spec.name == name:
            return {key: schema.get("type") for key, schema in spec.parameters.get("properties", {}).items()}
    return {}


def _gemma(text: str, tools: Sequence[ToolSpec]) -> Iterator[Found]:
    fences = list(re.finditer(r"```(tool_code|tool_call|json)[ \t]*\n(.*?)\n?[ \t]*```", text, re.DOTALL))
    for match in fences:
        kind, body = match.group(1), match.group(2).strip()
        if kind == "json" and not re.match(r'[\[{].*"name".*"(parameters|arguments)"', body, re.DOTALL):
            continue
        yield match.start(), match.end(), partial(_gemma_calls, body, tools)
    bare = text.strip()
    json_like = re.match(r'[\[{].*"name".*"(parameters|arguments)"', bare, re.DOTALL)
    python_like = re.fullmatch(r"\[\s*\w+\(.*\)\s*\]", bare, re.DOTALL)
    if not fences and (json_like or python_like):
        yield 0, len(text), partial(_gemma_calls, bare, tools)


def _gemma_calls(body: str, tools: Sequence[ToolSpec]) -> list[Call]:
    if re.match(r"\{|\[\s*\{", body):
        return _json_calls(body)
    nodes: list[ast.expr] = []
    for statement in ast.parse(body).body:
        if not isinstance(statement, ast.Expr):
            raise _Unreadable("only calls may stand in a tool_code block")
        nodes += statement.value.elts if isinstance(statement.value, ast.List) else [statement.value]
    return [_python_call(node, tools) for node in nodes]


def _python_call(node: ast.expr, tools: Sequence[ToolSpec]) -> Call:
    """`f(a=1)` or `print(f(a=1))`, values literal; positional ones are named by the tool's schema."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _Unreadable("a call has the form name(argument=value)")
    names = list(_property_types(node.func.id, tools))
    if len(node.args) > len(names) or any(keyword.arg is None for keyword in node.keywords):
        raise _Unreadable("name each argument, as in name(argument=value)")
    arguments = {name: ast.literal_eval(value) for name, value in zip(names, node.args, strict=False)}
    arguments |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return (node.func.id, arguments, "")


_FINDERS: dict[ToolFormat, Callable[[str, Sequence[ToolSpec]], Iterator[Found]]] = {
    "hermes": partial(_tagged, _hermes_call),
    "xml": partial(_tagged, _xml_call),
    "llama3": _llama3,
    "mistral": _mistral,
    "deepseek": _deepseek,
    "glm": partial(_tagged, _glm_call),
    "gemma": _gemma,
}
