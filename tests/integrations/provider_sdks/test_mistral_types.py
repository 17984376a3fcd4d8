"""Every message and response of Mistral's SDK round-trips, as objects and as dicts."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from formats_table import EXAMPLES
from generated_values import schema_value
from mistralai.client import models

import recollect
from recollect import formats

COUNT = 150  # values of each type
MESSAGES = {
    "user": models.UserMessage,
    "assistant": models.AssistantMessage,
    "system": models.SystemMessage,
    "tool": models.ToolMessage,
}


@pytest.fixture(scope="module")
def store():
    with recollect.open(":memory:") as store:
        yield store


def random_values(model: Any) -> list[Any]:
    schema = without_unknown(model.model_json_schema())
    choice = random.Random(model.__name__)
    return [schema_value(schema, schema["$defs"], choice) for _ in range(COUNT)]


def without_unknown(schema: Any) -> Any:
    """Return a schema without the objects that the SDK has for chunks of an unknown type and for fields not set."""
    if isinstance(schema, dict):
        return {name: without_unknown(item) for name, item in schema.items()}
    if not isinstance(schema, list):
        return schema
    return [without_unknown(item) for item in schema if not re.search("/Un(known|set)", str(item)[:60])]


def set_fields(value: Any) -> Any:
    """Return a value without nulls, for which the SDK has several spellings of "not set"."""
    if isinstance(value, dict):
        return {name: set_fields(item) for name, item in value.items() if item is not None}
    return list(map(set_fields, value)) if isinstance(value, list) else value


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("role", MESSAGES)
def test_messages_as_dicts_and_objects(store: recollect.Store, role: str) -> None:
    for value in random_values(MESSAGES[role]):
        message = {**value, "role": role}
        fields = {"content": message.get("content"), **set_fields({**message, "role": None})}
        model = MESSAGES[role].model_validate(fields)
        for form in (message, model):
            session = store.session()
            session.append(form, format="mistral")
            (output,) = session.history("mistral", repair=False)
            if form is message:
                assert exact(output) == exact(message)
            else:
                again = MESSAGES[role].model_validate(output)
                assert set_fields(again.model_dump()) == set_fields(model.model_dump())
            for target in formats.PROVIDERS:
                history = list(session.history(target))
                other_session = store.session()
                if history:
                    other_session.append(history, format=target)
                    assert list(other_session.history(target)) == history


def test_objects_are_detected(store: recollect.Store) -> None:
    session = store.session()
    thinking = models.ThinkChunk(thinking=[models.TextChunk(text="hm")])
    session.append(
        [
            models.UserMessage(content="q"),
            models.AssistantMessage(content=[thinking, models.TextChunk(text="a")], prefix=True),
        ]
    )
    assert [(message.role, message.format) for message in session.messages()] == [
        ("user", "mistral"),
        ("assistant", "mistral"),
    ]
    assert session.messages()[1].reasoning == "hm"


def test_responses(store: recollect.Store) -> None:
    for value in random_values(models.ChatCompletionResponse):
        message = {"role": "assistant", "content": "a"}
        value["usage"] = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        value["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
        model = models.ChatCompletionResponse.model_validate(value)
        session = store.session()
        session.append(model)
        (stored_message,) = session.messages()
        response = formats.response(stored_message)
        assert models.ChatCompletionResponse.model_validate(response).model_dump() == model.model_dump()
        assert (stored_message.model, stored_message.input_tokens) == (value["model"], 7)


@pytest.mark.parametrize("source", EXAMPLES)
def test_messages_translated_from_other_formats_are_valid(store: recollect.Store, source: str) -> None:
    for messages in EXAMPLES[source].values():
        session = store.session()
        session.append(messages, format=source)  # pyright: ignore[reportArgumentType]
        for message in session.history("mistral"):
            MESSAGES[message["role"]].model_validate(message)
