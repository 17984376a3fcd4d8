"""The commands of a talk as Discord's own slash commands. What each does is the desk's business."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import discord
from discord import app_commands

from recollect.channels.bot import command
from recollect.channels.discord.connection import reason

_log = logging.getLogger(__name__)
Interaction = discord.Interaction[discord.Client]
Handler = Callable[[Interaction, str, str], Awaitable[None]]
Opens = Callable[[Interaction, str, bool], Awaitable[None]]
_PRIVATE = frozenset({"history", "search", "status", "help", "stop"})
_THREAD = ("thread", "[TITLE]", "open a thread, which is a conversation of its own")
HELP = "\n".join(
    "`" + f"/{name} {takes}".rstrip() + f"`: {does}" for name, takes, does in sorted([*command.described(), _THREAD])
)
_LONGEST = 100
_LABELS = {"n": "count"}
_HINTS = {
    "title": "the title",
    "count": "how many messages",
    "session": "the id or the title; leave it out for a list",
    "words": "what to search for",
    "message": "the id of a message, as /history shows it; or channel, to begin a thread with its channel's history",
}


def tree(client: discord.Client, handle: Handler, open_thread: Opens) -> app_commands.CommandTree[discord.Client]:
    """Make the tree of commands: those of every bot, and the one that opens a thread."""
    made = app_commands.CommandTree(client)
    for name, arguments, help in command.described():
        made.add_command(_command(name, arguments, help, handle))

    @made.command(name=_THREAD[0], description=_THREAD[2])
    @app_commands.describe(title="the title", history="begin with what was said in this channel, as a fork")
    @app_commands.guild_only()
    async def thread(interaction: Interaction, title: str = "", history: bool = False) -> None:  # pyright: ignore[reportUnusedFunction]
        await open_thread(interaction, title, history)

    made.error(_failed)
    return made


async def _failed(interaction: Interaction, error: app_commands.AppCommandError) -> None:
    """Say that a command could not be run, where it is still possible to say so."""
    cause = error.original if isinstance(error, app_commands.CommandInvokeError) else error
    _log.warning("A slash command could not be run: %s", reason(cause))
    with contextlib.suppress(discord.HTTPException, discord.InteractionResponded):
        await interaction.response.send_message("This command could not be run. Try it again.", ephemeral=True)


def private(name: str, argument: str) -> bool:
    """Whether only the person who gave a command sees the answer: what was said before is not for all in a channel.

    What changes the conversation is for all to see. Bringing one back changes it, and listing them does not.
    """
    return name in _PRIVATE or (name == "resume" and not argument)


def _command(name: str, arguments: str, help: str, handle: Handler) -> app_commands.Command[Any, ..., None]:
    """Make one command. What it takes is one text, as it is everywhere else."""
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
        label = _label(arguments)
        app_commands.rename(argument=label)(callback)
        app_commands.describe(argument=_HINTS.get(label, label)[:_LONGEST])(callback)
    return app_commands.Command(name=name, description=help[:_LONGEST], callback=callback)


def _label(arguments: str) -> str:
    """Name an option after what the command is said to take: [TITLE] is title."""
    word: str = re.findall(r"[a-z]+", arguments.lower())[0]
    return _LABELS.get(word, word)
