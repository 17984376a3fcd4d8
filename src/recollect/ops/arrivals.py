"""Bringing sessions into a store: what is there already stays, what goes on where it ends is added.

Numbers of branches and positions are kept, so that a message has the same id in both stores. What contradicts what is
there is never written. Each operation can be repeated: a process that was killed, or a second one that brings in the
same, finds what is there and goes on. What a file looks like is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from recollect.errors import Conflict
from recollect.model import json
from recollect.model.session import Session
from recollect.op import Op, Row, Scope, Steps, do, each, one, rows
from recollect.ops import appends, leases, messages, paths, search, sessions
from recollect.ops.comparison import (
    COMPACTION,
    Batch,
    against,
    goes_on,
    new_calls,
    new_snapshots,
    same_compaction,
    stored_rows,
)
from recollect.ops.transfer import (
    BLOBS,
    COMPLETED,
    CREATED,
    DELETED,
    ERROR,
    FORMAT,
    INPUT,
    METADATA,
    MODEL,
    NATIVE,
    OUTPUT,
    PARTS,
    POSITION,
    ROLE,
    STATE,
    TOKENS,
    Branch,
    blobs_of,
)

HOLDER = "import"
"""Who holds an open turn that was brought in. Its lease has run out, so whoever opens the session marks it."""

_WRITTEN = {
    "tokens": TOKENS, "input_tokens": INPUT, "output_tokens": OUTPUT, "completed_at": COMPLETED, "format": FORMAT,
    "model": MODEL, "error": ERROR, "metadata": METADATA, "native": NATIVE, "blobs": BLOBS, "parts": PARTS,
    "state": STATE,
}  # fmt: skip
_OF_A_NEW_ONE = ("revision", "data_schema_version")

Mode = Literal["new", "renew", "extend", "keep"]
"""A session that is new; one whose fields change too; one that only goes on; one that stays as it is."""


class Diverged(Conflict):
    """Message {place} in the store is not the one that the file has there."""


class Stale(Conflict):
    """The store kept changing while it was compared with a file. Import the file again: what was written stays."""


class Standing(NamedTuple):
    """A session that is there already: its key, its tree, and the branches of that by number."""

    key: int
    value: Session
    tree: int
    branches: dict[int, Branch]


def standing(scope: Scope, ids: Sequence[str]) -> Op[dict[str, Standing]]:
    """Find which of these sessions are there."""
    return Op(_standing, scope, ids, writes=False)


def _standing(scope: Scope, ids: Sequence[str]) -> Steps[dict[str, Standing]]:
    found: dict[str, Standing] = {}
    for id in ids:
        row = yield from sessions.living(scope, id)
        if row is not None:
            here = sessions.here(row)
            branches = [Branch(*branch) for branch in (yield from rows("branches_outline", tree=here.tree))]
            found[id] = Standing(here.session, here.value, here.tree, {branch.number: branch for branch in branches})
    return found


class Arrival(NamedTuple):
    """A session to bring in: under which id, with which columns, on which branch it stands."""

    id: str
    key: int | None
    """The session that is there already; None for a new one."""
    mode: Mode
    columns: dict[str, Any]
    head: int
    parent: str | None = None


class Path(NamedTuple):
    """A branch to bring in, by numbers."""

    number: int
    parent: int | None
    fork_at: int
    session: str | None
    created_at: int


class Opened(NamedTuple):
    """Where to write: the tree, and the keys of its branches by number."""

    tree: int
    branches: dict[int, int]
    sessions: dict[str, int]


def begin(scope: Scope, tree: int | None, arrivals: Sequence[Arrival], branches: Sequence[Path]) -> Op[Opened]:
    """Make the tree, the sessions and the branches that are not there yet."""
    return Op(_begin, scope, tree, arrivals, branches)


def _begin(scope: Scope, tree: int | None, arrivals: Sequence[Arrival], branches: Sequence[Path]) -> Steps[Opened]:
    if tree is None:
        made = yield from one("tree_insert", owner=scope.owner)
        assert made is not None
        tree = int(made[0])
    known: dict[str, int] = {}
    for arrival in arrivals:
        row = yield from one("session_get", owner=scope.owner, id=arrival.id)
        if (None if row is None else row[0]) != arrival.key or (row is not None and row[1] != tree):
            raise Stale
        if row is None:
            row = yield from one(
                "session_bring", owner=scope.owner, id=arrival.id, tree=tree, parent=arrival.parent, **arrival.columns
            )
            assert row is not None
        known[arrival.id] = row[0]
    numbers: dict[int, int] = {}
    for branch in branches:
        numbers[branch.number] = yield from _branch(tree, branch, known, numbers)
    for arrival in arrivals:
        yield from _stand(scope, arrival, known[arrival.id], numbers)
    return Opened(tree, numbers, known)


def _branch(tree: int, branch: Path, known: Mapping[str, int], numbers: Mapping[int, int]) -> Steps[int]:
    parent = None if branch.parent is None else numbers[branch.parent]
    row = yield from one("branch_by_number", tree=tree, number=branch.number)
    if row is not None:
        if (row[3], row[4]) != (parent, branch.fork_at):
            raise Stale
        return row[0]
    made = yield from one(
        "branch_insert", tree=tree, number=branch.number, parent=parent, fork_at=branch.fork_at,
        session=None if branch.session is None else known[branch.session], now=branch.created_at,
    )  # fmt: skip
    assert made is not None
    yield from do("tree_reach", tree=tree, number=branch.number)
    return made[0]


def _stand(scope: Scope, arrival: Arrival, key: int, numbers: Mapping[int, int]) -> Steps[None]:
    """Put a session on its branch and count it; say that one which was there has changed."""
    if arrival.mode in ("new", "renew"):
        head = numbers[arrival.head]
        if arrival.mode == "renew":
            yield from do("branch_park", session=key)
        totals = yield from messages.totals((yield from paths.path(head)))
        counts = {name: value for name, value in totals._asdict().items() if name != "last_message_at"}
        yield from do("session_place", session=key, head=head, **counts)
        yield from sessions.entitle(scope, key, arrival.columns["title"])
    if arrival.mode == "renew":
        columns = {name: value for name, value in arrival.columns.items() if name not in _OF_A_NEW_ONE}
        yield from do("session_renew", session=key, **columns)
    if arrival.mode in ("renew", "extend"):
        told = {name: arrival.columns[name] for name in ("revision", "updated_at", "last_message_at")}
        yield from do("session_raise", session=key, **told)


def add(scope: Scope, tree: int, batch: Batch) -> Op[int]:
    """Write what is new of a batch, and give how many messages that was."""
    return Op(_add, scope, tree, batch, unindexes=True)


def _add(scope: Scope, tree: int, batch: Batch) -> Steps[int]:
    present = yield from stored_rows(batch.branch, batch.messages)
    new: list[Row] = []
    for row in batch.messages:
        stored = present.get(row[POSITION])
        if stored is None:
            new.append(row)
            continue
        state = against(stored, row, batch.renew)
        if state == "differs":
            raise Diverged(place=f"{batch.number}.{row[POSITION]}")
        if state == "further":
            yield from _replace(scope, tree, batch, stored, row)
        elif batch.renew and stored[DELETED] != row[DELETED]:
            yield from do("message_mark", branch=batch.branch, position=row[POSITION], deleted_at=row[DELETED])
            yield from _count(tree, batch.branch, [(stored, -1), (row, 1)])
    if new:
        yield from _insert(scope, tree, batch, new)
    for turn in batch.turns:
        yield from _turn(batch, turn)
    yield from _calls(batch)
    for compaction in batch.compactions:
        yield from _compaction(batch.branch, compaction)
    return len(new)


def _insert(scope: Scope, tree: int, batch: Batch, new: Sequence[Row]) -> Steps[None]:
    columns = [(batch.branch, *row[:DELETED]) for row in new]
    yield from each("message_insert", columns)
    yield from _pin(batch.branch, new)
    for row in new:
        if row[DELETED] is not None:
            yield from do("message_mark", branch=batch.branch, position=row[POSITION], deleted_at=row[DELETED])
        yield from _keep(scope, batch, row)
    last = new[-1][POSITION]
    yield from do("branch_reach", branch=batch.branch, last=last)
    if batch.session is not None:
        yield from do("session_reach", session=batch.session, branch=batch.branch, last=last)
    yield from _count(tree, batch.branch, [(row, 1) for row in new])


def _pin(branch: int, new: Sequence[Row]) -> Steps[None]:
    """Remember where the messages are that stay in every history."""
    yield from each("pin_insert", [(branch, row[POSITION]) for row in new if _stays(row)])


def _stays(row: Row) -> bool:
    metadata = None if row[METADATA] is None else json.decode(row[METADATA])
    return row[ROLE] == "system" or (isinstance(metadata, dict) and metadata.get("pinned") is True)


def _keep(scope: Scope, batch: Batch, row: Row) -> Steps[None]:
    for name in blobs_of(row):
        if name in batch.payloads:
            yield from appends.keep_blob(scope, name, batch.payloads[name])
        elif (yield from one("blob_keep", owner=scope.owner, hash=name)) is None:
            raise Stale


def _count(tree: int, branch: int, changes: Sequence[tuple[Row, int]]) -> Steps[None]:
    """Change the counts of every session whose active path has a message: it is one message in all of them."""
    counted = [(row, sign) for row, sign in changes if row[DELETED] is None]
    for session, _, head, _ in (yield from rows("sessions_of_tree", tree=tree)):
        spans = [span for span in (yield from paths.path(head)) if span.branch == branch]
        found = [(row, sign) for row, sign in counted for span in spans if span.low < row[POSITION] <= span.high]
        if found:
            yield from do(
                "session_count", session=session, messages=sum(sign for _, sign in found),
                tokens=sum(sign * row[TOKENS] for row, sign in found),
                input_tokens=sum(sign * (row[INPUT] or 0) for row, sign in found),
                output_tokens=sum(sign * (row[OUTPUT] or 0) for row, sign in found),
                newest=max(row[CREATED] for row, _ in found),
            )  # fmt: skip


def _replace(scope: Scope, tree: int, batch: Batch, stored: Row, row: Row) -> Steps[None]:
    """Let a message that was not finished go on to what the file has."""
    columns = {name: row[index] for name, index in _WRITTEN.items()}
    yield from search.changes(scope, batch.branch, row[POSITION])
    yield from do("message_write", branch=batch.branch, position=row[POSITION], **columns)
    yield from each("blob_drop", [(scope.owner, name) for name in blobs_of(stored)])
    yield from _keep(scope, batch, row)
    counted = (*row[:DELETED], stored[DELETED])
    yield from _count(tree, batch.branch, [(stored, -1), (counted, 1)])
    yield from _pin(batch.branch, [row])


def _turn(batch: Batch, turn: dict[str, Any]) -> Steps[None]:
    position, status = turn["position"], turn["status"]
    if not (yield from goes_on(batch, turn)):
        return
    is_open = status == "open"
    yield from do(
        "turn_bring",
        branch=batch.branch,
        **turn,
        holder=HOLDER if is_open else None,
        lease_until=0 if is_open else None,
    )
    if batch.session is None:
        return
    if is_open and (yield from one("branch_open", branch=batch.branch)) is None:
        yield from leases.claim(batch.session, batch.branch, position)
    elif not is_open:
        yield from leases.release(batch.session, batch.branch, position)


def _calls(batch: Batch) -> Steps[None]:
    new = yield from new_calls(batch)
    yield from each("tool_call_insert", [(batch.branch, *row[:6], row[2], *row[6:]) for row in new])


def _compaction(branch: int, compaction: dict[str, Any]) -> Steps[None]:
    if (yield from same_compaction(branch, compaction)) is None:
        yield from do("compaction_bring", branch=branch, **compaction)
    elif compaction["undone_at"] is not None:
        named = {name: compaction[name] for name in (*COMPACTION, "undone_at")}
        yield from do("compaction_retract", branch=branch, **named)


def keep_snapshots(session: int, found: Sequence[dict[str, Any]]) -> Op[None]:
    """Write the snapshots that a session does not have."""
    return Op(_keep_snapshots, session, found)


def _keep_snapshots(session: int, found: Sequence[dict[str, Any]]) -> Steps[None]:
    for snapshot in (yield from new_snapshots(session, found)):
        yield from do("snapshot_bring", session=session, **snapshot)


def link(scope: Scope, session: str, parent: str) -> Op[None]:
    """Name the session that another one came from, now that both are there."""
    return Op(_link, scope, session, parent)


def _link(scope: Scope, session: str, parent: str) -> Steps[None]:
    yield from do("session_link", owner=scope.owner, id=session, parent=parent)
