"""Reading every message and every payload to see that it can be read: the deep part of a check."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import msgspec

from recollect.model.finding import Finding
from recollect.op import Op, Plan, Row, Scope, Steps, one, rows
from recollect.ops import paths, record, sessions

_PAGE = 500
_PAYLOADS = 20
_BACKUP = "Restore a backup that has it, or go on without it."


class _Page(NamedTuple):
    found: list[Finding]
    branch: int
    after: int | None
    """Up to which position it was read; None: the branch is done."""


def check(session: int) -> Plan[list[Finding]]:
    """Read every message of a session, on all its branches."""
    found: list[Finding] = []
    branches: list[Row] = yield Op(_branches, session, writes=False)
    for branch, number, id in branches:
        after: int | None = 0
        while after is not None:
            page: _Page = yield Op(_page, branch, number, id, after, writes=False)
            found += page.found
            after = page.after
    return found


def _branches(session: int) -> Steps[list[Row]]:
    row = yield from one("session_by_key", session=session)
    if row is None:
        return []
    id = sessions.here(row).value.id
    return [(found[0], found[1], id) for found in (yield from rows("branches_of_session", session=session))]


def _page(branch: int, number: int, id: str, after: int) -> Steps[_Page]:
    found = yield from rows("messages_forward", branch=branch, low=after, high=paths.LAST, limit=_PAGE, deleted=True)
    broken: list[Finding] = []
    if not _readable(found, number):
        broken = [_unreadable(row, number, id) for row in found if not _readable([row], number)]
    on = len(found) == _PAGE and found[-1][1] > after  # rows of a damaged file need not be in order
    return _Page(broken, branch, found[-1][1] if on else None)


def _readable(found: list[Row], number: int) -> bool:
    payloads = defaultdict[str, bytes](bytes)  # whether they are there is another question
    try:
        for row in found:
            record.whole(row, number, None if record.blobs_of(row) is None else payloads)
    except (msgspec.MsgspecError, ValueError, TypeError):  # of text that is cut off, and of a row without its text
        return False
    return True


def _unreadable(row: Row, number: int, id: str) -> Finding:
    message = f"Message {number}.{row[1]} of session {id!r} can not be read."
    return Finding(kind="message", message=message, advice=_BACKUP, session=id)


def check_payloads(scope: Scope) -> Plan[list[Finding]]:
    """Read every payload, and compare it with its hash."""
    found: list[Finding] = []
    after = ""
    while True:
        page: tuple[list[Finding], str | None] = yield Op(_payloads, scope, after, writes=False)
        found += page[0]
        if page[1] is None:
            return found
        after = page[1]


def _payloads(scope: Scope, after: str) -> Steps[tuple[list[Finding], str | None]]:
    import hashlib  # noqa: PLC0415  only in a deep check

    found: list[Finding] = []
    some = yield from rows("blobs_some", owner=scope.owner, after=after, limit=_PAYLOADS)
    for name, data in some:
        if hashlib.sha256(data).hexdigest() != name:
            message = f"Payload {name[:12]} is not what was stored."
            found.append(Finding(kind="payload", message=message, advice=_BACKUP))
    return found, some[-1][0] if len(some) == _PAYLOADS else None
