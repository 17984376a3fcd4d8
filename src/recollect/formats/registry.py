"""The formats by name: reads and writes messages with the module of the format.

A format is built in, or another distribution registers it as an entry point of the group `recollect.formats`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from recollect.errors import InvalidValue, UnknownFormat, format_value
from recollect.formats import anthropic, common, openai_chat, recollect_format
from recollect.formats.boundaries import BoundaryTest, every_message, no_message
from recollect.formats.byte_values import to_tagged_json
from recollect.formats.detection import FORMATS, detect_format, has_response_items
from recollect.formats.provider_rules import ProviderRules
from recollect.formats.remainder import has_remainder, is_dict, is_list, without_remainder
from recollect.model import validation
from recollect.model.json import copy_json_data, decode_as, encode, to_json_data
from recollect.model.message import Draft, Format, Message, Messages, check_draft


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
    "pydantic-ai": "pydantic_ai",
    "langchain": "langchain",
    "ag-ui": "ag_ui",
    "gemini": "gemini",
    "bedrock": "bedrock",
    "ollama": "ollama",
    "mistral": "mistral",
    "recollect": "recollect_format",
}
"""The module of each format, which is imported on first use."""

_loaded_modules: dict[str, FormatModule] = {
    anthropic.NAME: anthropic,
    openai_chat.NAME: openai_chat,
    recollect_format.NAME: recollect_format,
}
_ITEMS = "openai-responses"
_SAME_TEXT_SHAPE = frozenset({anthropic.NAME, openai_chat.NAME, _ITEMS, "ai-sdk", "ollama", "mistral"})
"""The formats in which a role with a string has no remainder."""

PROVIDERS = tuple([name for name in FORMATS if name != recollect_format.NAME])
"""The built-in formats that a provider reads: all except Recollect's own."""

GROUP = "recollect.formats"
"""The group of the entry points of formats."""

_DRAFT_FIELDS = tuple([name for name in Draft.__struct_fields__ if name in Message.__struct_fields__])
_INTERFACE = ("NAME", "RULES", "read", "write", "response")
_PUT = "put"  # part of the interface of a format that a provider reads

_OBJECT_FORMATS: dict[str, str] = {
    "pydantic_ai": "pydantic-ai",
    "langchain_core": "langchain",
    "ag_ui": "ag-ui",
}
"""The formats that convert objects themselves with dump(), by the package of the objects."""

_SDK_FIELDS = frozenset({"parsed", "parsed_arguments"})
_NESTED_FIELDS = frozenset({"choices", "message", "tool_calls", "function", "output", "content"})


def parse(messages: Messages, format: Format | None = None) -> list[Draft]:
    """Return the drafts that `append()` stores for these messages: one [Draft] for each stored message.

    It needs no store. The drafts share no data with the messages.

    - `messages`: the messages, as in `append()`.
    - `format`: their format, as in `append()`.

    Use it to store data of your own together with a message of any format, or to append the items of an answer as one
    message each, which `append()` joins if they are in one list:

    ```python
    from recollect import formats

    items = store.session("cli:items")
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
    drafts = [draft for item in (reasoning, call) for draft in formats.parse(item, "openai-responses")]
    items.append([draft.replace(metadata={"item": number}) for number, draft in enumerate(drafts)])
    [message.metadata for message in items.messages()]            # -> [{'item': 0}, {'item': 1}]
    items.history("openai-responses", last=2) == [reasoning, call]    # -> True
    ```
    """
    return [decode_as(Draft, encode(draft)) for draft in read(messages, format)]


def render(messages: Draft | Message | Iterable[Draft | Message], format: Format) -> list[Any]:
    """Return messages or drafts as a list of dicts in a format, without repair.

    They are the dicts of `history(format, repair=False)` for a session that contains only these. A draft is rendered as
    if it were appended after the message before it; in the format `"recollect"`, its dict has no `id` and no other
    field that the store sets. The dicts share no data with the messages. They are typed as `Any`, so that a type
    checker accepts them where an SDK expects TypedDicts of its own.

    - `messages`: one or more.
    - `format`: the format of the dicts.

    ```python
    formats.render(items.messages()[1:], "openai")[0]["tool_calls"][0]["id"]    # -> 'call_1'
    formats.render(formats.parse({"role": "user", "content": "Hi"}), "ai-sdk")  # -> [{'role': 'user', 'content': 'Hi'}]
    ```
    """
    module = load_module(format)
    values = [messages] if isinstance(messages, (Draft, Message)) else _to_list(messages)
    drafts: dict[int, Draft] = {}
    numbered_messages: list[Message] = []
    branch, position = 1, 0
    for index, value in enumerate(values):
        if isinstance(value, Message):
            branch, position = value.branch, value.position
            numbered_messages.append(value)
        elif isinstance(value, Draft):  # pyright: ignore[reportUnnecessaryIsInstance]
            drafts[index] = check_draft(value)
            position += 1
            numbered_messages.append(_to_message(drafts[index], branch, position))
        else:
            raise InvalidValue(
                f"messages[{index}] must be a Message or a Draft, got {format_value(value)}. parse() returns drafts."
            )
    if module is not recollect_format:
        return copy_json_data(module.write(numbered_messages))
    output = [
        recollect_format.write_draft(drafts[index]) if index in drafts else recollect_format.write([message])[0]
        for index, message in enumerate(numbered_messages)
    ]
    return copy_json_data(output)


