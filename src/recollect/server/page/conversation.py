"""Routes of a conversation that return HTML: the page, its items, the panels on the right, and its files."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.exceptions import NotFoundException
from litestar.response import Redirect

from recollect.agent.commands import COMMANDS, is_empty, resume_hint
from recollect.agent.last_session import read_last_session, store_last_session
from recollect.agent.models import DEMO, callable_model
from recollect.errors import InvalidValue, MessageNotFound, SessionInTrash, SessionNotFound
from recollect.model import humanize
from recollect.model.message import AttachmentPart, Message, ToolCall, ToolCallPart, ToolResultPart
from recollect.model.session import SessionInfo
from recollect.server import attachments
from recollect.server.account import Account
from recollect.server.attachments import UPLOAD_LIMITS
from recollect.server.page import branching, item_rendering, part_rendering
from recollect.server.page.branching import newest_branch
from recollect.server.page.clock import clock_of
from recollect.server.page.document import page_response
from recollect.server.page.part_rendering import SHOWN_IMAGE_TYPES
from recollect.server.page.session_rows import session_title
from recollect.server.page.templating import html_response, render_template, template_response
from recollect.server.path_segments import decode_path_segment, encode_path_segment
from recollect.server.transfer import content_disposition
from recollect.store_async import AsyncSession

_MODELS_KIND, _MODELS_KEY = "web.models", "recent"  # the record with the models that were chosen in the page
_MAX_SHOWN_MODELS = 8  # models in the menu, without scrolling
_EXCERPT_LENGTH = 2_000  # characters of a message on another branch: enough to recognize it


class ItemsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The shown range of a conversation, and what to return: its changes (`news`), or the page before or after it."""

    first: int = 1
    last: int | None = None
    have: dict[str, str] = {}
    want: str = "news"


async def open_conversation(account: Account, name: str) -> AsyncSession:
    """Return a session without changing its activity. Raise SessionNotFound."""
    session = await account.store.get_session(name)
    if session is None:
        raise SessionNotFound(f"There is no conversation {name!r}. It may be in the trash.", session=name)
    return session


async def empty_or_new_session(account: Account, fields: dict[str, Any], besides: Any = None) -> AsyncSession:
    """Return an empty session: the last one if it is empty, otherwise a new one.

    `besides` is a session to which a message is being sent; it may still look empty.
    """
    last = await read_last_session(account.store)
    reusable = last is not None and last.id != besides and not fields
    if last is not None and reusable and await is_empty(last):
        return last
    return await account.store.session(**fields)


def model_of(account: Account, session: AsyncSession) -> str:
    """Return the name of the model that a session continues with."""
    return callable_model(session.model) or account.agent.model_name


async def recent_models(account: Account) -> list[str]:
    """Return the models that were chosen in the page, last one first."""
    record = await account.store.records.get(_MODELS_KIND, _MODELS_KEY)
    names: Any = [] if record is None else record.value
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


async def remember_model(account: Account, name: str) -> None:
    """Add a model to the models of the menu, as the first one."""
    names = [name, *(other for other in await recent_models(account) if other != name)]
    await account.store.records.put(_MODELS_KIND, _MODELS_KEY, names[:_MAX_SHOWN_MODELS])


async def header_values(account: Account, session: AsyncSession) -> dict[str, Any]:
    """Return the values of the header."""
    model = model_of(account, session)
    window = account.agent.window_of(model)
    is_compacted = any(compaction.undone_at_ms is None for compaction in await session.compactions.list())
    used = await session.active_tokens() if is_compacted else session.token_count
    candidates = [model, account.agent.model_name, *(await recent_models(account)), DEMO]
    return {
        "session": session,
        "title": await session_title(session),
        "parent": session.parent,
        "model": model,
        "models": list(dict.fromkeys(candidates))[:_MAX_SHOWN_MODELS],
        "used": humanize.format_count(used),
        "window": humanize.format_count(window),
        "percent": min(round(100 * used / max(window, 1)), 100),
        "branches": len(await session.branches.list()),
    }


