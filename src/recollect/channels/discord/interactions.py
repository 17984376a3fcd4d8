"""Discord interactions: the slash commands that are registered, and how they reach the dispatcher.

Discord waits three seconds for an acknowledgement and fifteen minutes for the response. The interaction token is
never stored: after a restart the response goes to the channel, or nowhere if it was private.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import discord
import msgspec
from discord import app_commands

from recollect.channels.bot import Author, Incoming, Outlet, slash_commands
from recollect.channels.bot.dispatcher import NOT_ALLOWED
from recollect.channels.conversation_keys import DiscordThreadKey
from recollect.channels.discord import messages
from recollect.channels.discord.client import error_reason
from recollect.channels.discord.outlet import CommandOutlet, ExpiredOutlet

if TYPE_CHECKING:
    from recollect.channels.discord.bot import DiscordBot

_log = logging.getLogger(__name__)
Interaction = discord.Interaction[discord.Client]
Handler = Callable[[Interaction, str, str], Awaitable[None]]
ThreadHandler = Callable[[Interaction, str, bool], Awaitable[None]]
_PRIVATE_COMMANDS = frozenset({"history", "search", "status", "help", "stop"})
_THREAD_COMMAND = ("thread", "[TITLE]", "open a thread with a conversation of its own")
HELP_TEXT = "\n".join(
    "`" + f"/{name} {arguments}".rstrip() + f"`: {help}"
    for name, arguments, help in sorted([*slash_commands.list_commands(), _THREAD_COMMAND])
)
_MAX_DESCRIPTION = 100  # characters: Discord's limit for descriptions
_OPTION_NAMES = {"n": "count"}
_OPTION_DESCRIPTIONS = {
    "title": "the title",
    "count": "number of messages",
    "session": "id or title; leave it out for a list",
    "words": "words to search for",
    "message": "message id from /history, or `channel` to start a thread with its channel's history",
}


def build_command_tree(
    client: discord.Client, handle: Handler, open_thread: ThreadHandler
) -> app_commands.CommandTree[discord.Client]:
    """Return the command tree: the commands of every bot, and the one that opens a thread."""
    tree = app_commands.CommandTree(client)
    for name, arguments, help in slash_commands.list_commands():
        tree.add_command(_build_command(name, arguments, help, handle))

    @tree.command(name=_THREAD_COMMAND[0], description=_THREAD_COMMAND[2])
    @app_commands.describe(title="the title", history="start as a fork of this channel's conversation")
    @app_commands.guild_only()
    async def thread(interaction: Interaction, title: str = "", history: bool = False) -> None:  # pyright: ignore[reportUnusedFunction]
        await open_thread(interaction, title, history)

    tree.error(_report_failure)
    return tree


async def _report_failure(interaction: Interaction, error: app_commands.AppCommandError) -> None:
    """Log a failed command, and tell the user if Discord still accepts a response."""
    cause = error.original if isinstance(error, app_commands.CommandInvokeError) else error
    _log.warning("A slash command failed: %s", error_reason(cause))
    with contextlib.suppress(discord.HTTPException, discord.InteractionResponded):
        await interaction.response.send_message("This command failed. Try again.", ephemeral=True)


def is_private(name: str, argument: str) -> bool:
    """Return whether only the user sees the reply to a command.

    Replies that show earlier messages are private. Commands that change the conversation are visible to all: resuming
    an earlier one is, listing them is not.
    """
    return name in _PRIVATE_COMMANDS or (name == "resume" and not argument)


def _build_command(name: str, arguments: str, help: str, handle: Handler) -> app_commands.Command[Any, ..., None]:
    """Return one command. Its arguments are one text, as in every channel."""
    callback: Any
    if not arguments:

        async def bare(interaction: Interaction) -> None:
            await handle(interaction, name, "")

        callback = bare
    elif arguments.startswith("["):

        async def optional(interaction: Interaction, argument: str = "") -> None:
            await handle(interaction, name, argument)

        callback = optional
    else:

        async def required(interaction: Interaction, argument: str) -> None:
            await handle(interaction, name, argument)

        callback = required
    if arguments:
        label = _option_name(arguments)
        app_commands.rename(argument=label)(callback)
        app_commands.describe(argument=_OPTION_DESCRIPTIONS.get(label, label)[:_MAX_DESCRIPTION])(callback)
    return app_commands.Command(name=name, description=help[:_MAX_DESCRIPTION], callback=callback)


def _option_name(arguments: str) -> str:
    """Return the option name for the arguments of a command: `title` for `[TITLE]`."""
    word: str = re.findall(r"[a-z]+", arguments.lower())[0]
    return _OPTION_NAMES.get(word, word)


_MAX_LIVE = 1_000  # interactions in memory; Discord forgets them after 15 minutes
_MAX_TITLE_LENGTH = 100  # characters: Discord's limit for thread names


def is_slash_command(incoming: Incoming) -> bool:
    """Return whether this is a slash command, which cannot be replied to like a message."""
    return "order" in incoming.extra


class SlashCommands:
    """The commands of one bot."""

    def __init__(self, bot: DiscordBot) -> None:
        self._bot = bot
        self._tree = build_command_tree(bot, self._take, self._open_thread)
        self._interactions: dict[str, Interaction] = {}

    async def register(self) -> None:
        """Register the commands with Discord. A failure is logged only: the bot works without them."""
        try:
            await self._tree.sync()
        except (discord.HTTPException, discord.app_commands.CommandSyncFailure) as error:
            _log.warning("Could not register the slash commands with Discord: %s", error_reason(error))

    def reach(self, incoming: Incoming) -> Outlet | None:
        """Return the outlet for the reply to a command; None for the channel."""
        interaction = self._interactions.get(incoming.extra.get("order", ""))
        if interaction is not None:
            return CommandOutlet(interaction, private=incoming.extra["private"])
        return ExpiredOutlet() if incoming.extra.get("private") else None

    async def _take(self, interaction: Interaction, name: str, argument: str) -> None:
        private = is_private(name, argument)
        incoming = await self._admit(interaction, f"/{name} {argument}".rstrip(), private=private)
        if incoming is None:
            return
        if name == slash_commands.STOP:
            stopped = self._bot.dispatcher.stop(incoming.session)
            await _reply_privately(interaction, "Stopped." if stopped else "There is no answer to stop.")
            return
        if name == slash_commands.HELP:
            await _reply_privately(interaction, HELP_TEXT)
            return
        await interaction.response.defer(ephemeral=private, thinking=True)
        self._interactions[incoming.id] = interaction
        while len(self._interactions) > _MAX_LIVE:
            self._interactions.pop(next(iter(self._interactions)))
        await self._bot.dispatcher.take(incoming)

    async def _admit(self, interaction: Interaction, text: str, *, private: bool) -> Incoming | None:
        """Return a command as Incoming; None after a private refusal if the user is not on the allow list."""
        channel: Any = interaction.channel
        chat = messages.chat_of(channel, interaction.user.id)
        if chat is None:
            await _reply_privately(interaction, "This channel does not support conversations.")
            return None
        incoming = Incoming(
            id=str(interaction.id),
            place=chat,
            author=Author(str(interaction.user.id), interaction.user.display_name),
            text=text,
            mentioned=True,
            direct=isinstance(channel, discord.DMChannel),
            guild=None if interaction.guild_id is None else str(interaction.guild_id),
            roles=messages.role_ids(interaction.user),
            parent=messages.parent_chat_of(channel),
            extra={"channel": str(channel.id), "order": str(interaction.id), "private": private},
        )
        if self._bot.dispatcher.access.allows(incoming):
            return incoming
        await _reply_privately(interaction, NOT_ALLOWED.format(id=interaction.user.id))
        return None

    async def _open_thread(self, interaction: Interaction, title: str, history: bool) -> None:
        """Open a thread in which the bot answers without a mention; with `history`, as a fork of the channel."""
        channel: Any = interaction.channel
        incoming = await self._admit(interaction, "/fork channel", private=False)
        if incoming is None:
            return
        if not isinstance(channel, discord.TextChannel):
            await _reply_privately(interaction, "Threads can only be opened in text channels of a server.")
            return
        await interaction.response.defer(thinking=True)
        try:
            name = title or f"{interaction.user.display_name} and {self._bot.me.display_name}"
            thread = await channel.create_thread(name=name[:_MAX_TITLE_LENGTH], type=discord.ChannelType.public_thread)
        except discord.HTTPException as error:
            await interaction.followup.send(f"\u26a0\ufe0f The thread could not be opened: {error_reason(error)}.")
            return
        await interaction.followup.send(f"Opened {thread.mention}. I answer there without being mentioned.")
        if history:
            keys = {"place": DiscordThreadKey(str(thread.id)), "parent": incoming.place}
            extra = {"channel": str(thread.id), "order": incoming.id}
            await self._bot.dispatcher.take(msgspec.structs.replace(incoming, extra=extra, **keys))


async def _reply_privately(interaction: Interaction, text: str) -> None:
    await interaction.response.send_message(text, ephemeral=True)