def read(messages: Any, format: str | None = None) -> list[Draft]:
    """Read one or more messages: dicts, objects of the official SDKs, complete responses, drafts or messages."""
    module = None if format is None else load_module(format)
    if type(messages) is dict or not _is_many(messages):
        return _read_one(messages, module)
    drafts: list[Draft] = []
    item_count = 0  # drafts at the end that are items, to be merged into messages
    for index, message in enumerate(_to_list(messages)):
        new_drafts = _read_element(messages, index, message, module)
        drafts += new_drafts
        if new_drafts[0].format == _ITEMS and _is_item(message):
            item_count += 1
        elif item_count:
            _merge_items(drafts, item_count, len(new_drafts))
            item_count = 0
    if item_count > 1:
        _merge_items(drafts, item_count, 0)
    return drafts


def read_with_keys(messages: Any, keys: Sequence[str | None], format: str | None = None) -> list[Draft]:
    """Read messages as one draft each, with a key or None for each. Items of one answer are not merged."""
    module = None if format is None else load_module(format)
    values: Any = _to_list(messages) if type(messages) is not dict and _is_many(messages) else [messages]
    keys = validation.check_items("keys", keys)
    if len(values) != len(keys):
        raise InvalidValue(f"keys must have a key or None for each of the {len(values)} messages, got {len(keys)}.")
    drafts: list[Draft] = []
    for index, (message, key) in enumerate(zip(values, keys, strict=True)):
        new_drafts = _read_element(values, index, message, module)
        if len(new_drafts) != 1:
            raise InvalidValue(
                f"messages[{index}] must be one message to have a key, got {len(new_drafts)} messages in one. Pass the "
                f"drafts that recollect.formats.parse() returns, each with a key."
            )
        drafts.append(new_drafts[0] if key is None else msgspec.structs.replace(new_drafts[0], key=key))
    return drafts


def _read_element(messages: Any, index: int, message: Any, module: FormatModule | None) -> list[Draft]:
    """Read one of several messages. An error names its index."""
    try:
        return _read_one(message, module)
    except InvalidValue as error:
        if not _is_unknown_item(error, messages):
            raise type(error)(f"messages[{index}]: {error}", **error.fields) from error
        return _read_one(message, load_module(_ITEMS))


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
    return load_module(format).write(messages)


def boundary_test(format: str) -> BoundaryTest:
    """Return the function that tests whether a message is a boundary of a format."""
    return getattr(load_module(format), "is_boundary", no_message)


def renders_each_apart(format: str) -> bool:
    """Return whether a provider's format renders each of its own messages without regard to any other."""
    return is_provider(format) and boundary_test(format) is every_message


def check_format(format: Any) -> str:
    """Return the name of a format. Raise UnknownFormat if it is neither built in nor registered."""
    return load_module(format).NAME


def is_provider(format: str | None) -> bool:
    """Return whether a provider reads this format: a built-in one, or one that another distribution registers."""
    if format is None or format == recollect_format.NAME:
        return False
    return format in PROVIDERS or (format in _registered_names() and load_module(format).RULES is not None)


M = TypeVar("M", bound=Draft | Message)


def without_contradicting_remainder(message: M) -> M:
    """Return a message as it may be sent, without its remainder if that contradicts its common fields."""
    name = message.format
    if name is None or not is_provider(name):
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
    rules = load_module(format).RULES
    assert rules is not None, format
    return rules


def put_function(format: str) -> common.PutMessage:
    """Return the function that writes single messages of this provider's format, or without a format."""
    module: Any = load_module(format)
    return module.put


def response(message: Draft | Message) -> dict[str, Any] | None:
    """Return the whole response of a provider that contained a message, unchanged; `None` if there was none.

    - `message`: a stored [Message], or a [Draft].
    """
    name = message.format
    if name is None or not is_provider(name) or without_contradicting_remainder(message) is not message:
        return None
    return load_module(name).response(message)


def load_all() -> None:
    """Load every format."""
    for name in _MODULES:
        load_module(name)


def load_module(format: str | None) -> FormatModule:
    """Return the module of a format. Raise UnknownFormat if it is neither built in nor registered."""
    if isinstance(format, str):
        format = str.__str__(format)  # a subclass may override comparison
    module = _loaded_modules.get(format) if isinstance(format, str) else None
    if module is not None:
        return module
    if isinstance(format, str) and format in _MODULES:
        loaded_module: Any = importlib.import_module(f"recollect.formats.{_MODULES[format]}")
        _loaded_modules[format] = loaded_module
        return loaded_module
    if isinstance(format, str) and format in _registered_names():
        return _load_registered(format)
    raise UnknownFormat(format=format, known=_known_names())


