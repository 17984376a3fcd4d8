"""Files with bytes that were flipped, overwritten, zeroed, moved or cut off anywhere: told in our own words, and soon.

A damaged file must not raise a stranger's error, go on for ever, or be written to as if nothing were wrong with the rest.
"""

from __future__ import annotations

import collections
import os
import random
import shutil

import pytest

import recollect
from recollect import export
from recollect.errors import RecollectError, StoreError

DAMAGES, LONG = 12, 1_500
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


def use(path: str) -> tuple[int, list[str]]:
    """Do what a user does, each thing alone; give what was found to be wrong, and which errors were met."""
    met: list[str] = []
    found = 0

    def tried(action) -> None:
        try:
            action()
        except RecollectError as error:
            met.append(type(error).__name__)
            assert isinstance(error, StoreError) or "session" in str(error), error  # noqa: PT017  of any kind

    try:
        store = recollect.open(path, timeout=5)
    except StoreError as error:
        return 1, [type(error).__name__]
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
        bounded.count = 0
        try:
            found = len(store.check().problems)
        except StoreError as error:
            found, met = 1, [*met, type(error).__name__]
    return found, met


def harm_again_and_again(whole: str, path: str, times: int) -> None:
    told: collections.Counter[str] = collections.Counter()
    for seed in range(times):
        dice = random.Random(seed)
        shutil.copy(whole, path)
        kind = damage(path, dice)
        try:
            found, met = use(path)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {kind}: {error!r}") from error
        told[f"{kind} {'found' if found else 'not found'}"] += 1
        told.update(met)
        for name in (path, path + "-wal", path + "-shm"):
            if os.path.exists(name):
                os.unlink(name)
    print(f"{times} damaged files: {dict(told)}")
    assert sum(count for name, count in told.items() if name.endswith(" found") and "not" not in name) > times // 2


def test_a_damaged_file_is_told_in_words(whole, path):
    harm_again_and_again(whole, path, DAMAGES)


@pytest.mark.long
def test_many_damaged_files(whole, path):
    harm_again_and_again(whole, path, LONG)
