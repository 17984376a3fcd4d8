"""Values at random from the type definitions of SDKs: JSON schemas, and the shapes of botocore's service models."""

from __future__ import annotations

import base64
import random
from typing import Any

DEPTH = 7  # levels of nested types; some types are recursive
WORDS = ("words", "", " ", "é🤖", "line\nbreak", "\x00", "x" * 40)


def json_value(choice: random.Random, depth: int = 3) -> Any:
    """Return any JSON value."""
    kinds: list[Any] = [None, True, choice.randint(-9, 9), 1.5, choice.choice(WORDS)]
    if depth:
        kinds.append([json_value(choice, depth - 1) for _ in range(choice.randint(0, 2))])
        kinds.append(json_object(choice, depth - 1))
    return choice.choice(kinds)


def json_object(choice: random.Random, depth: int = 3) -> dict[str, Any]:
    """Return any JSON object."""
    names = ("a", "text", "output", "error", "type", "$bytes", "data")
    return {name: json_value(choice, depth) for name in choice.sample(names, choice.randint(0, 3))}


def schema_value(schema: dict[str, Any], definitions: dict[str, Any], choice: random.Random, depth: int = DEPTH) -> Any:
    """Return a value of a JSON schema that pydantic wrote."""
    if "$ref" in schema:
        return schema_value(definitions[schema["$ref"].rpartition("/")[2]], definitions, choice, depth)
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return schema_value(choice.choice(alternatives), definitions, choice, depth)
    if "const" in schema or schema.get("enum"):
        return choice.choice(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "string":
            return _text(schema, choice)
        case "array":
            count = choice.randint(0, 2) if depth else 0
            return [schema_value(schema.get("items", {}), definitions, choice, depth - 1) for _ in range(count)]
        case "object":
            return _object(schema, definitions, choice, depth)
        case "integer" | "number" | "boolean" | "null" as kind:
            return {"integer": choice.randint(0, 99), "number": 2.5, "boolean": choice.random() < 0.5}.get(kind)
    return json_value(choice)


def _text(schema: dict[str, Any], choice: random.Random) -> str:
    match schema.get("format"):
        case "base64url":
            return base64.urlsafe_b64encode(choice.randbytes(choice.choice((0, 1, 3, 60)))).decode()
        case "date-time":
            return "2026-02-03T04:05:06Z"
        case "binary":
            return "bytes"
    return choice.choice(WORDS)


def _object(schema: dict[str, Any], definitions: dict[str, Any], choice: random.Random, depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required", ())
    if properties is None:
        member = schema.get("additionalProperties")
        if isinstance(member, dict):
            return {name: schema_value(member, definitions, choice, max(depth - 1, 0)) for name in ("a", "b")}
        return json_object(choice)
    share = choice.choice((0.2, 0.5, 1.0))  # few, some or all of the optional fields
    fields: dict[str, Any] = {}
    for name, field in properties.items():
        if name == "type" and isinstance(field.get("default"), str):
            fields[name] = field["default"]
        elif name in required or (depth and choice.random() < share):
            fields[name] = schema_value(field, definitions, choice, max(depth - 1, 0))
    return fields


def shape_value(shape: Any, choice: random.Random, depth: int = DEPTH) -> Any:
    """Return a value of a botocore shape."""
    match shape.type_name:
        case "structure":
            return _structure(shape, choice, depth)
        case "list":
            count = choice.randint(0, 2) if depth else 0
            return [shape_value(shape.member, choice, depth - 1) for _ in range(count)]
        case "map":
            return {"key": shape_value(shape.value, choice, depth - 1)} if depth else {}
        case "string":
            return choice.choice(shape.enum) if shape.enum else _shape_text(shape, choice)
        case "blob":
            return choice.randbytes(choice.choice((1, 3, 60, 4_000)))
    scalars = {"integer": 7, "long": 70, "float": 1.5, "double": 2.5, "boolean": choice.random() < 0.5}
    return scalars[shape.type_name]


def _shape_text(shape: Any, choice: random.Random) -> str:
    if shape.name == "ToolUseId":
        return f"tooluse_{choice.randint(0, 9)}.{choice.randint(0, 9)}"
    return choice.choice([word for word in WORDS if len(word) >= shape.metadata.get("min", 0)])


def _structure(shape: Any, choice: random.Random, depth: int) -> Any:
    if getattr(shape, "is_document_type", False):
        return json_object(choice)
    names = list(shape.members)
    if getattr(shape, "is_tagged_union", False):
        name = choice.choice(names)
        return {name: shape_value(shape.members[name], choice, max(depth - 1, 0))}
    share = choice.choice((0.0, 0.5, 1.0))
    return {
        name: shape_value(member, choice, max(depth - 1, 0))
        for name, member in shape.members.items()
        if name in shape.required_members or (depth and choice.random() < share)
    }
