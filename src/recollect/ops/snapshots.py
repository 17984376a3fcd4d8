"""Snapshots: titles, summaries and memories made from a session, each up to one of its messages."""

from __future__ import annotations

from typing import Any

from recollect.model import argument, figure, json
from recollect.model.part import DataPart
from recollect.model.snapshot import KINDS, Snapshot
from recollect.model.tokens import estimate
from recollect.op import Op, Row, Scope, Steps, do, one, rows
from recollect.ops import leases, paths, sessions


def keep(
    scope: Scope, session: str, kind: str, content: Any, *, at: paths.MessageId | None, tokens: int | None
) -> Op[Snapshot]:
    """Store what was made from a session up to a message; of the same kind and message there is one."""
    _check(kind)
    plain = json.exact(content)
    figure.whole("tokens", tokens)
    size = estimate((DataPart(data=plain),)) if tokens is None else tokens
    return Op(_keep, scope, session, kind, json.encode(plain), at, size)


def _check(kind: str) -> None:
    argument.choice("kind", kind, KINDS)


def _keep(scope: Scope, session: str, kind: str, text: str, at: paths.MessageId | None, tokens: int) -> Steps[Snapshot]:
    here = yield from sessions.find(scope, session)
    branch, position = here.head, 0
    if at is None:
        reached = next((span for span in (yield from paths.path(here.head)) if span.low < span.high), None)
    else:
        reached = yield from paths.locate(session, here.head, here.session, at)
    if reached is not None:
        branch, position = reached.branch, reached.high
    place = {"session": here.session, "kind": kind, "branch": branch, "position": position}
    found = yield from one("snapshot_find", **place)
    if found is None:
        found = yield from one("snapshot_insert", **place, content=text, tokens=tokens, now=scope.now)
    else:
        yield from do("snapshot_write", session=here.session, key=found[0], content=text, tokens=tokens, now=scope.now)
    assert found is not None
    yield from leases.changed(scope, here.session)
    row = yield from one("snapshot_get", session=here.session, key=found[0])
    assert row is not None
    return _value(row)


def _value(row: Row) -> Snapshot:
    key, kind, content, number, position, tokens, created, updated = row
    return Snapshot(
        id=key,
        kind=kind,
        content=json.decode(content),
        message=f"{number}.{position}" if position and number is not None else None,
        tokens=tokens,
        created_at=created,
        updated_at=updated,
    )


def snapshots(scope: Scope, session: str, kind: str | None) -> Op[list[Snapshot]]:
    """Read the snapshots of a session, of one kind or of all, the oldest first."""
    if kind is not None:
        _check(kind)
    return Op(_snapshots, scope, session, kind, writes=False)


def _snapshots(scope: Scope, session: str, kind: str | None) -> Steps[list[Snapshot]]:
    here = yield from sessions.find(scope, session)
    found = [_value(row) for row in (yield from rows("snapshots_of_session", session=here.session, kind=kind))]
    return sorted(found, key=lambda item: item.id)
