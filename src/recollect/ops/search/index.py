"""Keeping the index: appending does not pay for it, it is caught up in bounded transactions before a search answers.

A branch knows up to which position it is indexed without a gap, a session whether its title is. An answer that is still
being written leaves such a gap: what follows it is indexed all the same. Text is taken out of the index again by giving
it the same words, so what is taken out must be read before it is changed or erased.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from recollect.errors import DiskFull, StoreLocked, StoreReadOnly
from recollect.model import blob, json
from recollect.model.part import Part, ToolResultPart
from recollect.op import Op, Plan, Row, Scope, Steps, do, each, one, rows
from recollect.ops import leases
from recollect.ops.paths import LAST, path
from recollect.ops.search.document import Document, document
from recollect.ops.search.words import fold, terms, tokens

PAGE = 200
_CHARACTERS = 2_000_000
_TITLES = 500
NEAR = 1_000
"""How far before its result a call may be."""
_OPEN = ("pending", "streaming")
# Taking one message out of the index at once costs about as much as writing this many of it anew.
_WORTH_REWRITING = 100
# An index of so few messages is made anew, rather than written anew.
_FEW = 1_000
_MARK = "\1"
UNWRITABLE = (StoreReadOnly, DiskFull, StoreLocked)
"""Why the index can not be written now; what is in it can be searched all the same."""
_MANY, _SETTLED = 50, 500
"""Sessions that each search looks at before those that are indexed are settled, and how many of them at once."""


class Behind(NamedTuple):
    """A branch that has messages which are not indexed: its key, and up to which position there are some."""

    branch: int
    session: int | None
    last: int


class Waiting(NamedTuple):
    """What is not indexed, and the mark of the index that this is said of."""

    mark: str | None
    behind: list[Behind]
    titles: bool
    looked_at: int = 0
    """Sessions that were looked at, because something was said there since they were settled; up to some number."""


class _Done(NamedTuple):
    branches: int
    messages: int


def catch_up(scope: Scope) -> Plan[int]:
    """Index everything that is committed by now, a bounded piece at a time: how many messages that were."""
    found: Waiting = yield waiting(scope)
    return (yield from index(scope, found))


def waiting(scope: Scope) -> Op[Waiting]:
    """Look for what is not indexed."""
    return Op(_waiting, scope, writes=False)


def index(scope: Scope, found: Waiting) -> Plan[int]:
    """Index what was found waiting: how many messages that were."""
    behind, titles = found.behind, found.titles
    while titles:
        titles = yield Op(_titles, scope)
    count = 0
    while behind:
        done: _Done = yield Op(_index, scope, behind[:_TITLES])
        behind = behind[done.branches :]
        count += done.messages
    if found.looked_at >= _MANY:
        with contextlib.suppress(*UNWRITABLE):  # it only makes the next look quicker
            after: int | None = 0
            while after is not None:
                after = yield Op(_settle, scope, after)
    return count


def _waiting(scope: Scope) -> Steps[Waiting]:
    first, *behind = yield from rows("search_waiting", owner=scope.owner, many=_MANY)
    _, many, _, name, titles = first
    return Waiting(name, [Behind(*row[:3]) for row in behind], bool(titles), many)


def _settle(scope: Scope, after: int) -> Steps[int | None]:
    """Look no more at sessions of which everything is indexed, until more is said there: after which to go on.

    They are locked before it is read how far each is, and left out where another is writing: who makes a branch longer,
    or takes something out of the index, writes to the session's row in the same transaction.
    """
    found = yield from rows("search_unsettled", owner=scope.owner, after=after, limit=_SETTLED)
    if found:
        yield from do("search_settle", keys=json.encode([row[0] for row in found]))
    return found[-1][0] if len(found) == _SETTLED else None


def _titles(scope: Scope) -> Steps[bool]:
    """Index the titles that are new or were changed: whether there are more."""
    found = yield from rows("search_untitled", owner=scope.owner, limit=_TITLES)
    for key, title in found:
        yield from untitle(key)
        if title:
            folded = fold(title)
            yield from do("search_title_insert", session=key, title=folded)
            yield from each("search_term_insert", [(word,) for word in terms(set(tokens(folded)))])
        yield from do("search_titled", session=key)
    return len(found) == _TITLES


def untitle(session: int) -> Steps[None]:
    """Take the title of a session out of the index."""
    row = yield from one("search_title_get", session=session)
    if row is not None:
        yield from do("search_title_delete", session=session)
        yield from do("search_terms_sweep", terms=json.encode(terms(set(tokens(row[0])))))


def _index(scope: Scope, behind: Sequence[Behind]) -> Steps[_Done]:
    """Index some branches, as far as one transaction should go: how many of them are done, and the messages."""
    room = _CHARACTERS
    messages = done = 0
    words: set[str] = set()
    for item in behind:
        while room > 0:
            count, size, ended = yield from _page(scope, item, words)
            messages, room = messages + count, room - size
            if ended:
                done += 1
                break
        if room <= 0:
            break
    yield from each("search_term_insert", [(word,) for word in terms(words)])
    return _Done(done, messages)


def _page(scope: Scope, item: Behind, words: set[str]) -> Steps[tuple[int, int, bool]]:
    """Index a page of a branch: how many messages, how much text, and whether that was the end of it."""
    place = yield from one("search_place", branch=item.branch)
    if place is None or place[0] >= item.last:  # erased meanwhile, or another process was here
        return 0, 0, True
    found = yield from rows("search_unindexed", branch=item.branch, low=place[0], high=item.last, limit=PAGE)
    growing = yield from _growing(scope, item, found)
    ready = [row for row in found if row[0] not in growing]
    read = yield from _documents(scope, item.branch, ready)
    yield from each("search_insert", [(item.branch, position, *columns) for position, columns in read])
    size = sum(_gather(columns, words) for _, columns in read)
    ended = len(found) < PAGE or not ready
    to = min(growing) - 1 if growing else (item.last if ended else found[-1][0])
    if to > place[0]:
        yield from do("search_reached", branch=item.branch, position=to)
    return len(ready), size, ended


def _growing(scope: Scope, item: Behind, found: list[Row]) -> Steps[set[int]]:
    """Find what is still being written, in an open turn of a session that is there: it is indexed when it is whole."""
    some = [row[0] for row in found if row[2] in _OPEN]
    if not some or item.session is None:
        return set()
    yield from leases.recover(scope, item.session)  # unless nobody is writing it any more
    growing: set[int] = set()
    for position in some:
        if (yield from one("search_growing", branch=item.branch, position=position)) is not None:
            growing.add(position)
    return growing


def _gather(columns: Document, words: set[str]) -> int:
    """Add the words of a message to a set: how many characters they are."""
    for column in columns[:3]:
        words.update(tokens(column))
    return sum(map(len, columns))


def _documents(scope: Scope, branch: int, found: Sequence[Row]) -> Steps[list[tuple[int, Document]]]:
    parts_of: dict[int, tuple[Part, ...]] = {}
    for row in found:
        parts_of[row[0]] = yield from read_parts(scope, row[4], row[3])
    tools: Mapping[int, Mapping[int, str]] = {}
    if any(isinstance(part, ToolResultPart) and part.tool is None for parts in parts_of.values() for part in parts):
        tools = yield from tools_of(branch, found[0][0], found[-1][0])
    return [(row[0], document(row[1], parts_of[row[0]], tools.get(row[0], {}))) for row in found]


def tools_of(branch: int, low: int, high: int) -> Steps[dict[int, dict[int, str]]]:
    """Name the tools whose results stand in a stretch of a branch, from low to high: by position and part.

    A call is looked for a fixed way before its result, in the past that a fork shares too. So a message has the same
    words when it is taken out of the index as when it was put in, whatever is read together with it.
    """
    named: dict[int, dict[int, str]] = {}
    for span in (yield from path(branch)):
        start, end = max(span.low, low - NEAR), min(span.high, high)
        if start >= end:
            continue
        for call, position, part, tool in (
            yield from rows("search_tools", branch=branch, of=span.branch, low=start, high=end)
        ):
            if call > position - NEAR:
                named.setdefault(position, {})[part] = tool
    return named


def read_parts(scope: Scope, parts: bytes, blobs: str | None) -> Steps[tuple[Part, ...]]:
    """Read the parts of a message with the texts that are stored apart; pictures stay where they are."""
    if blobs is None:
        return json.decode_as(tuple[Part, ...], parts)
    plain = json.decode(parts)
    payloads: dict[str, bytes] = dict.fromkeys(json.decode(blobs), b"")
    for name in blob.texts(plain):
        row = yield from one("blob_get", owner=scope.owner, hash=name)
        payloads[name] = b"" if row is None else row[0]
    return msgspec.convert(blob.attach(plain, payloads), tuple[Part, ...])


def forget(scope: Scope, branch: int, low: int, high: int = LAST) -> Steps[None]:
    """Take a stretch of a branch out of the index, before its messages are erased: positions after low, up to high."""
    found = yield from rows("search_indexed", branch=branch, low=low, high=high, limit=PAGE)
    if not found:
        return
    count = yield from one("search_counted", branch=branch, low=low, high=high)
    total = yield from one("search_total")
    assert count is not None
    assert total is not None
    rewrite = count[0] * _WORTH_REWRITING > total[0]
    if rewrite and total[0] - count[0] <= _FEW:
        yield from _clear()
        return
    yield from do("search_secure", value=0 if rewrite else 1)
    words: set[str] = set()
    while found:
        read = yield from _documents(scope, branch, found)
        yield from each("search_delete", [(branch, position, *columns) for position, columns in read])
        for _, columns in read:
            _gather(columns, words)
        found = yield from rows("search_indexed", branch=branch, low=found[-1][0], high=high, limit=PAGE)
    if rewrite:
        yield from _rewrite()
    yield from do("search_terms_sweep", terms=json.encode(terms(words)))


def written(scope: Scope, branch: int, position: int) -> Steps[Document | None]:
    """Give a message as it is indexed; None where it is not."""
    found = yield from rows("search_indexed", branch=branch, low=position - 1, high=position, limit=1)
    return (yield from _documents(scope, branch, found))[0][1] if found else None


def _rewrite() -> Steps[None]:
    """Write the index anew, without what was taken out of it.

    FTS5 may keep the marks of what was deleted, with its words, where all of the index is on one level. An entry of its
    own is on another level than the rest, and with it the second time leaves no marks.
    """
    yield from do("search_optimize")
    yield from do("search_nudge")
    yield from do("search_optimize")
    yield from do("search_secure", value=1)
    yield from do("search_nudge_back")


def cut(scope: Scope, branch: int, low: int) -> Steps[None]:
    """Take the end of a branch out of the index; what is appended there later is indexed anew."""
    yield from forget(scope, branch, low)
    yield from do("search_lower", branch=branch, position=low)


def changes(scope: Scope, branch: int, position: int) -> Steps[None]:
    """Take a message out of the index that is about to be changed; it is indexed anew."""
    yield from forget(scope, branch, position - 1, position)
    yield from do("search_lower", branch=branch, position=position - 1)


def clear() -> Op[None]:
    """Empty the index; everything is indexed anew before the next search."""
    return Op(_clear, scrubs=True)


def mark() -> Steps[str | None]:
    """Name the making of the index: another name means that it was emptied since."""
    row = yield from one("search_mark")
    return None if row is None else row[0]


def _clear() -> Steps[None]:
    before = yield from mark()
    # The index of the titles is mended first: deleting from a damaged one would fail.
    for query in (
        "search_empty", "search_empty_terms", "search_mend_titles", "search_empty_titles", "search_restart",
        "search_retitle",
    ):  # fmt: skip
        yield from do(query)
    # Before every word, and with a sign that no word has.
    yield from each("search_term_insert", [(f"{_MARK}{1 if before is None else int(before[1:]) + 1}",)])


def rebuild(scope: Scope) -> Plan[int]:
    """Make the index anew: how many messages are in it."""
    yield clear()
    return (yield from catch_up(scope))
