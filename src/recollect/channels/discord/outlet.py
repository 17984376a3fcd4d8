"""Where an answer goes on Discord: a channel, or the answer to a slash command, which may be for one person's eyes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Sequence
from typing import Any

import aiohttp
import discord

from recollect.channels.bot import Button, SlowDown, Undelivered, utf16
from recollect.channels.discord.connection import reason
from recollect.channels.discord.layout import laid_out

LIMIT = 2000
PACE = 1.2
"""Seconds between two changes: Discord takes five in five seconds from each channel, and answers share it."""

GATHERS = 0.8
"""Seconds before the first words are shown: a short answer comes whole, and a notification says more than a word."""

_TOO_FAST, _BROKEN = 429, 500
_PAUSE = 5.0


@contextlib.contextmanager
def delivering() -> Generator[None]:
    """Say in the desk's words why something was not taken."""
    try:
        yield
    except discord.RateLimited as error:
        raise SlowDown(error.retry_after) from error
    except discord.HTTPException as error:
        if error.status == _TOO_FAST:
            raise SlowDown(_PAUSE) from error
        raise Undelivered(reason(error), again=error.status >= _BROKEN) from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Undelivered(reason(error), again=True) from error
    except RuntimeError as error:  # the connection is being closed
        raise Undelivered(reason(error), again=False) from error


class _Measured:
    limit = LIMIT
    pace = PACE
    gathers = GATHERS

    def measure(self, text: str) -> int:
        """Count as the stricter of Discord's two ways does: its app counts most emoji as two."""
        return len(text) if len(text) > 2 * LIMIT else utf16(laid_out(text))  # far too long is too long


class ChannelOutlet(_Measured):
    """A channel, a thread or direct messages. The first message of an answer replies to the question, where asked to.

    Each message has a name, so that one that is sent again because the answer to it got lost is shown once.
    """

    def __init__(self, channel: discord.PartialMessageable, *, reply_to: int | None = None) -> None:
        self._channel = channel
        self._name = os.urandom(6).hex()
        self._reply_to = reply_to
        self._count = 0
        self._trying = False

    async def send(self, text: str) -> str:
        """Send a message."""
        options: dict[str, Any] = {}
        if self._reply_to is not None and not self._count:
            asked = self._channel.get_partial_message(self._reply_to)
            options["reference"] = asked.to_reference(fail_if_not_exists=False)
        again, self._trying = self._trying, True
        with delivering():
            sent = await self._channel.send(laid_out(text), nonce=f"{self._name}-{self._count}", **options)
        if again:  # Discord gives the message of the first try, if it had taken it: with what it said then
            await self.edit(str(sent.id), text)
        self._trying = False
        self._count += 1
        return str(sent.id)

    async def ask(self, text: str, buttons: Sequence[Button]) -> str:
        """Send a message with buttons. Their presses come to on_interaction(), also after a lost connection."""
        view = discord.ui.View(timeout=None)
        for button in buttons:
            view.add_item(discord.ui.Button[discord.ui.View](label=button.label, custom_id=button.data))
        view.stop()  # the library need not keep it: nothing is called back
        with delivering():
            return str((await self._channel.send(laid_out(text), view=view)).id)

    async def settle(self, message: str, text: str) -> None:
        """Change a message and take its buttons away."""
        with delivering():
            await self._channel.get_partial_message(int(message)).edit(content=laid_out(text), view=None)

    async def edit(self, message: str, text: str) -> None:
        """Change a message."""
        with delivering():
            await self._channel.get_partial_message(int(message)).edit(content=laid_out(text))

    async def read(self, message: str) -> str | None:
        """Give what a message says now."""
        with delivering():
            try:
                return (await self._channel.fetch_message(int(message))).content
            except discord.NotFound:
                return None

    async def typing(self) -> None:
        """Show for ten seconds that somebody types."""
        with delivering():
            await self._channel.typing()


class CommandOutlet(_Measured):
    """The answer to a slash command that was deferred."""

    def __init__(self, interaction: discord.Interaction[discord.Client], *, private: bool) -> None:
        self._interaction = interaction
        self._private = private

    async def send(self, text: str) -> str:
        """Send a message: the first takes the place of the one that says that it is being thought about."""
        with delivering():
            sent = await self._interaction.followup.send(laid_out(text), ephemeral=self._private, wait=True)
        return str(sent.id)

    async def edit(self, message: str, text: str) -> None:
        """Change a message."""
        with delivering():
            await self._interaction.followup.edit_message(int(message), content=laid_out(text))

    async def typing(self) -> None:
        """Show nothing: Discord shows already that it is being thought about."""


class GoneOutlet(_Measured):
    """Where a command came from that was for one person's eyes and is too old to be answered to them alone."""

    async def send(self, text: str) -> str:  # noqa: ARG002
        """Show it to nobody."""
        raise Undelivered("the command is too old to be answered", again=False)

    async def edit(self, message: str, text: str) -> None:
        """Change nothing."""

    async def typing(self) -> None:
        """Show nothing."""
