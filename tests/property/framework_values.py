"""Random values of the types that a framework defines: dataclasses, pydantic models, typed dicts and unions of them.

The values follow the type hints, so that a type or a field that a new version adds is tested when it is installed.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import random
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

DEPTH = 5  # levels of nested types, since some are recursive
COUNT = 150  # values of each type
_WORDS = [
    "",
    " ",
    "word",
    "two words",
    "é🤖",
    '{"a": 1}',
    "https://example.org/a.png",
    "id",
    "x" * 40,
    "\u2028",
    "null",
]
_DATES = [
    datetime.datetime(2026, 11, 19, 10, 5, 7, 123456, datetime.UTC),
    datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC),
]
_SEQUENCES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
_MAPPINGS = (dict, collections.abc.Mapping)
_ANNOTATIONS = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


class RandomValues:
    """Generates values of types. `special` has functions for types whose constructors restrict their fields."""

    def __init__(self, seed: object, special: Mapping[Any, Callable[[RandomValues, int], Any]] | None = None) -> None:
        self.random = random.Random(str(seed))
        self.special = special or {}

    def json(self, depth: int = 2) -> Any:
        """Return any JSON value."""
        leaves = [None, True, False, 0, -1, 2**40, 1.5, self.text()]
        kind = self.random.randrange(4) if depth else 0
        if kind == 1:
            return [self.json(depth - 1) for _ in range(self.random.randrange(3))]
        if kind == 2:
            return self.object(depth - 1)
        return self.random.choice(leaves)

    def object(self, depth: int = 1) -> dict[str, Any]:
        """Return any JSON object."""
        return {
            self.random.choice(["a", "type", "id", "text", "x y"]): self.json(depth)
            for _ in range(self.random.randrange(3))
        }

    def text(self) -> str:
        return self.random.choice(_WORDS)

    def bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 2, 3, 50, 3_000]))

    def value(self, kind: Any, depth: int = DEPTH) -> Any:
        """Return a random value of a type."""
        for candidate in (kind, kind := _unwrap(kind)):
            make = self.special.get(candidate) if isinstance(candidate, collections.abc.Hashable) else None
            if make is not None:
                return make(self, depth)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal:
            return self.random.choice(arguments)
        if origin in (typing.Union, types.UnionType):
            return self._alternative(arguments, depth)
        scalar = self._scalar(kind)
        if scalar is not None:
            return scalar()
        if origin in _SEQUENCES or kind in _SEQUENCES:
            count = self.random.randrange(3) if depth > 0 else 0
            items = [self.value(arguments[0] if arguments else Any, depth - 1) for _ in range(count)]
            return tuple(items) if origin is tuple else items
        if origin in _MAPPINGS or kind in _MAPPINGS:
            if not arguments or depth <= 0:
                return self.object() if depth > 0 else {}
            return {self.text(): self.value(arguments[1], depth - 1) for _ in range(self.random.randrange(3))}
        names = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
        return self.instance(origin or kind, depth, names)

    def instance(
        self,
        kind: Any,
        depth: int = DEPTH,
        type_arguments: Mapping[Any, Any] | None = None,
        *,
        constants: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return an instance of a class with random fields, except those in `constants`; some optional ones are left out."""
        type_arguments = type_arguments or {}
        output: dict[str, Any] = dict(constants or {})
        for name, (hint, required) in fields_of(kind).items():
            if name not in output and (required or (depth > 0 and self.random.random() < 0.6)):
                output[name] = self.value(type_arguments.get(hint, hint), depth - 1)
        return output if _is_typed_dict(kind) else kind(**output)

    def _alternative(self, alternatives: tuple[Any, ...], depth: int) -> Any:
        if depth <= 0 and type(None) in alternatives:
            return None
        return self.value(self.random.choice(alternatives), depth)

    def _scalar(self, kind: Any) -> Callable[[], Any] | None:
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return lambda: self.random.choice(list(kind))
        return (
            {
                str: self.text,
                int: lambda: self.random.choice([0, 1, 17, 2**40]),
                float: lambda: self.random.choice([0.0, 1.5, 1e300]),
                bool: lambda: self.random.random() < 0.5,
                bytes: self.bytes,
                type(None): lambda: None,
                Any: self.json,
                object: self.json,
                datetime.datetime: lambda: self.random.choice(_DATES),
                datetime.timedelta: lambda: datetime.timedelta(milliseconds=self.random.randrange(100_000)),
                decimal.Decimal: lambda: decimal.Decimal("0.0125"),
            }.get(kind)
            if isinstance(kind, collections.abc.Hashable)
            else None
        )


def _unwrap(kind: Any) -> Any:
    """Return a type without annotations, aliases and type variables."""
    while True:
        if typing.get_origin(kind) in _ANNOTATIONS:
            kind = typing.get_args(kind)[0]
        elif hasattr(kind, "__value__"):
            kind = kind.__value__
        elif isinstance(kind, typing.TypeVar):
            kind = getattr(kind, "__default__", None) or kind.__bound__ or Any
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        else:
            return kind


def fields_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the fields of a class that its constructor accepts, with their types, and whether each is required."""
    if hasattr(kind, "model_fields"):
        return {
            name: (field.annotation, field.is_required())
            for name, field in kind.model_fields.items()
            if not field.exclude
        }
    hints = typing.get_type_hints(kind, include_extras=True)
    if _is_typed_dict(kind):
        return {name: (hint, name in kind.__required_keys__) for name, hint in hints.items()}
    return {
        field.name.lstrip("_"): (hints[field.name], _is_required(field))
        for field in dataclasses.fields(kind)
        if field.init
    }


def _is_typed_dict(kind: Any) -> bool:
    """Return whether a type is a typed dict, of `typing` or of its backport."""
    return hasattr(kind, "__required_keys__")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def alternatives_of(kind: Any) -> list[Any]:
    """Return the classes of a union."""
    kind = _unwrap(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [inner for alternative in typing.get_args(kind) for inner in alternatives_of(alternative)]
    return [typing.get_origin(kind) or kind]
