"""Conversations out of the server as a file, and into it: both in pieces, so that size costs no memory."""

from __future__ import annotations

import asyncio
import datetime
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from recollect import export, ops
from recollect.errors import InvalidValue
from recollect.model.title import file_name, safe_file_name
from recollect.model.value import iso
from recollect.server.account import Account

TYPES = {
    "md": "text/markdown",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "html": "text/html",
}
LARGEST = 1 << 30
"""Bytes that an import may have."""

_LONGEST_FILE = 120
_JOINER = "\u200d"  # holds an emoji together
_IN_MEMORY = 4 << 20


class Download(NamedTuple):
    """A file on its way out: its name, its type, and its bytes as they are made."""

    name: str
    type: str
    pieces: AsyncGenerator[bytes]

    @property
    def disposition(self) -> str:
        """Say what a browser saves it as. It never shows it: what is in it was written by anyone."""
        return attachment(self.name)


def attachment(name: str, how: str = "attachment") -> str:
    """Write the header that has a browser save a file under a name, or show it ("inline"), whatever is in the name.

    What steers a terminal, leads to another folder or turns the reading direction is no part of it: a name must not
    look as if it ended otherwise than it does.
    """
    kept = name if len(name) <= _LONGEST_FILE else name[: _LONGEST_FILE - 20] + name[-20:]  # with what it ends in
    kept = "".join(c if c == _JOINER or (c.isprintable() and c not in "/\\") else "_" for c in kept)
    kept = safe_file_name(kept.strip())
    plain = safe_file_name("".join(c if c.isascii() and (c.isalnum() or c in "-_. ") else "_" for c in kept)) or "file"
    return f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(kept.encode('utf-8', 'replace'), safe='')}"


async def outgoing(
    account: Account,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    zone: datetime.tzinfo | None = None,
) -> Download:
    """Export sessions: those named, or all that are not in the trash (None), with times in a zone (None: the server's).

    What is wrong with the request is raised here, before the first byte is sent.
    """
    if format not in TYPES:
        raise InvalidValue(f"An export is one of {', '.join(TYPES)}; got {format!r}.")
    if ids is not None:
        await account.store.run(ops.transfer.trees(account.store.scope(), list(ids)))  # an id that is not there
    pieces = export.chunks_async(account.store, ids, format, redact=redact, output=output, deleted=deleted, zone=zone)
    first = await anext(aiter(pieces), b"")

    async def sent() -> AsyncGenerator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return Download(f"{await _name(account, ids)}.{format}", TYPES[format], sent())


async def _name(account: Account, ids: Sequence[str] | None) -> str:
    """Name a file after the one session that is in it, or after the day."""
    if ids is not None and len(ids) == 1:
        session = await account.store.get_session(ids[0])
        told = (session.title if session is not None else None) or ids[0]
        if name := file_name(told):
            return name
    return f"recollect {iso(time.time_ns() // 1_000_000)[:10]}"


async def incoming(
    account: Account,
    stream: AsyncIterable[bytes],
    *,
    on_conflict: str = "skip",
    format: str | None = None,
    largest: int = LARGEST,
) -> export.Report:
    """Import what is uploaded, JSON or JSON lines, and say what was done. Nothing is imported before all of it is here.

    `on_conflict` is `skip`, `new` or `error`, for a session that contradicts the one in the store.
    """
    if on_conflict not in ("skip", "new", "error"):
        raise InvalidValue(f"on_conflict is skip, new or error; got {on_conflict!r}.")
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        size = 0
        async for piece in stream:
            size += len(piece)
            if size > largest:
                raise InvalidValue(f"An import has at most {largest:,} bytes. Use `recollect sessions import` for it.")
            if size > _IN_MEMORY:
                await asyncio.to_thread(file.write, piece)
            else:
                file.write(piece)
        file.seek(0)
        return await export.read_async(account.store, file, on_conflict=on_conflict, format=format)
