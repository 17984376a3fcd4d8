"""The log that is folded into the file, and the lock that is waited for."""

from __future__ import annotations

import apsw
import pytest

import recollect
from recollect.engine.sqlite import connection, log

PAGES = 100
WORDS = "word " * 800


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        log.fold_at(store._engine._file.writer, PAGES, 30.0)
        yield store


@pytest.fixture
def folds(monkeypatch):
    """What became of each try to fold the log: whether all of it was."""
    seen: list[bool] = []
    fold = log.folded

    def folded(*given):
        seen.append(fold(*given))
        return seen[-1]

    monkeypatch.setattr(log, "folded", folded)
    return seen


def write(store, times: int) -> None:
    session = store.session("cli:a")
    for _ in range(times):
        session.append({"role": "user", "content": WORDS})


def logged(path) -> int:
    """Count the pages of the log that were written since it began anew."""
    other = connection.connect(path, 5.0)
    try:
        other.execute("PRAGMA schema_version").fetchall()  # before it was read, it has no log
        return other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[0]
    finally:
        other.close()


class TestFolding:
    def test_it_is_folded_whole_and_begun_anew_whenever_it_is_long(self, store, path, folds):
        write(store, 300)
        assert len(folds) > 3
        assert all(folds)
        assert 0 < logged(path) < 2 * PAGES

    def test_where_a_reader_holds_it_that_is_not_tried_after_every_write(self, store, path, folds):
        write(store, 1)
        reader = connection.connect_reader(path, 5.0)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchall()
        write(store, 300)  # waiting for the reader would take half a minute each time
        assert logged(path) > 3 * PAGES
        assert 2 <= len(folds) <= 2 + logged(path) // (PAGES // 2)
        assert not any(folds)

        reader.close()
        write(store, 100)
        assert folds[-1]
        assert logged(path) < 2 * PAGES

    def test_an_error_of_the_disk_is_none_of_the_write_that_it_follows(self, store, path, folds, sound):
        class Failing:
            """A connection whose log can not be folded."""

            def set_busy_handler(self, handler):
                pass

            def wal_checkpoint(self, mode):
                raise apsw.IOError

        assert not log.folded(Failing(), 5.0)
        write(store, 100)
        store.close()
        sound(path)


def test_pages_that_another_program_moved_are_read_also_by_who_made_the_file(store, path):
    """It moves them without checksums. The file had none when it was opened to be made, and is asked for none later."""
    write(store, 20)
    other = apsw.Connection(path)
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall() == [(0, 0, 0)]
    other.close()
    write(store, 20)
    assert store.session("cli:a").message_count == 40


class TestWaiting:
    def test_a_short_write_is_waited_for_briefly(self):
        assert all(0 <= connection._pause(0, 0.0) <= 0.001 for _ in range(100))

    def test_others_who_go_on_writing_have_their_turn(self):
        for _ in range(100):
            waited = connection._TURN / 4
            assert connection._TURN / 4 < connection._pause(1, waited) < 2 * connection._TURN

    def test_after_that_it_is_looked_often_and_then_less_so(self):
        early = max(connection._pause(2, 2 * connection._TURN) for _ in range(100))
        late = max(connection._pause(10_000, 20.0) for _ in range(100))
        assert early < 0.001 < late <= connection._RARELY
