"""Every type that google-genai defines for contents round-trips: as objects, as camelCase and as snake_case dicts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from formats_table import EXAMPLES
from generated_values import schema_value
from google.genai import _transformers, types

import recollect
from recollect import formats

COUNT = 150  # values of each type
CONTENT_SCHEMA = types.Content.model_json_schema()
DEFINITIONS = CONTENT_SCHEMA["$defs"]
PARTS = DEFINITIONS["Part"]["properties"]


@pytest.fixture(scope="module")
def store():
    with recollect.open(":memory:") as store:
        yield store


def random_values(schema: dict[str, Any], seed: str, count: int = COUNT) -> list[Any]:
    choice = random.Random(seed)
    return [schema_value(schema, DEFINITIONS, choice) for _ in range(count)]


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=lambda data: {"bytes": data.hex()})


def assert_round_trip(store: recollect.Store, message: Any, expected: Any) -> Any:
    """Check that a message comes back equal, and that every other format writes a history that it reads again."""
    session = store.session()
    session.append(message, format="gemini")
    (output,) = session.history("gemini", repair=False)
    assert exact(output) == exact(expected)
    for target in formats.PROVIDERS:
        history = list(session.history(target))
        again = store.session()
        if history:
            again.append(history, format=target)
            assert exact(list(again.history(target))) == exact(history)
            assert again.history(target).repairs == []
    return output


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("role", ["user", "model"])
def test_parts_as_dicts_and_objects(store: recollect.Store, name: str, role: str) -> None:
    for value in random_values(PARTS[name], name, COUNT // 2):
        message = {"role": role, "parts": [{name: value}, {"text": "after"}]}
        assert_round_trip(store, message, message)
        content = types.Content.model_validate(message)
        output = assert_round_trip(store, content, content.model_dump(mode="json", by_alias=True, exclude_unset=True))
        assert types.Content.model_validate(output) == content
        python = content.model_dump(exclude_unset=True)  # snake_case, with bytes
        assert types.Content.model_validate(assert_round_trip(store, python, python)) == content


def test_whole_contents(store: recollect.Store) -> None:
    for value in random_values(CONTENT_SCHEMA, "contents"):
        message = {**value, "role": "user", "parts": value.get("parts") or []}
        content = types.Content.model_validate(message)
        assert_round_trip(store, message, message)
        assert_round_trip(store, content.model_dump(), content.model_dump())
        assert_round_trip(store, content.model_dump(mode="json"), content.model_dump(mode="json"))


def test_responses(store: recollect.Store) -> None:
    schema = types.GenerateContentResponse.model_json_schema()
    choice = random.Random("responses")
    for _ in range(COUNT):
        value = schema_value(schema, schema["$defs"], choice)
        content = schema_value(schema["$defs"]["Content"], schema["$defs"], choice)
        value["candidates"] = [{"finishReason": "STOP", **(value.get("candidates") or [{}])[0], "content": content}]
        content["role"] = "model"
        value.pop("parsed", None)  # an object of the program
        model = types.GenerateContentResponse.model_validate(value)
        session = store.session()
        session.append(model)
        (message,) = session.messages()
        dump = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert exact(formats.response(message)) == exact(dump)
        assert message.model == value.get("modelVersion")
        assert exact(list(session.history("gemini", repair=False))) == exact([dump["candidates"][0]["content"]])


@pytest.mark.parametrize("source", EXAMPLES)
def test_contents_translated_from_other_formats_are_valid(store: recollect.Store, source: str) -> None:
    for messages in EXAMPLES[source].values():
        session = store.session()
        session.append(messages, format=source)  # pyright: ignore[reportArgumentType]
        session.append({"role": "user", "content": "and?"})
        contents = _transformers.t_contents(session.history("gemini"))
        assert all(content.parts for content in contents)
        assert [content.role for content in contents] == ["user", "model", "user"][: len(contents)]


def test_every_part_is_random_values() -> None:
    """Without this test, a new structure of the SDK could leave the other tests without values."""
    assert {"text", "functionCall", "functionResponse", "inlineData", "thoughtSignature"} <= PARTS.keys()
    values = random_values(PARTS["functionResponse"], "functionResponse")
    assert any(value and value.get("parts") for value in values)
