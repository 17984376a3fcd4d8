"""Where an answer goes on Telegram, and what it means when Telegram refuses something."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    MessageEntity,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, Forbidden, InvalidToken, RetryAfter, TelegramError

from recollect.channels.bot import Button, Incoming, Secrets, SlowDown, Undelivered
from recollect.channels.bot.splitting import utf16
from recollect.channels.bot.tables import laid_out
from recollect.channels.telegram.markup import rendered
from recollect.model import keys

T = TypeVar("T")
LIMIT = 4096
DIRECT_PACE, GROUP_PACE = 1.0, 3.0
"""Seconds between two changes: Telegram takes about one a second in a chat, and twenty a minute in a group."""

_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)


class TelegramOutlet:
    """One chat, or one topic of it. The first message of an answer in a group replies to who asked."""

    limit = LIMIT
    gathers = 0.0

    def __init__(self, bot: Bot, incoming: Incoming, secrets: Secrets, pace: float | None = None) -> None:
        assert isinstance(incoming.place, keys.TelegramChat)
        self._bot = bot
        self._secrets = secrets
        self._chat = int(incoming.place.chat)
        self._topic = None if incoming.place.topic is None else int(incoming.place.topic)
        self._reply_to = None if incoming.direct else int(incoming.id)
        self._pace = pace if pace is not None else DIRECT_PACE if incoming.direct else GROUP_PACE

    @property
    def pace(self) -> float:
        """Seconds between two changes."""
        return self._pace

    def measure(self, text: str) -> int:
        """Count as Telegram does, tables as they are laid out."""
        return max(utf16(text), utf16(laid_out(text))) if "|" in text else utf16(text)

    async def send(self, text: str) -> str:
        """Send a message; give its id."""
        reply = None
        if self._reply_to is not None:
            reply = ReplyParameters(self._reply_to, allow_sending_without_reply=True)

        async def post(text: str, entities: list[MessageEntity] | None) -> Any:
            return await self._bot.send_message(
                self._chat, text, entities=entities, message_thread_id=self._topic, reply_parameters=reply,
                link_preview_options=_NO_PREVIEW,
            )  # fmt: skip

        sent = await self._formatted(text, post)
        if sent is None:
            raise Undelivered("Telegram gave no message back", again=False)
        self._reply_to = None
        return str(sent.message_id)

    async def ask(self, text: str, buttons: Sequence[Button]) -> str:
        """Send a message with buttons, one on each line: their labels are long for a phone."""
        keyboard = InlineKeyboardMarkup(
            [[InlineKeyboardButton(button.label, callback_data=button.data)] for button in buttons]
        )

        async def post(text: str, entities: list[MessageEntity] | None) -> Any:
            return await self._bot.send_message(
                self._chat, text, entities=entities, message_thread_id=self._topic, reply_markup=keyboard,
                link_preview_options=_NO_PREVIEW,
            )  # fmt: skip

        sent = await self._formatted(text, post)
        if sent is None:
            raise Undelivered("Telegram gave no message back", again=False)
        return str(sent.message_id)

    async def settle(self, message: str, text: str) -> None:
        """Change a message; one that is edited without buttons loses them."""
        await self.edit(message, text)

    async def edit(self, message: str, text: str) -> None:
        """Change a message."""

        async def post(text: str, entities: list[MessageEntity] | None) -> Any:
            return await self._bot.edit_message_text(
                text, self._chat, int(message), entities=entities, link_preview_options=_NO_PREVIEW
            )

        await self._formatted(text, post)

    async def typing(self) -> None:
        """Show that an answer is being written."""
        await self._tried(lambda: self._bot.send_chat_action(self._chat, "typing", message_thread_id=self._topic))

    async def _formatted(self, text: str, post: Callable[[str, list[MessageEntity] | None], Awaitable[T]]) -> T | None:
        """Post a text with its entities; as it was written, where Telegram refuses them."""
        plain, entities = rendered(text)
        marks = [MessageEntity(e.type, e.offset, e.length, url=e.url, language=e.language) for e in entities]
        try:
            return await self._tried(lambda: post(plain, marks or None), refusals=True)
        except BadRequest as error:
            if _unchanged(error):
                return None
            if not marks or _gone(error):
                raise self._undelivered(error, again=False) from None
        try:
            return await self._tried(lambda: post(text.strip(), None), refusals=True)
        except BadRequest as error:
            if _unchanged(error):
                return None
            raise self._undelivered(error, again=False) from None

    async def _tried(self, call: Callable[[], Awaitable[T]], *, refusals: bool = False) -> T:
        """Make a call, and say in the words of every bot what failed. The library's errors may hold the token."""
        try:
            return await call()
        except RetryAfter as error:
            raise SlowDown(seconds(error.retry_after)) from None
        except ChatMigrated as error:
            if self._chat == error.new_chat_id:
                raise self._undelivered(error, again=False) from None
            self._chat = error.new_chat_id
        except BadRequest as error:
            if refusals:
                raise
            raise self._undelivered(error, again=False) from None
        except (Forbidden, InvalidToken) as error:
            raise self._undelivered(error, again=False) from None
        except TelegramError as error:
            raise self._undelivered(error, again=True) from None
        return await self._tried(call, refusals=refusals)

    def _undelivered(self, error: TelegramError, *, again: bool) -> Undelivered:
        return Undelivered(self._secrets.hide(f"{type(error).__name__}: {error}"), again=again)


def seconds(wait: float | datetime.timedelta) -> float:
    """Give a wait that Telegram asks for as seconds."""
    return wait.total_seconds() if isinstance(wait, datetime.timedelta) else float(wait)


def _unchanged(error: BadRequest) -> bool:
    return "not modified" in str(error).lower()


def _gone(error: BadRequest) -> bool:
    told = str(error).lower()
    return "not found" in told or "can't be edited" in told
