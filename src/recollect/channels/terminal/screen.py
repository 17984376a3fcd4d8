"""What a person sees in a terminal: the answer as Markdown while it comes, tools as they run, notices, outcomes.

With NO_COLOR or a dumb terminal the same is shown without colours. Nothing that a model, a tool or the store wrote
reaches the terminal before safe.clean() has seen it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
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
from recollect.agent.commands import Outcome
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
from recollect.channels.terminal.markdown import Blocks
from recollect.channels.terminal.safe import clean, cut, line
from recollect.formats import remainder, truncation
from recollect.model.json import UNSET
from recollect.model.message import Message
from recollect.model.part import DataPart

_WIDEST = 100
_FOLDED = 3
_ARGUMENTS = 12  # lines of a call's arguments that are shown before "Show all arguments" is chosen
_TICK = 0.08
_FRAMES = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_MARKS = {"success": ("\u2713", "green"), "error": ("\u2717", "red"), "canceled": ("\u2013", "yellow")}

_DECISIONS = {
    "once": "Allowed once.",
    "session": "Allowed in this conversation. /approvals lists what is allowed.",
    "always": "Always allowed. /approvals lists what is allowed.",
    "deny": "Not allowed; it is not run.",
}


class _LeftHeading(Heading):
    """A heading at the left, where the eye is; the library centres it in a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text
        text.justify = "left"
        yield text


class _Markdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _LeftHeading}  # noqa: RUF012  as the library has it


class _Lines:
    """Markdown without the blank lines that the library puts around code; where asked, only as much as fits below."""

    def __init__(self, shown: RenderableType, *, tail: bool = False) -> None:
        self._shown = shown
        self._tail = tail

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = console.render_lines(self._shown, options, pad=False)
        while rows and _blank(rows[0]):
            del rows[0]
        while rows and _blank(rows[-1]):
            del rows[-1]
        for row in rows[-max(console.height - 4, 3) :] if self._tail else rows:
            yield from row
            yield Segment.line()


def _blank(row: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in row)


def markdown(text: str, *, tail: bool = False) -> RenderableType:
    """Render what a model wrote."""
    return _Lines(_Markdown(clean(text), code_theme="ansi_dark", hyperlinks=False), tail=tail)


