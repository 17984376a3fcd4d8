"""Appends after a message, and expected revisions, in forced schedules and with lost connections.

In every schedule of two operations, the errors and the stored data are those of running one after the other.
"""

from __future__ import annotations

import itertools

import psycopg
import pytest
from test_postgres_schedules import OperationThread, StopPoint, interleave, wait_until

import recollect
from recollect import storage
from recollect.model.message import Draft, TextPart
from recollect.storage.operation import Operation

REVISION = 1  # of a session after its first append
TERMINATE_BACKENDS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="module")
def database_name(databases):
    """Create a separate database: the rows of so many schedules would change plans of later tests in the shared one."""
    name = databases.make()
    yield name
    databases.drop(name)


@pytest.fixture(scope="module")
def admin(databases, database_name):
    with psycopg.connect(databases.url_of(database_name, "postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def store(databases, database_name):
    with recollect.open(databases.url_of(database_name, "plain"), owner="ann") as store:
        yield store
        report = store.maintenance.check(deep=False)
        assert report.problems == (), report.problems


names = (f"s{number}" for number in itertools.count())


def user_message(text):
    return {"role": "user", "content": text}


def drafts(*texts):
    return [Draft(role="user", parts=(TextPart(text=text),)) for text in texts]


def append_and_update(store, name, **options):
    return storage.combined_appends.append_and_update(store._scope(), name, **{"drafts": drafts("x", "y"), **options})


OPERATIONS = {
    "replace all": lambda store, session: append_and_update(store, session, after=0, update={"title": "all"}),
    "replace all at a revision": lambda store, session: append_and_update(
        store, session, after=0, update={"title": "all"}, expected=REVISION
    ),
    "replace the tail at a revision": lambda store, session: append_and_update(
        store, session, after=2, expected=REVISION
    ),
    "replace the tail with a key": lambda store, session: append_and_update(store, session, after=2, key="k"),
    "clear": lambda store, session: append_and_update(store, session, drafts=[], after=0, expected=REVISION),
    "set a title": lambda store, session: append_and_update(
        store, session, drafts=[], update={"title": "alone"}, expected=REVISION
    ),
    "append": lambda store, session: storage.appends.append(store._scope(), session, drafts("plain")),
    "append at a revision": lambda store, session: storage.appends.append(
        store._scope(), session, drafts("plain"), expected=REVISION
    ),
    "update": lambda store, session: storage.sessions.update(store._scope(), session, {"title": "updated"}),
    "rewind": lambda store, session: storage.branches.rewind(store._scope(), session, 1, REVISION),
    "rewind to the end": lambda store, session: storage.branches.rewind(store._scope(), session, 4, REVISION),
    "switch": lambda store, session: storage.branches.switch(store._scope(), session, 1, REVISION),
    "fork": lambda store, session: storage.branches.fork(
        store._scope(), session, None, f"{session}-fork", {}, REVISION
    ),
    "delete a message": lambda store, session: storage.edits.delete(store._scope(), session, [2], REVISION),
    "restore a message": lambda store, session: storage.edits.restore(store._scope(), session, [1], REVISION),
    "delete": lambda store, session: storage.sessions.trash(store._scope(), session, REVISION),
    "erase": lambda store, session: storage.retention.erase_session(
        store._scope(), session, forks="keep", expected=REVISION
    ),
}
WRITERS = ("replace all at a revision", "replace the tail with a key", "append", "delete a message")
PAIRS = [
    *itertools.product(WRITERS, OPERATIONS),
    ("replace all", "replace all"), ("replace the tail at a revision", "clear"), ("set a title", "update"),
]  # fmt: skip


def make_session(store):
    session = next(names)
    store.session(session).append([user_message(text) for text in ("one", "two", "three", "four")])
    return session


def state_of(store, session):
    """Return everything that can be read of a session and its fork, without times."""
    state = []
    for id in (session, f"{session}-fork"):
        handle = store.get_session(id)
        if handle is None:
            state.append(sum(item.id == id for item in store.list_sessions(10_000, deleted=True)))
            continue
        state += [
            handle.revision, handle.title, handle.message_count,
            [(message.id, message.text, message.deleted_at is not None) for message in handle.messages(deleted=True)],
            [(branch.id, branch.parent, branch.fork_at, branch.last, branch.current) for branch in handle.branches.list()],
        ]  # fmt: skip
    return state


def run_serially(store, session, first, second):
    """Return the error classes of two operations that run one after the other, and the state after them."""
    errors = {}
    for name in (first, second):
        try:
            store._run(OPERATIONS[name](store, session))
        except recollect.RecollectError as error:
            errors[name] = type(error)
        else:
            errors.setdefault(name, None)
    return errors, state_of(store, session)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda name: name.replace(" ", "-"))
def test_concurrent_operations_have_the_result_of_a_serial_order(store, admin, first, second):
    serial = [run_serially(store, make_session(store), *order)
              for order in ((first, second), (second, first))]  # fmt: skip
    schedules = 0
    for reverse in (False, True):
        for number in range(100):
            session = make_session(store)
            order = (second, first) if reverse else (first, second)
            first_op, second_op = (OPERATIONS[name](store, session) for name in order)
            threads = interleave(store, admin, first_op, second_op, number)
            if threads is None:
                break
            errors = {}
            for name, thread in zip(order, threads, strict=True):
                errors[name] = errors.get(name) or (None if thread.error is None else type(thread.error))
            assert (errors, state_of(store, session)) in serial, (order, number)
            schedules += 1
    assert schedules >= 4


def test_a_restore_at_a_revision_has_the_result_of_a_serial_order(store, admin):
    """The session in the trash is restored, changed and deleted again by the other thread."""

    def change(scope, session):
        yield from storage.sessions.restore(scope, session).start()
        yield from storage.sessions.update(scope, session, {"title": "theirs"}).start()
        yield from storage.sessions.trash(scope, session).start()

    for operation in ("restore", "erase"):
        for number in range(100):
            session = make_session(store)
            store.delete_session(session)
            expected = REVISION + 1
            if operation == "restore":
                op = storage.sessions.restore(store._scope(), session, expected)
            else:
                op = storage.retention.erase_session(store._scope(), session, expected=expected)
            other = Operation(change, store._scope(), session)
            threads = interleave(store, admin, op, other, number)
            if threads is None:
                break
            errors = [thread.error for thread in threads]
            if isinstance(errors[0], recollect.StaleRevision):
                assert errors[1] is None
                (in_trash,) = [item for item in store.list_sessions(10_000, deleted=True) if item.id == session]
                assert (in_trash.title, in_trash.revision) == ("theirs", expected + 3)
            elif operation == "restore":
                assert errors[0] is None
                assert threads[0].result.revision == expected + 1
            else:
                assert threads[0].result.sessions == [session]
                assert isinstance(errors[1], recollect.SessionNotFound)
        assert number > 2


@pytest.mark.parametrize("name", ["replace all at a revision", "replace the tail with a key", "clear", "set a title"])
def test_a_connection_that_is_lost_before_any_statement_leaves_the_old_state_or_the_new_one(store, admin, name):
    """The operation runs again after each loss, and its effect happens once."""
    session = make_session(store)
    store._run(OPERATIONS[name](store, session))
    expected_state = state_of(store, session)
    for number in range(100):
        session = make_session(store)
        old_state = state_of(store, session)
        stop = StopPoint(number)
        thread = OperationThread(store, stop.wrap(OPERATIONS[name](store, session)))
        wait_until(lambda: stop.stop_event.is_set() or not thread.is_alive())  # noqa: B023  called in this iteration
        if stop.stop_event.is_set():
            admin.execute(TERMINATE_BACKENDS)
            assert state_of(store, session) == old_state
            stop.continue_event.set()
        assert thread.wait().error is None
        assert state_of(store, session) == expected_state
        if not stop.stop_event.is_set():
            break
    assert number > 3
