"""Forced schedules: an operation is stopped before each of its statements in turn, while another one runs beside it.

The other operation runs until it ends or waits for a lock of the first, and only then the first one continues. So
every interleaving of the two at the level of statements is tried, and none depends on how fast the machine is.
"""

from __future__ import annotations

import random
import threading
import time

import psycopg
import pytest

import recollect
from recollect import ops
from recollect.model.message import Draft
from recollect.model.part import TextPart
from recollect.op import Op

DEADLINE = 60  # seconds; only a failure reaches it
LEASE = 60_000
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()
"""


@pytest.fixture
def database(databases):
    """A database of its own: the rows of so many schedules would change the plans of later tests in the shared one."""
    name = databases.make()
    yield name
    databases.drop(name)


@pytest.fixture
def admin(databases, database):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def store(postgres):
    with recollect.open(postgres) as store:
        yield store


class Stop:
    """A place in an operation where it waits, the first time that it is run: before its statement of a number."""

    def __init__(self, number):
        self.number = number
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def op(self, op):
        """Return the operation with this stop in it."""
        return Op(lambda: self._steps(op), writes=op.writes, scrubs=op.scrubs, unindexes=op.unindexes, frees=op.frees)

    def _steps(self, op):
        steps, rows, number = op.start(), None, 0
        try:
            while True:
                statement = steps.send(rows)
                if number == self.number and not self.reached.is_set():
                    self.reached.set()
                    assert self.go_on.wait(DEADLINE)
                number += 1
                rows = yield statement
        except StopIteration as end:
            return end.value


class Running(threading.Thread):
    """An operation in a thread of its own, with its result or its error."""

    def __init__(self, store, op):
        super().__init__(daemon=True)
        self.result = self.error = None
        self._work = lambda: store.run(op)
        self.start()

    def run(self):
        try:
            self.result = self._work()
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.error = error

    def ended(self):
        self.join(DEADLINE)
        assert not self.is_alive()
        return self


def until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def interleave(store, admin, first, second, number):
    """Stop the first before a statement, run the second as far as it gets, and end both. None: it has fewer statements."""
    stop = Stop(number)
    one = Running(store, stop.op(first))
    until(lambda: stop.reached.is_set() or not one.is_alive())
    if not stop.reached.is_set():
        one.ended()
        return None
    other = Running(store, second)
    until(lambda: not other.is_alive() or admin.execute(WAITING).fetchone()[0])
    stop.go_on.set()
    return one.ended(), other.ended()


def every_schedule(store, admin, make, *, may_fail=()):
    """Try every schedule of a pair of operations, in both roles. `make` returns a fresh pair for each."""
    tried = 0
    for turned in (False, True):
        for number in range(100):
            pair = make()
            ran = interleave(store, admin, *(pair[::-1] if turned else pair), number)
            check(store)
            if ran is None:
                assert number > 1
                break
            for each in ran:
                assert each.error is None or isinstance(each.error, may_fail), each.error
            tried += 1
    return tried


def check(store):
    found = store.check(deep=False)
    assert found.problems == (), found.problems


def said(text):
    return {"role": "user", "content": text}


def streaming(store, name, *, deleted=False):
    """Open a stream in a session; the fork shares the message in which it streams."""
    session = store.session(name)
    turn = session.turn("a question")
    stream = turn.stream()
    stream.write("half of ")
    stream.flush()
    fork = session.fork(id=f"{name}-fork")
    if deleted:
        session.delete_message(stream.id)
    return session, stream, fork


def closing(store, session, stream):
    draft = Draft(role="assistant", parts=(TextPart(text="a whole answer " * 20),), input_tokens=7, output_tokens=11)
    return ops.streams.close(store.scope(), session.id, stream._flow, draft, lease=LEASE)


@pytest.mark.parametrize("through", ["session", "fork"])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_message_is_deleted_or_restored_while_its_stream_is_closed(store, admin, through, deleted):
    names = (f"s{number}" for number in range(1000))

    def make():
        session, stream, fork = streaming(store, next(names), deleted=not deleted)
        id = session.id if through == "session" else fork.id
        return closing(store, session, stream), ops.messages.mark(store.scope(), id, stream.id, deleted=deleted)

    assert every_schedule(store, admin, make) > 10


def test_a_message_is_pinned_by_a_fork_while_its_stream_is_closed(store, admin):
    names = (f"s{number}" for number in range(1000))
    made = []

    def make():
        session, stream, fork = streaming(store, next(names))
        made.append((session, stream))
        return closing(store, session, stream), ops.pins.mark(store.scope(), fork.id, stream.id, pinned=True)

    assert every_schedule(store, admin, make) > 10
    messages = [session.message(stream.id) for session, stream in made]
    assert sum(message.pinned for message in messages) == len(made) - 1  # once the first of the two ran alone
    assert sum(message.state == "completed" for message in messages) == len(made) - 1
    assert all(message.text.startswith("a whole answer") for message in messages if message.state == "completed")


@pytest.mark.parametrize("deleted", [True, False])
def test_an_output_is_dropped_while_a_fork_deletes_or_restores_its_message(store, admin, deleted):
    names = (f"s{number}" for number in range(1000))
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}

    def make():
        session = store.session(next(names))
        session.append([said("q"), {"role": "assistant", "content": None, "tool_calls": [call]}])
        session.append({"role": "tool", "tool_call_id": "c1", "content": "long " * 400})
        fork = session.fork(id=f"{session.id}-fork")
        if not deleted:
            fork.delete_message(3)
        key = store.run(Op(_key, store.scope(), session.id, writes=False))
        dropping = Op(ops.thinning._drop, store.scope(), key, 100, (0, 0), False, unindexes=True, frees=True)
        return dropping, ops.messages.mark(store.scope(), fork.id, 3, deleted=deleted)

    assert every_schedule(store, admin, make) > 10


def _key(scope, session):
    return (yield from ops.sessions.find(scope, session)).session


def restoring(store, id):
    return ops.sessions.restore(store.scope(), id)


APPENDS = {
    "append": lambda store, name: ops.appends.append(
        store.scope(), name, [Draft(role="user", parts=(TextPart(text="x"),))]
    ),
    "append with a key": lambda store, name: ops.appends.append(
        store.scope(), name, [Draft(role="user", parts=(TextPart(text="x"),))], key="k"
    ),
    "open": lambda store, name: ops.sessions.opened(store.scope(), name),
    "update": lambda store, name: ops.sessions.update(store.scope(), name, {"title": "t"}),
    "delete a message": lambda store, name: ops.messages.mark(store.scope(), name, 1, deleted=True),
    "rewind": lambda store, name: ops.branches.rewind(store.scope(), name, 1),
    "restore": restoring,
}


@pytest.mark.parametrize("name", APPENDS)
def test_a_session_that_is_restored_meanwhile_is_there_or_in_the_trash(store, admin, name):
    """It was never erased, so that nobody is told that there is none."""
    names = (f"s{number}" for number in range(1000))
    outcomes = []

    def make():
        id = next(names)
        store.session(id).append([said("one"), said("two")])
        store.delete_session(id)
        return APPENDS[name](store, id), restoring(store, id)

    for turned in (False, True):
        for number in range(100):
            pair = make()
            ran = interleave(store, admin, *(pair[::-1] if turned else pair), number)
            if ran is None:
                break
            outcomes += [each.error for each in ran]
    check(store)
    assert {type(error) for error in outcomes} <= {type(None), recollect.SessionInTrash}, outcomes
    assert len(outcomes) > 4


def stream(store, name, ended):
    session = store.session(name)
    while time.monotonic() < ended:
        with session.turn("q") as turn, turn.stream() as answer:
            for _ in range(3):
                answer.write("words " * 20)
                answer.flush()


def mark(store, seed, ended):
    chance = random.Random(seed)
    while time.monotonic() < ended:
        session = store.session(f"s{chance.randrange(4)}")
        if chance.random() < 0.3:
            session = session.fork()
        message = chance.choice(session.messages(last=3, deleted=True))
        (session.delete_message if message.deleted_at is None else session.restore_message)(message.id)


@pytest.mark.long
def test_streams_deletions_and_forks_at_random(postgres):
    """Many at once, without a schedule: the counts are right in the end."""
    ended = time.monotonic() + 60
    with recollect.open(postgres) as store:
        for number in range(4):
            store.session(f"s{number}").append(said("first"))
        threads = [threading.Thread(target=stream, args=(store, f"s{number}", ended)) for number in range(4)]
        threads += [threading.Thread(target=mark, args=(store, seed, ended)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.session("s0").messages()) > 20
        check(store)
