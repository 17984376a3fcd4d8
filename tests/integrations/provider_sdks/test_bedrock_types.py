"""Every shape that botocore's Converse model defines for messages round-trips, and translations fulfil the model."""

from __future__ import annotations

import json
import random
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from formats_table import EXAMPLES, encode_bytes
from generated_values import shape_value

import recollect
from recollect import formats

COUNT = 150  # values of each shape
CONVERSE = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse")
MESSAGES = CONVERSE.input_shape.members["messages"]
BLOCK = MESSAGES.member.members["content"].member
RESULT_PIECE = BLOCK.members["toolResult"].members["content"].member


@pytest.fixture(scope="module")
def store():
    with recollect.open(":memory:") as store:
        yield store


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=lambda data: {"bytes": data.hex()})


def problems(messages: list[Any]) -> str:
    """Return what the SDK's own validation reports."""
    report = ParamValidator().validate(messages, MESSAGES)
    return report.generate_report() if report.has_errors() else ""


def assert_round_trip(store: recollect.Store, message: dict[str, Any]) -> None:
    assert problems([message]) == ""
    session = store.session()
    session.append(message, format="bedrock")
    assert exact(list(session.history("bedrock", repair=False))) == exact([message])
    from_json = store.session()
    from_json.append(json.loads(json.dumps(message, default=encode_bytes)), format="bedrock")
    assert exact(list(from_json.history("bedrock", repair=False))) == exact([message])
    for target in formats.PROVIDERS:
        history = list(session.history(target))
        assert target != "bedrock" or problems(history) == ""
        again = store.session()
        if history:
            again.append(history, format=target)
            assert exact(list(again.history(target))) == exact(history)
            assert again.history(target).repairs == []


@pytest.mark.parametrize("kind", BLOCK.members)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_content_blocks(store: recollect.Store, kind: str, role: str) -> None:
    choice = random.Random(kind + role)
    for _ in range(COUNT):
        block = {kind: shape_value(BLOCK.members[kind], choice)}
        assert_round_trip(store, {"role": role, "content": [block, {"text": "after"}]})


@pytest.mark.parametrize("kind", RESULT_PIECE.members)
def test_pieces_of_results(store: recollect.Store, kind: str) -> None:
    choice = random.Random(kind)
    for number in range(COUNT):
        pieces = [{kind: shape_value(RESULT_PIECE.members[kind], choice)} for _ in range(1 + number % 2)]
        status = {"status": choice.choice(["success", "error"])} if number % 3 else {}
        result = {"toolUseId": "tooluse_1", "content": pieces, **status}
        assert_round_trip(store, {"role": "user", "content": [{"toolResult": result}]})


def test_messages_are_detected(store: recollect.Store) -> None:
    choice = random.Random("messages")
    for _ in range(COUNT):
        message = shape_value(MESSAGES.member, choice)
        if message["content"]:
            session = store.session()
            session.append(message)
            assert exact(list(session.history("bedrock", repair=False))) == exact([message])


def test_responses(store: recollect.Store) -> None:
    choice = random.Random("responses")
    for _ in range(COUNT):
        response = shape_value(CONVERSE.output_shape, choice, depth=9)
        response["output"] = {"message": {**shape_value(MESSAGES.member, choice), "role": "assistant"}}
        session = store.session()
        session.append(response)
        (message,) = session.messages()
        assert exact(formats.response(message)) == exact(response)
        assert exact(list(session.history("bedrock", repair=False))) == exact([response["output"]["message"]])


@pytest.mark.parametrize("source", EXAMPLES)
def test_messages_translated_from_other_formats_are_valid(store: recollect.Store, source: str) -> None:
    for messages in EXAMPLES[source].values():
        session = store.session()
        session.append(messages, format=source)  # pyright: ignore[reportArgumentType]
        session.append({"role": "user", "content": "and?"})
        history = session.history("bedrock")
        assert problems(history) == ""
        assert all(message["content"] for message in history)


def test_every_block_is_generated() -> None:
    """Without this test, a new structure of the model could leave the other tests without values."""
    assert {"text", "toolUse", "toolResult", "reasoningContent", "cachePoint", "citationsContent"} <= set(BLOCK.members)
    choice = random.Random("blocks")
    blocks = [shape_value(BLOCK, choice) for _ in range(COUNT)]
    assert any("bytes" in (block.get("image") or {}).get("source", {}) for block in blocks)
