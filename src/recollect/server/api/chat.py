"""Streaming chat: say something to the model, follow the answer, stop it, ask again, and the slash commands."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.response import Stream

from recollect.agent.commands import COMMANDS, Action
from recollect.errors import InvalidValue
from recollect.model.part import AttachmentPart
from recollect.server import actions, files
from recollect.server.account import Account
from recollect.server.api import shapes, stream
from recollect.server.api.answer import Key, MessagePath, SessionPath, found, message_id, told
from recollect.server.names import piece

TAGS = ["chat"]
Model = Annotated[
    str | None, msgspec.Meta(description="The model to ask, remembered for the session.", examples=["demo"])
]

Approvals = Annotated[
    bool,
    msgspec.Meta(
        description="Whether tools that need approval wait until it is given with `answer_approval`. If not, they are "
        "not run."
    ),
]


class Attachment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file that goes with what is said."""

    name: str | None = None
    mime_type: Annotated[str, msgspec.Meta(examples=["image/png"])]
    data: Annotated[str, msgspec.Meta(description="Its bytes as base64.")]


class Saying(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a person says."""

    text: Annotated[str, msgspec.Meta(examples=["What did we decide about the garden?"])] = ""
    attachments: list[Attachment] = []
    model: Model = None
    take_over: Annotated[bool, msgspec.Meta(description="Whether to end another turn that is open.")] = False
    approvals: Approvals = False


class Edit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is said in the place of a message. Its attachments stay unless others are given."""

    text: str
    attachments: list[Attachment] | None = None
    model: Model = None
    approvals: Approvals = False


class Again(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to ask again: the question of a message's turn, or the last one."""

    message: str | None = None
    model: Model = None
    approvals: Approvals = False


class Choice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The model to ask, where it is another one."""

    model: Model = None
    approvals: Approvals = False


class Stopped(msgspec.Struct, frozen=True):
    """Whether there was an answer to stop."""

    stopped: bool


class CommandLine(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A slash command as it is typed."""

    line: Annotated[str, msgspec.Meta(examples=["/rename A better title"])]


class Outcome(msgspec.Struct, frozen=True):
    """What a command did: Markdown to show, in which session the talk goes on, and what a surface does next."""

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


def _parts(given: list[Attachment]) -> list[AttachmentPart]:
    made: list[AttachmentPart] = []
    for item in given:
        try:
            data = base64.b64decode(item.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidValue(f"The data of {item.name or 'an attachment'!r} is not base64.") from error
        made.append(files.taken(item.name, item.mime_type, data))
    return made


async def _begun(request: Request[Any, Any, Any], account: Account, said: actions.Said) -> Response[Any] | Stream:
    """Answer with the run, or with its events where the client takes a stream."""
    if stream.TYPE in request.headers.get("accept", "") and said.run is not None:
        return stream.respond(account, stream.of_run(said.run))
    running = said.run is not None and not said.run.ended
    address = f"/api/v1/sessions/{piece(said.session)}/events"
    plain = {"session": said.session, "turn": said.turn, "running": running, "events": address}
    return told(plain, 202, Location=address)


async def _asked(
    request: Request[Any, Any, Any],
    account: Account,
    session: str,
    ask: Callable[..., Awaitable[actions.Said]],
    data: Again | Choice | None,
    key: str | None,
) -> Any:
    """Ask again for an answer in a session, in whichever way, with the model that was chosen for it."""
    name = (await found(account, session)).id
    chosen = Choice() if data is None else data
    said = await ask(account, name, model=chosen.model, key=key, asks=chosen.approvals)
    return await _begun(request, account, said)


@post("/sessions/{session:str}/chat", tags=TAGS, operation_id="say", status_code=202)
async def say(
    request: Request[Any, Any, Any], account: Account, session: SessionPath, data: Saying, key: Key = None
) -> Response[shapes.Run]:
    """Say something. What was said is on disk when this answers, and the answer goes on whoever listens.

    With `Accept: text/event-stream` it answers with the events of the turn, to its end.
    """
    said = await actions.say(
        account, (await found(account, session)).id, data.text, _parts(data.attachments), model=data.model, key=key,
        take_over=data.take_over, asks=data.approvals,
    )  # fmt: skip
    return await _begun(request, account, said)


@post("/sessions/{session:str}/messages/{message:str}/edit", tags=TAGS, operation_id="edit_message", status_code=202)
async def edit_message(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    message: MessagePath,
    data: Edit,
    key: Key = None,
) -> Response[shapes.Run]:
    """Say something else in the place of a message, on a branch of its own. What was there is kept."""
    parts = None if data.attachments is None else _parts(data.attachments)
    name = (await found(account, session)).id
    said = await actions.edit(
        account, name, message_id(message), data.text, parts, model=data.model, key=key, asks=data.approvals
    )
    return await _begun(request, account, said)


@post("/sessions/{session:str}/regenerate", tags=TAGS, operation_id="regenerate", status_code=202)
async def regenerate(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    data: Again | None = None,
    key: Key = None,
) -> Response[shapes.Run]:
    """Ask the same again, on a branch of its own. The answer that was there is kept."""
    place = None if data is None or data.message is None else message_id(data.message)
    return await _asked(request, account, session, partial(actions.regenerate, message_id=place), data, key)


@post("/sessions/{session:str}/retry", tags=TAGS, operation_id="retry", status_code=202)
async def retry(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    data: Choice | None = None,
    key: Key = None,
) -> Response[shapes.Run]:
    """Ask the last question again, after an answer that failed."""
    return await _asked(request, account, session, actions.retry, data, key)


@post("/sessions/{session:str}/continue", tags=TAGS, operation_id="carry_on", status_code=202)
async def carry_on(
    request: Request[Any, Any, Any],
    account: Account,
    session: SessionPath,
    data: Choice | None = None,
    key: Key = None,
) -> Response[shapes.Run]:
    """Ask for the rest of an answer that was cut off."""
    return await _asked(request, account, session, actions.carry_on, data, key)


@post("/sessions/{session:str}/stop", tags=TAGS, operation_id="stop", status_code=200)
async def stop(account: Account, session: SessionPath) -> Stopped:
    """End the answer that this server writes now; what came is kept."""
    return Stopped(await actions.stop(account, (await found(account, session)).id))


@get("/commands", tags=TAGS, operation_id="list_commands", sync_to_thread=False)
def list_commands() -> Commands:
    """List the slash commands."""
    return Commands([Command(item.name, item.usage, item.help) for item in COMMANDS.values()])


@post("/sessions/{session:str}/commands", tags=TAGS, operation_id="run_command", status_code=200)
async def run_command(account: Account, session: SessionPath, data: CommandLine) -> Response[Outcome]:
    """Run a slash command in a session. A mistake is an outcome too, with `failed`."""
    done = await actions.command(account, (await found(account, session)).id, data.line)
    outcome = done.outcome
    plain = {
        "session": done.session, "text": outcome.text, "action": outcome.action, "data": outcome.data,
        "failed": outcome.failed,
    }  # fmt: skip
    return told(plain)


@get("/sessions/{session:str}/events", tags=TAGS, operation_id="follow_session", media_type=stream.TYPE)
async def follow_session(request: Request[Any, Any, Any], account: Account, session: SessionPath) -> Stream:
    """Follow a session: all of the turn that runs, then each change and each turn that follows, as an event stream.

    Events are `ready`, `change`, and those of a turn: `turn_started`, `text`, `reasoning`, `tool_started`,
    `tool_finished`, `approval_requested`, `approval_answered`, `response`, `notice`, `titled`, `turn_ended`. Send the
    last id back as `Last-Event-ID` to go on where a stream was cut off. A `change` says that what is stored
    has another revision now: read it.
    """
    opened = await found(account, session)
    last = stream.Cursor.read(request.headers.get("last-event-id"))
    return stream.respond(account, stream.of_session(account, opened.id, opened.revision, last))


ROUTES: list[Any] = [
    say, edit_message, regenerate, retry, carry_on, stop, list_commands, run_command, follow_session,
]  # fmt: skip