class Screen:
    """Draws a talk. Between start and end of a turn a live region below shows what is not complete yet."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=False)
        self._live: Live | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._blocks = Blocks()
        self._thought = ""
        self._tools: dict[str, tuple[str, float]] = {}
        self._asked: dict[str, str] = {}
        self._helpers: dict[str, Delegated] = {}
        self._spoke = False

    @property
    def _width(self) -> int:
        return min(self.console.width, _WIDEST)

    def _print(self, shown: RenderableType) -> None:
        if self._live is not None:
            self._live.refresh()  # what is printed now is no longer below
        self.console.print(shown, width=self._width)

    def event(self, event: Event) -> None:
        """Show what happens."""
        match event:
            case TurnStarted():
                self._begin()
            case TurnEnded():
                self._end(event)
            case Notice():
                self.notice(event.text, warning=event.level == "warning")
            case Titled():
                self.titled(event.title)
            case _:
                self._step(event)

    def _step(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._said(event.text)
            case ReasoningDelta():
                self._thought += event.text
            case Responded():
                self._complete()
            case ToolStarted():
                self._tools[event.call_id] = (_call(event), time.monotonic())
            case ToolFinished():
                self._tool(event)
            case ApprovalAnswered():
                self.notice(_DECISIONS.get(event.decision, event.decision))
            case Delegated():
                self._helpers[event.session] = event
                if event.ended:
                    del self._helpers[event.session]
            case _:
                pass

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Leave the screen to something else for a while."""
        live = self._live
        if live is not None:
            live.stop()
        try:
            yield
        finally:
            if live is not None and live is self._live:
                live.start()
                self._ticking = asyncio.get_running_loop().create_task(self._tick(live))

    def approval(self, approval: Approval, *, whole: bool = False) -> bool:
        """Show the call that waits for approval; return whether all of its arguments are shown."""
        name = line(f"{approval.tool} of the MCP server {approval.server}")
        self._print(Text(f"? May the model run {name}?", style="bold yellow"))
        rows = clean(approval.text).splitlines()
        room = self._width - 2
        shown = (
            rows if whole else [row if len(row) <= room else f"{row[: room - 1]}\u2026" for row in rows[:_ARGUMENTS]]
        )
        for row in shown:
            self._print(Text(f"  {row}"))
        if whole or shown == rows:
            return True
        self._print(Text(f"  \u2026 {len(approval.text):,} characters in all", style="dim"))
        return False

    def titled(self, title: str) -> None:
        """Put the title where a terminal shows it."""
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self.console.set_window_title(line(title))

    def _begin(self) -> None:
        self._spoke = False
        self.console.print()
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._below,
                console=self.console,
                transient=True,
                auto_refresh=False,  # its thread and a print would draw over each other
                vertical_overflow="crop",
            )
            self._live.start()
            self._ticking = asyncio.get_running_loop().create_task(self._tick(self._live))

    async def _tick(self, live: Live) -> None:
        while live.is_started:
            live.refresh()
            await asyncio.sleep(_TICK)

    def _said(self, text: str) -> None:
        self._fold_thought()
        for block in self._blocks.feed(text):
            self._block(block)

    def _block(self, block: str) -> None:
        if self._spoke:
            self._print("")
        self._print(markdown(block))
        self._spoke = True

    def _fold_thought(self) -> None:
        if self._thought.strip():
            words = cut(self._thought, self._width - 12)
            self._print(Text.assemble(("\u2026 thought: ", "dim"), (words, "dim italic")))
        self._thought = ""

    def _complete(self) -> None:
        self._fold_thought()
        left = self._blocks.finish()
        if left.strip():
            self._block(left)

    def _tool(self, event: ToolFinished) -> None:
        called, _ = self._tools.pop(event.call_id, (event.tool, 0.0))
        mark, style = _MARKS[event.status]
        if self._spoke:
            self._print("")
        self._print(Text.assemble((f"{mark} ", style), (cut(called, self._width - 14), "bold"), (_took(event), "dim")))
        for row in _folded(event.output, self._width):
            self._print(Text(f"  {row}", style="dim"))
        self._spoke = True

    def _below(self) -> RenderableType:
        """Draw what is not complete yet: the text so far, the thought, the tools that run, or that we wait."""
        shown: list[RenderableType] = []
        if self._blocks.rest.strip():
            shown += ([""] if self._spoke else []) + [markdown(self._blocks.rest, tail=True)]
        if self._thought:
            shown.append(_turning(f"thinks: {cut(self._thought[-300:], self._width - 14)}", "dim"))
        now = time.monotonic()
        for called, since in self._tools.values():
            shown.append(_turning(f"{cut(called, self._width - 14)}  {now - since:.0f} s", "cyan"))
        for helper in self._helpers.values():
            shown.append(Text(f"  {cut(_progress(helper), self._width - 4)}", style="dim"))
        if not shown:
            shown.append(_turning("Ctrl-C stops the answer", "dim"))
        return Padding(Group(*shown), (0, max(self.console.width - self._width, 0), 0, 0))

    def _end(self, event: TurnEnded) -> None:
        self._complete()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._ticking is not None:
            self._ticking.cancel()
        self._tools.clear()
        self._helpers.clear()
        if event.error:
            self.notice(event.error, warning=True)
        elif event.status == "cancelled":
            self.notice("Stopped. What came until here is kept.")
        elif event.truncated:
            self.notice(truncation.SENTENCE, warning=True)
        self._print(Text(_used(event), style="dim"))
        self.console.print()

    def notice(self, text: str, *, warning: bool = False) -> None:
        """Show something that is no part of the answer."""
        self._print(Text(("! " if warning else "\u00b7 ") + clean(text), style="yellow" if warning else "dim"))

    def outcome(self, outcome: Outcome) -> None:
        """Show what a command did."""
        if outcome.text:
            self.console.print()
            self._print(Text(clean(outcome.text), style="yellow") if outcome.failed else markdown(outcome.text))
            self.console.print()

    def welcome(self, title: str, facts: str) -> None:
        """Say where one is."""
        self._print(Rule(Text(cut(title, self._width - 8), style="bold"), style="dim", align="left"))
        self._print(Text(cut(facts, self._width), style="dim"))
        self.console.print()

    def past(self, messages: Sequence[Message], earlier: int) -> None:
        """Show the end of what was said before."""
        if earlier:
            self.notice(f"{earlier:,} earlier messages are above these. /history N shows more.")
        for message in messages:
            self.message(message)

    def entered(self, text: str) -> None:
        """Show a message of the person's, as the input line shows it."""
        rows = clean(text).splitlines()
        shown = Text("\n".join([f"> {rows[0]}", *(f"  {row}" for row in rows[1:])]), style="bold")
        self._print(Group(shown, Text("")))

    def message(self, message: Message) -> None:
        """Show one stored message."""
        if is_recalled(message):
            self.notice(f"Recalled: {cut(message.text, self._width - 14)}")
        elif message.role == "user" and message.text:
            self.entered(message.text)
        elif message.role == "assistant" and message.text:
            self._print(Group(markdown(message.text), Text("")))
        self._asked |= {call.call_id: call.tool for call in message.tool_calls}
        for part in message.tool_results:
            mark, style = _MARKS[part.status]
            tool = part.tool or self._asked.pop(part.call_id, "tool")
            told = cut(f"{tool}: {part.output}", self._width - 4)
            self._print(Text.assemble((f"{mark} ", style), (told, "dim"), "\n"))
        for part in remainder.shown(message):
            if isinstance(part, DataPart):
                value: Any = part.native if part.data is UNSET else part.data
                self._print(Text(cut(f"[data] {json.dumps(value, ensure_ascii=False)}", self._width - 4), style="dim"))
        if message.state in ("interrupted", "error"):
            self.notice("This answer was cut off; what came is above.")
        elif truncation.is_truncated(message):
            self.notice(truncation.SENTENCE, warning=True)


