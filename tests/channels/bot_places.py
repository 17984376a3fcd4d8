"""A platform in memory: outlets that keep what was sent, with limits, delays and failures as a test says."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from recollect.channels.bot import Author, Incoming, SlowDown, Undelivered
from recollect.channels.bot.splitting import utf16
from recollect.model import keys


class Wall:
    """Everything that was sent, by place: message id to text, in order; and every call that was made."""

    def __init__(self, limit=4096, pace=0.0):
        self.limit, self.pace = limit, pace
        self.messages = defaultdict(dict)
        self.calls = []
        self.refusals = []
        self.typed = 0
        self._last = 0

    def reach(self, incoming):
        return _Outlet(self, incoming.session)

    def texts(self, session):
        return list(self.messages[session].values())


class _Outlet:
    def __init__(self, wall, session):
        self.wall, self.session = wall, session
        self.limit, self.pace, self.gathers = wall.limit, wall.pace, 0.0

    def measure(self, text):
        return utf16(text)

    async def _call(self, kind, text):
        await asyncio.sleep(0)
        self.wall.calls.append((kind, self.session, text))
        assert self.measure(text) <= self.limit
        if self.wall.refusals:
            refusal = self.wall.refusals.pop(0)
            if refusal is not None:
                raise refusal

    async def send(self, text):
        await self._call("send", text)
        self.wall._last += 1
        self.wall.messages[self.session][str(self.wall._last)] = text
        return str(self.wall._last)

    async def edit(self, message, text):
        await self._call("edit", text)
        if message not in self.wall.messages[self.session]:
            raise Undelivered("no such message", again=False)
        self.wall.messages[self.session][message] = text

    async def typing(self):
        self.wall.typed += 1


def said(text, chat=1, id="1", author="7", name="Ann", **fields):
    fields.setdefault("direct", True)
    place = fields.pop("place", None) or keys.TelegramChat(str(chat))
    return Incoming(id=str(id), place=place, author=Author(author, name), text=text, **fields)


__all__ = ["SlowDown", "Undelivered", "Wall", "said"]
