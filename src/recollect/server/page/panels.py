"""What the panel on the right shows of a conversation: its details, its branches, a tool call, what was summed up."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.exceptions import NotFoundException

from recollect.agent.session_commands import resume_hint
from recollect.model import amount
from recollect.model.message import Message
from recollect.model.part import ToolCallPart, ToolResultPart
from recollect.model.session import Session
from recollect.model.tool_call import ToolCall
from recollect.server.account import Account
from recollect.server.names import session_id
from recollect.server.page import branching, items, parts
from recollect.server.page.clock import clock_of
from recollect.server.page.conversation import header, opened
from recollect.server.page.template import answer
from recollect.store_async import AsyncSession

_AT = "/page/conversation/{session:str}"
_Asked = Request[Any, Any, Any]


@get(f"{_AT}/details", include_in_schema=False)
async def details(request: _Asked, account: Account, session: str) -> Response[str]:
    """Show what is known about a session."""
    found = await opened(account, session_id(session))
    clock = clock_of(request.cookies)
    shown = await header(account, found)
    info: Session = found.info
    [messages] = await account.store.shown_counts([info])
    rows = [
        ("Title", shown["title"]),
        ("Session", info.id),
        ("Model", shown["model"]),
        ("Status", info.status),
        ("Task", info.task),
        ("Channel", info.channel),
        ("Begun", clock.exact(info.created_at)),
        ("Last message", clock.exact(info.last_message_at) if info.last_message_at else None),
        ("Messages", f"{messages:,}"),
        ("Window", f"{shown['used']} of {shown['window']} tokens ({shown['percent']} %)"),
        ("Spent", f"{amount.count(info.input_tokens)} tokens in, {amount.count(info.output_tokens)} out"),
        ("Branches", str(shown["branches"])),
        ("Sub-agents", str(info.delegate_count) if info.delegate_count else None),
        ("Folder", info.working_dir),
        ("Known elsewhere as", info.external_id),
        ("In the terminal", resume_hint(found)),
    ]
    extra = parts.pretty(info.metadata) if info.metadata else ""
    return answer("details.html", rows=[row for row in rows if row[1]], prompt=info.system_prompt, extra=extra)


@get(f"{_AT}/branches", include_in_schema=False)
async def branches(request: _Asked, account: Account, session: str) -> Response[str]:
    """Show the tree of branches."""
    found = await opened(account, session_id(session))
    tree = await branching.tree(found, await found.branches())
    return answer("branches.html", tree=tree, clock=clock_of(request.cookies), many=amount.many)


@get(f"{_AT}/tool/{{place:str}}", include_in_schema=False)
async def tool(account: Account, session: str, place: str) -> Response[str]:
    """Show a tool call with all of its result."""
    found = await opened(account, session_id(session))
    name, _, index = place.rpartition(".")
    message = await found.message(name)
    number = int(index) if index.isascii() and index.isdecimal() and len(index) < 6 else -1  # noqa: PLR2004
    part = message.parts[number] if 0 <= number < len(message.parts) else None
    if not isinstance(part, ToolCallPart):
        raise NotFoundException("There is no tool call in this place.")
    call = await _call(found, message, part)
    result = None if call is None else await _result(found, call)
    output = None if result is None else parts.shown_output(result)
    fields = {
        "call": part, "arguments": parts.pretty(part.input), "output": output,
        "status": "pending" if call is None else call.status, "told": None if call is None else call.error_message,
    }  # fmt: skip
    return answer("tool.html", **fields)


async def _call(session: AsyncSession, message: Message, part: ToolCallPart) -> ToolCall | None:
    known = [item for item in await session.tool_calls() if item.message == message.id and item.call_id == part.call_id]
    return known[0] if known else None


async def _result(session: AsyncSession, call: ToolCall) -> ToolResultPart | None:
    if call.result_message is None:
        return None
    answer = await session.message(call.result_message)
    part = answer.parts[call.result_part or 0]
    return part if isinstance(part, ToolResultPart) else None


@get(f"{_AT}/fold/{{round_:int}}", include_in_schema=False)
async def fold(
    request: _Asked, account: Account, session: str, round_: int, before: int | None = None
) -> Response[str]:
    """Give the messages that a summary stands for."""
    found = await opened(account, session_id(session))
    chosen = next((item for item in await found.compactions() if item.round == round_), None)
    if chosen is None:
        raise NotFoundException("This was not summed up, or it was undone.")
    view = await items.folded(account, found, clock_of(request.cookies), chosen, before)
    return answer("fold_items.html", view=view, round=round_, safe=parts.safe)


@get(f"{_AT}/text", include_in_schema=False)
async def text(account: Account, session: str, first: str, last: str) -> Response[str]:
    """Give what an agent said from one message to another, as Markdown, to be copied."""
    found = await opened(account, session_id(session))
    begin, end = await found.message(first), await found.message(last)
    count = min(max(end.position - begin.position + 1, 1), items.MOST)
    messages = await found.messages(count, before=end.position + 1)
    said = "\n\n".join(m.text.strip() for m in messages if m.position >= begin.position and m.text.strip())
    return Response(said, media_type="text/plain")


ROUTES: list[Any] = [details, branches, tool, fold, text]
