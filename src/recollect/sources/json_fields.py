"""Fields of JSON data whose types nobody guarantees: each function returns a default for a value of another type."""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from recollect.errors import InvalidValue
from recollect.model.json import escape_surrogates
from recollect.model.message import Draft, check_draft
from recollect.model.times import parse_time
from recollect.sources.source import MessageFound, Note, SourceEvent

MAX_TIME = 1 << 52  # milliseconds; the latest time that a store accepts
_MAX_COUNT = 1 << 53  # tokens; the largest value of Draft.tokens
_MAX_QUESTION = 120  # characters of a question that becomes a title
_MAX_TITLE = 500  # characters of a title of the tool
_MAX_ID = 400  # characters; a session id has at most 512, and a source's name precedes it
_MAX_KEY_BYTES = 1_000  # a store accepts 1,024; readers add suffixes
_MAX_FIELD = 4_096  # characters of a field of a session, such as a folder
_LARGEST_SECONDS = 100_000_000_000  # a larger number is milliseconds: as seconds, it would be in the year 5138
_ISO_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?\s*(?:([+-])(\d\d):?(\d\d)?)?")


def as_text(value: Any) -> str | None:
    """Return a non-empty text; None for anything else."""
    return value if type(value) is str and value else None


def as_dict(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if type(value) is dict else {}


def as_list(value: Any) -> list[Any]:
    """Return an array; an empty one for anything else."""
    return value if type(value) is list else []


def as_flag(value: Any) -> bool | None:
    """Return a boolean; None for anything else."""
    return value if type(value) is bool else None


def as_count(value: Any) -> int | None:
    """Return a number of tokens or bytes; None for anything else."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_TIME else None


def pick(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return those of the named fields that have a value: not None, False, or empty."""
    return {name: fields[name] for name in names if fields.get(name) not in (None, False, "", [], {})}


def dict_in(value: Any, *path: str) -> dict[str, Any]:
    """Return the object at a path; an empty one if there is none."""
    for name in path:
        value = value.get(name) if type(value) is dict else None
    return value if type(value) is dict else {}


def list_in(value: Any, name: str) -> list[Any]:
    """Return the list in a field; an empty one if there is none."""
    items = value.get(name) if type(value) is dict else None
    return items if type(items) is list else []


def text_in(value: Any, *names: str) -> str | None:
    """Return the first field that is a text with a letter in it; None if there is none."""
    if type(value) is dict:
        for name in names:
            text = value.get(name)
            if type(text) is str and text.strip():
                return text
    return None


def count_in(value: Any, *names: str) -> int | None:
    """Return the first field that is a number of tokens; None if there is none."""
    if type(value) is dict:
        for name in names:
            count = value.get(name)
            if type(count) is int and 0 <= count <= _MAX_COUNT:
                return count
    return None


def time_in(value: Any, *names: str) -> int | None:
    """Return the first field that is a time, in milliseconds: ISO 8601, or a number of seconds or milliseconds."""
    if type(value) is dict:
        for name in names:
            time = read_time(value.get(name))
            if time is not None:
                return time
    return None


def read_time(value: Any) -> int | None:
    """Return a time in milliseconds: ISO 8601, or a number of seconds or milliseconds. None if it is not a time."""
    if type(value) is str:
        try:
            return parse_time(value)
        except InvalidValue:
            return None
    if type(value) is float and not math.isfinite(value):
        return None
    if type(value) is not int and type(value) is not float:
        return None
    milliseconds = value * 1000 if value < _LARGEST_SECONDS else value
    return int(milliseconds) if 0 < milliseconds <= MAX_TIME else None


def from_milliseconds(value: Any) -> int | None:
    """Return a time in milliseconds; None for anything that is not one."""
    if type(value) is float and math.isfinite(value):
        value = int(value)
    return value if type(value) is int and 0 < value <= MAX_TIME else None


def from_seconds(value: Any) -> int | None:
    """Return a time in seconds, a number or its text, or an ISO 8601 time, as milliseconds."""
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            return from_iso(value)
    if type(value) not in (int, float) or not 0 < value < _LARGEST_SECONDS:
        return None
    return from_milliseconds(round(value * 1000))


def from_iso(value: Any) -> int | None:
    """Return an ISO 8601 time as milliseconds. A time without an offset is UTC; characters after it are ignored."""
    match = _ISO_TIME.match(value) if type(value) is str else None
    if match is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
    except ValueError:
        return None
    milliseconds = int(time.timestamp()) * 1000 + int((match[3] or "").ljust(3, "0")[:3])
    if match[4]:
        offset = (int(match[5]) * 60 + int(match[6] or 0)) * 60_000
        milliseconds += -offset if match[4] == "+" else offset
    return from_milliseconds(milliseconds)


def title_of(text: str) -> str | None:
    """Return the first line of a question as a title; None if it is blank."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = escape_surrogates(line[: _MAX_QUESTION + 1])
    return f"{line[: _MAX_QUESTION - 1].rstrip()}…" if len(line) > _MAX_QUESTION else line or None


def column_text(value: Any, limit: int = _MAX_FIELD) -> str | None:
    """Return a text for a field of a session, without lone surrogates and not longer than a limit in characters."""
    text = as_text(value)
    return None if text is None else escape_surrogates(text[:limit])[:limit] or None


def title_text(value: Any) -> str | None:
    """Return a title as one line; None if it is blank."""
    text = as_text(value)
    return None if text is None else column_text(" ".join(text[: _MAX_TITLE * 4].split()), _MAX_TITLE)


def field_in(value: Any, *names: str) -> str | None:
    """Return the first field that is a text, as a field of a session holds it: not too long, without surrogates."""
    return column_text(text_in(value, *names))


def session_id(source: str, tool_id: str) -> str:
    """Return the session id of a conversation; a tool's id that no session can have is replaced by its hash."""
    if len(tool_id) > _MAX_ID or not tool_id.isprintable() or not tool_id.strip():
        return f"{source}:{short_hash(tool_id)}"
    return f"{source}:{tool_id}"


def message_key(tool_id: str) -> str:
    """Return the key of a message; an id that is too long, or no valid text, is replaced by its hash."""
    try:
        is_valid = 0 < len(tool_id.encode()) <= _MAX_KEY_BYTES
    except UnicodeEncodeError:
        is_valid = False
    return tool_id if is_valid else short_hash(tool_id)


def short_hash(text: str) -> str:
    """Return a hash of any text, also one with lone surrogates."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def message_events(session: str, draft: Draft, parent: str | None, place: str) -> list[SourceEvent]:
    """Return the event of a message. If no store can hold the message, its content is dropped and a Note reports it."""
    try:
        return [MessageFound(session, check_draft(draft), parent)]
    except InvalidValue:
        note = Note("malformed", place, "A message has content that no message can hold.")
        replacement = Draft(role=draft.role, key=draft.key, created_at=draft.created_at)
        return [note, MessageFound(session, replacement, parent)]


def kind_name(value: Any) -> str:
    """Return the name of a record type for a Note: a short text for any value."""
    return escape_surrogates(value[:60]) if type(value) is str else type(value).__name__


def read_or_none(read: Callable[[Any], Any], value: Any) -> Any:
    """Return the result of a reader of a format; None if it refuses the value."""
    try:
        return read(value)
    except (InvalidValue, RecursionError):
        return None
