"""Tool results that are recorded by themselves, by call id: stored once, refused for an unknown call."""

from __future__ import annotations

from typing import Any, NamedTuple

from recollect.errors import InvalidValue
from recollect.model.message import Draft, Message
from recollect.model.part import ToolResultPart
from recollect.model.session import Session
from recollect.op import Op, Scope, Steps, one
from recollect.ops import appends, messages, record, sessions, tools


class Recorded(NamedTuple):
    """The message that holds a result, and how the session stands with it."""

    message: Message
    session: Session


def store(scope: Scope, session: str, draft: Draft) -> Op[Recorded]:
    """Store the result of a call. The same result a second time is not stored again."""
    answer = draft.parts[0]
    if not isinstance(answer, ToolResultPart) or not answer.call_id:
        raise InvalidValue("A tool result needs the id of the call that it answers.")
    return Op(_store, scope, session, record.record(draft, scope.now), answer)


def _store(scope: Scope, session: str, item: record.Record, answer: ToolResultPart) -> Steps[Recorded]:
    here = yield from sessions.find(scope, session)
    if (yield from tools.newest_open(here.head, answer.call_id)) is None:
        stored = yield from _same_result(scope, here, answer)
        if stored is None:
            raise (yield from tools.unknown(session, here.head, answer.call_id))
        return Recorded(stored, here.value)
    branch = yield from one("branch_get", branch=here.head)
    assert branch is not None
    written = yield from appends.extend(scope, session, here.session, here.head, branch[6], [item])
    message = yield from messages.at(scope, here.head, written.branch, written.first)
    assert message is not None
    return Recorded(message, (yield from sessions.find(scope, session)).value)


def _same_result(scope: Scope, here: sessions.Here, answer: ToolResultPart) -> Steps[Message | None]:
    """Find the message that already holds this very result."""
    for found in (yield from tools.with_id(here.head, answer.call_id, until=lambda _: False)):
        if found.result is None:
            continue
        branch, position, part = found.result
        row = yield from one("branch_get", branch=branch)
        assert row is not None
        message = yield from messages.at(scope, branch, row[1], position)
        if message is not None and _same(message.parts[part], answer):
            return message
    return None


def _same(stored: Any, answer: ToolResultPart) -> bool:
    names = ("call_id", "status", "text", "data", "content", "error_code", "error_message")
    return all(getattr(stored, name, None) == getattr(answer, name) for name in names)
