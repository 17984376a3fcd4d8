"""A transcript as one HTML page that needs nothing else: no script, no asset from outside, light and dark, for print.

Everything that was said is escaped. A policy in the page forbids what it does not need, should a reader find a way
around that.
"""

from __future__ import annotations

import datetime
import os
from typing import Any

from recollect.export import attachment
from recollect.export.markdown import indented, moment
from recollect.export.prose import code, escaped, rendered
from recollect.export.transcript import WHO, Call, Said, Side, Summary
from recollect.formats import remainder
from recollect.model.amount import lasting, many, size
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

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_HINT = 160
_FOOT = "<footer>Written by Recollect. Each day shows the UTC offset of its times.</footer></main></body></html>"

_CHEVRON = (
    '<svg class="chevron" viewBox="0 0 10 10" fill="none" stroke="currentColor" stroke-width="1.5" aria-hidden="true">'
    '<path d="M3.5 1.5 7 5 3.5 8.5"/></svg>'
)
_ICON = (
    '<svg class="icon {kind}" viewBox="0 0 14 14" fill="none" stroke="currentColor" stroke-width="1.5" '
    'stroke-linecap="round" stroke-linejoin="round" role="img" aria-label="{label}"><path d="{path}"/></svg>'
)
_PATHS = {
    "success": "M2.5 7.5 5.5 10.5 11.5 4",
    "error": "M3.5 3.5l7 7M10.5 3.5l-7 7",
    "canceled": "M3 7h8",
    "running": "M7 1.5a5.5 5.5 0 1 1-5.5 5.5",
    "pending": "M7 1.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M7 4v3l2 1.5",
    "file": "M3.5 1.5h4.5l3 3v8h-7.5zM8 1.5v3h3",
}


class Page:
    """Gives the pieces of an HTML page, with times in a zone; None is the zone of this machine."""

    def __init__(self, zone: datetime.tzinfo | None = None) -> None:
        self._zone = zone
        self._day = ""
        self._number = 0
        self._in_branch = False
        self._head: bytes | None = None

    def begin(self, *, redacted: bool, several: bool) -> bytes:
        """Open the page, or keep its head until the one session is known."""
        note = '<p class="note">Secrets were masked when this page was written.</p>' if redacted else ""
        title = '<h1>Conversations</h1><ol class="contents">' if several else ""
        # The page of one session is called after it, so its head waits for the session.
        if several:
            return _encoded(_head("Conversations") + note + title)
        self._head = note.encode()
        return b""

    def entry(self, number: int, session: Session, messages: int) -> bytes:
        """List a session."""
        last = session.last_message_at or session.created_at
        return _encoded(
            f'<li><a href="#s{number}"><span dir="auto">{escaped(session.title or session.id)}</span>'
            f"<small>{many(messages, 'message')} · {moment(last, self._zone)[:10]}</small></a></li>"
        )

    def contents_end(self) -> bytes:
        """Close the list."""
        return b"</ol>"

    def session(self, number: int, session: Session, messages: int, branches: int) -> bytes:
        """Head a session."""
        self._day, self._number = "", number
        title = escaped(session.title or session.id)
        head = ""
        if self._head is not None:
            head, self._head = _head(title) + self._head.decode(), None
        facts = "".join(
            f"<div><dt>{name}</dt><dd{_mono(name)}>{escaped(value)}</dd></div>"
            for name, value in _facts(session, messages, branches, self._zone)
        )
        prompt = ""
        if session.system_prompt:
            prompt = _thought("System prompt", rendered(session.system_prompt))
        empty = "" if session.message_count else '<p class="empty">Nothing was said here.</p>'
        return _encoded(
            f'{head}<article class="session" id="s{number}"><header><h1 dir="auto">{title}</h1>'
            f'<dl class="facts">{facts}</dl></header>{prompt}{empty}'
        )

    def message(self, said: Said) -> bytes:
        """Show a message."""
        place = f"m{self._number}-{said.id.replace('.', '-')}"
        body = "".join(_part(part, said.calls.get(index)) for index, part in enumerate(said.parts))
        if said.error is not None:
            body += f'<div class="tool"><div><p class="fault">{escaped(indented(said.error))}</p></div></div>'
        deleted = " deleted" if said.deleted else ""
        meta = _meta(said, place, self._zone)
        return _encoded(
            f'{self._day_of(said)}<section class="message {said.role}{deleted}" id="{place}">'
            f'<h2 class="who">{WHO[said.role]}</h2><div class="body">{body}</div>{meta}</section>'
        )

    def _day_of(self, said: Said) -> str:
        date, _, time = moment(said.created_at, self._zone).partition(" ")
        offset = time.partition(" ")[2]
        day = f"{date} {offset}"
        if day == self._day:
            return ""
        self._day = day
        zone = f" <small>UTC{offset}</small>" if offset else ""
        return f'<div class="day"><time datetime="{date}">{date}</time>{zone}</div>'

    def summary(self, summary: Summary) -> bytes:
        """Mark a compaction."""
        undone = ", undone" if summary.undone else ""
        label = f"Compacted: {summary.first} to {summary.last}{undone}"
        return _encoded(
            f'<details class="mark"><summary>{_CHEVRON}{escaped(label)}</summary>'
            f"<div>{rendered(summary.summary)}</div></details>"
        )

    def side(self, side: Side) -> bytes:
        """Head a branch."""
        where = "from the beginning" if side.leaves is None else f"leaves after {side.leaves}"
        before = "</section>" if self._in_branch else ""
        self._in_branch, self._day = True, ""
        return _encoded(f'{before}<section class="branch"><h2>Branch {side.number}<small>{escaped(where)}</small></h2>')

    def session_end(self) -> bytes:
        """Close a session."""
        end = "</section></article>" if self._in_branch else "</article>"
        self._in_branch = False
        return end.encode()

    def end(self) -> bytes:
        """Close the page."""
        head = "" if self._head is None else _head("Conversations") + self._head.decode()
        return _encoded(f"{head}{_FOOT}")


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


