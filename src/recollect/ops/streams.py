"""An answer as it streams: opened, given text now and then, closed. What is found open later was interrupted."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from recollect.errors import InvalidValue, MessageNotFound, SessionNotFound, displayed
from recollect.model.message import Draft, Message
from recollect.op import Op, Row, Scope, Steps, do, each, one
from recollect.ops import appends, messages, record, tools, turns


class Flow(NamedTuple):
    """A message that is streaming: its turn, and where it is."""

    held: turns.Held
    position: int

    @property
    def id(self) -> str:
        """The message's id."""
        return f"{self.held.number}.{self.position}"


def begin(scope: Scope, session: str, held: turns.Held, draft: Draft, *, lease: int) -> Op[tuple[Flow, Row]]:
    """Open a message that will be given text as it arrives."""
    item = record.record(msgspec.structs.replace(draft, state="streaming", tokens=0), scope.now)
    return Op(_begin, scope, session, held, item, lease)


def _begin(scope: Scope, session: str, held: turns.Held, item: record.Record, lease: int) -> Steps[tuple[Flow, Row]]:
    yield from turns.renew(scope, session, held, lease, turns.Usage())
    written = yield from appends.extend(scope, session, held.session, held.branch, held.position, [item])
    return Flow(held, written.first), written.counts


def write(scope: Scope, session: str, flow: Flow, draft: Draft, *, lease: int) -> Op[Row]:
    """Store what has arrived so far."""
    item = record.record(msgspec.structs.replace(draft, state="streaming", tokens=0), scope.now)
    return Op(_write, scope, session, flow, item, lease)


def _write(scope: Scope, session: str, flow: Flow, item: record.Record, lease: int) -> Steps[Row]:
    yield from turns.renew(scope, session, flow.held, lease, turns.Usage())
    before = yield from _stored(scope, session, flow)
    yield from _reopened(scope, flow, before)
    yield from _update(flow, _pinned(scope, item, before), None)
    return (yield from turns.stir(scope, session, flow.held))[3:]


def _stored(scope: Scope, session: str, flow: Flow) -> Steps[Message]:
    message = yield from messages.at(scope, flow.held.branch, flow.held.number, flow.position, lock=True)
    if message is None:
        raise MessageNotFound(session=session, message=flow.id)
    return message


def _reopened(scope: Scope, flow: Flow, before: Message) -> Steps[None]:
    """Take a message out of the search index that was marked interrupted, and so may be there, before it goes on."""
    if before.state == "interrupted":
        from recollect.ops import search  # noqa: PLC0415  only where it has happened

        yield from search.changes(scope, flow.held.branch, flow.position)


def _pinned(scope: Scope, item: record.Record, before: Message) -> record.Record:
    """Keep the mark of a message that was pinned while it streams; who writes it does not know."""
    if not before.pinned or (item.draft.metadata or {}).get("pinned") is True:
        return item
    marked = {**(item.draft.metadata or {}), "pinned": True}
    return record.record(msgspec.structs.replace(item.draft, metadata=marked), scope.now)


def _update(flow: Flow, item: record.Record, completed_at: int | None) -> Steps[None]:
    columns = dict(zip(record.COLUMNS, item.columns, strict=True))
    columns["completed_at"] = completed_at
    yield from do("message_write", branch=flow.held.branch, position=flow.position, **columns)


def close(scope: Scope, session: str, flow: Flow, draft: Draft, *, lease: int) -> Op[Row]:
    """Store the message as it is in the end: completed, interrupted or with its error."""
    if draft.role != "assistant":  # as it was opened; a role that is stored is not changed
        raise InvalidValue(
            f"A stream is an agent's answer; this message's role is {displayed(draft.role)}. Close the stream "
            "with the agent's "
            f"message, and give others to turn.add()."
        )
    return Op(_close, scope, session, flow, record.record(draft, scope.now), lease)


def _close(scope: Scope, session: str, flow: Flow, item: record.Record, lease: int) -> Steps[Row]:
    held, usage = flow.held, turns.used([item])
    here = yield from one("session_by_key", session=held.session)  # locks the session before its message
    if here is None:
        raise SessionNotFound(session=session)
    yield from turns.renew(scope, session, held, lease, usage)
    before = yield from _stored(scope, session, flow)
    yield from _reopened(scope, flow, before)
    item = _pinned(scope, item, before)
    yield from _update(flow, item, scope.now)
    for name, payload in item.payloads.items():
        yield from appends.keep_blob(scope, name, payload)
    if item.calls or item.results:
        yield from tools.track(held.branch, flow.position, [item])
    if (item.draft.metadata or {}).get("pinned") is True:  # the role of a stream is the assistant's
        yield from each("pin_insert", [(held.branch, flow.position)])
    if before.deleted_at is None:
        change = messages.Change(0, item.tokens - before.tokens, usage.input_tokens or 0, usage.output_tokens or 0)
        yield from messages.recount(scope, here[1], held.branch, flow.position, change)
    return (yield from turns.stir(scope, session, held))[3:]
