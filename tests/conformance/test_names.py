"""The two halves offer the same, and the suite uses all of it."""

from __future__ import annotations

import inspect
import pathlib

import pytest

import recollect
from recollect import testing

PAIRS = [
    (recollect.Store, recollect.AsyncStore),
    (recollect.Session, recollect.AsyncSession),
    (recollect.Turn, recollect.AsyncTurn),
    (recollect.Stream, recollect.AsyncStream),
]
INNER = {"run", "follow", "scope", "saw", "path"}  # what operations need, and what only a file has
SUITE = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted(pathlib.Path(testing.__file__).parent.glob("*.py"))
)


def public(kind):
    return {name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def arguments(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_the_same_names_with_the_same_arguments(plain, awaited):
    one, other = public(plain), public(awaited)
    assert sorted(one) == sorted(other)
    for name, function in one.items():
        assert arguments(function) == arguments(other[name]), name


def test_opening_takes_the_same_arguments():
    assert arguments(recollect.open) == arguments(recollect.open_async)


@pytest.mark.parametrize("plain", [pair[0] for pair in PAIRS])
def test_the_suite_uses_every_method_and_argument(plain):
    for name, function in public(plain).items():
        if name not in INNER:
            assert f".{name}" in SUITE, name
            for argument, kind, _ in arguments(function)[1:]:
                if kind is inspect.Parameter.KEYWORD_ONLY:
                    assert f"{argument}=" in SUITE or f'"{argument}":' in SUITE, (name, argument)
