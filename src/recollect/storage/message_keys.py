"""The callers' keys of messages: a key is unique among the messages of a path that are not deleted.

An append skips the messages whose keys are on its path. The session row is locked before the keys are looked up, so of
two writers with overlapping batches the second one finds the messages of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from recollect.errors import AmbiguousName, InvalidValue, KeyReused, MessageNotFound, TurnExists, format_value
from recollect.model import json, validation
from recollect.model.session import SessionInfo
from recollect.storage import messages, sessions
from recollect.storage.fast_paths import encode_keys
from recollect.storage.messages import EncodedDraft, TreeSessionRow
from recollect.storage.operation import Operation, Query, Scope, Steps, execute, fetch_all
from recollect.storage.paths import (
    BRANCHES_OF_SESSION,
    BRANCHES_OF_TREE,
    LAST_POSITION,
    PathSpan,
    TreeBranchRow,
    read_path,
)

_MAX_SHOWN = 5  # sessions that an error lists


class KeyedMessageRow(NamedTuple):
    """A message with a key, and its content. `branch` is a key, `number` the public number."""

    branch: int
    number: int
    position: int
    client_key: str
    turn: int | None
    edited_at: int | None
    deleted_at: int | None
    role: str
    format: str | None
    native: str | None
    parts: str

    @property
    def id(self) -> str:
        """The id of the message."""
        return f"{self.number}.{self.position}"


class KeyHolderRow(NamedTuple):
    """A message with a key in a tree, deleted or not."""

    branch: int
    position: int
    is_deleted: bool


class FoundMessageRow(NamedTuple):
    """A message with a key in any session of an owner, deleted or not."""

    tree: int
    branch: int
    number: int
    position: int
    is_deleted: bool


_MESSAGES_KEYED = Query("messages_keyed", KeyedMessageRow)
_MESSAGES_WITH_KEY = Query("messages_with_key", KeyHolderRow)
_MESSAGES_OF_KEY = Query("messages_of_key", FoundMessageRow)


class KeyedBatch(NamedTuple):
    """A batch of drafts: those to store, and the messages that are stored already, by their index in the batch."""

    new: Sequence[EncodedDraft]
    old: dict[int, KeyedMessageRow]

    def ids(self, number: int, first: int) -> tuple[str, ...]:
        """Return the ids of the whole batch, whose new messages begin at a position of a branch."""
        positions = iter(range(first, first + len(self.new)))
        total = len(self.new) + len(self.old)
        return tuple(
            self.old[index].id if index in self.old else f"{number}.{next(positions)}" for index in range(total)
        )


def has_keys(records: Sequence[EncodedDraft]) -> bool:
    """Return whether any of the drafts has a key."""
    return any(item.draft.key is not None for item in records)


def split_batch(session: str, branch: int, records: Sequence[EncodedDraft]) -> Steps[KeyedBatch]:
    """Separate the drafts that are stored on the path of a branch from new ones. The session must be locked.

    Raise KeyReused if a message of the path has the key of a draft and other content. The content of an edited message
    is not compared, because a repeated append has the original one.
    """
    keys = _keys_of(records)
    if len(set(keys)) < len(keys):
        key = next(key for key in keys if keys.count(key) > 1)
        raise InvalidValue(f"Each message of a batch must have its own key, got {format_value(key)} more than once.")
    rows = yield from fetch_all(_MESSAGES_KEYED, branch=branch, keys=encode_keys(keys), deleted=False)
    rows_by_key: dict[str | None, KeyedMessageRow] = {row.client_key: row for row in rows}
    old: dict[int, KeyedMessageRow] = {}
    for index, item in enumerate(records):
        row = rows_by_key.get(item.draft.key)
        if row is not None:
            if row.edited_at is None and not _is_same_content(row, item):
                raise _reused_error(session, row.client_key, row.id)
            old[index] = row
    return KeyedBatch([item for index, item in enumerate(records) if index not in old], old)


def _keys_of(records: Sequence[EncodedDraft]) -> list[str]:
    return [item.draft.key for item in records if item.draft.key is not None]


def _is_same_content(row: KeyedMessageRow, item: EncodedDraft) -> bool:
    """Return whether a stored message has the role, parts, format and remainder of a draft."""
    role, _, _, _, _, _, _, format, *_, native, _, parts = item.columns
    return (
        (row.role, row.format) == (role, format)
        and _is_same_json(row.native, native)
        and _is_same_json(row.parts, parts)
    )


def _is_same_json(old: str | None, new: str | None) -> bool:
    if old == new or old is None or new is None:
        return old == new
    return json.decode(old) == json.decode(new)  # written by an import or a former version


def _reused_error(session: str, key: str, message: str) -> KeyReused:
    return KeyReused(
        f"Message key {format_value(key)} belongs to message {message} of session {format_value(session)}, which has "
        f"different content. Nothing was written. Use a new key, or session.replace_message() to change the content.",
        session=session, key=key, message=message,
    )  # fmt: skip


def stored_turn_error(session: str, batch: KeyedBatch) -> Exception:
    """Return the error for a turn whose messages are all stored already."""
    row = batch.old[0]
    key = format_value(row.client_key)
    if row.turn is None:
        return KeyReused(
            f"Message key {key} belongs to message {row.id} of session {format_value(session)}, which is not part of a "
            f"turn. Nothing was written. Begin the turn with a new message.",
            session=session, key=row.client_key, message=row.id,
        )  # fmt: skip
    turn = f"{row.number}.{row.turn}"
    return TurnExists(
        f"Message key {key} is stored in session {format_value(session)}, in turn {turn}. Nothing was written. "
        f"session.messages() shows the answer.",
        session=session, key=row.client_key, turn=turn,
    )  # fmt: skip


def repeated_ids(
    branch: int, number: int, first: int, count: int, records: Sequence[EncodedDraft]
) -> Steps[tuple[str, ...]]:
    """Return the ids of a batch: `count` messages were stored at `first`, the others before, under their keys."""
    rows = yield from fetch_all(_MESSAGES_KEYED, branch=branch, keys=encode_keys(_keys_of(records)), deleted=True)
    ids: dict[str | None, str] = {}
    for row in sorted(rows, key=lambda row: (row.deleted_at is None, row.position)):
        if row.position < first:
            ids[row.client_key] = row.id
    new_rows = [row for row in rows if row.branch == branch and first <= row.position < first + count]
    ids |= {row.client_key: row.id for row in new_rows}
    without_key = iter(sorted(set(range(first, first + count)) - {row.position for row in new_rows}))
    return tuple(f"{number}.{next(without_key)}" if item.draft.key is None else ids[item.draft.key] for item in records)


def claim_key(session: str, tree: int, branch: int, position: int, key: str) -> Steps[None]:
    """Set the key of a message that is stored without one; raise KeyReused if another message of the path has it."""
    yield from check_free(session, tree, branch, position, key)
    yield from execute("message_set_key", branch=branch, position=position, key=key)


def check_free(session: str, tree: int, branch: int, position: int, key: str) -> Steps[None]:
    """Raise KeyReused if another message that is not deleted has a key, on a path that contains this message."""
    path = yield from read_path(branch)
    for row in (yield from fetch_all(_MESSAGES_WITH_KEY, tree=tree, key=key)):
        if row.is_deleted or (row.branch, row.position) == (branch, position):
            continue
        other_path = path if contains(path, row.branch, row.position) else (yield from read_path(row.branch))
        if contains(other_path, branch, position) and contains(other_path, row.branch, row.position):
            number = next(span.number for span in other_path if span.branch == row.branch)
            raise KeyReused(
                f"Message key {format_value(key)} belongs to message {number}.{row.position} of session "
                f"{format_value(session)} or of its fork. Nothing was written. Delete that message first.",
                session=session, key=key, message=f"{number}.{row.position}",
            )  # fmt: skip


def find_duplicate(branch: int, keys: Sequence[str]) -> Steps[tuple[KeyedMessageRow, KeyedMessageRow] | None]:
    """Return two messages of the path of a branch that are not deleted and have the same one of these keys, or None."""
    rows_by_key: dict[str, KeyedMessageRow] = {}
    if keys:
        for row in (yield from fetch_all(_MESSAGES_KEYED, branch=branch, keys=encode_keys(keys), deleted=False)):
            other = rows_by_key.setdefault(row.client_key, row)
            if other is not row:
                return other, row
    return None


def contains(spans: Sequence[PathSpan], branch: int, position: int) -> bool:
    """Return whether a path contains the message at a position of a branch."""
    return any(span.branch == branch and span.low < position <= span.high for span in spans)


def find_in_session(session: str, current: sessions.StoredSession, key: str) -> Steps[PathSpan]:
    """Return the span that ends with the message that has a key in a session.

    A message of the active path comes before one of another branch, and every message before a deleted one. The newest
    one of another branch is returned.
    """
    rows = yield from fetch_all(_MESSAGES_WITH_KEY, tree=current.tree, key=key)
    rows.sort(key=lambda row: (row.branch, row.position), reverse=True)
    live_rows = [row for row in rows if not row.is_deleted]
    head_path = [(yield from read_path(current.head))]
    span = _first_span(live_rows, head_path)
    if span is None and rows:
        paths: list[list[PathSpan]] = []
        for branch in (yield from fetch_all(BRANCHES_OF_SESSION, session=current.session)):
            paths.append((yield from read_path(branch.key)))  # noqa: PERF401  a generator cannot yield in a comprehension
        span = _first_span(live_rows, paths) or _first_span(rows, head_path) or _first_span(rows, paths)
    if span is None:
        raise MessageNotFound(
            f"Session {format_value(session)} has no message with the key {format_value(key)}. session.messages() "
            f"returns the messages with their keys.",
            session=session, message=key,
        )  # fmt: skip
    return span


def _first_span(rows: Sequence[KeyHolderRow], paths: Sequence[Sequence[PathSpan]]) -> PathSpan | None:
    """Return the first of the messages that one of the paths contains, as the end of a span."""
    for row in rows:
        for path in paths:
            for span in path:
                if span.branch == row.branch and span.low < row.position <= span.high:
                    return span._replace(high=row.position)
    return None


_PAGE_SIZE = 200  # messages. A key that more sessions have is reported as ambiguous after the first page.


class _TreeKeys:
    """The sessions of a tree that are not in the trash, its branches, and its messages with one key."""

    def __init__(self, sessions: Sequence[TreeSessionRow], branches: Sequence[TreeBranchRow]) -> None:
        self.sessions = [row for row in sessions if row.deleted_at is None]
        self.branches = {row.key: row for row in branches}
        self.rows: list[FoundMessageRow] = []
        self._branches_of_session: dict[int | None, list[int]] = {}
        for row in branches:
            self._branches_of_session.setdefault(row.session, []).append(row.key)

    def answers(self) -> Iterator[tuple[int, FoundMessageRow, TreeSessionRow]]:
        """Yield for each session the message that it finds under the key, after its rank: 0 if it is active."""
        for session in self.sessions:
            head_path = self._path(session.head)
            paths = [self._path(branch) for branch in self._branches_of_session.get(session.session, ())]
            ranks = [
                (2 * row.is_deleted + (not _reaches(head_path, row)), -row.branch, -row.position, row)
                for row in self.rows
                if any(_reaches(path, row) for path in (head_path, *paths))
            ]
            if ranks:
                rank, _, _, row = min(ranks)
                yield rank, row, session

    def _path(self, branch: int) -> dict[int, int]:
        """Return the last position on each branch of the path that ends with a branch."""
        path = {branch: LAST_POSITION}
        row = self.branches[branch]
        while row.parent is not None:
            path[row.parent] = row.fork_at
            row = self.branches[row.parent]
        return path

    def owner_of(self, row: FoundMessageRow) -> int | None:
        """Return the key of the session that owns the branch of a message."""
        return self.branches[row.branch].session


def _reaches(path: Mapping[int, int], row: FoundMessageRow) -> bool:
    return row.position <= path.get(row.branch, 0)


def find(scope: Scope, key: str) -> Operation[tuple[SessionInfo, messages.Message]]:
    """Return the message with a key, and its session: the one that has written it, or else the oldest that shares it.

    Raise AmbiguousName if sessions find different messages under the key.
    """
    return Operation(_find, scope, validation.check_message_key(key), writes=False)


def _find(scope: Scope, key: str) -> Steps[tuple[SessionInfo, messages.Message]]:
    trees = yield from _read_trees(scope, key)
    answers = [answer for tree in trees.values() for answer in tree.answers()]
    if not answers:
        raise MessageNotFound(
            f"No session of this store has a message with the key {format_value(key)}.", message=key, session=None
        )
    best_rank = min(rank for rank, _, _ in answers)
    best = [(row, session) for rank, row, session in answers if rank == best_rank]
    if len({row for row, _ in best}) > 1:
        ids = tuple(session.id for _, session in best)
        raise AmbiguousName(
            f"{len(ids)} sessions or more have different messages with the key {format_value(key)}: "
            f"{', '.join(map(format_value, ids[:_MAX_SHOWN]))}. Call session.message(key=...) on one of them.",
            name=key, count=len(ids), matches=ids, sessions=ids,
        )  # fmt: skip
    row, session = best[0]
    owner = trees[row.tree].owner_of(row)
    session = next((session for _, session in best if session.session == owner), session)
    message = yield from messages.read_at(scope, row.branch, row.number, row.position)
    assert message is not None
    return (yield from sessions.read_by_key(session.session)).value, message


def find_holder(scope: Scope, key: str) -> Steps[sessions.StoredSession | None]:
    """Return a session that has a message with a key, if possible the one that has written it, or None."""
    trees = yield from _read_trees(scope, key)
    answers = [answer for tree in trees.values() for answer in tree.answers()]
    if not answers:
        return None
    _, row, session = min(answers, key=lambda answer: answer[0])
    owner = trees[row.tree].owner_of(row)
    return (yield from sessions.read_by_key(session.session if owner is None else owner))


def _read_trees(scope: Scope, key: str) -> Steps[dict[int, _TreeKeys]]:
    """Read the messages with a key by tree, until all are read or two of them are active in different sessions."""
    trees: dict[int, _TreeKeys] = {}
    branch = position = 0
    while True:
        rows = yield from fetch_all(
            _MESSAGES_OF_KEY, owner=scope.owner, key=key, branch=branch, position=position, limit=_PAGE_SIZE
        )
        for row in rows:
            if row.tree not in trees:
                tree_sessions = yield from fetch_all(messages.SESSIONS_OF_TREE, tree=row.tree)
                trees[row.tree] = _TreeKeys(tree_sessions, (yield from fetch_all(BRANCHES_OF_TREE, tree=row.tree)))
            trees[row.tree].rows.append(row)
        active = {row for tree in trees.values() for rank, row, _ in tree.answers() if rank == 0}
        if len(rows) < _PAGE_SIZE or len(active) > 1:
            return trees
        branch, position = rows[-1].branch, rows[-1].position
