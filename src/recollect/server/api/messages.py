"""Messages: list, read, append, delete, pin; their files; the history that a provider accepts next."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.params import PathParameter, QueryParameter

from recollect import formats
from recollect.formats import FORMATS
from recollect.model.message import Message, RegisteredFormat
from recollect.model.session import SessionEdits
from recollect.server import attachments
from recollect.server.account import Account
from recollect.server.api import schemas
from recollect.server.api.responses import (
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Limit,
    MessagePath,
    SessionPath,
    expected_revision,
    has_revision,
    json_response,
    not_modified,
    open_session,
    parse_message_id,
    parse_path_end,
)
from recollect.server.api.sessions import FieldsSchema
from recollect.types import Appended

TAGS = ["messages"]
_FORMAT_NAMES = f"{', '.join(FORMATS)}, or a format that another distribution on the server registers"
MessageFormat = Annotated[
    RegisteredFormat | None,
    msgspec.Meta(description=f"The format of the messages: {_FORMAT_NAMES}. Detected if not given."),
]
MessageInput = Annotated[
    Any,
    msgspec.Meta(
        description="One message or a list of messages, in any format: a provider's dicts, or a role with text.",
        examples=[{"role": "user", "content": "Hello"}],
    ),
]


class NewMessages(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Messages to append to a session, all or none."""

    messages: MessageInput
    format: MessageFormat = None


class NewSessionMessages(NewMessages, kw_only=True, forbid_unknown_fields=True):
    """Messages to append to a session, and fields to change with them, all or none.

    With `after` or `update`, the list of messages may be empty.
    """

    after: Annotated[
        str | None,
        msgspec.Meta(
            description="The id of the message that they follow, or 0 for the beginning. They replace the messages "
            "after it, which stay on their branch. Without it, they follow the last message.",
            examples=["1.17", "0"],
        ),
    ] = None
    update: FieldsSchema | None = None


_CURSOR = "a message id, a position, or a time in ISO 8601"
_MAX_POSITION_DIGITS = 10  # the last position of a branch, 4,294,967,295, has ten


def _parse_cursor(text: str | None) -> str | int | None:
    """Return a cursor of a request; digits are a position."""
    if text is not None and text.isascii() and text.isdecimal() and len(text) <= _MAX_POSITION_DIGITS:
        return int(text)
    return text


class MessageReplacement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The new content of a message."""

    message: Annotated[
        Any,
        msgspec.Meta(description="One message, in any format.", examples=[{"role": "user", "content": "[redacted]"}]),
    ]
    format: MessageFormat = None
    erase: Annotated[
        bool, msgspec.Meta(description="Whether the former content is erased. Otherwise the store keeps it.")
    ] = False


class MessageMarks(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes of the metadata of a message."""

    metadata: Annotated[dict[str, Any], msgspec.Meta(description="The keys to set; null removes a key.")]


def message_to_dict(message: Message) -> dict[str, Any]:
    """Return a message as JSON data."""
    return message.to_dict()


@get("/sessions/{session:str}/messages", tags=TAGS, operation_id="list_messages")
async def list_messages(
    account: Account,
    session: SessionPath,
    limit: Limit = 50,
    before: Annotated[str | None, QueryParameter(description=f"Only messages before this one: {_CURSOR}.")] = None,
    after: Annotated[
        str | None,
        QueryParameter(description=f"Only messages after this one: {_CURSOR}. `0` starts at the first message."),
    ] = None,
    branch: Annotated[
        int | None, QueryParameter(ge=1, le=2**31, description="Read this branch instead of the active one.")
    ] = None,
    deleted: Annotated[bool, QueryParameter(description="Include deleted messages.")] = False,
    if_none_match: IfNoneMatch = None,
) -> Response[schemas.MessagesSchema]:
    """Read a page of messages, oldest first: the latest, or those before or after a message or a time."""
    handle = await open_session(account, session)
    if has_revision(if_none_match, handle.revision):
        return not_modified(handle.revision)
    is_latest = after is None and before is None and branch is None
    is_backward = is_latest or (after is None and before is not None)
    size = limit + 1  # one more than the page shows whether there is another page
    if is_latest:
        messages = await handle.messages(size, deleted=deleted)
    else:
        messages = await handle.messages(
            after=_parse_cursor(after), before=_parse_cursor(before), limit=size, branch=branch, deleted=deleted
        )
    has_more = len(messages) > limit
    messages = messages[-limit:] if is_backward else messages[:limit]
    older, newer = (has_more, before is not None) if is_backward else (after not in (None, "0"), has_more)
    ids = [message.id for message in messages]
    body = {
        "messages": [message_to_dict(message) for message in messages],
        "before": ids[0] if ids and older else None,
        "next": ids[-1] if ids and newer else None,
        "revision": handle.revision,
    }
    return json_response(body, revision=handle.revision)