def _encoded(text: str) -> bytes:
    return (text + "\n").encode("utf-8", "replace")


def _facts(session: Session, messages: int, branches: int, zone: datetime.tzinfo | None) -> list[tuple[str, str]]:
    last = session.last_message_at
    facts: list[tuple[str, str | None]] = [
        ("Model", session.model),
        ("Task", session.task),
        ("Status", None if session.status == "active" else session.status),
        ("Began", moment(session.created_at, zone)),
        ("Last message", None if last is None else moment(last, zone)),
        ("Messages", f"{messages:,}"),
        ("Tokens", f"{session.token_count:,}" if session.token_count else None),
        ("Branches", f"{branches:,}" if branches > 1 else None),
        ("Forked from" if session.relation == "fork" else "Parent", session.parent),
        ("Id", session.id if session.title else None),
    ]
    return [(name, value) for name, value in facts if value]


def _mono(name: str) -> str:
    return ' class="mono"' if name in ("Id", "Forked from", "Parent") else ' dir="auto"'


def _meta(said: Said, place: str, zone: datetime.tzinfo | None) -> str:
    """Show when a message was written; its id and tokens are told to who points at that."""
    when = moment(said.created_at, zone)
    told = " \u00b7 ".join([when, said.id, *([f"{said.tokens:,} tokens"] if said.tokens else [])])
    notes = [f'<a href="#{place}" title="{told}"><time>{when[11:16] or said.id}</time></a>']
    if said.model:
        notes.append(f"<span>{escaped(said.model)}</span>")
    if said.state != "completed":
        kind = "state error" if said.state == "error" else "state"
        notes.append(f'<span class="{kind}">{said.state}</span>')
    if said.truncated:
        notes.append('<span class="state">cut at its length limit</span>')
    if said.deleted:
        notes.append('<span class="state">deleted</span>')
    return f'<div class="meta">{"".join(notes)}</div>'


