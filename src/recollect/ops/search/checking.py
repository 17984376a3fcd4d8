"""Checking the index: its own structure, and real queries for words that messages have."""

from __future__ import annotations

import contextlib

from recollect.errors import IndexDamaged
from recollect.model.finding import Finding
from recollect.op import Op, Plan, Scope, Steps, do, one, rows
from recollect.ops.search import index, tsquery
from recollect.ops.search.match import Expression
from recollect.ops.search.query import Words
from recollect.ops.search.words import tokens

_SAMPLES = 100
_WORDS = 3
_ADVICE = "Nothing that was said is affected. store.reindex() makes it anew."


def check(scope: Scope, *, repair: bool) -> Plan[list[Finding]]:
    """Look for words of some messages of each branch as a search would; make the index anew where one is not found."""
    try:
        with contextlib.suppress(*index.UNWRITABLE):  # FTS5 checks itself by writing
            yield Op(_verify, scope)
        missing: int = yield Op(_missing, scope, writes=False)
    except IndexDamaged:
        missing = -1
    if not missing:
        return []
    if repair:
        yield from index.rebuild(scope)
    message = (
        "The search index is damaged." if missing < 0 else f"{missing} of the messages tried are not found by search."
    )
    return [Finding(kind="search", message=message, advice=_ADVICE, repaired=repair)]


def _verify(scope: Scope) -> Steps[None]:
    yield from do("search_verify", owner=scope.owner)


def _missing(scope: Scope) -> Steps[int]:
    """Count the messages that are not found by their own words, among the last ones of some branches."""
    samples: list[tuple[int, int, list[Words]]] = []
    for branch, position in (yield from rows("search_sample", owner=scope.owner, limit=_SAMPLES)):
        samples.append((branch, position, (yield from _longest(scope, branch, position))))
    missing = 0
    for branch, position, words in samples:  # after all are read: an engine may show only what is looked for from here
        for word in words:
            match, sought = Expression({}).of(word), tsquery.Sought({}).of(word)
            found = yield from one("search_has", match=match, sought=sought, branch=branch, position=position)
            if found is None:
                missing += 1
                break
    return missing


def _longest(scope: Scope, branch: int, position: int) -> Steps[list[Words]]:
    """Give some words of a message."""
    found = yield from index.written(scope, branch, position)
    words = [token for column in found[:3] for token in tokens(column)] if found else []
    longest = sorted(set(words), key=len, reverse=True)[:_WORDS]
    return [Words((word,), prefix=False, quoted=False) for word in longest]
