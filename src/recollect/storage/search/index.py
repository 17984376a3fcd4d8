"""The search index: catch up, remove, rebuild and check.

An append does not update the index: a search first catches up, in bounded transactions. A branch row has the position
up to which the branch is indexed without a gap, and a session row states whether its title is indexed. A streaming
answer leaves a gap; messages after it are indexed anyway. To remove an entry, SQLite needs the same words again, so a
message must be read before it is changed or erased.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from recollect.errors import DiskFull, IndexDamaged, StoreLocked, StoreReadOnly
from recollect.model import blob, json
from recollect.model.message import Part, ToolResultPart
from recollect.model.reports import Finding
from recollect.storage import leases
from recollect.storage.messages import BLOB_GET
from recollect.storage.operation import (
    Deletion,
    Operation,
    Plan,
    Query,
    Scope,
    Steps,
    execute,
    execute_many,
    fetch_all,
    fetch_one,
    fetch_tuples,
)
from recollect.storage.paths import LAST_POSITION, read_path
from recollect.storage.search.analysis import IndexDocument, fold, infix_terms, make_document, tokenize
from recollect.storage.search.dialect import Condition, IndexBacklog, IndexSpan, UnindexedBranch
from recollect.storage.search.query import Phrase

# Limits of one indexing transaction, so that writers do not wait long.
PAGE_SIZE = 200  # messages
_MAX_CHARACTERS = 2_000_000  # of text
_TITLE_BATCH = 500  # titles, or branches
CALL_DISTANCE = 1_000
"""Positions before a tool result within which its call is looked for."""
_OPEN_STATES = ("pending", "streaming")
_MARK_PREFIX = "\1"
WRITE_ERRORS = (StoreReadOnly, DiskFull, StoreLocked)
"""Errors that prevent indexing. The existing index is searched all the same."""


class IndexMarkRow(NamedTuple):
    """The generation mark of the index."""

    mark: str


class ExistenceRow(NamedTuple):
    """A row that only shows that something exists."""

    one: int


class ChangedTitleRow(NamedTuple):
    """A session whose title is not indexed as it is."""

    session: int
    title: str | None


class IndexedTitleRow(NamedTuple):
    """A title as it is indexed."""

    title: str


class IndexEndRow(NamedTuple):
    """The position up to which a branch is indexed without a gap."""

    position: int


class IndexedMessageRow(NamedTuple):
    """The columns of a message that determine its index document."""

    position: int
    role: str
    state: str | None
    blobs: str | None
    parts: bytes


class CallToolRow(NamedTuple):
    """The tool name of a call: the positions of the call and its result, and the part of the result."""

    position: int
    result: int
    part: int
    tool: str


class SampleRow(NamedTuple):
    """The last indexed message of a branch."""

    branch: int
    position: int


MARK = Query("search_mark", IndexMarkRow)
CHANGED_TITLES = Query("search_changed_titles", ChangedTitleRow)
INDEXED_TITLE = Query("search_title_get", IndexedTitleRow)
INDEX_END = Query("search_indexed_to", IndexEndRow)
UNINDEXED_MESSAGES = Query("search_unindexed", IndexedMessageRow)
INDEXED_MESSAGES = Query("search_indexed", IndexedMessageRow)
UNFINISHED = Query("search_unfinished", ExistenceRow)
CALL_TOOLS = Query("search_tools", CallToolRow)
SAMPLE = Query("search_sample", SampleRow)
CONTAINS = Query("search_contains", ExistenceRow)


class _IndexProgress(NamedTuple):
    branches: int
    messages: int


def catch_up(scope: Scope, progress: Callable[[int], object] | None = None) -> Plan[int]:
    """Index everything that is committed, in bounded transactions; return the number of messages.

    `progress` is called after each transaction with the number of messages so far.
    """
    backlog: IndexBacklog = yield read_backlog(scope)
    return (yield from index_backlog(scope, backlog, progress))


def read_backlog(scope: Scope) -> Operation[IndexBacklog]:
    """Read what is not indexed."""
    return Operation(scope.search_dialect().read_backlog, scope, writes=False)


def index_backlog(scope: Scope, backlog: IndexBacklog, progress: Callable[[int], object] | None = None) -> Plan[int]:
    """Index a backlog; return the number of messages."""
    branches, titles = backlog.branches, backlog.titles
    while titles:
        titles = yield Operation(_index_titles, scope)
    count = 0
    while branches:
        step: _IndexProgress = yield Operation(_index_branches, scope, branches[:_TITLE_BATCH])
        branches = branches[step.branches :]
        count += step.messages
        if progress is not None:
            progress(count)
    with contextlib.suppress(*WRITE_ERRORS):  # it only makes the next search faster
        yield from scope.search_dialect().finish_indexing(scope, backlog)
    return count


def _index_titles(scope: Scope) -> Steps[bool]:
    """Index titles that are new or changed; return whether there are more."""
    rows = yield from fetch_tuples(CHANGED_TITLES, owner=scope.owner, limit=_TITLE_BATCH)
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
    row = yield from fetch_one(INDEXED_TITLE, session=session)
    if row is not None:
        yield from execute("search_title_delete", session=session)
        yield from execute("search_terms_delete_unused", terms=json.encode(infix_terms(set(tokenize(row.title)))))


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
    branch_row = yield from fetch_one(INDEX_END, branch=item.branch)
    if branch_row is None or branch_row.position >= item.last:  # erased meanwhile, or indexed by another process
        return 0, 0, True
    rows = yield from fetch_all(
        UNINDEXED_MESSAGES, branch=item.branch, low=branch_row.position, high=item.last, limit=PAGE_SIZE
    )
    unfinished = yield from _find_unfinished(scope, item, rows)
    complete = [row for row in rows if row.position not in unfinished]
    documents = yield from _read_documents(scope, item.branch, complete)
    yield from execute_many("search_insert", [(item.branch, position, *columns) for position, columns in documents])
    size = sum(_collect_words(columns, words) for _, columns in documents)
    is_end = len(rows) < PAGE_SIZE or not complete
    end = min(unfinished) - 1 if unfinished else (item.last if is_end else rows[-1].position)
    if end > branch_row.position:
        yield from execute("search_set_indexed_to", branch=item.branch, position=end)
    return len(complete), size, is_end


def _find_unfinished(scope: Scope, item: UnindexedBranch, rows: Sequence[IndexedMessageRow]) -> Steps[set[int]]:
    """Return the positions of messages that an open turn is still writing: they are indexed when complete."""
    positions = [row.position for row in rows if row.state in _OPEN_STATES]
    if not positions or item.session is None:
        return set()
    yield from leases.recover_turns(scope, item.session)  # interrupts turns whose holder is gone
    unfinished: set[int] = set()
    for position in positions:
        if (yield from fetch_one(UNFINISHED, branch=item.branch, position=position)) is not None:
            unfinished.add(position)
    return unfinished


def _collect_words(columns: IndexDocument, words: set[str]) -> int:
    """Add the words of a message to a set; return its number of characters."""
    for column in columns[:3]:
        words.update(tokenize(column))
    return sum(map(len, columns))


def _read_documents(
    scope: Scope, branch: int, rows: Sequence[IndexedMessageRow]
) -> Steps[list[tuple[int, IndexDocument]]]:
    parts_of: dict[int, tuple[Part, ...]] = {}
    for row in rows:
        parts_of[row.position] = yield from read_parts(scope, row.parts, row.blobs)
    tools: Mapping[int, Mapping[int, str]] = {}
    if any(isinstance(part, ToolResultPart) and part.tool is None for parts in parts_of.values() for part in parts):
        tools = yield from read_tool_names(branch, rows[0].position, rows[-1].position)
    return [
        (row.position, make_document(row.role, parts_of[row.position], tools.get(row.position, {}))) for row in rows
    ]


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
            yield from fetch_tuples(CALL_TOOLS, branch=branch, call_branch=span.branch, low=start, high=end)
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
        row = yield from fetch_one(BLOB_GET, owner=scope.owner, hash=name)
        row = yield from fetch_one(BLOB_GET, owner=scope.owner, hash=name)
        payloads[name] = b"" if row is None else row.data
    return msgspec.convert(blob.attach_payloads(plain, payloads), tuple[Part, ...])


def remove_messages(scope: Scope, branch: int, low: int, high: int = LAST_POSITION) -> Steps[None]:
    """Remove a span from the index, before its messages are erased: positions after `low`, up to `high`."""
    rows = yield from fetch_all(INDEXED_MESSAGES, branch=branch, low=low, high=high, limit=PAGE_SIZE)
    if not rows:
        return
    words = yield from scope.search_dialect().remove_entries(
        IndexSpan(branch, low, high), lambda: _remove_entries(scope, branch, rows, high)
    )
    if words is None:
        yield from _clear(scope)
    else:
        yield from execute("search_terms_delete_unused", terms=json.encode(infix_terms(words)))


def _remove_entries(scope: Scope, branch: int, rows: list[IndexedMessageRow], high: int) -> Steps[set[str]]:
    """Remove the index entries of some rows and of those after them, up to `high`; return their words."""
    words: set[str] = set()
    while rows:
        documents = yield from _read_documents(scope, branch, rows)
        yield from scope.search_dialect().delete_documents(branch, documents)
        for _, columns in documents:
            _collect_words(columns, words)
        rows = yield from fetch_all(INDEXED_MESSAGES, branch=branch, low=rows[-1].position, high=high, limit=PAGE_SIZE)
    return words


def read_document(scope: Scope, branch: int, position: int) -> Steps[IndexDocument | None]:
    """Return the index document of a message; None if it is not indexed."""
    rows = yield from fetch_all(INDEXED_MESSAGES, branch=branch, low=position - 1, high=position, limit=1)
    return (yield from _read_documents(scope, branch, rows))[0][1] if rows else None


def truncate_branch(scope: Scope, branch: int, low: int) -> Steps[None]:
    """Remove the end of a branch from the index; later messages are indexed again."""
    yield from remove_messages(scope, branch, low)
    yield from execute("search_lower_indexed_to", branch=branch, position=low)


def invalidate_message(scope: Scope, branch: int, position: int) -> Steps[None]:
    """Remove a message from the index before it changes; it is indexed again later."""
    yield from remove_messages(scope, branch, position - 1, position)
    yield from execute("search_lower_indexed_to", branch=branch, position=position - 1)


def clear(scope: Scope) -> Operation[None]:
    """Clear the index; the next search builds it again."""
    return Operation(_clear, scope, deletion=Deletion.CONTENT)


def read_mark() -> Steps[str | None]:
    """Return the mark of the index: another mark means that it was cleared meanwhile."""
    row = yield from fetch_one(MARK)
    return None if row is None else row.mark


def _clear(scope: Scope) -> Steps[None]:
    before = yield from read_mark()
    yield from execute("search_clear")
    yield from execute("search_clear_terms")
    yield from scope.search_dialect().clear_titles()
    yield from execute("search_reset_branches")
    yield from execute("search_reset_titles")
    # Sorts before every word, and begins with a character that no word has.
    yield from execute_many("search_term_insert", [(f"{_MARK_PREFIX}{1 if before is None else int(before[1:]) + 1}",)])


def rebuild(scope: Scope) -> Plan[int]:
    """Rebuild the index; return the number of messages in it."""
    yield clear(scope)
    return (yield from catch_up(scope))


_CHECK_SAMPLES = 100  # branches whose last indexed message is looked up
_CHECK_WORDS = 3  # words of each message
_REINDEX_ADVICE = "No message is affected. store.maintenance.reindex() rebuilds it."


def check_index(scope: Scope, *, repair: bool) -> Plan[list[Finding]]:
    """Search for words of a sample of messages; with `repair`, rebuild the index if one is not found."""
    try:
        with contextlib.suppress(*WRITE_ERRORS):  # an index may check itself by writing
            yield from scope.search_dialect().verify_index()
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


def _count_missing(scope: Scope) -> Steps[int]:
    """Count the sampled messages that a search for their own words does not find."""
    samples: list[tuple[int, int, list[Phrase]]] = []
    for branch, position in (yield from fetch_all(SAMPLE, owner=scope.owner, limit=_CHECK_SAMPLES)):
        samples.append((branch, position, (yield from _longest_words(scope, branch, position))))
    dialect, missing = scope.search_dialect(), 0
    for branch, position, words in samples:  # after all were read: PostgreSQL's policies then show only rows that match
        for word in words:
            expression = dialect.compile(Condition(word)).text
            if (yield from fetch_one(CONTAINS, expression=expression, branch=branch, position=position)) is None:
                missing += 1
                break
    return missing


def _longest_words(scope: Scope, branch: int, position: int) -> Steps[list[Phrase]]:
    """Return the longest words of a message."""
    document = yield from read_document(scope, branch, position)
    words = [token for column in document[:3] for token in tokenize(column)] if document else []
    longest = sorted(set(words), key=len, reverse=True)[:_CHECK_WORDS]
    return [Phrase((word,), prefix=False, quoted=False) for word in longest]
