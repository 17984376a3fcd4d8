"""The HTML renderer of transcripts: one self-contained page, without scripts or external assets.

All content is escaped. A content security policy in the page forbids everything that it does not need, in case an
escape is missing.
"""

from __future__ import annotations

import datetime
import os
from typing import Any

from recollect.export import safe_markup
from recollect.export.markdown import format_json, format_time
from recollect.export.markdown_html import markdown_to_html
from recollect.export.safe_markup import code_block, escape_html
from recollect.export.transcript import SPEAKERS, RenderedCall, RenderedMessage, RenderedSummary, SideBranch
from recollect.formats import display
from recollect.model.humanize import escape_unprintable, format_duration, format_size, pluralize
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

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_HINT_CHARACTERS = 160  # characters. More than one line of the page can show.
_FOOTER = "<footer>Exported by Recollect. Each day shows the UTC offset of its times.</footer></main></body></html>"

_CHEVRON = (
    '<svg class="chevron" viewBox="0 0 10 10" fill="none" stroke="currentColor" stroke-width="1.5" aria-hidden="true">'
    '<path d="M3.5 1.5 7 5 3.5 8.5"/></svg>'
)
_ICON = (
    '<svg class="icon {kind}" viewBox="0 0 14 14" fill="none" stroke="currentColor" stroke-width="1.5" '
    'stroke-linecap="round" stroke-linejoin="round" role="img" aria-label="{label}"><path d="{path}"/></svg>'
)
_ICON_PATHS = {
    "success": "M2.5 7.5 5.5 10.5 11.5 4",
    "error": "M3.5 3.5l7 7M10.5 3.5l-7 7",
    "cancelled": "M3 7h8",
    "running": "M7 1.5a5.5 5.5 0 1 1-5.5 5.5",
    "pending": "M7 1.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M7 4v3l2 1.5",
    "file": "M3.5 1.5h4.5l3 3v8h-7.5zM8 1.5v3h3",
}


class HtmlRenderer:
    """Renders the pieces of an HTML page, with times in a zone; None is the zone of this machine."""

    def __init__(self, zone: datetime.tzinfo | None = None) -> None:
        self._zone = zone
        self._day = ""
        self._number = 0
        self._in_branch = False
        self._head: bytes | None = None

    def begin(self, *, redacted: bool, several: bool) -> bytes:
        """Open the page.

        The head of a page with one session is written later, because its title is that of the session.
        """
        note = '<p class="note">Secrets were masked in this export.</p>' if redacted else ""
        title = '<h1>Conversations</h1><ol class="contents">' if several else ""
        if several:
            return _encode(_head("Conversations") + note + title)
        self._head = note.encode()
        return b""

    def entry(self, number: int, session: SessionInfo, messages: int) -> bytes:
        """Return the entry of a session in the list of contents."""
        last = session.last_message_at_ms or session.created_at_ms
        return _encode(
            f'<li><a href="#s{number}"><span dir="auto">{_title(session)}</span>'
            f"<small>{pluralize(messages, 'message')} · {format_time(last, self._zone)[:10]}</small></a></li>"
        )

    def contents_end(self) -> bytes:
        """Close the list of contents."""
        return b"</ol>"

    def session(self, number: int, session: SessionInfo, messages: int, branches: int) -> bytes:
        """Open a session, with its title and its facts."""
        self._day, self._number = "", number
        title = _title(session)
        head = ""
        if self._head is not None:
            head, self._head = _head(title) + self._head.decode(), None
        facts = "".join(
            f"<div><dt>{name}</dt><dd{_fact_attributes(name)}>{escape_html(value)}</dd></div>"
            for name, value in _facts(session, messages, branches, self._zone)
        )
        prompt = ""
        if session.system_prompt:
            prompt = _details("System prompt", markdown_to_html(session.system_prompt))
        empty = "" if session.message_count else '<p class="empty">No messages.</p>'
        return _encode(
            f'{head}<article class="session" id="s{number}"><header><h1 dir="auto">{title}</h1>'
            f'<dl class="facts">{facts}</dl></header>{prompt}{empty}'
        )

    def message(self, message: RenderedMessage) -> bytes:
        """Return one message."""
        anchor = f"m{self._number}-{message.id.replace('.', '-')}"
        body = "".join(_part(part, message.calls.get(index)) for index, part in enumerate(message.parts))
        if message.error is not None:
            body += f'<div class="tool"><div><p class="fault">{escape_html(format_json(message.error))}</p></div></div>'
        deleted = " deleted" if message.deleted else ""
        meta = _meta(message, anchor, self._zone)
        return _encode(
            f'{self._day_of(message)}<section class="message {message.role}{deleted}" id="{anchor}">'
            f'<h2 class="who">{SPEAKERS[message.role]}</h2><div class="body">{body}</div>{meta}</section>'
        )

    def _day_of(self, message: RenderedMessage) -> str:
        date, _, time = format_time(message.created_at, self._zone).partition(" ")
        offset = time.partition(" ")[2]
        day = f"{date} {offset}"
        if day == self._day:
            return ""
        self._day = day
        zone = f" <small>UTC{offset}</small>" if offset else ""
        return f'<div class="day"><time datetime="{date}">{date}</time>{zone}</div>'

    def summary(self, summary: RenderedSummary) -> bytes:
        """Return the summary of a compaction."""
        undone = ", undone" if summary.undone else ""
        label = f"Compacted: {summary.first} to {summary.last}{undone}"
        return _encode(
            f'<details class="mark"><summary>{_CHEVRON}{escape_html(label)}</summary>'
            f"<div>{markdown_to_html(summary.summary)}</div></details>"
        )

    def side(self, side: SideBranch) -> bytes:
        """Open a branch."""
        origin = "from the beginning" if side.fork_message is None else f"forks after {side.fork_message}"
        closing = "</section>" if self._in_branch else ""
        self._in_branch, self._day = True, ""
        return _encode(
            f'{closing}<section class="branch"><h2>Branch {side.number}<small>{escape_html(origin)}</small></h2>'
        )

    def session_end(self) -> bytes:
        """Close a session."""
        closing = "</section></article>" if self._in_branch else "</article>"
        self._in_branch = False
        return closing.encode()

    def end(self) -> bytes:
        """Close the page."""
        head = "" if self._head is None else _head("Conversations") + self._head.decode()
        return _encode(f"{head}{_FOOTER}")


