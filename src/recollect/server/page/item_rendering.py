"""Items of a conversation: reads a range of messages and renders it as HTML items.

An item is a day, a question, an answer or a compaction. It has a key, which identifies it in the page, and a tag, which
changes with its HTML. A page sends the keys and tags that it has and receives only new items.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.agent import approvals
from recollect.agent.recall import is_recalled
from recollect.formats import display
from recollect.model import humanize
from recollect.model.compaction import Compaction, outermost_compactions
from recollect.model.message import Message, TextPart, ToolCallPart, ToolResultPart
from recollect.model.turn import TurnInfo
from recollect.server.account import Account
from recollect.server.page import branching, part_rendering
from recollect.server.page.clock import Clock
from recollect.server.page.live_updates import live_answer_of
from recollect.server.page.markdown_rendering import render_texts
from recollect.server.page.templating import render_template
from recollect.server.turn_runner import TurnRun
from recollect.store_async import AsyncSession

_MAX_ANSWER_MESSAGES = 60
"""Maximum number of messages in one answer item; a longer turn is split, so that updates stay small."""


class PageItem(NamedTuple):
    """One item: its key, its tag, and its HTML."""

    key: str
    tag: str
    html: str


def make_item(key: str, html: str) -> PageItem:
    """Return an item. Its tag is a hash of its HTML."""
    return PageItem(key, hashlib.blake2b(html.encode("utf-8", "replace"), digest_size=9).hexdigest(), html)


def markdown_texts(messages: Sequence[Message], compactions: Iterable[Compaction]) -> Iterator[str]:
    """Yield the texts to render as Markdown, newest first."""
    for message in reversed(messages):
        yield from (part.text for part in message.parts if isinstance(part, TextPart) and part.text.strip())
    yield from (compaction.summary for compaction in compactions)


class AnswerGroup(NamedTuple):
    """Messages that are shown as one answer, and the question before them if it is in the range."""

    messages: list[Message]
    question: Message | None


class ItemRenderer:
    """Renders messages as items, with their turns and branches."""

    def __init__(
        self,
        session: str,
        clock: Clock,
        turns: dict[tuple[int, int], TurnInfo],
        choices: dict[str, branching.BranchChoice],
        delegates: Sequence[str],
        prose: Mapping[str, str],
        compacted_counts: dict[int, int],
    ) -> None:
        """Initialize. `compacted_counts` maps a compaction's id to its number of messages without tool steps."""
        self._session = session
        self._clock = clock
        self._turns = turns
        self._choices = choices
        self._delegates = delegates
        self._prose = prose
        self._compacted_counts = compacted_counts

    def items(self, messages: Sequence[Message], compactions: Iterable[Compaction], *, busy: bool) -> list[PageItem]:
        """Return the items of messages and of the summaries between them."""
        items: list[PageItem] = []
        pending_compactions = sorted(compactions, key=lambda compaction: compaction.from_position)
        groups = _group_messages(messages)
        day = None
        for number, group in enumerate(groups):
            first = group if isinstance(group, Message) else group.messages[0]
            while pending_compactions and pending_compactions[0].from_position <= first.position:
                items.append(self._render_compaction(pending_compactions.pop(0)))
            label = self._clock.local(first.created_at_ms).date()
            if label != day:
                items.append(self._day(first.created_at_ms))
                day = label
            is_last = number == len(groups) - 1
            if isinstance(group, AnswerGroup):
                items.append(self._answer(group, last=is_last and not busy))
                continue
            items.append(self._question(group))
            if (not is_last and not isinstance(groups[number + 1], AnswerGroup)) or (is_last and not busy):
                items += self._render_unanswered(group, last=is_last)
        return items + [self._render_compaction(compaction) for compaction in pending_compactions]

    def _day(self, time_ms: int) -> PageItem:
        local = self._clock.local(time_ms)
        days = (self._clock.today - local.date()).days
        label = "Today" if days == 0 else "Yesterday" if days == 1 else self._clock.exact(time_ms).rpartition(",")[0]
        return make_item(f"day-{local.date()}", render_template("day.html", label=label, key=f"day-{local.date()}"))

    def _render_compaction(self, compaction: Compaction) -> PageItem:
        key = f"compaction-{compaction.round}"
        return make_item(
            key,
            render_template(
                "compaction.html",
                key=key,
                compaction=compaction,
                count=humanize.pluralize(self._compacted_counts[compaction.id], "earlier message"),
                before=humanize.format_count(compaction.tokens_before),
                after=humanize.format_count(compaction.tokens_after),
                when=self._clock.exact(compaction.created_at_ms),
                summary=part_rendering.trusted_html(part_rendering.render_text(self._prose[compaction.summary])),
            ),
        )

    def _question(self, message: Message) -> PageItem:
        texts = [part.text for part in message.parts if isinstance(part, TextPart)]
        files = [
            part_rendering.trusted_html(html)
            for index, part in enumerate(display.visible_parts(message))
            if not isinstance(part, TextPart) and (html := self._render_part(part, message, index)) is not None
        ]
        choice = self._choices.get(message.id)
        html_ = render_template(
            "question.html",
            key=f"m-{message.id}",
            message=message,
            text="\n\n".join(texts),
            files=files,
            step=choice if choice is not None and not choice.under_answer else None,
            time=self._time(message),
            recalled=is_recalled(message),
        )
        return make_item(f"m-{message.id}", html_)

    def _render_part(self, part: Any, message: Message, index: int) -> str | None:
        if isinstance(part, ToolResultPart):
            return part_rendering.render_orphan_result(part, self._session, message.id, index)
        return part_rendering.render_part(part, self._session, message, index, self._prose)

    def _answer(self, group: AnswerGroup, *, last: bool) -> PageItem:
        first, final = group.messages[0], group.messages[-1]
        turn = self._turns.get((first.branch, first.turn)) if first.turn is not None else None
        choice = self._choices.get(first.id)
        if group.question is not None:
            question_choice = self._choices.get(group.question.id)
            choice = question_choice if question_choice is not None and question_choice.under_answer else choice
        blocks = self._blocks(group.messages, turn)
        key = f"m-{first.id}"
        html = render_template(
            "answer.html",
            key=key,
            turn=f"{first.branch}.{first.turn}" if first.turn is not None else "",
            blocks=[part_rendering.trusted_html(block) for block in blocks],
            first=first,
            final=final,
            pin_target=next((m for m in reversed(group.messages) if m.role == "assistant"), final),
            pinned=any(m.pinned for m in group.messages),
            step=choice,
            ending=_answer_ending(group.messages, turn, last=last),
            details=self._details(group.messages, turn),
            time=self._time(final),
        )
        return make_item(key, html)

    def _blocks(self, messages: Sequence[Message], turn: TurnInfo | None) -> list[str]:
        results, answered = _match_tool_results(messages)
        open_turn = turn is not None and turn.status == "open"
        blocks: list[str] = []
        for message in messages:
            for index, part in enumerate(display.visible_parts(message)):
                if isinstance(part, ToolCallPart):
                    result = results.get((message.id, index))
                    pending_status = "running" if open_turn else "cancelled"
                    files: list[str] = []
                    if result is not None and result.message is not None:
                        files = part_rendering.render_result_files(
                            result.part, self._session, result.message, result.part_index
                        )
                    part_ref = f"{message.id}.{index}"
                    blocks.append(
                        part_rendering.render_tool_call(
                            part,
                            result,
                            pending_status=pending_status,
                            part_ref=part_ref,
                            sessions=self._delegates,
                            files=files,
                        )
                    )
                elif isinstance(part, ToolResultPart):
                    if (message.id, index) not in answered:
                        blocks.append(part_rendering.render_orphan_result(part, self._session, message.id, index))
                elif (
                    block := part_rendering.render_part(part, self._session, message, index, self._prose)
                ) is not None:
                    blocks.append(block)
        return blocks

    def _render_unanswered(self, question: Message, *, last: bool) -> list[PageItem]:
        """Return the item for a question without an answer: why it has none."""
        turn = self._turns.get((question.branch, question.position))
        if turn is None or turn.status == "completed":
            return []
        end = _answer_ending([], turn, last=last)
        if end is None:
            return []
        key = f"end-{question.id}"
        choice = self._choices.get(question.id)
        html = render_template(
            "answer.html", key=key, turn=question.id, blocks=[], first=None, final=None, pin_target=None, pinned=False,
            step=choice if choice is not None and choice.under_answer else None, ending=end, details=[], time=None,
        )  # fmt: skip
        return [make_item(key, html)]

    def _time(self, message: Message) -> dict[str, str]:
        time_ms = message.created_at_ms
        return {"short": f"{self._clock.local(time_ms):%H:%M}", "long": self._clock.exact(time_ms)}

    def _details(self, messages: Sequence[Message], turn: TurnInfo | None) -> list[str]:
        model = next((m.model for m in reversed(messages) if m.model), None) or (turn.model if turn else None)
        input_tokens = sum(m.input_tokens or 0 for m in messages) or (turn.input_tokens if turn else None)
        output_tokens = sum(m.output_tokens or 0 for m in messages) or (turn.output_tokens if turn else None)
        details = [model] if model else []
        if input_tokens or output_tokens:
            details.append(
                f"{humanize.format_count(input_tokens or 0)} in, {humanize.format_count(output_tokens or 0)} out"
            )
        if turn is not None and turn.latency_ms is not None:
            details.append(humanize.format_duration(turn.latency_ms))
        return details


