"""Keeping the index: appending does not pay for it, it is caught up in bounded transactions before a search answers.

A branch knows up to which position it is indexed, a session whether its title is. Text is taken out of the index again
by giving it the same words, so what is taken out must be read before it is changed or erased.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from recollect.model import blob, json
from recollect.model.part import Part, ToolResultPart
from recollect.op import Op, Plan, Row, Scope, Steps, do, each, one, rows
from recollect.ops import leases
from recollect.ops.paths import LAST
from recollect.ops.search.document import Document, document
from recollect.ops.search.words import fold, terms, tokens

PAGE = 200
_CHARACTERS = 2_000_000
_TITLES = 500
_NEAR = 1_000
_OPEN = ("pending", "streaming")
# Taking one message out of the index at once costs about as much as writing this many of it anew.
_WORTH_REWRITING = 300


class Behind(NamedTuple):
    """A branch that has messages which are not indexed: its key, and up to which position there are some."""

    branch: int
    session: int | None
    last: int


class _Done(NamedTuple):
    branches: int
    messages: int


Progress = Callable[[int], None]


def catch_up(scope: Scope) -> Plan[int]:
    """Index everything that is committed by now, a bounded piece at a time: how many messages that were."""
    behind: list[Behind]
    behind, titles = yield Op(_behind, scope, writes=False)
    while titles:
        titles = yield Op(_titles, scope)
    count = 0
    while behind:
        done: _Done = yield Op(_index, scope, behind[:_TITLES])
        behind = behind[done.branches :]
        count += done.messages
    return count


def _behind(scope: Scope) -> Steps[tuple[list[Behind], bool]]:
    found = yield from rows("search_behind", owner=scope.owner)
    title = yield from one("search_untitled", owner=scope.owner, limit=1)
    return [Behind(*row) for row in found], title is not None


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
    low, fork_at, parent = place
    found = yield from rows("search_read", branch=item.branch, low=low, high=item.last, limit=PAGE)
    ready = yield from _ready(scope, item, found)
    read = yield from _documents(scope, item.branch, ready, fork_at, parent)
    yield from each("search_insert", [(item.branch, position, *columns) for position, columns in read])
    size = sum(_gather(columns, words) for _, columns in read)
    whole = len(found) < PAGE and len(ready) == len(found)
    to = item.last if whole else (ready[-1][0] if ready else low)
    yield from do("search_reached", branch=item.branch, position=to)
    return len(ready), size, whole or len(ready) < len(found)


def _ready(scope: Scope, item: Behind, found: list[Row]) -> Steps[list[Row]]:
    """Give the rows before the first that is still being written: it is indexed when it is whole."""
    for index, row in enumerate(found):
        if row[2] in _OPEN:
            if item.session is not None:
                yield from leases.recover(scope, item.session)  # unless nobody is writing it any more
            state = yield from one("search_state", branch=item.branch, position=row[0])
            if state is not None and state[0] in _OPEN:
                return found[:index]
    return found


def _gather(columns: Document, words: set[str]) -> int:
    """Add the words of a message to a set: how many characters they are."""
    for column in columns[:3]:
        words.update(tokens(column))
    return sum(map(len, columns))


def _documents(
    scope: Scope, branch: int, found: Sequence[Row], fork_at: int, parent: int | None
) -> Steps[list[tuple[int, Document]]]:
    parts_of: dict[int, tuple[Part, ...]] = {}
    for row in found:
        parts_of[row[0]] = yield from read_parts(scope, row[4], row[3])
    tools: Mapping[int, Mapping[int, str]] = {}
    if any(isinstance(part, ToolResultPart) and part.tool is None for parts in parts_of.values() for part in parts):
        tools = yield from tools_of(branch, found[0][0], found[-1][0], fork_at, parent)
    return [(row[0], document(row[1], parts_of[row[0]], tools.get(row[0], {}))) for row in found]


def tools_of(branch: int, low: int, high: int, fork_at: int, parent: int | None) -> Steps[dict[int, dict[int, str]]]:
    """Name the tools whose results stand in a stretch of a branch: by position and part."""
    named: dict[int, dict[int, str]] = {}
    start = max(0, low - _NEAR)
    found = yield from rows("search_tools", branch=branch, of=branch, low=start, high=high)
    if parent is not None and low <= fork_at + PAGE:  # a fork answers calls of the past that it shares
        found += yield from rows("search_tools", branch=branch, of=parent, low=max(0, fork_at - _NEAR), high=fork_at)
    for position, part, tool in found:
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
    place = yield from one("search_place", branch=branch)
    if place is None or place[0] <= low:
        return
    reached, fork_at, parent = place
    total = yield from one("search_total")
    rewrite = total is not None and (min(high, reached) - low) * _WORTH_REWRITING > total[0]
    yield from do("search_secure", value=0 if rewrite else 1)
    words: set[str] = set()
    while low < min(high, reached):
        found = yield from rows("search_read", branch=branch, low=low, high=min(high, reached), limit=PAGE)
        if not found:
            break
        read = yield from _documents(scope, branch, found, fork_at, parent)
        yield from each("search_delete", [(branch, position, *columns) for position, columns in read])
        for _, columns in read:
            _gather(columns, words)
        low = found[-1][0]
    if rewrite:
        yield from do("search_optimize")
    yield from do("search_terms_sweep", terms=json.encode(terms(words)))


def renew(scope: Scope, branch: int, position: int) -> Steps[None]:
    """Put a message back into the index, after forget() and a change of its text."""
    place = yield from one("search_place", branch=branch)
    if place is None or place[0] < position:
        return
    columns = yield from written(scope, branch, position)
    if columns is not None:
        words: set[str] = set()
        _gather(columns, words)
        yield from each("search_insert", [(branch, position, *columns)])
        yield from each("search_term_insert", [(word,) for word in terms(words)])


def written(scope: Scope, branch: int, position: int) -> Steps[Document | None]:
    """Write a message as it is indexed; None where there is none."""
    place = yield from one("search_place", branch=branch)
    found = yield from rows("search_read", branch=branch, low=position - 1, high=position, limit=1)
    if place is None or not found:
        return None
    return (yield from _documents(scope, branch, found, place[1], place[2]))[0][1]


def cut(scope: Scope, branch: int, low: int) -> Steps[None]:
    """Take the end of a branch out of the index; what is appended there later is indexed anew."""
    yield from forget(scope, branch, low)
    yield from do("search_lower", branch=branch, position=low)


def clear(scope: Scope) -> Op[None]:
    """Empty the index; everything is indexed anew before the next search."""
    return Op(_clear, scope, scrubs=True)


def _clear(scope: Scope) -> Steps[None]:
    for query in ("search_empty", "search_empty_terms", "search_empty_titles", "search_restart", "search_retitle"):
        yield from do(query, owner=scope.owner)


def rebuild(scope: Scope) -> Plan[int]:
    """Make the index anew: how many messages are in it."""
    yield clear(scope)
    return (yield from catch_up(scope))
