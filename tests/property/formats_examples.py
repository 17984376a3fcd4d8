"""Examples of every type that an SDK defines, generated from its type definitions."""

from __future__ import annotations

import collections.abc
import functools
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

DEPTH = 8  # levels of nested types. A limit is needed because some types are recursive.
LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)
SCALARS: dict[Any, Any] = {str: "words", int: 1, float: 1.5, bool: True, object: {"any": [1]}, Any: None}


def examples(kind: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Yield examples of a type: of each alternative in it, with all fields and with only the required ones."""
    kind = strip_qualifiers(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in SCALARS or kind is type(None):
        yield SCALARS.get(kind)
    elif origin is typing.Literal:
        yield arguments[0]
    elif origin in (typing.Union, types.UnionType):
        for alternative in arguments:
            yield from examples(alternative, depth)
    elif hasattr(kind, "__required_keys__") or hasattr(kind, "model_fields"):
        yield from dict_examples(fields(kind), depth)
    elif origin in (dict, collections.abc.Mapping):
        yield {}
        yield from ({"key": value} for value in first_example(arguments[1], depth))
    elif (origin in LISTS or getattr(origin, "__name__", "") == "SequenceNotStr") and depth > 0:
        yield []
        yield from ([item] for item in examples(arguments[0], depth - 1))


def strip_qualifiers(kind: Any) -> Any:
    """Return a type without Annotated, Required and NotRequired."""
    while typing.get_origin(kind) in (typing.Annotated, typing.Required, typing.NotRequired):
        kind = typing.get_args(kind)[0]
    return kind


def fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the fields of a typed dict or a pydantic model with their types, and whether each is required."""
    if hasattr(kind, "model_fields"):
        return {
            field.alias or name: (field.annotation, field.is_required()) for name, field in kind.model_fields.items()
        }
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        name: (hint, typing.get_origin(hint) is typing.Required or name in kind.__required_keys__)
        for name, hint in hints.items()
    }


def first_example(kind: Any, depth: int) -> list[Any]:
    return list(examples(kind, depth - 1))[:1] if depth > 0 else []


def dict_examples(types: dict[str, tuple[Any, bool]], depth: int) -> Iterator[dict[str, Any]]:
    if depth <= 0:
        return
    examples_by_field = {name: list(examples(kind, depth - 1)) for name, (kind, _) in types.items()}
    if any(required and not examples_by_field[name] for name, (_, required) in types.items()):
        return  # a required field has a type that JSON cannot represent
    yield {name: examples_by_field[name][0] for name, (_, required) in types.items() if required}
    full = {name: values[-1] for name, values in examples_by_field.items() if values}
    yield full
    for name, values in examples_by_field.items():
        for value in values[:-1]:
            yield {**full, name: value}


def consume_iterators(value: Any) -> Any:
    """Consume the lazy iterators of pydantic, so that it validates their items too."""
    if isinstance(value, dict):
        return {name: consume_iterators(item) for name, item in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [consume_iterators(item) for item in value]


@functools.cache
def type_adapter(module: str, name: str) -> Any:
    pydantic = pytest.importorskip("pydantic")
    return pydantic.TypeAdapter(getattr(pytest.importorskip(module), name))


REQUESTS = {
    "anthropic": ("anthropic.types", "MessageParam"),
    "openai": ("openai.types.chat", "ChatCompletionMessageParam"),
    "openai-responses": ("openai.types.responses", "ResponseInputItemParam"),
}

LOADERS = {
    "pydantic-ai": ("pydantic_ai.messages", "ModelMessagesTypeAdapter"),
    "langchain": ("langchain_core.messages", "convert_to_messages"),
    "ag-ui": ("ag_ui.core", "Message"),
}
"""The functions of frameworks that load messages: a TypeAdapter, or a function."""


def is_valid_unicode(value: Any) -> bool:
    """Return whether pydantic can read a value: it rejects lone surrogates."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def assert_valid(messages: list[dict[str, Any]], name: str) -> None:
    """Check messages against the types of the provider's SDK, which must know every field."""
    if name in LOADERS and is_valid_unicode(messages):
        module, function = LOADERS[name]
        loader = getattr(pytest.importorskip(module), function)
        if name == "ag-ui":
            type_adapter(module, function)  # a union, for single messages
            for message in messages:
                type_adapter(module, function).validate_python(message)
        else:
            getattr(loader, "validate_python", loader)(messages)
    if name not in REQUESTS:
        return
    validator = type_adapter(*REQUESTS[name])
    for message in messages:
        if is_valid_unicode(message):
            assert consume_iterators(validator.validate_python(message)) == message


def canonical_json(value: Any) -> str:
    """Encode a value so that True, 1 and 1.0 differ."""
    return json.dumps(value, sort_keys=True, default=lambda data: {"bytes": data.hex()})
