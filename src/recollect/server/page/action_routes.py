"""Routes for actions on a conversation or on a row of the list.

The work is done in server/actions.py and in the store.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from litestar import Request, delete, patch, post
from litestar.datastructures import UploadFile

from recollect.errors import InvalidValue
from recollect.model.session import SessionChanges
from recollect.server import actions
from recollect.server.account import Account
from recollect.server.attachments import read_uploads
from recollect.server.page.conversation import open_conversation, remember_model
from recollect.server.page.markdown_rendering import render_texts
from recollect.server.page.session_rows import COLORS
from recollect.server.path_segments import decode_path_segment

_CONVERSATION_PATH = "/page/conversation/{session:str}"
_AnyRequest = Request[Any, Any, Any]


class EditRequest(msgspec.Struct):
    """A new text for a user message."""

    message: str
    text: str


class MessageTarget(msgspec.Struct):
    """A message; without an id, the last one."""

    message: str | None = None


class PinRequest(msgspec.Struct):
    """Whether a message stays in the context of the model."""

    message: str
    pinned: bool


def _idempotency_key(request: _AnyRequest) -> str | None:
    return request.headers.get("idempotency-key")


def _started_turn(started_turn: actions.StartedTurn) -> dict[str, str]:
    return {"session": started_turn.session, "turn": started_turn.turn}


@post(f"{_CONVERSATION_PATH}/say", include_in_schema=False, status_code=202)
async def send_message(request: _AnyRequest, account: Account, session: str) -> dict[str, str]:
    """Send a message with files."""
    form = await request.form()
    uploads = [file for file in form.getall("files", []) if isinstance(file, UploadFile)]
    text, *more = form.getall("text", [""])
    if more or not isinstance(text, str):
        raise InvalidValue("text must be one text field.")
    started_turn = await actions.send_message(
        account, decode_path_segment(session), text.replace("\r\n", "\n"), await read_uploads(uploads),
        key=_idempotency_key(request), take_over=form.get("take_over") == "yes", wait_for_approval=True,
    )  # fmt: skip
    return _started_turn(started_turn)


@post(f"{_CONVERSATION_PATH}/edit", include_in_schema=False, status_code=202)
async def edit_message(request: _AnyRequest, account: Account, session: str, data: EditRequest) -> dict[str, str]:
    """Replace a user message on a new branch and answer it."""
    return _started_turn(
        await actions.edit_message(
            account,
            decode_path_segment(session),
            data.message,
            data.text,
            key=_idempotency_key(request),
            wait_for_approval=True,
        )
    )


@post(f"{_CONVERSATION_PATH}/regenerate", include_in_schema=False, status_code=202)
async def regenerate(request: _AnyRequest, account: Account, session: str, data: MessageTarget) -> dict[str, str]:
    """Answer a question again on a new branch."""
    return _started_turn(
        await actions.regenerate(
            account, decode_path_segment(session), data.message, key=_idempotency_key(request), wait_for_approval=True
        )
    )


@post(f"{_CONVERSATION_PATH}/retry", include_in_schema=False, status_code=202)
async def retry(request: _AnyRequest, account: Account, session: str) -> dict[str, str]:
    """Retry the last question."""
    return _started_turn(
        await actions.retry(
            account, decode_path_segment(session), key=_idempotency_key(request), wait_for_approval=True
        )
    )


@post(f"{_CONVERSATION_PATH}/carry-on", include_in_schema=False, status_code=202)
async def continue_answer(request: _AnyRequest, account: Account, session: str) -> dict[str, str]:
    """Ask the model to continue an answer."""
    return _started_turn(
        await actions.continue_answer(
            account, decode_path_segment(session), key=_idempotency_key(request), wait_for_approval=True
        )
    )


@post(f"{_CONVERSATION_PATH}/stop", include_in_schema=False, status_code=200)
async def stop_answer(account: Account, session: str) -> dict[str, bool]:
    """Stop the running answer."""
    return {"stopped": await actions.stop_answer(account, decode_path_segment(session))}


@post(f"{_CONVERSATION_PATH}/command", include_in_schema=False, status_code=200)
async def run_command(account: Account, session: str, data: dict[str, str]) -> dict[str, Any]:
    """Run a slash command."""
    result = await actions.run_command(account, decode_path_segment(session), data.get("line", ""))
    outcome = result.outcome
    html = await render_texts([outcome.text]) if outcome.text else {}
    return {
        "session": result.session,
        "html": html.get(outcome.text, ""),
        "action": outcome.action,
        "data": outcome.data if isinstance(outcome.data, str) else None,
        "failed": outcome.failed,
    }


@post(f"{_CONVERSATION_PATH}/switch", include_in_schema=False, status_code=200)
async def switch_branch(account: Account, session: str, data: dict[str, int]) -> dict[str, int]:
    """Switch to another branch."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    await session_handle.branches.switch(data.get("branch", 0))
    return {"revision": session_handle.revision}


