"""The suite uses all methods, and the modules that are written by hand for both stores have the same names."""

from __future__ import annotations

import inspect
import pathlib

import pytest

import recollect
import recollect_conformance
from public_methods import SYNC_GROUPS

GROUPS = {cls for groups in SYNC_GROUPS.values() for cls in groups.values()}
SYNC_CLASSES = [
    recollect.Store, recollect.Session, recollect.Turn, recollect.types.Stream,
    *sorted(GROUPS, key=lambda cls: cls.__name__),
]  # fmt: skip
SUITE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(pathlib.Path(recollect_conformance.__file__).parent.glob("*.py"))
)


def public_methods(kind):
    return {name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def arguments(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_open_and_open_async_have_the_same_arguments():
    assert arguments(recollect.open) == arguments(recollect.open_async)


def test_both_stores_wait_with_the_same_names():
    from recollect.store import waiting as sync_waiting
    from recollect.store_async import waiting as async_waiting

    assert sorted(sync_waiting.__all__) == sorted(name.removeprefix("Async") for name in async_waiting.__all__)


@pytest.mark.parametrize("sync_class", SYNC_CLASSES)
def test_the_suite_uses_every_method_and_argument(sync_class):
    for name, function in public_methods(sync_class).items():
        assert f".{name}" in SUITE, name
        for argument, kind, _ in arguments(function)[1:]:
            if kind is inspect.Parameter.KEYWORD_ONLY:
                assert f"{argument}=" in SUITE or f'"{argument}":' in SUITE, (name, argument)
