"""A message on Discord, read as the desk takes it: where it was said, by whom, to whom, and what it says in words."""

from __future__ import annotations

import re

import discord

from recollect.channels.bot.incoming import Author, Incoming
from recollect.model import keys

_MENTION = re.compile(r"<(@[!&]?|#)(\d{1,20})>")
_EMOJI = re.compile(r"<a?(:\w{1,64}:)\d{1,20}>")
_SPOKEN = frozenset({discord.MessageType.default, discord.MessageType.reply})
_QUOTED = 1000


def is_speech(message: discord.Message) -> bool:
    """Whether a person said something: not the bot itself, another bot, a webhook, or Discord."""
    return not message.author.bot and message.webhook_id is None and message.type in _SPOKEN


def place_of(channel: object, user: int) -> keys.Place | None:
    """Give the place that a channel is; None for one in which nobody can talk, or that is not known."""
    if isinstance(channel, discord.DMChannel):
        return keys.DiscordDirect(str(user))
    if isinstance(channel, discord.Thread):
        return keys.DiscordThread(str(channel.id))
    if isinstance(channel, (discord.TextChannel, discord.VoiceChannel, discord.StageChannel)):
        return keys.DiscordChannel(str(channel.id))
    return None


def parent_of(channel: object) -> keys.Place | None:
    """Give the place that a thread belongs to."""
    return keys.DiscordChannel(str(channel.parent_id)) if isinstance(channel, discord.Thread) else None


def role_ids(person: discord.User | discord.Member) -> tuple[str, ...]:
    """Give the roles that somebody has here; that of everyone is not one."""
    if not isinstance(person, discord.Member):
        return ()
    return tuple(str(role.id) for role in person.roles if not role.is_default())


def incoming(
    message: discord.Message, me: discord.ClientUser, *, channel: object, person: discord.User | discord.Member
) -> Incoming | None:
    """Read a message; None where it is at no place that has a session."""
    place = place_of(channel, person.id)
    if place is None:
        return None
    return Incoming(
        id=str(message.id),
        place=place,
        author=Author(str(person.id), person.display_name),
        text=text(message, me),
        direct=isinstance(channel, discord.DMChannel),
        mentioned=_mentions(message, me),
        replies_to_bot=_answered(message, me),
        guild=None if message.guild is None else str(message.guild.id),
        roles=role_ids(person),
        parent=parent_of(channel),
        extra={"channel": str(message.channel.id)},
    )


def _mentions(message: discord.Message, me: discord.ClientUser) -> bool:
    """Whether the bot is called: by its name, or by the role of the same name that Discord makes for it."""
    if any(person.id == me.id for person in message.mentions):
        return True
    return any(role.tags is not None and role.tags.bot_id == me.id for role in message.role_mentions)


def _replied(message: discord.Message) -> discord.Message | None:
    found = None if message.reference is None else message.reference.resolved
    return found if isinstance(found, discord.Message) else None


def _answered(message: discord.Message, me: discord.ClientUser) -> bool:
    replied = _replied(message)
    return replied is not None and replied.author.id == me.id


def text(message: discord.Message, me: discord.ClientUser) -> str:
    """Write what was said in words: names in the place of numbers, without the call of the bot itself.

    What is replied to and what is forwarded comes with it: the bot has not heard it before.
    """
    said = readable(message.content, _names(message), me.id)
    replied = _replied(message)
    if replied is not None and replied.author.id != me.id and replied.content:
        quoted = readable(replied.content, _names(replied), me.id)[:_QUOTED]
        said = f"{_quote(quoted)}\n{replied.author.display_name} said that. {said}".rstrip()
    forwarded = [_quote(snapshot.content) for snapshot in message.message_snapshots if snapshot.content]
    stickers = [f"[sticker: {sticker.name}]" for sticker in message.stickers]
    return "\n\n".join(part for part in (said, *forwarded, *stickers) if part)


def _quote(quoted: str) -> str:
    return "\n".join(f"> {line}" for line in quoted.splitlines())


def _names(message: discord.Message) -> dict[str, str]:
    people = {f"@{person.id}": f"@{person.display_name}" for person in message.mentions}
    roles = {f"&{role.id}": f"@{role.name}" for role in message.role_mentions}
    places = {f"#{place.id}": f"#{place.name}" for place in message.channel_mentions}
    return people | roles | places


def readable(content: str, names: dict[str, str], me: int) -> str:
    """Put names in the place of Discord's numbers; the bot's own name at either end is a call, and left out."""
    own = rf"<@!?{me}>"
    bare = re.sub(rf"\A(?:\s*{own}[\s,:]*)+|(?:\s*{own}\s*)+\Z", "", content)

    def name(found: re.Match[str]) -> str:
        mark = {"@": "@", "@!": "@", "@&": "&", "#": "#"}[found[1]]
        return names.get(mark + found[2], found[0])

    return _EMOJI.sub(r"\1", _MENTION.sub(name, bare)).strip()
