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
from recollect.model import json, session_ids, validation
from recollect.model.session import FLAG_FIELDS, SESSION_STATUSES, SETTABLE, TEXT_FIELDS, Change, SessionInfo
from recollect.model.times import DAY
from recollect.model.title import title_sort_key
from recollect.storage import leases
from recollect.storage.operation import Operation, Plan, Row, Scope, Steps, execute, fetch_all, fetch_one
from recollect.storage.paths import BRANCH_INSERT, TREE_BRANCH, TREE_INSERT

_INDEXED_FIELDS = ("channel", "model")


def columns_for_new(fields: Mapping[str, Any], now: int) -> tuple[dict[str, Any], str | None]:
    """Check the fields of a session that is about to be created; return its columns and the id of its parent."""
    parent = fields.get("parent")
    if parent is not None:
        validation.check_text("parent", parent)
    return columns_of({name: value for name, value in fields.items() if name != "parent"}, now), parent


def columns_of(fields: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Validate the fields that a caller sets, and return them as columns."""
    columns: dict[str, Any] = {}
    for name, value in fields.items():
        if name in FLAG_FIELDS:
            columns[FLAG_FIELDS[name]] = now if _check_flag(name, value) else None
        elif name == "metadata":
            columns[name] = None if value is None else json.encode(_check_mapping(name, value))
        elif name in TEXT_FIELDS:
            columns[name] = _check_text(name, value)
        elif name == "parent":
            raise InvalidValue("parent can only be set when a session is created, and not on a fork.")
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
    plain = json.to_json_data(value)
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
    if name in _INDEXED_FIELDS and len(value) > session_ids.MAX_LENGTH:  # PostgreSQL cannot index long texts
        raise InvalidValue(f"{name} must have at most {session_ids.MAX_LENGTH} characters, got {len(value):,}.")
    return value


def check_storable(name: str, text: str) -> None:
    """Raise InvalidValue for a text that a text column cannot hold."""
    if "\0" in text or text != json.escape_surrogates(text):
        raise InvalidValue(f"{name} must not contain NUL or an unpaired surrogate. Remove these characters.")


_MATCH_LIMIT = 6  # sessions. An ambiguous name lists five of them; the sixth shows that there are more.
_LOOKUP_ATTEMPTS = 2  # live and trash. A second attempt finds a session that was restored in between.
_EMPTY_COLUMNS: dict[str, Any] = dict.fromkeys((*TEXT_FIELDS, "metadata", *FLAG_FIELDS.values()))


class StoredSession(NamedTuple):
    """A session with its keys and its number of open turns, as other operations need it."""

    session: int
    tree: int
    head: int
    open_turns: int
    value: SessionInfo


def stored_from_row(row: Row) -> StoredSession:
    """Return the session of a row."""
    return StoredSession(row[0], row[1], row[2], row[3], session_from_row(row))


def session_from_row(row: Row, first: int = 4) -> SessionInfo:
    """Return the value of a session row; its id is column `first`, its rare columns are one JSON array at the end."""
    if row[-1] is None:
        return SessionInfo(*row[first:-1])
    *rare, metadata = json.decode(row[-1])
    columns: Row = (*row[first:-1], *rare, None if metadata is None else json.decode(metadata))
    return SessionInfo(*columns)


def find(scope: Scope, session: str) -> Steps[StoredSession]:
    """Return a session that is not in the trash; raise SessionNotFound or SessionInTrash."""
    return stored_from_row((yield from _find_row(scope, session)))


def _find_row(scope: Scope, session: str) -> Steps[Row]:
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


def counts_of(value: SessionInfo) -> Row:
    """Return the counts and times of a session, in the order of a write's result."""
    return (
        value.revision, value.message_count, value.token_count, value.input_tokens, value.output_tokens,
        value.updated_at, value.active_at, value.last_message_at,
    )  # fmt: skip


def find_live_row(scope: Scope, session: str) -> Steps[Row | None]:
    """Read the row of a session that is not in the trash."""
    if not session_ids.is_possible_id(session):
        return None
    return (yield from fetch_one("session_get", owner=scope.owner, id=session))


def find_trashed_row(scope: Scope, session: str) -> Steps[Row | None]:
    """Read the row of the session with this id that was moved to the trash last."""
    if not session_ids.is_possible_id(session):
        return None
    return (yield from fetch_one("session_in_trash", owner=scope.owner, id=session))


def read_by_key(key: int) -> Steps[StoredSession]:
    """Read a session that exists, by its key."""
    row = yield from fetch_one("session_by_key", session=key)
    assert row is not None
    return stored_from_row(row)


def find_by_key(key: int) -> Steps[StoredSession | None]:
    """Read a session by its key, also if it is in the trash; return None if it was erased."""
    row = yield from fetch_one("session_by_key", session=key)
    return None if row is None else stored_from_row(row)


def missing_key_error(session: str, key: int) -> Steps[SessionNotFound]:
    """Return the error for a session that is missing by its key: it was erased, or it is in the trash."""
    row = yield from fetch_one("session_by_key", session=key)
    return SessionNotFound(session=session) if row is None else SessionInTrash(session=session)


def _missing_id_error(scope: Scope, session: str) -> Steps[SessionNotFound]:
    row = yield from find_trashed_row(scope, session)
    return SessionNotFound(session=session) if row is None else SessionInTrash(session=session)


def check_updatable(scope: Scope, session: str, expected: int | None) -> Steps[None]:
    """Raise the reason why an update of a session matched no row: it is missing, in the trash or at another revision.

    Return if the reason is gone: another process restored the session meanwhile. The row is locked now, so the same
    update matches it.
    """
    revision = stored_from_row((yield from _find_row(scope, session))).value.revision
    if expected is not None and revision != expected:
        raise StaleRevision(session=session, revision=revision, expected=expected)


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


def insert(scope: Scope, session: str, tree: int, columns: dict[str, Any], relation: dict[str, Any]) -> Steps[int]:
    """Insert a session as the most recently active one, and return its key.

    `relation` has the columns `parent` and `relation` of a fork or delegate; otherwise it is empty.
    """
    row = {**_new_row(session, columns), **relation}
    key_row = yield from fetch_one("session_insert", owner=scope.owner, id=session, tree=tree, now=scope.now, **row)
    assert key_row is not None
    if row["title"] is not None:
        yield from set_sort_title(scope, key_row[0], row["title"])
    return key_row[0]


def _creation_params(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> dict[str, Any]:
    """Return the parameters of an engine that creates a session in one statement."""
    row = _new_row(session, columns)
    title = row["title"]
    row.update(
        owner=scope.owner,
        id=session,
        now=scope.now,
        parent=parent,
        folded=None if title is None else title_sort_key(title),
    )
    return row


def set_sort_title(scope: Scope, session: int, title: str | None) -> Steps[None]:
    """Store or delete the sort key of a title."""
    if title is None:
        yield from execute("title_clear", session=session)
    else:
        yield from execute("title_set", session=session, owner=scope.owner, folded=title_sort_key(title))


def create(scope: Scope, session: str, fields: Mapping[str, Any]) -> Operation[SessionInfo]:
    """Create a session; raise SessionExists if the id is in use."""
    columns, parent = columns_for_new(fields, scope.now)
    return Operation(_create, scope, session_ids.check_new_id(session), columns, parent)


def _create(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> Steps[SessionInfo]:
    if parent is not None:
        yield from find(scope, parent)  # the statement below would create the session without a parent
    row = yield from fetch_one("session_create", **_creation_params(scope, session, columns, parent))
    if row is not None:
        return stored_from_row(row).value
    if (yield from fetch_one("session_get", owner=scope.owner, id=session)) is not None:
        raise SessionExists(session=session)
    return (yield from _create_in_steps(scope, session, columns, parent))


def _create_in_steps(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> Steps[SessionInfo]:
    """Create a session statement by statement. If another process used the id meanwhile, the engine runs it again."""
    tree = yield from fetch_one(TREE_INSERT, owner=scope.owner)
    assert tree is not None
    relation = {} if parent is None else {"parent": (yield from find(scope, parent)).session, "relation": "delegate"}
    key = yield from insert(scope, session, tree.key, columns, relation)
    branch, number = yield from new_branch(tree.key, key, None, 0, scope.now)
    yield from execute("session_head", session=key, head=branch, branch=number, last=0)
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
    """Open a session, or create it; either way it counts as active now."""
    columns, parent = columns_for_new(fields, scope.now)
    return Operation(_ensure, scope, session_ids.check_new_id(session), columns, parent)


def _ensure(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> Steps[SessionInfo]:
    if parent is not None and (yield from find_live_row(scope, session)) is None:
        yield from find(scope, parent)  # the statement below would create the session without a parent
    row = yield from fetch_one("session_ensure", **_creation_params(scope, session, columns, parent))
    return (yield from (_create_in_steps(scope, session, columns, parent) if row is None else _open_row(scope, row)))


def _open_row(scope: Scope, row: Row) -> Steps[SessionInfo]:
    """Return an opened session, after interrupting turns whose holder is gone."""
    current = stored_from_row(row)
    if not current.open_turns:
        return current.value
    yield from leases.recover_turns(scope, current.session)
    yield from activate(scope, current.session)
    return (yield from read_by_key(current.session)).value


def activate(scope: Scope, session: int) -> Steps[int]:
    """Make a session the most recently active one, also within one millisecond; return its activity time."""
    row = yield from fetch_one("session_activate", owner=scope.owner, session=session, now=scope.now)
    assert row is not None
    return row[0]


def open_session(scope: Scope, session: str) -> Operation[SessionInfo]:
    """Open an existing session; it counts as active now."""
    return Operation(_open_session, scope, session)


def _open_session(scope: Scope, session: str) -> Steps[SessionInfo]:
    if not session_ids.is_possible_id(session):
        raise SessionNotFound(session=session)
    params = {"owner": scope.owner, "id": session, "now": scope.now}
    row = yield from fetch_one("session_open", **params)
    if row is None:
        yield from check_updatable(scope, session, None)
        row = yield from fetch_one("session_open", **params)
    if row is None:
        raise SessionInTrash(session=session)
    return (yield from _open_row(scope, row))


def ids_with_open_turn(scope: Scope) -> Operation[list[str]]:
    """Return the ids of sessions of the last day with an open turn, of any holder."""
    return Operation(_ids_with_open_turn, scope, writes=False)


def _ids_with_open_turn(scope: Scope) -> Steps[list[str]]:
    return [id for (id,) in (yield from fetch_all("sessions_running", owner=scope.owner, since=scope.now - DAY))]


def recover(scope: Scope, session: str | None = None) -> Plan[list[str]]:
    """Interrupt turns whose holder is gone, in one session or in all; return the ids of the changed sessions."""
    names = [session] if session is not None else (yield Operation(_all_ids_with_open_turn, scope, writes=False))
    changed: list[str] = []
    for name in names:
        if (yield Operation(_recover, scope, name)):
            changed.append(name)  # noqa: PERF401  a generator cannot yield in a comprehension
    return changed


def _all_ids_with_open_turn(scope: Scope) -> Steps[list[str]]:
    return sorted(id for (id,) in (yield from fetch_all("sessions_with_open_turns", owner=scope.owner)))


def _recover(scope: Scope, session: str) -> Steps[bool]:
    row = yield from find_live_row(scope, session)
    if row is None or not stored_from_row(row).open_turns:
        return False
    return (yield from leases.recover_turns(scope, row[0]))


def read(scope: Scope, session: str) -> Operation[SessionInfo]:
    """Read an existing session without changing its activity."""
    return Operation(_read, scope, session, writes=False)


def _read(scope: Scope, session: str) -> Steps[SessionInfo]:
    return (yield from find(scope, session)).value


def get(scope: Scope, session: str) -> Operation[SessionInfo | None]:
    """Read a session, or None if it is missing or in the trash."""
    return Operation(_get, scope, session, writes=False)


def _get(scope: Scope, session: str) -> Steps[SessionInfo | None]:
    row = yield from find_live_row(scope, session)
    return None if row is None else stored_from_row(row).value


def update(
    scope: Scope, session: str, fields: Mapping[str, Any], expected: int | None = None
) -> Operation[SessionInfo]:
    """Change fields of a session; raise StaleRevision if its revision is not `expected`."""
    validation.check_integer("expected", expected)
    return Operation(_update, scope, session, columns_of(fields, scope.now), expected)


def _update(scope: Scope, session: str, columns: dict[str, Any], expected: int | None) -> Steps[SessionInfo]:
    if not columns and expected is None:
        return (yield from find(scope, session)).value
    names = f",{','.join(columns)},"
    params = {**_EMPTY_COLUMNS, **columns, "changed_columns": names, "expected": expected}
    query = {"owner": scope.owner, "id": session, "now": scope.now, **params}
    row = yield from fetch_one("session_update", **query)
    if row is None:
        yield from check_updatable(scope, session, expected)
        row = yield from fetch_one("session_update", **query)
    if row is None:
        raise SessionInTrash(session=session)
    if "title" in columns:
        yield from set_sort_title(scope, row[0], columns["title"])
    return stored_from_row(row).value


def trash(scope: Scope, session: str) -> Operation[None]:
    """Move a session to the trash."""
    return Operation(_trash, scope, session, frees_space=True)


def _trash(scope: Scope, session: str) -> Steps[None]:
    yield from find(scope, session)
    yield from execute("session_trash", owner=scope.owner, id=session, now=scope.now)


def restore(scope: Scope, session: str) -> Operation[SessionInfo]:
    """Restore a session from the trash; of several with this id, the one that was deleted last."""
    return Operation(_restore, scope, session)


def _restore(scope: Scope, session: str) -> Steps[SessionInfo]:
    live_row = yield from find_live_row(scope, session)
    trash_row = yield from find_trashed_row(scope, session)
    if trash_row is None:
        return (yield from find(scope, session)).value if live_row is None else stored_from_row(live_row).value
    if live_row is not None:
        raise SessionExists(
            f"Session {format_value(session)} cannot be restored while a newer session has its id. "
            f"Delete the newer session first.",
            session=session,
        )
    # It keeps its activity, and so its position in the list; plus one millisecond if the newest session has the same.
    yield from execute("session_restore", owner=scope.owner, session=trash_row[0], now=scope.now)
    return (yield from read_by_key(trash_row[0])).value


def resolve(scope: Scope, name: str) -> Operation[SessionInfo]:
    """Find a session by its id, its title, the beginning of its id, or its title ignoring case and accents.

    Raise AmbiguousName if several match.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"name must be a string (a session id, a title or the beginning of an id), got {format_value(name)}."
        )
    return Operation(_resolve, scope, name, writes=False)


def _resolve(scope: Scope, name: str) -> Steps[SessionInfo]:
    row = yield from find_live_row(scope, name)
    if row is not None:
        return stored_from_row(row).value
    if name != json.escape_surrogates(name):
        raise SessionNotFound(session=name)
    sort_title = title_sort_key(name)
    matches = yield from fetch_all(
        "sessions_by_title", owner=scope.owner, title=name, folded=sort_title, limit=_MATCH_LIMIT
    )
    if not matches and name:
        matches = yield from fetch_all(
            "sessions_by_prefix", owner=scope.owner, prefix=name, after=name + "\U0010ffff", limit=_MATCH_LIMIT
        )
    if not matches and sort_title:  # without case and accents: "coats" for "Coats"
        matches = yield from fetch_all(
            "sessions_by_similar_title", owner=scope.owner, folded=sort_title, limit=_MATCH_LIMIT
        )
    if not matches:
        raise (yield from _missing_id_error(scope, name))
    if len(matches) > 1:
        first_matches = matches[: _MATCH_LIMIT - 1]
        labels = tuple(f"{match[0]} ({match[1]})" if match[1] else match[0] for match in first_matches)
        count = f"more than {_MATCH_LIMIT - 1}" if len(matches) == _MATCH_LIMIT else len(matches)
        raise AmbiguousName(name=name, count=count, matches=labels, sessions=tuple(match[0] for match in first_matches))
    return (yield from find(scope, matches[0][0])).value


ERASED_REVISION = -1
"""The revision that an engine reports for an erased session."""


def revisions(scope: Scope, session: str | None) -> Operation[list[Row]]:
    """Read (key, id, revision) of all sessions of an owner, or of those with an id, including the trash."""
    return Operation(_revisions, scope, session, writes=False)


def _revisions(scope: Scope, session: str | None) -> Steps[list[Row]]:
    if session is None:
        return (yield from fetch_all("sessions_revisions", owner=scope.owner))
    if not session_ids.is_possible_id(session):
        return []
    return (yield from fetch_all("session_revisions", owner=scope.owner, id=session))


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
