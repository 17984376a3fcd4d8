"""A transcript as Markdown, for reading and for putting into other documents.

What was said is kept as it was written, but it can not break out of its place: code that was opened is closed, and a
tag is shown instead of taken for one.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from recollect.export import attachment
from recollect.export.prose import UNSHOWN
from recollect.export.speech import told
from recollect.export.transcript import WHO, Call, Said, Side, Summary
from recollect.formats import remainder
from recollect.model.amount import lasting, size
from recollect.model.json import UNSET
from recollect.model.part import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.session import Session

_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")


class Markdown:
    """Gives the pieces of a Markdown document, with times in a zone; None is the zone of this machine."""

    def __init__(self, zone: datetime.tzinfo | None = None) -> None:
        self._zone = zone

    def begin(self, *, redacted: bool, several: bool) -> bytes:
        """Open the document."""
        note = "*Secrets were masked when this was written.*\n\n" if redacted else ""
        return (note + ("# Conversations\n\n" if several else "")).encode()

    def entry(self, number: int, session: Session, messages: int) -> bytes:  # noqa: ARG002
        """List a session."""
        return _encoded(f"{number}. {_words(session.title or session.id)}\n")

    def contents_end(self) -> bytes:
        """Close the list."""
        return b"\n"

    def session(self, number: int, session: Session, messages: int, branches: int) -> bytes:
        """Head a session."""
        facts = [
            ("Session", _code(session.id)),
            ("Model", session.model and _words(session.model)),
            ("Task", session.task and _words(session.task)),
            ("Status", None if session.status == "active" else session.status),
            ("Began", moment(session.created_at, self._zone)),
            ("Last message", session.last_message_at and moment(session.last_message_at, self._zone)),
            ("Messages", str(messages)),
            ("Branches", str(branches) if branches > 1 else None),
            ("Forked from", session.parent and _code(session.parent)),
        ]
        lines = [f"- {name}: {value}" for name, value in facts if value]
        title = _words(session.title or session.id)
        rule = "---\n\n" if number > 1 else ""
        return _encoded(f"{rule}# {title}\n\n" + "\n".join(lines) + "\n\n" + _system(session))

    def message(self, said: Said) -> bytes:
        """Show a message."""
        notes = [said.id, moment(said.created_at, self._zone)]
        notes += [] if said.model is None else [_words(said.model)]
        notes += [] if said.state == "completed" else [said.state]
        notes += ["cut at its length limit"] if said.truncated else []
        notes += ["deleted"] if said.deleted else []
        pieces = [f"## {WHO[said.role]}\n\n<sub>{' · '.join(notes)}</sub>"]
        for index, part in enumerate(said.parts):
            pieces.append(_part(part, said.calls.get(index), quoted=said.role == "user"))
        if said.error is not None:
            pieces.append(f"**Error**\n\n{_block(indented(said.error), 'json')}")
        return _encoded("\n\n".join(piece for piece in pieces if piece) + "\n\n")

    def summary(self, summary: Summary) -> bytes:
        """Mark a compaction."""
        state = ", undone" if summary.undone else ""
        head = f"*Compacted: {summary.first} to {summary.last}{state}*"
        return _encoded(f"---\n\n{head}\n\n{_quote(summary.summary)}\n\n---\n\n")

    def side(self, side: Side) -> bytes:
        """Head a branch."""
        where = "from the beginning" if side.leaves is None else f"after {side.leaves}"
        return f"---\n\n# Branch {side.number}, {where}\n\n".encode()

    def session_end(self) -> bytes:
        """Close a session."""
        return b""

    def end(self) -> bytes:
        """Close the document."""
        return b""


def moment(milliseconds: int, zone: datetime.tzinfo | None) -> str:
    """Return a time in a zone, with its offset from UTC: `2026-11-17 20:40 +01:00`. None is the zone of this machine.

    A time that no calendar has stays a number of milliseconds.
    """
    try:
        local = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).astimezone(zone)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    written = local.isoformat(sep=" ", timespec="minutes")
    return f"{written[:16]} {written[16:]}"


def _encoded(text: str) -> bytes:
    """Write a piece out. What would steer a terminal, or turn the direction of what follows, is shown as unknown."""
    return text.translate(UNSHOWN).encode("utf-8", "replace")


def _system(session: Session) -> str:
    if not session.system_prompt:
        return ""
    return f"<details><summary>System prompt</summary>\n\n{_quote(session.system_prompt)}\n\n</details>\n\n"


def _part(part: Part, call: Call | None, *, quoted: bool) -> str:
    if isinstance(part, TextPart):
        return _quote(part.text) if quoted else told(part.text)
    if isinstance(part, ReasoningPart):
        return f"<details><summary>Reasoning</summary>\n\n{_quote(part.text)}\n\n</details>" if part.text else ""
    if isinstance(part, ToolCallPart):
        return _call(part, call)
    if isinstance(part, ToolResultPart):
        return f"**Result** · {part.status}\n\n{_result(part)}"
    if isinstance(part, AttachmentPart):
        return _attachment(part)
    return _data(part)


def _call(part: ToolCallPart, call: Call | None) -> str:
    status = "pending" if call is None else call.status
    notes = [f"**Tool** {_code(part.tool)}", status]
    if call is not None and call.latency_ms is not None:
        notes.append(lasting(call.latency_ms))
    pieces = [" · ".join(notes), _block(indented(part.input), "json")]
    if call is not None and call.error_message and (call.result is None or call.error_message != call.result.output):
        pieces.append(f"**Error** {_words(call.error_message)}")
    if call is not None and call.result is not None:
        pieces.append(_result(call.result))
    return "\n\n".join(pieces)


def _result(part: ToolResultPart) -> str:
    if part.content is None:
        return _block(part.output if part.data is UNSET else indented(part.data), "text")
    pieces = [_block(piece.text, "text") if isinstance(piece, TextPart) else _part(piece, None, quoted=False)
              for piece in part.content]  # fmt: skip
    return "\n\n".join(pieces)


def _attachment(part: AttachmentPart) -> str:
    found = attachment.shown(part)
    name = _words(found.name)
    if found.picture is not None:
        return f"![{name}]({found.picture})"
    if found.download is not None:
        return f"[{name}]({found.download}) ({found.mime_type}, {size(found.size or 0)})"
    return f"Attachment: {name}" if found.link is None else f"Attachment: [{name}](<{found.link}>)"


def _data(part: DataPart) -> str:
    value = part.native if part.data is UNSET else part.data
    held = attachment.of_block(part.native) if part.data is UNSET else None
    if held is not None:
        more = remainder.of_block(part.native)
        return _attachment(held) + (f"\n\n{_folded(more)}" if more else "")
    return _folded(value)


def _folded(value: Any) -> str:
    return f"<details><summary>Data</summary>\n\n{_block(indented(value), 'json')}\n\n</details>"


def indented(value: Any) -> str:
    """Write a value as JSON that people read; a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _block(text: str, language: str) -> str:
    """Fence a text with more ticks than it has in a row."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _words(text: str) -> str:
    """Give a text on one line that means nothing to Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Give a text on one line, as code."""
    return f"`{' '.join(text.replace('`', ' ').split())}`"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in told(text).split("\n"))
