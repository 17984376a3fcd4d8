"""A state machine that applies each operation to two stores and compares the results.

The engine of the first store answers requests for fast paths, that of the second one runs the steps of every operation.
Both share a clock that changes only in a rule, so that times are equal.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import functools
import inspect
import os
import tempfile
import traceback
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import recollect
from recollect import export, storage
from recollect.errors import RecollectError
from recollect.model.compaction import Compaction
from recollect.model.message import Draft, TextPart
from recollect.model.session import Snapshot
from recollect.storage import fast_paths, listing
from recollect.storage.operation import Scope
from recollect.store import Stream, Turn
from recollect.store_async import AsyncStream, AsyncTurn

IDS = ("cli:a", "cli:b", "web:c", "cli:a:delegate:d")
LEASE = 1_000  # milliseconds, the unit of the clock; the rule `wait` can move the clock past it
# A file in memory needs no fsync, on which two thirds of the time would be spent.
FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
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
parents = st.sampled_from([None, None, None, *IDS])
keys = st.sampled_from([None, None, None, None, "k1", "k2"])
revision_offsets = st.sampled_from([None, None, 0, 0, 1, -1])
statuses = st.sampled_from(["completed", "completed", "failed", "cancelled"])
usages = st.fixed_dictionaries(
    {},
    optional={
        "model": st.just("m"), "input_tokens": st.integers(0, 9), "output_tokens": st.integers(0, 9),
        "latency_ms": st.sampled_from([1, 2.5]), "error": st.just({"name": "Oops"}),
    },
)  # fmt: skip
flags = st.sampled_from([None, True, False])
pauses = st.sampled_from([0, 0, 1, 5, fast_paths.ACTIVITY_RESOLUTION + 1])  # milliseconds
list_options = st.fixed_dictionaries(
    {
        "limit": st.integers(1, 4), "order": st.sampled_from(["activity", "created", "title"]),
        "pinned_first": st.booleans(), "oldest_first": st.booleans(),
    },
    optional={
        "deleted": st.booleans(), "archived": flags, "pinned": flags, "delegates": flags,
        "open_turn": flags,
        "channel": st.sampled_from(["cli", "web", "x"]), "model": st.just("m"),
        "status": st.sampled_from(["active", "failed"]), "role": st.sampled_from(["user", "tool"]), "tool": st.just("t"),
        "parent": ids, "relation": st.sampled_from(["fork", "delegate"]), "label": st.sampled_from(["a", ["a", "b"]]),
        "id_prefix": st.sampled_from(["cli:", "w"]), "metadata": st.just({"k": [1]}),
    },
)  # fmt: skip


def text_message(role, text):
    return {"role": role, "content": text}


def reported_message(role, text, counts):
    tokens, input_tokens, output_tokens = counts
    parts = (TextPart(text=text),)
    return Draft(role=role, parts=parts, tokens=tokens, input_tokens=input_tokens, output_tokens=output_tokens)


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
    st.lists(
        st.builds(
            reported_message, st.sampled_from(["user", "assistant"]), texts, st.sampled_from([(1, 20, 300), (7, 0, 5)])
        ),
        min_size=1,
        max_size=2,
    ),
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
positions = st.integers(0, 6)
numbers = st.integers(0, 9)
some_position = st.none() | st.integers(1, 6)
time_bounds = st.fixed_dictionaries(
    {}, optional={"since": st.integers(-2, 2), "until": st.integers(-2, 2)}
)  # milliseconds
ages = st.sampled_from([0, 0, 0, 1, 2])  # of a handle: 0 is the last one
turn_ends = st.sampled_from(["complete", "fail", "cancel", "interrupt"])
chunks = st.tuples(texts, st.sampled_from(["text", "reasoning"]), st.sampled_from(["flush", None, call_message("x")]))
turn_steps = st.one_of(st.just("renew"), st.builds(lambda chunk: ("stream", *chunk), chunks), message_lists)
mostly = st.sampled_from([True, True, False])
prune_rules = st.sampled_from(
    [
        {"keep": 1}, {"keep": 0}, {"older_than": 0.1}, {"max_bytes": 600}, {"max_messages": 2},
        {"max_messages": 2, "tool_output_over": 3}, {"tool_output_over": 3},
    ]
)  # fmt: skip


def export_of(store, ids):
    return (export.chunks if isinstance(store, recollect.Store) else export.chunks_async)(store, ids, "jsonl")


def some_of(reads):
    """Return lists of the names of a few reads: one per step would leave out some of them in a short run."""
    return st.lists(st.sampled_from(sorted(reads)), min_size=3, max_size=6, unique=True)


# Reads of a session and of a store. A rule compares a few of them; some are compared at the end of each example.
SESSION_READS = {
    "messages": lambda session: session.messages(deleted=True),
    "last messages": lambda session: session.messages(last=3),
    "page": lambda session: session.messages(before=3),
    "page after a message": lambda session: session.messages(after=1, limit=2),
    "page after a time": lambda session: session.messages(after="2025-11-16T10:00:00.001Z", limit=2),
    "last active messages": lambda session: session.messages(last=2, active=True),
    "last provider messages": lambda session: session.history("anthropic", last=2),
    "last items": lambda session: session.history("openai-responses", last=2, repair=False),
    "record": lambda session: session.records.get("kind", "k"),
    "records": lambda session: session.records.list("kind"),
    "message": lambda session: session.message(1),
    "messages of a branch": lambda session: session.messages(branch=1),
    "page of a branch": lambda session: session.messages(branch=1, before=4, limit=2),
    "active messages in a budget": lambda session: session.messages(active=True, budget=20),
    "shown counts of ranges": lambda session: session.shown_counts([(0, 2), (1, None)]),
    "active messages": lambda session: session.messages(active=True),
    "history": lambda session: session.history("anthropic"),
    "history in a budget": lambda session: session.history("openai", 20),
    "active tokens": lambda session: session.active_tokens(),
    "turns": lambda session: session.turns.list(),
    "tool calls": lambda session: session.tools.list(),
    "branches": lambda session: session.branches.list(),
    "compactions": lambda session: session.compactions.list(),
    "snapshots": lambda session: session.snapshots.list(),
    "presences": lambda session: session.presence.list(),
    "statistics": lambda session: session.stats(),
    "fields": lambda session: session.refresh(),
    "export": lambda session: export_of(session.store, [session.id]),
    "shown counts": lambda session: session.branches.shown_counts(),
    "append by key": lambda session: session.find_append("k1"),
}  # fmt: skip
EVERY_SESSION = {"limit": 100, "archived": None, "delegates": True}
STORE_READS = {
    **{
        order: lambda store, order=order: store.list_sessions(order=order, **EVERY_SESSION)
        for order in ("activity", "created", "title")
    },
    "trash": lambda store: store.list_sessions(deleted=True, **EVERY_SESSION),
    "default list": lambda store: store.list_sessions(),
    "pinned first": lambda store: store.list_sessions(pinned_first=True),
    "search": lambda store: store.search("one"),
    "search with operators": lambda store: store.search("tw* OR of", limit=2),
    "search in the trash": lambda store: store.search("a", deleted=True),
    "session by id": lambda store: store.get_session("cli:a"),
    "session by prefix": lambda store: store.find_session("cli:"),
    "session by title": lambda store: store.find_session("A"),
    "shown counts": lambda store: store.shown_counts(IDS),
    "statistics": lambda store: store.stats(),
    "tool statistics": lambda store: store.tools.stats(period="day"),
    "record": lambda store: store.records.get("kind", "k"),
    "records": lambda store: store.records.list("kind", prefix="k"),
    "message by key": lambda store: store.message(key="m1"),
    "owners": lambda store: store.maintenance.owners(),
    "export": lambda store: export_of(store, None),
    "open turns": lambda store: store.list_sessions(open_turn=True, **EVERY_SESSION),
}  # fmt: skip
STATE_OF_SESSION = ("messages", "active messages", "turns", "tool calls", "branches")
STATE_OF_STORE = ("activity", "created", "title", "trash", "export")


class CountingEngine:
    """An engine that counts the requests for fast paths that the engine within has answered, by type and query."""

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
                self._answers[kind_of(request)] += result is not None
                return result

            op = copy.copy(op)
            op.finish = count_answer
        return self._engine.run(op)


def kind_of(request):
    """Return the type of a request, and the query of a list."""
    return type(request), getattr(request, "query", None)


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
    if isinstance(value, Turn | AsyncTurn | Stream | AsyncStream):
        return (type(value).__name__, value.id)
    if isinstance(value, list):
        return [*map(plain, value), getattr(value, "next", None) is not None]
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, Snapshot | Compaction):
        return msgspec.structs.replace(value, id=0)
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, msgspec.structs.asdict(value))
    return value


class Side:
    """One of the two stores, and the handles that the rules have received from it."""

    def __init__(self, store):
        self.store = store
        self.handles = {}
        self.turns = []
        self.streams = []


def turn_of(side, age):
    return side.turns[-1 - age % len(side.turns)]


def stream_of(side, age):
    return side.streams[-1 - age % len(side.streams)]


class FastPathComparison(RuleBasedStateMachine):
    """Applies each operation to both stores, and compares the results or errors."""

    def __init__(self, open_pair, answers):
        super().__init__()
        self.now = 1_763_287_200_000
        self.holder, self.dead_holders = 1, set()
        self.sort_limit = listing._SORT_LIMIT
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.sides = [Side(self.wait_for(store)) for store in open_pair(self.folder.name)]
        fast, steps = [side.store for side in self.sides]
        self.search_dialect = fast._engine.search_dialect
        fast._engine = CountingEngine(fast._engine, answers)
        steps._engine = StepsEngine(steps._engine)
        for side in self.sides:
            side.store._scope = functools.partial(self.scope, side.store._owner)

    def scope(self, owner):
        return Scope(owner, f"here:1:{self.holder}", self.now, self.dead_holders.__contains__, self.search_dialect)

    def wait_for(self, value) -> Any:
        """Return a value, the result of an awaitable of an async store, or the items of an iterator as a list."""
        if inspect.isgenerator(value):
            return list(value)
        if inspect.isasyncgen(value):
            return self.wait_for(as_list(value))
        if not inspect.isawaitable(value):
            return value

        async def wait():
            return await value

        return self.loop.run_until_complete(wait())

    def outcome(self, action, side) -> tuple[str, Any]:
        """Run an action on one of the stores, and return its result or its error."""
        try:
            return "returned", self.wait_for(action(side))
        except RecollectError as error:
            return "raised", (type(error), str(error))
        except Exception as error:
            raise AssertionError(f"unexpected: {''.join(traceback.format_exception(error))}") from error

    def compare(self, action):
        """Run an action on both stores, and return both results, or None if it raised an error."""
        outcomes = [self.outcome(action, side) for side in self.sides]
        check_equal(*map(plain_outcome, outcomes))
        kind, _ = outcomes[0]
        return [result for _, result in outcomes] if kind == "returned" else None

    def compare_of(self, id, action):
        """Run an action on the handles of a session, which may be outdated, and compare the handles after it."""
        results = self.compare(lambda side: action(side.handles[id]))
        self.compare_handles(id)
        return results

    def compare_handles(self, id):
        check_equal(*(msgspec.structs.asdict(side.handles[id].info) for side in self.sides))

    def keep(self, id, sessions):
        """Use the handles from now on."""
        for side, session in zip(self.sides, sessions or [], strict=False):
            side.handles[id] = session

    def teardown(self):
        try:
            for id in IDS:
                self.restore(id)
            self.compare_state()
            for side in self.sides:
                assert self.wait_for(side.store.maintenance.check(deep=False)).problems == ()
        finally:
            listing._SORT_LIMIT = self.sort_limit
            for side in self.sides:
                self.wait_for(side.store.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.folder.cleanup()

    def compare_state(self):
        """Compare what the stores hold: rules compare the other reads."""
        for name in STATE_OF_STORE:
            self.compare(lambda side, name=name: STORE_READS[name](side.store))
        for session in self.wait_for(self.sides[0].store.list_sessions(**EVERY_SESSION)):
            id = session.id
            self.keep(id, [self.wait_for(side.store.get_session(id)) for side in self.sides])
            for name in STATE_OF_SESSION:
                self.compare_of(id, SESSION_READS[name])

    # Sessions.

    @initialize(sort_limit=st.sampled_from([1, 500]), delegate=st.booleans())
    def begin(self, sort_limit, delegate):
        listing._SORT_LIMIT = sort_limit  # with 1, two pinned sessions are too many for the fast path
        for id in ("cli:a", "web:c"):
            self.create(id, {}, None)
        if delegate:
            self.create("cli:a:delegate:d", {}, "cli:a")

    @rule(id=ids, fields=field_sets, parent=parents, create=st.booleans())
    def open(self, id, fields, parent, create):
        if create and parent is not None:
            fields = {**fields, "parent": parent}
        self.keep(id, self.compare(lambda side: side.store.session(id, create=create, **fields)))

    @rule(id=ids, fields=field_sets, parent=parents)
    def create(self, id, fields, parent):
        fields = {**fields, "parent": parent} if parent is not None else fields
        self.keep(id, self.compare(lambda side: side.store.session(id, exist_ok=False, **fields)))

    @rule(id=ids, restore=mostly)
    def delete(self, id, restore):
        self.compare(lambda side: side.store.delete_session(id))
        if restore:
            self.restore(id)

    @rule(id=ids)
    def restore(self, id):
        self.keep(id, self.compare(lambda side: side.store.restore_session(id)))

    @rule(
        limit=st.integers(1, 4), pinned_first=mostly, bounds=time_bounds, pin=st.booleans(), unpin=st.booleans(),
        order=st.sampled_from(["activity", "created", "deleted"]), oldest_first=st.booleans(),
    )  # fmt: skip
    def list_without_filters(self, limit, pinned_first, bounds, pin, unpin, order, oldest_first):
        """Read the list that has statements of its own, perhaps after a session was pinned or while one is unpinned."""
        if pin and self.has_handles():
            self.compare_of(self.pick(limit), lambda handle: handle.update(pinned=True))
        options = {"limit": limit, "pinned_first": pinned_first}
        self.compare_pages({**options, **self.times(bounds)}, unpin=unpin)
        kind = {"deleted": True} if order == "deleted" else {"order": order}
        self.compare_pages({"limit": limit, "oldest_first": oldest_first, **kind})

    @rule(options=list_options, bounds=time_bounds)
    def list_with_filters(self, options, bounds):
        self.compare_pages({**options, **self.times(bounds)})

    def times(self, bounds):
        """Return the bounds of a list, which are distances from the time of the clock."""
        return {
            name: datetime.datetime.fromtimestamp((self.now + offset) / 1_000, datetime.UTC)
            for name, offset in bounds.items()
        }

    def compare_pages(self, options, *, unpin=False):
        """Read up to four pages, each with the cursor of its own store."""
        cursors = dict.fromkeys(self.sides)
        for _ in range(4):
            pages = self.compare(lambda side: side.store.list_sessions(after=cursors[side], **options))
            if pages is None or pages[0].next is None:
                break
            if unpin:
                for page in pages:
                    self.wait_for(page[0].update(pinned=False))
            cursors.update(zip(self.sides, [page.next for page in pages], strict=True))

    @rule(names=some_of(STORE_READS))
    def read_store(self, names):
        for name in names:
            self.compare(lambda side, name=name: STORE_READS[name](side.store))

    # Rules about a session need a handle, which an earlier rule has kept.

    def has_handles(self):
        return bool(self.sides[0].handles)

    def pick(self, number):
        handles = self.sides[0].handles
        return sorted(handles)[number % len(handles)]

    def with_revision(self, offset, handle):
        return {} if offset is None else {"expected": max(0, handle.revision + offset)}

    @precondition(has_handles)
    @rule(number=numbers, messages=message_lists, pause=pauses)
    def append(self, number, messages, pause):
        self.now += pause
        self.compare_of(self.pick(number), lambda handle: handle.append(messages))

    @precondition(has_handles)
    @rule(number=numbers, messages=message_lists, key=keys, offset=revision_offsets)
    def append_with_options(self, number, messages, key, offset):
        self.compare_of(
            self.pick(number), lambda handle: handle.append(messages, key=key, **self.with_revision(offset, handle))
        )

    @precondition(has_handles)
    @rule(number=numbers, question=texts, answer=message_lists, pause=pauses)
    def save_turn(self, number, question, answer, pause):
        self.now += pause
        self.compare_of(self.pick(number), lambda handle: handle.save_turn(question, answer))

    @precondition(has_handles)
    @rule(
        number=numbers, question=texts, answer=message_lists, status=statuses, usage=usages, key=keys,
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
        number=numbers, name=st.sampled_from(["x", "y"]), text=texts, call=st.booleans(), start=st.booleans(),
        append=st.booleans(),
    )  # fmt: skip
    def record_result(self, number, name, text, call, start, append):
        """Store the result of a call, which an earlier append contains."""
        id = self.pick(number)
        if call:
            self.compare_of(id, lambda handle: handle.append(call_message(name)))
        if start:
            self.compare_of(id, lambda handle: handle.tools.start(name))
        if append:
            self.compare_of(id, lambda handle: handle.append(result_message(name)))
        else:
            self.compare_of(id, lambda handle: handle.tools.record_result(name, text))

    @precondition(has_handles)
    @rule(number=numbers, last=st.integers(0, 5), deleted=st.booleans())
    def read_last(self, number, last, deleted):
        self.compare_of(self.pick(number), lambda handle: handle.messages(last=last, deleted=deleted))

    @precondition(has_handles)
    @rule(number=numbers, names=some_of(SESSION_READS))
    def read_session(self, number, names):
        id = self.pick(number)
        for name in names:
            self.compare_of(id, SESSION_READS[name])

    @precondition(has_handles)
    @rule(number=numbers, position=positions)
    def rewind(self, number, position):
        self.compare_of(self.pick(number), lambda handle: handle.rewind(position))

    @precondition(has_handles)
    @rule(number=numbers, branch=st.integers(1, 4))
    def switch(self, number, branch):
        self.compare_of(self.pick(number), lambda handle: handle.branches.switch(branch))

    @precondition(has_handles)
    @rule(number=numbers, position=positions, id=ids)
    def fork(self, number, position, id):
        self.keep(id, self.compare_of(self.pick(number), lambda handle: handle.fork(position, id=id)))
        self.compare(lambda side: side.handles[id].messages(last=3) if id in side.handles else None)

    @precondition(has_handles)
    @rule(
        number=numbers, position=st.integers(1, 6),
        change=st.sampled_from([
            lambda handle, position: handle.delete_messages([position]),
            lambda handle, position: handle.restore_messages([position]),
            lambda handle, position: handle.mark_message(position, {"pinned": True}),
            lambda handle, position: handle.mark_message(position, {"pinned": None}),
        ]),
    )  # fmt: skip
    def change_a_message(self, number, position, change):
        id = self.pick(number)
        self.compare_of(id, lambda handle: change(handle, position))
        self.compare_of(id, lambda handle: handle.messages(last=2))

    @precondition(has_handles)
    @rule(number=numbers, fields=field_sets, offset=revision_offsets)
    def update(self, number, fields, offset):
        self.compare_of(self.pick(number), lambda handle: handle.update(**fields, **self.with_revision(offset, handle)))

    @precondition(has_handles)
    @rule(number=numbers, before=some_position, keep_turns=st.integers(0, 1), undo=st.booleans(), round=some_position)
    def compact(self, number, before, keep_turns, undo, round):
        id = self.pick(number)
        self.compare_of(id, lambda handle: handle.compact(before, summary="so far", keep_turns=keep_turns))
        if undo:
            self.compare_of(id, lambda handle: handle.compactions.undo(round))

    @precondition(has_handles)
    @rule(number=numbers, kind=st.sampled_from(["title", "memory"]), text=texts, position=some_position)
    def snapshot(self, number, kind, text, position):
        self.compare_of(self.pick(number), lambda handle: handle.snapshots.add(kind, text, at=position))

    # Turns and streams.

    @precondition(has_handles)
    @rule(
        number=numbers, take_over=st.booleans(), answer=st.none() | message_lists,
        steps=st.lists(turn_steps, max_size=3), end=st.none() | turn_ends,
    )  # fmt: skip
    def open_turn(self, number, take_over, answer, steps, end):
        """Open a turn, continue and perhaps end it; save another one next to it, which is refused while it is open."""
        id = self.pick(number)
        turns = self.compare_of(id, lambda handle: handle.turn("q", lease=LEASE / 1_000, take_over=take_over))
        self.keep_turns(turns)
        if answer is not None:
            self.compare_of(id, lambda handle: handle.save_turn("q", answer))
        for step in steps if turns is not None else ():
            self.continue_a_turn(0, step)
        if turns is not None and end is not None:
            self.compare(lambda side: getattr(side.turns[-1], end)())

    def keep_turns(self, turns):
        for side, turn in zip(self.sides, turns or [], strict=False):
            side.turns.append(turn)

    @precondition(has_handles)
    @rule(number=numbers, create=st.booleans())
    def open_after_a_crash(self, number, create):
        """Open a session whose turn was abandoned by another process, which interrupts the turn."""
        id = self.pick(number)
        if self.compare_of(id, lambda handle: handle.turn("q", lease=LEASE / 1_000)) is not None:
            self.end_the_process()
        self.keep(id, self.compare(lambda side: side.store.session(id, create=create)))

    def has_turns(self):
        return bool(self.sides[0].turns)

    @precondition(has_turns)
    @rule(age=ages, step=turn_steps)
    def continue_a_turn(self, age, step):
        """Add messages to a turn, renew its lease or stream an answer, through one of the last handles."""
        match step:
            case "renew":
                self.compare(lambda side: turn_of(side, age).renew())
            case ("stream", *chunk):
                streams = self.compare(lambda side: turn_of(side, age).stream())
                for side, stream in zip(self.sides, streams or [], strict=False):
                    side.streams.append(stream)
                if streams is not None:
                    self.continue_a_stream(0, chunk)
            case _:
                self.compare(lambda side: turn_of(side, age).add(step))

    @precondition(has_turns)
    @rule(age=ages, end=turn_ends)
    def end_a_turn(self, age, end):
        self.compare(lambda side: getattr(turn_of(side, age), end)())

    @precondition(has_turns)
    @rule(age=ages, interrupt=st.booleans())
    def resume_a_turn(self, age, interrupt):
        turn = turn_of(self.sides[0], age)
        if interrupt:
            self.compare(lambda side: turn_of(side, age).interrupt())
        self.keep_turns(
            self.compare_of(turn.session.id, lambda handle: handle.turns.resume(turn.id, lease=LEASE / 1_000))
        )

    @precondition(lambda self: self.sides[0].streams)
    @rule(age=ages, chunk=chunks)
    def continue_a_stream(self, age, chunk):
        """Write to a stream, and store the text or close the stream, perhaps with another message."""
        text, kind, end = chunk
        self.compare(lambda side: stream_of(side, age).write(text, kind))
        if end == "flush":
            self.compare(lambda side: stream_of(side, age).flush())
        else:
            self.compare(lambda side: stream_of(side, age).close(end))

    # The whole store.

    @rule(
        id=ids, forks=st.sampled_from(["refuse", "keep", "erase"]), deleted=st.sampled_from([None, True, False]),
        create=st.booleans(),
    )  # fmt: skip
    def erase(self, id, forks, deleted, create):
        self.compare(lambda side: side.store.erase_session(id, forks=forks, deleted=deleted))
        if create:
            self.create(id, {}, None)

    @rule(id=st.none() | ids, older_than=st.sampled_from([None, 0.1]), dry_run=mostly)
    def empty_the_trash(self, id, older_than, dry_run):
        if id is not None:
            self.compare(lambda side: side.store.delete_session(id))
        self.compare(lambda side: side.store.maintenance.empty_trash(older_than=older_than, dry_run=dry_run))

    @rule(options=prune_rules, dry_run=st.booleans(), erase=st.booleans(), restore=mostly)
    def prune(self, options, dry_run, erase, restore):
        self.compare(lambda side: side.store.maintenance.prune(dry_run=dry_run, erase=erase, **options))
        for id in IDS if restore else ():
            self.restore(id)

    @rule(
        key=st.sampled_from(["k", "l"]), value=st.sampled_from([None, 1, {"a": [True]}, b"bytes"]), id=ids,
        expected=st.sampled_from([None, None, 0, 1]), delete=st.booleans(),
    )  # fmt: skip
    def change_records(self, key, value, id, expected, delete):
        """Write or delete a record of the store and of a session."""

        def change(records):
            if delete:
                return records.delete("kind", key, expected=expected)
            return records.put("kind", key, value, expected=expected)

        self.compare(lambda side: change(side.store.records))
        if id in self.sides[0].handles:
            self.compare_of(id, lambda handle: change(handle.records))

    @precondition(has_handles)
    @rule(number=numbers, add=st.booleans(), label=st.sampled_from(["a", "b"]), parent=st.none() | ids)
    def change_labels_and_parent(self, number, add, label, parent):
        id = self.pick(number)
        self.compare_of(
            id, lambda handle: handle.update(add_labels=[label]) if add else handle.update(remove_labels=[label])
        )
        self.compare_of(id, lambda handle: handle.update(parent=parent))
        self.compare_of(id, lambda handle: handle.append([], update={"add_labels": ["c"], "remove_labels": [label]}))

    @precondition(has_handles)
    @rule(number=numbers, messages=message_lists, position=positions, fields=field_sets, offset=revision_offsets)
    def append_after(self, number, messages, position, fields, offset):
        self.compare_of(
            self.pick(number),
            lambda handle: handle.append(messages, after=position, update=fields, **self.with_revision(offset, handle)),
        )

    @precondition(has_handles)
    @rule(number=numbers, keys=st.lists(st.sampled_from(["m1", "m2", "m3"]), min_size=1, max_size=3), text=texts)
    def append_with_message_keys(self, number, keys, text):
        drafts = [Draft(role="user", parts=(TextPart(text=text),), key=key) for key in keys]
        id = self.pick(number)
        self.compare_of(id, lambda handle: handle.append(drafts))
        call = {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}
        items = [{"role": "user", "content": text}, call]
        self.compare_of(id, lambda handle: handle.append(items, "openai-responses", keys=[None, f"{number} {text}"]))
        self.compare_of(id, lambda handle: handle.message(key="m1"))
        self.compare(lambda side: side.store.message(key="m1"))

    @precondition(has_handles)
    @rule(number=numbers, position=st.integers(1, 6), text=texts, erase=st.booleans(), count=st.integers(0, 2))
    def edit_messages(self, number, position, text, erase, count):
        id = self.pick(number)
        self.compare_of(id, lambda handle: handle.replace_message(position, text_message("user", text), erase=erase))
        self.compare_of(id, lambda handle: handle.message_versions(position))
        self.compare_of(
            id,
            lambda handle: handle.mark_message(
                position, {"rating": count, "pinned": erase}, input_tokens=count or None
            ),
        )
        self.compare_of(id, lambda handle: handle.delete_messages([position]))
        self.compare_of(id, lambda handle: handle.pop(count))

    @precondition(has_handles)
    @rule(
        number=numbers,
        presence=st.sampled_from(["p", "q"]),
        take_over=st.booleans(),
        end=st.sampled_from(["stay", "leave"]),
    )
    def change_presences(self, number, presence, take_over, end):
        id = self.pick(number)
        self.compare_of(id, lambda handle: handle.presence.arrive("web", id=presence, take_over=take_over))
        self.compare_of(id, lambda handle: getattr(handle.presence, end)(presence))

    @rule(step=st.sampled_from(["index", "reindex", "clear"]))
    def change_the_index(self, step):
        if step == "clear":
            self.compare(lambda side: side.store._run(storage.search.clear(side.store._scope())))
        else:
            self.compare(lambda side: getattr(side.store.maintenance, step)())

    @rule(id=st.none() | ids)
    def recover(self, id):
        self.compare(lambda side: side.store.maintenance.recover(id))

    @rule(deep=st.booleans(), repair=st.booleans())
    def check(self, deep, repair):
        self.compare(lambda side: side.store.maintenance.check(deep=deep, repair=repair, file=False))

    # The clock and the process.

    @rule(step=st.sampled_from([0, 1, 1, 5, LEASE, 100_000, -1, -5, -LEASE]))
    def wait(self, step):
        """Change the clock; it may also be set back."""
        self.now += step

    @rule()
    def end_the_process(self):
        """Continue as another process: open turns have lost their holder."""
        self.dead_holders.add(f"here:1:{self.holder}")
        self.holder += 1


async def as_list(items):
    return [item async for item in items]


def check_equal(fast, steps):
    assert fast == steps, f"with fast paths:\n{fast}\nwithout:\n{steps}"


def plain_outcome(outcome):
    kind, value = outcome
    return kind, plain(value)
