"""Messages as providers write them, in and out of the model.

One file per format, each with read(), write() and response(); pure functions that import no SDK and know no database.
What came in one format goes out equal in that format, whatever it holds, and is translated into the others.

    native.py    what is kept beside our fields, and how it is put back
    neutral.py   what means the same in every format
    guess.py     which format a message is in
    anthropic.py, openai.py, plain.py ("recollect")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from recollect.errors import InvalidValue, UnknownFormat
from recollect.formats import anthropic, neutral, openai, plain
from recollect.formats.guess import FORMATS
from recollect.formats.guess import guess as guess_format
from recollect.formats.native import is_dict
from recollect.model.json import exact
from recollect.model.message import Draft, Message, checked

__all__ = ["FORMATS", "read", "response", "write"]


class Format(Protocol):
    """What the file of a format offers."""

    def read(self, message: dict[str, Any]) -> list[Draft]: ...
    def write(self, messages: Sequence[Message]) -> list[dict[str, Any]]: ...
    def response(self, message: Draft | Message, /) -> dict[str, Any] | None: ...


_FORMATS: dict[str, Format] = {anthropic.NAME: anthropic, openai.NAME: openai, plain.NAME: plain}


def read(messages: Any, format: str | None = None) -> list[Draft]:
    """Read one message or many: dicts, objects of the official SDKs, whole responses, or our own values."""
    given = None if format is None else _named(format)
    if not _is_many(messages):
        return _read_one(messages, given)
    drafts: list[Draft] = []
    for index, message in enumerate(messages):
        try:
            drafts += _read_one(message, given)
        except InvalidValue as error:
            raise type(error)(f"messages[{index}]: {error}", **error.fields) from error
    return drafts


def write(messages: Sequence[Message], format: str) -> list[dict[str, Any]]:
    """Write messages as this format has them."""
    return _named(format).write(messages)


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the provider's whole response that a message came in, equal to what came; None if it came alone."""
    module = _FORMATS.get(message.format or "")
    return None if module is None else module.response(message)


def _named(format: str) -> Format:
    module = _FORMATS.get(format) if isinstance(format, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if module is None:
        raise UnknownFormat(format=format, known=", ".join(FORMATS))
    return module


def _is_many(messages: Any) -> bool:
    if isinstance(messages, (list, tuple)):
        return True
    # A pydantic object can be iterated, over its fields: it is one message all the same.
    if isinstance(messages, (str, bytes, Mapping)) or hasattr(messages, "model_dump"):
        return False
    return isinstance(messages, Iterable)


def _read_one(value: Any, given: Format | None) -> list[Draft]:
    if is_dict(value) and (draft := _read_at_once(value, given)) is not None:
        return [draft]
    if isinstance(value, Draft):
        return [checked(value)]
    if isinstance(value, Message):
        return [checked(_draft(value))]
    if isinstance(value, str):
        raise InvalidValue('A text alone does not say who speaks. Write {"role": "user", "content": ...}.')
    message = exact(value)
    if not is_dict(message):
        raise InvalidValue(
            f"A message is a dict or an object of a provider's SDK, not of type {type(value).__name__}. Write "
            '{"role": "user", "content": ...}.'
        )
    if given is not None:
        return given.read(message)
    guessed = guess_format(message)
    return neutral.read(message) if guessed is None else _FORMATS[guessed].read(message)


def _read_at_once(message: dict[str, Any], given: Format | None) -> Draft | None:
    """Read the most common messages by far without looking at them more closely."""
    draft = None
    if given is None:
        draft = neutral.read_at_once(message)
    if draft is None and given in (None, openai):
        draft = openai.read_at_once(message)
    if draft is None and given in (None, anthropic):
        draft = anthropic.read_at_once(message)
    return draft


def _draft(message: Message) -> Draft:
    """Take a stored message out of its place."""
    return Draft(**{name: getattr(message, name) for name in Draft.__struct_fields__})
