"""DiscordBot: passes Discord messages to the dispatcher and its answers back.

It answers in direct messages, when it is mentioned or replied to, and in its threads: those that it opened, and those
in which it was mentioned once.
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
from recollect.channels.bot import AllowList, Dispatcher, Incoming, Outlet, Secrets, slash_commands
from recollect.channels.conversation_keys import DiscordChannelKey, DiscordThreadKey, format_key
from recollect.channels.discord import messages
from recollect.channels.discord.client import DiscordClient, Notify, error_reason
from recollect.channels.discord.interactions import SlashCommands, is_slash_command
from recollect.channels.discord.outlet import ChannelOutlet
from recollect.errors import RecollectError, StoreError

_log = logging.getLogger(__name__)
_FIRST_START_MARK, _READ_MARK = "first", "read"
"""Marks in the ledger, as message ids: the first start of the bot, and the last message that it accepted."""

CATCH_UP_SECONDS = 86_400.0
"""Default maximum age, in seconds, of a missed message that is still answered."""

_SEARCHED_MESSAGES = 200  # newest stored messages in which a missed one is looked up: twice the history that is read


class DiscordOptions(NamedTuple):
    """The options of a bot. Sizes are in bytes; `catch_up` is the maximum age of missed messages in seconds."""

    access: AllowList = AllowList()
    base_url: str | None = None
    inherit: bool = False
    search_everything: bool = False
    max_file_size: int = 20_000_000
    catch_up: float = CATCH_UP_SECONDS


class DiscordBot(DiscordClient):
    """The bot. `serve()` runs it until it is stopped."""

    def __init__(self, agent: Agent, options: DiscordOptions, notify: Notify = lambda _: None, **client: Any) -> None:
        super().__init__(base_url=options.base_url, notify=notify, **client)
        self.options = options
        self._agent = agent
        self._dispatcher: Dispatcher | None = None
        self._slash_commands = SlashCommands(self)
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._read = 0
        self._catch_up_tasks: set[asyncio.Task[None]] = set()
        self._catch_up_lock = asyncio.Lock()

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher, once the bot is logged in."""
        assert self._dispatcher is not None
        return self._dispatcher

    @property
    def me(self) -> discord.ClientUser:
        """The bot's own user, once it is logged in."""
        assert self.user is not None
        return self.user

    async def serve(self, token: str, *, stop: asyncio.Event | None = None) -> None:
        """Log in, answer until `stop` is set or the task is cancelled, then stop the dispatcher.

        Raises BotRejected for errors that a retry cannot fix. No error and no log record contains the token.
        """
        with Secrets(token).hidden():
            async with self:
                work = asyncio.create_task(self._work(token))
                stop_wait = asyncio.create_task((stop or asyncio.Event()).wait())
                try:
                    await asyncio.wait([work, stop_wait], return_when=asyncio.FIRST_COMPLETED)
                    if work.done():
                        work.result()
                finally:
                    await _cancel_tasks(work, stop_wait, *self._catch_up_tasks)
                    if self._dispatcher is not None:
                        await self._dispatcher.close()

    async def _work(self, token: str) -> None:
        await self.log_in(token)
        self._dispatcher = Dispatcher(
            self._agent,
            f"discord:{self.me.id}",
            self.reach,
            self.options.access,
            search_everything=self.options.search_everything,
            inherit=self.options.inherit,
            refetch=self._refetch_files,
        )
        await self._dispatcher.open()
        await self._load_marks()
        await self._slash_commands.register()
        for line in welcome_lines(self.me, self.options.access):
            self.notify(line)
        await self.run_until_closed()

    async def _load_marks(self) -> None:
        """Load the read position. At its first start, a bot does not answer earlier messages."""
        for name in (_FIRST_START_MARK, _READ_MARK):
            if name not in self.dispatcher.marks:
                await self.dispatcher.mark(name, str(messages.first_message_id()))
        self._read = int(self.dispatcher.marks[_READ_MARK])

    def reach(self, incoming: Incoming) -> Outlet:
        """Return the outlet for the answer to a message."""
        outlet = self._slash_commands.reach(incoming)
        if outlet is not None:
            return outlet
        guild = None if incoming.guild is None else int(incoming.guild)
        channel = self.get_partial_messageable(int(incoming.extra["channel"]), guild_id=guild)
        replies = isinstance(incoming.place, DiscordChannelKey) and not is_slash_command(incoming)
        return ChannelOutlet(channel, reply_to=int(incoming.id) if replies else None)

    def _lock(self, channel: int) -> asyncio.Lock:
        """Return the lock that keeps the messages of a channel in order while files are downloaded."""
        return self._locks.setdefault(channel, asyncio.Lock())

    async def on_message(self, message: discord.Message) -> None:
        """Handle a new message."""
        if self._dispatcher is None or not messages.is_from_person(message):
            return
        async with self._lock(message.channel.id):
            await self._take(message)

    async def on_interaction(self, interaction: discord.Interaction[discord.Client]) -> None:
        """Handle a button press. The command tree handles slash commands."""
        if self._dispatcher is None or interaction.type is not discord.InteractionType.component:
            return
        data: Any = interaction.data
        reply = self._dispatcher.approval_prompts.press(str(data.get("custom_id", "")), str(interaction.user.id))
        try:
            if reply is None:
                await interaction.response.defer()
            else:
                await interaction.response.send_message(reply, ephemeral=True)
        except (discord.HTTPException, aiohttp.ClientError, OSError) as error:
            _log.warning("Could not answer a button press: %s", error_reason(error))

    async def _take(self, message: discord.Message, *, again: bool = False) -> None:
        incoming = await self._to_incoming(message)
        if incoming is None or (again and await self._is_handled(incoming)):
            return
        if not await self.dispatcher.admit(incoming):
            return
        attachments, notes = await messages.fetch_files(message, self.options.max_file_size)
        incoming = msgspec.structs.replace(incoming, attachments=attachments, notes=notes)
        self._read = max(self._read, message.id)
        await self.dispatcher.take(incoming, mark=(_READ_MARK, str(self._read)))

    async def _refetch_files(self, incoming: Incoming) -> Incoming | None:
        """Download the files of a message again; return None if the message was deleted."""
        channel = self.get_partial_messageable(int(incoming.extra["channel"]))
        try:
            message = await channel.fetch_message(int(incoming.id))
        except (discord.HTTPException, aiohttp.ClientError, OSError):
            return None
        attachments, notes = await messages.fetch_files(message, self.options.max_file_size)
        return msgspec.structs.replace(incoming, attachments=attachments, notes=notes)

    async def _to_incoming(self, message: discord.Message) -> Incoming | None:
        channel: Any = message.channel
        if isinstance(channel, discord.PartialMessageable):  # for example an archived thread
            with contextlib.suppress(discord.HTTPException):
                channel = await self.fetch_channel(channel.id)
        incoming = messages.to_incoming(message, self.me, channel=channel, person=await self._fetch_author(message))
        if incoming is not None and not incoming.is_addressed and isinstance(channel, discord.Thread):
            return msgspec.structs.replace(incoming, own_thread=await self._is_own_thread(channel))
        return incoming

    async def _fetch_author(self, message: discord.Message) -> discord.User | discord.Member:
        """Return the author with roles. Messages from the history do not contain them."""
        person = message.author
        if message.guild is not None and isinstance(person, discord.User) and self.options.access.roles:
            with contextlib.suppress(discord.HTTPException):
                return await message.guild.fetch_member(person.id)
        return person

    async def _is_own_thread(self, thread: discord.Thread) -> bool:
        if thread.owner_id == self.me.id:
            return True
        try:
            return await self._agent.store.get_session(format_key(DiscordThreadKey(str(thread.id)))) is not None
        except StoreError as error:  # a mention is answered anyway
            _log.warning("Cannot check whether a thread belongs to the bot: %s", error)
            return False

    async def on_ready(self) -> None:
        """Answer missed messages: at the start, and after a connection that could not be resumed."""
        if self._dispatcher is not None:
            task = asyncio.create_task(self._catch_up())
            self._catch_up_tasks.add(task)
            task.add_done_callback(self._catch_up_tasks.discard)

    async def _catch_up(self) -> None:
        async with self._catch_up_lock:
            try:
                await self._read_missed()
            except (RecollectError, discord.DiscordException, aiohttp.ClientError, OSError) as error:
                _log.warning("Could not read missed messages: %s", error_reason(error))

    async def _read_missed(self) -> None:
        mark = self._read
        after = max(messages.catch_up_start(mark, self.options.catch_up), int(self.dispatcher.marks[_FIRST_START_MARK]))
        channels: list[Any] = messages.active_channels(self.guilds, after)
        for user in await messages.recent_users(self._agent.store, self.options.access.users):
            direct_channel = await messages.open_direct_channel(self, user)
            channels += [direct_channel] if direct_channel is not None else []
        for channel in channels:
            async with self._lock(channel.id):
                async for entry in messages.read_missed(channel, after, mark):
                    if messages.is_from_person(entry.message):
                        await self._take(entry.message, again=entry.again)

    async def _is_handled(self, incoming: Incoming) -> bool:
        """Return whether a message was handled before the last start. True for every command: none may run twice."""
        if slash_commands.parse_command(incoming.text) is not None:
            return True
        session = await self._agent.store.get_session(incoming.session)
        if session is None:
            return False
        stored_messages = await session.messages(_SEARCHED_MESSAGES)
        return any((message.metadata or {}).get("message_id") == incoming.id for message in stored_messages)


async def _cancel_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def invitation_url(application: int) -> str:
    """Return the URL that invites the bot to a server, with the permissions that it needs."""
    permissions = discord.Permissions(
        view_channel=True,
        send_messages=True,
        send_messages_in_threads=True,
        create_public_threads=True,
        read_message_history=True,
    )
    return discord.utils.oauth_url(application, permissions=permissions, scopes=("bot", "applications.commands"))


def welcome_lines(me: discord.ClientUser, access: AllowList) -> tuple[str, str]:
    """Return the start-up messages: the bot's name and allow list, and its invitation URL."""
    kinds = (("person", "people", access.users), ("server", "servers", access.guilds), ("role", "roles", access.roles))
    allow_text = ", ".join(
        f"{len(ids)} {singular if len(ids) == 1 else plural}" for singular, plural, ids in kinds if ids
    )
    if access.is_empty:
        access_text = "Its allow list is empty: add user ids to channels.discord.allow."
    else:
        access_text = f"Allowed to use it: {allow_text}."
    return (
        f"Logged in to Discord as {me.name} ({me.id}). {access_text}",
        f"Invite it to a server: {invitation_url(me.id)}",
    )