@post(f"{_CONVERSATION_PATH}/fork", include_in_schema=False, status_code=201)
async def fork_conversation(account: Account, session: str, data: MessageTarget) -> dict[str, str]:
    """Fork a session at a message."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    title: SessionChanges = {"title": f"{session_handle.title} (fork)"} if session_handle.title else {}
    return {"session": (await session_handle.fork(data.message, **title)).id}


@post(f"{_CONVERSATION_PATH}/compact", include_in_schema=False, status_code=200)
async def compact(account: Account, session: str) -> dict[str, Any]:
    """Compact the older messages with a summary by the model."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    conversation = await account.runner.conversation(session_handle)
    compaction = await conversation.compact()
    return {"round": compaction.round}


@post(f"{_CONVERSATION_PATH}/undo-compaction", include_in_schema=False, status_code=200)
async def undo_compaction(account: Account, session: str, data: dict[str, int]) -> dict[str, int]:
    """Undo a compaction."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    await session_handle.compactions.undo(data.get("round"))
    return {"revision": session_handle.revision}


@post(f"{_CONVERSATION_PATH}/pin-message", include_in_schema=False, status_code=200)
async def pin_message(account: Account, session: str, data: PinRequest) -> dict[str, bool]:
    """Pin a message in the context of the model, or unpin it."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    await session_handle.mark_message(data.message, {"pinned": data.pinned or None})
    return {"pinned": data.pinned}


@post(f"{_CONVERSATION_PATH}/model", include_in_schema=False, status_code=200)
async def choose_model(account: Account, session: str, data: dict[str, str]) -> dict[str, str | None]:
    """Set the model of a session, and add it to the models of the menu."""
    name = data.get("model", "").strip()
    session_handle = await actions.choose_model(account, decode_path_segment(session), name or None)
    if name:
        await remember_model(account, name)
    return {"model": session_handle.model}


ACTION_ROUTES: list[Any] = [
    send_message, edit_message, regenerate, retry, continue_answer, stop_answer, run_command, switch_branch,
    fork_conversation, compact, undo_compaction, pin_message, choose_model,
]  # fmt: skip


_MAX_TITLE_LENGTH = 500  # characters; the title field has the same limit


class SessionUpdateRequest(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Fields to change. Fields that are not sent do not change."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    color: Literal["", *COLORS] | msgspec.UnsetType = msgspec.UNSET  # type: ignore[valid-type]  # pyright: ignore[reportInvalidTypeForm]

    def fields(self) -> dict[str, Any]:
        """Return the arguments for update()."""
        values: dict[str, Any] = {
            name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not msgspec.UNSET
        }
        if "title" in values:
            values["title"] = " ".join((values["title"] or "").split())[:_MAX_TITLE_LENGTH] or None
        if "color" in values:
            values["color"] = values["color"] or None
        return values


class EraseRequest(msgspec.Struct):
    """Whether to erase a session whose messages forks share."""

    forks: Literal["refuse", "keep"] = "refuse"


@patch("/page/session/{session:str}", include_in_schema=False)
async def update_session(account: Account, session: str, data: SessionUpdateRequest) -> dict[str, str | None]:
    """Change fields of a session."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    fields = data.fields()
    if fields:
        await session_handle.update(**fields)
    return {"session": session_handle.id, "title": session_handle.title}


@post("/page/session/{session:str}/fork", include_in_schema=False, status_code=201)
async def fork_session(account: Account, session: str) -> dict[str, str]:
    """Fork a session at its end."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    title: SessionChanges = (
        {"title": f"{session_handle.title[: _MAX_TITLE_LENGTH - 7]} (fork)"} if session_handle.title else {}
    )
    return {"session": (await session_handle.fork(**title)).id}


@delete("/page/session/{session:str}", include_in_schema=False, status_code=200)
async def delete_session(account: Account, session: str) -> dict[str, str]:
    """Move a session to the trash. A running turn is stopped first; its messages are kept."""
    name = decode_path_segment(session)
    await account.runner.stop_and_wait(name)
    await account.store.delete_session(name)
    return {"session": name}


@post("/page/session/{session:str}/restore", include_in_schema=False, status_code=200)
async def restore_session(account: Account, session: str) -> dict[str, str]:
    """Restore a session from the trash."""
    return {"session": (await account.store.restore_session(decode_path_segment(session))).id}


@post("/page/session/{session:str}/erase", include_in_schema=False, status_code=200)
async def erase_session(account: Account, session: str, data: EraseRequest) -> dict[str, list[str]]:
    """Erase a session in the trash permanently."""
    name = decode_path_segment(session)
    return {"erased": await account.store.erase_session(name, forks=data.forks, deleted=True)}


@post("/page/trash/empty", include_in_schema=False, status_code=200)
async def empty_trash(account: Account) -> dict[str, int]:
    """Erase all sessions in the trash permanently."""
    report = await account.store.maintenance.empty_trash()
    return {"erased": len(report.sessions)}


SESSION_ROUTES: list[Any] = [update_session, fork_session, delete_session, restore_session, erase_session, empty_trash]
