"""Copying a store row by row: slices of a bounded size out of one, into another, with a journal of how far it came.

A slice is read from where the last one ended, and written in one transaction together with the journal. So a copy that
was killed goes on where it was, and nothing is written twice. What is in a slice is in slices.py; which stores these
are is not known here.
"""

from __future__ import annotations

import msgspec

from recollect.op import Op, Scope, Steps, do, one
from recollect.ops.slices import JOURNAL, Astray, Cursor, Reading, Slice, Writing


class Journal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the target knows about a copy: what it is a copy of, how far it came, and which tree is under way."""

    source: str
    cursor: Cursor = Cursor()
    tree: int = 0
    messages: int = 0
    whole: bool = False
    """Whether all of it was found to be there."""


def size(owner: str) -> Op[tuple[int, int]]:
    """Say about how many messages an owner has, and how many payloads."""
    return Op(_size, owner, writes=False)


def _size(owner: str) -> Steps[tuple[int, int]]:
    row = yield from one("copy_size", owner=owner)
    assert row is not None
    return int(row[0]), int(row[1])


def begin(scope: Scope, source: str) -> Op[Journal | None]:
    """Begin a copy into an empty store; None where something is there that is not of a copy."""
    return Op(_begin, scope, source)


def _begin(scope: Scope, source: str) -> Steps[Journal | None]:
    row = yield from one("copy_journal", owner=scope.owner, key=JOURNAL)
    if row is not None:
        return msgspec.json.decode(row[0], type=Journal)
    held = yield from one("copy_holds", owner=scope.owner, key=JOURNAL)
    if held is None or held[0]:
        return None
    made = Journal(source)
    yield from _note(scope, made)
    return made


def _note(scope: Scope, what: Journal) -> Steps[None]:
    text = msgspec.json.encode(what).decode()
    yield from do("setting_set", owner=scope.owner, key=JOURNAL, value=text, now=scope.now)


def note(scope: Scope, before: Journal, after: Journal) -> Op[Journal]:
    """Change the journal, if it is still as it was."""
    return Op(_noted, scope, before, after)


def _noted(scope: Scope, before: Journal, after: Journal) -> Steps[Journal]:
    yield from _still(scope, before)
    yield from _note(scope, after)
    return after


def _still(scope: Scope, before: Journal) -> Steps[None]:
    row = yield from one("copy_journal", owner=scope.owner, key=JOURNAL)
    if row is None or msgspec.json.decode(row[0], type=Journal) != before:
        raise Astray


def read(owner: str, cursor: Cursor) -> Op[Slice]:
    """Read the next slice: until it is large enough, or to the end."""
    return Op(_read, owner, cursor, writes=False)


def _read(owner: str, cursor: Cursor) -> Steps[Slice]:
    return (yield from Reading(owner, cursor).slice())


def write(scope: Scope, before: Journal, slice_: Slice) -> Op[Journal]:
    """Write a slice, and in the same transaction that it was written."""
    return Op(_write, scope, before, slice_)


def _write(scope: Scope, before: Journal, slice_: Slice) -> Steps[Journal]:
    yield from _still(scope, before)
    writing = Writing(scope, before.tree)
    for item in slice_.items:
        yield from writing.item(item)
    after = Journal(before.source, slice_.cursor, writing.tree, before.messages + slice_.messages, before.whole)
    yield from _note(scope, after)
    return after
