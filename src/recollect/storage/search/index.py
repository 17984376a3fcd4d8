"""The search index: catch up, remove, rebuild and check.

An append does not update the index: a search first catches up, in bounded transactions. A branch row has the position
up to which the branch is indexed without a gap, and a session row states whether its title is indexed. A streaming
answer leaves a gap; messages after it are indexed anyway. To remove an entry, FTS5 needs the same words again, so a
message must be read before it is changed or erased.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from recollect.errors import DiskFull, IndexDamaged, StoreLocked, StoreReadOnly
from recollect.model import blob, json
from recollect.model.message import Part, ToolResultPart
from recollect.model.reports import Finding
from recollect.storage import leases
from recollect.storage.operation import Operation, Plan, Row, Scope, Steps, execute, execute_many, fetch_all, fetch_one
from recollect.storage.paths import LAST_POSITION, read_path
from recollect.storage.search import expressions
from recollect.storage.search.analysis import IndexDocument, fold, infix_terms, make_document, tokenize
from recollect.storage.search.expressions import Fts5Expression
from recollect.storage.search.query import Phrase

# Limits of one indexing transaction, so that writers do not wait long.
PAGE_SIZE = 200  # messages
_MAX_CHARACTERS = 2_000_000  # of text
_TITLE_BATCH = 500  # titles, or branches
CALL_DISTANCE = 1_000
"""Positions before a tool result within which its call is looked for."""
_OPEN_STATES = ("pending", "streaming")
# Removing one message with secure deletion costs about as much as rewriting this many messages.
_REWRITE_FACTOR = 100
# Messages. A smaller index is cleared and rebuilt instead of rewritten.
_CLEAR_LIMIT = 1_000
_MARK_PREFIX = "\1"
WRITE_ERRORS = (StoreReadOnly, DiskFull, StoreLocked)
"""Errors that prevent indexing. The existing index is searched all the same."""
_SETTLE_THRESHOLD, _SETTLE_BATCH = 50, 500
"""Number of waiting sessions at which a search clears the flag of indexed ones, and sessions per transaction."""


class UnindexedBranch(NamedTuple):
    """A branch with messages that are not indexed, and the last of their positions."""

    branch: int
    session: int | None
    last: int


class IndexBacklog(NamedTuple):
    """The branches and titles that are not indexed, and the mark of the index at that time."""

    mark: str | None
    branches: list[UnindexedBranch]
    titles: bool
    waiting_sessions: int = 0
    """The number of sessions with the waiting flag, up to a limit (PostgreSQL)."""


class _IndexProgress(NamedTuple):
    branches: int
    messages: int


def catch_up(scope: Scope) -> Plan[int]:
    """Index everything that is committed, in bounded transactions; return the number of messages."""
    backlog: IndexBacklog = yield read_backlog(scope)
    return (yield from index_backlog(scope, backlog))


def read_backlog(scope: Scope) -> Operation[IndexBacklog]:
    """Read what is not indexed."""
    return Operation(_read_backlog, scope, writes=False)


def index_backlog(scope: Scope, backlog: IndexBacklog) -> Plan[int]:
    """Index a backlog; return the number of messages."""
    branches, titles = backlog.branches, backlog.titles
    while titles:
        titles = yield Operation(_index_titles, scope)
    count = 0
    while branches:
        progress: _IndexProgress = yield Operation(_index_branches, scope, branches[:_TITLE_BATCH])
        branches = branches[progress.branches :]
        count += progress.messages
    if backlog.waiting_sessions >= _SETTLE_THRESHOLD:
        with contextlib.suppress(*WRITE_ERRORS):  # it only makes the next search faster
            after: int | None = 0
            while after is not None:
                after = yield Operation(_settle, scope, after)
    return count


def _read_backlog(scope: Scope) -> Steps[IndexBacklog]:
    first, *rows = yield from fetch_all("search_backlog", owner=scope.owner, max_sessions=_SETTLE_THRESHOLD)
    _, waiting_sessions, _, mark, titles = first
    return IndexBacklog(mark, [UnindexedBranch(*row[:3]) for row in rows], bool(titles), waiting_sessions)


def _settle(scope: Scope, after: int) -> Steps[int | None]:
    """Clear the waiting flag of sessions that are completely indexed; return the key to continue after.

    Sessions are locked before their positions are read, and skipped if another transaction writes to them: every
    append and every removal from the index writes to the session row in the same transaction.
    """
    rows = yield from fetch_all("search_waiting_sessions", owner=scope.owner, after=after, limit=_SETTLE_BATCH)
    if rows:
        yield from execute("search_clear_waiting", keys=json.encode([row[0] for row in rows]))
    return rows[-1][0] if len(rows) == _SETTLE_BATCH else None


def _index_titles(scope: Scope) -> Steps[bool]:
    """Index titles that are new or changed; return whether there are more."""
    rows = yield from fetch_all("search_changed_titles", owner=scope.owner, limit=_TITLE_BATCH)
    for key, title in rows:
        yield from remove_title(key)
        if title:
            index_text = fold(title)
            yield from execute("search_title_insert", session=key, title=index_text)
            yield from execute_many("search_term_insert", [(word,) for word in infix_terms(set(tokenize(index_text)))])
        yield from execute("search_title_indexed", session=key)
    return len(rows) == _TITLE_BATCH


def remove_title(session: int) -> Steps[None]:
    """Remove the title of a session from the index."""
    row = yield from fetch_one("search_title_get", session=session)
    if row is not None:
        yield from execute("search_title_delete", session=session)
        yield from execute("search_terms_delete_unused", terms=json.encode(infix_terms(set(tokenize(row[0])))))


def _index_branches(scope: Scope, branches: Sequence[UnindexedBranch]) -> Steps[_IndexProgress]:
    """Index branches up to the limits of a transaction; return the finished branches and the messages."""
    remaining = _MAX_CHARACTERS
    messages = finished = 0
    words: set[str] = set()
    for item in branches:
        while remaining > 0:
            count, size, ended = yield from _index_page(scope, item, words)
            messages, remaining = messages + count, remaining - size
            if ended:
                finished += 1
                break
        if remaining <= 0:
            break
    yield from execute_many("search_term_insert", [(word,) for word in infix_terms(words)])
    return _IndexProgress(finished, messages)


def _index_page(scope: Scope, item: UnindexedBranch, words: set[str]) -> Steps[tuple[int, int, bool]]:
    """Index a page of a branch; return the messages, the characters, and whether the branch is done."""
    branch_row = yield from fetch_one("search_indexed_to", branch=item.branch)
    if branch_row is None or branch_row[0] >= item.last:  # erased meanwhile, or indexed by another process
        return 0, 0, True
    rows = yield from fetch_all(
        "search_unindexed", branch=item.branch, low=branch_row[0], high=item.last, limit=PAGE_SIZE
    )
    unfinished = yield from _find_unfinished(scope, item, rows)
    complete = [row for row in rows if row[0] not in unfinished]
    documents = yield from _read_documents(scope, item.branch, complete)
    yield from execute_many("search_insert", [(item.branch, position, *columns) for position, columns in documents])
    size = sum(_collect_words(columns, words) for _, columns in documents)
    is_end = len(rows) < PAGE_SIZE or not complete
    end = min(unfinished) - 1 if unfinished else (item.last if is_end else rows[-1][0])
    if end > branch_row[0]:
        yield from execute("search_set_indexed_to", branch=item.branch, position=end)
    return len(complete), size, is_end


def _find_unfinished(scope: Scope, item: UnindexedBranch, rows: list[Row]) -> Steps[set[int]]:
    """Return the positions of messages that an open turn is still writing: they are indexed when complete."""
    positions = [row[0] for row in rows if row[2] in _OPEN_STATES]
    if not positions or item.session is None:
        return set()
    yield from leases.recover_turns(scope, item.session)  # interrupts turns whose holder is gone
    unfinished: set[int] = set()
    for position in positions:
        if (yield from fetch_one("search_unfinished", branch=item.branch, position=position)) is not None:
            unfinished.add(position)
    return unfinished


def _collect_words(columns: IndexDocument, words: set[str]) -> int:
    """Add the words of a message to a set; return its number of characters."""
    for column in columns[:3]:
        words.update(tokenize(column))
    return sum(map(len, columns))


def _read_documents(scope: Scope, branch: int, rows: Sequence[Row]) -> Steps[list[tuple[int, IndexDocument]]]:
    parts_of: dict[int, tuple[Part, ...]] = {}
    for row in rows:
        parts_of[row[0]] = yield from read_parts(scope, row[4], row[3])
    tools: Mapping[int, Mapping[int, str]] = {}
    if any(isinstance(part, ToolResultPart) and part.tool is None for parts in parts_of.values() for part in parts):
        tools = yield from read_tool_names(branch, rows[0][0], rows[-1][0])
    return [(row[0], make_document(row[1], parts_of[row[0]], tools.get(row[0], {}))) for row in rows]


def read_tool_names(branch: int, low: int, high: int) -> Steps[dict[int, dict[int, str]]]:
    """Return the tool names of the results from `low` to `high` of a branch, by position and part.

    A call is looked for within a fixed distance before its result, also in the shared past of a fork. So a message has
    the same words when it is removed from the index as when it was added, regardless of the page.
    """
    names: dict[int, dict[int, str]] = {}
    for span in (yield from read_path(branch)):
        start, end = max(span.low, low - CALL_DISTANCE), min(span.high, high)
        if start >= end:
            continue
        for call, position, part, tool in (
            yield from fetch_all("search_tools", branch=branch, call_branch=span.branch, low=start, high=end)
        ):
            if call > position - CALL_DISTANCE:
                names.setdefault(position, {})[part] = tool
    return names


def read_parts(scope: Scope, parts: bytes, blobs: str | None) -> Steps[tuple[Part, ...]]:
    """Return the parts of a message with its text blobs attached; binary blobs are not read."""
    if blobs is None:
        return json.decode_as(tuple[Part, ...], parts)
    plain = json.decode(parts)
    payloads: dict[str, bytes] = dict.fromkeys(json.decode(blobs), b"")
    for name in blob.text_payload_hashes(plain):
        row = yield from fetch_one("blob_get", owner=scope.owner, hash=name)
        payloads[name] = b"" if row is None else row[0]
    return msgspec.convert(blob.attach_payloads(plain, payloads), tuple[Part, ...])


def remove_messages(scope: Scope, branch: int, low: int, high: int = LAST_POSITION) -> Steps[None]:
    """Remove a span from the index, before its messages are erased: positions after `low`, up to `high`."""
    rows = yield from fetch_all("search_indexed", branch=branch, low=low, high=high, limit=PAGE_SIZE)
    if not rows:
        return
    count = yield from fetch_one("search_count_range", branch=branch, low=low, high=high)
    total = yield from fetch_one("search_total")
    assert count is not None
    assert total is not None
    rewrite = count[0] * _REWRITE_FACTOR > total[0]
    if rewrite and total[0] - count[0] <= _CLEAR_LIMIT:
        yield from _clear()
        return
    yield from execute("search_set_secure_delete", value=0 if rewrite else 1)
    words: set[str] = set()
    while rows:
        documents = yield from _read_documents(scope, branch, rows)
        yield from execute_many("search_delete", [(branch, position, *columns) for position, columns in documents])
        for _, columns in documents:
            _collect_words(columns, words)
        rows = yield from fetch_all("search_indexed", branch=branch, low=rows[-1][0], high=high, limit=PAGE_SIZE)
    if rewrite:
        yield from _rewrite_index()
    yield from execute("search_terms_delete_unused", terms=json.encode(infix_terms(words)))


def read_document(scope: Scope, branch: int, position: int) -> Steps[IndexDocument | None]:
    """Return the index document of a message; None if it is not indexed."""
    rows = yield from fetch_all("search_indexed", branch=branch, low=position - 1, high=position, limit=1)
    return (yield from _read_documents(scope, branch, rows))[0][1] if rows else None


def _rewrite_index() -> Steps[None]:
    """Rewrite the index without the removed entries.

    FTS5 may keep delete markers, with their words, if the whole index is on one level. A new entry is on another level,
    so the second optimize merges both and leaves no markers.
    """
    yield from execute("search_optimize")
    yield from execute("search_add_marker")
    yield from execute("search_optimize")
    yield from execute("search_set_secure_delete", value=1)
    yield from execute("search_remove_marker")


def truncate_branch(scope: Scope, branch: int, low: int) -> Steps[None]:
    """Remove the end of a branch from the index; later messages are indexed again."""
    yield from remove_messages(scope, branch, low)
    yield from execute("search_lower_indexed_to", branch=branch, position=low)


def invalidate_message(scope: Scope, branch: int, position: int) -> Steps[None]:
    """Remove a message from the index before it changes; it is indexed again later."""
    yield from remove_messages(scope, branch, position - 1, position)
    yield from execute("search_lower_indexed_to", branch=branch, position=position - 1)


def clear() -> Operation[None]:
    """Clear the index; the next search builds it again."""
    return Operation(_clear, secure_wipe=True)


def read_mark() -> Steps[str | None]:
    """Return the mark of the index: another mark means that it was cleared meanwhile."""
    row = yield from fetch_one("search_mark")
    return None if row is None else row[0]


def _clear() -> Steps[None]:
    before = yield from read_mark()
    # The title index is rebuilt first: deleting from a damaged one would fail.
    for query in (
        "search_clear", "search_clear_terms", "search_rebuild_titles", "search_clear_titles", "search_reset_branches",
        "search_reset_titles",
    ):  # fmt: skip
        yield from execute(query)
    # Sorts before every word, and begins with a character that no word has.
    yield from execute_many("search_term_insert", [(f"{_MARK_PREFIX}{1 if before is None else int(before[1:]) + 1}",)])


def rebuild(scope: Scope) -> Plan[int]:
    """Rebuild the index; return the number of messages in it."""
    yield clear()
    return (yield from catch_up(scope))


_CHECK_SAMPLES = 100  # branches whose last indexed message is looked up
_CHECK_WORDS = 3  # words of each message
_REINDEX_ADVICE = "No message is affected. store.reindex() rebuilds it."


def check_index(scope: Scope, *, repair: bool) -> Plan[list[Finding]]:
    """Search for words of a sample of messages; with `repair`, rebuild the index if one is not found."""
    try:
        with contextlib.suppress(*WRITE_ERRORS):  # FTS5 checks itself by writing
            yield Operation(_verify_structure, scope)
        missing: int = yield Operation(_count_missing, scope, writes=False)
    except IndexDamaged:
        missing = -1
    if not missing:
        return []
    if repair:
        yield from rebuild(scope)
    message = (
        "The search index is damaged."
        if missing < 0
        else f"Search does not find {missing} of the messages in a sample."
    )
    return [Finding(kind="search", message=message, advice=_REINDEX_ADVICE, repaired=repair)]


def _verify_structure(scope: Scope) -> Steps[None]:
    yield from execute("search_verify", owner=scope.owner)


def _count_missing(scope: Scope) -> Steps[int]:
    """Count the sampled messages that a search for their own words does not find."""
    samples: list[tuple[int, int, list[Phrase]]] = []
    for branch, position in (yield from fetch_all("search_sample", owner=scope.owner, limit=_CHECK_SAMPLES)):
        samples.append((branch, position, (yield from _longest_words(scope, branch, position))))
    missing = 0
    for branch, position, words in samples:  # after all were read: PostgreSQL's policies then show only rows that match
        for word in words:
            match, tsquery = Fts5Expression({}).of(word), expressions.TsqueryExpression({}).of(word)
            row = yield from fetch_one(
                "search_contains", match=match, tsquery=tsquery, branch=branch, position=position
            )
            if row is None:
                missing += 1
                break
    return missing


def _longest_words(scope: Scope, branch: int, position: int) -> Steps[list[Phrase]]:
    """Return the longest words of a message."""
    document = yield from read_document(scope, branch, position)
    words = [token for column in document[:3] for token in tokenize(column)] if document else []
    longest = sorted(set(words), key=len, reverse=True)[:_CHECK_WORDS]
    return [Phrase((word,), prefix=False, quoted=False) for word in longest]
