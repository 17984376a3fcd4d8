"""Every message and content block that LangChain defines comes back equal, and is a valid history in every format."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from framework_round_trips import assert_stored_equal
from framework_values import COUNT, RandomValues, alternatives_of

import recollect
from recollect.errors import InvalidValue

pydantic: Any = pytest.importorskip("pydantic")
messages: Any = pytest.importorskip("langchain_core.messages")
blocks: Any = pytest.importorskip("langchain_core.messages.content")
load: Any = pytest.importorskip("langchain_core.load")

pytestmark = pytest.mark.filterwarnings("ignore:The function `load` is in beta")

loader = pydantic.TypeAdapter(list[messages.AnyMessage])


def dump(message: Any) -> dict[str, Any]:
    return message.model_dump(mode="json")


assert_equal = functools.partial(assert_stored_equal, name="langchain", dump=dump, load=loader.validate_python)


def _kinds(union: Any) -> list[Any]:
    return [pytest.param(kind, id=kind.__name__) for kind in alternatives_of(union)]


def _tool_call(values: RandomValues, depth: int) -> Any:
    return {"type": "tool_call", "id": f"call_{values.random.randrange(10**9)}", "name": "f", "args": values.object()}


def _invalid_call(values: RandomValues, depth: int) -> Any:
    call_id, arguments = values.random.choice([None, "i1", "i2"]), values.random.choice([None, '{"a'])
    return {"type": "invalid_tool_call", "id": call_id, "name": "f", "args": arguments, "error": values.text()}


SPECIAL = {messages.ToolCall: _tool_call, messages.InvalidToolCall: _invalid_call}


def _content(values: RandomValues) -> Any:
    if values.random.random() < 0.4:
        return values.text()
    return [values.value(str | blocks.ContentBlock) for _ in range(values.random.randrange(4))]


def _message(kind: Any, values: RandomValues, **constants: Any) -> Any:
    """Return a message with random fields, and fields that the class does not declare."""
    constants = {"content": _content(values), **constants}
    if kind in (messages.AIMessage, messages.AIMessageChunk):
        constants["additional_kwargs"] = {"refusal": None, "reasoning_content": values.text()}
    message = values.instance(kind, constants=constants)
    return message.model_copy(update={"priority": 1}) if values.random.random() < 0.2 else message


@pytest.mark.parametrize("kind", _kinds(messages.AnyMessage))
def test_messages(kind: Any) -> None:
    values = RandomValues(kind.__name__, SPECIAL)
    assert_equal([_message(kind, values) for _ in range(COUNT)])


@pytest.mark.parametrize("kind", _kinds(blocks.ContentBlock))
@pytest.mark.parametrize("message", [messages.HumanMessage, messages.AIMessage, messages.ToolMessage])
def test_content_blocks(kind: Any, message: Any) -> None:
    values = RandomValues(f"{kind.__name__} {message.__name__}", SPECIAL)
    fields = {"tool_call_id": "c"} if message is messages.ToolMessage else {}
    assert_equal([message(content=[values.value(kind), values.value(kind)], **fields) for _ in range(COUNT)])


def _dump_with_data(message: Any) -> dict[str, Any]:
    return messages.messages_to_dict([message])[0]


def _load_constructors(dicts: list[Any]) -> list[Any]:
    return [load.load(value, allowed_objects="messages") for value in dicts]


@pytest.mark.parametrize(
    ("to_dict", "from_dicts", "exceptions"),
    [
        (_dump_with_data, messages.messages_from_dict, ()),
        (load.dumpd, _load_constructors, ("Chat", "Function")),  # which load() does not allow
        (dump, messages.convert_to_messages, ("Chat", "Function", "Chunk")),  # which it does not accept
    ],
)
def test_other_dicts_and_loaders(to_dict: Any, from_dicts: Any, exceptions: tuple[str, ...]) -> None:
    values = RandomValues("dicts", SPECIAL)
    kinds = [
        kind for kind in alternatives_of(messages.AnyMessage) if not any(word in kind.__name__ for word in exceptions)
    ]
    dicts = [to_dict(_message(kind, values)) for _ in range(COUNT // 10) for kind in kinds]
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append(dicts, format="langchain")
        history = list(session.history("langchain", repair=False))
    assert history == dicts
    assert from_dicts(history) == from_dicts(dicts)


def test_calls_that_the_content_repeats() -> None:
    values = RandomValues("repeated", SPECIAL)
    conversation: list[Any] = []
    for _ in range(COUNT):
        calls = [_tool_call(values, 2) for _ in range(values.random.randrange(3))]
        uses = [{"type": "tool_use", "id": call["id"], "name": "f", "input": call["args"]} for call in calls]
        values.random.shuffle(uses)
        conversation.append(messages.AIMessage(content=[*_blocks(values), *uses, *calls[:1]], tool_calls=calls))
    assert_equal(conversation)


def _blocks(values: RandomValues) -> list[Any]:
    return [values.value(blocks.ContentBlock) for _ in range(values.random.randrange(2))]


def test_a_remove_message_is_refused() -> None:
    with recollect.open(":memory:") as store, pytest.raises(InvalidValue, match=r"session\.delete_messages"):
        store.session("a").append(messages.RemoveMessage(id="m1"))
