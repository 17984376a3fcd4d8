"""Discord outlets: a channel, or the response to a slash command, which may be visible to one person only.

Markdown is adapted to Discord, which has no tables, images or rules and only three heading sizes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Sequence
from typing import Any

import aiohttp
import discord

from recollect.channels.bot import Button, chat_markdown, utf16_length
from recollect.channels.bot.chat_markdown import map_outside_code
from recollect.channels.discord.client import error_reason
from recollect.errors import DeliveryFailed, RateLimited

_SMALL_HEADING = re.compile(r"(?m)^ {0,3}#{4,6} +(.+?) *#*$")
_RULE = re.compile(r"(?m)^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$")
_IMAGE = re.compile(r"!\[([^\]\n]{0,200})\]\((https?://[^\s)]{1,500})[^)\n]{0,200}\)")
_RULE_LINE = "\u2500" * 12


def to_discord_markdown(text: str) -> str:
    """Return Markdown that Discord renders. Code blocks stay unchanged."""
    return map_outside_code(chat_markdown.render_tables(text), _simplify)


def _simplify(text: str) -> str:
    text = _SMALL_HEADING.sub(_bold, text)
    text = _RULE.sub(_RULE_LINE, text)
    return _IMAGE.sub(lambda match: f"[{match[1] or 'image'}]({match[2]})", text)


def _bold(match: re.Match[str]) -> str:
    return f"**{match[1].replace('**', '')}**"


LIMIT = 2000  # characters: Discord's limit for a message
EDIT_INTERVAL = 1.2
"""Seconds between two edits: Discord allows five in five seconds per channel, and concurrent answers share them."""

GATHER_SECONDS = 0.8
"""Seconds before the first words are sent: a short answer arrives complete, and a notification shows a sentence."""

_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
_RATE_LIMIT_PAUSE = 5.0  # seconds after a 429 without a time to wait


@contextlib.contextmanager
def translate_errors() -> Generator[None]:
    """Raise RateLimited or DeliveryFailed for errors of the library."""
    try:
        yield
    except discord.RateLimited as error:
        raise RateLimited(seconds=error.retry_after) from error
    except discord.HTTPException as error:
        if error.status == _TOO_MANY_REQUESTS:
            raise RateLimited(seconds=_RATE_LIMIT_PAUSE) from error
        raise DeliveryFailed(reason=error_reason(error), retryable=error.status >= _SERVER_ERROR) from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise DeliveryFailed(reason=error_reason(error), retryable=True) from error
    except RuntimeError as error:  # the connection is being closed
        raise DeliveryFailed(reason=error_reason(error), retryable=False) from error


class _DiscordOutlet:
    limit = LIMIT
    pace = EDIT_INTERVAL
    gathers = GATHER_SECONDS

    def measure(self, text: str) -> int:
        """Return the length in UTF-16 code units, the stricter of Discord's counts (its app uses it)."""
        return (
            len(text) if len(text) > 2 * LIMIT else utf16_length(to_discord_markdown(text))
        )  # the caller only compares with LIMIT: do not render a text that is far above it


class ChannelOutlet(_DiscordOutlet):
    """A channel, a thread or direct messages. The first message of an answer replies to `reply_to`, if set.

    Each message has a nonce, so that a retry after a lost response does not show it twice.
    """

    def __init__(self, channel: discord.PartialMessageable, *, reply_to: int | None = None) -> None:
        self._channel = channel
        self._nonce_prefix = os.urandom(6).hex()
        self._reply_to = reply_to
        self._count = 0
        self._retrying = False

    async def send(self, text: str) -> str:
        """Send a message."""
        options: dict[str, Any] = {}
        if self._reply_to is not None and not self._count:
            question = self._channel.get_partial_message(self._reply_to)
            options["reference"] = question.to_reference(fail_if_not_exists=False)
        retry, self._retrying = self._retrying, True
        with translate_errors():
            message = await self._channel.send(
                to_discord_markdown(text), nonce=f"{self._nonce_prefix}-{self._count}", **options
            )
        if retry:  # Discord returns the message of the first try, with its old text, if it had accepted it
            await self.edit(str(message.id), text)
        self._retrying = False
        self._count += 1
        return str(message.id)

    async def ask(self, text: str, buttons: Sequence[Button]) -> str:
        """Send a message with buttons. on_interaction() receives their presses, also after a lost connection."""
        view = discord.ui.View(timeout=None)
        for button in buttons:
            view.add_item(discord.ui.Button[discord.ui.View](label=button.label, custom_id=button.data))
        view.stop()  # the library need not keep the view: it has no callbacks
        with translate_errors():
            return str((await self._channel.send(to_discord_markdown(text), view=view)).id)

    async def settle(self, message: str, text: str) -> None:
        """Edit a message and remove its buttons."""
        with translate_errors():
            await self._channel.get_partial_message(int(message)).edit(content=to_discord_markdown(text), view=None)

    async def edit(self, message: str, text: str) -> None:
        """Edit a message."""
        with translate_errors():
            await self._channel.get_partial_message(int(message)).edit(content=to_discord_markdown(text))

    async def read(self, message: str) -> str | None:
        """Return the current text of a message; None if it was deleted."""
        with translate_errors():
            try:
                return (await self._channel.fetch_message(int(message))).content
            except discord.NotFound:
                return None

    async def typing(self) -> None:
        """Show the typing indicator for ten seconds."""
        with translate_errors():
            await self._channel.typing()


class CommandOutlet(_DiscordOutlet):
    """The reply to a deferred slash command."""

    def __init__(self, interaction: discord.Interaction[discord.Client], *, private: bool) -> None:
        self._interaction = interaction
        self._private = private

    async def send(self, text: str) -> str:
        """Send a message. The first one replaces the "thinking" placeholder."""
        with translate_errors():
            message = await self._interaction.followup.send(
                to_discord_markdown(text), ephemeral=self._private, wait=True
            )
        return str(message.id)

    async def edit(self, message: str, text: str) -> None:
        """Edit a message."""
        with translate_errors():
            await self._interaction.followup.edit_message(int(message), content=to_discord_markdown(text))

    async def typing(self) -> None:
        """Show nothing: Discord already shows a placeholder."""


class ExpiredOutlet(_DiscordOutlet):
    """The outlet of a private command whose interaction has expired: a reply would be visible to all."""

    async def send(self, text: str) -> str:  # noqa: ARG002
        """Raise DeliveryFailed."""
        raise DeliveryFailed(reason="the interaction has expired", retryable=False)

    async def edit(self, message: str, text: str) -> None:
        """Edit nothing."""

    async def typing(self) -> None:
        """Show nothing."""
