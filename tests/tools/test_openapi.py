"""HTTP APIs as tools, by a description and a server that is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import agentrl as rl
from agentrl.errors import UsageError
from agentrl.messages import ToolCall
from agentrl.tool import ToolBox, ToolCrash, ToolResult
from agentrl.toolbox import toolbox
from agentrl.tools.openapi_spec import operations, read

SPEC = """
openapi: 3.0.3
info: {title: Shop, version: "1"}
servers: [{url: "http://shop.example"}]
paths:
  /orders/{id}:
    parameters:
      - {name: id, in: path, required: true, schema: {type: string}, description: the order's number}
    get:
      operationId: get_order
      summary: One order.
      parameters:
        - {name: field, in: query, schema: {type: array, items: {type: string}}}
        - {name: session, in: cookie, schema: {type: string}}
    delete: {summary: Cancels an order}
  /orders:
    post:
      operationId: new_order
      description: Orders something.
      parameters: [{$ref: "#/components/parameters/key"}]
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: "#/components/schemas/Order"}
  /tags/{id}:
    put:
      operationId: tag
      parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
      requestBody:
        required: true
        content: {application/json: {schema: {type: array, items: {type: string}}}}
components:
  parameters:
    key: {name: X-Key, in: header, required: true, schema: {type: string}}
  schemas:
    Order:
      type: object
      required: [item]
      properties:
        item: {$ref: "#/components/schemas/Item"}
        count: {type: integer, minimum: 0, exclusiveMinimum: true, nullable: true}
    Item:
      type: object
      properties: {name: {type: string}}
      required: [name]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(SPEC)
    return file


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """(its url, what was asked)."""
    asked: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.text()
        asked.append(
            {
                "what": f"{request.method} {request.raw_path}",
                "key": request.headers.get("X-Key"),
                "agent": request.headers.get("X-Agent"),
                "body": json.loads(body) if body else None,
                "cookie": request.cookies.get("seen"),
            }
        )
        if request.path.endswith("/none"):
            raise web.HTTPNotFound(text="no such order")
        if request.path.endswith("/broken"):
            raise web.HTTPBadGateway(text="down")
        response = web.json_response({"ok": True})
        response.set_cookie("seen", "1")
        return response

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", asked
    finally:
        await runner.cleanup()


def box(item: Any) -> ToolBox:
    env = rl.Env()
    env.tools = [item]
    return toolbox(env)


async def say(tools: ToolBox, name: str, /, **arguments: Any) -> ToolResult:
    ((_, result),) = await tools.run([ToolCall(id="1", name=name, arguments=arguments)], {})
    return result


def test_what_a_model_is_told(spec: Path) -> None:
    specs = {tool.name: tool for tool in box(rl.openapi(spec, prefix="shop_")).specs}
    assert list(specs) == ["shop_get_order", "shop_delete_orders_id", "shop_new_order", "shop_tag"]
    assert specs["shop_get_order"].description == "One order"
    assert [tool.name for tool in specs.values() if tool.parallel] == ["shop_get_order"]
    assert specs["shop_get_order"].parameters == {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "the order's number"},
            "field": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    new = specs["shop_new_order"].parameters
    assert new["required"] == ["X-Key", "item"]
    assert new["properties"] == {
        "X-Key": {"type": "string"},
        "item": {"$ref": "#/$defs/Item"},
        "count": {"type": ["integer", "null"], "exclusiveMinimum": 0},
    }
    assert new["$defs"] == {"Item": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
    assert specs["shop_tag"].parameters["required"] == ["id", "body"]


def test_arguments_go_where_the_description_says(spec: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        async with served() as (url, asked):
            tools = box(rl.openapi(spec, url=url, headers={"X-Agent": "a"}))
            assert (await say(tools, "get_order", id="a/b c", field=["x", "y"])).text == '{"ok": true}'
            await say(tools, "new_order", **{"X-Key": 7, "item": {"name": "tea"}, "count": 2})
            await say(tools, "tag", id="3", body=["new"])
            await tools.aclose()
            return asked

    get, new, tag = asyncio.run(main())
    assert get == {"what": "GET /v1/orders/a%2Fb%20c?field=x&field=y", "key": None, "agent": "a", "body": None, "cookie": None}
    assert (new["what"], new["key"], new["body"]) == ("POST /v1/orders", "7", {"item": {"name": "tea"}, "count": 2})
    assert (tag["what"], tag["body"], tag["cookie"]) == ("PUT /v1/tags/3", ["new"], "1")


def test_cookies_are_the_episodes_own(spec: Path) -> None:
    async def main() -> list[Any]:
        async with served() as (url, asked):
            for _ in range(2):
                tools = box(rl.openapi(spec, url=url))
                await say(tools, "get_order", id="1")
                await say(tools, "get_order", id="1")
                await tools.aclose()
            return [one["cookie"] for one in asked]

    assert asyncio.run(main()) == [None, "1", None, "1"]


def test_what_the_server_refuses_is_an_error_and_its_own_failure_a_crash(spec: Path) -> None:
    async def main() -> None:
        async with served() as (url, asked):
            tools = box(rl.openapi(spec, url=url))
            assert (await say(tools, "get_order", id="none")).text == "Error: HTTP 404: no such order"
            assert (await say(tools, "get_order", id=["x"])).is_error
            assert len(asked) == 1
            with pytest.raises(ToolCrash, match=r"GET /orders/\{id\} was answered with 502: down"):
                await say(tools, "get_order", id="broken")
        with pytest.raises(ToolCrash, match="tool get_order raised ClientConnectorError"):
            await say(tools, "get_order", id="1")
        await tools.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("content", "settings", "problem"),
    [
        ("a: [", {}, "is neither JSON nor YAML"),
        ("swagger: '2.0'", {}, "is no OpenAPI 3 description"),
        ("openapi: 3.1.0", {}, "the API needs a url"),
        ("openapi: 3.1.0", {"url": "http://a"}, "the OpenAPI description has no operations"),
        (SPEC, {"only": ["get_ordr"]}, "the API has no operation 'get_ordr'; did you mean 'get_order'"),
        (SPEC.replace("schemas/Item", "schemas/Itm", 1), {}, "holds no #/components/schemas/Itm"),
        (SPEC.replace("application/json: {", "text/csv: {"), {}, "operation tag takes a body of text/csv type"),
        (SPEC.replace("type: integer}", "type: whole}"), {}, "tool tag: its parameters are no JSON schema"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_is_played(
    tmp_path: Path, content: str, settings: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=problem):
        box(rl.openapi(file, **settings))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"the OpenAPI description nowhere\.yaml cannot be read: No such file"):
        box(rl.openapi("nowhere.yaml"))


def test_a_reference_to_itself_ends() -> None:
    content = {
        "openapi": "3.1.0",
        "paths": {"/a": {"post": {"requestBody": {"$ref": "#/components/requestBodies/a"}}}},
        "components": {"requestBodies": {"a": {"$ref": "#/components/requestBodies/a"}}},
    }
    with pytest.raises(UsageError, match="leads to itself"):
        operations(read(content))


def test_recursive_schemas_are_kept() -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Tree"}}}}
    content = {
        "openapi": "3.1.0",
        "servers": [{"url": "http://a"}],
        "paths": {"/tree": {"post": {"operationId": "grow", "requestBody": body}}},
        "components": {"schemas": {"Tree": tree}},
    }
    (tool,) = box(rl.openapi(content)).specs
    assert tool.parameters["properties"] == {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}
    assert list(tool.parameters["$defs"]) == ["Tree"]