async def _render_conversation(
    request: Request[Any, Any, Any], account: Account, session: AsyncSession, target: str | None
) -> str:
    """Return a conversation as HTML, at its end or at the linked message."""
    clock = clock_of(request.cookies)
    revision, view = session.revision, None
    message = None if target is None else await _find_message(session, target)
    is_on_path = message is not None and await _is_active(session, message)
    if message is not None and is_on_path:
        view = await item_rendering.read_around(account, session, clock, position=message.position)
    view = view or await item_rendering.read_latest(account, session, clock)
    await session.refresh()
    commands = [[command.name, command.arguments, command.help] for command in COMMANDS.values()]
    values = await header_values(account, session)
    # In a thread, because it may be many megabytes.
    return await asyncio.to_thread(
        render_template,
        "conversation.html",
        **values,
        view=view,
        revision=revision,
        safe=part_rendering.trusted_html,
        tags=msgspec.json.encode({item.key: item.tag for item in view.items}).decode(),
        running=_running_turn(account, session.id) is not None,
        target=message.id if message is not None and is_on_path else None,
        elsewhere=None if message is None or is_on_path else {"id": message.id, "text": message.text[:_EXCERPT_LENGTH]},
        demo=values["model"] == DEMO,
        limits=UPLOAD_LIMITS,
        commands=msgspec.json.encode(commands).decode(),
    )


async def _find_message(session: AsyncSession, name: str) -> Message | None:
    """Return the message of a link, on any branch; None if it does not exist."""
    try:
        return await session.message(name)
    except (InvalidValue, MessageNotFound):
        return None


async def _is_active(session: AsyncSession, message: Message) -> bool:
    """Return whether a message is on the active path."""
    at_position = await session.messages(1, before=message.position + 1)
    return bool(at_position) and at_position[0].id == message.id


@get("/", include_in_schema=False)
async def start_page(request: Request[Any, Any, Any], account: Account) -> Response[Any]:
    """Redirect to the last open session, or return a page that creates one."""
    session = await read_last_session(account.store)
    if session is None:
        return await page_response(request, account, title="New chat", template="start.html")
    return Redirect(f"/c/{encode_path_segment(session.id)}", status_code=303)


@get("/c/{session:str}", include_in_schema=False)
async def conversation_page(
    request: Request[Any, Any, Any], account: Account, session: str, m: str | None = None
) -> Response[str]:
    """Return the page with an open session."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    main = await _render_conversation(request, account, session_handle, m)
    title = await session_title(session_handle)
    return await page_response(request, account, title=title, main=main, session=session_handle.id)


@get("/page/conversation/{session:str}", include_in_schema=False)
async def conversation_part(
    request: Request[Any, Any, Any], account: Account, session: str, m: str | None = None
) -> Response[str]:
    """Return a conversation as HTML for a page that is already open."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    return html_response(await _render_conversation(request, account, session_handle, m))


@post("/page/conversation/{session:str}/opened", include_in_schema=False, status_code=204)
async def conversation_opened(account: Account, session: str) -> None:
    """Set the last open session, and mark its abandoned turns."""
    with contextlib.suppress(SessionNotFound, SessionInTrash):  # deleted meanwhile
        await store_last_session(await account.store.session(decode_path_segment(session), create=False))