def _turning(text: str, style: str) -> Text:
    """Write a line that shows that something goes on."""
    return Text(f"{_FRAMES[int(time.monotonic() * 10) % len(_FRAMES)]} {text}", style=style)


def _call(event: ToolStarted) -> str:
    arguments: Any = event.arguments
    if isinstance(arguments, dict):
        told = ", ".join(
            f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in arguments.items()
        )
    else:
        told = str(arguments or "")
    return f"{event.tool}({told})"


def _progress(helper: Delegated) -> str:
    told = f"runs {helper.tool}" if helper.tool else helper.line or "begins"
    return f"{helper.agent}: {told}"


def _took(event: ToolFinished) -> str:
    seconds = event.latency_ms / 1000
    return f"  {seconds:.1f} s" if seconds >= 0.1 else f"  {event.latency_ms} ms"  # noqa: PLR2004  below it is no wait


def _folded(output: str, width: int) -> list[str]:
    rows = [cut(row, width - 4) for row in clean(output).splitlines() if row.strip()]
    if len(rows) <= _FOLDED:
        return rows
    return [*rows[:_FOLDED], f"\u2026 {len(rows) - _FOLDED} more lines are kept"]


def _used(event: TurnEnded) -> str:
    parts = [event.model or ""]
    if event.input_tokens is not None:
        parts.append(f"{event.input_tokens:,} tokens in, {event.output_tokens or 0:,} out")
    parts.append(f"{(event.latency_ms or 0) / 1000:.1f} s")
    return " \u00b7 ".join(line(part) for part in parts if part)
