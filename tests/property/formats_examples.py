"""Examples of every type that an SDK defines, made by walking its type definitions."""

from __future__ import annotations

import collections.abc
import functools
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

DEPTH = 8
LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)
SCALARS: dict[Any, Any] = {str: "words", int: 1, float: 1.5, bool: True, object: {"any": [1]}, Any: None}


def examples(kind: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Give examples of a type: of each alternative in it, with every field and with those it needs."""
    kind = bare(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in SCALARS or kind is type(None):
        yield SCALARS.get(kind)
    elif origin is typing.Literal:
        yield arguments[0]
    elif origin in (typing.Union, types.UnionType):
        for alternative in arguments:
            yield from examples(alternative, depth)
    elif hasattr(kind, "__required_keys__") or hasattr(kind, "model_fields"):
        yield from of_fields(fields(kind), depth)
    elif origin in (dict, collections.abc.Mapping):
        yield {}
        yield from ({"key": value} for value in first(arguments[1], depth))
    elif (origin in LISTS or getattr(origin, "__name__", "") == "SequenceNotStr") and depth > 0:
        yield []
        yield from ([item] for item in examples(arguments[0], depth - 1))


def bare(kind: Any) -> Any:
    while typing.get_origin(kind) in (typing.Annotated, typing.Required, typing.NotRequired):
        kind = typing.get_args(kind)[0]
    return kind


def fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Give the fields of a typed dict or a pydantic model with their types, and whether each is needed."""
    if hasattr(kind, "model_fields"):
        return {
            field.alias or name: (field.annotation, field.is_required()) for name, field in kind.model_fields.items()
        }
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        name: (hint, typing.get_origin(hint) is typing.Required or name in kind.__required_keys__)
        for name, hint in hints.items()
    }


def first(kind: Any, depth: int) -> list[Any]:
    return list(examples(kind, depth - 1))[:1] if depth > 0 else []


def of_fields(of: dict[str, tuple[Any, bool]], depth: int) -> Iterator[dict[str, Any]]:
    if depth <= 0:
        return
    all_of_them = {name: list(examples(kind, depth - 1)) for name, (kind, _) in of.items()}
    if any(needed and not all_of_them[name] for name, (_, needed) in of.items()):
        return  # it holds what JSON can not
    yield {name: all_of_them[name][0] for name, (_, needed) in of.items() if needed}
    full = {name: found[-1] for name, found in all_of_them.items() if found}
    yield full
    for name, found in all_of_them.items():
        for value in found[:-1]:
            yield {**full, name: value}


def unread(value: Any) -> Any:
    """Read the iterators that pydantic leaves lazy, so that their items are checked too."""
    if isinstance(value, dict):
        return {name: unread(item) for name, item in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [unread(item) for item in value]


@functools.cache
def adapter(module: str, name: str) -> Any:
    pydantic = pytest.importorskip("pydantic")
    return pydantic.TypeAdapter(getattr(pytest.importorskip(module), name))


REQUESTS = {
    "anthropic": ("anthropic.types", "MessageParam"),
    "openai": ("openai.types.chat", "ChatCompletionMessageParam"),
    "openai-responses": ("openai.types.responses", "ResponseInputItemParam"),
}


def is_clean(value: Any) -> bool:
    """Say whether pydantic can read this: it takes no half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def assert_valid(messages: list[dict[str, Any]], name: str) -> None:
    """Check messages against the types of the provider's own SDK, that no field is unknown to them included."""
    if name not in REQUESTS:
        return
    valid = adapter(*REQUESTS[name])
    for message in messages:
        if is_clean(message):
            assert unread(valid.validate_python(message)) == message


def exactly(value: Any) -> str:
    """Write a value so that True, 1 and 1.0 differ."""
    return json.dumps(value, sort_keys=True)
