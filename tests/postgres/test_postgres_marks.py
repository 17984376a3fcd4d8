"""The marks of commits: what tells whether a commit happened whose answer was lost, and refuses one that comes too late."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import recollect
from recollect.engine.postgres.server import Server
from recollect.engine.postgres.transaction import MARK, Mark


@pytest.fixture
def server(postgres):
    server = Server(postgres, "", 60)
    yield server
    server.close()


def marked(connection, token, at):
    """Write a mark, and give its transaction."""
    connection.execute(MARK.text.replace(b"$1", b"%d" % token).replace(b"$2", b"%d" % at))
    return connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0]


def mark(url, token, at):
    """Commit a mark."""
    with psycopg.connect(url) as connection:
        return marked(connection, token, at)


def wait_until_blocked_by(admin, pid):
    until = time.monotonic() + 60
    query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    while admin.execute(query, [pid]).fetchone() == (0,):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_arrives_after_it_was_given_up_is_refused(server, postgres):
    """The mark of a connection is a fence for a transaction of it that the server reads only later."""
    for token, before in ((4711, ()), (4712, (1, 2))):  # its first commit, and a later one
        for at in before:
            mark(postgres, token, at)
        for _ in range(2):
            assert server._settled(Mark(token, 3), time.monotonic() + 10) is None
        for at in (3, 4):
            with pytest.raises(psycopg.errors.NotNullViolation):
                mark(postgres, token, at)


def test_a_commit_is_known_by_the_mark_that_its_connection_wrote_last(server, postgres):
    numbers = [mark(postgres, 4713, at) for at in (1, 2, 3)]
    for _ in range(2):  # it is the same transaction, however often it was looked for
        assert server._settled(Mark(4713, 3), time.monotonic() + 10) == numbers[-1]
    mark(postgres, 4713, 4)  # no fence was left


@pytest.mark.parametrize(("before", "ends"), [(0, "COMMIT"), (0, "ROLLBACK"), (2, "COMMIT"), (2, "ROLLBACK")])
def test_a_commit_that_is_under_way_is_waited_for(server, postgres, before, ends):
    for at in range(before):
        mark(postgres, 4714, at)
    with (
        psycopg.connect(postgres, autocommit=True) as admin,
        psycopg.connect(postgres, autocommit=True) as slow,
        ThreadPoolExecutor() as pool,
    ):
        slow.execute("BEGIN")
        number = marked(slow, 4714, 9)
        settled = pool.submit(server._settled, Mark(4714, 9), time.monotonic() + 60)
        wait_until_blocked_by(admin, slow.info.backend_pid)
        assert not settled.done()
        slow.execute(ends)
        assert settled.result() == (number if ends == "COMMIT" else None)


def test_no_two_commits_of_a_connection_have_one_mark(server, postgres):
    """Also where the clock stands still, or goes back. Few marks are kept, and none is written over too often."""
    with server._connection(time.monotonic() + 10) as link:
        marks = [link.next_mark(1000 - number) for number in range(250)]
    assert len(set(marks)) == 250
    assert [at for _, at in marks] == list(range(1000, 1250))
    assert len({token for token, _ in marks}) == 3


def test_a_connection_writes_its_marks_over_one_another(postgres):
    with psycopg.connect(postgres) as admin:
        admin.execute("DELETE FROM recollect.commits")
    with recollect.open(f"{postgres}?pool_size=1") as store:
        session = store.session("a")
        for number in range(40):
            session.append({"role": "user", "content": str(number)})
        assert len(session.messages()) == 40
    with psycopg.connect(postgres) as admin:
        assert admin.execute("SELECT count(*) FROM recollect.commits").fetchone() == (1,)
