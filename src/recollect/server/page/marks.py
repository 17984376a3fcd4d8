"""What a person does to a session from its row: rename, pin, archive, colour, fork, delete and take back, erase."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from litestar import delete, patch, post

from recollect.model.session import SessionChanges
from recollect.server.account import Account
from recollect.server.names import session_id
from recollect.server.page.conversation import opened
from recollect.server.page.rows import COLORS

_LONGEST_TITLE = 500


class Change(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What to change; what is not named stays."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    color: Literal["", *COLORS] | msgspec.UnsetType = msgspec.UNSET  # type: ignore[valid-type]  # pyright: ignore[reportInvalidTypeForm]

    def fields(self) -> dict[str, Any]:
        """Give it as update() takes it."""
        given: dict[str, Any] = {
            name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not msgspec.UNSET
        }
        if "title" in given:
            given["title"] = " ".join((given["title"] or "").split())[:_LONGEST_TITLE] or None
        if "color" in given:
            given["color"] = given["color"] or None
        return given


class Erasing(msgspec.Struct):
    """What becomes of forks that share the past of what is erased."""

    forks: Literal["refuse", "keep"] = "refuse"


@patch("/page/session/{session:str}", include_in_schema=False)
async def change(account: Account, session: str, data: Change) -> dict[str, str | None]:
    """Change what is known about a session."""
    found = await opened(account, session_id(session))
    fields = data.fields()
    if fields:
        await found.update(**fields)
    return {"session": found.id, "title": found.title}


@post("/page/session/{session:str}/fork", include_in_schema=False, status_code=201)
async def fork(account: Account, session: str) -> dict[str, str]:
    """Make a new session that shares the past of this one."""
    found = await opened(account, session_id(session))
    title: SessionChanges = {"title": f"{found.title[: _LONGEST_TITLE - 7]} (fork)"} if found.title else {}
    return {"session": (await found.fork(**title)).id}


@delete("/page/session/{session:str}", include_in_schema=False, status_code=200)
async def trash(account: Account, session: str) -> dict[str, str]:
    """Put a session in the trash; a turn that runs in it is ended first, and what came is kept."""
    name = session_id(session)
    await account.talks.halt(name)
    await account.store.delete_session(name)
    return {"session": name}


@post("/page/session/{session:str}/restore", include_in_schema=False, status_code=200)
async def restore(account: Account, session: str) -> dict[str, str]:
    """Take a session out of the trash."""
    return {"session": (await account.store.restore_session(session_id(session))).id}


@post("/page/session/{session:str}/erase", include_in_schema=False, status_code=200)
async def erase(account: Account, session: str, data: Erasing) -> dict[str, list[str]]:
    """Erase a session that is in the trash, for good."""
    name = session_id(session)
    return {"erased": await account.store.erase_session(name, forks=data.forks, deleted=True)}


@post("/page/trash/empty", include_in_schema=False, status_code=200)
async def empty(account: Account) -> dict[str, int]:
    """Erase all that is in the trash."""
    report = await account.store.empty_trash()
    return {"erased": len(report.sessions)}


ROUTES: list[Any] = [change, fork, trash, restore, erase, empty]
