"""Approvals: the tool of an MCP server that waits in a session, and the answer whether it may run."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post

from recollect.agent import approvals
from recollect.agent.approvals import Approval, Decision
from recollect.server.account import Account
from recollect.server.api.answer import SessionPath, found, told

TAGS = ["chat"]
_SHOWN = ("id", "session", "call_id", "server", "tool", "arguments", "who")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool that waits for approval."""

    id: str
    session: str
    call_id: str
    server: Annotated[str, msgspec.Meta(description="The name of the MCP server.")]
    tool: Annotated[str, msgspec.Meta(description="The name of the tool on its server.")]
    arguments: Any
    who: Annotated[str, msgspec.Meta(description="Who asked, such as `discord:12`; empty for the owner.")]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The call that waits, if there is one."""

    approval: Question | None


class Answer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whether a tool may run: this call, the tool in this session, the tool always, or not."""

    id: Annotated[str, msgspec.Meta(description="The id of the question, so that no other one is answered.")]
    decision: Decision


def _plain(approval: Approval | None) -> dict[str, Any] | None:
    return None if approval is None else {name: getattr(approval, name) for name in _SHOWN}


@get("/sessions/{session:str}/approval", tags=TAGS, operation_id="get_approval")
async def get_approval(account: Account, session: SessionPath) -> Response[Waiting]:
    """Show the call of a tool that waits for approval in a session, whichever process runs the turn."""
    return told({"approval": _plain(await approvals.waiting(await found(account, session)))})


@post("/sessions/{session:str}/approval", tags=TAGS, operation_id="answer_approval", status_code=200)
async def answer_approval(account: Account, session: SessionPath, data: Answer) -> Response[Waiting]:
    """Allow a tool that waits to run, or not. Answers with the question that was answered."""
    return told({"approval": _plain(await approvals.answer(await found(account, session), data.decision, data.id))})


ROUTES: list[Any] = [get_approval, answer_approval]