class AnswerEnding(NamedTuple):
    """The end of an answer that did not complete: its text, a detail and the offered action."""

    kind: str
    text: str
    detail: str = ""
    action: str = ""


def _answer_ending(messages: Sequence[Message], turn: TurnInfo | None, *, last: bool) -> AnswerEnding | None:
    states = {message.state for message in messages}
    status = turn.status if turn is not None else None
    if status == "failed" or "error" in states:
        error = turn.error if turn is not None and turn.error else next((m.error for m in messages if m.error), None)
        return AnswerEnding("failed", "The model could not answer.", _error_text(error), "retry" if last else "")
    if status in ("cancelled", "interrupted") or "interrupted" in states:
        text = "Stopped." if status == "cancelled" else "Interrupted: the server stopped during this answer."
        if status == "interrupted" and turn is not None and turn.error:
            text = _error_text(turn.error)
        action = "" if not last else "carry-on" if messages else "retry"
        return AnswerEnding("cut", text, "", action)
    if status == "open" or states & {"streaming", "pending"}:
        return AnswerEnding("open", "Another window or program is answering", "", "")
    if messages and display.is_truncated(messages[-1]):
        return AnswerEnding("cut", display.TRUNCATED_NOTICE, "", "carry-on" if last else "")
    return None


def _error_text(error: Any) -> str:
    """Return the text of a stored error."""
    if isinstance(error, dict):
        name, message = str(error.get("name") or ""), str(error.get("message") or "")
        is_own_error = name in ("ModelError", "ModelNotConfigured", "") or name.endswith("StoreError")
        return message if is_own_error or not name else f"{name}: {message}".rstrip(": ")
    return "" if error is None else str(error)