def _head(title: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), "page.css"), encoding="utf-8") as file:
        style = file.read()
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        f"<title>{title}</title><style>\n{style}</style></head><body><main>"
    )


def _encode(text: str) -> bytes:
    return (text + "\n").encode("utf-8", "replace")


def _facts(session: SessionInfo, messages: int, branches: int, zone: datetime.tzinfo | None) -> list[tuple[str, str]]:
    last = session.last_message_at_ms
    facts: list[tuple[str, str | None]] = [
        ("Model", session.model),
        ("Task", session.task),
        ("Labels", ", ".join(session.labels)),
        ("Status", None if session.status == "active" else session.status),
        ("Started", format_time(session.created_at_ms, zone)),
        ("Last message", None if last is None else format_time(last, zone)),
        ("Messages", f"{messages:,}"),
        ("Tokens", f"{session.token_count:,}" if session.token_count else None),
        ("Branches", f"{branches:,}" if branches > 1 else None),
        (
            "Forked from" if session.relation == "fork" else "Parent",
            session.parent and escape_unprintable(session.parent),
        ),
        ("ID", escape_unprintable(session.id) if session.title else None),
    ]
    return [(name, value) for name, value in facts if value]


def _title(session: SessionInfo) -> str:
    """Return the title of a session, or else its id, as HTML."""
    return escape_html(session.title or escape_unprintable(session.id))


def _fact_attributes(name: str) -> str:
    return ' class="mono"' if name in ("ID", "Forked from", "Parent") else ' dir="auto"'


def _meta(message: RenderedMessage, anchor: str, zone: datetime.tzinfo | None) -> str:
    """Return the line below a message. The time has a tooltip with the message id and the number of tokens."""
    time = format_time(message.created_at, zone)
    tooltip = " \u00b7 ".join([time, message.id, *([f"{message.tokens:,} tokens"] if message.tokens else [])])
    notes = [f'<a href="#{anchor}" title="{tooltip}"><time>{time[11:16] or message.id}</time></a>']
    if message.model:
        notes.append(f"<span>{escape_html(message.model)}</span>")
    if message.state != "completed":
        kind = "state error" if message.state == "error" else "state"
        notes.append(f'<span class="{kind}">{message.state}</span>')
    if message.truncated:
        notes.append('<span class="state">truncated at the length limit</span>')
    if message.deleted:
        notes.append('<span class="state">deleted</span>')
    return f'<div class="meta">{"".join(notes)}</div>'


