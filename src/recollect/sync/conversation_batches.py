"""Collects the events of a source into batches, one for each conversation."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from recollect.model.json import escape_surrogates
from recollect.model.message import AttachmentPart, BasePart, Draft, ToolResultPart
from recollect.sources.source import (
    ActiveFound,
    CompactionFound,
    ForkFound,
    MessageFound,
    Original,
    SessionFound,
    SourceEvent,
)
from recollect.storage.imports import ImportBatch, ImportedCompaction, ImportedMessage, ImportedRecord

MAX_MESSAGES = 500  # per transaction, so that other writers do not wait long
MAX_SESSIONS = 500  # per transaction that writes only their fields, for the same reason


class ConversationBatch:
    """What is known of one conversation since the last batch was taken."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.title_rank = 0
        self.fields: dict[str, Any] = {}
        self.created_at: int | None = None
        self.updated_at: int | None = None
        self.origin: tuple[str, str] | None = None
        self.parent: str | None = None
        self.version: str | None = None
        self.messages: dict[str, ImportedMessage] = {}
        self.compactions: list[ImportedCompaction] = []
        self.active: str | None = None
        self.originals: list[Original] = []
        self.blobs: set[str] = set()
        """The hashes of the payloads of its messages."""

    @property
    def has_only_fields(self) -> bool:
        """Whether nothing but fields of the conversation is known."""
        return not (self.messages or self.compactions or self.originals or self.active or self.origin)

    def add(self, event: SourceEvent) -> None:
        """Add an event of the conversation."""
        if isinstance(event, MessageFound):
            self._add_message(event)
        elif isinstance(event, SessionFound):
            self._add_fields(event)
        elif isinstance(event, CompactionFound):
            at = event.created_at or self.updated_at or 0
            self.compactions.append(ImportedCompaction(event.last, event.first, event.summary, at))
        elif isinstance(event, ActiveFound):
            self.active = event.last
        elif isinstance(event, ForkFound):
            self.origin = (event.origin, event.last)
        elif isinstance(event, Original):
            self.originals.append(event)

    def _add_message(self, event: MessageFound) -> None:
        key = event.draft.key
        if key is None:
            raise ValueError(f"a message of {self.session} has no key")
        parent = event.parent
        if key in self.messages:  # new content keeps the predecessor
            parent = self.messages[key].parent
        self.messages[key] = ImportedMessage(event.draft, parent)
        self.blobs.update(payload_hashes(event.draft))
        self._add_time(event.draft.created_at_ms)

    def _add_time(self, at: int | None) -> None:
        if at is not None:
            self.created_at = at if self.created_at is None else min(self.created_at, at)
            self.updated_at = at if self.updated_at is None else max(self.updated_at, at)

    def _add_fields(self, event: SessionFound) -> None:
        if event.title and event.title_rank >= self.title_rank:
            self.fields["title"], self.title_rank = _storable(event.title), event.title_rank
        for name in ("working_dir", "model", "provider", "system_prompt", "archived", "pinned"):
            value = getattr(event, name)
            if value is not None:
                self.fields[name] = _storable(value)
        if event.labels is not None:
            self.fields["labels"] = [_storable(label) for label in event.labels]
        if event.metadata:
            self.fields["metadata"] = {**self.fields.get("metadata", {}), **event.metadata}
        self.parent = event.parent or self.parent
        self.version = event.version or self.version
        self._add_time(event.created_at)
        self._add_time(event.updated_at)

    def take(
        self,
        records: Sequence[ImportedRecord],
        *,
        obsolete: Sequence[str],
        again: bool,
        files: Sequence[tuple[str, str]] = (),
    ) -> Iterator[ImportBatch]:
        """Return the events as batches. The records, fields and everything else are written with the last one."""
        items = list(self.messages.values())
        starts = range(0, max(len(items), 1), MAX_MESSAGES)
        for start in starts:
            batch = ImportBatch(
                self.session, created_at=self.created_at, updated_at=self.updated_at, origin=self.origin,
                parent=self.parent, messages=items[start : start + MAX_MESSAGES], again=again,
            )  # fmt: skip
            if start == starts[-1]:
                batch = batch._replace(
                    fields=self.fields, title_rank=self.title_rank, compactions=self.compactions, active=self.active,
                    records=records, obsolete=obsolete, files=files,
                )  # fmt: skip
            yield batch


def _storable(value: Any) -> Any:
    """Return a text as a field of a session can hold it: without NUL and lone surrogates. Other values stay."""
    return escape_surrogates(value.replace("\0", "")) if isinstance(value, str) else value


def payload_hashes(draft: Draft) -> Iterator[str]:
    """Return the hashes of the attachments of a draft."""
    for part in draft.parts:
        pieces: tuple[BasePart, ...] = (part.content or ()) if isinstance(part, ToolResultPart) else (part,)
        for piece in pieces:
            if isinstance(piece, AttachmentPart) and piece.data is not None:
                try:
                    yield hashlib.sha256(base64.b64decode(piece.data, validate=True)).hexdigest()
                except (binascii.Error, ValueError):
                    continue
