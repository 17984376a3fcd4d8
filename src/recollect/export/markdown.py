"""The Markdown renderer of transcripts.

Message text is written unchanged, but it cannot affect the rest of the document: an open code fence is closed, and tags
are escaped.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from recollect.export import safe_markup
from recollect.export.safe_markup import REPLACED_CHARACTERS, sanitize_markdown
from recollect.export.transcript import SPEAKERS, RenderedCall, RenderedMessage, RenderedSummary, SideBranch
from recollect.formats import display
from recollect.model.humanize import escape_unprintable, format_duration, format_size
from recollect.model.json import UNSET
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.session import SessionInfo

_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")


class MarkdownRenderer:
    """Renders the pieces of a Markdown document, with times in a zone; None is the zone of this machine."""

    def __init__(self, zone: datetime.tzinfo | None = None) -> None:
        self._zone = zone

    def begin(self, *, redacted: bool, several: bool) -> bytes:
        """Open the document."""
        note = "*Secrets were masked in this export.*\n\n" if redacted else ""
        return (note + ("# Conversations\n\n" if several else "")).encode()

    def entry(self, number: int, session: SessionInfo, messages: int) -> bytes:  # noqa: ARG002
        """Return the entry of a session in the list of contents."""
        return _encode(f"{number}. {_escape_line(session.title or escape_unprintable(session.id))}\n")

    def contents_end(self) -> bytes:
        """Close the list of contents."""
        return b"\n"

    def session(self, number: int, session: SessionInfo, messages: int, branches: int) -> bytes:
        """Open a session, with its title and its facts."""
        facts = [
            ("ID", _inline_code(escape_unprintable(session.id))),
            ("Model", session.model and _escape_line(session.model)),
            ("Task", session.task and _escape_line(session.task)),
            ("Labels", ", ".join(map(_escape_line, session.labels))),
            ("Status", None if session.status == "active" else session.status),
            ("Started", format_time(session.created_at_ms, self._zone)),
            ("Last message", session.last_message_at_ms and format_time(session.last_message_at_ms, self._zone)),
            ("Messages", str(messages)),
            ("Branches", str(branches) if branches > 1 else None),
            ("Forked from", session.parent and _inline_code(escape_unprintable(session.parent))),
        ]
        lines = [f"- {name}: {value}" for name, value in facts if value]
        title = _escape_line(session.title or escape_unprintable(session.id))
        rule = "---\n\n" if number > 1 else ""
        return _encode(f"{rule}# {title}\n\n" + "\n".join(lines) + "\n\n" + _system_prompt(session))

    def message(self, message: RenderedMessage) -> bytes:
        """Return one message."""
        notes = [message.id, format_time(message.created_at, self._zone)]
        notes += [] if message.model is None else [_escape_line(message.model)]
        notes += [] if message.state == "completed" else [message.state]
        notes += ["truncated at the length limit"] if message.truncated else []
        notes += ["deleted"] if message.deleted else []
        pieces = [f"## {SPEAKERS[message.role]}\n\n<sub>{' · '.join(notes)}</sub>"]
        for index, part in enumerate(message.parts):
            pieces.append(_part(part, message.calls.get(index), quoted=message.role == "user"))
        if message.error is not None:
            pieces.append(f"**Error**\n\n{_code_block(format_json(message.error), 'json')}")
        return _encode("\n\n".join(piece for piece in pieces if piece) + "\n\n")

    def summary(self, summary: RenderedSummary) -> bytes:
        """Return the summary of a compaction."""
        state = ", undone" if summary.undone else ""
        head = f"*Compacted: {summary.first} to {summary.last}{state}*"
        return _encode(f"---\n\n{head}\n\n{_quote(summary.summary)}\n\n---\n\n")

    def side(self, side: SideBranch) -> bytes:
        """Open a branch."""
        origin = "from the beginning" if side.fork_message is None else f"forks after {side.fork_message}"
        return f"---\n\n# Branch {side.number}, {origin}\n\n".encode()

    def session_end(self) -> bytes:
        """Close a session."""
        return b""

    def end(self) -> bytes:
        """Close the document."""
        return b""


def format_time(milliseconds: int, zone: datetime.tzinfo | None) -> str:
    """Return a time in a zone, with its offset from UTC: `2026-11-17 20:40 +01:00`. None is the zone of this machine.

    A time outside the calendar of Python is returned as a number of milliseconds.
    """
    try:
        local = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).astimezone(zone)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    text = local.isoformat(sep=" ", timespec="minutes")
    return f"{text[:16]} {text[16:]}"


def _encode(text: str) -> bytes:
    """Encode a piece. Control characters and marks that change the text direction become U+FFFD."""
    return text.translate(REPLACED_CHARACTERS).encode("utf-8", "replace")


def _system_prompt(session: SessionInfo) -> str:
    if not session.system_prompt:
        return ""
    return f"<details><summary>System prompt</summary>\n\n{_quote(session.system_prompt)}\n\n</details>\n\n"


def _part(part: Part, call: RenderedCall | None, *, quoted: bool) -> str:
    if isinstance(part, TextPart):
        return _quote(part.text) if quoted else sanitize_markdown(part.text)
    if isinstance(part, ReasoningPart):
        return f"<details><summary>Reasoning</summary>\n\n{_quote(part.text)}\n\n</details>" if part.text else ""
    if isinstance(part, ToolCallPart):
        return _call(part, call)
    if isinstance(part, ToolResultPart):
        return f"**Result** · {part.status}\n\n{_result(part)}"
    if isinstance(part, AttachmentPart):
        return _attachment(part)
    return _data(part)


def _call(part: ToolCallPart, call: RenderedCall | None) -> str:
    status = "pending" if call is None else call.status
    notes = [f"**Tool** {_inline_code(part.tool)}", status]
    if call is not None and call.latency_ms is not None:
        notes.append(format_duration(call.latency_ms))
    pieces = [" · ".join(notes), _code_block(format_json(part.input), "json")]
    if call is not None and call.error_message and (call.result is None or call.error_message != call.result.output):
        pieces.append(f"**Error** {_escape_line(call.error_message)}")
    if call is not None and call.result is not None:
        pieces.append(_result(call.result))
    return "\n\n".join(pieces)


def _result(part: ToolResultPart) -> str:
    if part.content is None:
        return _code_block(part.output if part.data is UNSET else format_json(part.data), "text")
    pieces = [_code_block(piece.text, "text") if isinstance(piece, TextPart) else _part(piece, None, quoted=False)
              for piece in part.content]  # fmt: skip
    return "\n\n".join(pieces)


def _attachment(part: AttachmentPart) -> str:
    attachment = safe_markup.render_attachment(part)
    name = _escape_line(attachment.name)
    if attachment.picture is not None:
        return f"![{name}]({attachment.picture})"
    if attachment.download is not None:
        return f"[{name}]({attachment.download}) ({attachment.mime_type}, {format_size(attachment.size or 0)})"
    return f"Attachment: {name}" if attachment.link is None else f"Attachment: [{name}](<{attachment.link}>)"


def _data(part: DataPart) -> str:
    value = part.native if part.data is UNSET else part.data
    attachment = safe_markup.attachment_of_block(part.native) if part.data is UNSET else None
    if attachment is not None:
        fields = display.visible_block_fields(part.native)
        return _attachment(attachment) + (f"\n\n{_data_details(fields)}" if fields else "")
    return _data_details(value)


def _data_details(value: Any) -> str:
    return f"<details><summary>Data</summary>\n\n{_code_block(format_json(value), 'json')}\n\n</details>"


def format_json(value: Any) -> str:
    """Return a value as indented JSON, and a str unchanged."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _code_block(text: str, language: str) -> str:
    """Return a text in a code fence that is longer than any run of backticks in it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _escape_line(text: str) -> str:
    """Return a text on one line, with the special characters of Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _inline_code(text: str) -> str:
    """Return a text on one line, as inline code."""
    return f"`{' '.join(text.replace('`', ' ').split())}`"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in sanitize_markdown(text).split("\n"))
