"""Sessions to and from files: Markdown, JSON, JSON lines and a self-contained HTML page, with secrets masked if asked.

Everything is read and written piece by piece, so that memory does not grow with the session. docs/export.md describes
what is in the files. This room stands on the operations and a store, never on SQL.

    selection.py   which sessions and branches            redaction.py, masks.py   secrets
    records.py     the records of JSON and JSON lines     stored.py                rows as records, and back
    lines.py       records written                        transcript.py            a session as it reads
    markdown.py, speech.py, page.py, prose.py, attachment.py    how it is shown
    intake.py      a file read, in groups: source.py, spool.py, group.py, chats.py, report.py
    placement.py   where a group goes                     batches.py, landing.py   written
    copying.py     a whole store into another one, row by row, with no file between
    flow.py        operations and output in one stream, for either store
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from recollect.engine import part
from recollect.errors import DiskFull, InvalidValue, StoreUnavailable, displayed
from recollect.export.flow import Flow, driven, driven_async, settled, settled_async
from recollect.export.report import BadLine, Refused, Report
from recollect.model import argument
from recollect.op import Scope

if TYPE_CHECKING:
    import datetime

    from recollect.store import Store
    from recollect.store_async import AsyncStore

__all__ = [
    "FORMATS",
    "BadLine",
    "Refused",
    "Report",
    "chunks",
    "chunks_async",
    "format_of",
    "read",
    "read_async",
    "write",
]

FORMATS = ("md", "json", "jsonl", "html")
_ENDINGS = {"markdown": "md", "htm": "html", "ndjson": "jsonl"}
File = str | os.PathLike[str] | IO[Any]
Progress = Callable[[int], None]


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Name the format that a file's name ends with; None where it ends with none."""
    ending = os.path.splitext(_path(path) or "")[1][1:].lower()
    ending = _ENDINGS.get(ending, ending)
    return ending if ending in FORMATS else None


def chunks(
    store: Store,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    progress: Progress | None = None,
    zone: datetime.tzinfo | None = None,
) -> Iterator[bytes]:
    """Export sessions as pieces of a file, UTF-8: those named, or all that are not in the trash.

    Without `output` a document for people leaves out what tools answered. Its times are in `zone`; None is the zone of
    this machine. JSON has its times in UTC.
    """
    flow = _flow(
        store.scope(), ids, format, redact=redact, output=output, deleted=deleted, progress=progress, zone=zone
    )
    return driven(store, flow)


def chunks_async(
    store: AsyncStore,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    progress: Progress | None = None,
    zone: datetime.tzinfo | None = None,
) -> AsyncIterator[bytes]:
    """Export sessions from an async store, as chunks() does."""
    flow = _flow(
        store.scope(), ids, format, redact=redact, output=output, deleted=deleted, progress=progress, zone=zone
    )
    return driven_async(store, flow)


def write(
    store: Store,
    ids: Sequence[str] | None,
    format: str | None,
    file: File,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    progress: Progress | None = None,
    zone: datetime.tzinfo | None = None,
) -> int:
    """Export sessions into a file, named or open, and give how many bytes that were.

    Without a format it is the one that the file's name ends with. A named file takes its place when it is whole.
    """
    named = _path(file, "write")
    if format is None and named is not None:
        format = format_of(named)
    if format is None:
        raise InvalidValue(f"Say in which format to export: one of {', '.join(FORMATS)}.")
    found = chunks(store, ids, format, redact=redact, output=output, deleted=deleted, progress=progress, zone=zone)
    if named is None:
        return _poured(found, file)
    advice = "that its folder is there and that you may write in it"
    with _told(named, "written", advice, named), _replacing(named) as target:
        return _poured(found, target)


