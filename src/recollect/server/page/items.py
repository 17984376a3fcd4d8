"""A stretch of a conversation, read as the page shows it: its end, a page of it, what is around a message, a fold.

A page asks for what it shows, says which items it has, and is given only what is new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from recollect import ops
from recollect.agent import approvals
from recollect.model.compaction import Compaction, outermost
from recollect.model.message import Message
from recollect.model.turn import Turn
from recollect.server.account import Account
from recollect.server.page import branching
from recollect.server.page.clock import Clock
from recollect.server.page.drawing import Drawing, Item, item, texts
from recollect.server.page.picture import picture
from recollect.server.page.rendering import rendered
from recollect.server.page.template import render
from recollect.server.talks import Run
from recollect.store_async import AsyncSession

PAGE = 60
"""Messages that are shown at first, and added with each page."""

MOST = 400
"""Messages that a page may ask for at once: more than it keeps."""

_ALIGNED = 60


class View(NamedTuple):
    """A stretch of a conversation: its items, the first and last position in it, and whether there is more."""

    items: list[Item]
    first: int
    last: int
    older: bool
    newer: bool


class Stretch(NamedTuple):
    """What was read: messages, what stands for others, and the position that it begins at."""

    messages: list[Message]
    compactions: list[Compaction]
    first: int


async def latest(account: Account, session: AsyncSession, clock: Clock, *, count: int = PAGE) -> View:
    """Give the end of a conversation."""
    return await _view(account, session, clock, before=None, count=count)


async def older(account: Account, session: AsyncSession, clock: Clock, *, before: int) -> View:
    """Give the page before a position."""
    return await _view(account, session, clock, before=before, count=PAGE, recovers=True)


async def between(account: Account, session: AsyncSession, clock: Clock, *, first: int, last: int | None) -> View:
    """Give what is from one position to another, or to the end; at most as much as a page may have."""
    end = await _end(session)
    until = end if last is None else min(last, end)
    count = max(min(until - first + 1, MOST), PAGE if last is None else 1)
    # To the end, wherever that is by then: what is said meanwhile comes on top, and pushes out nothing older.
    before = None if last is None else until + 1
    return await _view(
        account, session, clock, before=before, count=count, align=first > until, back_to=first, recovers=True
    )


async def around(account: Account, session: AsyncSession, clock: Clock, *, position: int) -> View:
    """Give the stretch that a message stands in the middle of."""
    return await _view(account, session, clock, before=position + PAGE // 2, count=PAGE, unfold=position)


async def folded(account: Account, session: AsyncSession, clock: Clock, fold: Compaction, before: int | None) -> View:
    """Give the messages that a summary stands for, the last page of them or the one before a position."""
    end = fold.to_position + 1 if before is None else min(before, fold.to_position + 1)
    messages = [m for m in await session.messages(PAGE, before=end) if m.position >= fold.from_position]
    first = messages[0].position if messages else fold.from_position
    stretch = Stretch(messages, [], first)
    made = await _items(account, session, clock, stretch, await _turns(session, stretch), live=None)
    return View(made, first, end - 1, older=first > fold.from_position, newer=False)


async def _end(session: AsyncSession) -> int:
    last = await session.messages(1)
    return last[0].position if last else 0


async def _view(
    account: Account,
    session: AsyncSession,
    clock: Clock,
    *,
    before: int | None,
    count: int,
    align: bool = True,
    unfold: int | None = None,
    back_to: int | None = None,
    recovers: bool = False,
) -> View:
    """Read a stretch. `recovers` marks turns whose process is gone, which writes: never for a GET."""
    folds = [
        fold
        for fold in outermost(await session.compactions())
        if unfold is None or not fold.from_position <= unfold <= fold.to_position
    ]
    stretch = await _read(session, folds, before, count, align=align, back_to=back_to)
    last, newer = stretch.messages[-1].position if stretch.messages else 0, False
    if before is not None:
        end = await _end(session)
        last, newer = min(before - 1, end), before <= end
    run = account.talks.run(session.id)
    live = run if run is not None and not run.ended and run.turn and not newer else None
    turns = await _turns(session, stretch)
    abandoned = recovers and live is None and any(turn.status == "open" for turn in turns)
    if abandoned and await account.store.recover(session.id):
        return await _view(
            account, session, clock, before=before, count=count, align=align, unfold=unfold, back_to=back_to
        )
    made = await _items(account, session, clock, stretch, turns, live=live)
    if not newer and any(turn.status == "open" for turn in turns):
        made += await _approval(session)
    return View(made, stretch.first, last, older=stretch.first > 1, newer=newer)


async def _approval(session: AsyncSession) -> list[Item]:
    """Draw the question whether a tool may run, if one waits here or in another process."""
    approval = await approvals.waiting(session)
    if approval is None:
        return []
    key = f"approval-{approval.id}"
    return [item(key, render("approval.html", key=key, approval=approval))]


async def _turns(session: AsyncSession, stretch: Stretch) -> list[Turn]:
    if not stretch.messages:
        return []
    return await session.turns(after=stretch.messages[0].position - 1, until=stretch.messages[-1].position)


async def _read(
    session: AsyncSession,
    folds: Sequence[Compaction],
    before: int | None,
    count: int,
    *,
    align: bool,
    back_to: int | None,
) -> Stretch:
    """Read messages backwards, over what was summed up, back to one that a person said or to a position."""
    found: list[Message] = []
    passed: list[Compaction] = []
    end, left = before, count
    while left > 0:
        batch = await session.messages(left, before=end)
        if not batch:
            break
        for fold in folds:
            if (
                fold.from_position <= batch[-1].position
                and fold.to_position >= batch[0].position
                and fold not in passed
            ):
                passed.append(fold)
        kept = [m for m in batch if not any(f.from_position <= m.position <= f.to_position for f in passed)]
        found = kept + found
        end = batch[0].position
        covering = next((fold for fold in passed if fold.from_position <= end <= fold.to_position), None)
        end = covering.from_position if covering is not None else end
        left = count - len(found) if covering is not None else 0
        if back_to is not None and not left:
            left = max(min(end - back_to, MOST - len(found)), 0)
        if not left and align and found and found[0].role != "user" and len(found) < count + _ALIGNED:
            left = 10
            align = len(found) < count + _ALIGNED - 10
    first = min([m.position for m in found[:1]] + [fold.from_position for fold in passed], default=1)
    return Stretch(found, passed, first)


async def _folded(session: AsyncSession, folds: Sequence[Compaction]) -> dict[int, int]:
    """Count the messages that each compaction stands for, without tool steps."""
    if not folds:
        return {}
    spans = [ops.messages.Stretch(session.id, None, fold.from_position - 1, fold.to_position) for fold in folds]
    counts = await session.store.run(ops.messages.count_shown(session.store.scope(), spans))
    return {fold.id: count for fold, count in zip(folds, counts, strict=True)}


async def _items(
    account: Account, session: AsyncSession, clock: Clock, stretch: Stretch, turns: Sequence[Turn], *, live: Run | None
) -> list[Item]:
    messages = stretch.messages
    branches = await session.branches()
    steps = await branching.steps(session, messages, branches) if len(branches) > 1 else {}
    delegates: list[str] = []
    if session.delegate_count:
        page = await account.store.list_sessions(100, parent=session.id, delegates=True, archived=None)
        delegates = [child.id for child in page]
    begun = {(turn.branch, turn.position): turn for turn in turns}
    if live is not None:
        messages = [m for m in messages if m.turn is None or f"{m.branch}.{m.turn}" != live.turn or m.role == "user"]
    prose = await rendered(texts(messages, stretch.compactions))
    folded = await _folded(session, stretch.compactions)
    drawing = Drawing(session.id, clock, begun, steps, delegates, prose, folded)
    # In a thread: hundreds of long messages take longer than the event loop may be held.
    made = await asyncio.to_thread(drawing.items, messages, stretch.compactions, busy=live is not None)
    if live is not None and live.turn:
        made.append(item(f"live-{live.turn}", await picture(live).html(live.turn)))
    return made
