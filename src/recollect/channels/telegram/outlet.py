"""Telegram outlet: sending and editing messages, and the meaning of Telegram's errors."""

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

from recollect.channels.bot import Button, Incoming, Secrets
from recollect.channels.bot.chat_markdown import render_tables, utf16_length
from recollect.channels.conversation_keys import TelegramChatKey
from recollect.channels.telegram.entities import render_entities
from recollect.errors import DeliveryFailed, RateLimited

T = TypeVar("T")
LIMIT = 4096  # UTF-16 code units: Telegram's limit for a message
DIRECT_EDIT_INTERVAL, GROUP_EDIT_INTERVAL = 1.0, 3.0
"""Seconds between two edits: Telegram allows about one message per second in a chat, and 20 per minute in a group."""

_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)


class TelegramOutlet:
    """One chat, or one topic of it. In a group, the first message of an answer replies to the question."""

    limit = LIMIT
    gathers = 0.0

    def __init__(self, bot: Bot, incoming: Incoming, secrets: Secrets, pace: float | None = None) -> None:
        assert isinstance(incoming.place, TelegramChatKey)
        self._bot = bot
        self._secrets = secrets
        self._chat = int(incoming.place.chat)
        self._topic = None if incoming.place.topic is None else int(incoming.place.topic)
        self._reply_to = None if incoming.direct else int(incoming.id)
        self._pace = pace if pace is not None else DIRECT_EDIT_INTERVAL if incoming.direct else GROUP_EDIT_INTERVAL

    @property
    def pace(self) -> float:
        """Minimum seconds between two edits."""
        return self._pace

    def measure(self, text: str) -> int:
        """Return the length in UTF-16 code units, as Telegram counts, with tables as they are rendered."""
        return max(utf16_length(text), utf16_length(render_tables(text))) if "|" in text else utf16_length(text)

    async def send(self, text: str) -> str:
        """Send a message and return its id."""
        reply = None
        if self._reply_to is not None:
            reply = ReplyParameters(self._reply_to, allow_sending_without_reply=True)

        async def post(text: str, entities: list[MessageEntity] | None) -> Any:
            return await self._bot.send_message(
                self._chat, text, entities=entities, message_thread_id=self._topic, reply_parameters=reply,
                link_preview_options=_NO_PREVIEW,
            )  # fmt: skip

        message = await self._post_formatted(text, post)
        if message is None:
            raise DeliveryFailed(reason="Telegram returned no message", retryable=False)
        self._reply_to = None
        return str(message.message_id)

    async def ask(self, text: str, buttons: Sequence[Button]) -> str:
        """Send a message with buttons, one per row: their labels are long for a phone."""
        keyboard = InlineKeyboardMarkup(
            [[InlineKeyboardButton(button.label, callback_data=button.data)] for button in buttons]
        )

        async def post(text: str, entities: list[MessageEntity] | None) -> Any:
            return await self._bot.send_message(
                self._chat, text, entities=entities, message_thread_id=self._topic, reply_markup=keyboard,
                link_preview_options=_NO_PREVIEW,
            )  # fmt: skip

        message = await self._post_formatted(text, post)
        if message is None:
            raise DeliveryFailed(reason="Telegram returned no message", retryable=False)
        return str(message.message_id)

    async def settle(self, message: str, text: str) -> None:
        """Edit a message and remove its buttons: Telegram removes them on an edit without buttons."""
        await self.edit(message, text)

    async def edit(self, message: str, text: str) -> None:
        """Edit a message."""

        async def post(text: str, entities: list[MessageEntity] | None) -> Any:
            return await self._bot.edit_message_text(
                text, self._chat, int(message), entities=entities, link_preview_options=_NO_PREVIEW
            )

        await self._post_formatted(text, post)

    async def typing(self) -> None:
        """Show the typing indicator for a few seconds."""
        await self._call(lambda: self._bot.send_chat_action(self._chat, "typing", message_thread_id=self._topic))

    async def _post_formatted(
        self, text: str, post: Callable[[str, list[MessageEntity] | None], Awaitable[T]]
    ) -> T | None:
        """Post a text with its entities; if Telegram rejects them, post the Markdown source."""
        plain, entities = render_entities(text)
        marks = [MessageEntity(e.type, e.offset, e.length, url=e.url, language=e.language) for e in entities]
        try:
            return await self._call(lambda: post(plain, marks or None), raise_bad_request=True)
        except BadRequest as error:
            if _is_unchanged(error):
                return None
            if not marks or _is_gone(error):
                raise self._to_delivery_failed(error, retryable=False) from None
        try:
            return await self._call(lambda: post(text.strip(), None), raise_bad_request=True)
        except BadRequest as error:
            if _is_unchanged(error):
                return None
            raise self._to_delivery_failed(error, retryable=False) from None

    async def _call(self, call: Callable[[], Awaitable[T]], *, raise_bad_request: bool = False) -> T:
        """Call the API; raise RateLimited or DeliveryFailed, redacted: the library's errors may contain the token.

        With `raise_bad_request`, a BadRequest reaches the caller, which may repeat the call in another form.
        """
        try:
            return await call()
        except RetryAfter as error:
            raise RateLimited(seconds=to_seconds(error.retry_after)) from None
        except ChatMigrated as error:
            if self._chat == error.new_chat_id:
                raise self._to_delivery_failed(error, retryable=False) from None
            self._chat = error.new_chat_id
        except BadRequest as error:
            if raise_bad_request:
                raise
            raise self._to_delivery_failed(error, retryable=False) from None
        except (Forbidden, InvalidToken) as error:
            raise self._to_delivery_failed(error, retryable=False) from None
        except TelegramError as error:
            raise self._to_delivery_failed(error, retryable=True) from None
        return await self._call(call, raise_bad_request=raise_bad_request)

    def _to_delivery_failed(self, error: TelegramError, *, retryable: bool) -> DeliveryFailed:
        return DeliveryFailed(reason=self._secrets.redact(f"{type(error).__name__}: {error}"), retryable=retryable)


def to_seconds(wait: float | datetime.timedelta) -> float:
    """Return a wait of Telegram's rate limit in seconds."""
    return wait.total_seconds() if isinstance(wait, datetime.timedelta) else float(wait)


def _is_unchanged(error: BadRequest) -> bool:
    return "not modified" in str(error).lower()


def _is_gone(error: BadRequest) -> bool:
    text = str(error).lower()
    return "not found" in text or "can't be edited" in text
