"""Export sessions to files and import them: Markdown, JSON, JSON lines and a self-contained HTML page.

Everything is read and written in chunks, so memory does not grow with the session. docs/reference/export.md describes
the files. This package uses operations and a store, never SQL.

    selection.py      the sessions and branches of an export
    records.py        the records of JSON and JSON lines, converted from rows and back
    jsonl.py          JSON and JSON lines
    transcript.py     a session for people to read; markdown.py and html.py render it, safe_markup.py escapes content
    markdown_html.py  Markdown as HTML, also for the web app; plaintext.py prepares the text and bounds the time
    redaction.py      masks secrets
    importer.py       the import of a file: import_reader.py parses it, import_plan.py decides, import_report.py reports
    copying.py        copies a whole database: reads the rows of an export, writes them as an import
    pipeline.py       generators that yield operations and output, run by a sync or an async store
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from recollect.engine import atomic_file
from recollect.errors import DiskFull, InvalidValue, StoreUnavailable, format_value
from recollect.export.import_report import BadLine, Refused, Report
from recollect.export.pipeline import (
    Pipeline,
    run_to_result,
    run_to_result_async,
    scope_of,
    stream_output,
    stream_output_async,
)
from recollect.model import validation
from recollect.storage.operation import Scope

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
    "is_export",
    "is_json",
    "read",
    "read_async",
    "write",
]

FORMATS = ("md", "json", "jsonl", "html")
_FORMAT_ALIASES = {"markdown": "md", "htm": "html", "ndjson": "jsonl"}
_HEADER_BYTES = 512  # of a file, in which its header names the format
FileOrPath = str | os.PathLike[str] | IO[Any]
MessageCallback = Callable[[int], None]


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Return the export format that matches a file's extension, or None if there is none."""
    extension = os.path.splitext(_check_path(path) or "")[1][1:].lower()
    extension = _FORMAT_ALIASES.get(extension, extension)
    return extension if extension in FORMATS else None


def is_export(head: bytes) -> bool:
    """Return whether a file that begins so is a JSON or JSON lines export of Recollect."""
    from recollect.export.records import FORMAT  # noqa: PLC0415

    return is_json(head) and f'"{FORMAT}"'.encode() in head[:_HEADER_BYTES]


