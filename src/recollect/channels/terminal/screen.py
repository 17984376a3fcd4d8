"""Screen: the answer as Markdown while it streams, running tools, notices and the results of commands.

Complete Markdown blocks are printed once; the incomplete one is drawn below them. Redrawing the whole answer for each
word would flicker, and would fail once it is longer than the screen. With NO_COLOR or a dumb terminal there are no
colors. All text from a model, a tool or the store passes sanitize.clean() first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Generator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.text import Text

from recollect.agent.approvals import Approval
from recollect.agent.commands import CommandOutcome
from recollect.agent.events import (
    ApprovalAnswered,
    Delegated,
    Event,
    Notice,
    ReasoningDelta,
    Responded,
    TextDelta,
    Titled,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from recollect.agent.recall import is_recalled
from recollect.channels.terminal.sanitize import clean, clean_line, truncate_line
from recollect.formats import display
from recollect.model.humanize import pluralize, truncate
from recollect.model.json import UNSET
from recollect.model.message import DataPart, Message

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s")


class MarkdownBlocks:
    """Splits a growing Markdown text into complete blocks, which later text cannot change, and an incomplete one.

    Each line is parsed once: the time for one long block must not grow with the square of its length.
    """

    def __init__(self) -> None:
        self._begin([])
        self._partial = ""

    def _begin(self, lines: list[str]) -> None:
        self._lines = lines
        self._fence: str | None = None
        self._has_text = self._in_list = False
        self._blank: int | None = None
        """The number of lines up to a blank line in a list. It ends the block if the list does not continue."""

    @property
    def incomplete(self) -> str:
        """The text that is not a complete block yet."""
        return "".join(self._lines) + self._partial

    def feed(self, text: str) -> list[str]:
        """Add a piece of text; return the blocks that it completes."""
        *lines, self._partial = (self._partial + text).split("\n")
        blocks: list[str] = []
        for line in lines:
            block = self._add_line(f"{line}\n")
            if block.strip():
                blocks.append(block.strip("\n"))
        return blocks

    def finish(self) -> str:
        """Return the incomplete block, and reset."""
        remaining, self._partial = self.incomplete.strip("\n"), ""
        self._begin([])
        return remaining

    def _add_line(self, line: str) -> str:
        """Add a line; return the block that it completes, or an empty text.

        A block ends with a closing fence, or with a blank line outside a fence that does not continue a list.
        """
        block = ""
        if self._blank is not None and line.strip():
            if not line[:1].isspace() and not _LIST_ITEM.match(line):
                block, lines = "".join(self._lines[: self._blank]), self._lines[self._blank :]
                self._begin(lines)
            self._blank = None
        self._lines.append(line)
        mark = _FENCE.match(line)
        if self._fence is not None:
            if mark and mark[1].startswith(self._fence) and not line.strip().strip(self._fence[0]):
                return self._end_block()
        elif mark:
            self._fence = mark[1]
        elif not line.strip():
            if self._has_text and not self._in_list:
                return self._end_block()
            if self._has_text and self._blank is None:
                self._blank = len(self._lines)
        else:
            self._in_list = bool(_LIST_ITEM.match(line)) or (self._in_list and line[:1].isspace())
        self._has_text = self._has_text or bool(line.strip())
        return block

    def _end_block(self) -> str:
        block = "".join(self._lines)
        self._begin([])
        return block


_MAX_WIDTH = 100  # columns; longer lines are hard to read
_OUTPUT_LINES = 3  # lines of tool output; the store has all of it
_ARGUMENT_LINES = 12  # lines of a call's arguments that are shown before "Show all arguments" is chosen
_REFRESH_SECONDS = 0.08  # about 12 frames per second, enough for the spinner
_SPINNER_FRAMES = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_STATUS_MARKS = {"success": ("\u2713", "green"), "error": ("\u2717", "red"), "cancelled": ("\u2013", "yellow")}

_DECISION_TEXTS = {
    "once": "Allowed once.",
    "session": "Allowed in this conversation. /approvals lists all approvals.",
    "always": "Always allowed. /approvals lists all approvals.",
    "deny": "Denied. The tool was not run.",
}


class _LeftAlignedHeading(Heading):
    """A left-aligned heading; rich centers it in a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text
        text.justify = "left"
        yield text


