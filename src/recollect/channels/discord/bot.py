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

import aiohttp
import discord
import msgspec

from recollect.agent import Agent
from recollect.channels.bot import Access, Desk, Incoming, Outlet, Secrets, command
from recollect.channels.discord import files, missed, reading
from recollect.channels.discord.connection import Connection, Tell, reason
from recollect.channels.discord.orders import Orders, is_order
from recollect.channels.discord.outlet import ChannelOutlet
from recollect.errors import RecollectError, StoreError
from recollect.model import keys

_log = logging.getLogger(__name__)
_FIRST, _MARK = "first", "read"
"""Marks in the ledger, as ids of messages: when the bot ran for the first time, and the last message that it took."""

CATCH_UP = 86_400.0
"""Seconds after which a message that came while the bot was away is too old to be answered, where nothing is set."""

_LOOKED_AT = 200


class Options(NamedTuple):
    """How a bot is set up: who may talk, what is taken, and how old what it missed may be (in seconds)."""

    access: Access = Access()
    base_url: str | None = None
    inherit: bool = False
    search_everything: bool = False
    max_file_size: int = 20_000_000
    catch_up: float = CATCH_UP


class DiscordBot(Connection):
    """The bot. `serve()` runs it until it is stopped."""

    def __init__(self, agent: Agent, options: Options, tell: Tell = lambda _: None, **client: Any) -> None:
        super().__init__(base_url=options.base_url, tell=tell, **client)
        self.options = options
        self._agent = agent
        self._desk: Desk | None = None
        self._orders = Orders(self)
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._read = 0
        self._catching: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()

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
        """Log in, answer until `stop` is set or the task is cancelled, and leave in good order.

        What waiting does not mend is a BotRefused; the token is in no error, and in no log of any library meanwhile.
        """
        with Secrets(token).hidden():
            async with self:
                working = asyncio.create_task(self._work(token))
                stopping = asyncio.create_task((stop or asyncio.Event()).wait())
                try:
                    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
                    if working.done():
                        working.result()
                finally:
                    await _ended(working, stopping, *self._catching)
                    if self._desk is not None:
                        await self._desk.close()

    async def _work(self, token: str) -> None:
        await self.enter(token)
        self._desk = Desk(
            self._agent,
            f"discord:{self.me.id}",
            self.reach,
            self.options.access,
            everything=self.options.search_everything,
            inherit=self.options.inherit,
            refetch=self._refetched,
        )
        await self._desk.open()
        await self._begin_reading()
        await self._orders.announce()
        for line in welcome(self.me, self.options.access):
            self.tell(line)
        await self.stay()

    async def _begin_reading(self) -> None:
        """Know how far was read. A bot that starts for the first time answers nothing from before."""
        for name in (_FIRST, _MARK):
            if name not in self.desk.marks:
                await self.desk.mark(name, str(missed.moment()))
        self._read = int(self.desk.marks[_MARK])

    def reach(self, incoming: Incoming) -> Outlet:
        """Give where the answer to a message goes."""
        outlet = self._orders.reach(incoming)
        if outlet is not None:
            return outlet
        guild = None if incoming.guild is None else int(incoming.guild)
        channel = self.get_partial_messageable(int(incoming.extra["channel"]), guild_id=guild)
        replies = isinstance(incoming.place, keys.DiscordChannel) and not is_order(incoming)
        return ChannelOutlet(channel, reply_to=int(incoming.id) if replies else None)

    def _lock(self, channel: int) -> asyncio.Lock:
        """Give the lock that keeps the messages of a channel in order, also where one has a file to be fetched."""
        return self._locks.setdefault(channel, asyncio.Lock())

    async def on_message(self, message: discord.Message) -> None:
        """Take a message."""
        if self._desk is None or not reading.is_speech(message):
            return
        async with self._lock(message.channel.id):
            await self._take(message)

    async def on_interaction(self, interaction: discord.Interaction[discord.Client]) -> None:
        """Take the press of a button; slash commands are taken elsewhere."""
        if self._desk is None or interaction.type is not discord.InteractionType.component:
            return
        data: Any = interaction.data
        told = self._desk.questions.press(str(data.get("custom_id", "")), str(interaction.user.id))
        try:
            if told is None:
                await interaction.response.defer()
            else:
                await interaction.response.send_message(told, ephemeral=True)
        except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
            _log.warning("The press of a button could not be answered: %s", reason(error))

    async def _take(self, message: discord.Message, *, again: bool = False) -> None:
        incoming = await self._incoming(message)
        if incoming is None or (again and await self._taken(incoming)):
            return
        if not await self.desk.admit(incoming):
            return
        attachments, notes = await files.fetched(message, self.options.max_file_size)
        incoming = msgspec.structs.replace(incoming, attachments=attachments, notes=notes)
        self._read = max(self._read, message.id)
        await self.desk.take(incoming, mark=(_MARK, str(self._read)))

    async def _refetched(self, incoming: Incoming) -> Incoming | None:
        """Fetch the files of a message again; None where it is gone."""
        channel = self.get_partial_messageable(int(incoming.extra["channel"]))
        try:
            message = await channel.fetch_message(int(incoming.id))
        except (discord.HTTPException, aiohttp.ClientError, OSError):
            return None
        attachments, notes = await files.fetched(message, self.options.max_file_size)
        return msgspec.structs.replace(incoming, attachments=attachments, notes=notes)

    async def _incoming(self, message: discord.Message) -> Incoming | None:
        channel: Any = message.channel
        if isinstance(channel, discord.PartialMessageable):  # a thread that was archived, for one
            with contextlib.suppress(discord.HTTPException):
                channel = await self.fetch_channel(channel.id)
        incoming = reading.incoming(message, self.me, channel=channel, person=await self._person(message))
        if incoming is not None and not incoming.addressed and isinstance(channel, discord.Thread):
            return msgspec.structs.replace(incoming, own_thread=await self._is_ours(channel))
        return incoming

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
        try:
            return await self._agent.store.get_session(keys.key(keys.DiscordThread(str(thread.id)))) is not None
        except StoreError as error:  # who calls the bot is heard anyway
            _log.warning("Whether a thread is the bot's can not be looked up: %s", error)
            return False

    async def on_ready(self) -> None:
        """Look for what was said while the bot was away: at the start, and where a connection was not resumed."""
        if self._desk is not None:
            task = asyncio.create_task(self._catch_up())
            self._catching.add(task)
            task.add_done_callback(self._catching.discard)

    async def _catch_up(self) -> None:
        async with self._one_at_a_time:
            try:
                await self._read_missed()
            except (RecollectError, discord.DiscordException, aiohttp.ClientError, OSError) as error:
                _log.warning("What was said meanwhile could not be read: %s", reason(error))

    async def _read_missed(self) -> None:
        mark = self._read
        after = max(missed.since(mark, self.options.catch_up), int(self.desk.marks[_FIRST]))
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
        """Say whether a message was dealt with before the last start; a command that may have been is not run twice."""
        if command.parsed(incoming.text) is not None:
            return True
        session = await self._agent.store.get_session(incoming.session)
        if session is None:
            return False
        last = await session.messages(_LOOKED_AT)
        return any((message.metadata or {}).get("message_id") == incoming.id for message in last)


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    """End tasks, and wait until they have."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def invitation(application: int) -> str:
    """Give the link with which the bot is invited to a server, with the permissions that it needs."""
    needed = discord.Permissions(
        view_channel=True,
        send_messages=True,
        send_messages_in_threads=True,
        create_public_threads=True,
        read_message_history=True,
    )
    return discord.utils.oauth_url(application, permissions=needed, scopes=("bot", "applications.commands"))


def welcome(me: discord.ClientUser, access: Access) -> tuple[str, str]:
    """Say who the bot is, who may talk to it, and how it comes into a server."""
    kinds = (("person", "people", access.users), ("server", "servers", access.guilds), ("role", "roles", access.roles))
    who = ", ".join(f"{len(ids)} {one if len(ids) == 1 else many}" for one, many, ids in kinds if ids)
    if access.nobody:
        may = "Nobody may talk to it yet: name people in channels.discord.allow, by their ids."
    else:
        may = f"Who may talk to it: {who}."
    return f"Logged in to Discord as {me.name} ({me.id}). {may}", f"It is invited with {invitation(me.id)}"
