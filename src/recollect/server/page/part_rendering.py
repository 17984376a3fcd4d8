"""Parts of a message as HTML: text, reasoning, a tool call with its result, a file.

A part is one element. Stored and streaming parts are rendered alike, so nothing in the page changes when an answer
is complete.
"""

from __future__ import annotations

import json as indented
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import markupsafe

from recollect.formats import display
from recollect.model import humanize, json
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.server import attachments
from recollect.server.page.templating import render_template
from recollect.server.path_segments import encode_path_segment

MAX_SHOWN_OUTPUT = 20_000
"""Characters of a tool's output in the conversation, several screens; the panel shows all of it."""

SHOWN_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif")
_MINUTE_MS = 60_000  # milliseconds
_MAX_ARGUMENT_LENGTH = 120  # characters of an argument in the title of a card: one line on a wide screen
_KEY_ARGUMENTS = (
    "query", "command", "cmd", "file_path", "path", "filename", "url", "pattern", "expression", "question", "task",
    "prompt", "description", "name", "title", "id", "text",
)  # fmt: skip


class StoredResult(NamedTuple):
    """The result of a tool call, and the message and part that store it."""

    part: ToolResultPart
    message: str | None = None
    latency_ms: int | None = None
    part_index: int = 0


class ToolCard(NamedTuple):
    """The values of the template of a tool call."""

    tool: str
    status: str
    argument: str
    arguments: str
    output: str | None
    is_complete: bool
    duration: str
    part_ref: str | None
    result: str | None
    session: str | None
    files: Sequence[str]


def render_text(html: str) -> str:
    """Wrap rendered Markdown in its element."""
    return f'<div class="prose">{html}</div>'


def render_reasoning(text: str, *, thinking: bool = False, milliseconds: int | None = None) -> str:
    """Render reasoning, collapsed."""
    return render_template("reasoning.html", text=text, thinking=thinking, duration=_format_seconds(milliseconds))