class _LeftAlignedMarkdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _LeftAlignedHeading}  # noqa: RUF012  a class attribute in rich, too


class _TrimmedLines:
    """Markdown without the blank lines that rich adds around code; with `tail`, only the lines that fit the screen."""

    def __init__(self, content: RenderableType, *, tail: bool = False) -> None:
        self._content = content
        self._tail = tail

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = console.render_lines(self._content, options, pad=False)
        while rows and _is_blank(rows[0]):
            del rows[0]
        while rows and _is_blank(rows[-1]):
            del rows[-1]
        for row in rows[-max(console.height - 4, 3) :] if self._tail else rows:
            yield from row
            yield Segment.line()


def _is_blank(row: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in row)


def render_markdown(text: str, *, tail: bool = False) -> RenderableType:
    """Return sanitized, rendered Markdown."""
    return _TrimmedLines(_LeftAlignedMarkdown(clean(text), code_theme="ansi_dark", hyperlinks=False), tail=tail)


class Screen:
    """Draws a conversation. During a turn, a live region at the bottom shows the incomplete block and running tools."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=False)
        self._live: Live | None = None
        self._refresh_task: asyncio.Task[None] | None = None
        self._blocks = MarkdownBlocks()
        self._reasoning = ""
        self._tools: dict[str, tuple[str, float]] = {}
        self._tool_names: dict[str, str] = {}
        self._delegates: dict[str, Delegated] = {}
        self._has_printed = False

    @property
    def _width(self) -> int:
        return min(self.console.width, _MAX_WIDTH)

    def _print(self, content: RenderableType) -> None:
        if self._live is not None:
            self._live.refresh()  # the text that is printed now leaves the live region
        self.console.print(content, width=self._width)

    def event(self, event: Event) -> None:
        """Show an event."""
        match event:
            case TurnStarted():
                self._begin()
            case TurnEnded():
                self._end(event)
            case Notice():
                self.notice(event.text, warning=event.level == "warning")
            case Titled():
                self.set_title(event.title)
            case _:
                self._step(event)

    def _step(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._add_text(event.text)
            case ReasoningDelta():
                self._reasoning += event.text
            case Responded():
                self._complete()
            case ToolStarted():
                self._tools[event.call_id] = (_format_call(event), time.monotonic())
            case ToolFinished():
                self._tool(event)
            case ApprovalAnswered():
                self.notice(_DECISION_TEXTS.get(event.decision, event.decision))
            case Delegated():
                self._delegates[event.session] = event
                if event.ended:
                    del self._delegates[event.session]
            case _:
                pass

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Stop drawing inside this context, so that a menu can use the screen."""
        live = self._live
        if live is not None:
            live.stop()
        try:
            yield
        finally:
            if live is not None and live is self._live:
                live.start()
                self._refresh_task = asyncio.get_running_loop().create_task(self._refresh_loop(live))

    def approval(self, approval: Approval, *, full: bool = False) -> bool:
        """Show the call that waits for approval; return whether its arguments are shown completely."""
        name = clean_line(f"{approval.tool} of the MCP server {approval.server}")
        self._print(Text(f"? May the model run {name}?", style="bold yellow"))
        rows = clean(approval.text).splitlines()
        max_width = self._width - 2
        visible = rows if full else [truncate(row, max_width) for row in rows[:_ARGUMENT_LINES]]
        for row in visible:
            self._print(Text(f"  {row}"))
        if full or visible == rows:
            return True
        self._print(Text(f"  \u2026 {len(approval.text):,} characters in total", style="dim"))
        return False

    def set_title(self, title: str) -> None:
        """Set the window title of the terminal."""
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self.console.set_window_title(clean_line(title))

    def _begin(self) -> None:
        self._has_printed = False
        self.console.print()
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._render_live,
                console=self.console,
                transient=True,
                auto_refresh=False,  # rich's refresh thread and a print would draw over each other
                vertical_overflow="crop",
            )
            self._live.start()
            self._refresh_task = asyncio.get_running_loop().create_task(self._refresh_loop(self._live))

    async def _refresh_loop(self, live: Live) -> None:
        while live.is_started:
            live.refresh()
            await asyncio.sleep(_REFRESH_SECONDS)

    def _add_text(self, text: str) -> None:
        self._print_reasoning()
        for block in self._blocks.feed(text):
            self._block(block)

    def _block(self, block: str) -> None:
        if self._has_printed:
            self._print("")
        self._print(render_markdown(block))
        self._has_printed = True

    def _print_reasoning(self) -> None:
        if self._reasoning.strip():
            excerpt = truncate_line(self._reasoning, self._width - 12)
            self._print(Text.assemble(("\u2026 reasoning: ", "dim"), (excerpt, "dim italic")))
        self._reasoning = ""

    def _complete(self) -> None:
        self._print_reasoning()
        remaining = self._blocks.finish()
        if remaining.strip():
            self._block(remaining)

    def _tool(self, event: ToolFinished) -> None:
        call, _ = self._tools.pop(event.call_id, (event.tool, 0.0))
        mark, style = _STATUS_MARKS[event.status]
        if self._has_printed:
            self._print("")
        self._print(
            Text.assemble(
                (f"{mark} ", style), (truncate_line(call, self._width - 14), "bold"), (_format_latency(event), "dim")
            )
        )
        for row in _shorten_output(event.output, self._width):
            self._print(Text(f"  {row}", style="dim"))
        self._has_printed = True

    def _render_live(self) -> RenderableType:
        """Render the live region: the incomplete block, the reasoning, running tools, or a spinner."""
        parts: list[RenderableType] = []
        if self._blocks.incomplete.strip():
            parts += ([""] if self._has_printed else []) + [render_markdown(self._blocks.incomplete, tail=True)]
        if self._reasoning:
            parts.append(_spinner_line(f"thinking: {truncate_line(self._reasoning[-300:], self._width - 14)}", "dim"))
        now = time.monotonic()
        for call, since in self._tools.values():
            parts.append(_spinner_line(f"{truncate_line(call, self._width - 14)}  {now - since:.0f} s", "cyan"))
        for delegate in self._delegates.values():
            parts.append(Text(f"  {truncate_line(_format_progress(delegate), self._width - 4)}", style="dim"))
        if not parts:
            parts.append(_spinner_line("Ctrl-C stops the answer", "dim"))
        return Padding(Group(*parts), (0, max(self.console.width - self._width, 0), 0, 0))

    def _end(self, event: TurnEnded) -> None:
        self._complete()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._refresh_task is not None:
            self._refresh_task.cancel()
        self._tools.clear()
        self._delegates.clear()
        if event.error:
            self.notice(event.error, warning=True)
        elif event.status == "cancelled":
            self.notice("Stopped. The partial answer is stored.")
        elif event.truncated:
            self.notice(display.TRUNCATED_NOTICE, warning=True)
        self._print(Text(_format_usage(event), style="dim"))
        self.console.print()

    def notice(self, text: str, *, warning: bool = False) -> None:
        """Show a notice that is not part of the answer."""
        self._print(Text(("! " if warning else "\u00b7 ") + clean(text), style="yellow" if warning else "dim"))

    def outcome(self, outcome: CommandOutcome) -> None:
        """Show the outcome of a command."""
        if outcome.text:
            self.console.print()
            self._print(Text(clean(outcome.text), style="yellow") if outcome.failed else render_markdown(outcome.text))
            self.console.print()

    def welcome(self, title: str, facts: str) -> None:
        """Show the title, and the facts below it."""
        self._print(Rule(Text(truncate_line(title, self._width - 8), style="bold"), style="dim", align="left"))
        self._print(Text(truncate_line(facts, self._width), style="dim"))
        self.console.print()

    def show_history(self, messages: Sequence[Message], earlier: int) -> None:
        """Show the latest messages, and the number of earlier ones."""
        if earlier:
            self.notice(f"{pluralize(earlier, 'earlier message')} not shown. Use /history N to show more.")
        for message in messages:
            self.message(message)

    def user_message(self, text: str) -> None:
        """Show a message of the person like in the input line."""
        rows = clean(text).splitlines()
        content = Text("\n".join([f"> {rows[0]}", *(f"  {row}" for row in rows[1:])]), style="bold")
        self._print(Group(content, Text("")))

    def message(self, message: Message) -> None:
        """Show one stored message."""
        if is_recalled(message):
            self.notice(f"Recalled: {truncate_line(message.text, self._width - 14)}")
        elif message.role == "user" and message.text:
            self.user_message(message.text)
        elif message.role == "assistant" and message.text:
            self._print(Group(render_markdown(message.text), Text("")))
        self._tool_names |= {call.call_id: call.tool for call in message.tool_calls}
        for part in message.tool_results:
            mark, style = _STATUS_MARKS[part.status]
            tool = part.tool or self._tool_names.pop(part.call_id, "tool")
            summary = truncate_line(f"{tool}: {part.output}", self._width - 4)
            self._print(Text.assemble((f"{mark} ", style), (summary, "dim"), "\n"))
        for part in display.visible_parts(message):
            if isinstance(part, DataPart):
                value: Any = part.native if part.data is UNSET else part.data
                self._print(
                    Text(truncate_line(f"[data] {json.dumps(value, ensure_ascii=False)}", self._width - 4), style="dim")
                )
        if message.state in ("interrupted", "error"):
            self.notice("This answer was interrupted; the stored part is above.")
        elif display.is_truncated(message):
            self.notice(display.TRUNCATED_NOTICE, warning=True)


