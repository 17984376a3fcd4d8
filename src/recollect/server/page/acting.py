"""What the page sends when a person does something in a conversation. The work is in server/actions.py."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, post
from litestar.datastructures import UploadFile

from recollect.errors import InvalidValue
from recollect.model.session import SessionChanges
from recollect.server import actions
from recollect.server.account import Account
from recollect.server.names import session_id
from recollect.server.page.conversation import MODELS, opened
from recollect.server.page.rendering import rendered
from recollect.server.page.uploads import attached

_AT = "/page/conversation/{session:str}"
_REMEMBERED_MODELS = 8
_Asked = Request[Any, Any, Any]


class Edit(msgspec.Struct):
    """Something else in the place of a message."""

    message: str
    text: str


class At(msgspec.Struct):
    """A message, or none: the last."""

    message: str | None = None


class Pin(msgspec.Struct):
    """Whether a message is always sent to the model."""

    message: str
    pinned: bool


def _key(request: _Asked) -> str | None:
    return request.headers.get("idempotency-key")


def _begun(said: actions.Said) -> dict[str, str]:
    return {"session": said.session, "turn": said.turn}


@post(f"{_AT}/say", include_in_schema=False, status_code=202)
async def say(request: _Asked, account: Account, session: str) -> dict[str, str]:
    """Say something, with files."""
    form = await request.form()
    given = [file for file in form.getall("files", []) if isinstance(file, UploadFile)]
    text, *more = form.getall("text", [""])
    if more or not isinstance(text, str):
        raise InvalidValue("The text of a message is text.")
    said = await actions.say(
        account, session_id(session), text.replace("\r\n", "\n"), await attached(given), key=_key(request),
        take_over=form.get("take_over") == "yes", asks=True,
    )  # fmt: skip
    return _begun(said)


@post(f"{_AT}/edit", include_in_schema=False, status_code=202)
async def edit(request: _Asked, account: Account, session: str, data: Edit) -> dict[str, str]:
    """Say something else in the place of a message."""
    return _begun(
        await actions.edit(account, session_id(session), data.message, data.text, key=_key(request), asks=True)
    )


@post(f"{_AT}/regenerate", include_in_schema=False, status_code=202)
async def regenerate(request: _Asked, account: Account, session: str, data: At) -> dict[str, str]:
    """Ask again."""
    return _begun(await actions.regenerate(account, session_id(session), data.message, key=_key(request), asks=True))


@post(f"{_AT}/retry", include_in_schema=False, status_code=202)
async def retry(request: _Asked, account: Account, session: str) -> dict[str, str]:
    """Ask the last question again."""
    return _begun(await actions.retry(account, session_id(session), key=_key(request), asks=True))


@post(f"{_AT}/carry-on", include_in_schema=False, status_code=202)
async def carry_on(request: _Asked, account: Account, session: str) -> dict[str, str]:
    """Ask for the rest of an answer."""
    return _begun(await actions.carry_on(account, session_id(session), key=_key(request), asks=True))


@post(f"{_AT}/stop", include_in_schema=False, status_code=200)
async def stop(account: Account, session: str) -> dict[str, bool]:
    """End the answer that comes."""
    return {"stopped": await actions.stop(account, session_id(session))}


@post(f"{_AT}/command", include_in_schema=False, status_code=200)
async def command(account: Account, session: str, data: dict[str, str]) -> dict[str, Any]:
    """Run a slash command."""
    done = await actions.command(account, session_id(session), data.get("line", ""))
    outcome = done.outcome
    html = await rendered([outcome.text]) if outcome.text else {}
    return {
        "session": done.session,
        "html": html.get(outcome.text, ""),
        "action": outcome.action,
        "data": outcome.data if isinstance(outcome.data, str) else None,
        "failed": outcome.failed,
    }


@post(f"{_AT}/switch", include_in_schema=False, status_code=200)
async def switch(account: Account, session: str, data: dict[str, int]) -> dict[str, int]:
    """Step to another branch."""
    found = await opened(account, session_id(session))
    await found.switch(data.get("branch", 0))
    return {"revision": found.revision}


@post(f"{_AT}/fork", include_in_schema=False, status_code=201)
async def fork(account: Account, session: str, data: At) -> dict[str, str]:
    """Make a new session that shares the past up to a message."""
    found = await opened(account, session_id(session))
    title: SessionChanges = {"title": f"{found.title} (fork)"} if found.title else {}
    return {"session": (await found.fork(data.message, **title)).id}


@post(f"{_AT}/compact", include_in_schema=False, status_code=200)
async def compact(account: Account, session: str) -> dict[str, Any]:
    """Have what is old summed up for the model."""
    found = await opened(account, session_id(session))
    talk = await account.talks.talk(found)
    made = await talk.compact()
    return {"round": made.round}


@post(f"{_AT}/undo-compaction", include_in_schema=False, status_code=200)
async def undo_compaction(account: Account, session: str, data: dict[str, int]) -> dict[str, int]:
    """Send what was summed up on to the model again."""
    found = await opened(account, session_id(session))
    await found.undo_compaction(data.get("round"))
    return {"revision": found.revision}


@post(f"{_AT}/pin-message", include_in_schema=False, status_code=200)
async def pin_message(account: Account, session: str, data: Pin) -> dict[str, bool]:
    """Keep a message in all that is sent to the model, or no longer."""
    found = await opened(account, session_id(session))
    await (found.pin_message if data.pinned else found.unpin_message)(data.message)
    return {"pinned": data.pinned}


@post(f"{_AT}/model", include_in_schema=False, status_code=200)
async def model(account: Account, session: str, data: dict[str, str]) -> dict[str, str | None]:
    """Choose the model of a session, and remember it among those to choose from."""
    name = data.get("model", "").strip()
    found = await actions.choose_model(account, session_id(session), name or None)
    if name:
        known: Any = await account.store.setting(MODELS, [])
        kept = [name, *(other for other in known if isinstance(other, str) and other != name)]
        await account.store.set_setting(MODELS, kept[:_REMEMBERED_MODELS])
    return {"model": found.model}


ROUTES: list[Any] = [
    say, edit, regenerate, retry, carry_on, stop, command, switch, fork, compact, undo_compaction, pin_message, model,
]  # fmt: skip
