"""A message of Telegram as a value that every bot understands."""

from __future__ import annotations

from typing import Any

from telegram import Message, MessageEntity, User

from recollect.channels.bot import Author, Incoming
from recollect.channels.bot.command import NAMES, described, parsed
from recollect.model import keys

_QUOTED = 1_000
_COMMANDS = frozenset([*NAMES, "start", *(name for name, _, _ in described())])


def incoming(message: Message, me: User) -> Incoming | None:
    """Read a message; None where nobody said anything: somebody joined, a photo of the group changed, a bot spoke."""
    author = _author(message)
    if author is None or (message.from_user is not None and message.from_user.is_bot):
        return None
    direct = message.chat.type == "private"
    text, mentioned = _text(message, me)
    if not text and not mentioned and message.effective_attachment is None:
        return None
    replied = message.reply_to_message
    chat = str(message.chat.id)
    topic = str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else None
    order = parsed(text)
    return Incoming(
        id=str(message.message_id),
        place=keys.TelegramChat(chat, topic),
        parent=None if topic is None else keys.TelegramChat(chat),
        author=author,
        text=text if order else _quoting(message, me) + text,
        direct=direct,
        mentioned=mentioned or (order is not None and order[0] in _COMMANDS),
        replies_to_bot=replied is not None and replied.from_user is not None and replied.from_user.id == me.id,
        guild=None if direct else chat,
    )


def _author(message: Message) -> Author | None:
    """Say who speaks: a person, or a channel or group in whose name somebody does."""
    sender: Any = message.from_user
    if message.sender_chat is not None:
        return Author(str(message.sender_chat.id), message.sender_chat.title or str(message.sender_chat.id))
    return None if sender is None else Author(str(sender.id), sender.full_name or sender.username or str(sender.id))


def _text(message: Message, me: User) -> tuple[str, bool]:
    """Give what was said without the bot's own name in it, and whether it was called by it."""
    text = message.text if message.text is not None else message.caption or ""
    units = text.encode("utf-16-le", "surrogatepass")  # offsets count UTF-16 code units
    called = False
    for entity in reversed(message.entities or message.caption_entities or ()):
        begin, end = entity.offset * 2, (entity.offset + entity.length) * 2
        told = units[begin:end].decode("utf-16-le", "replace")
        left = _without_name(entity, told, me)
        if left is not None:
            called = True
            units = units[:begin] + left.encode("utf-16-le", "surrogatepass") + units[end:]
    return units.decode("utf-16-le", "replace").strip(), called


def _without_name(entity: MessageEntity, told: str, me: User) -> str | None:
    """Give what stays of an entity that names the bot; None where it names somebody else."""
    name = f"@{me.username or ''}".lower()
    if entity.type == MessageEntity.MENTION:
        return "" if told.lower() == name else None
    if entity.type == MessageEntity.TEXT_MENTION:
        return "" if entity.user is not None and entity.user.id == me.id else None
    if entity.type == MessageEntity.BOT_COMMAND and told.lower().endswith(name):
        return told[: -len(name)]
    return None


def _quoting(message: Message, me: User) -> str:
    """Give what somebody else said and this message answers, so that the model knows what is spoken of."""
    replied = message.reply_to_message
    if replied is None or replied.from_user is None or replied.from_user.id == me.id:
        return ""
    said = (message.quote.text if message.quote is not None else replied.text or replied.caption or "")[:_QUOTED]
    lines = "\n".join(f"> {line}" for line in said.strip().splitlines())
    return f"{replied.from_user.full_name} wrote:\n{lines}\n\n" if lines else ""