def _part(part: Part, call: RenderedCall | None) -> str:
    if isinstance(part, TextPart):
        return markdown_to_html(part.text)
    if isinstance(part, ReasoningPart):
        return _details("Reasoning", markdown_to_html(part.text)) if part.text else ""
    if isinstance(part, ToolCallPart):
        return _call(part, call)
    if isinstance(part, ToolResultPart):
        return _tool_details(part.status, part.tool or "result", "", None, _result(part), part.error_message)
    if isinstance(part, AttachmentPart):
        return _attachment(part)
    return _data(part)


def _details(label: str, content: str) -> str:
    return f'<details class="thought"><summary>{_CHEVRON}{label}</summary><div>{content}</div></details>'


def _call(part: ToolCallPart, call: RenderedCall | None) -> str:
    arguments = part.input
    body = f"<h4>Arguments</h4>{code_block(format_json(arguments))}" if arguments not in (None, {}, "") else ""
    if call is None:
        return _tool_details("pending", part.tool, _hint(arguments), None, body, None)
    if call.result is not None:
        body += _result(call.result)
    error = call.error_message
    if error and call.result is not None and error == call.result.output:
        error = None
    return _tool_details(call.status, part.tool, _hint(arguments), call.latency_ms, body, error)


def _tool_details(status: str, name: str, hint: str, latency_ms: int | None, body: str, error: str | None) -> str:
    """Return a tool call as one line that expands. A failed call is expanded."""
    icon = _ICON.format(kind=f"is-{status}", label=status, path=_ICON_PATHS[status])
    open_attribute = " open" if status == "error" else ""
    duration = "" if not latency_ms else f'<span class="took">{format_duration(latency_ms)}</span>'
    state = "" if status in ("success", "error") else f'<span class="took">{status}</span>'
    error_html = f'<p class="fault" dir="auto">{escape_html(error)}</p>' if error else ""
    return (
        f'<details class="tool"{open_attribute}><summary>{icon}<span class="name">{escape_html(name)}</span>'
        f'<span class="hint">{escape_html(hint)}</span>{duration}{state}{_CHEVRON}</summary>'
        f"<div>{body}{error_html}</div></details>"
    )


def _hint(arguments: Any) -> str:
    """Return the first text argument of a tool call, shortened to one line."""
    if isinstance(arguments, dict):
        arguments = next((value for value in arguments.values() if isinstance(value, str) and value.strip()), "")
    text = arguments if isinstance(arguments, str) else ""
    return " ".join(text[: _HINT_CHARACTERS * 2].split())[:_HINT_CHARACTERS]


def _result(part: ToolResultPart) -> str:
    if part.content is None:
        text = part.output if part.data is UNSET else format_json(part.data)
        return f"<h4>Result</h4>{code_block(text)}" if text else ""
    pieces = [code_block(piece.text) if isinstance(piece, TextPart) else _part(piece, None) for piece in part.content]
    return f"<h4>Result</h4>{''.join(pieces)}"


def _attachment(part: AttachmentPart) -> str:
    attachment = safe_markup.render_attachment(part)
    name = escape_html(attachment.name)
    if attachment.picture is not None:
        return f'<figure class="attachment"><img src="{attachment.picture}" alt="{name}" loading="lazy"></figure>'
    icon = _ICON.format(kind="", label="file", path=_ICON_PATHS["file"])
    note = (
        attachment.mime_type if attachment.size is None else f"{attachment.mime_type} · {format_size(attachment.size)}"
    )
    label = f"{icon}<span>{name}</span><small>{escape_html(note)}</small>"
    if attachment.download is not None:
        return f'<p class="attachment"><a class="file" download="{name}" href="{attachment.download}">{label}</a></p>'
    if attachment.link is not None:
        rel = "noopener noreferrer nofollow"
        return (
            f'<p class="attachment"><a class="file" rel="{rel}" href="{escape_html(attachment.link)}">{label}</a></p>'
        )
    return f'<p class="attachment"><span class="file">{label}</span></p>'


def _data(part: DataPart) -> str:
    value = part.native if part.data is UNSET else part.data
    attachment = safe_markup.attachment_of_block(part.native) if part.data is UNSET else None
    if attachment is not None:
        fields = display.visible_block_fields(part.native)
        return _attachment(attachment) + (_details("Data", code_block(format_json(fields))) if fields else "")
    return _details("Data", code_block(format_json(value)))
