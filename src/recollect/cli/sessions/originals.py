"""`sessions export --format native`: the originals of imported conversations, as their tools wrote them."""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from recollect.cli.options import confirm
from recollect.engine import atomic_file
from recollect.errors import InvalidValue

if TYPE_CHECKING:
    from recollect.store import Store

_UNSAFE_CHARACTERS = re.compile(r'[\x00-\x1f<>:"/\\|?*]+')  # those that a file name must not have on some system
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time of the format: the same originals make the same archive


class _Original(NamedTuple):
    """A file to write: its relative path, and the content."""

    name: str
    chunks: Iterator[bytes]


def export(
    store: Store, ids: Sequence[str], path: str | None, open_output: Callable[[], Any], *, yes: bool
) -> int:  # fmt: skip
    """Write the originals of sessions, and return the number of bytes. A path of None is standard output.

    One file is written to the path; several to a zip archive, if the path ends in .zip, or to a folder.
    """
    from recollect.sync.native import iter_originals  # noqa: PLC0415

    names = {id: [name for name, _ in iter_originals(store, id)] for id in ids}
    count = sum(map(len, names.values()))
    originals = (
        _Original(_relative_name(id, name, several=len(ids) > 1), chunks)
        for id in ids
        for name, chunks in iter_originals(store, id)
    )
    if path is not None and path.lower().endswith(".zip"):
        return _write_zip(path, originals, yes=yes)
    if path is not None and (count > 1 or os.path.isdir(path)):
        return _write_folder(path, originals, yes=yes)
    if count > 1:
        raise click.UsageError(
            f"The originals are {count} files, but standard output holds one. Pass a folder or a .zip file with -o."
        )
    if path is None:
        return _write_stream(open_output(), next(originals).chunks)
    return _write_file(path, next(originals).chunks, yes=yes)


def _relative_name(id: str, name: str, *, several: bool) -> str:
    """Return the path of an original in a folder: below a folder of its conversation, if there are several."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise InvalidValue(
            f"The original {name!r} of {id!r} would be written outside of the folder. Export it as jsonl."
        )
    return f"{_UNSAFE_CHARACTERS.sub('-', id)}/{path}" if several else str(path)


def _write_stream(stream: Any, chunks: Iterable[bytes]) -> int:
    """Write to an open binary or text file."""
    is_text = hasattr(stream, "encoding")
    size = 0
    for chunk in chunks:
        stream.write(chunk.decode("utf-8", "replace") if is_text else chunk)
        size += len(chunk)
    return size


def _write_file(path: str, chunks: Iterable[bytes], *, yes: bool) -> int:
    if os.path.lexists(path):
        confirm(f"{path} already exists. Overwrite it?", f"overwrite {path}", yes=yes)
    with _replace(path) as file:
        return _write_stream(file, chunks)


def _write_folder(path: str, originals: Iterable[_Original], *, yes: bool) -> int:
    size = 0
    for original in originals:
        target = os.path.join(path, *PurePosixPath(original.name).parts)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        size += _write_file(target, original.chunks, yes=yes)
    return size


def _write_zip(path: str, originals: Iterable[_Original], *, yes: bool) -> int:
    if os.path.lexists(path):
        confirm(f"{path} already exists. Overwrite it?", f"overwrite {path}", yes=yes)
    with _replace(path) as file:
        with zipfile.ZipFile(file, "w") as archive:
            for original in originals:
                entry = zipfile.ZipInfo(original.name, _ZIP_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(entry, "w", force_zip64=True) as stream:
                    _write_stream(stream, original.chunks)
        return file.tell()


@contextlib.contextmanager
def _replace(path: str) -> Generator[IO[bytes]]:
    """Write a temporary file, and rename it when it is complete."""
    temporary = atomic_file.create_temporary(os.path.realpath(path))
    try:
        with open(temporary, "wb") as file:
            yield file
        atomic_file.fsync_path(temporary)
        os.replace(temporary, os.path.realpath(path))
    finally:
        atomic_file.discard_temporary(temporary)
