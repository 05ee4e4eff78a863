"""Reads an OpenAPI 3 description: its operations, each with a JSON schema of its arguments and where these go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agentrl.errors import UsageError

METHODS = ("get", "put", "post", "delete", "patch")
BODY = "body"
"""The argument for a JSON body that is no object, or one of whose fields is called like a parameter."""

_SCHEMAS = "#/components/schemas/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of an API.

    >>> Operation(name="get_order", method="get", path="/orders/{id}", places={"id": "path"}).name
    'get_order'
    """

    name: str
    method: str
    path: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of all arguments."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Argument -> path | query | header | field (of the body) | body (all of it)."""


def read(spec: str | Mapping[str, Any]) -> dict[str, Any]:
    """A file (JSON or YAML) or its content, checked to be of version 3. Raises UsageError."""
    if isinstance(spec, Mapping):
        found: Any = spec
    else:
        try:
            found = yaml.safe_load(Path(spec).expanduser().read_text())  # JSON is YAML
        except OSError as error:
            raise UsageError(f"the OpenAPI description {spec} cannot be read: {error.strerror}") from error
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise UsageError(f"{spec} is neither JSON nor YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, Mapping) or not str(found.get("openapi", "")).startswith("3."):
        raise UsageError(
            f"{spec if isinstance(spec, str) else 'the content'} is no OpenAPI 3 description: it has no `openapi: 3.x`"
        )
    return dict(found)


def operations(spec: Mapping[str, Any]) -> list[Operation]:
    """All operations, in order. Raises UsageError for one that cannot be a tool."""
    return [
        _operation(spec, path, method, item[method], item.get("parameters", ()))
        for path, item in spec.get("paths", {}).items()
        for method in METHODS
        if method in item
    ]


def _operation(spec: Mapping[str, Any], path: str, method: str, item: Mapping[str, Any], shared: Any) -> Operation:
    name = item.get("operationId") or f"{method}_{path.lstrip('/')}"
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    places: dict[str, str] = {}
    for parameter in [_followed(spec, p) for p in (*shared, *item.get("parameters", ()))]:
        place = parameter["in"]
        if place == "cookie":
            continue  # belongs to the session, not to what a model asks for
        places[parameter["name"]] = place
        schema["properties"][parameter["name"]] = _described(parameter.get("schema", {}), parameter.get("description"))
        if parameter.get("required") and parameter["name"] not in schema["required"]:
            schema["required"].append(parameter["name"])
    if "requestBody" in item:
        _add_body(spec, name, _followed(spec, item["requestBody"]), schema, places)
    schema["$defs"] = _definitions(spec, schema)
    about = ". ".join(filter(None, (item.get("summary", "").strip().rstrip("."), item.get("description", "").strip())))
    return Operation(
        name=re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_"),
        method=method,
        path=path,
        description=about or name,
        parameters=_modern({key: value for key, value in schema.items() if value or key in ("type", "properties")}),
        places=places,
    )


def _add_body(
    spec: Mapping[str, Any], name: str, body: Mapping[str, Any], schema: dict[str, Any], places: dict[str, str]
) -> None:
    content = body.get("content", {})
    kind = next((kind for kind in content if kind.split(";")[0].endswith("json")), None)
    if kind is None:
        raise UsageError(
            f"operation {name} takes a body of {', '.join(content) or 'no'} type; only JSON can be given by a model"
        )
    given = content[kind].get("schema", {})
    fields = _followed(spec, given)
    if fields.get("type") == "object" and fields.get("properties") and not set(fields["properties"]) & set(places):
        schema["properties"].update(fields["properties"])
        places.update(dict.fromkeys(fields["properties"], "field"))
        schema["required"] += fields.get("required", []) if body.get("required") else []
    else:
        schema["properties"][BODY] = _described(given, body.get("description"))
        places[BODY] = "body"
        schema["required"] += [BODY] if body.get("required") else []


def _described(schema: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    return {**schema, "description": text} if text and "$ref" not in schema else dict(schema)


def _followed(spec: Mapping[str, Any], item: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference to another part of the description stands for."""
    for _ in range(20):  # a reference may lead to itself
        if "$ref" not in item:
            return item
        found: Any = spec
        for key in item["$ref"].removeprefix("#/").split("/"):
            found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise UsageError(f"the OpenAPI description holds no {item['$ref']}")
        item = found
    raise UsageError(f"the OpenAPI description's {item['$ref']} leads to itself")


def _definitions(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The shared schemas that are reached from `schema`."""
    known = spec.get("components", {}).get("schemas", {})
    found: dict[str, Any] = {}
    left = list(_references(schema))
    while left:
        name = left.pop()
        if name not in found:
            found[name] = _followed(spec, {"$ref": _SCHEMAS + name}) if name not in known else known[name]
            left += _references(found[name])
    return found


def _references(value: Any) -> Iterator[str]:
    for match in re.finditer(rf'"\$ref": "{_SCHEMAS}([^"]+)"', json.dumps(value, default=str)):
        yield match[1]


def _modern(value: Any) -> Any:
    """A schema of OpenAPI 3.0 as JSON schema has it since: null, excluded limits, where definitions stand."""
    if isinstance(value, list):
        return [_modern(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    out = {key: _modern(item) for key, item in value.items()}
    if isinstance(out.get("$ref"), str):
        out["$ref"] = out["$ref"].replace(_SCHEMAS, "#/$defs/")
    if out.pop("nullable", None) is True and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
    for limit, excluded in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(out.get(excluded), bool) and out.pop(excluded):
            out[excluded] = out.pop(limit)
    return out