def _group_messages(messages: Sequence[Message]) -> list[Message | AnswerGroup]:
    """Group the messages between two questions as answers."""
    groups: list[Message | AnswerGroup] = []
    for message in messages:
        last = groups[-1] if groups else None
        if message.role in ("user", "system") and not message.tool_results:
            groups.append(message)
        elif (
            isinstance(last, AnswerGroup)
            and last.messages[0].turn == message.turn
            and len(last.messages) < _MAX_ANSWER_MESSAGES
        ):
            last.messages.append(message)
        else:
            groups.append(AnswerGroup([message], last if isinstance(last, Message) and last.role == "user" else None))
    return groups


def _match_tool_results(
    messages: Sequence[Message],
) -> tuple[dict[tuple[str, int], part_rendering.StoredResult], set[tuple[str, int]]]:
    """Return the result of each call, by message and part of the call, and the parts of the matched results."""
    open_calls: dict[str, tuple[str, int, int]] = {}
    results: dict[tuple[str, int], part_rendering.StoredResult] = {}
    answered: set[tuple[str, int]] = set()
    for message in messages:
        for index, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                open_calls[part.call_id] = (message.id, index, message.completed_at_ms or message.created_at_ms)
            elif isinstance(part, ToolResultPart) and part.call_id in open_calls:
                call_message, call_index, call_time = open_calls.pop(part.call_id)
                stored_latency = (part.metadata or {}).get("latency_ms")
                # The duration is unknown if both were stored at once, as by an import.
                latency = (
                    stored_latency if type(stored_latency) is int else max(message.created_at_ms - call_time, 0) or None
                )
                results[call_message, call_index] = part_rendering.StoredResult(part, message.id, latency, index)
                answered.add((message.id, index))
    return results, answered


