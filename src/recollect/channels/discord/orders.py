"""Slash commands that people give: taken to the desk like messages, answered where Discord expects it.

Discord waits three seconds for a sign that a command was heard, and fifteen minutes for the answer. The token that it
is answered with is never stored: after a restart an answer goes to the channel, or, if it was private, to nobody.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import discord
import msgspec

from recollect.channels.bot import Author, Incoming, Outlet, command
from recollect.channels.bot.desk import STRANGER
from recollect.channels.discord import reading, slash
from recollect.channels.discord.connection import reason
from recollect.channels.discord.outlet import CommandOutlet, GoneOutlet
from recollect.model import keys

if TYPE_CHECKING:
    from recollect.channels.discord.bot import DiscordBot

_log = logging.getLogger(__name__)
_HELD = 1_000
_TITLE = 100


def is_order(incoming: Incoming) -> bool:
    """Whether this is a slash command, and no message that one could reply to."""
    return "order" in incoming.extra


class Orders:
    """The commands of one bot."""

    def __init__(self, bot: DiscordBot) -> None:
        self._bot = bot
        self._tree = slash.tree(bot, self._take, self._open_thread)
        self._live: dict[str, slash.Interaction] = {}

    async def announce(self) -> None:
        """Make the commands known to Discord; a bot without them still talks."""
        try:
            await self._tree.sync()
        except (discord.HTTPException, discord.app_commands.CommandSyncFailure) as error:
            _log.warning("The slash commands could not be made known to Discord: %s", reason(error))

    def reach(self, incoming: Incoming) -> Outlet | None:
        """Give where the answer to a command goes; None for the channel."""
        live = self._live.get(incoming.extra.get("order", ""))
        if live is not None:
            return CommandOutlet(live, private=incoming.extra["private"])
        return GoneOutlet() if incoming.extra.get("private") else None

    async def _take(self, interaction: slash.Interaction, name: str, argument: str) -> None:
        private = slash.private(name, argument)
        incoming = await self._admitted(interaction, f"/{name} {argument}".rstrip(), private=private)
        if incoming is None:
            return
        if name == command.STOP:
            stopped = self._bot.desk.stop(incoming.session)
            await _whisper(interaction, "Stopped." if stopped else "There is no answer to stop.")
            return
        if name == command.HELP:
            await _whisper(interaction, slash.HELP)
            return
        await interaction.response.defer(ephemeral=private, thinking=True)
        self._live[incoming.id] = interaction
        while len(self._live) > _HELD:
            self._live.pop(next(iter(self._live)))
        await self._bot.desk.take(incoming)

    async def _admitted(self, interaction: slash.Interaction, text: str, *, private: bool) -> Incoming | None:
        """Read a command, if it is one of somebody who may talk; anybody else is told, for their eyes only."""
        channel: Any = interaction.channel
        place = reading.place_of(channel, interaction.user.id)
        if place is None:
            await _whisper(interaction, "There is no conversation here.")
            return None
        incoming = Incoming(
            id=str(interaction.id),
            place=place,
            author=Author(str(interaction.user.id), interaction.user.display_name),
            text=text,
            mentioned=True,
            direct=isinstance(channel, discord.DMChannel),
            guild=None if interaction.guild_id is None else str(interaction.guild_id),
            roles=reading.role_ids(interaction.user),
            parent=reading.parent_of(channel),
            extra={"channel": str(channel.id), "order": str(interaction.id), "private": private},
        )
        if self._bot.desk.access.allows(incoming):
            return incoming
        await _whisper(interaction, STRANGER.format(id=interaction.user.id))
        return None

    async def _open_thread(self, interaction: slash.Interaction, title: str, history: bool) -> None:
        """Open a thread, in which the bot answers without being called; with the channel's history, as a fork of it."""
        channel: Any = interaction.channel
        incoming = await self._admitted(interaction, "/fork channel", private=False)
        if incoming is None:
            return
        if not isinstance(channel, discord.TextChannel):
            await _whisper(interaction, "Threads are opened in the channels of a server.")
            return
        await interaction.response.defer(thinking=True)
        try:
            name = title or f"{interaction.user.display_name} and {self._bot.me.display_name}"
            thread = await channel.create_thread(name=name[:_TITLE], type=discord.ChannelType.public_thread)
        except discord.HTTPException as error:
            await interaction.followup.send(f"\u26a0\ufe0f The thread could not be opened: {reason(error)}.")
            return
        await interaction.followup.send(f"{thread.mention} is open. I answer there without being called.")
        if history:
            here = {"place": keys.DiscordThread(str(thread.id)), "parent": incoming.place}
            extra = {"channel": str(thread.id), "order": incoming.id}
            await self._bot.desk.take(msgspec.structs.replace(incoming, extra=extra, **here))


async def _whisper(interaction: slash.Interaction, text: str) -> None:
    await interaction.response.send_message(text, ephemeral=True)
