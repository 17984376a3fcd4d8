"""Files with bytes that were flipped, overwritten, zeroed, moved or cut off anywhere: told in our own words, and soon.

A damaged file must not raise a stranger's error, go on for ever, or be written to as if nothing were wrong with the rest.
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
from recollect.errors import RecollectError, StoreError

DAMAGES, LONG = 12, 1_000
PATIENCE = 3_000
PAGE = 4_096


@pytest.fixture
def whole(tmp_path):
    """A store with something of everything."""
    path = str(tmp_path / "whole.db")
    with recollect.open(path) as store:
        for number in range(12):
            talk = store.session(f"cli:{number}", title=f"Talk {number}", metadata={"n": number})
            for step in range(12):
                call = {"type": "tool_use", "id": f"c{step}", "name": "look", "input": {"at": step}}
                told = {"type": "tool_result", "tool_use_id": f"c{step}", "content": "found " * 200}
                talk.append([{"role": "user", "content": f"question {step} {'word ' * 60}"}])
                talk.append(
                    [{"role": "assistant", "content": [call]}, {"role": "user", "content": [told]}], "anthropic"
                )
            talk.compact(before=talk.messages()[9].id, summary="what was said")
            if number % 3 == 0:
                talk.fork(id=f"fork:{number}").append({"role": "user", "content": "elsewhere"})
        store.search("word")
    return path


def damage(path: str, dice: random.Random) -> str:
    """Do some harm; give its name."""
    size = os.path.getsize(path)
    place, kind = dice.randrange(100, size), dice.choice(("bit", "bytes", "zeros", "page", "cut", "copy"))
    with open(path, "r+b") as file:
        if kind == "cut":
            file.truncate(place)
            return kind
        if kind in ("page", "copy"):
            place = place // PAGE * PAGE
        file.seek(dice.randrange(0, size // PAGE) * PAGE if kind == "copy" else place)
        there = file.read(PAGE)
        harm = {
            "bit": bytes([there[0] ^ 1 << dice.randrange(8)]),
            "bytes": dice.randbytes(dice.randrange(1, 64)),
            "zeros": bytes(min(512, size - place)),
            "page": dice.randbytes(PAGE),
            "copy": there,
        }[kind]
        file.seek(place)
        file.write(harm)
    return kind


class Bounded:
    """Counts the operations of a store, and ends what goes on for ever."""

    def __init__(self, store) -> None:
        self.run, self.count = store._engine.run, 0
        store._engine.run = self

    def __call__(self, op):
        self.count += 1
        assert self.count < PATIENCE, f"{op.steps.__name__} goes on for ever"
        return self.run(op)


def pages_in_use(path: str) -> set[int]:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {page for (page,) in connection.execute("SELECT pageno FROM dbstat")}
    finally:
        connection.close()


def changed(whole: str, path: str) -> set[int]:
    """Number the pages that differ."""
    with open(whole, "rb") as one, open(path, "rb") as other:
        before, after = one.read(), other.read()
    return {at // PAGE + 1 for at in range(0, len(before), PAGE) if before[at : at + PAGE] != after[at : at + PAGE]}


def is_found(path: str) -> bool:
    """Check a file before anyone writes to it: a page that is written again gets a new checksum."""
    try:
        with recollect.open(path, timeout=5) as store:
            Bounded(store)
            return bool(store.check().problems)
    except StoreError:
        return True


def use(path: str) -> list[str]:
    """Do what a user does, each thing alone; give which errors were met."""
    met: list[str] = []

    def tried(action) -> None:
        try:
            action()
        except RecollectError as error:
            met.append(type(error).__name__)
            assert isinstance(error, StoreError) or "session" in str(error), error  # noqa: PT017  of any kind

    try:
        store = recollect.open(path, timeout=5)
    except StoreError as error:
        return [type(error).__name__]
    with store:
        bounded = Bounded(store)
        for number in range(12):
            tried(lambda number=number: store.session(f"cli:{number}", create=False).messages())
            tried(lambda number=number: store.session(f"cli:{number}", create=False).history("anthropic"))
        for action in (
            store.list_sessions, lambda: store.search("word"), store.last_session, store.stats,
            lambda: list(export.chunks(store, None, "jsonl")), lambda: store.session("cli:1").append({"role": "user", "content": "on"}),
            lambda: store.session("cli:2").turns(), lambda: store.delete_session("cli:3"),
        ):  # fmt: skip
            bounded.count = 0
            tried(action)
    return met


def harm_again_and_again(whole: str, path: str, times: int) -> None:
    told: collections.Counter[str] = collections.Counter()
    used = pages_in_use(whole)
    for seed in range(times):
        for name in (path, path + "-wal", path + "-shm"):
            if os.path.exists(name):
                os.unlink(name)
        shutil.copy(whole, path)
        kind = damage(path, random.Random(seed))
        harmed = bool(changed(whole, path) & used)
        try:
            found = is_found(path)
            told.update(use(path))
        except Exception as error:
            raise AssertionError(f"seed {seed}, {kind}: {error!r}") from error
        # A sound page in the place of another of its kind has a good checksum, and need not contradict the rest.
        assert found or not harmed or kind == "copy", f"seed {seed}: {kind} was not found"
        told["found" if found else "not found" if harmed else "nothing in use was harmed"] += 1
    print(f"{times} damaged files: {dict(told)}")
    assert told["found"] > times // 2


def test_a_damaged_file_is_told_in_words(whole, path):
    harm_again_and_again(whole, path, DAMAGES)


@pytest.mark.long
def test_many_damaged_files(whole, path):
    harm_again_and_again(whole, path, LONG)
