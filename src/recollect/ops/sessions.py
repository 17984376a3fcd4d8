"""Sessions: create, open, change, put in the trash and take out again.

What can be set is in fields.py; what is said in them is in messages.py, turns.py and branches.py; lists of them are in
lists.py, and erasing is in retention.py.
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
    displayed,
)
from recollect.model import figure, json, keys
from recollect.model.moment import DAY
from recollect.model.session import FLAG_FIELDS, TEXT_FIELDS, Session
from recollect.model.title import folded
from recollect.op import Op, Plan, Row, Scope, Steps, do, one, rows
from recollect.ops import fields, leases

_MATCHES = 6
_LOOKS = 2
_BLANK: dict[str, Any] = dict.fromkeys((*TEXT_FIELDS, "metadata", *FLAG_FIELDS.values()))


class Here(NamedTuple):
    """Where a session is stored: what other operations need to work on it."""

    session: int
    tree: int
    head: int
    open_turns: int
    value: Session


def here(row: Row) -> Here:
    """Make a session of a row."""
    return Here(row[0], row[1], row[2], row[3], value_of(row))


def value_of(row: Row, first: int = 4) -> Session:
    """Make the value of a session of its row, whose id is the `first` column. What is rare comes last, as one."""
    if row[-1] is None:
        return Session(*row[first:-1])
    *rare, metadata = json.decode(row[-1])
    whole: Row = (*row[first:-1], *rare, None if metadata is None else json.decode(metadata))
    return Session(*whole)


def find(scope: Scope, session: str) -> Steps[Here]:
    """Find a session that is not in the trash."""
    return here((yield from _found(scope, session)))


def _found(scope: Scope, session: str) -> Steps[Row]:
    """Read the row of a session that is not in the trash, or raise the reason why there is none.

    Another process may restore it between the look at the living and the look in the trash. So both are made again
    before it is reported missing.
    """
    for _ in range(_LOOKS):
        row = yield from living(scope, session)
        if row is not None:
            return row
        if (yield from in_trash(scope, session)) is not None:
            raise SessionInTrash(session=session)
    raise SessionNotFound(session=session)


def counts(value: Session) -> Row:
    """Give what a write gives about how a session stands after it."""
    return (
        value.revision, value.message_count, value.token_count, value.input_tokens, value.output_tokens,
        value.updated_at, value.active_at, value.last_message_at,
    )  # fmt: skip


def living(scope: Scope, session: str) -> Steps[Row | None]:
    """Read the row of a session that is not in the trash."""
    if not keys.findable(session):
        return None
    return (yield from one("session_get", owner=scope.owner, id=session))


def in_trash(scope: Scope, session: str) -> Steps[Row | None]:
    """Read the row of the session with this id that was put in the trash last."""
    if not keys.findable(session):
        return None
    return (yield from one("session_in_trash", owner=scope.owner, id=session))


def stored(key: int) -> Steps[Here]:
    """Read a session that is there, by its key."""
    row = yield from one("session_by_key", session=key)
    assert row is not None
    return here(row)


def lost(session: str, key: int) -> Steps[SessionNotFound]:
    """Say why a session that was open is not there: it was erased, or it is in the trash."""
    row = yield from one("session_by_key", session=key)
    return SessionNotFound(session=session) if row is None else SessionInTrash(session=session)


def _missing(scope: Scope, session: str) -> Steps[SessionNotFound]:
    trashed = yield from in_trash(scope, session)
    return SessionNotFound(session=session) if trashed is None else SessionInTrash(session=session)


def refused(scope: Scope, session: str, expected: int | None) -> Steps[None]:
    """Raise the reason why an update of a session matched no row: it is missing, in the trash or at another revision.

    Return if there is none any more: another process restored the session since. It is locked now, so that the same
    update matches its row.
    """
    revision = here((yield from _found(scope, session))).value.revision
    if expected is not None and revision != expected:
        raise StaleRevision(session=session, revision=revision, expected=expected)


def _row(session: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Give the columns of a new session: what a caller set, and for the rest what is usual."""
    channel, channel_id = keys.place(session)
    return {
        **_BLANK,
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


def insert(scope: Scope, session: str, tree: int, columns: dict[str, Any], fork: dict[str, Any]) -> Steps[int]:
    """Write the row of a new session, the one with the newest activity; `fork` holds what a fork has from the start."""
    row = {**_row(session, columns), **fork}
    made = yield from one("session_insert", owner=scope.owner, id=session, tree=tree, now=scope.now, **row)
    assert made is not None
    if row["title"] is not None:
        yield from entitle(scope, made[0], row["title"])
    return made[0]


def _whole(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> dict[str, Any]:
    """Give all that a new session is made of, for an engine that makes it by one statement."""
    row = _row(session, columns)
    title = row["title"]
    row.update(
        owner=scope.owner,
        id=session,
        now=scope.now,
        parent=parent,
        folded=None if title is None else folded(title),
    )
    return row


def entitle(scope: Scope, session: int, title: str | None) -> Steps[None]:
    """Keep a title as lists put it in order."""
    if title is None:
        yield from do("title_clear", session=session)
    else:
        yield from do("title_set", session=session, owner=scope.owner, folded=folded(title))


def create(scope: Scope, session: str, given: Mapping[str, Any]) -> Op[Session]:
    """Make a new session; an id that is taken is an error."""
    columns, parent = fields.for_new(given, scope.now)
    return Op(_create, scope, keys.checked(session), columns, parent)


def _create(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> Steps[Session]:
    if parent is not None:
        yield from find(scope, parent)  # the statement below would create the session without a parent
    row = yield from one("session_create", **_whole(scope, session, columns, parent))
    if row is not None:
        return here(row).value
    if (yield from one("session_get", owner=scope.owner, id=session)) is not None:
        raise SessionExists(session=session)
    return (yield from _make(scope, session, columns, parent))


def _make(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> Steps[Session]:
    """Write a session whose id was found free, by steps. Where another took it meanwhile, the engine begins anew."""
    tree = (yield from one("tree_insert", owner=scope.owner)) or (0,)
    relation = {} if parent is None else {"parent": (yield from find(scope, parent)).session, "relation": "delegate"}
    key = yield from insert(scope, session, tree[0], columns, relation)
    branch, number = yield from new_branch(tree[0], key, None, 0, scope.now)
    yield from do("session_head", session=key, head=branch, branch=number, last=0)
    return (yield from stored(key)).value


def new_branch(tree: int, session: int, parent: int | None, fork_at: int, now: int) -> Steps[tuple[int, int]]:
    """Make a branch that leaves its parent after a position, with the next number of its tree: its key and number."""
    number = yield from one("tree_branch", tree=tree)
    assert number is not None
    made = yield from one(
        "branch_insert", tree=tree, number=number[0], session=session, parent=parent, fork_at=fork_at, now=now
    )
    assert made is not None
    return made[0], number[0]


def ensure(scope: Scope, session: str, given: Mapping[str, Any]) -> Op[Session]:
    """Open a session, or create it; either way it counts as active now."""
    columns, parent = fields.for_new(given, scope.now)
    return Op(_ensure, scope, keys.checked(session), columns, parent)


def _ensure(scope: Scope, session: str, columns: dict[str, Any], parent: str | None) -> Steps[Session]:
    if parent is not None and (yield from living(scope, session)) is None:
        yield from find(scope, parent)  # the statement below would create the session without a parent
    row = yield from one("session_ensure", **_whole(scope, session, columns, parent))
    return (yield from (_make(scope, session, columns, parent) if row is None else _open(scope, row)))


def _open(scope: Scope, row: Row) -> Steps[Session]:
    """Give a session that counts as active now, and mark what a process that is gone left open in it."""
    found = here(row)
    if not found.open_turns:
        return found.value
    yield from leases.recover(scope, found.session)
    yield from activate(scope, found.session)
    return (yield from stored(found.session)).value


def activate(scope: Scope, session: int) -> Steps[int]:
    """Make a session the one with the newest activity, also within one millisecond."""
    row = yield from one("session_activate", owner=scope.owner, session=session, now=scope.now)
    assert row is not None
    return row[0]


def opened(scope: Scope, session: str) -> Op[Session]:
    """Open a session that must be there; it counts as active now."""
    return Op(_opened, scope, session)


def _opened(scope: Scope, session: str) -> Steps[Session]:
    if not keys.findable(session):
        raise SessionNotFound(session=session)
    query = {"owner": scope.owner, "id": session, "now": scope.now}
    row = yield from one("session_open", **query)
    if row is None:
        yield from refused(scope, session, None)
        row = yield from one("session_open", **query)
    if row is None:
        raise SessionInTrash(session=session)
    return (yield from _open(scope, row))


def running(scope: Scope) -> Op[list[str]]:
    """Name the sessions of the last day in which a turn is open, whoever holds it."""
    return Op(_running, scope, writes=False)


def _running(scope: Scope) -> Steps[list[str]]:
    return [id for (id,) in (yield from rows("sessions_running", owner=scope.owner, since=scope.now - DAY))]


def recover(scope: Scope, session: str | None = None) -> Plan[list[str]]:
    """Mark what processes that are gone left open, in a session or in all, and give the ids of those that changed."""
    names = [session] if session is not None else (yield Op(_held, scope, writes=False))
    changed: list[str] = []
    for name in names:
        if (yield Op(_recover, scope, name)):
            changed.append(name)  # noqa: PERF401  a generator can not yield in a comprehension
    return changed


def _held(scope: Scope) -> Steps[list[str]]:
    return sorted(id for (id,) in (yield from rows("sessions_held", owner=scope.owner)))


def _recover(scope: Scope, session: str) -> Steps[bool]:
    row = yield from living(scope, session)
    if row is None or not here(row).open_turns:
        return False
    return (yield from leases.recover(scope, row[0]))


def read(scope: Scope, session: str) -> Op[Session]:
    """Read a session that must be there; its activity is not touched."""
    return Op(_read, scope, session, writes=False)


def _read(scope: Scope, session: str) -> Steps[Session]:
    return (yield from find(scope, session)).value


def get(scope: Scope, session: str) -> Op[Session | None]:
    """Read a session, or None where there is none or it is in the trash."""
    return Op(_get, scope, session, writes=False)


def _get(scope: Scope, session: str) -> Steps[Session | None]:
    row = yield from living(scope, session)
    return None if row is None else here(row).value


def update(scope: Scope, session: str, given: Mapping[str, Any], expected: int | None = None) -> Op[Session]:
    """Change what is known about a session."""
    figure.whole("expected", expected)
    return Op(_update, scope, session, fields.checked(given, scope.now), expected)


def _update(scope: Scope, session: str, columns: dict[str, Any], expected: int | None) -> Steps[Session]:
    if not columns and expected is None:
        return (yield from find(scope, session)).value
    names = f",{','.join(columns)},"
    params = {**_BLANK, **columns, "names": names, "expected": expected}
    query = {"owner": scope.owner, "id": session, "now": scope.now, **params}
    row = yield from one("session_update", **query)
    if row is None:
        yield from refused(scope, session, expected)
        row = yield from one("session_update", **query)
    if row is None:
        raise SessionInTrash(session=session)
    if "title" in columns:
        yield from entitle(scope, row[0], columns["title"])
    return here(row).value


def trash(scope: Scope, session: str) -> Op[None]:
    """Put a session in the trash."""
    return Op(_trash, scope, session, frees=True)


def _trash(scope: Scope, session: str) -> Steps[None]:
    yield from find(scope, session)
    yield from do("session_trash", owner=scope.owner, id=session, now=scope.now)


def restore(scope: Scope, session: str) -> Op[Session]:
    """Take a session out of the trash: the one that was put there last, where several had this id."""
    return Op(_restore, scope, session)


def _restore(scope: Scope, session: str) -> Steps[Session]:
    current = yield from living(scope, session)
    trashed = yield from in_trash(scope, session)
    if trashed is None:
        return (yield from find(scope, session)).value if current is None else here(current).value
    if current is not None:
        raise SessionExists(
            f"Session {displayed(session)} can not come back from the trash while a newer session has its id. "
            f"Delete the newer one first, or leave this one where it is.",
            session=session,
        )
    # It keeps its activity, and so its place in the list; one millisecond more if another has that as the newest.
    yield from do("session_restore", owner=scope.owner, session=trashed[0], now=scope.now)
    return (yield from stored(trashed[0])).value


def resolve(scope: Scope, name: str) -> Op[Session]:
    """Find a session by its id, its title, the beginning of its id, or its title in other letters."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"A session is found by a text: its id, its title or the beginning of its id; got {displayed(name)}."
        )
    return Op(_resolve, scope, name, writes=False)


def _resolve(scope: Scope, name: str) -> Steps[Session]:
    row = yield from living(scope, name)
    if row is not None:
        return here(row).value
    if name != json.storable(name):
        raise SessionNotFound(session=name)
    alike = folded(name)
    matches = yield from rows("sessions_by_title", owner=scope.owner, title=name, folded=alike, limit=_MATCHES)
    if not matches and name:
        matches = yield from rows(
            "sessions_by_prefix", owner=scope.owner, prefix=name, after=name + "\U0010ffff", limit=_MATCHES
        )
    if not matches and alike:  # "coats" is what a person types who wants "Coats"
        matches = yield from rows("sessions_titled_alike", owner=scope.owner, folded=alike, limit=_MATCHES)
    if not matches:
        raise (yield from _missing(scope, name))
    if len(matches) > 1:
        named = matches[: _MATCHES - 1]
        shown = tuple(f"{match[0]} ({match[1]})" if match[1] else match[0] for match in named)
        count = f"more than {_MATCHES - 1}" if len(matches) == _MATCHES else len(matches)
        raise AmbiguousName(name=name, count=count, matches=shown, sessions=tuple(match[0] for match in named))
    return (yield from find(scope, matches[0][0])).value