@post("/page/conversation/{session:str}/show", include_in_schema=False, status_code=200)
async def conversation_show(account: Account, session: str, data: dict[str, str]) -> dict[str, bool]:
    """Switch to the newest branch that contains a message, if it is not on the active path."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    message = await _find_message(session_handle, data.get("message", ""))
    if message is None or await _is_active(session_handle, message):
        return {"switched": False}
    branches = await session_handle.branches.list()
    if any(branch.id == message.branch for branch in branches):
        await session_handle.branches.switch(newest_branch(branches, message.branch, message.position))
    return {"switched": True}


@post("/page/conversation/{session:str}/items", include_in_schema=False, status_code=200)
async def conversation_items(
    request: Request[Any, Any, Any], account: Account, session: str, data: ItemsRequest
) -> dict[str, Any]:
    """Return the changes of the shown range, the page before or after it, or why the session is gone."""
    session_handle = await account.store.get_session(decode_path_segment(session))
    if session_handle is not None:
        with contextlib.suppress(SessionNotFound):  # deleted meanwhile
            return await _items_response(request, account, session_handle, data)
    return {"gone": await _missing_reason(account, decode_path_segment(session))}


async def _items_response(
    request: Request[Any, Any, Any], account: Account, session_handle: AsyncSession, data: ItemsRequest
) -> dict[str, Any]:
    clock = clock_of(request.cookies)
    revision = session_handle.revision  # taken before the messages are read, so that later changes are requested again
    if data.want == "older":
        view = await item_rendering.read_older(account, session_handle, clock, before=data.first)
    elif data.want == "newer":
        view = await item_rendering.read_between(
            account, session_handle, clock, first=(data.last or 0) + 1, last=(data.last or 0) + item_rendering.PAGE_SIZE
        )
    else:
        view = await item_rendering.read_between(account, session_handle, clock, first=data.first, last=data.last)
    await session_handle.refresh()
    head = await header_values(account, session_handle) if data.want == "news" else None
    return {
        "revision": revision,
        "first": view.first,
        "last": view.last,
        "older": view.older,
        "newer": view.newer,
        "turn": _running_turn(account, session_handle.id),
        "items": [[i.key, i.tag, None if data.have.get(i.key) == i.tag else i.html] for i in view.items],
        "header": None if head is None else render_template("header.html", **head),
        "title": await session_title(session_handle),
    }


async def _missing_reason(account: Account, name: str) -> str:
    """Return why a session is missing: "trash" or "erased"."""
    try:
        await account.session(name)
    except SessionInTrash:
        return "trash"
    except SessionNotFound:
        return "erased"
    return "trash"  # restored meanwhile; the page offers to open it


def _running_turn(account: Account, session: str) -> str | None:
    """Return the id of the turn that runs in a session on this server, or None."""
    run = account.runner.run(session)
    return None if run is None or run.ended else run.turn


@post("/page/new", include_in_schema=False, status_code=201)
async def new_session(account: Account, data: dict[str, Any]) -> dict[str, str]:
    """Create a conversation, or return the last one if it is empty."""
    fields = {name: data[name] for name in ("title", "model") if isinstance(data.get(name), str) and data[name]}
    session = await empty_or_new_session(account, fields, data.get("besides"))
    return {"session": session.id}


CONVERSATION_ROUTES: list[Any] = [
    start_page, conversation_page, conversation_part, conversation_opened, conversation_show, conversation_items,
    new_session,
]  # fmt: skip


_CONVERSATION_PATH = "/page/conversation/{session:str}"


@get(f"{_CONVERSATION_PATH}/details", include_in_schema=False)
async def details_panel(request: Request[Any, Any, Any], account: Account, session: str) -> Response[str]:
    """Return the details panel."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    clock = clock_of(request.cookies)
    header = await header_values(account, session_handle)
    info: SessionInfo = session_handle.info
    [messages] = await account.store.shown_counts([info])
    rows = [
        ("Title", header["title"]),
        ("Conversation ID", humanize.escape_unprintable(info.id)),
        ("Model", header["model"]),
        ("Status", info.status),
        ("Task", info.task),
        ("Channel", info.channel),
        ("Started", clock.exact(info.created_at_ms)),
        ("Last message", clock.exact(info.last_message_at_ms) if info.last_message_at_ms else None),
        ("Messages", f"{messages:,}"),
        ("Context", f"{header['used']} of {header['window']} tokens ({header['percent']}%)"),
        ("Tokens used", _tokens_used(info)),
        ("Branches", str(header["branches"])),
        ("Sub-agents", str(info.delegate_count) if info.delegate_count else None),
        ("Folder", info.working_dir),
        ("External ID", info.external_id),
        ("Open in terminal", resume_hint(session_handle)),
    ]
    extra = part_rendering.pretty_json(info.metadata) if info.metadata else ""
    return template_response(
        "details.html", rows=[row for row in rows if row[1]], prompt=info.system_prompt, extra=extra
    )


def _tokens_used(info: SessionInfo) -> str:
    if not info.input_tokens and not info.output_tokens:
        return "none reported"
    return f"{humanize.format_count(info.input_tokens)} in, {humanize.format_count(info.output_tokens)} out"


