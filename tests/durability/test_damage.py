"""Files with flipped, overwritten, zeroed, moved or truncated bytes: the damage is reported as a RecollectError.

A damaged file must not raise an error of the driver, make an operation run forever, or be written to as if the rest were
intact.
"""

from __future__ import annotations

import collections
import os
import random
import shutil

import apsw
import pytest

import recollect
from recollect import export
from recollect.errors import Corrupted, RecollectError, StoreError

DAMAGES, LONG_DAMAGES = 12, 1_000
MAX_OPERATIONS = 3_000  # operations of one method; more mean that it does not end
PAGE = 4_096  # bytes


@pytest.fixture
def intact_path(tmp_path):
    """Return the path of a closed store with every kind of row."""
    path = str(tmp_path / "whole.db")
    with recollect.open(path) as store:
        for number in range(12):
            session = store.session(f"cli:{number}", title=f"Session {number}", metadata={"n": number})
            for step in range(12):
                call = {"type": "tool_use", "id": f"c{step}", "name": "look", "input": {"at": step}}
                result = {"type": "tool_result", "tool_use_id": f"c{step}", "content": "found " * 200}
                session.append([{"role": "user", "content": f"question {step} {'word ' * 60}"}])
                session.append(
                    [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}], "anthropic"
                )
            session.compact(before=session.messages()[9].id, summary="summary")
            if number % 3 == 0:
                session.fork(id=f"fork:{number}").append({"role": "user", "content": "elsewhere"})
        store.search("word")
    return path


