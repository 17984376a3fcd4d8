"""Turns, for programs that run their own model: begin with the question, add each step, end; or save a whole turn."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post

from recollect.errors import AlreadySaid
from recollect.model.turn import LEASE, EndStatus
from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import (
    After,
    IfMatch,
    Key,
    Limit,
    MessagePath,
    SessionPath,
    expected,
    found,
    message_id,
    page,
    told,
)
from recollect.server.api.messages import Given, MessageFormat, NewMessages, appended
from recollect.store_async import AsyncTurn

TAGS = ["turns"]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Lease = Annotated[
    float, msgspec.Meta(ge=1, le=86_400, description="Seconds that the turn is held for after each of its writes.")
]


class NewTurn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a person said, with which a turn begins."""

    message: Given
    format: MessageFormat = None
    lease: Lease = LEASE
    wait: Annotated[float, msgspec.Meta(ge=0, le=60, description="Seconds to wait for a turn that is open.")] = 0.0
    take_over: Annotated[bool, msgspec.Meta(description="Whether to end another turn that is open.")] = False


class Usage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a run used, where it is known."""

    model: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    latency_ms: Count | None = None


class Failure(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a turn failed, any JSON value."""

    error: Any = None


class WholeTurn(Usage, kw_only=True, forbid_unknown_fields=True):
    """A whole turn: what was said, and the provider's response or the messages that followed."""

    message: Given
    response: Any = None
    format: MessageFormat = None
    status: EndStatus = "completed"
    error: Any = None


class Begun(msgspec.Struct, frozen=True):
    """A turn that is open."""

    id: shapes.MessageId
    revision: int


@get("/sessions/{session:str}/turns", tags=TAGS, operation_id="list_turns")
async def list_turns(
    account: Account, session: SessionPath, limit: Limit = 100, after: After = None
) -> Response[shapes.Turns]:
    """List the turns of the active path, the oldest first."""
    opened = await found(account, session)
    some, more = page(await opened.turns(), lambda turn: turn.id, limit, after)
    return told({"turns": [turn.to_dict() for turn in some], "next": more}, revision=opened.revision)


@post("/sessions/{session:str}/turns", tags=TAGS, operation_id="begin_turn")
async def begin_turn(
    account: Account, session: SessionPath, data: NewTurn, key: Key = None, if_match: IfMatch = None
) -> Response[Begun]:
    """Open a turn with what the person said, which is on disk when this answers. A session takes one at a time."""
    opened = await found(account, session)
    try:
        turn = await opened.turn(
            data.message, data.format, lease=data.lease, wait=data.wait, take_over=data.take_over, key=key,
            expected=expected(if_match),
        )  # fmt: skip
    except AlreadySaid as before:
        return told({"id": before.fields["turn"], "revision": opened.revision}, revision=opened.revision)
    return told({"id": turn.id, "revision": opened.revision}, 201, revision=opened.revision)


@post("/sessions/{session:str}/turns/save", tags=TAGS, operation_id="save_turn")
async def save_turn(
    account: Account, session: SessionPath, data: WholeTurn, key: Key = None, if_match: IfMatch = None
) -> Response[shapes.Appended]:
    """Store a whole turn at once, all of it or nothing."""
    opened = await found(account, session)
    made = await opened.save_turn(
        data.message, data.response, data.format, status=data.status, model=data.model, error=data.error,
        input_tokens=data.input_tokens, output_tokens=data.output_tokens, latency_ms=data.latency_ms, key=key,
        expected=expected(if_match),
    )  # fmt: skip
    return appended(made)


async def _taken_up(account: Account, session: str, turn: str) -> AsyncTurn:
    return await (await found(account, session)).resume_turn(message_id(turn))


@post("/sessions/{session:str}/turns/{turn:str}/messages", tags=TAGS, operation_id="add_to_turn")
async def add_to_turn(
    account: Account, session: SessionPath, turn: MessagePath, data: NewMessages, key: Key = None
) -> Response[shapes.Appended]:
    """Add steps to an open turn: messages, or a provider's response. They are on disk when this answers."""
    opened = await _taken_up(account, session, turn)
    return appended(await opened.add(data.messages, data.format, key=key))


@post("/sessions/{session:str}/turns/{turn:str}/complete", tags=TAGS, operation_id="complete_turn", status_code=200)
async def complete_turn(
    account: Account, session: SessionPath, turn: MessagePath, data: Usage | None = None
) -> Response[shapes.Turn]:
    """End a turn well, with what the run used."""
    opened, used = await _taken_up(account, session, turn), data or Usage()
    ended = await opened.complete(
        model=used.model, input_tokens=used.input_tokens, output_tokens=used.output_tokens, latency_ms=used.latency_ms
    )
    return told(ended.to_dict())


@post("/sessions/{session:str}/turns/{turn:str}/fail", tags=TAGS, operation_id="fail_turn", status_code=200)
async def fail_turn(
    account: Account, session: SessionPath, turn: MessagePath, data: Failure | None = None
) -> Response[shapes.Turn]:
    """End a turn as failed, with the error."""
    opened = await _taken_up(account, session, turn)
    return told((await opened.fail((data or Failure()).error)).to_dict())


@post("/sessions/{session:str}/turns/{turn:str}/cancel", tags=TAGS, operation_id="cancel_turn", status_code=200)
async def cancel_turn(account: Account, session: SessionPath, turn: MessagePath) -> Response[shapes.Turn]:
    """End a turn as cancelled."""
    return told((await (await _taken_up(account, session, turn)).cancel()).to_dict())


ROUTES: list[Any] = [list_turns, begin_turn, save_turn, add_to_turn, complete_turn, fail_turn, cancel_turn]