def read(
    store: Store,
    file: File,
    *,
    on_conflict: str = "skip",
    format: str | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> Report:
    """Import what export wrote as JSON or JSON lines, or plain chats, and say what was done.

    What is there already is not changed, and what goes on where it ends is added. A session that contradicts the one
    in the store is left out (`skip`), imported under a new id (`new`) or an error (`error`). `format` is that of the
    messages of a plain chat, where it is not clear. With `dry_run` nothing is written, and it says what would be done.
    """
    with _opened(file) as source:
        return settled(store, _intake(store.scope(), source, on_conflict, format, progress, dry_run=dry_run))


async def read_async(
    store: AsyncStore,
    file: File,
    *,
    on_conflict: str = "skip",
    format: str | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> Report:
    """Import into an async store, as read() does."""
    with _opened(file) as source:
        flow = _intake(store.scope(), source, on_conflict, format, progress, dry_run=dry_run)
        return await settled_async(store, flow)


def _flow(
    scope: Scope,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool,
    output: bool,
    deleted: bool | None,
    progress: Progress | None,
    zone: datetime.tzinfo | None,
) -> Flow[None]:
    """Choose how a format is written; only what it needs is loaded."""
    from recollect.export.lines import Options, document, jsonl  # noqa: PLC0415
    from recollect.export.redaction import Redactor  # noqa: PLC0415

    argument.function("progress", progress)
    format = _ENDINGS.get(format, format) if type(format) is str else format
    if format not in FORMATS:
        raise InvalidValue(f"An export is one of {', '.join(FORMATS)}; got {displayed(format)}.")
    machine = format in ("json", "jsonl")
    options = Options(Redactor() if redact else None, machine if deleted is None else deleted, progress, output)
    if machine and not output:
        raise InvalidValue(f"An export as {format} is whole. Leave out what tools answered as md or html.")
    if machine:
        return (jsonl if format == "jsonl" else document)(scope, ids, options)
    from recollect.export.transcript import transcript  # noqa: PLC0415

    if format == "md":
        from recollect.export.markdown import Markdown  # noqa: PLC0415

        return transcript(scope, ids, options, Markdown(zone))
    from recollect.export.page import Page  # noqa: PLC0415

    return transcript(scope, ids, options, Page(zone))


def _intake(
    scope: Scope, source: Any, on_conflict: str, format: str | None, progress: Progress | None, *, dry_run: bool
) -> Flow[Report]:
    from recollect.export.intake import Intake  # noqa: PLC0415
    from recollect.export.source import pieces, reader  # noqa: PLC0415

    argument.function("progress", progress)
    intake = Intake(scope, on_conflict=on_conflict, format=format, progress=progress, dry_run=bool(dry_run))
    return intake.run(pieces(reader(source)))


def _poured(found: Iterator[bytes], target: Any) -> int:
    """Write pieces into an open file, of bytes or of text."""
    is_text = hasattr(target, "encoding")
    total = 0
    for piece in found:
        target.write(piece.decode() if is_text else piece)
        total += len(piece)
    return total


def _path(file: Any, act: str | None = None) -> str | None:
    """Give the path of a file that is named; None for one that is open, and can do what is asked of it."""
    if isinstance(file, str | os.PathLike):
        found: Any = os.fspath(file)
        if isinstance(found, str) and found and "\0" not in found:
            return found
    elif act is not None and hasattr(file, act):
        return None
    opened = "" if act is None else ", or open"
    raise InvalidValue(f"A file is named by a path, a text or a Path{opened}; got {displayed(file)}.")


@contextlib.contextmanager
def _told(path: str, done: str, advice: str, fills: str) -> Generator[None]:
    """Say in our own words why a file can not be written or read. A reader who went away is the caller's matter."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path=fills) from error
        reason = error.strerror or str(error)
        told = f"{path} can not be {done}: {reason}. Check {advice}."
        raise StoreUnavailable(told, path=path, reason=reason) from error


@contextlib.contextmanager
def _replacing(path: str) -> Generator[IO[bytes]]:
    """Write beside a file and put it in its place at the end, so that a failure leaves what was there."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device is written to, never replaced
        with open(path, "wb") as target:
            yield target
        return
    made = part.begin(path)
    try:
        with open(made, "wb") as target:
            yield target
        part.sync(made)
        os.replace(made, path)
    finally:
        part.discard(made)


@contextlib.contextmanager
def _opened(file: File) -> Generator[Any]:
    path = _path(file, "read")
    if path is None:
        yield file
        return
    import tempfile  # noqa: PLC0415  what is read is kept aside there, until it is known where it goes

    with _told(path, "read", "its name, and that you may read it", tempfile.gettempdir()), open(path, "rb") as source:
        yield source