def _spinner_line(text: str, style: str) -> Text:
    """Return a line with a spinner."""
    return Text(f"{_SPINNER_FRAMES[int(time.monotonic() * 10) % len(_SPINNER_FRAMES)]} {text}", style=style)


def _format_call(event: ToolStarted) -> str:
    arguments: Any = event.arguments
    if isinstance(arguments, dict):
        text = ", ".join(
            f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in arguments.items()
        )
    else:
        text = str(arguments or "")
    return f"{event.tool}({text})"


def _format_progress(delegate: Delegated) -> str:
    activity = f"running {delegate.tool}" if delegate.tool else delegate.line or "starting"
    return f"{delegate.agent}: {activity}"


def _format_latency(event: ToolFinished) -> str:
    seconds = event.latency_ms / 1000
    return f"  {seconds:.1f} s" if seconds >= 0.1 else f"  {event.latency_ms} ms"  # noqa: PLR2004  shorter times in milliseconds


def _shorten_output(output: str, width: int) -> list[str]:
    rows = [truncate_line(row, width - 4) for row in clean(output).splitlines() if row.strip()]
    if len(rows) <= _OUTPUT_LINES:
        return rows
    return [*rows[:_OUTPUT_LINES], f"\u2026 {len(rows) - _OUTPUT_LINES} more lines"]


def _format_usage(event: TurnEnded) -> str:
    parts = [event.model or ""]
    if event.input_tokens is not None:
        parts.append(f"{event.input_tokens:,} tokens in, {event.output_tokens or 0:,} out")
    parts.append(f"{(event.latency_ms or 0) / 1000:.1f} s")
    return " \u00b7 ".join(clean_line(part) for part in parts if part)
