"""What a restart left behind: a message that was never read is answered, an answer that was cut off is said to be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recollect.agent.titles import said
from recollect.channels.bot import command
from recollect.channels.bot.delivery import MORE, insist
from recollect.channels.bot.incoming import Incoming
from recollect.channels.bot.ledger import Entry
from recollect.channels.bot.outlet import Outlet, Rereadable, Undelivered
from recollect.channels.bot.splitting import split
from recollect.errors import SessionNotFound
from recollect.model.message import Message
from recollect.store_async import AsyncSession, AsyncStore

if TYPE_CHECKING:
    from recollect.channels.bot.desk import Desk

CUT_OFF = "\u26a0\ufe0f _This answer was cut off: I was restarted. What there is of it is kept: ask me to go on._"
LOST_FILES = "\u26a0\ufe0f _I was restarted before I had read this message and its files. Please send it again._"
_LOOKED_AT = 500


class Left(NamedTuple):
    """How a message stands in the store: not there, answered, or cut off; and what was answered."""

    state: Literal["unread", "answered", "cut off", "open"]
    text: str = ""


def job(desk: Desk, entry: Entry) -> Callable[[], Awaitable[None]]:
    """Give what is to be done about one entry, when its place's turn comes."""

    async def recover() -> None:
        incoming = entry.incoming
        left = Left("unread") if command.parsed(incoming.text) else await standing(desk.agent.store, incoming)
        if left.state == "unread" and entry.files and desk.refetch is not None:
            incoming = await desk.refetch(incoming) or incoming
        if left.state == "unread" and (incoming.attachments or not entry.files):
            await desk.answer(incoming)
            return
        outlet = desk.reach(incoming)
        if left.state == "open":  # of a process on another machine, which nobody can ask whether it is alive
            desk.orphans.add(incoming.session)
        try:
            if left.state == "unread":
                await desk.tell(outlet, LOST_FILES)
            else:
                note = "" if left.state == "answered" else CUT_OFF
                if not (note and await _marked(desk, outlet, entry.sent, note)):
                    await _over(desk, outlet, entry.sent, f"{left.text}\n\n{note}".strip(), note)
        except Undelivered as error:
            if error.again:
                return  # after the next start
        await desk.ledger.done(incoming)

    return recover


async def standing(store: AsyncStore, incoming: Incoming) -> Left:
    """Find out how far a message got. Opening its session marks what the process that is gone left open."""
    try:
        session = await store.session(incoming.session, create=False)
    except SessionNotFound:
        return Left("unread")
    messages = await session.messages(_LOOKED_AT)
    for index, message in enumerate(messages):
        if message.role == "user" and (message.metadata or {}).get("message_id") == incoming.id:
            return await _answered(session, message, messages[index + 1 :])
    return Left("unread")


async def _answered(session: AsyncSession, question: Message, after: list[Message]) -> Left:
    texts: list[str] = []
    for message in after:
        if message.role == "user":
            break
        if message.role == "assistant" and (text := said(message)):
            texts.append(text)
    status = next((turn.status for turn in await session.turns() if turn.id == question.id), "interrupted")
    state: Any = {"completed": "answered", "open": "open"}.get(status, "cut off")
    return Left(state, "\n\n".join(texts))


async def _marked(desk: Desk, outlet: Outlet, sent: list[str], note: str) -> bool:
    """Put the note after what the person sees, which may be more than was stored. False where that can not be read."""
    if not sent or not isinstance(outlet, Rereadable):
        return False
    shown = await insist(lambda: outlet.read(sent[-1]), desk.patience)
    text = f"{(shown or '').removesuffix(MORE)}\n\n{note}"
    if shown and outlet.measure(text) <= outlet.limit:
        await insist(lambda: outlet.edit(sent[-1], text), desk.patience)
    else:
        await desk.tell(outlet, note)
    return True


async def _over(desk: Desk, outlet: Outlet, sent: list[str], text: str, note: str) -> None:
    """Put an answer over the messages that it had already, and send what they do not hold."""
    pieces = await asyncio.to_thread(split, text, outlet.limit, outlet.measure)
    if len(pieces) < len(sent) or (sent and text == note):  # more was seen than stored: it is not taken away again
        await desk.tell(outlet, note)
        return
    for number, piece in enumerate(pieces):
        if number < len(sent):
            try:
                await insist(lambda at=sent[number], piece=piece: outlet.edit(at, piece), desk.patience)
            except Undelivered as error:
                if error.again:
                    raise
            else:
                continue
        await insist(lambda piece=piece: outlet.send(piece), desk.patience)