def _part(part: Part, call: Call | None) -> str:
    if isinstance(part, TextPart):
        return rendered(part.text)
    if isinstance(part, ReasoningPart):
        return _thought("Reasoning", rendered(part.text)) if part.text else ""
    if isinstance(part, ToolCallPart):
        return _call(part, call)
    if isinstance(part, ToolResultPart):
        return _card(part.status, part.tool or "result", "", None, _result(part), part.error_message)
    if isinstance(part, AttachmentPart):
        return _attachment(part)
    return _data(part)


def _thought(label: str, words: str) -> str:
    return f'<details class="thought"><summary>{_CHEVRON}{label}</summary><div>{words}</div></details>'


def _call(part: ToolCallPart, call: Call | None) -> str:
    given = part.input
    inside = f"<h4>Arguments</h4>{code(indented(given))}" if given not in (None, {}, "") else ""
    if call is None:
        return _card("pending", part.tool, _hint(given), None, inside, None)
    if call.result is not None:
        inside += _result(call.result)
    told = call.error_message
    if told and call.result is not None and told == call.result.output:
        told = None
    return _card(call.status, part.tool, _hint(given), call.latency_ms, inside, told)


def _card(status: str, name: str, hint: str, took: int | None, inside: str, fault: str | None) -> str:
    """Show a call on one line that opens; one that failed is open."""
    icon = _ICON.format(kind=f"is-{status}", label=status, path=_PATHS[status])
    opened = " open" if status == "error" else ""
    duration = "" if not took else f'<span class="took">{lasting(took)}</span>'
    state = "" if status in ("success", "error") else f'<span class="took">{status}</span>'
    problem = f'<p class="fault" dir="auto">{escaped(fault)}</p>' if fault else ""
    return (
        f'<details class="tool"{opened}><summary>{icon}<span class="name">{escaped(name)}</span>'
        f'<span class="hint">{escaped(hint)}</span>{duration}{state}{_CHEVRON}</summary>'
        f"<div>{inside}{problem}</div></details>"
    )


def _hint(given: Any) -> str:
    """Give the argument that says most: the first text among them."""
    if isinstance(given, dict):
        given = next((value for value in given.values() if isinstance(value, str) and value.strip()), "")
    text = given if isinstance(given, str) else ""
    return " ".join(text[: _HINT * 2].split())[:_HINT]


def _result(part: ToolResultPart) -> str:
    if part.content is None:
        told = part.output if part.data is UNSET else indented(part.data)
        return f"<h4>Result</h4>{code(told)}" if told else ""
    pieces = [code(piece.text) if isinstance(piece, TextPart) else _part(piece, None) for piece in part.content]
    return f"<h4>Result</h4>{''.join(pieces)}"


def _attachment(part: AttachmentPart) -> str:
    found = attachment.shown(part)
    name = escaped(found.name)
    if found.picture is not None:
        return f'<figure class="attachment"><img src="{found.picture}" alt="{name}" loading="lazy"></figure>'
    icon = _ICON.format(kind="", label="file", path=_PATHS["file"])
    note = found.mime_type if found.size is None else f"{found.mime_type} · {size(found.size)}"
    inside = f"{icon}<span>{name}</span><small>{escaped(note)}</small>"
    if found.download is not None:
        return f'<p class="attachment"><a class="file" download="{name}" href="{found.download}">{inside}</a></p>'
    if found.link is not None:
        rel = "noopener noreferrer nofollow"
        return f'<p class="attachment"><a class="file" rel="{rel}" href="{escaped(found.link)}">{inside}</a></p>'
    return f'<p class="attachment"><span class="file">{inside}</span></p>'


def _data(part: DataPart) -> str:
    value = part.native if part.data is UNSET else part.data
    held = attachment.of_block(part.native) if part.data is UNSET else None
    if held is not None:
        more = remainder.of_block(part.native)
        return _attachment(held) + (_thought("Data", code(indented(more))) if more else "")
    return _thought("Data", code(indented(value)))
