"""`sessions show`: one conversation, formatted for a person or as JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, store_access
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_object_with_list
from recollect.cli.options import NumberParam
from recollect.cli.output import (
    glyph,
    is_terminal,
    paint,
    print_note,
    sanitize,
    sanitize_lines,
    terminal_columns,
    truncate,
)
from recollect.cli.sessions import lookup
from recollect.cli.times import format_minute, format_short, now
from recollect.errors import StoreError
from recollect.formats import display
from recollect.formats.display import is_truncated
from recollect.model.humanize import (
    escape_unprintable,
    format_count,
    format_duration,
    format_relative,
    format_size,
    pluralize,
)
from recollect.model.json import UNSET
from recollect.model.message import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

if TYPE_CHECKING:
    from recollect.model.message import Message, Part, ToolCall
    from recollect.model.session import Branch
    from recollect.store import Session, Store
    from recollect.types import MessageId


@click.command(cls=StoreCommand)
@click.argument("id", type=lookup.SessionParam())
@click.option("--last", type=NumberParam(), metavar="N", help="Only the last N messages.")
@click.option("--branch", type=NumberParam(), metavar="N", help="Show this branch instead of the active branch.")
@click.option("--full", is_flag=True, help="Do not truncate long tool output and reasoning.")
@click.option("--plain", is_flag=True, help="Do not render Markdown.")
@options.as_json
def show(id: str, last: int | None, branch: int | None, full: bool, plain: bool, as_json: bool) -> None:
    """Print a conversation.

    Each message has a role, an id and a time. An arrow to the right marks a tool call, an arrow to the left its result.
    On a terminal, long tool output is truncated and Markdown is rendered. --json prints every field of every message.
    """
    with store_access.open_for_reading() as store:
        session = _find_session(store, id)
        branches = session.branches.list()
        if as_json:
            fields = {**session.to_dict(), "branches": [item.to_dict() for item in branches]}
            print_object_with_list(fields, "messages", _read_messages(session, last, branch))
            return

        markdown = is_terminal() and not plain and store_access.load_settings()["channels.terminal.markdown"]
        [messages] = store.shown_counts([session])
        formatter = TranscriptFormatter(
            session,
            branches,
            session.tools.list(),
            messages=messages,
            full=full or not is_terminal(),
            markdown=markdown,
        )
        click.echo(formatter.head(branch))
        count = 0
        for message in _read_messages(session, last, branch):
            click.echo(formatter.message(message))
            count += 1
    if not count:
        print_note("This conversation has no messages yet.")


def _find_session(store: Store, name: str) -> Session:
    """Find a session. Close turns of processes that have ended first; their tool calls would appear to run forever."""
    session = store.find_session(name)
    if any(turn.status == "open" for turn in session.turns.list()):
        with contextlib.suppress(StoreError):  # a read-only store is shown without this
            store.maintenance.recover(session.id)
    return session.refresh()


def _read_messages(session: Session, last: int | None, branch: int | None) -> Iterable[Message]:
    return _read_pages(session, branch or session.branch) if last is None else session.messages(last, branch=branch)


def _read_pages(session: Session, branch: int) -> Iterator[Message]:
    """Yield all messages, a page at a time, so that memory does not grow with the session."""
    after: MessageId = 0
    while page := session.messages(after=after, branch=branch):
        yield from page
        after = page[-1].id


_MAX_OUTPUT_LINES = 12  # lines of tool output on a terminal; enough to recognize it without hiding the conversation
_MAX_REASONING_LINES = 4  # lines of reasoning on a terminal, which matters less than the answer
_INDENT = "  "
_ROLE_COLORS = {"user": "cyan", "assistant": "green", "tool": "yellow", "system": "magenta"}
_STATUS_STYLES = {"success": ("good", "green"), "error": ("bad", "red"), "cancelled": ("bad", "yellow")}


class TranscriptFormatter:
    """Formats one conversation for the terminal, message by message."""

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
        self._markdown = _MarkdownFormatter() if markdown else None
        self._branch: int | None = None

    def head(self, branch: int | None = None) -> str:
        """Return the heading: title, facts, and the other branches."""
        session = self._session
        facts = [escape_unprintable(session.id), session.model, session.channel if ":" not in session.id else None]
        facts += [pluralize(self._messages, "message"), f"{format_count(session.token_count)} tokens"]
        facts += [
            f"active {format_relative(session.info.active_at_ms, now())}",
            session.status if session.status != "active" else None,
        ]
        facts += ["pinned" if session.pinned_at else None, "archived" if session.archived_at else None]
        lines = [paint(sanitize(session.title or "(no title)"), bold=True)]
        lines += [paint(line, dim=True) for line in _wrap_facts([fact for fact in facts if fact])]
        if session.labels:
            lines.append(paint(sanitize(f"labels: {', '.join(session.labels)}"), dim=True))
        if session.parent:
            lines.append(paint(f"{session.relation} of {escape_unprintable(session.parent)}", dim=True))
        if len(self._branches) > 1:
            current = branch or session.branch
            others = ", ".join(str(item.id) for item in self._branches if item.id != current)
            note = f"Branch {current}. To show another one, pass --branch: {others}"
            lines.append(paint(note, dim=True))
        return "\n".join(lines) + "\n"

    def message(self, message: Message) -> str:
        """Return the lines of a message."""
        lines = [*self._format_branch_change(message), self._title(message)]
        for index, part in enumerate(display.visible_parts(message)):
            lines += [f"{_INDENT}{line}".rstrip() for line in self._part(message, index, part)]
        if message.error:
            lines.append(_INDENT + paint(f"{glyph('bad')} {sanitize(_format_error(message.error))}", fg="red"))
        lines += self._format_forks(message)
        return "\n".join(lines) + "\n"

    def _title(self, message: Message) -> str:
        role = paint(f"{glyph('role')} {message.role}", fg=_ROLE_COLORS[message.role], bold=True)
        time_text = format_short(message.created_at_ms) if is_terminal() else format_minute(message.created_at_ms)
        facts = [message.id, time_text, sanitize(message.model) if message.model else None]
        details = paint(f" {glyph('dot')} ".join(fact for fact in facts if fact), dim=True)
        state_label = "" if message.state == "completed" else message.state
        if not state_label and is_truncated(message):
            state_label = "truncated at its length limit"
        state = state_label and "  " + paint(state_label, fg="red")
        return f"{role}  {details}{state}"

    def _format_branch_change(self, message: Message) -> Iterator[str]:
        """Mark the point where the path moves from one branch to the next."""
        before, self._branch = self._branch, message.branch
        if before is not None and before != message.branch:
            yield (
                paint(f"{glyph('line') * 3} branch {message.branch} starts here, after branch {before}", dim=True)
                + "\n"
            )

    def _format_forks(self, message: Message) -> Iterator[str]:
        """Mark the other branches that start after a message."""
        for branch in self._branches:
            if (branch.parent, branch.fork_at) == (message.branch, message.position) and not branch.current:
                yield _INDENT + paint(f"{glyph('fork')} branch {branch.id} starts here", dim=True)

    def _part(self, message: Message, index: int, part: Part) -> Iterable[str]:
        match part:
            case TextPart():
                return self._text(part.text)
            case ReasoningPart():
                mark = glyph("thought")
                return [paint(f"{mark} {line}", dim=True) for line in self._shorten(part.text, _MAX_REASONING_LINES)]
            case ToolCallPart():
                return [self._call(part, self._calls.get((message.id, index)))]
            case ToolResultPart():
                return self._result(part)
            case AttachmentPart():
                facts = [part.name or part.url, part.mime_type, format_size(part.size) if part.size else None]
                return [paint(f"[{', '.join(sanitize(fact) for fact in facts if fact) or 'attachment'}]", fg="blue")]
            case DataPart():
                return self._data(part)

    def _data(self, part: DataPart) -> list[str]:
        """Return data as the JSON that is sent to a model."""
        value: Any = part.native if part.data is UNSET else part.data
        kind = value.get("type") if isinstance(value, dict) else None
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        head = paint(f"[{sanitize(kind if isinstance(kind, str) else 'data')}]", fg="blue")
        return [head, *(_INDENT + paint(line, dim=True) for line in self._shorten(text, _MAX_OUTPUT_LINES))]

    def _text(self, text: str) -> Iterable[str]:
        if self._markdown is None or not text.strip():
            return sanitize_lines(text)
        return self._markdown.lines("\n".join(sanitize_lines(text)), terminal_columns() - len(_INDENT))

    def _call(self, part: ToolCallPart, call: ToolCall | None) -> str:
        arguments = sanitize(part.input if isinstance(part.input, str) else json.dumps(part.input, ensure_ascii=False))
        outcome, style = self._outcome(call)
        label = f"{glyph('call')} {sanitize(part.tool)} "
        max_width = terminal_columns() - len(_INDENT) - len(label) - len(outcome) - 1
        if not self._full:
            arguments = truncate(arguments, max(max_width, 20))
        return f"{paint(label, fg='yellow')}{arguments} {paint(outcome, **style)}".rstrip()

    def _outcome(self, call: ToolCall | None) -> tuple[str, dict[str, Any]]:
        """Return the status of a call and its duration, with a style."""
        if call is None:
            return "", {}
        if call.status not in _STATUS_STYLES:
            return call.status, {"fg": "yellow"}
        mark, color = _STATUS_STYLES[call.status]
        return f"{glyph(mark)} {format_duration(call.latency_ms)}".rstrip(), {"fg": color}

    def _result(self, part: ToolResultPart) -> list[str]:
        tool = sanitize(part.tool or self._tools.get(part.call_id, part.call_id))
        failed = "" if part.status == "success" else f" {glyph('bad')} {sanitize(part.error_code or part.status)}"
        lines = self._shorten(part.output, _MAX_OUTPUT_LINES)
        if part.error_message and part.error_message != part.output:
            lines.append(sanitize(part.error_message))
        heading = paint(f"{glyph('result')} {tool}", fg="yellow") + paint(failed, fg="red")
        return [heading, *(_INDENT + paint(line, dim=True) for line in lines)]

    def _shorten(self, text: str, max_lines: int) -> list[str]:
        lines = sanitize_lines(text)
        if self._full:
            return lines
        max_width = terminal_columns() - 2 * len(_INDENT)
        visible = [truncate(line, max_width) for line in lines[:max_lines]]
        remaining = len(lines) - len(visible)
        return (
            [*visible, f"{glyph('more')} {pluralize(remaining, 'more line')}; use --full to show all"]
            if remaining
            else visible
        )


def _format_error(error: Any) -> str:
    """Return an error as text: name and message if it has only these, else JSON."""
    match error:
        case str():
            return error
        case {"name": str(name), "message": str(message), **rest} if not rest:
            return f"{name}: {message}"
        case _:
            return json.dumps(error, ensure_ascii=False)


def _wrap_facts(facts: list[str]) -> list[str]:
    """Join facts into as few lines as possible."""
    dot = f" {glyph('dot')} "
    lines: list[str] = []
    for fact in map(sanitize, facts):
        if lines and len(lines[-1]) + len(dot) + len(fact) <= terminal_columns():
            lines[-1] += dot + fact
        else:
            lines.append(fact)
    return lines


class _MarkdownFormatter:
    """Renders Markdown with rich, which is imported only for this."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.markdown import Heading, Markdown  # noqa: PLC0415

        class TranscriptHeading(Heading):
            """A left-aligned heading; rich centers it."""

            def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
                self.text.justify = "left"
                yield self.text

        class TranscriptMarkdown(Markdown):
            elements = {**Markdown.elements, "heading_open": TranscriptHeading}  # noqa: RUF012

        self._markdown_class = TranscriptMarkdown
        color = click.get_current_context().color
        self._console = Console(
            force_terminal=color is not False, no_color=color is False, highlight=False, emoji=False, markup=False
        )

    def lines(self, text: str, width: int) -> list[str]:
        """Return the rendered lines of a sanitized text. Links show their URL: a hidden one could deceive."""
        self._console.width = width
        with self._console.capture() as capture:
            self._console.print(self._markdown_class(text, hyperlinks=False, code_theme="ansi_dark"))
        lines: list[str] = []
        for line in capture.get().split("\n"):
            blank = not click.unstyle(line).strip()
            if not blank or (lines and lines[-1]):
                lines.append("" if blank else line.rstrip())
        return lines[:-1] if lines and not lines[-1] else lines
