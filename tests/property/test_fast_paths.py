"""Every operation has the same result and effect with and without the fast paths, after any sequence of operations.

Two stores on engines of the same kind run the same sequence: the engine of one answers requests for fast paths, the
other one runs the steps of every operation. They share a clock that changes only in a rule, so that times are equal.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import datetime
import functools
import inspect
import os
import tempfile
import traceback
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import recollect
from recollect.engine.sqlite.fast_paths import SqliteFastPaths
from recollect.errors import RecollectError
from recollect.storage import fast_paths, listing
from recollect.storage.operation import Scope

IDS = ("cli:a", "cli:b", "web:c", "cli:a:delegate:d")
LEASE = 1_000  # milliseconds, the unit of the clock; the rule `wait` can move the clock past it
PAYLOAD = "data:image/png;base64," + "QUJD" * 2000  # long enough to be stored as a blob

ids = st.sampled_from(IDS)
texts = st.sampled_from(["one", "two", "x\0y \U0001f600 \ud800", ""])
titles = st.sampled_from([None, "a", "Á", "b"])
field_sets = st.fixed_dictionaries(
    {},
    optional={
        "title": titles, "model": st.sampled_from([None, "m"]), "status": st.sampled_from(["active", "failed"]),
        "pinned": st.booleans(), "archived": st.booleans(), "metadata": st.sampled_from([None, {"k": [1]}]),
        "labels": st.sampled_from([None, [], ["a"], ["b", "a"]]),
    },
)  # fmt: skip
links = st.sampled_from([{}, {}, {}, *({"parent": id, "relation": kind} for id in IDS for kind in (None, "fork"))])
keys = st.sampled_from([None, None, None, "k1", "k2", "k3"])
revision_offsets = st.sampled_from([None, None, None, 0, 0, 1, -1])
statuses = st.sampled_from(["completed", "completed", "failed", "cancelled"])
usages = st.fixed_dictionaries(
    {},
    optional={
        "model": st.just("m"), "input_tokens": st.integers(0, 9), "output_tokens": st.integers(0, 9),
        "latency_ms": st.sampled_from([1, 2.5]), "error": st.just({"name": "Oops"}),
    },
)  # fmt: skip
flags = st.sampled_from([None, True, False])
pauses = st.sampled_from([0, 0, 1, 5])  # milliseconds: less than the resolution of the activity time
list_options = st.fixed_dictionaries(
    {
        "limit": st.integers(1, 4), "order": st.sampled_from(["activity", "created", "title"]),
        "pinned_first": st.booleans(), "oldest_first": st.booleans(),
    },
    optional={
        "deleted": st.booleans(), "archived": flags, "pinned": flags, "delegates": flags,
        "channel": st.sampled_from(["cli", "web", "x"]), "model": st.just("m"),
        "status": st.sampled_from(["active", "failed"]), "role": st.sampled_from(["user", "tool"]), "tool": st.just("t"),
        "parent": ids, "relation": st.sampled_from(["fork", "delegate"]), "label": st.sampled_from(["a", ["a", "b"]]),
        "id_prefix": st.sampled_from(["cli:", "w"]), "metadata": st.just({"k": 1}),
    },
)  # fmt: skip


def text_message(role, text):
    return {"role": role, "content": text}


def call_message(*names):
    calls = [{"id": name, "type": "function", "function": {"name": "t", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result_message(name):
    return {"role": "tool", "tool_call_id": name, "content": f"of {name}"}


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PAYLOAD}}]}
PINNED = {"role": "user", "content": "pinned", "metadata": {"pinned": True}}

message_lists = st.one_of(
    # The usual messages are frequent: a state that the fast path cannot handle must not hide it.
    st.lists(st.builds(text_message, st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=3),
    st.sampled_from(
        [
            [call_message("x"), result_message("x")],
            [call_message("x", "y"), result_message("y"), result_message("x")],
            [call_message("z", "z"), result_message("z")],
        ]
    ),
    st.lists(
        st.one_of(
            st.builds(text_message, st.just("user"), texts),
            st.builds(text_message, st.just("system"), texts),
            st.sampled_from([call_message("x"), call_message("x", "y"), call_message("z", "z")]),
            st.sampled_from([result_message("x"), result_message("y"), result_message("z")]),
            st.sampled_from([IMAGE, PINNED]),
        ),
        min_size=1,
        max_size=4,
    ),
)


class CountingEngine:
    """An engine that counts the requests for fast paths that the engine within has answered."""

    def __init__(self, engine, answers):
        self._engine = engine
        self._answers = answers

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run(self, op):
        """Return the result, or the coroutine of an async engine."""
        if op.fast is not None:
            finish = op.finish

            def count_answer(request, answer):
                result = finish(request, answer)
                self._answers[type(request)] += result is not None
                return result

            op = copy.copy(op)
            op.finish = count_answer
        return self._engine.run(op)


class StepsEngine:
    """An engine that runs the steps of every operation."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run(self, op):
        """Return the result, or the coroutine of an async engine."""
        op = copy.copy(op)
        op.fast = None
        return self._engine.run(op)


