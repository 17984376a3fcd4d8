"""The parts of a message as HTML: text, reasoning, a tool call with its result, a file.

A part is one element. What is stored and what is still coming are drawn here alike, so that nothing in the page has to
change when an answer is complete.
"""

from __future__ import annotations

import json as indented
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import markupsafe

from recollect.formats import remainder
from recollect.model import amount, json
from recollect.model.message import Message
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.server.page import dimensions
from recollect.server.page.template import render

SHOWN_OUTPUT = 20_000
"""Characters of a tool's output that stand in the conversation; the panel has all of it."""

SHOWN_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif")
_LINE = 120
_TELLING = (
    "query", "command", "cmd", "file_path", "path", "filename", "url", "pattern", "expression", "question", "task",
    "prompt", "description", "name", "title", "id", "text",
)  # fmt: skip


class Result(NamedTuple):
    """What a tool answered, and where that is stored."""

    part: ToolResultPart
    message: str | None = None
    latency_ms: int | None = None
    place: int = 0


class Card(NamedTuple):
    """A tool call as it is shown."""

    tool: str
    status: str
    argument: str
    arguments: str
    output: str | None
    whole: bool
    duration: str
    place: str | None
    result: str | None
    session: str | None
    files: Sequence[str]


def text(html: str) -> str:
    """Draw what an agent said, which was rendered before."""
    return f'<div class="prose">{html}</div>'


def reasoning(thought: str, *, thinking: bool = False, milliseconds: int | None = None) -> str:
    """Draw what a model thought, folded."""
    return render("reasoning.html", text=thought, thinking=thinking, duration=_seconds(milliseconds))


def _seconds(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    return f"{max(round(milliseconds / 1000), 1)} s" if milliseconds < 60_000 else amount.lasting(milliseconds)  # noqa: PLR2004


def card(
    call: ToolCallPart,
    result: Result | None,
    *,
    unanswered: str,
    place: str | None = None,
    sessions: Sequence[str] = (),
    files: Sequence[str] = (),
) -> str:
    """Draw a tool call. `unanswered` says how it stands where there is no result: running, pending or canceled."""
    status = unanswered if result is None else result.part.status
    arguments = call.input
    output = None if result is None else shown_output(result.part)
    drawn = Card(
        tool=call.tool,
        status=status,
        argument=telling(arguments),
        arguments=pretty(arguments),
        output=None if output is None else output[:SHOWN_OUTPUT],
        whole=output is None or len(output) <= SHOWN_OUTPUT,
        duration="" if result is None else amount.lasting(result.latency_ms),
        place=place,
        result=None if result is None else result.message,
        session=next((name for name in sessions if _is_of(name, call.tool)), None),
        files=files,
    )
    return render("card.html", card=drawn)


def _is_of(session: str, tool: str) -> bool:
    return tool.startswith("ask_") and session.endswith(f":delegate:{tool.removeprefix('ask_')}")


def orphan(part: ToolResultPart, session: str, message: str, index: int) -> str:
    """Draw a tool's result whose call is not in sight."""
    call = ToolCallPart(call_id=part.call_id, tool=part.tool or "tool", arguments=json.UNSET)
    files = files_of(part, session, message, index)
    return card(call, Result(part, message), unanswered="pending", place=None, files=files)


def shown_output(part: ToolResultPart) -> str:
    """Give a tool's result as text; data is laid out."""
    if part.text is None and part.content is None and part.data is not json.UNSET:
        return pretty(part.data)
    output = part.output
    if not output and part.error_message:
        return part.error_message
    return output


def pretty(value: Any) -> str:
    """Lay a value out as JSON; a text that is none stays as it is."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return indented.dumps(value, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def telling(arguments: Any) -> str:
    """Give the argument that matters, on one line."""
    if isinstance(arguments, dict):
        names = [name for name in _TELLING if name in arguments] or list(arguments)
        plain = [arguments[name] for name in names if isinstance(arguments[name], str | int | float)]
        arguments = plain[0] if plain else (json.standard(arguments) if arguments else "")
    line = " ".join(str("" if arguments is None else arguments)[: _LINE * 4].split())
    return line if len(line) <= _LINE else line[: _LINE - 1] + "\u2026"


def address(session: str, message: str, part: int, piece: int | None = None) -> str:
    """Give the address of a file."""
    return f"/files/{quote(session, safe='')}/{message}/{part}" + ("" if piece is None else f".{piece}")


def attachment(part: AttachmentPart, url: str | None) -> str:
    """Draw a file: an image in its place, anything else as a line to save it by."""
    kind = (part.mime_type or "").lower()
    held = part.data is not None or (part.url or "").startswith("data:")
    size = part.size if part.size is not None else _size(part)
    name = part.name or ("Image" if kind.startswith("image/") else "File")
    image = held and kind in SHOWN_IMAGES
    return render(
        "attachment.html",
        name=name,
        kind=kind,
        size="" if size is None else amount.size(size),
        image=image,
        pixels=_pixels(part) if image else None,
        url=url if held or part.text is not None else None,
        elsewhere=part.url if not held and (part.url or "").startswith(("https://", "http://")) else None,
        text=part.text,
    )


def _size(part: AttachmentPart) -> int | None:
    if part.text is not None:
        return len(part.text.encode("utf-8", "replace"))
    data = _base64(part)
    return len(data) * 3 // 4 - data[-2:].count("=") if data else None


def _base64(part: AttachmentPart) -> str:
    return part.data if part.data is not None else (part.url or "").partition(";base64,")[2]


def _pixels(part: AttachmentPart) -> dimensions.Dimensions | None:
    """Return the size at which the page shows an image, if its first bytes tell."""
    found = dimensions.of_base64(_base64(part))
    return None if found is None else found.fitted()


def data(part: DataPart) -> str:
    """Draw data that has no common field, folded."""
    value = part.native if part.data is json.UNSET else part.data
    text = pretty(value)
    more = len(text) - SHOWN_OUTPUT
    label = next(iter(value)) if isinstance(value, dict) and list(value) == [remainder.LABEL] else "data"
    return render(
        "data.html", label=label, text=text[:SHOWN_OUTPUT], more=amount.many(more, "more character") if more > 0 else ""
    )


def files_of(part: ToolResultPart, session: str, message: str, index: int) -> list[str]:
    """Draw the files that a tool answered with."""
    return [
        attachment(piece, address(session, message, index, number))
        for number, piece in enumerate(part.content or ())
        if isinstance(piece, AttachmentPart)
    ]


def drawn(part: Part, session: str, message: Message, index: int, prose: Mapping[str, str]) -> str | None:
    """Draw a part that stands for itself; None where there is nothing to see. `prose` has its text as HTML."""
    match part:
        case TextPart():
            return text(prose[part.text]) if part.text.strip() else None
        case ReasoningPart():
            took = (part.metadata or {}).get("duration_ms")
            return reasoning(part.text, milliseconds=took if type(took) is int else None) if part.text.strip() else None
        case AttachmentPart():
            return attachment(part, address(session, message.id, index))
        case DataPart():
            return data(part)
        case _:
            return None


def safe(made: str) -> markupsafe.Markup:
    """Take HTML that was drawn here as it is."""
    return markupsafe.Markup(made)  # noqa: S704  drawn by a template of ours, or cleaned
