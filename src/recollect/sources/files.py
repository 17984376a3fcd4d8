"""The files of an import as users have them: a file, a folder or a zip archive, also compressed, behind one interface.

Everything here is bounded and never leaves the given folder or archive: symbolic links are not followed, names with
`..` or an absolute path are unsafe_names, and decompression stops at a limit.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tempfile
import weakref
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Protocol

from recollect.errors import UnreadableFile

HEAD_BYTES = 65_536
"""How much of a file detect() may read. A first line of Codex holds its base instructions, about 20 KB."""
MAX_DOCUMENT_BYTES = 1 << 30
"""The largest document that is read into memory as a whole; a file of lines may be larger."""
MAX_RATIO = 200
"""The largest ratio of an archive's content to its size, above RATIO_FREE_BYTES. Sample transcripts reach 24."""
RATIO_FREE_BYTES = 64 << 20
"""Bytes of a file that are read at any ratio: small files of repeated text exceed it, and memory holds them."""
MAX_FILES = 1_000_000
"""Entries of an archive. An export has one per image; a directory of more entries takes gigabytes of memory."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_HEAD_STEP = 8_192  # bytes per read; the pieces before damaged data are kept
_ZSTD_STEP = 512  # bytes that are decompressed at once, to at most 16 MB: 4 bytes can hold a block of 128 KB
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_MAX_NESTED_ARCHIVES = 100  # each is an open file; the parts of a split export are a few
_MAX_NESTED_BYTES = 4 << 30  # of an archive in an archive, which is copied to a temporary file


class FileStamp(NamedTuple):
    """What changes when a file changes: its size in bytes, its time in nanoseconds, and its inode."""

    size: int
    modification: int
    inode: int


class FileTree(Protocol):
    """The files of an import. Names are relative, with slashes."""

    @property
    def path(self) -> Path:
        """The file or folder that the user named."""
        ...

    @property
    def problems(self) -> dict[str, str]:
        """Why files have no head(), by name."""
        ...

    def names(self) -> Iterator[str]:
        """Return the names of all files, in the order of the alphabet."""
        ...

    def stamp(self, name: str) -> FileStamp:
        """Return the stamp of a file. Raise UnreadableFile if it does not exist."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """Open a file, decompressed. Raise UnreadableFile if that is not possible.

        Reading raises UnreadableFile for damaged compressed data, and OSError if the disk fails.
        """
        ...

    def head(self, name: str) -> bytes:
        """Return the first HEAD_BYTES of a file; b"" if it cannot be read."""
        ...

    def read(self, name: str, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        """Read a whole file. Raise UnreadableFile if it has more bytes than the limit."""
        ...

    def local_path(self, name: str) -> Path | None:
        """Return the path of a file on this machine; None in an archive. For databases."""
        ...


class _BaseTree:
    """What the trees share: reading a file by opening it."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def open(self, name: str) -> IO[bytes]:
        raise NotImplementedError

    def head(self, name: str) -> bytes:
        data = bytearray()
        try:
            with closing(self.open(name)) as file:
                while len(data) < HEAD_BYTES and (piece := file.read(min(_HEAD_STEP, HEAD_BYTES - len(data)))):
                    data += piece
        except (UnreadableFile, OSError) as error:
            # The beginning of a damaged file tells to which tool it belongs, so that a report can name it.
            self.problems[name] = str(error if isinstance(error, UnreadableFile) else _unreadable(name, error))
        return bytes(data)

    def read(self, name: str, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        with closing(self.open(name)) as file:
            try:
                data = file.read(limit + 1)
            except OSError as error:
                raise _unreadable(name, error) from error
        if len(data) > limit:
            raise UnreadableFile(f"{name} has more than {limit:,} bytes, which is the limit for a document.")
        return data


class FolderTree(_BaseTree):
    """The files below a folder, or a single file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._is_file = not path.is_dir()
        self.unreadable_folders: list[str] = []
        """The folders that names() could not list."""
        self.links: list[str] = []
        """The symbolic links that names() did not follow."""

    def names(self) -> Iterator[str]:
        """Return the names of all files."""
        self.links.clear()
        self.unreadable_folders.clear()
        if self._is_file:
            yield self.path.name
            return
        yield from self._walk("")

    def _walk(self, folder: str) -> Iterator[str]:
        try:
            with os.scandir(self.path / folder) as entries:
                rows = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return  # it disappeared meanwhile
        except OSError:
            self.unreadable_folders.append(folder or ".")
            return
        for entry in rows:
            name = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                yield name
            elif entry.is_symlink():
                self.links.append(name)

    def local_path(self, name: str) -> Path | None:
        """Return the path of a file on this machine."""
        if not self._is_file:
            return self.path / name
        # The files that SQLite keeps next to a database, such as -wal, belong to the database that the user named. Of a
        # link, they are next to its target.
        suffix = name.removeprefix(self.path.name)
        is_side_file = suffix.startswith("-") and "/" not in name
        return Path(f"{self.path.resolve()}{suffix}") if is_side_file else self.path

    def stamp(self, name: str) -> FileStamp:
        """Return the stamp of a file."""
        path = self.local_path(name)
        assert path is not None
        try:
            status = os.stat(path, follow_symlinks=self._is_file)
        except OSError as error:
            raise _unreadable(name, error) from error
        return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino)

    def open(self, name: str) -> IO[bytes]:
        """Open a file, decompressed."""
        path = self.local_path(name)
        assert path is not None
        try:
            flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
            if not self._is_file:
                flags |= getattr(os, "O_NOFOLLOW", 0)
            descriptor = os.open(path, flags)
        except OSError as error:
            raise _unreadable(name, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UnreadableFile(f"{name} is not a file.")
        file = os.fdopen(descriptor, "rb")
        return _decompress(file, name, os.fstat(descriptor).st_size)


class ZipTree(_BaseTree):
    """The files of a zip archive. `file` has its bytes if it is in another archive, of which `path` names the entry."""

    def __init__(self, path: Path, file: IO[bytes] | None = None) -> None:
        super().__init__()
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path if file is None else file)
            if file is not None:
                weakref.finalize(self, file.close)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise _unreadable(path.name, error) from error
        self._entries = {
            entry.filename: entry for entry in self._archive.infolist() if not entry.is_dir() and _is_inside(entry)
        }
        if len(self._entries) > MAX_FILES:
            raise UnreadableFile(f"{path.name} contains more than {MAX_FILES:,} files.")

    def unsafe_names(self) -> list[str]:
        """Return the names of entries that would leave the archive, or are links."""
        return [entry.filename for entry in self._archive.infolist() if not entry.is_dir() and not _is_inside(entry)]

    def names(self) -> Iterator[str]:
        """Return the names of all files."""
        yield from sorted(self._entries)

    def local_path(self, name: str) -> Path | None:  # noqa: ARG002  of the protocol
        """Return None."""
        return None

    def stamp(self, name: str) -> FileStamp:
        """Return the stamp of a file."""
        if name not in self._entries:
            raise UnreadableFile(f"{name} is not in {self.path.name}.")
        entry = self._entries[name]
        return FileStamp(entry.file_size, entry.CRC, 0)

    def open(self, name: str) -> IO[bytes]:
        """Open a file, decompressed."""
        entry = self._entries.get(name)
        if entry is None:
            raise UnreadableFile(f"{name} is not in {self.path.name}.")
        try:
            file = self._archive.open(entry)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:  # RuntimeError: encrypted
            raise _unreadable(name, error) from error
        bounded_file = io.BufferedReader(_BoundedFile(file, name, entry.compress_size))
        return _decompress(bounded_file, name, entry.compress_size)


class _BoundedFile(io.RawIOBase):
    """A stream that stops when it has far more bytes than its compressed data explains."""

    def __init__(self, file: _ByteReader, name: str, size: int) -> None:
        self._file, self._name = file, name
        self._remaining = max(RATIO_FREE_BYTES, size * MAX_RATIO)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._file.read(len(buffer))
        except Exception as error:  # each decompressor raises its own errors
            raise _unreadable(self._name, error) from error
        self._remaining -= len(data)
        if self._remaining < 0:
            raise UnreadableFile(f"{self._name} grows by more than {MAX_RATIO} times when it is decompressed.")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _ZstdFile:
    """The decompressed bytes of a zstd file. The reader of the library does not report that a file is truncated."""

    def __init__(self, file: IO[bytes], decompressor: Any) -> None:
        self._file, self._decompressor = file, decompressor
        self._frame: Any = None
        self._next_input = b""
        self._output, self._position = b"", 0

    def read(self, size: int) -> bytes:
        while self._position >= len(self._output):
            data = self._next_input or self._file.read(_ZSTD_STEP)
            if not data:
                if self._frame is not None:
                    raise ValueError("The compressed data ends too early.")
                return b""
            frame = self._frame or self._decompressor.decompressobj()
            self._output, self._position = frame.decompress(data), 0
            self._next_input, self._frame = (frame.unused_data, None) if frame.eof else (b"", frame)
        data = self._output[self._position : self._position + size]
        self._position += len(data)
        return data

    def close(self) -> None:
        self._file.close()


class _ByteReader(Protocol):
    """What a bounded file reads from."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


def open_tree(path: Path) -> FileTree:
    """Return the tree of a file, a folder or a zip archive. Raise UnreadableFile if it does not exist."""
    if path.is_dir():
        return FolderTree(path)
    try:
        with path.open("rb") as file:
            is_zip = file.read(4) in _ZIP_MAGICS
    except OSError as error:
        raise _unreadable(str(path), error) from error
    return ZipTree(path) if is_zip else FolderTree(path)


def nested_archives(tree: FileTree, names: Iterable[str]) -> Iterator[tuple[str, ZipTree | UnreadableFile]]:
    """Yield the zip archives among files of a tree, each with its name: its files, or the reason why it has none.

    Large exports arrive as several archives, which people keep in one folder. Archives in archives of an archive are
    not opened, so a nested bomb ends there.
    """
    names = [name for name in names if name.lower().endswith(".zip") and tree.head(name)[:4] in _ZIP_MAGICS]
    for name in names[_MAX_NESTED_ARCHIVES:]:
        yield (
            name,
            UnreadableFile(f"{name} was not opened: {tree.path.name} has more than {_MAX_NESTED_ARCHIVES} archives."),
        )
    for name in names[:_MAX_NESTED_ARCHIVES]:
        try:
            yield name, _open_archive(tree, name)
        except UnreadableFile as error:
            yield name, error


def _open_archive(tree: FileTree, name: str) -> ZipTree:
    """Open an archive of a tree; one in an archive is copied to a temporary file."""
    if tree.local_path(name) is not None:
        return ZipTree(tree.path / name)
    copy = tempfile.TemporaryFile(prefix="recollect-")  # noqa: SIM115  the archive in it stays open
    try:
        with closing(tree.open(name)) as file:
            while copy.tell() <= _MAX_NESTED_BYTES and (data := file.read(1 << 20)):
                copy.write(data)
        if copy.tell() <= _MAX_NESTED_BYTES:
            return ZipTree(tree.path / name, copy)
    except (UnreadableFile, OSError) as error:
        copy.close()
        raise error if isinstance(error, UnreadableFile) else _unreadable(name, error) from error
    copy.close()
    raise UnreadableFile(f"{name} has more than {_MAX_NESTED_BYTES:,} bytes. Extract it first.")


def _decompress(file: IO[bytes], name: str, size: int) -> IO[bytes]:
    """Return a buffered stream of a file, decompressed if it is a zstd or gzip file."""
    assert isinstance(file, io.BufferedReader)
    try:
        start = file.peek(4)[:4]
    except OSError as error:
        raise _unreadable(name, error) from error
    if start.startswith(_GZIP_MAGIC):
        reader: Any = gzip.GzipFile(fileobj=file)
        reader.myfileobj = file  # closed with the reader
        return io.BufferedReader(_BoundedFile(reader, name, size))
    if start != _ZSTD_MAGIC:
        return file
    import zstandard  # noqa: PLC0415  only for compressed files

    reader = _ZstdFile(file, zstandard.ZstdDecompressor(max_window_size=1 << 27))
    return io.BufferedReader(_BoundedFile(reader, name, size))


def _is_inside(entry: zipfile.ZipInfo) -> bool:
    """Return whether the name of an entry stays in the archive, and the entry is a file."""
    path = PurePosixPath(entry.filename.replace("\\", "/"))
    is_link = stat.S_ISLNK(entry.external_attr >> 16)
    return not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0] and not is_link


def _unreadable(name: str, error: Exception) -> UnreadableFile:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UnreadableFile(f"{name} cannot be read: {(reason or type(error).__name__).rstrip('.')}.")
