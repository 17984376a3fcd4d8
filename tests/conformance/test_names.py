"""The sync and async classes have the same methods, and the suite uses all of them."""

from __future__ import annotations

import inspect
import pathlib

import pytest

import recollect
import recollect_conformance

PAIRS = [
    (recollect.Store, recollect.AsyncStore),
    (recollect.Session, recollect.AsyncSession),
    (recollect.Turn, recollect.AsyncTurn),
    (recollect.Stream, recollect.AsyncStream),
]
INTERNAL_NAMES = {"run", "follow", "scope", "saw", "path"}  # for operations, and for files only
SUITE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(pathlib.Path(recollect_conformance.__file__).parent.glob("*.py"))
)


def public_methods(kind):
    return {name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def arguments(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("sync_class", "async_class"), PAIRS)
def test_sync_and_async_classes_have_the_same_methods_and_arguments(sync_class, async_class):
    sync_methods, async_methods = public_methods(sync_class), public_methods(async_class)
    assert sorted(sync_methods) == sorted(async_methods)
    for name, function in sync_methods.items():
        assert arguments(function) == arguments(async_methods[name]), name


def test_open_and_open_async_have_the_same_arguments():
    assert arguments(recollect.open) == arguments(recollect.open_async)


@pytest.mark.parametrize("sync_class", [pair[0] for pair in PAIRS])
def test_the_suite_uses_every_method_and_argument(sync_class):
    for name, function in public_methods(sync_class).items():
        if name not in INTERNAL_NAMES:
            assert f".{name}" in SUITE, name
            for argument, kind, _ in arguments(function)[1:]:
                if kind is inspect.Parameter.KEYWORD_ONLY:
                    assert f"{argument}=" in SUITE or f'"{argument}":' in SUITE, (name, argument)