def is_json(head: bytes) -> bool:
    """Return whether a file that begins so may contain JSON: an object, an array, or lines of objects."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[")


def chunks(
    store: Store,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    progress: MessageCallback | None = None,
    zone: datetime.tzinfo | None = None,
) -> Iterator[bytes]:
    """Export sessions, and yield the chunks of the file, in UTF-8.

    - `ids`: the sessions to export; None exports all that are not in the trash, oldest first. A missing id raises
      SessionNotFound.
    - `format`: "md", "json", "jsonl" or "html".
    - `redact`: mask secrets.
    - `output`: False omits the output of tools; Markdown and HTML only.
    - `deleted`: include deleted messages. None includes them in JSON and JSON lines only.
    - `progress`: a function that is called with the number of messages written so far.
    - `zone`: the time zone of Markdown and HTML; None is the zone of this machine. JSON has its times in UTC.

    Sessions are read one page at a time, so memory does not grow with their size.
    """
    pipeline = _export_pipeline(
        scope_of(store), ids, format, redact=redact, output=output, deleted=deleted, progress=progress, zone=zone
    )
    return stream_output(store, pipeline)


def chunks_async(
    store: AsyncStore,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    progress: MessageCallback | None = None,
    zone: datetime.tzinfo | None = None,
) -> AsyncIterator[bytes]:
    """Export sessions from an async store, and yield the chunks of the file as chunks() does."""
    pipeline = _export_pipeline(
        scope_of(store), ids, format, redact=redact, output=output, deleted=deleted, progress=progress, zone=zone
    )
    return stream_output_async(store, pipeline)


def write(
    store: Store,
    ids: Sequence[str] | None,
    format: str | None,
    file: FileOrPath,
    *,
    redact: bool = False,
    output: bool = True,
    deleted: bool | None = None,
    progress: MessageCallback | None = None,
    zone: datetime.tzinfo | None = None,
) -> int:
    """Export sessions to a file, a path or an open file, and return the number of bytes written.

    If `format` is None, the extension of the path decides. A path is written to a temporary file and renamed at the
    end, so a failed export leaves the previous file unchanged. The other arguments as in chunks(). Raise
    StoreUnavailable if the file cannot be written, and DiskFull if there is no space.
    """
    path = _check_path(file, "write")
    if format is None and path is not None:
        format = format_of(path)
    if format is None:
        raise InvalidValue(
            f"format must be one of {', '.join(FORMATS)}, got None. Pass it, or use a path with such an extension."
        )
    stream = chunks(store, ids, format, redact=redact, output=output, deleted=deleted, progress=progress, zone=zone)
    if path is None:
        return _write_chunks(stream, file)
    advice = "that its folder exists and that you may write to it"
    with _translate_os_errors(path, "written", advice, path), _replace_atomically(path) as target:
        return _write_chunks(stream, target)


def read(
    store: Store,
    file: FileOrPath,
    *,
    on_conflict: str = "skip",
    format: str | None = None,
    progress: MessageCallback | None = None,
    dry_run: bool = False,
) -> Report:
    """Import a JSON or JSON lines export, or plain chats in a provider's format, and return a report.

    - `on_conflict`: what to do with a session that differs from the stored one: "skip" it, import it as a "new" session
      with another id, or raise an "error", SessionExists. A session that only continues the stored one is extended.
    - `format`: the message format of a plain chat. It is detected if it is unambiguous.
    - `progress`: a function that is called with the number of messages imported so far.
    - `dry_run`: write nothing, and report what would be imported.

    Damaged lines are skipped and listed in the report. Importing the same file again stores nothing twice.
    """
    with _open_source(file) as source:
        return run_to_result(
            store, _import_pipeline(scope_of(store), source, on_conflict, format, progress, dry_run=dry_run)
        )


async def read_async(
    store: AsyncStore,
    file: FileOrPath,
    *,
    on_conflict: str = "skip",
    format: str | None = None,
    progress: MessageCallback | None = None,
    dry_run: bool = False,
) -> Report:
    """Import a file into an async store, as read() does."""
    with _open_source(file) as source:
        pipeline = _import_pipeline(scope_of(store), source, on_conflict, format, progress, dry_run=dry_run)
        return await run_to_result_async(store, pipeline)


def _export_pipeline(
    scope: Scope,
    ids: Sequence[str] | None,
    format: str,
    *,
    redact: bool,
    output: bool,
    deleted: bool | None,
    progress: MessageCallback | None,
    zone: datetime.tzinfo | None,
) -> Pipeline[None]:
    """Return the pipeline that writes a format. Only the modules that it needs are imported."""
    from recollect.export.jsonl import ExportOptions, write_json, write_jsonl  # noqa: PLC0415
    from recollect.export.redaction import Redactor  # noqa: PLC0415

    validation.check_callable("progress", progress)
    format = _FORMAT_ALIASES.get(format, format) if type(format) is str else format
    if format not in FORMATS:
        raise InvalidValue(f"format must be one of {', '.join(FORMATS)}, got {format_value(format)}.")
    machine = format in ("json", "jsonl")
    options = ExportOptions(Redactor() if redact else None, machine if deleted is None else deleted, progress, output)
    if machine and not output:
        raise InvalidValue(
            f"output must be True for {format}, which exports whole sessions. Use md or html to omit tool output."
        )
    if machine:
        return (write_jsonl if format == "jsonl" else write_json)(scope, ids, options)
    from recollect.export.transcript import write_transcript  # noqa: PLC0415

    if format == "md":
        from recollect.export.markdown import MarkdownRenderer  # noqa: PLC0415

        return write_transcript(scope, ids, options, MarkdownRenderer(zone))
    from recollect.export.html import HtmlRenderer  # noqa: PLC0415

    return write_transcript(scope, ids, options, HtmlRenderer(zone))


def _import_pipeline(
    scope: Scope, source: Any, on_conflict: str, format: str | None, progress: MessageCallback | None, *, dry_run: bool
) -> Pipeline[Report]:
    from recollect.export.import_reader import bytes_reader, read_values  # noqa: PLC0415
    from recollect.export.importer import Importer  # noqa: PLC0415

    validation.check_callable("progress", progress)
    importer = Importer(scope, on_conflict=on_conflict, format=format, progress=progress, dry_run=bool(dry_run))
    return importer.run(read_values(bytes_reader(source)))


def _write_chunks(stream: Iterator[bytes], target: Any) -> int:
    """Write chunks to an open binary or text file, and return the number of bytes."""
    is_text = hasattr(target, "encoding")
    total = 0
    for chunk in stream:
        target.write(chunk.decode() if is_text else chunk)
        total += len(chunk)
    return total


def _check_path(file: Any, method: str | None = None) -> str | None:
    """Return the path of a file, or None for an open file that has `method`. Raise InvalidValue for anything else."""
    if isinstance(file, str | os.PathLike):
        path: Any = os.fspath(file)
        if isinstance(path, str) and path and "\0" not in path:
            return path
    elif method is not None and hasattr(file, method):
        return None
    alternative = "" if method is None else " or an open file"
    raise InvalidValue(f"file must be a path (str or Path){alternative}, got {format_value(file)}.")


@contextlib.contextmanager
def _translate_os_errors(path: str, action: str, advice: str, disk_path: str) -> Generator[None]:
    """Raise StoreUnavailable or DiskFull for an OSError. A BrokenPipeError passes through: the caller handles it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path=disk_path) from error
        reason = error.strerror or str(error)
        message = f"{path} cannot be {action}: {reason}. Check {advice}."
        raise StoreUnavailable(message, path=path, reason=reason) from error


@contextlib.contextmanager
def _replace_atomically(path: str) -> Generator[IO[bytes]]:
    """Write to a temporary file next to the target and rename it at the end; a failure leaves the target unchanged."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device is written directly, never replaced
        with open(path, "wb") as target:
            yield target
        return
    temporary = atomic_file.create_temporary(path)
    try:
        with open(temporary, "wb") as target:
            yield target
        atomic_file.fsync_path(temporary)
        os.replace(temporary, path)
    finally:
        atomic_file.discard_temporary(temporary)


@contextlib.contextmanager
def _open_source(file: FileOrPath) -> Generator[Any]:
    path = _check_path(file, "read")
    if path is None:
        yield file
        return
    import tempfile  # noqa: PLC0415  only to name the disk that the spools of an import fill

    with (
        _translate_os_errors(path, "read", "its name and that you may read it", tempfile.gettempdir()),
        open(path, "rb") as source,
    ):
        yield source
