"""Large payloads: detached from parts, named by the hash of their content, and attached again."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.model import blob, json
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

BYTES = bytes(range(256)) * 12
BASE64 = base64.b64encode(BYTES).decode()
URL = f"data:image/png;base64,{BASE64}"
LONG = "word " * 20_000


def round_trip(*parts: Part) -> dict[str, bytes] | None:
    """Detach the payloads, write and read the parts as JSON, and attach the payloads: the parts must be equal. Return the payloads."""
    json_parts, payloads = blob.detach_payloads(parts)
    text = json.encode(json_parts)
    attached = msgspec.convert(blob.attach_payloads(json.decode(text), payloads or {}), tuple[Part, ...])
    assert attached == tuple(parts)
    for name, payload in (payloads or {}).items():
        assert name == hashlib.sha256(payload).hexdigest()
    return payloads


@pytest.mark.parametrize(
    "part",
    [
        TextPart(text=LONG),
        ReasoningPart(text=BASE64),
        ToolCallPart(call_id="c", tool="t", arguments={"small": "x"}),
        ToolResultPart(call_id="c", text=LONG + BASE64),
        ToolResultPart(call_id="c", content=(TextPart(text="a"),)),
        AttachmentPart(data=base64.b64encode(b"tiny").decode()),
        AttachmentPart(url="https://example.org/a.png"),
        DataPart(data={"a": [1, None, True, 1.5]}),
        DataPart(native={"text": "x" * (blob.MIN_TEXT_LENGTH - 1)}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_text_and_small_payloads_are_not_detached(part):
    assert round_trip(part) is None
    parts = (part,)
    assert blob.detach_payloads(parts)[0] is parts


@pytest.mark.parametrize(
    "part",
    [
        AttachmentPart(mime_type="image/png", data=BASE64),
        AttachmentPart(url=URL),
        DataPart(native={"type": "image", "source": {"type": "base64", "data": BASE64}}),
        DataPart(data=[[{"x": URL}]]),
        ToolCallPart(call_id="c", tool="t", arguments={"image": BASE64}),
        ToolResultPart(call_id="c", data={"shot": URL}),
        ToolResultPart(call_id="c", content=(TextPart(text="a"), AttachmentPart(data=BASE64))),
        TextPart(text="see", native={"image_url": {"url": URL}}),
        TextPart(text="see", metadata={"thumb": BASE64}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_base64_is_stored_once_as_decoded_bytes(part):
    assert round_trip(part) == {hashlib.sha256(BYTES).hexdigest(): BYTES}
    json_parts, _ = blob.detach_payloads((part,))
    assert BASE64[:200] not in json.encode(json_parts)


def test_the_same_image_as_block_and_as_url_is_one_blob():
    payloads = round_trip(AttachmentPart(data=BASE64), AttachmentPart(url=URL), DataPart(data=[BASE64, BASE64]))
    assert payloads == {hashlib.sha256(BYTES).hexdigest(): BYTES}


def test_long_text_in_data_is_detached():
    payloads = round_trip(DataPart(data={"log": LONG}))
    assert payloads == {hashlib.sha256(LONG.encode()).hexdigest(): LONG.encode()}


@pytest.mark.parametrize(
    "text",
    [
        BASE64 + "\n",
        BASE64[:76] + "\n" + BASE64[76:],
        BASE64[:-1],
        BASE64.replace("+", "-").replace("/", "_"),
        BASE64[:-4] + "AB==",  # the last bits are not zero: decoding and encoding returns another text
        "data:image/png;base64,",
        "data:" + "x" * 300 + ";base64," + BASE64,
        "data:text/plain," + BASE64,
        "prefix " + URL,
        "=" * 4096,
        "\ud800" * 70_000,
        "ä" * 70_000,
        LONG[:-1] + "\ud83d",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_text_that_only_resembles_base64_round_trips(text):
    round_trip(DataPart(data={"x": text}))
    round_trip(AttachmentPart(url=text))


@pytest.mark.parametrize(
    "value",
    [
        {"$blob": "abc"},
        {"$blob": None},
        {"$blob": None, "is": {"a": 1}},
        {"$blob": hashlib.sha256(BYTES).hexdigest(), "as": "base64"},
        {"$blob": {"$blob": {"$blob": 1}}},
        {"$blob": BASE64},
        [{"$blob": 1, "more": BASE64}],
    ],
    ids=repr,
)
@pytest.mark.parametrize("extra", [{}, {"image": BASE64}], ids=["alone", "with a payload"])
def test_a_blob_key_of_the_caller_is_not_a_reference(value, extra):
    round_trip(DataPart(data={"own": value, **extra}))
    round_trip(TextPart(text="a", metadata={"own": value, **extra}))


def test_a_blob_key_of_the_caller_at_the_top_of_a_part_field():
    round_trip(DataPart(data={"$blob": "x"}))
    round_trip(ToolCallPart(call_id="c", tool="t", arguments={"$blob": None, "is": BASE64}))


@given(st.binary(min_size=1_600, max_size=2_000), st.sampled_from(["", "data:a/b;base64,"]))
def test_any_bytes_round_trip(payload, prefix):
    round_trip(AttachmentPart(url=prefix + base64.b64encode(payload).decode()))


JSON_VALUES = st.recursive(
    st.sampled_from([None, True, 1, "a", BASE64, URL, LONG, "$blob"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["$blob", "is", "as", "x", "text"]), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(JSON_VALUES)
def test_any_data_round_trips(value: Any):
    round_trip(DataPart(data=value))
    round_trip(DataPart(native={"block": value}))


def test_large_arguments_of_a_tool_call_round_trip():
    text = '{"image": "' + BASE64 * 20 + '"}'
    round_trip(ToolCallPart(call_id="c", tool="t", arguments_text=text))


def test_different_payloads_have_different_names():
    one, two = (base64.b64encode(os.urandom(3_000)).decode() for _ in range(2))
    payloads = round_trip(AttachmentPart(data=one), AttachmentPart(data=two))
    assert payloads is not None
    assert len(payloads) == 2


@pytest.mark.parametrize("part", [TextPart(text=LONG), ToolResultPart(call_id="c", text=BASE64)])
def test_parts_of_plain_text_have_no_payload(part):
    assert blob.has_no_payload(part)