@functools.cache
def _registered_names() -> frozenset[str]:
    """Return the names of the formats that other distributions register, read once: it takes 30 ms."""
    from importlib.metadata import entry_points  # noqa: PLC0415  only for a name that is not built in

    return entry_points(group=GROUP).names - set(FORMATS)  # pyright: ignore[reportReturnType]


def _known_names() -> tuple[str, ...]:
    return (*FORMATS, *sorted(_registered_names()))


def _load_registered(name: str) -> FormatModule:
    """Load a registered format. Raise UnknownFormat if it cannot be imported, or lacks a part of the interface."""
    from importlib.metadata import entry_points  # noqa: PLC0415  only for a name that is not built in

    entry_point = next(iter(entry_points(group=GROUP, name=name)))
    subject = f"The format {format_value(name)} is registered as {format_value(entry_point.value)}, but"
    try:
        module: Any = entry_point.load()
    except Exception as error:
        reason = f"{subject} importing it raised {type(error).__name__}. Repair or remove its distribution."
        raise UnknownFormat(reason, format=name, known=FORMATS) from error
    interface = (*_INTERFACE, _PUT) if getattr(module, "RULES", None) is not None else _INTERFACE
    missing = [attribute for attribute in interface if not hasattr(module, attribute)]
    if missing or name != module.NAME:
        problem = f"has no {', '.join(missing)}" if missing else f"its NAME is {format_value(module.NAME)}"
        reason = f"{subject} {problem}. Repair or remove its distribution."
        raise UnknownFormat(reason, format=name, known=FORMATS)
    _loaded_modules[name] = module
    return module


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
    try:
        if is_dict(value) and (draft := _read_fast(value, module)) is not None:
            return [draft]
    except InvalidValue:
        to_json_data(value, "message")  # raises the error with the path in the whole message
        raise
    if isinstance(value, Draft):
        return [check_draft(value)]
    if isinstance(value, Message):
        return [check_draft(_to_draft(value))]
    if isinstance(value, str):
        raise InvalidValue('A message must have a role, got a str. Write {"role": "user", "content": ...}.')
    framework = _module_of_object(value)
    if framework is not None:
        value, module = framework.dump(value), module or framework
    module, message = _detect_module(value) if module is None else (module, _to_json(value, module))
    if type(value).__module__.startswith("openai."):
        message = _without_sdk_fields(message)
    if not is_dict(message):
        raise InvalidValue(
            f"A message must be a dict or an object of a provider's SDK, got {type(value).__name__}. Write "
            '{"role": "user", "content": ...}.'
        )
    return common.read_common(message) if module is None else module.read(message)


def _to_json(value: Any, module: FormatModule | None) -> Any:
    """Return a message as JSON data. A format whose messages may contain bytes converts them itself."""
    to_json = getattr(module, "to_json", None)
    return to_json_data(value, "message") if to_json is None else to_json(value)


def _detect_module(value: Any) -> tuple[FormatModule | None, Any]:
    """Return the module of a message's format (None if it is equal in every format), and the message as JSON data."""
    error = None
    try:
        message = to_json_data(value, "message")
    except InvalidValue as problem:
        error, message = problem, to_tagged_json(value)  # its bytes may be those of a format that accepts them
    is_mistral = type(value).__module__.startswith("mistralai.")  # its objects are like OpenAI's
    try:
        name = "mistral" if is_mistral else detect_format(message) if is_dict(message) else None
    except InvalidValue as problem:  # the format is not certain
        raise error or problem from None
    module = None if name is None else load_module(name)
    if module is not None and hasattr(module, "to_json"):
        return module, _to_json(value, module)
    if error is not None:
        raise error
    return module, message


def _module_of_object(value: Any) -> Any:
    """Return the module of the framework whose object this is; it converts the object itself. None for other values."""
    if type(value) is dict:
        return None
    packages = [base.__module__.partition(".")[0] for base in type(value).__mro__]  # a program may derive classes
    name = next((_OBJECT_FORMATS[package] for package in packages if package in _OBJECT_FORMATS), None)
    return None if name is None else load_module(name)


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
    if draft is None and module is not None and module.NAME == _ITEMS:
        from recollect.formats import openai_responses  # noqa: PLC0415  loaded already: it is the module

        draft = openai_responses.read_fast(message)
    return draft


def _to_message(draft: Draft, branch: int, position: int) -> Message:
    fields: dict[str, Any] = {name: getattr(draft, name) for name in _DRAFT_FIELDS}
    return Message(branch=branch, position=position, created_at_ms=draft.created_at_ms or 0, **fields)


def _to_draft(message: Message) -> Draft:
    """Return a stored message as a draft, without its position."""
    return Draft(**{name: getattr(message, name) for name in _DRAFT_FIELDS}, created_at=message.created_at)
