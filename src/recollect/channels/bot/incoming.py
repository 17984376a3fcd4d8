"""A message that came to a bot, as a value that knows no platform."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from recollect.model import keys
from recollect.model.message import Draft
from recollect.model.part import AttachmentPart, Part, TextPart


class Author(msgspec.Struct, frozen=True):
    """Who said it: the platform's id, which does not change, and the name that people see."""

    id: str
    name: str


class Attachment(msgspec.Struct, frozen=True):
    """A file that came with a message."""

    name: str
    mime: str
    data: bytes


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `id` is the platform's, unique in its place; `extra` is the adapter's own, and plain JSON.

    `notes` says in sentences what could not be taken, such as a file that is too large; `parent` is the place that a
    thread or a topic belongs to.
    """

    id: str
    place: keys.Place
    author: Author
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    direct: bool = False
    mentioned: bool = False
    replies_to_bot: bool = False
    own_thread: bool = False
    guild: str | None = None
    roles: tuple[str, ...] = ()
    parent: keys.Place | None = None
    extra: dict[str, Any] = {}

    @property
    def addressed(self) -> bool:
        """Whether the bot is meant: in a direct chat and in its own threads always, elsewhere when it is called."""
        return self.direct or self.mentioned or self.replies_to_bot or self.own_thread

    @property
    def session(self) -> str:
        """The session of its place."""
        return keys.key(self.place)

    def key(self) -> str:
        """Name it for the store, so that it is answered once: the place is the session's, the rest is the id."""
        return f"message:{self.id}"

    def draft(self) -> Draft:
        """Make the message that is stored: what was said, the files, and who said it."""
        said = "\n".join([self.text, *(f"[{note}]" for note in self.notes)]).strip()
        parts: list[Part] = [TextPart(text=said)] if said else []
        parts += [
            AttachmentPart(
                name=file.name, mime_type=file.mime, size=len(file.data), data=base64.b64encode(file.data).decode()
            )
            for file in self.attachments
        ]
        return Draft(role="user", parts=tuple(parts), metadata=self.metadata())

    def metadata(self) -> dict[str, Any]:
        """Say what is kept with the message."""
        told: dict[str, Any] = {"author": {"id": self.author.id, "name": self.author.name}, "message_id": self.id}
        if not self.direct:
            told["group"] = True
        return told | ({"guild": self.guild} if self.guild else {})

    def without_files(self) -> Incoming:
        """Give it as the ledger keeps it: the files are fetched again, or asked for again."""
        return msgspec.structs.replace(self, attachments=())

    @property
    def name(self) -> str:
        """Name it among all messages of a bot."""
        return f"{self.session}#{self.id}"