PAGE_SIZE = 60
"""Messages per page: a few screens."""

MAX_MESSAGES = 400
"""Maximum number of messages per request: more than the page keeps (MAX_ITEMS in conversation.js)."""

_MAX_ALIGNMENT = 60  # extra messages that are read so that a page begins with a user message


class ItemPage(NamedTuple):
    """A range of a conversation: its items, its first and last position, and whether there are more messages."""

    items: list[PageItem]
    first: int
    last: int
    older: bool
    newer: bool


class MessageRange(NamedTuple):
    """Messages, the compactions between them, and the first position."""

    messages: list[Message]
    compactions: list[Compaction]
    first: int


async def read_latest(account: Account, session: AsyncSession, clock: Clock, *, count: int = PAGE_SIZE) -> ItemPage:
    """Return the end of a conversation."""
    return await _read_view(account, session, clock, before=None, count=count)


async def read_older(account: Account, session: AsyncSession, clock: Clock, *, before: int) -> ItemPage:
    """Return the page before a position."""
    return await _read_view(account, session, clock, before=before, count=PAGE_SIZE, recover=True)


async def read_between(
    account: Account, session: AsyncSession, clock: Clock, *, first: int, last: int | None
) -> ItemPage:
    """Return the messages from one position to another, or to the end; at most MAX_MESSAGES."""
    end = await _last_position(session)
    final_position = end if last is None else min(last, end)
    count = max(min(final_position - first + 1, MAX_MESSAGES), PAGE_SIZE if last is None else 1)
    # Up to the current end: new messages are added and do not push out older ones.
    before = None if last is None else final_position + 1
    return await _read_view(
        account, session, clock, before=before, count=count, align=first > final_position, back_to=first, recover=True
    )


async def read_around(account: Account, session: AsyncSession, clock: Clock, *, position: int) -> ItemPage:
    """Return the page with a message in its middle."""
    return await _read_view(
        account, session, clock, before=position + PAGE_SIZE // 2, count=PAGE_SIZE, expand_at=position
    )


async def read_compacted(
    account: Account, session: AsyncSession, clock: Clock, compaction: Compaction, before: int | None
) -> ItemPage:
    """Return the messages of a compaction: the last page, or the one before a position."""
    end = compaction.to_position + 1 if before is None else min(before, compaction.to_position + 1)
    messages = [m for m in await session.messages(PAGE_SIZE, before=end) if m.position >= compaction.from_position]
    first = messages[0].position if messages else compaction.from_position
    message_range = MessageRange(messages, [], first)
    items = await _render_items(
        account, session, clock, message_range, await _read_turns(session, message_range), live=None
    )
    return ItemPage(items, first, end - 1, older=first > compaction.from_position, newer=False)


async def _last_position(session: AsyncSession) -> int:
    last = await session.messages(1)
    return last[0].position if last else 0


async def _read_view(
    account: Account,
    session: AsyncSession,
    clock: Clock,
    *,
    before: int | None,
    count: int,
    align: bool = True,
    expand_at: int | None = None,
    back_to: int | None = None,
    recover: bool = False,
) -> ItemPage:
    """Read and render a range. With `recover`, mark abandoned turns. This writes: never use it for a GET."""
    compactions = [
        compaction
        for compaction in outermost_compactions(await session.compactions.list())
        if expand_at is None or not compaction.from_position <= expand_at <= compaction.to_position
    ]
    message_range = await _read_messages(session, compactions, before, count, align=align, back_to=back_to)
    last, newer = message_range.messages[-1].position if message_range.messages else 0, False
    if before is not None:
        end = await _last_position(session)
        last, newer = min(before - 1, end), before <= end
    run = account.runner.run(session.id)
    live = run if run is not None and not run.ended and run.turn and not newer else None
    turns = await _read_turns(session, message_range)
    may_recover = recover and live is None and any(turn.status == "open" for turn in turns)
    if may_recover and await account.store.maintenance.recover(session.id):
        return await _read_view(
            account, session, clock, before=before, count=count, align=align, expand_at=expand_at, back_to=back_to
        )
    items = await _render_items(account, session, clock, message_range, turns, live=live)
    if not newer and any(turn.status == "open" for turn in turns):
        items += await _approval_items(session)
    return ItemPage(items, message_range.first, last, older=message_range.first > 1, newer=newer)


