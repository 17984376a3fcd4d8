"""Attachments: validation of uploads, safe delivery of stored files, and image dimensions.

Raster images and plain text are shown inline. Everything else is served as a download, regardless of its declared type:
an SVG or an HTML page from this origin would have the rights of the page itself.

Image dimensions are read from the first bytes, without decoding, so that the page can reserve space before an image is
loaded. If they are missing or implausible, no space is reserved.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
import struct
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from litestar.datastructures import UploadFile

from recollect.errors import InvalidValue, NotFound
from recollect.model import humanize
from recollect.model.message import AttachmentPart, Content, Message, Part, ToolResultPart
from recollect.server.transfer import content_disposition

MAX_FILE_SIZE = 20_000_000
"""Maximum size of an attachment in bytes. A message holds it in base64, in memory."""

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
ACCEPTED_TYPES = (
    *IMAGE_TYPES, "application/pdf", "application/json", "application/xml", "application/zip",
    "application/x-yaml", "application/toml",
)  # fmt: skip
"""Accepted media types, in addition to text/*, audio/* and video/*."""

FILE_SECURITY_POLICY = "default-src 'none'; sandbox"
"""The policy for a file that a browser opens: it may do nothing."""

_MIME_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,80}", re.ASCII)
_LONGEST_NAME = 200  # characters of a file name; below the 255 bytes of most file systems
_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",), "image/jpeg": (b"\xff\xd8\xff",), "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}  # fmt: skip


class ServedFile(NamedTuple):
    """The bytes of a file, and response headers that prevent it from running as a page."""

    data: bytes
    headers: dict[str, str]


def normalize_mime_type(mime_type: str | None) -> str:
    """Return a media type in lower case without parameters; application/octet-stream if it is malformed."""
    media_type = (mime_type or "").partition(";")[0].strip().lower()
    return media_type if _MIME_TYPE.fullmatch(media_type) else "application/octet-stream"


def format_size_limit(limit: int) -> str:
    """Return a limit as text: "20 MB (20,000,000 bytes)"."""
    return f"{humanize.format_size(limit)} ({limit:,} bytes)"


def accept_file(name: str | None, mime_type: str | None, data: bytes) -> AttachmentPart:
    """Return a file as an attachment. Raise InvalidValue if it is empty, too large or of another type."""
    media_type = normalize_mime_type(mime_type)
    file_label = (name or "this file")[:_LONGEST_NAME]
    if not data:
        raise InvalidValue(f"{file_label!r} is empty.")
    if len(data) > MAX_FILE_SIZE:
        raise InvalidValue(
            f"A file must have at most {format_size_limit(MAX_FILE_SIZE)}, but {file_label!r} has {len(data):,} bytes."
        )
    if media_type not in ACCEPTED_TYPES and media_type.partition("/")[0] not in ("text", "audio", "video"):
        raise InvalidValue(
            f"{file_label!r} is {media_type}, which is not accepted. Use an image, text, PDF, audio or video."
        )
    if media_type in _SIGNATURES and not data.startswith(_SIGNATURES[media_type]):
        raise InvalidValue(f"{file_label!r} does not have the signature of {media_type}.")
    clean_name = None if name is None else "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)
    return AttachmentPart(
        mime_type=media_type, size=len(data), name=None if clean_name is None else clean_name[:_LONGEST_NAME],
        data=base64.b64encode(data).decode(),
    )  # fmt: skip


def list_attachments(message: Message) -> list[AttachmentPart]:
    """Return the attachments of a message in order, including those in tool results."""
    attachments: list[AttachmentPart] = []
    for part in message.parts:
        candidates: tuple[Part | Content, ...] = part.content or () if isinstance(part, ToolResultPart) else (part,)
        attachments += [item for item in candidates if isinstance(item, AttachmentPart)]
    return attachments


def serve_attachment(message: Message, number: int) -> ServedFile:
    """Return a file of a message by its index, counted from 0. Raise NotFound if it does not exist."""
    attachments = list_attachments(message)
    if not 0 <= number < len(attachments):
        raise NotFound(f"Message {message.id} has {len(attachments)} files, but no file with index {number}.")
    part = attachments[number]
    media_type = normalize_mime_type(part.mime_type)
    if media_type in IMAGE_TYPES:
        content_type, disposition = media_type, "inline"
    elif media_type in ("text/plain", "text/csv", "text/markdown"):
        content_type, disposition = "text/plain", "inline"
    else:
        content_type, disposition = "application/octet-stream", content_disposition(part.name or f"file {number}")
    headers = {
        "Content-Type": content_type,
        "Content-Disposition": disposition,
        "Content-Security-Policy": FILE_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, max-age=86400",
    }
    return ServedFile(attachment_bytes(part), headers)


def attachment_bytes(part: AttachmentPart) -> bytes:
    """Return the bytes of an attachment. Raise NotFound if it has only a URL: nothing is fetched."""
    if part.text is not None:
        return part.text.encode("utf-8", "replace")
    head, comma, rest = (part.url or "").partition(",")
    try:
        if part.data is not None:
            return base64.b64decode(part.data)
        if head.startswith("data:") and comma:
            return base64.b64decode(rest) if head.endswith(";base64") else unquote_to_bytes(rest)
    except (binascii.Error, ValueError) as error:
        raise NotFound("The stored data of this file is not valid base64.") from error
    raise NotFound("This file is not stored. The message contains only its URL.")


_IMAGE_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif",
}  # fmt: skip


class UploadLimits(NamedTuple):
    """Limits of a message: number of files, bytes per file, and bytes in total, including its text."""

    files: int
    size: int
    total: int


UPLOAD_LIMITS = UploadLimits(100, MAX_FILE_SIZE, 64_000_000)
"""The total leaves space for form headers in the 64 MiB of a request (server/app.py)."""


async def read_uploads(files: Sequence[UploadFile]) -> list[AttachmentPart]:
    """Return the uploaded files as attachments. Raise InvalidValue if there are too many or one is too large."""
    if len(files) > UPLOAD_LIMITS.files:
        raise InvalidValue(
            f"files must have at most {UPLOAD_LIMITS.files} entries, got {len(files)}. "
            "Send the others in another message."
        )
    return [
        _upload_to_part(await file.read(UPLOAD_LIMITS.size + 1), file.filename, file.content_type) for file in files
    ]


def _upload_to_part(content: bytes, name: str | None, declared_type: str | None) -> AttachmentPart:
    file_name = _clean_file_name(name)
    if len(content) > UPLOAD_LIMITS.size:
        raise InvalidValue(
            f"{file_name} is too large. A file must have at most {format_size_limit(UPLOAD_LIMITS.size)}."
        )
    media_type = _detect_mime_type(content, file_name, declared_type)
    return AttachmentPart(
        mime_type=media_type, name=file_name, size=len(content), data=base64.b64encode(content).decode(),
    )  # fmt: skip


def _clean_file_name(name: str | None) -> str:
    """Return a file name without folders and non-printable characters."""
    base_name = (name or "").replace("\\", "/").rpartition("/")[2]
    printable = "".join(c for c in unicodedata.normalize("NFC", base_name) if c.isprintable())
    return printable.strip()[:_LONGEST_NAME] or "file"


def _detect_mime_type(content: bytes, name: str, declared_type: str | None) -> str:
    """Return the media type of a file: of an image by its signature, otherwise by its name."""
    for signature, image_type in _IMAGE_SIGNATURES.items():
        if content.startswith(signature):
            return image_type
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    media_type = mimetypes.guess_type(name)[0] or (declared_type or "").partition(";")[0].strip().lower()
    if not media_type or (media_type.startswith("image/") and media_type != "image/svg+xml"):
        return "text/plain" if _is_text(content) else "application/octet-stream"
    return media_type


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


_MAX_HEIGHT = 320
"""CSS pixels: the `max-height` of an image in conversation.css."""
_MAX_SIDE = 1 << 16  # pixels. A larger side is a damaged header.
_MAX_READ = 96 << 10  # characters of base64. JPEG stores its size after the metadata, whose segments have up to 64 KiB.
_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE_MARKERS = frozenset((0x01, *range(0xD0, 0xD9)))
_MARKER, _START_OF_SCAN, _EXIF = 0xFF, 0xDA, 0xE1
_ORIENTATION = 0x0112  # the Exif tag
_UPRIGHT = 1  # its value for an image that is not rotated


class ImageDimensions(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int

    def fit_to_page(self) -> ImageDimensions:
        """Return the size at which the page shows it: at most _MAX_HEIGHT tall."""
        if self.height <= _MAX_HEIGHT:
            return self
        return ImageDimensions(max(round(self.width * _MAX_HEIGHT / self.height), 1), _MAX_HEIGHT)


def read_image_dimensions(data: str) -> ImageDimensions | None:
    """Return the pixel size of an image in base64, or None if it is not in the first bytes."""
    try:
        start = base64.b64decode(data[:_MAX_READ] if len(data) > _MAX_READ else data)
    except (binascii.Error, ValueError):
        return None
    try:
        dimensions = _parse_dimensions(start)
    except (struct.error, IndexError):  # the data ends too early
        return None
    return dimensions if dimensions is not None and all(0 < side < _MAX_SIDE for side in dimensions) else None


def _parse_dimensions(start: bytes) -> ImageDimensions | None:
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return ImageDimensions(*struct.unpack_from(">II", start, 16))
    if start.startswith((b"GIF87a", b"GIF89a")):
        return ImageDimensions(*struct.unpack_from("<HH", start, 6))
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return _webp_dimensions(start)
    return _jpeg_dimensions(start) if start.startswith(b"\xff\xd8\xff") else None


def _webp_dimensions(start: bytes) -> ImageDimensions | None:
    """Read the size from the first chunk: extended, lossless or lossy (RFC 9649)."""
    match start[12:16]:
        case b"VP8X":
            low, high, *tall = struct.unpack_from("<HBHB", start, 24)  # three bytes each, minus one
            return ImageDimensions(1 + (low | high << 16), 1 + (tall[0] | tall[1] << 16))
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", start, 21)
            return ImageDimensions(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", start, 26)
            return ImageDimensions(width & 0x3FFF, height & 0x3FFF)
        case _:
            return None


def _jpeg_dimensions(start: bytes) -> ImageDimensions | None:
    """Read the size from its segment. Return None for an image that is shown rotated."""
    offset = 2
    while start[offset] == _MARKER:
        marker = start[offset + 1]
        if marker == _MARKER:  # padding
            offset += 1
            continue
        if marker in _BARE_MARKERS:
            offset += 2
            continue
        (length,) = struct.unpack_from(">H", start, offset + 2)
        if marker == _EXIF and _is_rotated(start[offset + 4 : offset + 2 + length]):
            return None
        if marker in _SIZE_MARKERS:
            height, width = struct.unpack_from(">HH", start, offset + 5)
            return ImageDimensions(width, height)
        if marker == _START_OF_SCAN or length < 2:  # noqa: PLR2004  the length counts itself
            return None
        offset += 2 + length
    return None


def _is_rotated(segment: bytes) -> bool:
    """Return whether Exif data requests another orientation than the stored one."""
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
