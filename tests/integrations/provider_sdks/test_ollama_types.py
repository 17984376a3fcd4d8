"""Every message and response of Ollama's SDK round-trips."""

from __future__ import annotations

import json
import random
from typing import Any

import ollama
import pytest
from formats_table import EXAMPLES
from generated_values import schema_value

import recollect
from recollect import formats

COUNT = 150  # values of each type


@pytest.fixture(scope="module")
def store():
    with recollect.open(":memory:") as store:
        yield store


def values(model: Any, count: int = COUNT) -> list[Any]:
    schema = model.model_json_schema(mode="validation")
    schema["$defs"]["Image"] = {"enum": ["iVBORw0K", "AAAA"]}  # it has a serializer of its own
    choice = random.Random(model.__name__)
    return [schema_value(schema, schema["$defs"], choice) for _ in range(count)]


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def test_messages_as_dicts_and_objects(store: recollect.Store) -> None:
    for value in values(ollama.Message):
        for role in ("user", "assistant", "system"):
            message = {**value, "role": role}
            as_object = {**message, "images": [{"value": image} for image in message.get("images") or []]}
            model = ollama.Message.model_validate(as_object)
            for form, expected in ((message, message), (model, model.model_dump(mode="json", exclude_unset=True))):
                session = store.session()
                session.append(form, format="ollama")
                assert exact(list(session.history("ollama", repair=False))) == exact([expected])
                for target in formats.PROVIDERS:
                    history = list(session.history(target))
                    again = store.session()
                    if history:
                        again.append(history, format=target)
                        assert list(again.history(target)) == history


def test_responses(store: recollect.Store) -> None:
    for value in values(ollama.ChatResponse):
        value["message"] = {"role": "assistant", "content": "a", "thinking": "hm", "images": None}
        model = ollama.ChatResponse.model_validate({**value, "done": True})
        session = store.session()
        session.append(model)
        (message,) = session.messages()
        assert exact(formats.response(message)) == exact(model.model_dump(mode="json", exclude_unset=True))
        assert message.output_tokens == value.get("eval_count")


@pytest.mark.parametrize("source", EXAMPLES)
def test_messages_translated_from_other_formats_are_valid(store: recollect.Store, source: str) -> None:
    for messages in EXAMPLES[source].values():
        session = store.session()
        session.append(messages, format=source)  # pyright: ignore[reportArgumentType]
        for message in session.history("ollama"):
            assert {"role", "content"} <= message.keys()
            images = [{"value": image} for image in message.pop("images", None) or []]
            ollama.Message.model_validate({**message, "images": images})
