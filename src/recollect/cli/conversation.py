"""A conversation laid out for a person. It gets values and gives text; what was stored is made harmless on the way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.moment import ago, clock, minute
from recollect.cli.screen import columns, cut, glyph, is_terminal, paint, safe, safe_lines
from recollect.formats import remainder
from recollect.formats.truncation import is_truncated
from recollect.model.amount import count, lasting, many, size
from recollect.model.json import UNSET
from recollect.model.part import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

if TYPE_CHECKING:
    from recollect.model.branch import Branch
    from recollect.model.message import Message
    from recollect.model.part import Part
    from recollect.model.tool_call import ToolCall
    from recollect.store import Session

_SHORT = 12
_THOUGHTS = 4
_INDENT = "  "
_COLOURS = {"user": "cyan", "assistant": "green", "tool": "yellow", "system": "magenta"}
_STATUS = {"success": ("good", "green"), "error": ("bad", "red"), "canceled": ("bad", "yellow")}


class Conversation:
    """One conversation on its way to the screen, message by message."""

    def __init__(
        self,
        session: Session,
        branches: list[Branch],
        calls: list[ToolCall],
        *,
        messages: int,
        full: bool,
        markdown: bool,
    ) -> None:
        self._session = session
        self._messages = messages
        self._branches = branches
        self._calls = {(call.message, call.part): call for call in calls}
        self._tools = {call.call_id: call.tool for call in calls}
        self._full = full
        self._markdown = _Markdown() if markdown else None
        self._branch: int | None = None

    def head(self, branch: int | None = None) -> str:
        """Say which conversation it is."""
        session = self._session
        facts = [session.id, session.model, session.channel if ":" not in session.id else None]
        facts += [many(self._messages, "message"), f"{count(session.token_count)} tokens"]
        facts += [f"active {ago(session.active_at)}", session.status if session.status != "active" else None]
        facts += ["pinned" if session.pinned_at else None, "archived" if session.archived_at else None]
        lines = [paint(safe(session.title or "(no title)"), bold=True)]
        lines += [paint(line, dim=True) for line in _wrapped([fact for fact in facts if fact])]
        if session.parent:
            lines.append(paint(safe(f"{session.relation} of {session.parent}"), dim=True))
        if len(self._branches) > 1:
            here = branch or session.branch
            others = ", ".join(str(found.id) for found in self._branches if found.id != here)
            told = f"on branch {here}; --branch shows another: {others}"
            lines.append(paint(told, dim=True))
        return "\n".join(lines) + "\n"

    def message(self, message: Message) -> str:
        """Lay a message out."""
        lines = [*self._crossing(message), self._title(message)]
        for at, part in enumerate(remainder.shown(message)):
            lines += [f"{_INDENT}{line}".rstrip() for line in self._part(message, at, part)]
        if message.error:
            lines.append(_INDENT + paint(f"{glyph('bad')} {safe(_failure(message.error))}", fg="red"))
        lines += self._forks(message)
        return "\n".join(lines) + "\n"

    def _title(self, message: Message) -> str:
        role = paint(f"{glyph('role')} {message.role}", fg=_COLOURS[message.role], bold=True)
        when = clock(message.created_at) if is_terminal() else minute(message.created_at)
        facts = [message.id, when, safe(message.model) if message.model else None]
        told = paint(f" {glyph('dot')} ".join(fact for fact in facts if fact), dim=True)
        told_state = "" if message.state == "completed" else message.state
        if not told_state and is_truncated(message):
            told_state = "cut at its length limit"
        state = told_state and "  " + paint(told_state, fg="red")
        return f"{role}  {told}{state}"

    def _crossing(self, message: Message) -> Iterator[str]:
        """Mark where the path goes over from one branch to the next."""
        before, self._branch = self._branch, message.branch
        if before is not None and before != message.branch:
            yield paint(f"{glyph('line') * 3} branch {message.branch} leaves branch {before} here", dim=True) + "\n"

    def _forks(self, message: Message) -> Iterator[str]:
        """Mark which other branches go on from a message."""
        for branch in self._branches:
            if (branch.parent, branch.fork_at) == (message.branch, message.position) and not branch.current:
                yield _INDENT + paint(f"{glyph('fork')} branch {branch.id} goes another way from here", dim=True)

    def _part(self, message: Message, at: int, part: Part) -> Iterable[str]:
        match part:
            case TextPart():
                return self._text(part.text)
            case ReasoningPart():
                mark = glyph("thought")
                return [paint(f"{mark} {line}", dim=True) for line in self._shortened(part.text, _THOUGHTS)]
            case ToolCallPart():
                return [self._call(part, self._calls.get((message.id, at)))]
            case ToolResultPart():
                return self._result(part)
            case AttachmentPart():
                facts = [part.name or part.url, part.mime_type, size(part.size) if part.size else None]
                return [paint(f"[{', '.join(safe(fact) for fact in facts if fact) or 'attachment'}]", fg="blue")]
            case DataPart():
                return self._data(part)

    def _data(self, part: DataPart) -> list[str]:
        """Print data as the JSON that a model is sent."""
        value: Any = part.native if part.data is UNSET else part.data
        kind = value.get("type") if isinstance(value, dict) else None
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        head = paint(f"[{safe(kind if isinstance(kind, str) else 'data')}]", fg="blue")
        return [head, *(_INDENT + paint(line, dim=True) for line in self._shortened(text, _SHORT))]

    def _text(self, text: str) -> Iterable[str]:
        if self._markdown is None or not text.strip():
            return safe_lines(text)
        return self._markdown.lines("\n".join(safe_lines(text)), columns() - len(_INDENT))

    def _call(self, part: ToolCallPart, call: ToolCall | None) -> str:
        arguments = safe(part.input if isinstance(part.input, str) else json.dumps(part.input, ensure_ascii=False))
        outcome, style = self._outcome(call)
        told = f"{glyph('call')} {safe(part.tool)} "
        room = columns() - len(_INDENT) - len(told) - len(outcome) - 1
        if not self._full:
            arguments = cut(arguments, max(room, 20))
        return f"{paint(told, fg='yellow')}{arguments} {paint(outcome, **style)}".rstrip()

    def _outcome(self, call: ToolCall | None) -> tuple[str, dict[str, Any]]:
        """Say how a call went, and how long it took."""
        if call is None:
            return "", {}
        if call.status not in _STATUS:
            return call.status, {"fg": "yellow"}
        mark, colour = _STATUS[call.status]
        return f"{glyph(mark)} {lasting(call.latency_ms)}".rstrip(), {"fg": colour}

    def _result(self, part: ToolResultPart) -> list[str]:
        tool = safe(part.tool or self._tools.get(part.call_id, part.call_id))
        failed = "" if part.status == "success" else f" {glyph('bad')} {safe(part.error_code or part.status)}"
        lines = self._shortened(part.output, _SHORT)
        if part.error_message and part.error_message != part.output:
            lines.append(safe(part.error_message))
        told = paint(f"{glyph('result')} {tool}", fg="yellow") + paint(failed, fg="red")
        return [told, *(_INDENT + paint(line, dim=True) for line in lines)]

    def _shortened(self, text: str, most: int) -> list[str]:
        lines = safe_lines(text)
        if self._full:
            return lines
        room = columns() - 2 * len(_INDENT)
        kept = [cut(line, room) for line in lines[:most]]
        left = len(lines) - len(kept)
        return [*kept, f"{glyph('more')} {many(left, 'more line')}; --full prints them"] if left else kept


def _failure(error: Any) -> str:
    """Write what went wrong: in words where it has a name and a message, as JSON where it is anything else."""
    match error:
        case str():
            return error
        case {"name": str(name), "message": str(message), **rest} if not rest:
            return f"{name}: {message}"
        case _:
            return json.dumps(error, ensure_ascii=False)


def _wrapped(facts: list[str]) -> list[str]:
    """Put facts side by side, on as few lines as they fit."""
    dot = f" {glyph('dot')} "
    lines: list[str] = []
    for fact in map(safe, facts):
        if lines and len(lines[-1]) + len(dot) + len(fact) <= columns():
            lines[-1] += dot + fact
        else:
            lines.append(fact)
    return lines


class _Markdown:
    """Markdown laid out with rich, which is loaded only for this."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.markdown import Heading, Markdown  # noqa: PLC0415

        class Left(Heading):
            """A heading where the text begins; rich would put it in the middle."""

            def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
                self.text.justify = "left"
                yield self.text

        class Page(Markdown):
            elements = {**Markdown.elements, "heading_open": Left}  # noqa: RUF012

        self._page = Page
        colour = click.get_current_context().color
        self._console = Console(
            force_terminal=colour is not False, no_color=colour is False, highlight=False, emoji=False, markup=False
        )

    def lines(self, text: str, room: int) -> list[str]:
        """Lay a harmless text out in so many columns. Links are written out: a hidden address could deceive."""
        self._console.width = room
        with self._console.capture() as captured:
            self._console.print(self._page(text, hyperlinks=False, code_theme="ansi_dark"))
        lines: list[str] = []
        for line in captured.get().split("\n"):
            blank = not click.unstyle(line).strip()
            if not blank or (lines and lines[-1]):
                lines.append("" if blank else line.rstrip())
        return lines[:-1] if lines and not lines[-1] else lines