def plain(value):
    """Return a result as plain data. Keys of the database are left out: two databases may count them differently."""
    if hasattr(value, "info") and hasattr(value, "append"):
        return ("session", msgspec.structs.asdict(value.info))
    if hasattr(value, "handle"):
        return ("turn", value.id)
    if isinstance(value, list):
        return [*map(plain, value), getattr(value, "next", None) is not None]
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, msgspec.structs.asdict(value))
    return value


class FastPathComparison(RuleBasedStateMachine):
    """Applies each operation to both stores, and compares the results or errors."""

    def __init__(self, open_pair, answers):
        super().__init__()
        self.now = 1_763_287_200_000
        self.holder, self.dead_holders = 1, set()
        self.sort_limit = listing._SORT_LIMIT
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.stores = [self.wait_for(store) for store in open_pair(self.folder.name)]
        fast, steps = self.stores
        self.search_dialect = fast._engine.search_dialect
        fast._engine = CountingEngine(fast._engine, answers)
        steps._engine = StepsEngine(steps._engine)
        for store in self.stores:
            store.scope = functools.partial(self.scope, store._owner)
        self.handles = [{}, {}]
        self.turns = [[], []]

    def scope(self, owner):
        return Scope(owner, f"here:1:{self.holder}", self.now, self.dead_holders.__contains__, self.search_dialect)

    def wait_for(self, value):
        """Return a value, or the result of an awaitable of an async store."""
        if not inspect.isawaitable(value):
            return value

        async def wait():
            return await value

        return self.loop.run_until_complete(wait())

    def outcome(self, action, number) -> tuple[str, Any]:
        """Run an action on one of the stores, and return its result or its error."""
        try:
            return "returned", self.wait_for(action(self.stores[number], self.handles[number], self.turns[number]))
        except RecollectError as error:
            return "raised", (type(error), str(error))
        except Exception as error:
            raise AssertionError(f"unexpected: {''.join(traceback.format_exception(error))}") from error

    def compare(self, action):
        """Run an action on both stores, and return both results, or None if it raised an error."""
        outcomes = [self.outcome(action, number) for number in range(2)]
        assert plain_outcome(outcomes[0]) == plain_outcome(outcomes[1])
        kind, _ = outcomes[0]
        return [result for _, result in outcomes] if kind == "returned" else None

    def compare_of(self, id, action):
        """Run an action on the handles of a session, which may be outdated, and compare the handles after it."""
        results = self.compare(lambda store, handles, turns: action(handles[id]))
        self.compare_handles(id)
        return results

    def compare_handles(self, id):
        first, second = (msgspec.structs.asdict(handles[id].info) for handles in self.handles)
        assert first == second

    def keep(self, id, sessions):
        """Use the handles from now on."""
        if sessions is not None:
            for handles, session in zip(self.handles, sessions, strict=True):
                handles[id] = session

    def teardown(self):
        try:
            for id in IDS:
                self.restore(id)
            assert self.state(0) == self.state(1)
            for store in self.stores:
                assert self.wait_for(store.check(deep=False)).problems == ()
        finally:
            listing._SORT_LIMIT = self.sort_limit
            for store in self.stores:
                self.wait_for(store.close())
            self.loop.close()
            self.folder.cleanup()

    def state(self, number):
        """Return everything that a store can read."""
        store, wait_for = self.stores[number], self.wait_for
        everything = {"limit": 100, "archived": None, "delegates": True}
        state = {
            order: plain(wait_for(store.list_sessions(order=order, **everything)))
            for order in ("activity", "created", "title")
        }
        state["deleted"] = plain(wait_for(store.list_sessions(deleted=True, **everything)))
        for session in wait_for(store.list_sessions(**everything)):
            state[session.id] = [
                plain(wait_for(read))
                for read in (
                    session.messages(deleted=True), session.messages(active=True), session.turns(), session.tool_calls(),
                    session.branches(),
                )
            ]  # fmt: skip
        return state

    # Sessions.

    @initialize(sort_limit=st.sampled_from([1, 500]))
    def begin(self, sort_limit):
        listing._SORT_LIMIT = sort_limit  # with 1, two pinned sessions are too many for the fast path
        for id in ("cli:a", "web:c"):
            self.create(id, {}, {})

    @rule(id=ids, fields=field_sets, link=links, create=st.booleans())
    def open(self, id, fields, link, create):
        fields = {**fields, **link} if create else fields
        self.keep(id, self.compare(lambda store, handles, turns: store.session(id, create, **fields)))

    @rule(id=ids, fields=field_sets, link=links)
    def create(self, id, fields, link):
        fields = {**fields, **link}
        self.keep(id, self.compare(lambda store, handles, turns: store.create_session(id, **fields)))

    @rule(id=ids, restore=st.sampled_from([True, True, False]))
    def delete(self, id, restore):
        self.compare(lambda store, handles, turns: store.delete_session(id))
        if restore:
            self.restore(id)

    @rule(id=ids)
    def restore(self, id):
        self.keep(id, self.compare(lambda store, handles, turns: store.restore_session(id)))

    @rule(options=list_options, offset=st.none() | st.integers(-2, 2), bound=st.sampled_from(["since", "until"]))
    def list_pages(self, options, offset, bound):
        """Read up to four pages, each with the cursor of its own store."""
        if offset is not None:
            time = datetime.datetime.fromtimestamp((self.now + offset) / 1_000, datetime.UTC)
            options = {**options, bound: time}
        cursors = dict.fromkeys(self.stores)
        for _ in range(4):
            pages = self.compare(lambda store, handles, turns: store.list_sessions(after=cursors[store], **options))
            if pages is None or pages[0].next is None:
                break
            cursors.update(zip(self.stores, [page.next for page in pages], strict=True))

    # Rules about a session need a handle, which an earlier rule has kept.

    def has_handles(self):
        return bool(self.handles[0])

    def pick(self, number):
        return sorted(self.handles[0])[number % len(self.handles[0])]

    def with_revision(self, offset, handle):
        return {} if offset is None else {"expected": max(0, handle.revision + offset)}

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), messages=message_lists, pause=pauses)
    def append(self, number, messages, pause):
        self.now += pause
        self.compare_of(self.pick(number), lambda handle: handle.append(messages))

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), messages=message_lists, key=keys, offset=revision_offsets)
    def append_with_options(self, number, messages, key, offset):
        self.compare_of(
            self.pick(number), lambda handle: handle.append(messages, key=key, **self.with_revision(offset, handle))
        )

    @precondition(has_handles)
    @rule(
        number=st.integers(0, 9), messages=st.just([]) | message_lists, after=st.none() | st.integers(0, 6),
        fields=st.none() | field_sets, key=keys, offset=revision_offsets,
    )  # fmt: skip
    def append_after(self, number, messages, after, fields, key, offset):
        """Append after a message and with changed fields, which no fast path does."""
        self.compare_of(
            self.pick(number),
            lambda handle: handle.append(
                messages, after=after, update=fields, key=key, **self.with_revision(offset, handle)
            ),
        )

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), question=texts, answer=message_lists, pause=pauses)
    def save_turn(self, number, question, answer, pause):
        self.now += pause
        self.compare_of(self.pick(number), lambda handle: handle.save_turn(question, answer))

    @precondition(has_handles)
    @rule(
        number=st.integers(0, 9), question=texts, answer=message_lists, status=statuses, usage=usages, key=keys,
        offset=revision_offsets,
    )  # fmt: skip
    def save_turn_with_options(self, number, question, answer, status, usage, key, offset):
        self.compare_of(
            self.pick(number),
            lambda handle: handle.save_turn(
                question, answer, status=status, key=key, **usage, **self.with_revision(offset, handle)
            ),
        )

    @precondition(has_handles)
    @rule(
        number=st.integers(0, 9), name=st.sampled_from(["x", "y"]), text=texts, call=st.booleans(), append=st.booleans()
    )
    def record_result(self, number, name, text, call, append):
        """Store the result of a call, which an earlier append contains."""
        id = self.pick(number)
        if call:
            self.compare_of(id, lambda handle: handle.append(call_message(name)))
        if append:
            self.compare_of(id, lambda handle: handle.append(result_message(name)))
        else:
            self.compare_of(id, lambda handle: handle.record_tool_result(name, text))

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), last=st.integers(0, 5), deleted=st.booleans())
    def read_last(self, number, last, deleted):
        self.compare_of(self.pick(number), lambda handle: handle.messages(last=last, deleted=deleted))

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), position=st.integers(0, 6), offset=revision_offsets)
    def rewind(self, number, position, offset):
        self.compare_of(self.pick(number), lambda handle: handle.rewind(position, **self.with_revision(offset, handle)))

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), position=st.integers(0, 6), id=ids)
    def fork(self, number, position, id):
        self.keep(id, self.compare_of(self.pick(number), lambda handle: handle.fork(position, id=id)))

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), position=st.integers(1, 6), deleted=st.booleans())
    def delete_or_restore_a_message(self, number, position, deleted):
        id = self.pick(number)
        self.compare_of(id, lambda h: h.delete_message(position) if deleted else h.restore_message(position))
        self.compare_of(id, lambda h: h.messages(last=2))

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), fields=field_sets, offset=revision_offsets)
    def update(self, number, fields, offset):
        self.compare_of(self.pick(number), lambda handle: handle.update(**fields, **self.with_revision(offset, handle)))

    @precondition(has_handles)
    @rule(
        number=st.integers(0, 9), take_over=st.booleans(), answer=st.none() | message_lists,
        end=st.sampled_from(["complete", "cancel", None]),
    )  # fmt: skip
    def open_turn(self, number, take_over, answer, end):
        """Open a turn and perhaps end it; save another one next to it, which is refused while the first one is open."""
        id = self.pick(number)
        turns = self.compare_of(id, lambda handle: handle.turn("q", lease=LEASE / 1_000, take_over=take_over))
        for turns_of_store, turn in zip(self.turns, turns or [], strict=False):
            turns_of_store.append(turn)
        if answer is not None:
            self.compare_of(id, lambda handle: handle.save_turn("q", answer))
        if turns is not None and end is not None:
            self.compare(lambda store, handles, turns: getattr(turns[-1], end)())

    @precondition(has_handles)
    @rule(number=st.integers(0, 9), create=st.booleans())
    def open_after_a_crash(self, number, create):
        """Open a session whose turn was abandoned by another process, which interrupts the turn."""
        id = self.pick(number)
        if self.compare_of(id, lambda handle: handle.turn("q", lease=LEASE / 1_000)) is not None:
            self.end_the_process()
        self.keep(id, self.compare(lambda store, handles, turns: store.session(id, create)))

    @precondition(lambda self: self.turns[0])
    @rule(number=st.integers(0, 9), messages=message_lists, step=st.sampled_from(["add", "complete", "fail", "cancel"]))
    def continue_a_turn(self, number, messages, step):
        def run_step(store, handles, turns):
            turn = turns[number % len(turns)]
            return turn.add(messages) if step == "add" else getattr(turn, step)()

        self.compare(run_step)

    # The clock and the process.

    @rule(step=st.sampled_from([0, 1, 1, 5, LEASE, 100_000]))
    def wait(self, step):
        self.now += step

    @rule()
    def end_the_process(self):
        """Continue as another process: open turns have lost their holder."""
        self.dead_holders.add(f"here:1:{self.holder}")
        self.holder += 1


