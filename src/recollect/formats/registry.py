"""The formats by their names, and which of them a message is in: each is read and written by its own file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from recollect.errors import InvalidValue, UnknownFormat, displayed
from recollect.formats import anthropic, neutral, openai, plain
from recollect.formats.guess import FORMATS, RESERVED, has_items
from recollect.formats.guess import guess as guess_format
from recollect.formats.native import bare, has_remainder, is_dict, is_list
from recollect.model.json import exact
from recollect.model.message import Draft, Message, checked


class Format(Protocol):
    """What the file of a format offers."""

    @property
    def NAME(self) -> str:  # noqa: N802
        """What it is called."""
        ...

    def read(self, message: dict[str, Any]) -> list[Draft]:
        """Read a message, or a whole response, of this format."""
        ...

    def write(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Write messages as this format has them."""
        ...

    def response(self, message: Draft | Message, /) -> dict[str, Any] | None:
        """Rebuild the whole response that a message came in."""
        ...


_FORMATS: dict[str, Format] = {anthropic.NAME: anthropic, openai.NAME: openai, plain.NAME: plain}
_ITEMS = "openai-responses"
_ALIKE = frozenset({anthropic.NAME, openai.NAME, _ITEMS, "ai-sdk"})
"""Where a role with a string is just that, and nothing is to be kept beside it."""

_PROVIDERS = frozenset(FORMATS) - {plain.NAME}
_ADDED = frozenset({"parsed", "parsed_arguments"})
_NESTED = frozenset({"choices", "message", "tool_calls", "function", "output", "content"})
# Loaded when they are used.
_LATER = {_ITEMS: "openai_responses", "ai-sdk": "ai_sdk", "ai-sdk-ui": "ai_sdk_ui"}


def read(messages: Any, format: str | None = None) -> list[Draft]:
    """Read one message or many: dicts, objects of the official SDKs, whole responses, or our own values."""
    given = None if format is None else _named(format)
    if type(messages) is dict or not _is_many(messages):
        return _read_one(messages, given)
    drafts: list[Draft] = []
    items = 0  # how many drafts at the end are items, which are gathered into messages
    for index, message in enumerate(_listed(messages)):
        try:
            found = _read_one(message, given)
        except InvalidValue as error:
            if not _unknown_item(error, messages):
                raise type(error)(f"messages[{index}]: {error}", **error.fields) from error
            found = _read_one(message, _named(_ITEMS))
        drafts += found
        if found[0].format == _ITEMS and _is_item(message):
            items += 1
        elif items:
            _gather(drafts, items, len(found))
            items = 0
    if items > 1:
        _gather(drafts, items, 0)
    return drafts


def _unknown_item(error: InvalidValue, messages: Any) -> bool:
    """Whether it failed for a type that is not known here, of an item: others in the list clearly are."""
    return "type" in error.fields and isinstance(messages, (list, tuple)) and has_items(messages)


def _is_item(message: Any) -> bool:
    return not isinstance(message, (Draft, Message)) and not (isinstance(message, Mapping) and "parts" in message)


def _gather(drafts: list[Draft], items: int, after: int) -> None:
    """Make messages of the items that stand before the last `after` drafts."""
    from recollect.formats import openai_responses  # noqa: PLC0415  loaded, as these came from it

    end = len(drafts) - after
    drafts[end - items : end] = openai_responses.gather(drafts[end - items : end])


def write(messages: Sequence[Message], format: str) -> list[dict[str, Any]]:
    """Write messages as this format has them."""
    return _named(format).write(messages)


M = TypeVar("M", bound=Draft | Message)


def faithful(message: M) -> M:
    """Return a message as it may be sent on: without its remainder, if that contradicts its common fields."""
    name = message.format
    if name not in _PROVIDERS:
        stray = message.native is not None and "fields" in message.native  # no reader of these notes any
        return msgspec.structs.replace(message, native=None) if stray else message
    if not has_remainder(message.parts, message.native):
        return message
    if putter(name)([], message.role, name, message.parts, message.native):
        return message
    return msgspec.structs.replace(message, format=None, native=None, parts=tuple([bare(p) for p in message.parts]))


def putter(format: str) -> neutral.Put:
    """Give what writes single messages that came in this provider's format, or in none."""
    module: Any = _named(format)
    return module.put


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the provider's whole response that a message came in, equal to what came; None if it came alone."""
    name = message.format
    if name not in _PROVIDERS or faithful(message) is not message:
        return None
    return _named(name).response(message)


def load_all() -> None:
    """Load every format."""
    for name in _LATER:
        _named(name)


def _named(format: str | None) -> Format:
    if isinstance(format, str):
        format = str.__str__(format)  # a subclass may compare in a way of its own
    module = _FORMATS.get(format) if isinstance(format, str) else None
    if module is not None:
        return module
    if isinstance(format, str) and format in _LATER:
        found: Any = importlib.import_module(f"recollect.formats.{_LATER[format]}")
        _FORMATS[format] = found
        return found
    if isinstance(format, str) and format in RESERVED:
        told = f"The name {displayed(format)} is reserved for a later version. The formats are: {', '.join(FORMATS)}."
        raise UnknownFormat(told, format=format, known=FORMATS)
    raise UnknownFormat(format=format, known=FORMATS)


def _is_many(messages: Any) -> bool:
    if isinstance(messages, (list, tuple)):
        return True
    # A pydantic object can be iterated, over its fields: it is one message all the same.
    try:
        if isinstance(messages, (str, bytes, Mapping)) or hasattr(messages, "model_dump"):
            return False
    except Exception as error:  # of the object's own code
        raise InvalidValue(f"{displayed(messages)} is no message: it raised {type(error).__name__}.") from error
    return isinstance(messages, Iterable)


def _listed(messages: Any) -> Any:
    """Return several messages as a list; what an iterator of somebody's raises says nothing about messages."""
    if isinstance(messages, (list, tuple)):
        return messages
    try:
        return list(messages)
    except Exception as error:
        raise InvalidValue(f"{displayed(messages)} gives no messages: it raised {type(error).__name__}.") from error


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
    if type(value).__module__.startswith("openai."):
        message = _as_sent(message)
    if not is_dict(message):
        raise InvalidValue(
            f"A message is a dict or an object of a provider's SDK, not of type {type(value).__name__}. Write "
            '{"role": "user", "content": ...}.'
        )
    if given is not None:
        return given.read(message)
    guessed = guess_format(message)
    return neutral.read(message) if guessed is None else _named(guessed).read(message)


def _as_sent(message: Any) -> Any:
    """Leave out what OpenAI's SDK adds to the objects it gives: the API did not send it and would refuse it."""
    if is_list(message):
        return [_as_sent(item) for item in message]
    if not is_dict(message):
        return message
    return {name: _as_sent(item) if name in _NESTED else item for name, item in message.items() if name not in _ADDED}


def _read_at_once(message: dict[str, Any], given: Format | None) -> Draft | None:
    """Read the most common messages by far without looking at them more closely."""
    draft = None
    if given is None or given.NAME in _ALIKE:
        draft = neutral.read_at_once(message, None if given is None else given.NAME)
    if draft is None and given in (None, openai):
        draft = openai.read_at_once(message)
    if draft is None and given in (None, anthropic):
        draft = anthropic.read_at_once(message)
    return draft


def _draft(message: Message) -> Draft:
    """Take a stored message out of its place."""
    return Draft(**{name: getattr(message, name) for name in Draft.__struct_fields__})
