"""An MCP server for tests, written with the official package: `python mcp_server.py` on its standard streams, or
`python mcp_server.py --http PORT`. What it remembers dies with it, so that a test can tell one process from another."""

from __future__ import annotations

import base64
import io
import os
import sys

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent, TextContent, ToolAnnotations

server = MCPServer("lines", log_level="ERROR")
lines: list[str] = []


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int = 1) -> int:
    """Adds two whole numbers."""
    return a + b


@server.tool()
def remember(line: str) -> str:
    """Keeps a line."""
    lines.append(line)
    return f"{len(lines)} kept"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def recall() -> str:
    """All lines that were kept."""
    return "\n".join(lines)


@server.tool(name="dotted.name")
def dotted() -> str:
    """Has a name that models cannot call."""
    return "dotted"


@server.tool()
def fails() -> str:
    """Fails."""
    raise ToolError("no such order")


@server.tool()
async def slow() -> str:
    """Never comes back."""
    await anyio.sleep_forever()
    return ""


@server.tool()
def die(code: int = 3) -> str:
    """Ends the server."""
    print("the disk is on fire", file=sys.stderr, flush=True)
    os._exit(code)


@server.tool()
def environment(name: str) -> str:
    """A variable of the server's environment; PID is its process."""
    return str(os.getpid()) if name == "PID" else os.environ.get(name, "not set")


@server.tool(structured_output=False)
def mixed() -> list[TextContent | ImageContent]:
    """A text and a picture."""
    return [
        TextContent(type="text", text="a red dot"),
        ImageContent(type="image", data=_red_dot(), mime_type="image/png"),
    ]


def _red_dot() -> str:
    import PIL.Image

    buffer = io.BytesIO()
    PIL.Image.new("RGB", (2, 3), "red").save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[sys.argv.index("--http") + 1]))
    else:
        server.run()