def damage(path: str, rng: random.Random) -> str:
    """Change a file at a random offset and return the name of the damage."""
    size = os.path.getsize(path)
    offset, damage_name = rng.randrange(100, size), rng.choice(("bit", "bytes", "zeros", "page", "cut", "copy"))
    with open(path, "r+b") as file:
        if damage_name == "cut":
            file.truncate(offset)
            return damage_name
        if damage_name in ("page", "copy"):
            offset = offset // PAGE * PAGE
        file.seek(rng.randrange(0, size // PAGE) * PAGE if damage_name == "copy" else offset)
        content = file.read(PAGE)
        replacement = {
            "bit": bytes([content[0] ^ 1 << rng.randrange(8)]),
            "bytes": rng.randbytes(rng.randrange(1, 64)),
            "zeros": bytes(min(512, size - offset)),
            "page": rng.randbytes(PAGE),
            "copy": content,
        }[damage_name]
        file.seek(offset)
        file.write(replacement)
    return damage_name


class OperationLimit:
    """Counts the operations of a store, and fails if there are too many."""

    def __init__(self, store) -> None:
        self.run, self.count = store._engine.run, 0
        store._engine.run = self

    def __call__(self, op):
        self.count += 1
        assert self.count < MAX_OPERATIONS, f"{op.steps.__name__} does not end"
        return self.run(op)


def pages_in_use(path: str) -> set[int]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {page for (page,) in connection.execute("SELECT pageno FROM dbstat")}
    finally:
        connection.close()


def changed_pages(intact_path: str, path: str) -> set[int]:
    """Return the numbers of the pages that differ."""
    with open(intact_path, "rb") as intact_file, open(path, "rb") as damaged_file:
        before, after = intact_file.read(), damaged_file.read()
    return {
        start // PAGE + 1
        for start in range(0, len(before), PAGE)
        if before[start : start + PAGE] != after[start : start + PAGE]
    }


def is_damage_found(path: str) -> bool:
    """Return whether a check finds the damage. Before any write: a page that is written again gets a new checksum."""
    try:
        with recollect.open(path, timeout=5) as store:
            OperationLimit(store)
            return bool(store.maintenance.check().problems)
    except StoreError:
        return True


def use_store(path: str) -> list[str]:
    """Call each method that a user calls. Return the names of the errors that were raised."""
    errors: list[str] = []

    def attempt(action) -> None:
        try:
            action()
        except RecollectError as error:
            errors.append(type(error).__name__)
            assert isinstance(error, StoreError) or "session" in str(error), error  # noqa: PT017  of any kind

    try:
        store = recollect.open(path, timeout=5)
    except StoreError as error:
        return [type(error).__name__]
    with store:
        limit = OperationLimit(store)
        for number in range(12):
            attempt(lambda number=number: store.session(f"cli:{number}", create=False).messages())
            attempt(lambda number=number: store.session(f"cli:{number}", create=False).history("anthropic"))
        for action in (
            store.list_sessions, lambda: store.search("word"), store.stats,
            lambda: list(export.chunks(store, None, "jsonl")), lambda: store.session("cli:1").append({"role": "user", "content": "on"}),
            lambda: store.session("cli:2").turns.list(),  # noqa: PLW0108  opening the session may fail
             lambda: store.delete_session("cli:3"),
        ):  # fmt: skip
            limit.count = 0
            attempt(action)
    return errors


def check_damaged_copies(intact_path: str, path: str, times: int) -> None:
    error_counts: collections.Counter[str] = collections.Counter()
    pages = pages_in_use(intact_path)
    for seed in range(times):
        for name in (path, path + "-wal", path + "-shm"):
            if os.path.exists(name):
                os.unlink(name)
        shutil.copy(intact_path, path)
        damage_name = damage(path, random.Random(seed))
        is_damaged = bool(changed_pages(intact_path, path) & pages)
        try:
            is_found = is_damage_found(path)
            error_counts.update(use_store(path))
        except Exception as error:
            raise AssertionError(f"seed {seed}, {damage_name}: {error!r}") from error
        # A copy of another page has a correct checksum and may be consistent with the rest.
        assert is_found or not is_damaged or damage_name == "copy", (
            f"seed {seed}: the damage {damage_name} was not found"
        )
        error_counts["found" if is_found else "not found" if is_damaged else "no used page was damaged"] += 1
    print(f"{times} damaged files: {dict(error_counts)}")
    assert error_counts["found"] > times // 2


@pytest.mark.parametrize("missing", [1, 8, 100, PAGE - 1])
def test_a_file_that_ends_inside_its_last_page_is_damaged(intact_path, tmp_path, missing):
    os.truncate(intact_path, os.path.getsize(intact_path) - missing)
    with recollect.open(intact_path) as store:
        (problem,) = store.maintenance.check().problems
    assert f"the last {missing} bytes are missing" in problem.message
    copy = str(tmp_path / "restored.db")
    with pytest.raises(Corrupted, match=f"last {missing} bytes"):
        recollect.restore(intact_path, copy)
    assert not os.path.exists(copy)


def test_a_last_page_that_is_still_in_the_wal_is_not_missing(path):
    """A checkpoint that was killed inside its last write: the WAL has the page, so nothing is lost."""
    with recollect.open(path) as store:
        session = store.session("cli:a")
        for number in range(50):
            session.append({"role": "user", "content": f"{number} {'word ' * 400}"})
        for suffix in ("", "-wal"):
            shutil.copy(path + suffix, f"{path}.copy{suffix}")
    copy = f"{path}.copy"
    connection = apsw.Connection(copy)
    try:
        connection.execute("SELECT count(*) FROM sessions").fetchall()
        shutil.copy(copy + "-wal", copy + "-saved")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    finally:
        connection.close()
    os.truncate(copy, os.path.getsize(copy) - 100)
    os.replace(copy + "-saved", copy + "-wal")
    with recollect.open(copy) as store:
        assert not store.maintenance.check().problems
        assert len(store.session("cli:a").messages()) == 50


def test_damage_is_reported_as_a_recollect_error(intact_path, path):
    check_damaged_copies(intact_path, path, DAMAGES)


@pytest.mark.long
def test_damage_is_reported_in_a_thousand_files(intact_path, path):
    check_damaged_copies(intact_path, path, LONG_DAMAGES)
