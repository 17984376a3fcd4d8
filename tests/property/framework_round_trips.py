"""The round trip of a framework's messages through a store, and their translation into every other format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from formats_examples import assert_valid, canonical_json

import recollect
from recollect import formats
from recollect.history.repair import find_problems
from stored_drafts import to_messages

_HARMLESS = {"last_reasoning", "only_reasoning"}  # a message of which another format carries only the reasoning


_REPEATS = {"ollama": frozenset({"moved_result"}), "mistral": frozenset({"same_role"})}
"""Repairs that a repaired history of random messages, which repeat call ids, can need again."""


def assert_stored_equal(
    objects: Sequence[Any], name: str, dump: Callable[[Any], dict[str, Any]], load: Callable[[list[Any]], list[Any]]
) -> None:
    """Check that objects and their dumps come back equal from a store, and are a valid history in every format.

    - `dump`: returns the dict of an object, as a program of the framework stores it.
    - `load`: loads dicts as the framework does.
    """
    dicts = [dump(value) for value in objects]
    expected = load(dicts)
    with recollect.open(":memory:") as store:
        from_dicts, from_objects = store.session("dicts"), store.session("objects")
        from_dicts.append(dicts, format=name)  # pyright: ignore[reportArgumentType]
        from_objects.append(list(objects))
        history = from_dicts.history(name, repair=False)  # pyright: ignore[reportArgumentType]
        assert canonical_json(list(history)) == canonical_json(dicts)
        assert load(list(history)) == expected
        assert load(list(from_objects.history(name, repair=False))) == expected  # pyright: ignore[reportArgumentType]
        for target in formats.PROVIDERS:
            output = list(from_dicts.history(target))  # pyright: ignore[reportArgumentType]
            if target != name:
                assert_valid(output, target)
            repairs = find_problems(to_messages(formats.read(output, target)), target)
            harmless = _HARMLESS | _REPEATS.get(target, frozenset())
            assert {repair.kind for repair in repairs} <= harmless, (target, repairs)
