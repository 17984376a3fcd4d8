"""A chat platform in memory: outlets that record messages, with the limits, delays and failures that a test sets."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from recollect.channels import conversation_keys
from recollect.channels.bot import Author, Incoming
from recollect.channels.bot.chat_markdown import utf16_length
from recollect.errors import DeliveryFailed


class MemoryPlatform:
    """The messages by session (message id to text, in order), and every call of an outlet."""

    def __init__(self, limit=4096, pace=0.0):
        self.limit, self.pace = limit, pace
        self.messages = defaultdict(dict)
        self.calls = []
        self.refusals = []
        self.typing_calls = 0
        self._last = 0

    def outlet(self, incoming):
        return _Outlet(self, incoming.session)

    def texts(self, session):
        return list(self.messages[session].values())


class _Outlet:
    def __init__(self, platform, session):
        self.platform, self.session = platform, session
        self.limit, self.pace, self.gathers = platform.limit, platform.pace, 0.0

    def measure(self, text):
        return utf16_length(text)

    async def _call(self, kind, text):
        await asyncio.sleep(0)
        self.platform.calls.append((kind, self.session, text))
        assert self.measure(text) <= self.limit
        if self.platform.refusals:
            refusal = self.platform.refusals.pop(0)
            if refusal is not None:
                raise refusal

    async def send(self, text):
        await self._call("send", text)
        self.platform._last += 1
        self.platform.messages[self.session][str(self.platform._last)] = text
        return str(self.platform._last)

    async def edit(self, message, text):
        await self._call("edit", text)
        if message not in self.platform.messages[self.session]:
            raise DeliveryFailed(reason="no such message", retryable=False)
        self.platform.messages[self.session][message] = text

    async def typing(self):
        self.platform.typing_calls += 1


def make_incoming(text, chat=1, id="1", author="7", name="Ann", **fields):
    fields.setdefault("direct", True)
    key = fields.pop("place", None) or conversation_keys.TelegramChatKey(str(chat))
    return Incoming(id=str(id), place=key, author=Author(author, name), text=text, **fields)


__all__ = ["MemoryPlatform", "make_incoming"]
