"""Forced schedules: an operation is stopped before each of its statements in turn, while another one runs.

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
from recollect import storage
from recollect.model.message import Draft, TextPart
from recollect.storage.operation import Deletion, Operation

DEADLINE = 60  # seconds; only a failure reaches it
LEASE = 60_000  # milliseconds; longer than any test
BLOCKED_BACKENDS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()
"""


DELETIONS = {True: storage.edits.delete, False: storage.edits.restore}


@pytest.fixture
def database_name(databases):
    """Create a separate database: the rows of so many schedules would change plans of later tests in the shared one."""
    name = databases.make()
    yield name
    databases.drop(name)


@pytest.fixture
def admin(databases, database_name):
    with psycopg.connect(databases.url_of(database_name, "postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def store(postgres):
    with recollect.open(postgres) as store:
        yield store


class StopPoint:
    """Makes an operation wait before its n-th statement, the first time that it runs."""

    def __init__(self, number):
        self.number = number
        self.stop_event = threading.Event()
        self.continue_event = threading.Event()

    def wrap(self, op):
        """Return an operation that runs `op` and stops at this point."""
        return Operation(
            lambda: self._steps(op),
            writes=op.writes,
            deletion=op.deletion,
            removes_from_index=op.removes_from_index,
        )

    def _steps(self, op):
        steps, rows, number = op.start(), None, 0
        try:
            while True:
                statement = steps.send(rows)
                if number == self.number and not self.stop_event.is_set():
                    self.stop_event.set()
                    assert self.continue_event.wait(DEADLINE)
                number += 1
                rows = yield statement
        except StopIteration as end:
            return end.value


class OperationThread(threading.Thread):
    """Runs an operation in a thread, and stores its result or its error."""

    def __init__(self, store, op):
        super().__init__(daemon=True)
        self.result = self.error = None
        self._work = lambda: store._run(op)
        self.start()

    def run(self):
        try:
            self.result = self._work()
        except Exception as error:  # noqa: BLE001  the test asserts it
            self.error = error

    def wait(self):
        self.join(DEADLINE)
        assert not self.is_alive()
        return self


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def interleave(store, admin, first, second, number):
    """Stop `first` before a statement, run `second` as far as it gets, and wait for both.

    Return None if `first` has fewer statements.
    """
    stop = StopPoint(number)
    first_thread = OperationThread(store, stop.wrap(first))
    wait_until(lambda: stop.stop_event.is_set() or not first_thread.is_alive())
    if not stop.stop_event.is_set():
        first_thread.wait()
        return None
    second_thread = OperationThread(store, second)
    wait_until(lambda: not second_thread.is_alive() or admin.execute(BLOCKED_BACKENDS).fetchone()[0])
    stop.continue_event.set()
    return first_thread.wait(), second_thread.wait()


def run_every_schedule(store, admin, make_pair, *, allowed_errors=()):
    """Run every schedule of a pair of operations, in both orders, and return their number. `make_pair` returns a new pair."""
    count = 0
    for reverse in (False, True):
        for number in range(100):
            pair = make_pair()
            first, second = pair[::-1] if reverse else pair
            threads = interleave(store, admin, first, second, number)
            check(store)
            if threads is None:
                assert number > 1
                break
            for thread in threads:
                assert thread.error is None or isinstance(thread.error, allowed_errors), thread.error
            count += 1
    return count


def check(store):
    report = store.maintenance.check(deep=False)
    assert report.problems == (), report.problems


def user_message(text):
    return {"role": "user", "content": text}


def open_stream(store, name, *, deleted=False):
    """Open a stream in a session; the fork shares the streaming message."""
    session = store.session(name)
    turn = session.turn("a question")
    stream = turn.stream()
    stream.write("half of ")
    stream.flush()
    fork = session.fork(id=f"{name}-fork")
    if deleted:
        session.delete_messages([stream.id])
    return session, stream, fork


def close_operation(store, session, stream):
    draft = Draft(role="assistant", parts=(TextPart(text="a whole answer " * 20),), input_tokens=7, output_tokens=11)
    return storage.turns.close_stream(store._scope(), session.id, stream._handle, draft, lease=LEASE)


@pytest.mark.parametrize("through", ["session", "fork"])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_message_is_deleted_or_restored_while_its_stream_is_closed(store, admin, through, deleted):
    names = (f"s{number}" for number in range(1000))

    def make_pair():
        session, stream, fork = open_stream(store, next(names), deleted=not deleted)
        id = session.id if through == "session" else fork.id
        return close_operation(store, session, stream), DELETIONS[deleted](store._scope(), id, [stream.id])

    assert run_every_schedule(store, admin, make_pair) > 10


def test_a_message_is_pinned_by_a_fork_while_its_stream_is_closed(store, admin):
    names = (f"s{number}" for number in range(1000))
    streams = []

    def make_pair():
        session, stream, fork = open_stream(store, next(names))
        streams.append((session, stream))
        return close_operation(store, session, stream), storage.edits.mark(
            store._scope(), fork.id, stream.id, {"pinned": True}
        )

    assert run_every_schedule(store, admin, make_pair) > 10
    messages = [session.message(stream.id) for session, stream in streams]
    # The last pair of each order ran only its first operation: once without the pin, once without the close.
    assert sum(message.pinned for message in messages) == len(streams) - 1
    assert sum(message.state == "completed" for message in messages) == len(streams) - 1
    assert all(message.text.startswith("a whole answer") for message in messages if message.state == "completed")


@pytest.mark.parametrize("deleted", [True, False])
def test_an_output_is_dropped_while_a_fork_deletes_or_restores_its_message(store, admin, deleted):
    names = (f"s{number}" for number in range(1000))
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}

    def make_pair():
        session = store.session(next(names))
        session.append([user_message("q"), {"role": "assistant", "content": None, "tool_calls": [call]}])
        session.append({"role": "tool", "tool_call_id": "c1", "content": "long " * 400})
        fork = session.fork(id=f"{session.id}-fork")
        if not deleted:
            fork.delete_messages([3])
        key = store._run(Operation(_find_key, store._scope(), session.id, writes=False))
        drop_outputs = Operation(
            storage.retention._drop_outputs,
            store._scope(),
            key,
            100,
            (0, 0),
            False,
            removes_from_index=True,
            deletion=Deletion.ROWS,
        )
        return drop_outputs, DELETIONS[deleted](store._scope(), fork.id, [3])

    assert run_every_schedule(store, admin, make_pair) > 10


def _find_key(scope, session):
    return (yield from storage.sessions.find(scope, session)).session


def restore_operation(store, id):
    return storage.sessions.restore(store._scope(), id)


OPERATIONS_ON_A_DELETED_SESSION = {
    "append": lambda store, name: storage.appends.append(
        store._scope(), name, [Draft(role="user", parts=(TextPart(text="x"),))]
    ),
    "append with a key": lambda store, name: storage.appends.append(
        store._scope(), name, [Draft(role="user", parts=(TextPart(text="x"),))], key="k"
    ),
    "open": lambda store, name: Operation(storage.sessions._recover_session, store._scope(), name),
    "update": lambda store, name: storage.sessions.update(store._scope(), name, {"title": "t"}),
    "delete a message": lambda store, name: storage.edits.delete(store._scope(), name, [1]),
    "rewind": lambda store, name: storage.branches.rewind(store._scope(), name, 1),
    "restore": restore_operation,
}


@pytest.mark.parametrize("name", OPERATIONS_ON_A_DELETED_SESSION)
def test_a_session_that_is_restored_concurrently_is_usable_or_in_the_trash(store, admin, name):
    """It was never erased, so no operation may raise SessionNotFound."""
    names = (f"s{number}" for number in range(1000))
    outcomes = []

    def make_pair():
        id = next(names)
        store.session(id).append([user_message("one"), user_message("two")])
        store.delete_session(id)
        return OPERATIONS_ON_A_DELETED_SESSION[name](store, id), restore_operation(store, id)

    for reverse in (False, True):
        for number in range(100):
            pair = make_pair()
            first, second = pair[::-1] if reverse else pair
            threads = interleave(store, admin, first, second, number)
            if threads is None:
                break
            outcomes += [thread.error for thread in threads]
    check(store)
    assert {type(error) for error in outcomes} <= {type(None), recollect.SessionInTrash}, outcomes
    assert len(outcomes) > 4


def stream_answers(store, name, deadline):
    session = store.session(name)
    while time.monotonic() < deadline:
        with session.turn("q") as turn, turn.stream() as answer:
            for _ in range(3):
                answer.write("words " * 20)
                answer.flush()


def delete_and_restore(store, seed, deadline):
    rng = random.Random(seed)
    while time.monotonic() < deadline:
        session = store.session(f"s{rng.randrange(4)}")
        if rng.random() < 0.3:
            session = session.fork()
        message = rng.choice(session.messages(last=3, deleted=True))
        (session.delete_messages if message.deleted_at is None else session.restore_messages)([message.id])


@pytest.mark.long
def test_random_streams_deletions_and_forks_keep_counts_correct(postgres):
    """Many threads without a schedule: the counts are correct at the end."""
    deadline = time.monotonic() + 60
    with recollect.open(postgres) as store:
        for number in range(4):
            store.session(f"s{number}").append(user_message("first"))
        threads = [threading.Thread(target=stream_answers, args=(store, f"s{number}", deadline)) for number in range(4)]
        threads += [threading.Thread(target=delete_and_restore, args=(store, seed, deadline)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.session("s0").messages()) > 20
        check(store)
