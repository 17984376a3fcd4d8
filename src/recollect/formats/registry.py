"""The formats by name: reads and writes messages with the module of the format."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from recollect.errors import InvalidValue, UnknownFormat, format_value
from recollect.formats import anthropic, common, openai_chat, recollect_format
from recollect.formats.detection import FORMATS, RESERVED_NAMES, detect_format, has_response_items
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import has_remainder, is_dict, is_list, without_remainder
from recollect.model.json import to_json_data
from recollect.model.message import Draft, Message, check_draft


class FormatModule(Protocol):
    """The interface of a format's module."""

    @property
    def NAME(self) -> str:  # noqa: N802
        """The name of the format."""
        ...

    @property
    def RULES(self) -> ProviderRules | None:  # noqa: N802
        """The rules of the provider; None if no provider reads the format."""
        ...

    def read(self, message: dict[str, Any]) -> list[Draft]:
        """Read a message, or a complete response, of this format."""
        ...

    def write(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Write messages in this format."""
        ...

    def response(self, message: Draft | Message, /) -> dict[str, Any] | None:
        """Rebuild the complete response that contained a message."""
        ...


_MODULES: dict[str, str] = {
    "anthropic": "anthropic",
    "openai": "openai_chat",
    "openai-responses": "openai_responses",
    "ai-sdk": "ai_sdk",
    "ai-sdk-ui": "ai_sdk_ui",
    "recollect": "recollect_format",
}
"""The module of each format, which is imported on first use."""

_loaded_modules: dict[str, FormatModule] = {
    anthropic.NAME: anthropic,
    openai_chat.NAME: openai_chat,
    recollect_format.NAME: recollect_format,
}
_ITEMS = "openai-responses"
_SAME_TEXT_SHAPE = frozenset({anthropic.NAME, openai_chat.NAME, _ITEMS, "ai-sdk"})
"""The formats in which a role with a string has no remainder."""

PROVIDERS = tuple([name for name in FORMATS if name != recollect_format.NAME])
"""The formats that a provider reads: all except Recollect's own."""

_SDK_FIELDS = frozenset({"parsed", "parsed_arguments"})
_NESTED_FIELDS = frozenset({"choices", "message", "tool_calls", "function", "output", "content"})


def read(messages: Any, format: str | None = None) -> list[Draft]:
    """Read one or more messages: dicts, objects of the official SDKs, complete responses, drafts or messages."""
    module = None if format is None else _format_module(format)
    if type(messages) is dict or not _is_many(messages):
        return _read_one(messages, module)
    drafts: list[Draft] = []
    item_count = 0  # drafts at the end that are items, to be merged into messages
    for index, message in enumerate(_to_list(messages)):
        try:
            new_drafts = _read_one(message, module)
        except InvalidValue as error:
            if not _is_unknown_item(error, messages):
                raise type(error)(f"messages[{index}]: {error}", **error.fields) from error
            new_drafts = _read_one(message, _format_module(_ITEMS))
        drafts += new_drafts
        if new_drafts[0].format == _ITEMS and _is_item(message):
            item_count += 1
        elif item_count:
            _merge_items(drafts, item_count, len(new_drafts))
            item_count = 0
    if item_count > 1:
        _merge_items(drafts, item_count, 0)
    return drafts


def _is_unknown_item(error: InvalidValue, messages: Any) -> bool:
    """Return whether reading failed for an unknown type in a list that contains other Responses API items."""
    return "type" in error.fields and isinstance(messages, (list, tuple)) and has_response_items(messages)


def _is_item(message: Any) -> bool:
    return not isinstance(message, (Draft, Message)) and not (isinstance(message, Mapping) and "parts" in message)


def _merge_items(drafts: list[Draft], item_count: int, after: int) -> None:
    """Merge the items before the last `after` drafts into messages."""
    from recollect.formats import openai_responses  # noqa: PLC0415  already loaded, since it read these items

    end = len(drafts) - after
    drafts[end - item_count : end] = openai_responses.merge_items(drafts[end - item_count : end])


def write(messages: Sequence[Message], format: str) -> list[dict[str, Any]]:
    """Write messages in this format."""
    return _format_module(format).write(messages)


M = TypeVar("M", bound=Draft | Message)


def without_contradicting_remainder(message: M) -> M:
    """Return a message as it may be sent, without its remainder if that contradicts its common fields."""
    name = message.format
    if name not in PROVIDERS:
        has_stray_fields = (
            message.native is not None and "fields" in message.native
        )  # no reader of other formats stores fields
        return msgspec.structs.replace(message, native=None) if has_stray_fields else message
    if not has_remainder(message.parts, message.native):
        return message
    if put_function(name)([], message.role, name, message.parts, message.native):
        return message
    return msgspec.structs.replace(
        message, format=None, native=None, parts=tuple([without_remainder(part) for part in message.parts])
    )


def load_rules(format: str) -> ProviderRules:
    """Return the rules of the provider of this format."""
    rules = _format_module(format).RULES
    assert rules is not None, format
    return rules


def put_function(format: str) -> common.PutMessage:
    """Return the function that writes single messages of this provider's format, or without a format."""
    module: Any = _format_module(format)
    return module.put


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Rebuild the complete response that contained a message, unchanged; None if there was none."""
    name = message.format
    if name not in PROVIDERS or without_contradicting_remainder(message) is not message:
        return None
    return _format_module(name).response(message)


def load_all() -> None:
    """Load every format."""
    for name in _MODULES:
        _format_module(name)


def _format_module(format: str | None) -> FormatModule:
    if isinstance(format, str):
        format = str.__str__(format)  # a subclass may override comparison
    module = _loaded_modules.get(format) if isinstance(format, str) else None
    if module is not None:
        return module
    if isinstance(format, str) and format in _MODULES:
        loaded_module: Any = importlib.import_module(f"recollect.formats.{_MODULES[format]}")
        _loaded_modules[format] = loaded_module
        return loaded_module
    if isinstance(format, str) and format in RESERVED_NAMES:
        reason = f"The format {format_value(format)} is reserved for a later version. Use one of: {', '.join(FORMATS)}."
        raise UnknownFormat(reason, format=format, known=FORMATS)
    raise UnknownFormat(format=format, known=FORMATS)


def _is_many(messages: Any) -> bool:
    if isinstance(messages, (list, tuple)):
        return True
    # A pydantic object is iterable, over its fields, but it is one message.
    try:
        if isinstance(messages, (str, bytes, Mapping)) or hasattr(messages, "model_dump"):
            return False
    except Exception as error:  # raised by code of the object
        raise InvalidValue(
            f"A message must be readable, but {format_value(messages)} raised {type(error).__name__}."
        ) from error
    return isinstance(messages, Iterable)


def _to_list(messages: Any) -> Any:
    """Return several messages as a list. An iterator of the caller may raise any error."""
    if isinstance(messages, (list, tuple)):
        return messages
    try:
        return list(messages)
    except Exception as error:
        raise InvalidValue(
            f"Messages must be iterable, but {format_value(messages)} raised {type(error).__name__}."
        ) from error


def _read_one(value: Any, module: FormatModule | None) -> list[Draft]:
    if is_dict(value) and (draft := _read_fast(value, module)) is not None:
        return [draft]
    if isinstance(value, Draft):
        return [check_draft(value)]
    if isinstance(value, Message):
        return [check_draft(_to_draft(value))]
    if isinstance(value, str):
        raise InvalidValue('A message must have a role, got a str. Write {"role": "user", "content": ...}.')
    message = to_json_data(value)
    if type(value).__module__.startswith("openai."):
        message = _without_sdk_fields(message)
    if not is_dict(message):
        raise InvalidValue(
            f"A message must be a dict or an object of a provider's SDK, got {type(value).__name__}. Write "
            '{"role": "user", "content": ...}.'
        )
    if module is not None:
        return module.read(message)
    detected_name = detect_format(message)
    return common.read_common(message) if detected_name is None else _format_module(detected_name).read(message)


def _without_sdk_fields(message: Any) -> Any:
    """Remove the fields that OpenAI's SDK adds to its objects: the API did not send them and would reject them."""
    if is_list(message):
        return [_without_sdk_fields(item) for item in message]
    if not is_dict(message):
        return message
    return {
        name: _without_sdk_fields(item) if name in _NESTED_FIELDS else item
        for name, item in message.items()
        if name not in _SDK_FIELDS
    }


def _read_fast(message: dict[str, Any], module: FormatModule | None) -> Draft | None:
    """Read a message of one of the most common shapes without detecting its format; None if it has another shape."""
    draft = None
    if module is None or module.NAME in _SAME_TEXT_SHAPE:
        draft = common.read_fast(message, None if module is None else module.NAME)
    if draft is None and module in (None, openai_chat):
        draft = openai_chat.read_fast(message)
    if draft is None and module in (None, anthropic):
        draft = anthropic.read_fast(message)
    return draft


def _to_draft(message: Message) -> Draft:
    """Return a stored message as a draft, without its position."""
    return Draft(**{name: getattr(message, name) for name in Draft.__struct_fields__})
