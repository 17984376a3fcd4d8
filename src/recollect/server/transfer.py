"""Export and import of conversations as files, streamed so that the size costs no memory."""

from __future__ import annotations

import asyncio
import datetime
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from recollect import export
from recollect.errors import InvalidValue
from recollect.model.title import file_name, safe_file_name
from recollect.model.value import format_iso
from recollect.server.account import Account

EXPORT_TYPES = {
    "md": "text/markdown",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "html": "text/html",
}
MAX_IMPORT_SIZE = 1 << 30
"""Maximum size of an import in bytes. Larger files can be imported on the command line."""

_MAX_FILE_NAME_LENGTH = 120  # characters. Longer names are cut so that they fit file systems (255 bytes).
_ZERO_WIDTH_JOINER = "\u200d"  # joins the parts of an emoji
_IN_MEMORY = 4 << 20  # bytes of an upload that are held in memory; the rest goes to a temporary file


class ExportDownload(NamedTuple):
    """An export: its file name, media type, and bytes as they are produced."""

    name: str
    type: str
    pieces: AsyncGenerator[bytes]

    @property
    def disposition(self) -> str:
        """The Content-Disposition header. A browser saves the file and never shows it: its content is not trusted."""
        return content_disposition(self.name)


def content_disposition(name: str, kind: str = "attachment") -> str:
    """Return a Content-Disposition header for any file name. `kind` is "attachment" or "inline".

    Control characters, path separators and characters that change the reading direction are replaced: a name must not
    hide its extension.
    """
    safe_name = (
        name if len(name) <= _MAX_FILE_NAME_LENGTH else name[: _MAX_FILE_NAME_LENGTH - 20] + name[-20:]
    )  # keep the extension
    safe_name = "".join(
        c if c == _ZERO_WIDTH_JOINER or (c.isprintable() and c not in "/\\") else "_" for c in safe_name
    )
    safe_name = safe_file_name(safe_name.strip())
    ascii_name = (
        safe_file_name("".join(c if c.isascii() and (c.isalnum() or c in "-_. ") else "_" for c in safe_name)) or "file"
    )
    return f"{kind}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(safe_name.encode('utf-8', 'replace'), safe='')}"


async def start_export(
    account: Account,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    zone: datetime.tzinfo | None = None,
) -> ExportDownload:
    """Export sessions by id, or all that are not in the trash (None), with times in a zone (None: the server's).

    Errors of the request are raised here, before the first byte is sent.
    """
    if format not in EXPORT_TYPES:
        raise InvalidValue(f"format must be one of {', '.join(EXPORT_TYPES)}, got {format!r}.")
    pieces = export.chunks_async(account.store, ids, format, redact=redact, output=output, deleted=deleted, zone=zone)
    first = await anext(aiter(pieces), b"")

    async def all_pieces() -> AsyncGenerator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return ExportDownload(f"{await _export_name(account, ids)}.{format}", EXPORT_TYPES[format], all_pieces())


async def _export_name(account: Account, ids: Sequence[str] | None) -> str:
    """Return the file name: the title of a single session, or the date."""
    if ids is not None and len(ids) == 1:
        session = await account.store.get_session(ids[0])
        title = (session.title if session is not None else None) or ids[0]
        if name := file_name(title):
            return name
    return f"recollect {format_iso(time.time_ns() // 1_000_000)[:10]}"


async def import_upload(
    account: Account,
    stream: AsyncIterable[bytes],
    *,
    on_conflict: str = "skip",
    format: str | None = None,
    max_size: int = MAX_IMPORT_SIZE,
) -> export.Report:
    """Import an upload in JSON or JSON lines after all of it was received, and return the report.

    `on_conflict` (`skip`, `new` or `error`) decides about a session that differs from the stored one.
    """
    if on_conflict not in ("skip", "new", "error"):
        raise InvalidValue(f"on_conflict must be skip, new or error, got {on_conflict!r}.")
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        size = 0
        async for piece in stream:
            size += len(piece)
            if size > max_size:
                raise InvalidValue(
                    f"An import must have at most {max_size:,} bytes. Run `recollect import` for larger files."
                )
            if size > _IN_MEMORY:
                await asyncio.to_thread(file.write, piece)
            else:
                file.write(piece)
        file.seek(0)
        return await export.read_async(account.store, file, on_conflict=on_conflict, format=format)
