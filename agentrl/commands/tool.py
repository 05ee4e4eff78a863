"""`agentrl tool list | info | call`: what tools there are, what a model is told of one, and one call of it by hand."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from agentrl import registry
from agentrl.commands.arguments import Parser
from agentrl.commands.sandbox_options import parse_options
from agentrl.env import Env
from agentrl.errors import UsageError, nearest
from agentrl.keys import first_sentence
from agentrl.mcp import mcp
from agentrl.messages import Image, ToolCall
from agentrl.sandbox import SandboxSpec
from agentrl.tool import ToolBox, ToolResult, ToolSpec
from agentrl.tool_schema import usage
from agentrl.tool_source import check_settings, marked, use
from agentrl.toolbox import toolbox

ACTIONS = ("list", "info", "call")

EPILOG = """examples:
  agentrl tool list
  agentrl tool info calculator
  agentrl tool call calculator '{"expression": "2**10"}'
  agentrl tool call shell '{"command": "uname -a"}'                          in a sandbox
  agentrl tool call search '{"query": "tea"}' --option corpus=facts.jsonl
  agentrl tool call files '{"path": "."}' --tool view_file                   where a name has several tools
  agentrl tool info my_tools.py:Notes                                        your own
  agentrl tool info --mcp 'python server.py'                                 those of an MCP server; or --mcp http://...
  agentrl tool call add '{"a": 1}' --mcp 'python server.py'"""


class Alone(Env):
    """Stands in for the environment of a tool that is called by hand."""

    sandbox = SandboxSpec()


def run(argv: Sequence[str]) -> int:
    """Exit code 1 for a call that is answered with an error."""
    args = _parse(argv)
    if args.action == "list":
        print(listing())
        return 0
    if args.name is None and args.mcp is None:
        raise UsageError(f"agentrl tool {args.action} needs a name; {nearest('', registry.names('tool'))}")
    if args.action == "info":
        print(describe(args))
        return 0
    result = asyncio.run(call(args))
    for part in result.content:
        print(f"[image, {part.width} x {part.height}]" if isinstance(part, Image) else part.text)
    return int(result.is_error)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("agentrl tool", "Lists, describes and calls tools.", EPILOG)
    parser.add_argument("action", help="list | info | call")
    parser.add_argument("name", nargs="?", help="a bundled or installed name, module:name, or path/to/file.py:name")
    parser.add_argument("arguments", nargs="?", help="of call: a JSON object (default: {})")
    parser.add_argument("--tool", metavar="NAME", help="of call: which one, where the name stands for several")
    parser.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[], help="a setting, as of rl.use; may be repeated"
    )
    parser.add_argument("--mcp", metavar="COMMAND|URL", help="an MCP server; the name is then that of one of its tools")
    parser.add_argument("--sandbox", default="local", metavar="BACKEND", help="where code runs (default: local)")
    parser.add_argument("--json", action="store_true", help="of info: the schemas, as a model's endpoint gets them")
    args = parser.parse(argv)
    if args.action not in ACTIONS:
        raise UsageError(f"there is no 'agentrl tool {args.action}'; {nearest(args.action, ACTIONS)}")
    return args


def listing() -> str:
    """One line for each registered tool. One that cannot be loaded says why instead of failing the list."""
    lines = []
    for name, target in sorted(registry.names("tool").items()):
        try:
            about = first_sentence(inspect.getdoc(registry.find("tool", name)) or "no description")
        except (ImportError, UsageError) as error:
            about = f"cannot be loaded: {error}"
        lines.append(f"{name:12} {about}  ({target})")
    own = "your own: a function, or a class with methods marked @rl.tool, as module:name or path/to/file.py:name"
    return "\n".join([*lines, "", f"{own}; agentrl tool info NAME says more"])


def describe(args: argparse.Namespace) -> str:
    """What a model is told, and for what takes settings, which. Raises UsageError."""
    found: Any = registry.find("tool", args.name) if args.name and not args.mcp else None
    head = _settings(args.name, found) if inspect.isclass(found) else []
    if head and not marked(found) and not args.option:
        return "\n".join(head)  # which tools it has depends on what it is given
    specs = _box(args).specs
    if args.mcp and args.name:
        specs = tuple(spec for spec in specs if spec.name == _known(args.name, specs))
    if args.json:
        return json.dumps([spec.to_dict() for spec in specs], indent=2)
    return "\n".join([*head, *(line for spec in specs for line in _told(spec))])


async def call(args: argparse.Namespace) -> ToolResult:
    """Raises UsageError, and what a tool's crash raises."""
    arguments = _arguments(args.arguments)
    box = _box(args)
    name = _known(args.name, box.specs) if args.mcp else _one(args.tool, box.specs)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(box.aclose)
        context: dict[str, Any] = {"env": Alone(), "sandbox": None}
        if "sandbox" in box.asks(name):
            pool = await stack.enter_async_context(await registry.find("sandbox", args.sandbox).open(SandboxSpec(), 1))
            context["sandbox"] = await stack.enter_async_context(await pool.acquire())
        ((_, result),) = await box.run([ToolCall(id="call", name=name, arguments=arguments)], context)
    return result


def _box(args: argparse.Namespace) -> ToolBox:
    options = parse_options(args.option)
    env = Alone()
    if args.mcp:
        check_settings(mcp, {"command": args.mcp, **options})
        env.tools = [mcp(url=args.mcp, **options) if "://" in args.mcp else mcp(args.mcp, **options)]
    else:
        env.tools = [use(args.name, **options) if options else args.name]
    return toolbox(env)


def _one(wanted: str | None, specs: Sequence[ToolSpec]) -> str:
    if wanted is None and len(specs) == 1:
        return specs[0].name
    if wanted is None:
        raise UsageError(f"this name stands for several tools; say which with --tool: {', '.join(spec.name for spec in specs)}")
    return _known(wanted, specs)


def _known(name: str | None, specs: Sequence[ToolSpec]) -> str:
    names = [spec.name for spec in specs]
    if name not in names:
        raise UsageError(f"there is no tool {name!r}; {nearest(name or '', names)}")
    return str(name)


def _arguments(text: str | None) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f'the arguments are no JSON: {error}; write them as in \'{{"query": "tea"}}\'') from error
    if not isinstance(value, dict):
        raise UsageError(f'the arguments must be a JSON object, as in \'{{"query": "tea"}}\', not {text}')
    return value


def _settings(name: str, cls: Any) -> list[str]:
    parameters = [p for p in inspect.signature(cls).parameters.values() if p.name not in ("env", "sandbox") or name == "mcp"]
    shown = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
    return [inspect.getdoc(cls) or "", "", *([f"settings: {shown}", ""] if shown else [])]


def _told(spec: ToolSpec) -> list[str]:
    limits = f"{spec.timeout:g} s, {spec.max_output} characters" + (", may run beside others" if spec.parallel else "")
    properties = spec.parameters.get("properties", {})
    lines = [f"  {name}: {p['description']}" for name, p in properties.items() if isinstance(p, dict) and "description" in p]
    return [
        f"{spec.name}({usage(spec.parameters).replace('no arguments', '')})",
        f"  {spec.description}",
        *lines,
        f"  [{limits}]",
        "",
    ]
