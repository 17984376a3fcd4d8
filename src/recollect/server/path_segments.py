"""Session ids and other texts as one segment of a URL's path, percent-encoded as a whole, including slashes.

The routes see a path whose percent-encoding was removed, and split it at slashes, so an encoded slash is replaced until
a handler decodes the segment. A browser resolves the segments `.` and `..`, also percent-encoded, so the ids `.` and
`..` are written `~.` and `~..`; an id that looks like one of these gets one more tilde.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote_to_bytes

_MARK = "\ue000"  # a character for private use. `\ue000s` is an encoded slash, `\ue000m` the character itself.
_DOTS = re.compile(r"~*\.{1,2}")


def encode_path_segment(text: str) -> str:
    """Return a text as a path segment."""
    return quote(f"~{text}" if _DOTS.fullmatch(text) else text, safe="")


def decode_path_segment(value: str) -> str:
    """Return the text of a path segment, as a handler receives it."""
    if _MARK in value:
        value = value.replace(f"{_MARK}s", "/").replace(f"{_MARK}m", _MARK)
    return value[1:] if value.startswith("~") and _DOTS.fullmatch(value) else value


def preserve_escaped_slashes(scope: Any) -> None:
    """Replace the encoded slashes in the path of a request, which routes would take for separators."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" in raw.lower() or _MARK in scope["path"]:
        segments = (unquote_to_bytes(segment).decode("utf-8", "replace") for segment in raw.split(b"/"))
        scope["path"] = "/".join(text.replace(_MARK, f"{_MARK}m").replace("/", f"{_MARK}s") for text in segments)