@get(f"{_CONVERSATION_PATH}/branches", include_in_schema=False)
async def branches_panel(request: Request[Any, Any, Any], account: Account, session: str) -> Response[str]:
    """Return the panel with the tree of branches."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    tree = await branching.branch_tree(session_handle, await session_handle.branches.list())
    return template_response("branches.html", tree=tree, clock=clock_of(request.cookies), many=humanize.pluralize)


@get(f"{_CONVERSATION_PATH}/tool/{{place:str}}", include_in_schema=False)
async def tool_panel(account: Account, session: str, place: str) -> Response[str]:
    """Return the panel of a tool call with its complete result."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    name, _, index = place.rpartition(".")
    message = await session_handle.message(name)
    number = int(index) if index.isascii() and index.isdecimal() and len(index) < 6 else -1  # noqa: PLR2004
    part = message.parts[number] if 0 <= number < len(message.parts) else None
    if not isinstance(part, ToolCallPart):
        raise NotFoundException("Tool call not found.")
    call = await _find_tool_call(session_handle, message, part)
    result = None if call is None else await _find_tool_result(session_handle, call)
    output = None if result is None else part_rendering.output_text(result)
    fields = {
        "call": part, "arguments": part_rendering.pretty_json(part.input), "output": output,
        "status": "pending" if call is None else call.status,
        "error_message": None if call is None else call.error_message,
    }  # fmt: skip
    return template_response("tool.html", **fields)


async def _find_tool_call(session: AsyncSession, message: Message, part: ToolCallPart) -> ToolCall | None:
    calls = [item for item in await session.tools.list() if item.message == message.id and item.call_id == part.call_id]
    return calls[0] if calls else None


async def _find_tool_result(session: AsyncSession, call: ToolCall) -> ToolResultPart | None:
    if call.result_message is None:
        return None
    answer = await session.message(call.result_message)
    part = answer.parts[call.result_part or 0]
    return part if isinstance(part, ToolResultPart) else None


@get(f"{_CONVERSATION_PATH}/fold/{{round_:int}}", include_in_schema=False)
async def compacted_items(
    request: Request[Any, Any, Any], account: Account, session: str, round_: int, before: int | None = None
) -> Response[str]:
    """Return the messages of a compaction as HTML."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    compaction = next((item for item in await session_handle.compactions.list() if item.round == round_), None)
    if compaction is None:
        raise NotFoundException("Summary not found. The compaction may have been undone.")
    view = await item_rendering.read_compacted(account, session_handle, clock_of(request.cookies), compaction, before)
    return template_response("compacted_items.html", view=view, round=round_, safe=part_rendering.trusted_html)


@get(f"{_CONVERSATION_PATH}/text", include_in_schema=False)
async def answer_text(account: Account, session: str, first: str, last: str) -> Response[str]:
    """Return the text of an answer, from one message to another, as Markdown."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    begin, end = await session_handle.message(first), await session_handle.message(last)
    count = min(max(end.position - begin.position + 1, 1), item_rendering.MAX_MESSAGES)
    messages = await session_handle.messages(count, before=end.position + 1)
    markdown = "\n\n".join(m.text.strip() for m in messages if m.position >= begin.position and m.text.strip())
    return Response(markdown, media_type="text/plain")


PANEL_ROUTES: list[Any] = [details_panel, branches_panel, tool_panel, compacted_items, answer_text]


@get("/files/{session:str}/{message:str}/{place:str}", include_in_schema=False)
async def attachment_file(account: Account, session: str, message: str, place: str) -> Response[bytes]:
    """Return a file: an image inline, anything else as a download."""
    session_handle = await open_conversation(account, decode_path_segment(session))
    part = _find_attachment(await session_handle.message(message), place)
    if part is None:
        raise NotFoundException("File not found.")
    media_type = (part.mime_type or "").lower()
    is_image = media_type in SHOWN_IMAGE_TYPES
    disposition = content_disposition(part.name or f"file-{message}-{place}", "inline" if is_image else "attachment")
    headers = {
        "content-security-policy": attachments.FILE_SECURITY_POLICY,
        "content-disposition": disposition,
        "cache-control": "private, max-age=3600",
    }
    return Response(
        attachments.attachment_bytes(part),
        media_type=media_type if is_image else "application/octet-stream",
        headers=headers,
    )


def _find_attachment(message: Message, place: str) -> AttachmentPart | None:
    """Return an attachment by the index of its part, or of its part and content in a tool result (`2.0`)."""
    numbers = place.split(".")
    if len(numbers) > 2 or not all(n.isascii() and n.isdecimal() and len(n) < 6 for n in numbers):  # noqa: PLR2004
        return None
    pieces: Any = message.parts
    part: Any = None
    for number in map(int, numbers):
        if number >= len(pieces):
            return None
        part = pieces[number]
        pieces = part.content or () if isinstance(part, ToolResultPart) else ()
    return part if isinstance(part, AttachmentPart) else None


FILE_ROUTES: list[Any] = [attachment_file]
