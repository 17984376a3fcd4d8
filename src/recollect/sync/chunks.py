"""The original bytes of a transcript as they are stored: compressed chunks that refer to blobs.

An image in a transcript is base64 text, which compression does not shorten. The same image is a blob of the message, so
a chunk has a reference in its place. Everything else is compressed with zstd: transcripts full of source code to a
quarter, others to a tenth.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Collection, Iterator

CHUNK_BYTES = 1 << 20
"""Uncompressed bytes per chunk. The last chunk of a file that grows is written again with each addition."""
_LEVEL = 3  # Of 24 MB of benchmarks/imports.py, level 6 takes 3 times as long, for 5% fewer bytes.
_MIN_RUN = 1024  # characters. A shorter text saves less than its reference costs in the code that reads it.
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/]{%d,}={0,2}" % _MIN_RUN)
_REFERENCE = re.compile(rb"\0(\0|[0-9a-f]{64})")


class MissingBlob(Exception):
    """Internal: a blob that a chunk refers to does not exist. native.py reports that the original is incomplete."""


def encode_chunk(data: bytes, blobs: Collection[str]) -> bytes:
    """Return a chunk. `blobs` are the hashes of the blobs to which it may refer."""
    data = data.replace(b"\0", b"\0\0")
    if blobs:
        data = _BASE64_RUN.sub(lambda match: _reference(match[0], blobs), data)
    import zstandard  # noqa: PLC0415  only for imports

    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def _reference(text: bytes, blobs: Collection[str]) -> bytes:
    try:
        payload = base64.b64decode(text, validate=True)
    except binascii.Error:
        return text
    name = hashlib.sha256(payload).hexdigest()
    # Base64 has several spellings of some payloads; only the one that encoding the blob returns can be replaced.
    return b"\0" + name.encode() if name in blobs and base64.b64encode(payload) == text else text


def decode_chunk(chunk: bytes, read_blob: Callable[[str], bytes | None]) -> bytes:
    """Return the bytes of a chunk. Raise MissingBlob if it refers to a blob that does not exist."""
    import zstandard  # noqa: PLC0415

    data = zstandard.ZstdDecompressor().decompress(chunk, max_output_size=1 << 31)
    return _REFERENCE.sub(lambda match: _resolve(match[1], read_blob), data)


def _resolve(name: bytes, read_blob: Callable[[str], bytes | None]) -> bytes:
    if name == b"\0":
        return b"\0"
    payload = read_blob(name.decode())
    if payload is None:
        raise MissingBlob
    return base64.b64encode(payload)


def split(data: bytes) -> Iterator[bytes]:
    """Return data in pieces of CHUNK_BYTES; one empty piece for empty data."""
    for start in range(0, max(len(data), 1), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def chunk_key(name: str, number: int) -> str:
    """Return the key of the record of a chunk. Keys of one name sort by number."""
    return f"{name}\n{number:08d}"


def chunk_prefix(name: str) -> str:
    """Return the beginning of the keys of all chunks of a name."""
    return f"{name}\n"


def references(chunk: bytes) -> set[str]:
    """Return the hashes of the blobs to which a chunk refers."""
    import zstandard  # noqa: PLC0415

    data = zstandard.ZstdDecompressor().decompress(chunk, max_output_size=1 << 31)
    return {name.decode() for name in _REFERENCE.findall(data) if name != b"\0"}