def plain_outcome(outcome):
    kind, value = outcome
    return kind, plain(value)


def run_comparison(open_pair, answers, examples):
    few = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(lambda: FastPathComparison(open_pair, answers), settings=few)


def opener(face):
    return recollect.open if face == "sync" else recollect.open_async


@pytest.mark.parametrize("face", ["sync", "async"])
def test_the_fast_paths_of_sqlite_change_no_result(face, long):
    answers = collections.Counter()

    def open_pair(folder):
        return [opener(face)(os.path.join(folder, name)) for name in ("fast.db", "steps.db")]

    run_comparison(open_pair, answers, 400 if long else 100)
    assert set(+answers) == set(SqliteFastPaths({}).handlers)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_the_fast_paths_of_postgres_change_no_result(face, databases, long):
    answers = collections.Counter()
    # One connection, because each takes its tree numbers from a range of its own, and these order sessions of one
    # millisecond.
    url = f"{databases.url_of(databases.common, 'plain')}?pool_size=1"

    def open_pair(_):
        databases.wipe()
        return [opener(face)(url, owner=owner) for owner in ("fast", "steps")]

    with databases.pools.reuse():
        run_comparison(open_pair, answers, 60 if long else 20)
    assert set(+answers) == set(fast_paths.FAST_PATHS)


def test_sqlite_has_the_fast_paths_that_save_statements():
    assert set(SqliteFastPaths({}).handlers) == {
        fast_paths.AppendRequest, fast_paths.SaveTurnRequest, fast_paths.ListSessionsRequest
    }  # fmt: skip
