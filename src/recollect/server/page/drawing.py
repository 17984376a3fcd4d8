"""Messages drawn as the items of the page: days, questions, answers, and what was summed up.

An item has a key, by which the page knows it again, and a tag that changes with what it looks like.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.agent.recall import is_recalled
from recollect.formats import remainder, truncation
from recollect.model import amount
from recollect.model.compaction import Compaction
from recollect.model.message import Message
from recollect.model.part import TextPart, ToolCallPart, ToolResultPart
from recollect.model.turn import Turn
from recollect.server.page import branching, parts
from recollect.server.page.clock import Clock
from recollect.server.page.template import render

_TOGETHER = 60
"""Messages that one answer is drawn of at most."""


class Item(NamedTuple):
    """One item: its key, its tag, and its HTML."""

    key: str
    tag: str
    html: str


def item(key: str, html: str) -> Item:
    """Make an item; its tag is what it looks like."""
    return Item(key, hashlib.blake2b(html.encode("utf-8", "replace"), digest_size=9).hexdigest(), html)


def texts(messages: Sequence[Message], folds: Iterable[Compaction]) -> Iterator[str]:
    """Yield the texts that are drawn as Markdown, the newest first."""
    for message in reversed(messages):
        yield from (part.text for part in message.parts if isinstance(part, TextPart) and part.text.strip())
    yield from (fold.summary for fold in folds)


class Answer(NamedTuple):
    """Messages of an agent that are shown as one: from the question to the next, or what there is of it."""

    messages: list[Message]
    question: Message | None


class Drawing:
    """Draws messages as items, with what is known about their turns and branches."""

    def __init__(
        self,
        session: str,
        clock: Clock,
        turns: dict[tuple[int, int], Turn],
        steps: dict[str, branching.Step],
        delegates: Sequence[str],
        prose: Mapping[str, str],
        folded: dict[int, int],
    ) -> None:
        """`folded` has, by its id, how many messages a compaction stands for, without tool steps."""
        self._session = session
        self._clock = clock
        self._turns = turns
        self._steps = steps
        self._delegates = delegates
        self._prose = prose
        self._folded = folded

    def items(self, messages: Sequence[Message], folds: Iterable[Compaction], *, busy: bool) -> list[Item]:
        """Draw messages, and the summaries between them."""
        made: list[Item] = []
        waiting = sorted(folds, key=lambda fold: fold.from_position)
        groups = _grouped(messages)
        day = None
        for number, group in enumerate(groups):
            first = group if isinstance(group, Message) else group.messages[0]
            while waiting and waiting[0].from_position <= first.position:
                made.append(self._fold(waiting.pop(0)))
            label = self._clock.local(first.created_at).date()
            if label != day:
                made.append(self._day(first.created_at))
                day = label
            last = number == len(groups) - 1
            if isinstance(group, Answer):
                made.append(self._answer(group, last=last and not busy))
                continue
            made.append(self._question(group))
            if (not last and not isinstance(groups[number + 1], Answer)) or (last and not busy):
                made += self._unanswered(group, last=last)
        return made + [self._fold(fold) for fold in waiting]

    def _day(self, moment: int) -> Item:
        local = self._clock.local(moment)
        days = (self._clock.today - local.date()).days
        label = "Today" if days == 0 else "Yesterday" if days == 1 else self._clock.exact(moment).rpartition(",")[0]
        return item(f"day-{local.date()}", render("day.html", label=label, key=f"day-{local.date()}"))

    def _fold(self, fold: Compaction) -> Item:
        key = f"fold-{fold.round}"
        return item(
            key,
            render(
                "fold.html",
                key=key,
                fold=fold,
                count=amount.many(self._folded[fold.id], "earlier message"),
                before=amount.count(fold.tokens_before),
                after=amount.count(fold.tokens_after),
                when=self._clock.exact(fold.created_at),
                summary=parts.safe(parts.text(self._prose[fold.summary])),
            ),
        )

    def _question(self, message: Message) -> Item:
        texts = [part.text for part in message.parts if isinstance(part, TextPart)]
        files = [
            parts.safe(made)
            for index, part in enumerate(remainder.shown(message))
            if not isinstance(part, TextPart) and (made := self._drawn(part, message, index)) is not None
        ]
        step = self._steps.get(message.id)
        shown = render(
            "question.html",
            key=f"m-{message.id}",
            message=message,
            text="\n\n".join(texts),
            files=files,
            step=step if step is not None and not step.under_answer else None,
            time=self._time(message),
            recalled=is_recalled(message),
        )
        return item(f"m-{message.id}", shown)

    def _drawn(self, part: Any, message: Message, index: int) -> str | None:
        if isinstance(part, ToolResultPart):
            return parts.orphan(part, self._session, message.id, index)
        return parts.drawn(part, self._session, message, index, self._prose)

    def _answer(self, group: Answer, *, last: bool) -> Item:
        first, final = group.messages[0], group.messages[-1]
        turn = self._turns.get((first.branch, first.turn)) if first.turn is not None else None
        step = self._steps.get(first.id)
        if group.question is not None:
            asked = self._steps.get(group.question.id)
            step = asked if asked is not None and asked.under_answer else step
        blocks = self._blocks(group.messages, turn)
        key = f"m-{first.id}"
        shown = render(
            "answer.html",
            key=key,
            turn=f"{first.branch}.{first.turn}" if first.turn is not None else "",
            blocks=[parts.safe(block) for block in blocks],
            first=first,
            final=final,
            said=next((m for m in reversed(group.messages) if m.role == "assistant"), final),
            pinned=any(m.pinned for m in group.messages),
            step=step,
            ending=_ending(group.messages, turn, last=last),
            figures=self._figures(group.messages, turn),
            time=self._time(final),
        )
        return item(key, shown)

    def _blocks(self, messages: Sequence[Message], turn: Turn | None) -> list[str]:
        results, answered = _results(messages)
        open_turn = turn is not None and turn.status == "open"
        made: list[str] = []
        for message in messages:
            for index, part in enumerate(remainder.shown(message)):
                if isinstance(part, ToolCallPart):
                    result = results.get((message.id, index))
                    waits = "running" if open_turn else "canceled"
                    files: list[str] = []
                    if result is not None and result.message is not None:
                        files = parts.files_of(result.part, self._session, result.message, result.place)
                    place = f"{message.id}.{index}"
                    made.append(
                        parts.card(part, result, unanswered=waits, place=place, sessions=self._delegates, files=files)
                    )
                elif isinstance(part, ToolResultPart):
                    if (message.id, index) not in answered:
                        made.append(parts.orphan(part, self._session, message.id, index))
                elif (drawn := parts.drawn(part, self._session, message, index, self._prose)) is not None:
                    made.append(drawn)
        return made

    def _unanswered(self, question: Message, *, last: bool) -> list[Item]:
        """Say what became of a question that has no answer."""
        turn = self._turns.get((question.branch, question.position))
        if turn is None or turn.status == "completed":
            return []
        ending = _ending([], turn, last=last)
        if ending is None:
            return []
        key = f"end-{question.id}"
        step = self._steps.get(question.id)
        shown = render(
            "answer.html", key=key, turn=question.id, blocks=[], first=None, final=None, said=None, pinned=False,
            step=step if step is not None and step.under_answer else None, ending=ending, figures=[], time=None,
        )  # fmt: skip
        return [item(key, shown)]

    def _time(self, message: Message) -> dict[str, str]:
        moment = message.created_at
        return {"short": f"{self._clock.local(moment):%H:%M}", "long": self._clock.exact(moment)}

    def _figures(self, messages: Sequence[Message], turn: Turn | None) -> list[str]:
        model = next((m.model for m in reversed(messages) if m.model), None) or (turn.model if turn else None)
        given = sum(m.input_tokens or 0 for m in messages) or (turn.input_tokens if turn else None)
        taken = sum(m.output_tokens or 0 for m in messages) or (turn.output_tokens if turn else None)
        found = [model] if model else []
        if given or taken:
            found.append(f"{amount.count(given or 0)} in, {amount.count(taken or 0)} out")
        if turn is not None and turn.latency_ms is not None:
            found.append(amount.lasting(turn.latency_ms))
        return found


class Ending(NamedTuple):
    """How an answer ended that is not just complete: what is said about it, and what can be done."""

    kind: str
    text: str
    detail: str = ""
    action: str = ""


def _ending(messages: Sequence[Message], turn: Turn | None, *, last: bool) -> Ending | None:
    states = {message.state for message in messages}
    status = turn.status if turn is not None else None
    if status == "failed" or "error" in states:
        error = turn.error if turn is not None and turn.error else next((m.error for m in messages if m.error), None)
        return Ending("failed", "The model could not answer.", _words(error), "retry" if last else "")
    if status in ("cancelled", "interrupted") or "interrupted" in states:
        told = "Stopped here." if status == "cancelled" else "Cut off here: the program that wrote this ended."
        if status == "interrupted" and turn is not None and turn.error:
            told = _words(turn.error)
        action = "" if not last else "carry-on" if messages else "retry"
        return Ending("cut", told, "", action)
    if status == "open" or states & {"streaming", "pending"}:
        return Ending("open", "Answering in another window or program", "", "")
    if messages and truncation.is_truncated(messages[-1]):
        return Ending("cut", truncation.SENTENCE, "", "carry-on" if last else "")
    return None


def _words(error: Any) -> str:
    """Say in words what went wrong."""
    if isinstance(error, dict):
        name, told = str(error.get("name") or ""), str(error.get("message") or "")
        own = name in ("ModelError", "ModelNotConfigured", "") or name.endswith("StoreError")
        return told if own or not name else f"{name}: {told}".rstrip(": ")
    return "" if error is None else str(error)


def _grouped(messages: Sequence[Message]) -> list[Message | Answer]:
    """Put what an agent said and did between two questions together."""
    groups: list[Message | Answer] = []
    for message in messages:
        last = groups[-1] if groups else None
        if message.role in ("user", "system") and not message.tool_results:
            groups.append(message)
        elif isinstance(last, Answer) and last.messages[0].turn == message.turn and len(last.messages) < _TOGETHER:
            last.messages.append(message)
        else:
            groups.append(Answer([message], last if isinstance(last, Message) and last.role == "user" else None))
    return groups


def _results(messages: Sequence[Message]) -> tuple[dict[tuple[str, int], parts.Result], set[tuple[str, int]]]:
    """Find each call's result: by the place of the call, and the places of the results that belong to one."""
    waiting: dict[str, tuple[str, int, int]] = {}
    found: dict[tuple[str, int], parts.Result] = {}
    answered: set[tuple[str, int]] = set()
    for message in messages:
        for index, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                waiting[part.call_id] = (message.id, index, message.completed_at or message.created_at)
            elif isinstance(part, ToolResultPart) and part.call_id in waiting:
                call, place, asked = waiting.pop(part.call_id)
                told = (part.metadata or {}).get("latency_ms")
                # Nothing is known of how long it took where both came at once, as from a file.
                latency = told if type(told) is int else max(message.created_at - asked, 0) or None
                found[call, place] = parts.Result(part, message.id, latency, index)
                answered.add((message.id, index))
    return found, answered
