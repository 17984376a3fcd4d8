"""Pixel sizes of images, read from their first bytes, so that the page can reserve their room before they are loaded.

No image is decoded. If the size is not found or not plausible, no room is reserved: the browser finds the size when it
has loaded the file.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import NamedTuple

_TALLEST = 320
"""CSS pixels: the `max-height` of an image in conversation.css."""
_LARGEST = 1 << 16
_READ = 96 << 10  # characters of base64. JPEG puts its size after its metadata, of which a segment has up to 64 KiB.
_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE_MARKERS = frozenset((0x01, *range(0xD0, 0xD9)))
_MARKER, _START_OF_SCAN, _EXIF = 0xFF, 0xDA, 0xE1
_ORIENTATION = 0x0112
_UPRIGHT = 1


class Dimensions(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int

    def fitted(self) -> Dimensions:
        """Return the size at which the page shows it: at most as tall as a picture may be there."""
        if self.height <= _TALLEST:
            return self
        return Dimensions(max(round(self.width * _TALLEST / self.height), 1), _TALLEST)


def of_base64(data: str) -> Dimensions | None:
    """Return the pixel size of an image in base64, or None if it is not in the first bytes."""
    try:
        start = base64.b64decode(data[:_READ] if len(data) > _READ else data)
    except (binascii.Error, ValueError):
        return None
    try:
        found = _read(start)
    except (struct.error, IndexError):  # it ends too early
        return None
    return found if found is not None and all(0 < side < _LARGEST for side in found) else None


def _read(start: bytes) -> Dimensions | None:
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return Dimensions(*struct.unpack_from(">II", start, 16))
    if start.startswith((b"GIF87a", b"GIF89a")):
        return Dimensions(*struct.unpack_from("<HH", start, 6))
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return _webp(start)
    return _jpeg(start) if start.startswith(b"\xff\xd8\xff") else None


def _webp(start: bytes) -> Dimensions | None:
    """Read the size from the first chunk: extended, lossless or lossy (RFC 9649)."""
    match start[12:16]:
        case b"VP8X":
            low, high, *tall = struct.unpack_from("<HBHB", start, 24)  # three bytes each, less one
            return Dimensions(1 + (low | high << 16), 1 + (tall[0] | tall[1] << 16))
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", start, 21)
            return Dimensions(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", start, 26)
            return Dimensions(width & 0x3FFF, height & 0x3FFF)
        case _:
            return None


def _jpeg(start: bytes) -> Dimensions | None:
    """Walk the segments to the one with the size. Return None for a picture that is shown rotated."""
    at = 2
    while start[at] == _MARKER:
        marker = start[at + 1]
        if marker == _MARKER:  # padding
            at += 1
            continue
        if marker in _BARE_MARKERS:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", start, at + 2)
        if marker == _EXIF and _turned(start[at + 4 : at + 2 + length]):
            return None
        if marker in _SIZE_MARKERS:
            height, width = struct.unpack_from(">HH", start, at + 5)
            return Dimensions(width, height)
        if marker == _START_OF_SCAN or length < 2:  # noqa: PLR2004  the length counts itself
            return None
        at += 2 + length
    return None


def _turned(segment: bytes) -> bool:
    """Say whether Exif data asks for another orientation than the stored one."""
    if not segment.startswith(b"Exif\0\0"):
        return False
    tiff = segment[6:]
    order = "<" if tiff.startswith(b"II") else ">"
    (first,) = struct.unpack_from(order + "I", tiff, 4)
    (count,) = struct.unpack_from(order + "H", tiff, first)
    for entry in range(first + 2, first + 2 + 12 * count, 12):
        tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, entry)
        if tag == _ORIENTATION:
            return value != _UPRIGHT
    return False
