"""Incoming messages of a bot: the platform-independent message, the allow list, and the form that the model reads.

The store keeps a message unchanged. The model sees the author's name in group chats and only files that it can read:
a provider rejects a whole request with an unreadable file, and would reject every later turn of the session too.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec

from recollect.channels.conversation_keys import ConversationKey, format_key
from recollect.model.humanize import truncate
from recollect.model.message import AttachmentPart, Draft, Message, Part, TextPart


class Author(msgspec.Struct, frozen=True):
    """The author of a message: the platform's permanent user id, and the display name."""

    id: str
    name: str


class IncomingFile(msgspec.Struct, frozen=True):
    """A file that came with a message."""

    name: str
    mime: str
    data: bytes


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a chat. `id` is the platform's, unique in the chat; `extra` is JSON of the adapter.

    `notes` are sentences about content that was left out, such as a file that is too large. `place` is the chat and
    `parent` the chat that a thread or a topic belongs to. The ledger stores this struct: field names are permanent.
    """

    id: str
    place: ConversationKey
    author: Author
    text: str = ""
    attachments: tuple[IncomingFile, ...] = ()
    notes: tuple[str, ...] = ()
    direct: bool = False
    mentioned: bool = False
    replies_to_bot: bool = False
    own_thread: bool = False
    guild: str | None = None
    roles: tuple[str, ...] = ()
    parent: ConversationKey | None = None
    extra: dict[str, Any] = {}

    @property
    def is_addressed(self) -> bool:
        """True if the message is for the bot: always in direct chats and its own threads, elsewhere if mentioned."""
        return self.direct or self.mentioned or self.replies_to_bot or self.own_thread

    @property
    def session(self) -> str:
        """The session id of its chat."""
        return format_key(self.place)

    def key(self) -> str:
        """Return the idempotency key of the message in its session."""
        return f"message:{self.id}"

    def draft(self) -> Draft:
        """Return the draft to store: text and notes, files, and the author as metadata."""
        text = "\n".join([self.text, *(f"[{note}]" for note in self.notes)]).strip()
        parts: list[Part] = [TextPart(text=text)] if text else []
        parts += [
            AttachmentPart(
                name=file.name, mime_type=file.mime, size=len(file.data), data=base64.b64encode(file.data).decode()
            )
            for file in self.attachments
        ]
        return Draft(role="user", parts=tuple(parts), metadata=self.metadata())

    def metadata(self) -> dict[str, Any]:
        """Return the metadata to store with the message."""
        metadata: dict[str, Any] = {"author": {"id": self.author.id, "name": self.author.name}, "message_id": self.id}
        if not self.direct:
            metadata["group"] = True
        return metadata | ({"guild": self.guild} if self.guild else {})

    def without_files(self) -> Incoming:
        """Return the message without its files, as the ledger stores it: a restart fetches them again."""
        return msgspec.structs.replace(self, attachments=())

    @property
    def name(self) -> str:
        """The name of the message, unique for the bot."""
        return f"{self.session}#{self.id}"


class AllowList:
    """The users, guilds (servers, groups) and roles that may use the bot. One match is enough."""

    def __init__(self, users: Iterable[str] = (), guilds: Iterable[str] = (), roles: Iterable[str] = ()) -> None:
        self.users, self.guilds, self.roles = frozenset(users), frozenset(guilds), frozenset(roles)

    @property
    def is_empty(self) -> bool:
        """True if nobody may use the bot."""
        return not (self.users or self.guilds or self.roles)

    def allows(self, incoming: Incoming) -> bool:
        """Return whether the author may use the bot. Only ids count: anyone can choose a name."""
        return (
            incoming.author.id in self.users
            or (incoming.guild is not None and incoming.guild in self.guilds)
            or not self.roles.isdisjoint(incoming.roles)
        )


_READABLE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
_TEXT_TYPES = ("application/json", "application/xml", "application/toml", "application/yaml", "application/x-yaml")
_MAX_NAME_LENGTH = 64  # characters of a display name; the prefix of a message must stay short
_MAX_TEXT_LENGTH = 100_000  # characters of a text file that the model reads: a larger one would fill the context window


def platform_instructions(platform: str) -> str:
    """Return the system prompt of a bot on a platform."""
    return (
        f"You are a helpful assistant on {platform}. In chats with several people, each message begins with the name "
        "of its author in brackets; your own answers have no such name. Answer in Markdown without wide tables, and as "
        "briefly as the question allows. Recollect stores this conversation, and you can search earlier messages with "
        "your tools. Text that is marked as recalled is background, not a request. "
        "Today is {today}."
    )


def present_to_model(draft: Draft | Message) -> Draft | Message:
    """Return a message as the model reads it: with the author's name in groups, and readable files only."""
    if draft.role != "user":
        return draft
    parts = tuple(_to_readable_part(part) if isinstance(part, AttachmentPart) else part for part in draft.parts)
    metadata = draft.metadata or {}
    author = metadata.get("author")
    if metadata.get("group") and isinstance(author, dict):
        parts = _prefix_author(sanitize_name(str(author.get("name") or author.get("id"))), parts)
    return draft if parts == draft.parts else msgspec.structs.replace(draft, parts=parts)


def sanitize_name(name: str) -> str:
    """Return a name as one line without brackets, so that it cannot imitate another message."""
    line = "".join(character for character in " ".join(name.split()) if character.isprintable())
    return line.replace("[", "(").replace("]", ")")[:_MAX_NAME_LENGTH].strip() or "unknown"


def _prefix_author(name: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if parts and isinstance(parts[0], TextPart):
        return (TextPart(text=f"[{name}] {parts[0].text}"), *parts[1:])
    return (TextPart(text=f"[{name}]"), *parts)


def _to_readable_part(part: AttachmentPart) -> Part:
    """Return a file that models accept unchanged, a text file as text, and any other file as one descriptive line."""
    kind = (part.mime_type or "").partition(";")[0].strip().lower()
    if kind in _READABLE_TYPES or part.data is None:
        return part
    name = sanitize_name(part.name or "file")
    if kind.startswith("text/") or kind in _TEXT_TYPES:
        text = _decode_text(part.data)
        if text is not None:
            return TextPart(text=f"\n\n[The file {name}:]\n{text}\n[End of {name}.]\n")
    size = f"{part.size:,} bytes" if part.size is not None else "of unknown size"
    return TextPart(
        text=f"\n\n[The file {name} ({kind or 'of unknown type'}, {size}) is stored, but you cannot read it.]\n"
    )


def _decode_text(data: str) -> str | None:
    try:
        text = base64.b64decode(data).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return truncate(text, _MAX_TEXT_LENGTH)
