"""Plain chats as sessions: messages of a provider in an array, one a line, or as {"messages": [...]}.

A chat becomes a session whose id is made from what it says, so that the same file gives the same session.
"""

from __future__ import annotations

import hashlib
import json as standard
from collections.abc import Callable, Iterator
from typing import Any

from recollect import formats
from recollect.errors import InvalidValue
from recollect.export import records
from recollect.export.flow import Flow, ask
from recollect.export.report import Report
from recollect.export.source import Piece
from recollect.export.spool import Spool
from recollect.model import json
from recollect.model.message import Draft
from recollect.op import Scope
from recollect.ops import appends, sessions
from recollect.ops.transfer import PAGE_ROWS

_CHANNEL = "import"
_TITLES = ("title", "name")


def is_chat(text: bytes) -> bool:
    """Whether a piece is a message of a chat, or a chat; not a record of an export."""
    value = records.plain(text)
    if not isinstance(value, dict):
        return False
    if value.get("type") in records.TYPES and ("session" in value or value.get("type") in ("header", "session")):
        return value.get("type") == "header" and "format" not in value and "sessions" not in value
    return "role" in value or isinstance(value.get("messages"), list) or "choices" in value


def bring(
    scope: Scope,
    pieces: Iterator[Piece],
    report: Report,
    format: str | None,
    progress: Callable[[int], None] | None,
    *,
    dry_run: bool = False,
) -> Flow[None]:
    """Import chats: loose messages together as one, and each {"messages": [...]} as one."""
    if format is not None and format not in formats.FORMATS:
        formats.write([], format)  # raises what says which there are
    loose = Chat(format, dry_run=dry_run)
    try:
        for piece in pieces:
            value = _value(piece, report)
            if value is None:
                continue
            if isinstance(value.get("messages"), list):
                chat = Chat(format, dry_run=dry_run)
                yield from _whole(scope, chat, piece.line, value, report, progress)
            elif value.get("type") == "header":
                loose.title = _title(value)
            else:
                loose.add(piece.line, piece.text, value, report)
        yield from loose.store(scope, report, progress)
    finally:
        loose.close()


def _value(piece: Piece, report: Report) -> dict[str, Any] | None:
    if piece.reason is not None:
        report.refuse(piece.line, piece.reason)
        return None
    try:
        value = records.plain(piece.text)
    except InvalidValue as error:
        report.refuse(piece.line, error)
        return None
    if not isinstance(value, dict):
        report.refuse(piece.line, "It is no message.")
        return None
    return value


def _whole(
    scope: Scope,
    chat: Chat,
    line: int,
    value: dict[str, Any],
    report: Report,
    progress: Callable[[int], None] | None,
) -> Flow[None]:
    chat.title = _title(value)
    try:
        for message in value["messages"]:
            chat.add(line, standard.dumps(message).encode(), message, report)
        yield from chat.store(scope, report, progress)
    finally:
        chat.close()


def _written(value: Any) -> bytes:
    return json.standard(value).encode()


def _title(value: dict[str, Any]) -> str | None:
    found = next((value[name] for name in _TITLES if isinstance(value.get(name), str) and value[name].strip()), None)
    return None if found is None else " ".join(found.split()).replace("\0", "")[:200]


class Chat:
    """The messages of one chat, checked when they come and kept aside."""

    def __init__(self, format: str | None, *, dry_run: bool = False) -> None:
        self.format = format
        self.dry_run = dry_run
        self.title: str | None = None
        self.spool = Spool()
        self.digest = hashlib.sha256()

    def add(self, line: int, text: bytes, value: Any, report: Report) -> None:
        """Take a message, if it is one."""
        try:
            drafts, told = self._drafts(value), _written(value)
        except InvalidValue as error:
            report.refuse(line, error)
            return
        if drafts:
            self.spool.add(line, text)
            self.digest.update(told + b"\n")

    def _drafts(self, value: Any) -> list[Draft]:
        if not isinstance(value, dict):
            raise InvalidValue("It is no message.")
        return formats.read([value], self.format)

    def store(self, scope: Scope, report: Report, progress: Callable[[int], None] | None) -> Flow[None]:
        """Append what was taken to the session of this chat; what is there already is not appended again."""
        if not self.spool.count:
            return
        id = f"{_CHANNEL}:{self.digest.hexdigest()[:16]}"
        known = (yield from ask(sessions.get(scope, id))) is not None
        if not known and not self.dry_run:
            yield from ask(sessions.ensure(scope, id, {} if self.title is None else {"title": self.title}))
        added = 0
        for number, batch in enumerate(self._batches()):
            if not (yield from self._there(scope, id, f"{_CHANNEL}:{number}", batch, known=known)):
                added += len(batch)
                report.messages += len(batch)
            if progress is not None:
                progress(report.messages)
        told = report.updated if added else report.unchanged
        (told if known else report.created).append(id)

    def _there(self, scope: Scope, id: str, key: str, batch: list[Draft], *, known: bool) -> Flow[bool]:
        """Append a batch, and say whether it was there before."""
        if not self.dry_run:
            appended, _ = yield from ask(appends.append(scope, id, batch, key=key))
            return appended.repeated
        return known and (yield from ask(appends.under_key(scope, id, key, batch))) is not None

    def _batches(self) -> Iterator[list[Draft]]:
        batch: list[Draft] = []
        for piece in self.spool:
            batch += self._drafts(records.plain(piece.text))
            if len(batch) >= PAGE_ROWS:
                yield batch
                batch = []
        if batch:
            yield batch

    def close(self) -> None:
        """Let go of what was kept."""
        self.spool.close()
