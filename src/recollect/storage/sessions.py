"""Sessions: create, open, update, move to the trash and restore, and track their revisions.

Fields that a caller sets are validated here and become columns. Lists of sessions are in listing.py, messages in
messages.py, and erasing in retention.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from recollect.errors import (
    AmbiguousName,
    InvalidValue,
    SessionExists,
    SessionInTrash,
    SessionNotFound,
    StaleRevision,
    format_value,
)
from recollect.model import json, labels, session_ids, validation
from recollect.model.humanize import escape_unprintable
from recollect.model.session import (
    FLAG_FIELDS,
    RELATIONS,
    SESSION_STATUSES,
    SETTABLE,
    TEXT_FIELDS,
    Change,
    Relation,
    SessionCounts,
    SessionInfo,
)
from recollect.model.title import title_sort_key
from recollect.storage import leases
from recollect.storage.fast_paths import EnsureSessionRequest, OpenSessionRequest, StoredSessionRow
from recollect.storage.operation import (
    Deletion,
    Operation,
    Plan,
    Query,
    Row,
    Scope,
    Steps,
    execute,
    fetch_all,
    fetch_one,
    fetch_tuples,
)
from recollect.storage.paths import BRANCH_INSERT, TREE_BRANCH, TREE_INSERT

_INDEXED_FIELDS = ("channel", "model")
_MAX_INDEXED_LENGTH = 512  # characters. An entry of an index of PostgreSQL has at most 2,704 bytes.


PARENT_FIELDS = ("parent", "relation")
"""The fields that place a session under another one."""


class ParentLink(NamedTuple):
    """The id of a session's parent, and the relation to it."""

    parent: str
    relation: Relation


def columns_for_new(fields: Mapping[str, Any], now: int) -> tuple[dict[str, Any], ParentLink | None]:
    """Check the fields of a session that is about to be created; return its columns and its link to a parent."""
    parent, relation = check_parent_fields(fields)
    if parent is None and relation is not None:
        raise InvalidValue(f"relation must be None without a parent, got {format_value(relation)}. Pass parent too.")
    columns = columns_of({name: value for name, value in fields.items() if name not in PARENT_FIELDS}, now)
    return columns, None if parent is None else ParentLink(parent, relation or "delegate")


def check_parent_fields(fields: Mapping[str, Any]) -> tuple[str | None, Relation | None]:
    """Return the validated `parent` and `relation` of a caller; None if not set, or cleared."""
    parent, relation = (fields.get(name) for name in PARENT_FIELDS)
    if parent is not None:
        parent = validation.check_plain_text("parent", parent)
    if relation is not None:
        relation = validation.check_choice("relation", relation, RELATIONS)
    return parent, relation  # type: ignore[return-value]


