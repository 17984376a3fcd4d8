"""Every operation has the same result and effect with and without the fast paths, after any sequence of operations.

fast_paths_machine.py has the rules. A run on SQLite fails if they have not used each public operation of
recollect.storage, and each run if the engine has not answered each kind of request that it handles.
"""

from __future__ import annotations

import collections
import functools
import importlib
import inspect
import os
import pkgutil
import sys
from typing import Any

import pytest
from fast_paths_machine import FastPathComparison
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import recollect
import recollect.model.turn
import recollect.store_async.waiting
from recollect import storage
from recollect.engine.sqlite.fast_paths import SqliteFastPaths
from recollect.storage import fast_paths, listing, messages
from recollect.storage.operation import Operation

# A list by title has two stages, and therefore no fast path. None: pinned sessions first, by a query of the engine.
LIST_QUERIES = [
    listing._DEFAULT_LIST.name,
    *(query.name for order, query in listing._ORDERED_QUERIES.items() if order[0] != "title"),
    None,
]
ALL_KINDS = {
    (kind, query)
    for kind in fast_paths.FAST_PATHS
    for query in (LIST_QUERIES if kind is fast_paths.ListSessionsRequest else [None])
}
"""Every kind of request: its type, and the query of a list."""
UNHANDLED_BY_SQLITE = {
    (fast_paths.LastMessagesRequest, None),  # a statement costs no round trip
    (fast_paths.OpenSessionRequest, None),
    (fast_paths.EnsureSessionRequest, None),
    (fast_paths.ListSessionsRequest, None),  # pinned sessions first take several statements
}
UNHANDLED_BY_POSTGRES = {(fast_paths.KeyedAppendRequest, None)}  # the steps are pipelined, as one round trip more


def public_operations() -> dict[str, Any]:
    """Return the functions of recollect.storage that return an operation or a plan, by name."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(storage.__path__, f"{storage.__name__}.")
    ]
    return {
        f"{module.__name__.removeprefix('recollect.storage.')}.{name}": function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and str(function.__annotations__.get("return")).startswith(("Operation[", "Plan["))
    }


_TRANSFER = "compares and writes rows of an import or a copy: no fast path; the tests in tests/export read them back"
_IMPORTS = "imports of other tools: no fast path; the tests in tests/sync read back what they write"
WITHOUT_RULE = {
    **{name: _TRANSFER for name in public_operations() if name.startswith(("transfer.", "copy_writer."))},
    **{name: _IMPORTS for name in public_operations() if name.startswith("imports.")},
    "row_stream.read_compactions": _TRANSFER,
    "row_stream.read_message": _TRANSFER,
    "row_stream.read_stream": _TRANSFER,
    "sessions.revisions": "returns keys of the database; the tests of watches in tests/conformance read it",
}
"""The public operations that no rule uses, each with the reason."""


def count_results(name, function, results):
    """Return the function of an operation. It counts the runs of all steps that did not raise an error."""

    def count(steps):
        result = yield from steps
        results[name] += 1
        return result

    @functools.wraps(function)
    def make(*args, **options):
        value = function(*args, **options)
        if not isinstance(value, Operation):
            return count(value)  # of a plan
        value.steps = functools.partial(lambda steps, *args: count(steps(*args)), value.steps)
        return value

    return make


@pytest.fixture
def short_pages(monkeypatch):
    """Make pages short, and the pauses between the flushes of a stream long: it stores its text only in a rule."""
    monkeypatch.setattr(messages, "LARGE_PAGE_SIZE", 2)
    for module in (recollect.model.turn, recollect.store_async.waiting):
        monkeypatch.setattr(module, "FLUSH_INTERVAL", 1e6)  # seconds


@pytest.fixture
def results(monkeypatch):
    """Count the results of each public operation."""
    results = collections.Counter()
    wrappers = {function: count_results(name, function, results) for name, function in public_operations().items()}
    for module in [module for name, module in sorted(sys.modules.items()) if name.startswith("recollect.")]:
        for attribute, value in list(vars(module).items()):
            if inspect.isfunction(value) and value in wrappers:
                monkeypatch.setattr(module, attribute, wrappers[value])
    return results


_ROUND = 10
"""Examples per run of Hypothesis, which derives most of the later ones from an earlier one."""


def run_comparison(open_pair, answers, examples, *, is_random=False):
    few = settings(max_examples=_ROUND, stateful_step_count=100, deadline=None, suppress_health_check=list(HealthCheck))
    for number in range(examples // _ROUND):

        def factory():
            return FastPathComparison(open_pair, answers)

        run_state_machine_as_test(factory if is_random else seed(number)(factory), settings=few)


def opener(face):
    return recollect.open if face == "sync" else recollect.open_async


@pytest.mark.parametrize("face", ["sync", "async"])
def test_the_fast_paths_of_sqlite_change_no_result(face, results, short_pages, long):
    answers = collections.Counter()

    def open_pair(folder):
        return [opener(face)(os.path.join(folder, name)) for name in ("fast.db", "steps.db")]

    run_comparison(open_pair, answers, 400 if long else 40, is_random=long)
    assert set(+answers) == ALL_KINDS - UNHANDLED_BY_SQLITE
    assert set(+results) == public_operations().keys() - WITHOUT_RULE.keys()


@pytest.mark.parametrize("face", ["sync", "async"])
def test_the_fast_paths_of_postgres_change_no_result(face, databases, short_pages, long):
    answers = collections.Counter()
    # One connection, because each takes its tree numbers from a range of its own, and these order sessions of one
    # millisecond.
    url = f"{databases.url_of(databases.common, 'plain')}?pool_size=1"

    def open_pair(_):
        databases.wipe()
        return [opener(face)(url, owner=owner) for owner in ("fast", "steps")]

    with databases.pools.reuse():
        run_comparison(open_pair, answers, 60 if long else 20, is_random=long)
    assert set(+answers) == ALL_KINDS - UNHANDLED_BY_POSTGRES


def test_the_operations_without_a_rule_exist():
    assert WITHOUT_RULE.keys() <= public_operations().keys()


def test_sqlite_lacks_the_fast_paths_that_save_only_round_trips():
    assert set(SqliteFastPaths({}).handlers) == {
        fast_paths.AppendRequest, fast_paths.KeyedAppendRequest, fast_paths.SaveTurnRequest,
        fast_paths.ListSessionsRequest,
    }  # fmt: skip
