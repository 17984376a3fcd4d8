"""Commit tokens: they tell whether a commit with a lost reply happened, and make a late COMMIT fail."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import recollect
from recollect.engine.postgres.server import DatabaseServer
from recollect.engine.postgres.transactions import WRITE_TOKEN, CommitToken


@pytest.fixture
def server(postgres):
    server = DatabaseServer(postgres, "", 60)
    yield server
    server.close()


def insert_token(connection, token, time_ms):
    """Insert a commit token and return the transaction id."""
    connection.execute(WRITE_TOKEN.text.replace(b"$1", b"%d" % token).replace(b"$2", b"%d" % time_ms))
    return connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0]


def commit_token(url, token, time_ms):
    """Commit a commit token and return the transaction id."""
    with psycopg.connect(url) as connection:
        return insert_token(connection, token, time_ms)


def wait_until_blocked_by(admin, pid):
    deadline = time.monotonic() + 60
    query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    while admin.execute(query, [pid]).fetchone() == (0,):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_commit_that_arrives_after_the_fence_fails(server, postgres):
    """The token row becomes a fence for a transaction of its connection that the server reads later."""
    for token, earlier_times in ((4711, ()), (4712, (1, 2))):  # the first commit of a connection, and a later one
        for time_ms in earlier_times:
            commit_token(postgres, token, time_ms)
        for _ in range(2):
            assert server._resolve_commit(CommitToken(token, 3), time.monotonic() + 10) is None
        for time_ms in (3, 4):
            with pytest.raises(psycopg.errors.NotNullViolation):
                commit_token(postgres, token, time_ms)


def test_a_commit_is_found_by_its_token(server, postgres):
    transaction_ids = [commit_token(postgres, 4713, time_ms) for time_ms in (1, 2, 3)]
    for _ in range(2):  # the same id on every lookup
        assert server._resolve_commit(CommitToken(4713, 3), time.monotonic() + 10) == transaction_ids[-1]
    commit_token(postgres, 4713, 4)  # there is no fence


@pytest.mark.parametrize(("earlier_commits", "end"), [(0, "COMMIT"), (0, "ROLLBACK"), (2, "COMMIT"), (2, "ROLLBACK")])
def test_resolving_waits_for_a_commit_in_progress(server, postgres, earlier_commits, end):
    for time_ms in range(earlier_commits):
        commit_token(postgres, 4714, time_ms)
    with (
        psycopg.connect(postgres, autocommit=True) as admin,
        psycopg.connect(postgres, autocommit=True) as slow_connection,
        ThreadPoolExecutor() as pool,
    ):
        slow_connection.execute("BEGIN")
        transaction_id = insert_token(slow_connection, 4714, 9)
        resolution = pool.submit(server._resolve_commit, CommitToken(4714, 9), time.monotonic() + 60)
        wait_until_blocked_by(admin, slow_connection.info.backend_pid)
        assert not resolution.done()
        slow_connection.execute(end)
        assert resolution.result() == (transaction_id if end == "COMMIT" else None)


def test_tokens_of_a_connection_are_unique(server, postgres):
    """Also if the clock stops or jumps back. A number is used for 100 commits: few rows, none overwritten too often."""
    with server._connection(time.monotonic() + 10) as pipeline:
        tokens = [pipeline.next_token(1000 - step) for step in range(250)]
    assert len(set(tokens)) == 250
    assert [time_ms for _, time_ms in tokens] == list(range(1000, 1250))
    assert len({token for token, _ in tokens}) == 3


def test_a_connection_overwrites_its_token_row(postgres):
    with psycopg.connect(postgres) as admin:
        admin.execute("DELETE FROM recollect.commits")
    with recollect.open(f"{postgres}?pool_size=1") as store:
        session = store.session("a")
        for step in range(40):
            session.append({"role": "user", "content": str(step)})
        assert len(session.messages()) == 40
    with psycopg.connect(postgres) as admin:
        assert admin.execute("SELECT count(*) FROM recollect.commits").fetchone() == (1,)