def columns_of(fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Validate the fields that a caller sets, and return them as columns."""
    columns: dict[str, Any] = {}
    for name, value in fields.items():
        if name in FLAG_FIELDS:
            columns[FLAG_FIELDS[name]] = now if _check_flag(name, value) else None
        elif name == "metadata":
            columns[name] = None if value is None else json.encode(_check_mapping(name, value))
        elif name == "labels":
            columns[name] = labels.encode_labels(labels.check_labels(value))
        elif name in TEXT_FIELDS:
            columns[name] = _check_text(name, value)
        elif name in PARENT_FIELDS:
            raise InvalidValue(
                f"{name} must be set with session.update(), or when a session is created, got {format_value(value)}."
            )
        else:
            raise InvalidValue(
                f"A session has no settable field {format_value(name)}. Settable fields: {', '.join(SETTABLE)}."
            )
    return columns


def _check_flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidValue(f"{name} must be True or False, got {format_value(value)}.")


def _check_mapping(name: str, value: Any) -> Any:
    plain = json.to_json_data(value, name)
    if isinstance(plain, dict):
        return plain
    raise InvalidValue(f"{name} must be a dict, got {type(value).__name__}.")


def _check_text(name: str, value: Any) -> str | None:
    if name == "status":
        return validation.check_choice("status", value, SESSION_STATUSES)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a string or None, got {type(value).__name__}.")
    value = str.__str__(value)
    check_storable(name, value)
    if name in _INDEXED_FIELDS and len(value) > _MAX_INDEXED_LENGTH:
        raise InvalidValue(f"{name} must have at most {_MAX_INDEXED_LENGTH} characters, got {len(value):,}.")
    return value


def check_storable(name: str, text: str) -> None:
    """Raise InvalidValue for a text that a text column cannot hold."""
    if "\0" in text or text != json.escape_surrogates(text):
        raise InvalidValue(f"{name} must not contain NUL or an unpaired surrogate. Remove these characters.")


_MATCH_LIMIT = 6  # sessions. An ambiguous name lists five of them; the sixth shows that there are more.
_LOOKUP_ATTEMPTS = 2  # live and trash. A second attempt finds a session that was restored in between.
FIELD_COLUMNS = (*TEXT_FIELDS, "labels", "metadata", *FLAG_FIELDS.values())
"""The columns of the fields that a caller sets."""
_EMPTY_COLUMNS: dict[str, Any] = dict.fromkeys(FIELD_COLUMNS)


class StoredSession(NamedTuple):
    """A session with its keys and its number of open turns, as other operations need it."""

    session: int
    tree: int
    head: int
    open_turns: int
    value: SessionInfo


def stored_from_row(row: StoredSessionRow) -> StoredSession:
    """Return the session of a row."""
    session, tree, head, open_turns, *columns, rare = row
    return StoredSession(session, tree, head, open_turns, session_from_columns(columns, rare))


def session_from_columns(columns: list[Any], rare: str | None) -> SessionInfo:
    """Return a session. The columns and the JSON array of rare fields have the order of the fields of SessionInfo."""
    if rare is None:
        return SessionInfo(*columns)
    *values, label_text, metadata = json.decode(rare)
    last_fields = (labels.decode_labels(label_text), None if metadata is None else json.decode(metadata))
    fields: list[Any] = [*columns, *values, *last_fields]
    return SessionInfo(*fields)


SESSION_GET = Query("session_get", StoredSessionRow)
SESSION_IN_TRASH = Query("session_in_trash", StoredSessionRow)
SESSION_BY_KEY = Query("session_by_key", StoredSessionRow)


def find(scope: Scope, session: str) -> Steps[StoredSession]:
    """Return a session that is not in the trash; raise SessionNotFound or SessionInTrash."""
    return stored_from_row((yield from _find_row(scope, session)))


def _find_row(scope: Scope, session: str) -> Steps[StoredSessionRow]:
    """Read the row of a session that is not in the trash, or raise the reason why there is none.

    Another process may restore it between the query for live sessions and the query for the trash, so both run twice
    before the session is reported missing.
    """
    for _ in range(_LOOKUP_ATTEMPTS):
        row = yield from find_live_row(scope, session)
        if row is not None:
            return row
        if (yield from find_trashed_row(scope, session)) is not None:
            raise SessionInTrash(session=session)
    raise SessionNotFound(session=session)


def counts_of(value: SessionInfo) -> SessionCounts:
    """Return the counts and times of a session."""
    return SessionCounts(
        value.revision, value.message_count, value.token_count, value.input_tokens, value.output_tokens,
        value.updated_at_ms, value.active_at_ms, value.last_message_at_ms,
    )  # fmt: skip


def find_live_row(scope: Scope, session: str) -> Steps[StoredSessionRow | None]:
    """Read the row of a session that is not in the trash."""
    if not session_ids.is_possible_id(session):
        return None
    return (yield from fetch_one(SESSION_GET, owner=scope.owner, id=session))


def find_trashed_row(scope: Scope, session: str) -> Steps[StoredSessionRow | None]:
    """Read the row of the session with this id that was moved to the trash last."""
    if not session_ids.is_possible_id(session):
        return None
    return (yield from fetch_one(SESSION_IN_TRASH, owner=scope.owner, id=session))


def read_by_key(key: int) -> Steps[StoredSession]:
    """Read a session that exists, by its key."""
    row = yield from fetch_one(SESSION_BY_KEY, session=key)
    assert row is not None
    return stored_from_row(row)


def find_by_key(key: int) -> Steps[StoredSession | None]:
    """Read a session by its key, also if it is in the trash; return None if it was erased."""
    row = yield from fetch_one(SESSION_BY_KEY, session=key)
    return None if row is None else stored_from_row(row)


def missing_key_error(session: str, key: int) -> Steps[SessionNotFound]:
    """Return the error for a session that is missing by its key: it was erased, or it is in the trash."""
    row = yield from fetch_one(SESSION_BY_KEY, session=key)
    return SessionNotFound(session=session) if row is None else SessionInTrash(session=session)


def _missing_id_error(scope: Scope, session: str) -> Steps[SessionNotFound]:
    row = yield from find_trashed_row(scope, session)
    return SessionNotFound(session=session) if row is None else SessionInTrash(session=session)


def check_updatable(scope: Scope, session: str, expected: int | None) -> Steps[None]:
    """Raise the reason why an update of a session matched no row: it is missing, in the trash or at another revision.

    Return if the reason is gone: another process restored the session meanwhile. The row is locked now, so the same
    update matches it.
    """
    check_revision((yield from find(scope, session)), expected)


def check_revision(current: StoredSession, expected: int | None) -> None:
    """Raise StaleRevision if a session that the operation has read, and so locked, is not at the expected revision."""
    revision = current.value.revision
    if expected is not None and revision != expected:
        raise StaleRevision(session=current.value.id, revision=revision, expected=expected)


def _new_row(session: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a new session: those of the caller, and defaults for the others."""
    channel, channel_id = session_ids.split_key(session)
    return {
        **_EMPTY_COLUMNS,
        "status": "active",
        "channel": channel,
        "channel_id": channel_id,
        "parent": None,
        "relation": None,
        "last_message_at": None,
        "message_count": 0,
        "token_count": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        **columns,
    }


class SessionKeyRow(NamedTuple):
    """The key of a session."""

    session: int


SESSION_INSERT = Query("session_insert", SessionKeyRow)


def insert(scope: Scope, session: str, tree: int, columns: dict[str, Any], relation: dict[str, Any]) -> Steps[int]:
    """Insert a session as the most recently active one, and return its key.

    `relation` has the columns `parent` and `relation` of a fork or delegate; otherwise it is empty.
    """
    row = {**_new_row(session, columns), **relation}
    key_row = yield from fetch_one(SESSION_INSERT, owner=scope.owner, id=session, tree=tree, now=scope.now, **row)
    assert key_row is not None
    if row["title"] is not None:
        yield from set_sort_title(key_row.session, row["title"])
    if row["labels"] is not None:
        yield from set_label_rows(key_row.session, row["labels"])
    return key_row.session


def _ensure_request(
    scope: Scope, session: str, columns: dict[str, Any], link: ParentLink | None
) -> EnsureSessionRequest:
    """Return the request for the fast path that creates a session."""
    row = _new_row(session, columns)
    row["folded"] = None if row["title"] is None else title_sort_key(row["title"])
    parent, row["relation"] = link or (None, None)
    return EnsureSessionRequest(scope.owner, session, scope.now, parent, row)


def _open_request(scope: Scope, session: str) -> OpenSessionRequest | None:
    """Return the request for the fast path that reads a session; None for an id that no session can have."""
    return OpenSessionRequest(scope.owner, session) if session_ids.is_possible_id(session) else None


def _finish_open(_: OpenSessionRequest, rows: list[StoredSessionRow]) -> SessionInfo | None:
    return stored_from_row(rows[0]).value if rows else None


def _finish_creation(_: EnsureSessionRequest, row: StoredSessionRow) -> SessionInfo:
    return stored_from_row(row).value


def set_sort_title(session: int, title: str | None) -> Steps[None]:
    """Store or delete the sort key of a title."""
    if title is None:
        yield from execute("title_clear", session=session)
    else:
        yield from execute("title_set", session=session, folded=title_sort_key(title))


def set_label_rows(session: int, text: str | None) -> Steps[None]:
    """Write the rows by which lists find a session, one for each label; `text` is the column `labels`."""
    yield from execute("labels_delete", session=session, labels=text or "[]")
    if text is not None:
        yield from execute("labels_insert", session=session, labels=text)


def create(scope: Scope, session: str, fields: Mapping[str, Any]) -> Operation[SessionInfo]:
    """Create a session; raise SessionExists if the id is in use."""
    columns, link = columns_for_new(fields, scope.now)
    id = session_ids.check_new_id(session)
    request = _ensure_request(scope, id, columns, link)
    return Operation(_create, scope, id, columns, link, fast=request, finish=_finish_creation)


def _create(scope: Scope, session: str, columns: dict[str, Any], link: ParentLink | None) -> Steps[SessionInfo]:
    if (yield from find_live_row(scope, session)) is not None:
        raise SessionExists(session=session)
    return (yield from create_in_steps(scope, session, columns, link))


def create_in_steps(scope: Scope, session: str, columns: dict[str, Any], link: ParentLink | None) -> Steps[SessionInfo]:
    """Create a session statement by statement. If another process used the id meanwhile, the engine runs it again."""
    tree = yield from fetch_one(TREE_INSERT, owner=scope.owner)
    assert tree is not None
    relation: dict[str, Any] = {}
    if link is not None:
        relation = {"parent": (yield from find(scope, link.parent)).session, "relation": link.relation}
    key = yield from insert(scope, session, tree.key, columns, relation)
    branch, _ = yield from new_branch(tree.key, key, None, 0, scope.now)
    yield from execute("session_head", session=key, head=branch, last=0)
    return (yield from read_by_key(key)).value


def new_branch(tree: int, session: int, parent: int | None, fork_at: int, now: int) -> Steps[tuple[int, int]]:
    """Create a branch that leaves its parent after a position; return its key and its number in the tree."""
    counter = yield from fetch_one(TREE_BRANCH, tree=tree)
    assert counter is not None
    branch = yield from fetch_one(
        BRANCH_INSERT, tree=tree, number=counter.number, session=session, parent=parent, fork_at=fork_at, now=now
    )
    assert branch is not None
    return branch.key, counter.number


def ensure(scope: Scope, session: str, fields: Mapping[str, Any]) -> Operation[SessionInfo]:
    """Create a session; if it exists, read it, and interrupt turns whose holder is gone."""
    columns, link = columns_for_new(fields, scope.now)
    id = session_ids.check_id(session)
    # A session may exist under an id that a new one cannot have. The steps then read it, but never create it.
    request = None if session_ids.is_old_id(id) else _ensure_request(scope, id, columns, link)
    return Operation(_ensure, scope, id, columns, link, fast=request, finish=_finish_creation)


def _ensure(scope: Scope, session: str, columns: dict[str, Any], link: ParentLink | None) -> Steps[SessionInfo]:
    row = yield from find_live_row(scope, session)
    if row is not None:
        return (yield from _recovered_info(scope, row))
    return (yield from create_in_steps(scope, session_ids.check_new_id(session), columns, link))


def _recovered_info(scope: Scope, row: StoredSessionRow) -> Steps[SessionInfo]:
    """Return the session of a row, after interrupting turns whose holder is gone."""
    if row.open_turns and (yield from leases.recover_turns(scope, row.session)):
        return (yield from read_by_key(row.session)).value
    return stored_from_row(row).value


class ActivityRow(NamedTuple):
    """The activity time of a session."""

    active_at: int


SESSION_ACTIVATE = Query("session_activate", ActivityRow)


def activate(scope: Scope, session: int) -> Steps[int]:
    """Make a session the most recently active one, also within one millisecond; return its activity time."""
    row = yield from fetch_one(SESSION_ACTIVATE, owner=scope.owner, session=session, now=scope.now)
    assert row is not None
    return row.active_at


class TouchedRow(NamedTuple):
    """A session after a change of one of its branches: its keys, the last position before it, and the counts."""

    session: int
    head: int
    last: int
    revision: int
    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    updated_at: int
    active_at: int
    last_message_at: int | None

    @property
    def counts(self) -> SessionCounts:
        """The counts and times of the session."""
        return SessionCounts(
            self.revision, self.message_count, self.token_count, self.input_tokens, self.output_tokens,
            self.updated_at, self.active_at, self.last_message_at,
        )  # fmt: skip


SESSION_TOUCH = Query("session_touch", TouchedRow)


def touch(session: str, key: int, branch: int, change: Mapping[str, int]) -> Steps[TouchedRow]:
    """Raise the revision of a session, and count new messages if the branch is its head.

    `change` holds the time, the number of messages and their tokens. Raise SessionNotFound or SessionInTrash.
    """
    row = yield from fetch_one(SESSION_TOUCH, session=key, branch=branch, **change)
    if row is None:
        raise (yield from missing_key_error(session, key))
    return row


class _Lookup(NamedTuple):
    """A session that was read to be opened, or None, and whether it has an open turn whose holder is gone."""

    value: SessionInfo | None
    is_abandoned: bool = False


def open_session(scope: Scope, session: str, fields: Mapping[str, Any] | None = None) -> Plan[SessionInfo]:
    """Open a session. If it is missing, create it with `fields`; without them, raise SessionNotFound or SessionInTrash.

    An existing session is only read, without a transaction that writes, unless a turn must be interrupted because its
    holder is gone.
    """
    creation = None if fields is None else ensure(scope, session, fields)  # checks the arguments before any statement
    value, is_abandoned = yield look_up(scope, session)
    if value is not None and not is_abandoned:
        return value
    if creation is not None:
        return (yield creation)
    if value is None:  # a replica may lag behind the process that created the session
        return (yield Operation(_read, scope, session, writes=False, latest=True))
    return (yield Operation(_recover_session, scope, session))


def look_up(scope: Scope, session: str) -> Operation[_Lookup]:
    """Read a session that is about to be opened, unless it is missing or in the trash."""
    request = _open_request(scope, session)
    return Operation(_look_up, scope, session, writes=False, fast=request, finish=_finish_look_up)


def _finish_look_up(_: OpenSessionRequest, rows: list[StoredSessionRow]) -> _Lookup | None:
    """Return the session of a row; None if a turn is open in it, whose holder the steps examine."""
    if not rows:
        return _Lookup(None)
    return None if rows[0].open_turns else _Lookup(stored_from_row(rows[0]).value)


def _look_up(scope: Scope, session: str) -> Steps[_Lookup]:
    row = yield from find_live_row(scope, session)
    if row is None:
        return _Lookup(None)
    is_abandoned = row.open_turns > 0 and (yield from leases.has_abandoned_turn(scope, row.session))
    return _Lookup(stored_from_row(row).value, is_abandoned)


def _recover_session(scope: Scope, session: str) -> Steps[SessionInfo]:
    return (yield from _recovered_info(scope, (yield from _find_row(scope, session))))


class SessionIdRow(NamedTuple):
    """The id of a session."""

    id: str


SESSIONS_WITH_OPEN_TURNS = Query("sessions_with_open_turns", SessionIdRow)


def recover(scope: Scope, session: str | None = None) -> Plan[list[str]]:
    """Interrupt turns whose holder is gone, in one session or in all; return the ids of the changed sessions."""
    names = [session] if session is not None else (yield Operation(_all_ids_with_open_turn, scope, writes=False))
    changed: list[str] = []
    for name in names:
        if (yield Operation(_recover, scope, name)):
            changed.append(name)  # noqa: PERF401  a generator cannot yield in a comprehension
    return changed


def _all_ids_with_open_turn(scope: Scope) -> Steps[list[str]]:
    return sorted(row.id for row in (yield from fetch_all(SESSIONS_WITH_OPEN_TURNS, owner=scope.owner)))


def _recover(scope: Scope, session: str) -> Steps[bool]:
    row = yield from find_live_row(scope, session)
    if row is None or not row.open_turns:
        return False
    return (yield from leases.recover_turns(scope, row.session))


def read(scope: Scope, session: str) -> Operation[SessionInfo]:
    """Read an existing session; raise SessionNotFound or SessionInTrash."""
    request = _open_request(scope, session)
    return Operation(_read, scope, session, writes=False, fast=request, finish=_finish_open)


def _read(scope: Scope, session: str) -> Steps[SessionInfo]:
    return (yield from find(scope, session)).value


def get(scope: Scope, session: str) -> Operation[SessionInfo | None]:
    """Read a session, or None if it is missing or in the trash."""
    request = _open_request(scope, session)
    return Operation(_get, scope, session, writes=False, fast=request, finish=_finish_open)


def _get(scope: Scope, session: str) -> Steps[SessionInfo | None]:
    row = yield from find_live_row(scope, session)
    return None if row is None else stored_from_row(row).value


SESSION_UPDATE = Query("session_update", StoredSessionRow)


def update(
    scope: Scope, session: str, fields: Mapping[str, Any], expected: int | None = None
) -> Operation[SessionInfo]:
    """Change fields of a session; raise StaleRevision if its revision is not `expected`."""
    validation.check_integer("expected", expected)
    return Operation(update_columns, scope, session, columns_of(fields, scope.now), expected)


def update_columns(
    scope: Scope, session: str, columns: dict[str, Any], expected: int | None, *, raises_revision: bool = True
) -> Steps[SessionInfo]:
    """Change columns of a session and raise its revision; raise StaleRevision if it is not `expected`.

    Without `raises_revision`, a later statement of the operation raises it.
    """
    if not columns and expected is None:
        return (yield from find(scope, session)).value
    return (yield from write_columns(scope, session, columns, expected, raises_revision=raises_revision))


def write_columns(
    scope: Scope, session: str, columns: dict[str, Any], expected: int | None, *, raises_revision: bool = True
) -> Steps[SessionInfo]:
    """Change columns as update_columns() does, and raise the revision also if there are none."""
    names = f",{','.join(columns)},"
    params = {
        **_EMPTY_COLUMNS, **columns, "changed_columns": names, "expected": expected, "step": int(raises_revision)
    }  # fmt: skip
    query = {"owner": scope.owner, "id": session, "now": scope.now, **params}
    row = yield from fetch_one(SESSION_UPDATE, **query)
    if row is None:
        yield from check_updatable(scope, session, expected)
        row = yield from fetch_one(SESSION_UPDATE, **query)
    if row is None:
        raise SessionInTrash(session=session)
    if "title" in columns:
        yield from set_sort_title(row.session, columns["title"])
    if "labels" in columns:
        yield from set_label_rows(row.session, columns["labels"])
    return stored_from_row(row).value


def trash(scope: Scope, session: str, expected: int | None = None) -> Operation[None]:
    """Move a session to the trash; raise StaleRevision if its revision is not `expected`."""
    validation.check_integer("expected", expected)
    return Operation(_trash, scope, session, expected, deletion=Deletion.ROWS)


def _trash(scope: Scope, session: str, expected: int | None) -> Steps[None]:
    check_revision((yield from find(scope, session)), expected)
    yield from execute("session_trash", owner=scope.owner, id=session, now=scope.now)


def restore(scope: Scope, session: str, expected: int | None = None) -> Operation[SessionInfo]:
    """Restore a session from the trash; of several with this id, the one that was deleted last.

    Raise StaleRevision if the revision of that session, or of one that is not in the trash, is not `expected`.
    """
    validation.check_integer("expected", expected)
    return Operation(_restore, scope, session, expected)


def _restore(scope: Scope, session: str, expected: int | None) -> Steps[SessionInfo]:
    live_row = yield from find_live_row(scope, session)
    trash_row = yield from find_trashed_row(scope, session)
    if trash_row is None:
        current = (yield from find(scope, session)) if live_row is None else stored_from_row(live_row)
        check_revision(current, expected)
        return current.value
    if live_row is not None:
        raise SessionExists(
            f"Session {format_value(session)} cannot be restored while a newer session has its id. "
            f"Delete the newer session first.",
            session=session,
        )
    check_revision(stored_from_row(trash_row), expected)
    # It keeps its activity, and so its position in the list; plus one millisecond if the newest session has the same.
    yield from execute("session_restore", owner=scope.owner, session=trash_row.session, now=scope.now)
    return (yield from read_by_key(trash_row.session)).value


class NamedSessionRow(NamedTuple):
    """The id and the title of a session."""

    id: str
    title: str | None


SESSIONS_BY_EXTERNAL_ID = Query("sessions_by_external_id", NamedSessionRow)
SESSIONS_BY_TITLE = Query("sessions_by_title", NamedSessionRow)
SESSIONS_BY_PREFIX = Query("sessions_by_prefix", NamedSessionRow)
SESSIONS_BY_SIMILAR_TITLE = Query("sessions_by_similar_title", NamedSessionRow)


def resolve(scope: Scope, name: str) -> Operation[SessionInfo]:
    """Find a session by its id, external id, title, the beginning of its id, or its title without case and accents.

    Raise AmbiguousName if several match.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"name must be a str (an id, an external id, a title or the beginning of an id), got {format_value(name)}."
        )
    return Operation(_resolve, scope, str.__str__(name), writes=False)  # plain: the methods of a subclass may raise


def _resolve(scope: Scope, name: str) -> Steps[SessionInfo]:
    row = yield from find_live_row(scope, name)
    if row is not None:
        return stored_from_row(row).value
    if name != json.escape_surrogates(name):
        raise SessionNotFound(session=name)
    sort_title = title_sort_key(name)
    matches = yield from fetch_all(SESSIONS_BY_EXTERNAL_ID, owner=scope.owner, external_id=name, limit=_MATCH_LIMIT)
    if not matches:
        matches = yield from fetch_all(
            SESSIONS_BY_TITLE, owner=scope.owner, title=name, folded=sort_title, limit=_MATCH_LIMIT
        )
    if not matches and name:
        matches = yield from fetch_all(
            SESSIONS_BY_PREFIX,
            owner=scope.owner,
            prefix=name,
            last=session_ids.last_with_prefix(name),
            limit=_MATCH_LIMIT,
        )
    if not matches and sort_title:  # without case and accents: "coats" for "Coats"
        matches = yield from fetch_all(
            SESSIONS_BY_SIMILAR_TITLE, owner=scope.owner, folded=sort_title, limit=_MATCH_LIMIT
        )
    if not matches:
        raise (yield from _missing_id_error(scope, name))
    if len(matches) > 1:
        first_matches = matches[: _MATCH_LIMIT - 1]
        names = tuple(
            escape_unprintable(f"{match.id} ({match.title})" if match.title else match.id) for match in first_matches
        )
        count = f"more than {_MATCH_LIMIT - 1}" if len(matches) == _MATCH_LIMIT else len(matches)
        raise AmbiguousName(name=name, count=count, matches=names, sessions=tuple(match.id for match in first_matches))
    return (yield from find(scope, matches[0].id)).value


ERASED_REVISION = -1
"""The revision that an engine reports for an erased session."""


class RevisionRow(NamedTuple):
    """A session, in the trash or not, and its revision."""

    session: int
    id: str
    revision: int


SESSIONS_REVISIONS = Query("sessions_revisions", RevisionRow)
SESSION_REVISIONS = Query("session_revisions", RevisionRow)


def revisions(scope: Scope, session: str | None) -> Operation[list[Row]]:
    """Read (key, id, revision) of all sessions of an owner, or of those with an id, including the trash."""
    return Operation(_revisions, scope, session, writes=False)


def _revisions(scope: Scope, session: str | None) -> Steps[list[Row]]:
    if session is None:
        return (yield from fetch_tuples(SESSIONS_REVISIONS, owner=scope.owner))
    if not session_ids.is_possible_id(session):
        return []
    return (yield from fetch_tuples(SESSION_REVISIONS, owner=scope.owner, id=session))


class KnownRevisions:
    """The revisions that a watch has reported, by session key."""

    def __init__(self, session: str | None) -> None:
        self._session = str.__str__(session) if isinstance(session, str) else session
        self._revisions: dict[int, tuple[str, int]] = {}

    def replace_all(self, rows: list[Row]) -> list[Change]:
        """Replace the known revisions by a complete list, and return the changes."""
        now: dict[int, tuple[str, int]] = {key: (id, revision) for key, id, revision in rows}
        erasures = [
            (key, id, ERASED_REVISION)
            for key, (id, _) in self._revisions.items()
            if key not in now or now[key][0] != id
        ]
        return self.update([*erasures, *((key, id, revision) for key, (id, revision) in now.items())])

    def update(self, rows: list[Row]) -> list[Change]:
        """Add revisions of some sessions, oldest first, and return the latest change of each; skip known ones."""
        changes: dict[tuple[int, str], Change] = {}
        for key, id, revision in rows:
            previous = self._revisions.get(key)
            if self._session not in (None, id) or (
                revision != ERASED_REVISION and previous is not None and previous[1] >= revision
            ):
                continue
            if revision == ERASED_REVISION:
                if self._revisions.pop(key, None) is not None or (key, id) in changes:
                    changes[key, id] = Change(id, None)
            else:
                self._revisions[key] = (id, revision)
                changes[key, id] = Change(id, revision)
        return list(changes.values())

    def invalidate(self) -> None:
        """Forget the revisions, so that the next complete list reports every session: the database was replaced."""
        self._revisions = {key: (id, ERASED_REVISION) for key, (id, _) in self._revisions.items()}
