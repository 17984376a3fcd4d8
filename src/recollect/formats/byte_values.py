"""Bytes in the messages of SDKs that use them, such as the data of an image.

JSON has no bytes. A format whose messages contain them stores each as {"$bytes": base64}, and writes bytes again. In
JSON, for example over HTTP, they are base64 text in both directions, as in the provider's own API.
"""

from __future__ import annotations

import base64
from typing import Any

from recollect.errors import InvalidValue
from recollect.formats.remainder import is_dict, is_list
from recollect.model.json import to_json_data

BYTES = "$bytes"


def to_tagged_json(value: Any) -> Any:
    """Return a message as JSON data in which each bytes value is tagged."""
    try:
        data = to_json_data(value, "message")
    except InvalidValue as error:
        try:
            data = _tag(value)
        except RecursionError:  # nested too deeply: the first error names it
            raise error from None
        return to_json_data(data, "message")
    return _tag(data)


def from_tagged_json(value: Any) -> Any:
    """Return a message with its bytes, the inverse of to_tagged_json()."""
    if is_dict(value):
        if len(value) == 1 and BYTES in value:
            content = value[BYTES]
            if type(content) is str:
                return base64.b64decode(content)
            value = content if is_dict(content) else value  # a dict of the caller, which _tag() wrapped
        fields: dict[str, Any] = {}
        for name, item in value.items():  # a loop, because a comprehension adds a second frame per nesting level
            fields[name] = from_tagged_json(item)
        return fields
    return list(map(from_tagged_json, value)) if is_list(value) else value


def tag_base64(text: str) -> dict[str, str] | None:
    """Return base64 text as a tagged value; None if encoding its bytes again would not yield exactly this text."""
    try:
        payload = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return {BYTES: text} if base64.b64encode(payload).decode() == text else None


def _tag(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: base64.b64encode(value).decode()}
    if type(value) is dict:
        fields: dict[Any, Any] = {}
        for name, item in value.items():
            fields[name] = _tag(item)
        # A dict of the caller that looks like a tag is wrapped, so that it cannot be mistaken for one.
        return {BYTES: fields} if len(fields) == 1 and BYTES in fields else fields
    return list(map(_tag, value)) if type(value) is list or type(value) is tuple else value
