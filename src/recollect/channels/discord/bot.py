"""The bot on Discord: what it hears goes to the desk, and what the desk says goes back.

It answers in direct messages, where it is mentioned or replied to, and in its threads: those that it opened, and those
in which it was called once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from typing import Any, NamedTuple

import discord
import msgspec

from recollect.agent import Agent
from recollect.channels.bot import Access, Author, Desk, Incoming, Outlet, command
from recollect.channels.bot.desk import STRANGER
from recollect.channels.discord import files, missed, reading, slash
from recollect.channels.discord.connection import Connection, reason
from recollect.channels.discord.outlet import ChannelOutlet, CommandOutlet, GoneOutlet
from recollect.errors import RecollectError
from recollect.model import keys

_log = logging.getLogger(__name__)
_MARK = "read"
_HELD = 1_000
_TITLE = 100


class Options(NamedTuple):
    """How a bot behaves: who may talk, and what is taken and answered."""

    access: Access = Access()
    base_url: str | None = None
    thread_history: bool = False
    search_everything: bool = False
    largest_file: int = 20_000_000
    catch_up: float = 86_400.0


class DiscordBot(Connection):
    """The bot. `serve()` runs it until it is stopped."""

    def __init__(self, agent: Agent, options: Options, **client: Any) -> None:
        super().__init__(base_url=options.base_url, **client)
        self.options = options
        self._agent = agent
        self._desk: Desk | None = None
        self._tree = slash.tree(self, self._ordered, self._open_thread)
        self._orders: dict[str, tuple[slash.Interaction, bool]] = {}
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._read = 0
        self._catching: asyncio.Task[None] | None = None

    @property
    def desk(self) -> Desk:
        """The desk, once the bot is logged in."""
        assert self._desk is not None
        return self._desk

    @property
    def me(self) -> discord.ClientUser:
        """The bot's own user, once it is logged in."""
        assert self.user is not None
        return self.user

    async def serve(self, token: str, *, stop: asyncio.Event | None = None) -> None:
        """Log in, answer until `stop` is set or the task is cancelled, and leave in good order."""
        async with self:
            await self.enter(token)
            self._desk = Desk(
                self._agent,
                f"discord:{self.me.id}",
                self.reach,
                self.options.access,
                everything=self.options.search_everything,
                inherit=self.options.thread_history,
            )
            await self._desk.open()
            await self._begin_reading()
            try:
                await self._until(stop)
            finally:
                await self._leave()

    async def _begin_reading(self) -> None:
        """Know how far was read. A bot that starts for the first time answers nothing from before."""
        mark = self.desk.marks.get(_MARK, "")
        self._read = int(mark) if mark.isdecimal() else missed.moment()
        if not mark:
            await self.desk.mark(_MARK, str(self._read))
        try:
            await self._tree.sync()
        except (discord.HTTPException, discord.app_commands.CommandSyncFailure) as error:
            _log.warning("The slash commands could not be made known to Discord: %s", reason(error))

    async def _until(self, stop: asyncio.Event | None) -> None:
        staying = asyncio.create_task(self.stay())
        stopping = asyncio.create_task((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait([staying, stopping], return_when=asyncio.FIRST_COMPLETED)
            if staying.done():
                staying.result()
        finally:
            for task in (staying, stopping):
                task.cancel()
            await asyncio.wait([staying, stopping])

    async def _leave(self) -> None:
        if self._catching is not None:
            self._catching.cancel()
            await asyncio.wait([self._catching])
        await self.desk.close()

    def reach(self, incoming: Incoming) -> Outlet:
        """Give where the answer to a message goes."""
        order = incoming.extra.get("interaction")
        if order is not None:
            live = self._orders.get(order)
            if live is not None:
                return CommandOutlet(live[0], private=live[1])
            if incoming.extra.get("private"):
                return GoneOutlet()
        guild = None if incoming.guild is None else int(incoming.guild)
        channel = self.get_partial_messageable(int(incoming.extra["channel"]), guild_id=guild)
        in_channel = isinstance(incoming.place, keys.DiscordChannel) and order is None
        return ChannelOutlet(channel, reply_to=int(incoming.id) if in_channel else None)

    def _lock(self, channel: int) -> asyncio.Lock:
        """Give the lock that keeps the messages of a channel in order, also where one has a file to be fetched."""
        return self._locks.setdefault(channel, asyncio.Lock())

    async def on_message(self, message: discord.Message) -> None:
        """Take a message."""
        if self._desk is None or not reading.is_speech(message):
            return
        async with self._lock(message.channel.id):
            await self._take(message)

    async def _take(self, message: discord.Message, *, again: bool = False) -> None:
        incoming = await self._incoming(message)
        if incoming is None or (again and await self._taken(incoming)):
            return
        if not await self.desk.admit(incoming):
            return
        attachments, notes = await files.fetched(message, self.options.largest_file)
        incoming = msgspec.structs.replace(incoming, attachments=attachments, notes=notes)
        self._read = max(self._read, message.id)
        await self.desk.take(incoming, mark=(_MARK, str(self._read)))

    async def _incoming(self, message: discord.Message) -> Incoming | None:
        channel: Any = message.channel
        if isinstance(channel, discord.PartialMessageable):  # a thread that was archived, for one
            with contextlib.suppress(discord.HTTPException):
                channel = await self.fetch_channel(channel.id)
        person = await self._person(message)
        ours = isinstance(channel, discord.Thread) and await self._is_ours(channel)
        return reading.incoming(message, self.me, channel=channel, person=person, ours=ours)

    async def _person(self, message: discord.Message) -> discord.User | discord.Member:
        """Give the author with their roles, which a message from the history comes without."""
        person = message.author
        if message.guild is not None and isinstance(person, discord.User) and self.options.access.roles:
            with contextlib.suppress(discord.HTTPException):
                return await message.guild.fetch_member(person.id)
        return person

    async def _is_ours(self, thread: discord.Thread) -> bool:
        if thread.owner_id == self.me.id:
            return True
        return await self._agent.store.get_session(keys.key(keys.DiscordThread(str(thread.id)))) is not None

    async def on_ready(self) -> None:
        """Look for what was said while the bot was away: at the start, and after a connection that could not be resumed."""
        if self._desk is None or (self._catching is not None and not self._catching.done()):
            return
        self._catching = asyncio.create_task(self._catch_up())
        await asyncio.wait([self._catching])

    async def _catch_up(self) -> None:
        mark = self._read
        after = missed.since(mark, self.options.catch_up)
        places: list[Any] = missed.channels(self.guilds, after)
        for user in await missed.people(self._agent.store, self.options.access.users):
            opened = await missed.direct(self, user)
            places += [opened] if opened is not None else []
        for place in places:
            async with self._lock(place.id):
                async for found in missed.read(place, after, mark):
                    if reading.is_speech(found.message):
                        await self._take(found.message, again=found.again)

    async def _taken(self, incoming: Incoming) -> bool:
        """Say whether a message was dealt with before the last start; an order that may have been is not given twice."""
        if command.parsed(incoming.text) is not None:
            return True
        session = await self._agent.store.get_session(incoming.session)
        if session is None:
            return False
        last = await session.messages(200)
        return any((message.metadata or {}).get("message_id") == incoming.id for message in last)

    async def _ordered(self, interaction: slash.Interaction, name: str, argument: str) -> None:
        """Take a slash command. Discord waits three seconds for a sign, and fifteen minutes for the answer."""
        incoming = self._order(interaction, f"/{name} {argument}".rstrip(), private=name in slash.PRIVATE)
        if incoming is None:
            await interaction.response.send_message("There is no conversation here.", ephemeral=True)
            return
        if not self.desk.access.allows(incoming):
            await interaction.response.send_message(STRANGER.format(id=interaction.user.id), ephemeral=True)
            return
        if name == command.STOP:
            told = "Stopped." if self.desk.stop(incoming.session) else "There is no answer to stop."
            await interaction.response.send_message(told, ephemeral=True)
            return
        private = bool(incoming.extra["private"])
        await interaction.response.defer(ephemeral=private, thinking=True)
        self._orders[incoming.id] = (interaction, private)
        while len(self._orders) > _HELD:
            self._orders.pop(next(iter(self._orders)))
        await self.desk.take(incoming)

    def _order(self, interaction: slash.Interaction, text: str, *, private: bool) -> Incoming | None:
        channel: Any = interaction.channel
        place = reading.place_of(channel, interaction.user.id)
        if place is None or self._desk is None:
            return None
        return Incoming(
            id=str(interaction.id),
            place=place,
            author=Author(str(interaction.user.id), interaction.user.display_name),
            text=text,
            mentioned=True,
            direct=isinstance(channel, discord.DMChannel),
            guild=None if interaction.guild_id is None else str(interaction.guild_id),
            roles=reading.role_ids(interaction.user),
            parent=reading.parent_of(channel),
            extra={"channel": str(channel.id), "interaction": str(interaction.id), "private": private},
        )

    async def _open_thread(self, interaction: slash.Interaction, title: str, history: bool) -> None:
        """Open a thread, which the bot answers in without being called; with the history of the channel, as a fork."""
        incoming = self._order(interaction, "/fork channel", private=False)
        channel: Any = interaction.channel
        if incoming is None or not isinstance(channel, discord.TextChannel):
            await interaction.response.send_message("Threads are opened in the channels of a server.", ephemeral=True)
            return
        if not self.desk.access.allows(incoming):
            await interaction.response.send_message(STRANGER.format(id=interaction.user.id), ephemeral=True)
            return
        await interaction.response.defer(thinking=True)
        try:
            name = title[:_TITLE] or f"{interaction.user.display_name} and {self.me.display_name}"[:_TITLE]
            thread = await channel.create_thread(name=name, type=discord.ChannelType.public_thread)
        except discord.HTTPException as error:
            await interaction.followup.send(f"\u26a0\ufe0f The thread could not be opened: {reason(error)}.")
            return
        await interaction.followup.send(f"{thread.mention} is open: I answer there without being called.")
        if history:
            there = msgspec.structs.replace(
                incoming,
                place=keys.DiscordThread(str(thread.id)),
                parent=keys.DiscordChannel(str(channel.id)),
                extra={"channel": str(thread.id)},
            )
            await self.desk.take(there)
