"""Chat: send a message to the model, follow or stop the answer, answer approvals, and run slash commands."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.response import Stream

from recollect.agent import approvals
from recollect.agent.approvals import Approval, Decision
from recollect.agent.commands import COMMANDS, Action
from recollect.errors import InvalidValue
from recollect.model.message import AttachmentPart
from recollect.server import actions, attachments
from recollect.server.account import Account
from recollect.server.api import event_stream, schemas
from recollect.server.api.responses import (
    IdempotencyKey,
    MessagePath,
    SessionPath,
    json_response,
    open_session,
    parse_message_id,
)
from recollect.server.path_segments import encode_path_segment

TAGS = ["chat"]
_APPROVAL_FIELDS = ("id", "session", "call_id", "server", "tool", "arguments", "who")


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that waits for approval."""

    id: str
    session: str
    call_id: str
    server: Annotated[str, msgspec.Meta(description="The name of the MCP server.")]
    tool: Annotated[str, msgspec.Meta(description="The name of the tool on its server.")]
    arguments: Any
    who: Annotated[
        str, msgspec.Meta(description="The user who started the turn, such as `discord:12`; empty for the owner.")
    ]


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """The tool call that waits for approval, or null."""

    approval: ApprovalRequest | None


class ApprovalDecision(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A decision: allow this call, allow the tool in this session, always allow it, or deny."""

    id: Annotated[str, msgspec.Meta(description="The id of the approval, so that no other one is answered.")]
    decision: Decision


def _approval_to_dict(approval: Approval | None) -> dict[str, Any] | None:
    return None if approval is None else {name: getattr(approval, name) for name in _APPROVAL_FIELDS}


@get("/sessions/{session:str}/approval", tags=TAGS, operation_id="get_approval")
async def get_approval(account: Account, session: SessionPath) -> Response[PendingApproval]:
    """Return the tool call that waits for approval in a session, in any process."""
    return json_response(
        {"approval": _approval_to_dict(await approvals.pending_approval(await open_session(account, session)))}
    )


@post("/sessions/{session:str}/approval", tags=TAGS, operation_id="answer_approval", status_code=200)
async def answer_approval(account: Account, session: SessionPath, data: ApprovalDecision) -> Response[PendingApproval]:
    """Allow or deny a tool call that waits for approval. The response contains the answered request."""
    return json_response(
        {
            "approval": _approval_to_dict(
                await approvals.answer(await open_session(account, session), data.decision, data.id)
            )
        }
    )


APPROVAL_ROUTES: list[Any] = [get_approval, answer_approval]


ModelName = Annotated[
    str | None, msgspec.Meta(description="The model to use. It becomes the session's model.", examples=["demo"])
]

ApprovalsFlag = Annotated[
    bool,
    msgspec.Meta(
        description="Whether tools that need approval wait for `answer_approval`. If false, they are not run."
    ),
]


class Attachment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file attached to a message."""

    name: str | None = None
    mime_type: Annotated[str, msgspec.Meta(examples=["image/png"])]
    data: Annotated[str, msgspec.Meta(description="The bytes in base64.")]


class NewChatMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A user message to send to the model."""

    text: Annotated[str, msgspec.Meta(examples=["What did we decide about the garden?"])] = ""
    attachments: list[Attachment] = []
    model: ModelName = None
    take_over: Annotated[bool, msgspec.Meta(description="Whether to end another open turn.")] = False
    approvals: ApprovalsFlag = False


class Edit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The text that replaces a message. Its attachments are kept unless others are sent."""

    text: str
    attachments: list[Attachment] | None = None
    model: ModelName = None
    approvals: ApprovalsFlag = False


class RegenerateRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The answer to regenerate: the turn of a message, or the last turn."""

    message: str | None = None
    model: ModelName = None
    approvals: ApprovalsFlag = False


class ModelSelection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The model to use, if another one."""

    model: ModelName = None
    approvals: ApprovalsFlag = False


class StopResult(msgspec.Struct, frozen=True):
    """Whether an answer was stopped."""

    stopped: bool


class CommandLine(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A slash command as typed."""

    line: Annotated[str, msgspec.Meta(examples=["/rename A better title"])]


class OutcomeSchema(msgspec.Struct, frozen=True):
    """The result of a command: Markdown to show, the session to continue in, and an action for the client."""

    session: str
    text: str
    action: Action | None
    data: Any
    failed: bool


class Command(msgspec.Struct, frozen=True):
    """A slash command."""

    name: str
    usage: str
    help: str


class Commands(msgspec.Struct, frozen=True):
    """The slash commands."""

    commands: list[Command]


def _attachment_parts(files: list[Attachment]) -> list[AttachmentPart]:
    parts: list[AttachmentPart] = []
    for item in files:
        try:
            data = base64.b64decode(item.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidValue(f"The data of {item.name or 'an attachment'!r} must be base64.") from error
        parts.append(attachments.accept_file(item.name, item.mime_type, data))
    return parts


async def _turn_response(
    request: Request[Any, Any, Any], account: Account, started_turn: actions.StartedTurn
) -> Response[Any] | Stream:
    """Return the started turn, or its event stream if the client accepts one."""
    if event_stream.EVENT_STREAM_TYPE in request.headers.get("accept", "") and started_turn.run is not None:
        return event_stream.stream_response(account, event_stream.turn_events(started_turn.run))
    running = started_turn.run is not None and not started_turn.run.ended
    address = f"/api/v1/sessions/{encode_path_segment(started_turn.session)}/events"
    plain = {"session": started_turn.session, "turn": started_turn.turn, "running": running, "events": address}
    return json_response(plain, 202, Location=address)


async def _ask_again(
    request: Request[Any, Any, Any],
    account: Account,
    session: str,
    action: Callable[..., Awaitable[actions.StartedTurn]],
    data: RegenerateRequest | ModelSelection | None,
    key: str | None,
) -> Any:
    """Run an action that requests another answer in a session."""
    name = (await open_session(account, session)).id
    options = ModelSelection() if data is None else data
    started_turn = await action(account, name, model=options.model, key=key, wait_for_approval=options.approvals)
    return await _turn_response(request, account, started_turn)


@post("/sessions/{session:str}/chat", tags=TAGS, operation_id="say", status_code=202)
async def say(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    data: NewChatMessage,
    key: IdempotencyKey = None,
) -> Response[schemas.RunSchema]:
    """Send a message to the model. It is on disk when the response is sent, and the turn runs without a client.

    With `Accept: text/event-stream`, the response is the event stream of the turn.
    """
    started_turn = await actions.send_message(
        account, (await open_session(account, session)).id, data.text, _attachment_parts(data.attachments),
        model=data.model, key=key, take_over=data.take_over, wait_for_approval=data.approvals,
    )  # fmt: skip
    return await _turn_response(request, account, started_turn)


@post("/sessions/{session:str}/messages/{message:str}/edit", tags=TAGS, operation_id="edit_message", status_code=202)
async def edit_message(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    message: MessagePath,
    data: Edit,
    key: IdempotencyKey = None,
) -> Response[schemas.RunSchema]:
    """Replace a user message on a new branch and answer it. The original stays on its branch."""
    parts = None if data.attachments is None else _attachment_parts(data.attachments)
    name = (await open_session(account, session)).id
    started_turn = await actions.edit_message(
        account,
        name,
        parse_message_id(message),
        data.text,
        parts,
        model=data.model,
        key=key,
        wait_for_approval=data.approvals,
    )
    return await _turn_response(request, account, started_turn)


@post("/sessions/{session:str}/regenerate", tags=TAGS, operation_id="regenerate", status_code=202)
async def regenerate(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    data: RegenerateRequest | None = None,
    key: IdempotencyKey = None,
) -> Response[schemas.RunSchema]:
    """Answer a question again on a new branch. The previous answer stays on its branch."""
    message_id = None if data is None or data.message is None else parse_message_id(data.message)
    return await _ask_again(request, account, session, partial(actions.regenerate, message_id=message_id), data, key)


@post("/sessions/{session:str}/retry", tags=TAGS, operation_id="retry", status_code=202)
async def retry(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    data: ModelSelection | None = None,
    key: IdempotencyKey = None,
) -> Response[schemas.RunSchema]:
    """Retry the last question after a failed answer."""
    return await _ask_again(request, account, session, actions.retry, data, key)


@post("/sessions/{session:str}/continue", tags=TAGS, operation_id="carry_on", status_code=202)
async def carry_on(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    data: ModelSelection | None = None,
    key: IdempotencyKey = None,
) -> Response[schemas.RunSchema]:
    """Ask the model to continue an answer that was cut off."""
    return await _ask_again(request, account, session, actions.continue_answer, data, key)


@post("/sessions/{session:str}/stop", tags=TAGS, operation_id="stop", status_code=200)
async def stop(account: Account, session: SessionPath) -> StopResult:
    """Stop the running answer. The text received so far is kept."""
    return StopResult(await actions.stop_answer(account, (await open_session(account, session)).id))


@get("/commands", tags=TAGS, operation_id="list_commands", sync_to_thread=False)
def list_commands() -> Commands:
    """List the slash commands."""
    return Commands([Command(item.name, item.usage, item.help) for item in COMMANDS.values()])


@post("/sessions/{session:str}/commands", tags=TAGS, operation_id="run_command", status_code=200)
async def run_command(account: Account, session: SessionPath, data: CommandLine) -> Response[OutcomeSchema]:
    """Run a slash command in a session. If it fails, the response has `failed`."""
    result = await actions.run_command(account, (await open_session(account, session)).id, data.line)
    outcome = result.outcome
    plain = {
        "session": result.session, "text": outcome.text, "action": outcome.action, "data": outcome.data,
        "failed": outcome.failed,
    }  # fmt: skip
    return json_response(plain)


@get(
    "/sessions/{session:str}/events",
    tags=TAGS,
    operation_id="follow_session",
    media_type=event_stream.EVENT_STREAM_TYPE,
)
async def follow_session(request: Request[Any, Any, Any], account: Account, session: SessionPath) -> Stream:
    """Follow a session: the running turn, then every change and every later turn, as an event stream.

    Events are `ready`, `change`, and those of a turn: `turn_started`, `text`, `reasoning`, `tool_started`,
    `tool_finished`, `approval_requested`, `approval_answered`, `response`, `notice`, `titled`, `turn_ended`. To resume,
    send the last id as `Last-Event-ID`. A `change` means that the session has a new revision: read it again.
    """
    handle = await open_session(account, session)
    cursor = event_stream.StreamCursor.read(request.headers.get("last-event-id"))
    return event_stream.stream_response(
        account, event_stream.session_events(account, handle.id, handle.revision, cursor)
    )


CHAT_ROUTES: list[Any] = [
    say, edit_message, regenerate, retry, carry_on, stop, list_commands, run_command, follow_session,
]  # fmt: skip
