"""Keyed records compared with a dict: any sequence of calls, with any characters, has the same results on both engines."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect

ALPHABET = "\0\x01\x02\x0f\x10\x11 0ap%_'\\/\x7fé\u4e00\ud7ff\ue000\uffff\U00010000\U0010ffff"
names = st.text(ALPHABET, min_size=1, max_size=3)
kinds = st.sampled_from(["k", "k\0", "\x10"])
values = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.binary(max_size=5), st.lists(st.booleans()))
expectations = st.one_of(st.none(), st.integers(0, 4))
calls = st.one_of(
    st.tuples(st.just("put"), kinds, names, values, expectations),
    st.tuples(st.just("delete"), kinds, names, expectations),
    st.tuples(st.just("list"), kinds, st.text(ALPHABET, max_size=2), st.none() | st.text(ALPHABET, max_size=3), st.integers(1, 4)),
)  # fmt: skip


class Model:
    """The records as a dict, with the highest revision of a deleted record of each kind."""

    def __init__(self):
        self.records = {}
        self.highest = {}

    def put(self, kind, key, value, expected):
        revision = self.records.get((kind, key), (0, None))[0]
        if expected not in (None, revision):
            return "stale", revision
        revision = revision + 1 if revision else 1 + self.highest.get(kind, 0)
        self.records[kind, key] = revision, value
        return revision, value

    def delete(self, kind, key, expected):
        revision = self.records.get((kind, key), (0, None))[0]
        if expected not in (None, revision):
            return "stale", revision
        if not revision:
            return False
        del self.records[kind, key]
        self.highest[kind] = max(self.highest.get(kind, 0), revision)
        return True

    def list(self, kind, prefix, after, limit):
        keys = sorted(key for of_kind, key in self.records if of_kind == kind and key.startswith(prefix))
        keys = [key for key in keys if after is None or key > after]
        page = [(key, *self.records[kind, key]) for key in keys[:limit]]
        return page, page[-1][0] if len(keys) > limit else None


def run(records, call):
    """Run a call on the records of a store, and return the result in the form of the model."""
    name, kind, *arguments = call
    try:
        if name == "put":
            key, value, expected = arguments
            record = records.put(kind, key, value, expected=expected)
            return record.revision, record.value
        if name == "delete":
            key, expected = arguments
            return records.delete(kind, key, expected=expected)
    except recollect.StaleRecord as error:
        return "stale", error.fields["revision"]
    prefix, after, limit = arguments
    page = records.list(kind, prefix=prefix, after=after, limit=limit)
    return [(record.key, record.revision, record.value) for record in page], page.next


def compare(store, calls, name):
    models = {None: Model(), "s": Model()}
    store.session(name)
    for number, (method, kind, *arguments) in enumerate(calls):
        of_session = number % 2
        records = store.session(name).records if of_session else store.records
        # The store lives longer than an example, so each has kinds of its own.
        call = (method, kind if of_session else f"{name}{kind}", *arguments)
        model = models["s" if of_session else None]
        assert run(records, call) == getattr(model, call[0])(*call[1:]), call
    for (kind, key), (revision, value) in models["s"].records.items():
        record = store.session(name).records.get(kind, key)
        assert (record.revision, record.value, type(record.value)) == (revision, value, type(value))
    store.erase_session(name)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_records_are_those_of_a_dict(engine, request, long):
    location = ":memory:" if engine == "sqlite" else request.getfixturevalue("postgres")
    examples = {"sqlite": 100, "postgres": 25}[engine] * (10 if long else 1)
    with recollect.open(location) as store:
        names = iter(range(10**9))

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(calls, min_size=5, max_size=40))
        def check(sequence):
            compare(store, sequence, f"s{next(names)}")

        check()
        assert store.maintenance.check().problems == ()