def _format_seconds(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    return (
        f"{max(round(milliseconds / 1000), 1)} s"
        if milliseconds < _MINUTE_MS
        else humanize.format_duration(milliseconds)
    )


def render_tool_call(
    call: ToolCallPart,
    result: StoredResult | None,
    *,
    pending_status: str,
    part_ref: str | None = None,
    sessions: Sequence[str] = (),
    files: Sequence[str] = (),
) -> str:
    """Render a tool call. `pending_status` is its status without a result: running, pending or cancelled."""
    status = pending_status if result is None else result.part.status
    arguments = call.input
    output = None if result is None else output_text(result.part)
    card = ToolCard(
        tool=call.tool,
        status=status,
        argument=summarize_arguments(arguments),
        arguments=pretty_json(arguments),
        output=None if output is None else output[:MAX_SHOWN_OUTPUT],
        is_complete=output is None or len(output) <= MAX_SHOWN_OUTPUT,
        duration="" if result is None else humanize.format_duration(result.latency_ms),
        part_ref=part_ref,
        result=None if result is None else result.message,
        session=next((name for name in sessions if _is_delegate_of(name, call.tool)), None),
        files=files,
    )
    return render_template("card.html", card=card)


def _is_delegate_of(session: str, tool: str) -> bool:
    return tool.startswith("ask_") and session.endswith(f":delegate:{tool.removeprefix('ask_')}")


def render_orphan_result(part: ToolResultPart, session: str, message: str, index: int) -> str:
    """Render a tool result whose call is not in the shown range."""
    call = ToolCallPart(call_id=part.call_id, tool=part.tool or "tool", arguments=json.UNSET)
    files = render_result_files(part, session, message, index)
    return render_tool_call(call, StoredResult(part, message), pending_status="pending", part_ref=None, files=files)


def output_text(part: ToolResultPart) -> str:
    """Return a tool result as text; structured data as indented JSON."""
    if part.text is None and part.content is None and part.data is not json.UNSET:
        return pretty_json(part.data)
    output = part.output
    if not output and part.error_message:
        return part.error_message
    return output


def pretty_json(value: Any) -> str:
    """Return a value as indented JSON; a string unchanged."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return indented.dumps(value, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def summarize_arguments(arguments: Any) -> str:
    """Return the most telling argument on one line."""
    if isinstance(arguments, dict):
        names = [name for name in _KEY_ARGUMENTS if name in arguments] or list(arguments)
        plain = [arguments[name] for name in names if isinstance(arguments[name], str | int | float)]
        arguments = plain[0] if plain else (json.encode_standard(arguments) if arguments else "")
    line = " ".join(str("" if arguments is None else arguments)[: _MAX_ARGUMENT_LENGTH * 4].split())
    return humanize.truncate(line, _MAX_ARGUMENT_LENGTH)


def file_url(session: str, message: str, part: int, piece: int | None = None) -> str:
    """Return the URL of a file."""
    return f"/files/{encode_path_segment(session)}/{message}/{part}" + ("" if piece is None else f".{piece}")


def render_attachment(part: AttachmentPart, url: str | None) -> str:
    """Render an attachment: an image inline, anything else as a download link."""
    media_type = (part.mime_type or "").lower()
    is_stored = part.data is not None or (part.url or "").startswith("data:")
    size = part.size if part.size is not None else _byte_size(part)
    name = part.name or ("Image" if media_type.startswith("image/") else "File")
    image = is_stored and media_type in SHOWN_IMAGE_TYPES
    return render_template(
        "attachment.html",
        name=name,
        kind=media_type,
        size="" if size is None else humanize.format_size(size),
        image=image,
        pixels=_shown_dimensions(part) if image else None,
        url=url if is_stored or part.text is not None else None,
        elsewhere=part.url if not is_stored and (part.url or "").startswith(("https://", "http://")) else None,
        text=part.text,
    )


def _byte_size(part: AttachmentPart) -> int | None:
    if part.text is not None:
        return len(part.text.encode("utf-8", "replace"))
    data = _base64_data(part)
    return len(data) * 3 // 4 - data[-2:].count("=") if data else None


def _base64_data(part: AttachmentPart) -> str:
    return part.data if part.data is not None else (part.url or "").partition(";base64,")[2]


def _shown_dimensions(part: AttachmentPart) -> attachments.ImageDimensions | None:
    """Return the size at which the page shows an image, or None if its first bytes do not contain it."""
    dimensions = attachments.read_image_dimensions(_base64_data(part))
    return None if dimensions is None else dimensions.fit_to_page()


def render_data(part: DataPart) -> str:
    """Render data without a common field, collapsed."""
    value = part.native if part.data is json.UNSET else part.data
    text = pretty_json(value)
    more = len(text) - MAX_SHOWN_OUTPUT
    label = next(iter(value)) if isinstance(value, dict) and list(value) == [display.REMAINDER_LABEL] else "data"
    return render_template(
        "data.html",
        label=label,
        text=text[:MAX_SHOWN_OUTPUT],
        more=humanize.pluralize(more, "more character") if more > 0 else "",
    )


def render_result_files(part: ToolResultPart, session: str, message: str, index: int) -> list[str]:
    """Render the files of a tool result."""
    return [
        render_attachment(piece, file_url(session, message, index, number))
        for number, piece in enumerate(part.content or ())
        if isinstance(piece, AttachmentPart)
    ]


def render_part(part: Part, session: str, message: Message, index: int, prose: Mapping[str, str]) -> str | None:
    """Render a part other than a tool call or result; None if it shows nothing. `prose` maps texts to HTML."""
    match part:
        case TextPart():
            return render_text(prose[part.text]) if part.text.strip() else None
        case ReasoningPart():
            milliseconds = (part.metadata or {}).get("duration_ms")
            return (
                render_reasoning(part.text, milliseconds=milliseconds if type(milliseconds) is int else None)
                if part.text.strip()
                else None
            )
        case AttachmentPart():
            return render_attachment(part, file_url(session, message.id, index))
        case DataPart():
            return render_data(part)
        case _:
            return None


def trusted_html(html: str) -> markupsafe.Markup:
    """Mark HTML as safe. Only for HTML that a template or the cleaner produced."""
    return markupsafe.Markup(html)  # noqa: S704  from our templates, or cleaned
