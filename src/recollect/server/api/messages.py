"""Messages: pages of them, one, more of them; the history that a provider accepts next."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import QueryParameter

from recollect import ops
from recollect.model.message import Format, Message
from recollect.server.account import Account
from recollect.server.api import shapes
from recollect.server.api.answer import (
    IfMatch,
    IfNoneMatch,
    Key,
    Limit,
    MessagePath,
    SessionPath,
    expected,
    found,
    has,
    matching,
    message_id,
    told,
    unchanged,
)

TAGS = ["messages"]
MessageFormat = Annotated[
    Format | None, msgspec.Meta(description="The format of the messages; guessed where it is clear.")
]
Given = Annotated[
    Any,
    msgspec.Meta(
        description="One message or a list of them, in any format: a provider's dicts, or a role with text.",
        examples=[{"role": "user", "content": "Hello"}],
    ),
]


class NewMessages(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Messages to be added to the end of a session, all or none."""

    messages: Given
    format: MessageFormat = None


def plain(message: Message) -> dict[str, Any]:
    """Write a message as it is answered."""
    return message.to_dict()


@get("/sessions/{session:str}/messages", tags=TAGS, operation_id="list_messages")
async def list_messages(
    account: Account,
    session: SessionPath,
    limit: Limit = 50,
    before: Annotated[str | None, QueryParameter(description="Those before this one.")] = None,
    after: Annotated[str | None, QueryParameter(description="Those after this one; `0`: from the first.")] = None,
    branch: Annotated[int | None, QueryParameter(ge=1, le=2**31, description="Not the active branch.")] = None,
    deleted: Annotated[bool, QueryParameter(description="With those that were deleted.")] = False,
    if_none_match: IfNoneMatch = None,
) -> Response[shapes.Messages]:
    """Read a page of messages, the oldest first: the last ones, or those before or after a message."""
    opened = await found(account, session)
    if has(if_none_match, opened.revision):
        return unchanged(opened.revision)
    store = account.store
    if after is None and branch is None:
        place = None if before is None else message_id(before)
        op = ops.messages.backward(store.scope(), opened.id, before=place, limit=limit, deleted=deleted)
        some = await store.run(op)
        older, newer = some.more is not None and some.more > 1, before is not None
    else:
        key = None if branch is None else await store.run(ops.branches.key(store.scope(), opened.id, branch))
        start = 0 if after in (None, "0") else ops.paths.parse(message_id(str(after)))[1]
        op = ops.messages.forward(store.scope(), opened.id, after=start, branch=key, limit=limit, deleted=deleted)
        some = await store.run(op)
        older, newer = start > 0, some.more is not None
    ids = [message.id for message in some.messages]
    answer = {
        "messages": [plain(message) for message in some.messages],
        "before": ids[0] if ids and older else None,
        "next": ids[-1] if ids and newer else None,
        "revision": opened.revision,
    }
    return told(answer, revision=opened.revision)


@post("/sessions/{session:str}/messages", tags=TAGS, operation_id="append_messages")
async def append_messages(
    account: Account, session: SessionPath, data: NewMessages, key: Key = None, if_match: IfMatch = None
) -> Response[shapes.Appended]:
    """Add messages to the end of a session, in any format. They are on disk when this answers."""
    opened = await found(account, session)
    made = await opened.append(data.messages, data.format, key, expected=expected(if_match))
    return appended(made)


def appended(made: ops.appends.Appended) -> Response[Any]:
    """Answer with what was made; 200 where it had been made before."""
    told_of = {"ids": made.ids, **msgspec.to_builtins(made)}
    return told(told_of, 200 if made.repeated else 201, revision=made.revision)


@get("/sessions/{session:str}/history", tags=TAGS, operation_id="get_history")
async def get_history(
    account: Account,
    session: SessionPath,
    format: Annotated[Format, QueryParameter(description="The form that the provider takes.")] = "recollect",
    budget: Annotated[int | None, QueryParameter(ge=1, le=2**53, description="Tokens that it may have.")] = None,
    limit: Annotated[int | None, QueryParameter(ge=1, le=2**31, description="Messages that it may have.")] = None,
    counter: Annotated[Literal["o200k", "cl100k"] | None, QueryParameter(description="Who counts the tokens.")] = None,
    repair: Annotated[bool, QueryParameter(description="Whether what a provider would refuse is mended.")] = True,
    if_none_match: IfNoneMatch = None,
) -> Response[shapes.History]:
    """Give what a provider accepts next: the active path within a budget, and what was mended in it."""
    opened = await found(account, session)
    if has(if_none_match, opened.revision):
        return unchanged(opened.revision)
    view = await opened.history(format, budget, limit=limit, counter=counter, repair=repair)
    answer = {
        "format": format,
        "messages": list(view),
        "repairs": [item.to_dict() for item in view.repairs],
        "revision": opened.revision,
    }
    return told(answer, revision=opened.revision)


@get("/sessions/{session:str}/messages/{message:str}", tags=TAGS, operation_id="get_message")
async def get_message(account: Account, session: SessionPath, message: MessagePath) -> Response[shapes.Message]:
    """Read one message, deleted or not."""
    return told(plain(await (await found(account, session)).message(message_id(message))))


@get("/sessions/{session:str}/messages/{message:str}/response", tags=TAGS, operation_id="get_response")
async def get_response(account: Account, session: SessionPath, message: MessagePath) -> Response[Any]:
    """Give the whole response that a message came with, as the provider sent it; null where there was none."""
    return told(await (await found(account, session)).response(message_id(message)))


@delete("/sessions/{session:str}/messages/{message:str}", tags=TAGS, operation_id="delete_message", status_code=200)
async def delete_message(
    account: Account, session: SessionPath, message: MessagePath, if_match: IfMatch = None
) -> Response[shapes.Message]:
    """Take a message out of the conversation; it can be restored."""
    opened = await matching(account, session, if_match)
    return told(plain(await opened.delete_message(message_id(message))), revision=opened.revision)


@post(
    "/sessions/{session:str}/messages/{message:str}/restore", tags=TAGS, operation_id="restore_message", status_code=200
)
async def restore_message(account: Account, session: SessionPath, message: MessagePath) -> Response[shapes.Message]:
    """Bring a deleted message back."""
    opened = await found(account, session)
    return told(plain(await opened.restore_message(message_id(message))), revision=opened.revision)


@put("/sessions/{session:str}/messages/{message:str}/pin", tags=TAGS, operation_id="pin_message")
async def pin_message(account: Account, session: SessionPath, message: MessagePath) -> Response[shapes.Message]:
    """Keep a message in every history, however old it is."""
    opened = await found(account, session)
    return told(plain(await opened.pin_message(message_id(message))), revision=opened.revision)


@delete("/sessions/{session:str}/messages/{message:str}/pin", tags=TAGS, operation_id="unpin_message", status_code=200)
async def unpin_message(account: Account, session: SessionPath, message: MessagePath) -> Response[shapes.Message]:
    """Let a message leave the history again when it is old."""
    opened = await found(account, session)
    return told(plain(await opened.unpin_message(message_id(message))), revision=opened.revision)


ROUTES: list[Any] = [
    list_messages, append_messages, get_history, get_message, get_response, delete_message, restore_message,
    pin_message, unpin_message,
]  # fmt: skip