@post("/sessions/{session:str}/messages", tags=TAGS, operation_id="append_messages")
async def append_messages(
    account: Account,
    session: SessionPath,
    data: NewSessionMessages,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response[schemas.AppendedSchema]:
    """Append messages to a session, in any format. They are on disk when the response is sent.

    With `after`, they replace the messages after another one; with `update`, fields of the session change with them.
    """
    handle = await open_session(account, session)
    append = await handle.append(
        data.messages,
        data.format,
        key,
        after=None if data.after is None else parse_path_end(data.after),
        update=None if data.update is None else cast("SessionEdits", data.update.set_fields()),
        expected=expected_revision(if_match),
    )
    return append_response(append)


def append_response(append: Appended) -> Response[Any]:
    """Return the response to an append: 201, or 200 if the same key stored it before."""
    body = {"ids": append.ids, **msgspec.to_builtins(append)}
    del body["keyed_ids"]
    return json_response(body, 200 if append.repeated else 201, revision=append.revision)


@get("/sessions/{session:str}/history", tags=TAGS, operation_id="get_history")
async def get_history(
    account: Account,
    session: SessionPath,
    format: Annotated[str, QueryParameter(description=f"The message format: {_FORMAT_NAMES}.")] = "recollect",
    budget: Annotated[int | None, QueryParameter(ge=1, le=2**53, description="Maximum number of tokens.")] = None,
    limit: Annotated[int | None, QueryParameter(ge=1, le=2**31, description="Maximum number of messages.")] = None,
    last: Annotated[
        int | None,
        QueryParameter(
            ge=1, le=2**31, description="Exactly this number of the last messages, without repair, budget and limit."
        ),
    ] = None,
    counter: Annotated[
        Literal["o200k", "cl100k"] | None,
        QueryParameter(description="The tokenizer that counts tokens. Default: an estimate."),
    ] = None,
    repair: Annotated[bool, QueryParameter(description="Whether to repair what the provider would reject.")] = True,
    if_none_match: IfNoneMatch = None,
) -> Response[schemas.HistorySchema]:
    """Return the history to send to a provider: the model-visible messages within a budget, and the repairs in it."""
    handle = await open_session(account, session)
    if has_revision(if_none_match, handle.revision):
        return not_modified(handle.revision)
    name = RegisteredFormat(format)
    view = await handle.history(name, budget, limit=limit, last=last, counter=counter, repair=repair)
    body = {
        "format": format,
        "messages": list(view),
        "repairs": [item.to_dict() for item in view.repairs],
        "revision": handle.revision,
    }
    return json_response(body, revision=handle.revision)


@get("/sessions/{session:str}/messages/{message:str}", tags=TAGS, operation_id="get_message")
async def get_message(account: Account, session: SessionPath, message: MessagePath) -> Response[schemas.MessageSchema]:
    """Read one message, deleted or not."""
    return json_response(
        message_to_dict(await (await open_session(account, session)).message(parse_message_id(message)))
    )


@get("/sessions/{session:str}/messages/{message:str}/response", tags=TAGS, operation_id="get_response")
async def get_response(account: Account, session: SessionPath, message: MessagePath) -> Response[Any]:
    """Return the complete provider response that a message came with; null if none was stored."""
    stored_message = await (await open_session(account, session)).message(parse_message_id(message))
    return json_response(formats.response(stored_message))


@delete("/sessions/{session:str}/messages/{message:str}", tags=TAGS, operation_id="delete_message", status_code=200)
async def delete_message(
    account: Account, session: SessionPath, message: MessagePath, if_match: IfMatch = None
) -> Response[schemas.MessageSchema]:
    """Delete a message. It can be restored."""
    handle = await open_session(account, session)
    message_id = parse_message_id(message)
    await handle.delete_messages([message_id], expected=expected_revision(if_match))
    return json_response(message_to_dict(await handle.message(message_id)), revision=handle.revision)


@post(
    "/sessions/{session:str}/messages/{message:str}/restore", tags=TAGS, operation_id="restore_message", status_code=200
)
async def restore_message(
    account: Account, session: SessionPath, message: MessagePath, if_match: IfMatch = None
) -> Response[schemas.MessageSchema]:
    """Restore a deleted message. Fails with 409 if another message has its key now."""
    handle = await open_session(account, session)
    message_id = parse_message_id(message)
    await handle.restore_messages([message_id], expected=expected_revision(if_match))
    return json_response(message_to_dict(await handle.message(message_id)), revision=handle.revision)


@put("/sessions/{session:str}/messages/{message:str}", tags=TAGS, operation_id="replace_message")
async def replace_message(
    account: Account, session: SessionPath, message: MessagePath, data: MessageReplacement, if_match: IfMatch = None
) -> Response[schemas.MessageSchema]:
    """Replace the content of a message. Its id, position, time, turn and key stay, in every fork that shares it."""
    handle = await open_session(account, session)
    replaced_message = await handle.replace_message(
        parse_message_id(message), data.message, format=data.format, erase=data.erase,
        expected=expected_revision(if_match),
    )  # fmt: skip
    return json_response(message_to_dict(replaced_message), revision=handle.revision)


@patch("/sessions/{session:str}/messages/{message:str}", tags=TAGS, operation_id="mark_message")
async def mark_message(
    account: Account, session: SessionPath, message: MessagePath, data: MessageMarks, if_match: IfMatch = None
) -> Response[schemas.MessageSchema]:
    """Change keys of the metadata of a message. Null removes a key."""
    handle = await open_session(account, session)
    marked_message = await handle.mark_message(
        parse_message_id(message), data.metadata, expected=expected_revision(if_match)
    )
    return json_response(message_to_dict(marked_message), revision=handle.revision)


@put("/sessions/{session:str}/messages/{message:str}/pin", tags=TAGS, operation_id="pin_message")
async def pin_message(account: Account, session: SessionPath, message: MessagePath) -> Response[schemas.MessageSchema]:
    """Pin a message: every history contains it, regardless of its age."""
    handle = await open_session(account, session)
    return json_response(
        message_to_dict(await handle.mark_message(parse_message_id(message), {"pinned": True})),
        revision=handle.revision,
    )


@delete("/sessions/{session:str}/messages/{message:str}/pin", tags=TAGS, operation_id="unpin_message", status_code=200)
async def unpin_message(
    account: Account, session: SessionPath, message: MessagePath
) -> Response[schemas.MessageSchema]:
    """Unpin a message."""
    handle = await open_session(account, session)
    return json_response(
        message_to_dict(await handle.mark_message(parse_message_id(message), {"pinned": None})),
        revision=handle.revision,
    )


MESSAGE_ROUTES: list[Any] = [
    list_messages, append_messages, get_history, get_message, get_response, replace_message, mark_message,
    delete_message, restore_message, pin_message, unpin_message,
]  # fmt: skip


@get(
    "/sessions/{session:str}/messages/{message:str}/files/{number:int}",
    tags=["files"],
    operation_id="get_file",
    media_type="application/octet-stream",
)
async def get_file(
    account: Account,
    session: SessionPath,
    message: MessagePath,
    number: Annotated[
        int, PathParameter(ge=0, le=10_000, description="The index of the file in the message, counted from 0.")
    ],
) -> Response[bytes]:
    """Return a file of a message. Raster images and plain text are served inline, everything else as a download."""
    file = attachments.serve_attachment(
        await (await open_session(account, session)).message(parse_message_id(message)), number
    )
    headers = {name: value for name, value in file.headers.items() if name != "Content-Type"}
    return Response(file.data, media_type=file.headers["Content-Type"], headers=headers)


FILE_ROUTES: list[Any] = [get_file]