async def _approval_items(session: AsyncSession) -> list[PageItem]:
    """Return the item of a tool call that waits for approval, here or in another process."""
    approval = await approvals.pending_approval(session)
    if approval is None:
        return []
    key = f"approval-{approval.id}"
    return [make_item(key, render_template("approval.html", key=key, approval=approval))]


async def _read_turns(session: AsyncSession, message_range: MessageRange) -> list[TurnInfo]:
    if not message_range.messages:
        return []
    first, last = message_range.messages[0].position, message_range.messages[-1].position
    return await session.turns.list(after=first - 1, until=last)


async def _read_messages(
    session: AsyncSession,
    compactions: Sequence[Compaction],
    before: int | None,
    count: int,
    *,
    align: bool,
    back_to: int | None,
) -> MessageRange:
    """Read messages backward, skipping compacted ones, back to a user message or to a position."""
    messages: list[Message] = []
    crossed_compactions: list[Compaction] = []
    end, remaining = before, count
    while remaining > 0:
        batch = await session.messages(remaining, before=end)
        if not batch:
            break
        for compaction in compactions:
            if (
                compaction.from_position <= batch[-1].position
                and compaction.to_position >= batch[0].position
                and compaction not in crossed_compactions
            ):
                crossed_compactions.append(compaction)
        visible = [
            m for m in batch if not any(f.from_position <= m.position <= f.to_position for f in crossed_compactions)
        ]
        messages = visible + messages
        end = batch[0].position
        covering = next((c for c in crossed_compactions if c.from_position <= end <= c.to_position), None)
        end = covering.from_position if covering is not None else end
        remaining = count - len(messages) if covering is not None else 0
        if back_to is not None and not remaining:
            remaining = max(min(end - back_to, MAX_MESSAGES - len(messages)), 0)
        if (
            not remaining
            and align
            and messages
            and messages[0].role != "user"
            and len(messages) < count + _MAX_ALIGNMENT
        ):
            remaining = 10
            align = len(messages) < count + _MAX_ALIGNMENT - 10
    first = min([m.position for m in messages[:1]] + [c.from_position for c in crossed_compactions], default=1)
    return MessageRange(messages, crossed_compactions, first)


async def _count_compacted(session: AsyncSession, compactions: Sequence[Compaction]) -> dict[int, int]:
    """Return the number of messages of each compaction, without tool steps."""
    if not compactions:
        return {}
    counts = await session.shown_counts([(item.from_position - 1, item.to_position) for item in compactions])
    return {compaction.id: count for compaction, count in zip(compactions, counts, strict=True)}


async def _render_items(
    account: Account,
    session: AsyncSession,
    clock: Clock,
    message_range: MessageRange,
    turns: Sequence[TurnInfo],
    *,
    live: TurnRun | None,
) -> list[PageItem]:
    messages = message_range.messages
    branches = await session.branches.list()
    choices = await branching.branch_choices(session, messages, branches) if len(branches) > 1 else {}
    delegates: list[str] = []
    if session.delegate_count:
        page = await account.store.list_sessions(100, parent=session.id, delegates=True, archived=None)
        delegates = [child.id for child in page]
    turns_by_start = {(turn.branch, turn.position): turn for turn in turns}
    if live is not None:
        messages = [m for m in messages if m.turn is None or f"{m.branch}.{m.turn}" != live.turn or m.role == "user"]
    prose = await render_texts(markdown_texts(messages, message_range.compactions))
    compacted_counts = await _count_compacted(session, message_range.compactions)
    renderer = ItemRenderer(session.id, clock, turns_by_start, choices, delegates, prose, compacted_counts)
    # In a thread: hundreds of long messages would block the event loop.
    items = await asyncio.to_thread(renderer.items, messages, message_range.compactions, busy=live is not None)
    if live is not None and live.turn:
        items.append(make_item(f"live-{live.turn}", await live_answer_of(live).html(live.turn)))
    return items
