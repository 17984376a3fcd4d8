"""WAL checkpoints, and the backoff while waiting for the write lock."""

from __future__ import annotations

import apsw
import pytest

import recollect
from recollect.engine.sqlite import checkpoint, connection

PAGES = 100  # pages of the WAL that trigger a checkpoint: so few that each test has several
TEXT = "word " * 800


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        checkpoint.checkpoint_at(store._engine._file.writer, PAGES, 30.0)  # pyright: ignore[reportAttributeAccessIssue]
        yield store


@pytest.fixture
def checkpoints(monkeypatch):
    """Record the result of each checkpoint: whether it was complete."""
    results: list[bool] = []
    run_checkpoint = checkpoint.run_checkpoint

    def record_checkpoint(*arguments):
        results.append(run_checkpoint(*arguments))
        return results[-1]

    monkeypatch.setattr(checkpoint, "run_checkpoint", record_checkpoint)
    return results


def write(store, times: int) -> None:
    session = store.session("cli:a")
    for _ in range(times):
        session.append({"role": "user", "content": TEXT})


def wal_pages(path) -> int:
    """Return the number of pages in the WAL since it was restarted."""
    other = connection.connect(path, 5.0)
    try:
        other.execute("PRAGMA schema_version").fetchall()  # a connection opens the WAL on its first read
        return other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[0]
    finally:
        other.close()


class TestCheckpoint:
    def test_a_long_wal_is_checkpointed_completely_and_restarted(self, store, path, checkpoints):
        write(store, 300)
        assert len(checkpoints) > 3
        assert all(checkpoints)
        assert 0 < wal_pages(path) < 2 * PAGES

    def test_an_incomplete_checkpoint_is_not_retried_after_every_write(self, store, path, checkpoints):
        write(store, 1)
        reader = connection.connect_reader(path, 5.0)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchall()
        checkpoints.clear()
        write(store, 300)  # waiting for the reader would take 30 seconds each time
        assert wal_pages(path) > 3 * PAGES
        assert 2 <= len(checkpoints) <= 2 + wal_pages(path) // (PAGES // 2)
        assert not any(checkpoints)

        reader.close()
        write(store, 100)
        assert checkpoints[-1]
        assert wal_pages(path) < 2 * PAGES

    def test_a_failing_checkpoint_does_not_fail_the_write_before_it(self, store, path, checkpoints, check_database):
        class Failing:
            """A connection whose checkpoints fail."""

            def set_busy_handler(self, handler):
                pass

            def wal_checkpoint(self, mode):
                raise apsw.IOError

        assert not checkpoint.run_checkpoint(Failing(), 5.0)
        write(store, 100)
        store.close()
        check_database(path)


def test_the_creator_of_a_file_reads_pages_that_a_stock_sqlite_checkpointed(store, path):
    """A stock SQLite checkpoints pages without checksums. The file had none when the store created it, so it verifies none."""
    write(store, 20)
    other = apsw.Connection(path)
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall() == [(0, 0, 0)]
    other.close()
    write(store, 20)
    assert store.session("cli:a").message_count == 40


class TestBackoff:
    def test_the_first_delay_is_at_most_a_millisecond(self):
        assert all(0 <= connection._backoff_delay(0, 0.0) <= 0.001 for _ in range(100))

    def test_a_waiter_backs_off_while_others_write(self):
        for _ in range(100):
            waiting_time = connection._BACKOFF / 4
            assert connection._BACKOFF / 4 < connection._backoff_delay(1, waiting_time) < 2 * connection._BACKOFF

    def test_polling_starts_fast_and_slows_down(self):
        early = max(connection._backoff_delay(2, 2 * connection._BACKOFF) for _ in range(100))
        late = max(connection._backoff_delay(10_000, 20.0) for _ in range(100))
        assert early < 0.001 < late <= connection._POLL_MAX
