"""Large payloads: taken out of parts, named by content, and put back equal."""

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
from recollect.model.part import (
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


def there_and_back(*parts: Part) -> dict[str, bytes] | None:
    """Detach, store as JSON, read, attach: the parts must come back equal. Give the payloads."""
    stored, found = blob.detach(parts)
    text = json.encode(stored)
    again = msgspec.convert(blob.attach(json.decode(text), found or {}), tuple[Part, ...])
    assert again == tuple(parts)
    for name, payload in (found or {}).items():
        assert name == hashlib.sha256(payload).hexdigest()
    return found


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
        DataPart(native={"text": "x" * (blob.TEXT_FROM - 1)}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_was_said_and_what_is_small_stays(part):
    assert there_and_back(part) is None
    parts = (part,)
    assert blob.detach(parts)[0] is parts


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
def test_base64_is_kept_once_as_the_bytes_it_stands_for(part):
    assert there_and_back(part) == {hashlib.sha256(BYTES).hexdigest(): BYTES}
    stored, _ = blob.detach((part,))
    assert BASE64[:200] not in json.encode(stored)


def test_the_same_image_as_block_and_as_url_is_one_blob():
    found = there_and_back(AttachmentPart(data=BASE64), AttachmentPart(url=URL), DataPart(data=[BASE64, BASE64]))
    assert found == {hashlib.sha256(BYTES).hexdigest(): BYTES}


def test_long_text_in_data_is_moved_and_comes_back():
    found = there_and_back(DataPart(data={"log": LONG}))
    assert found == {hashlib.sha256(LONG.encode()).hexdigest(): LONG.encode()}


@pytest.mark.parametrize(
    "odd",
    [
        BASE64 + "\n",
        BASE64[:76] + "\n" + BASE64[76:],
        BASE64[:-1],
        BASE64.replace("+", "-").replace("/", "_"),
        BASE64[:-4] + "AB==",  # the last bits are not zero: decoding and encoding gives another text
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
def test_what_only_looks_like_base64_comes_back_to_the_letter(odd):
    there_and_back(DataPart(data={"x": odd}))
    there_and_back(AttachmentPart(url=odd))


@pytest.mark.parametrize(
    "own",
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
@pytest.mark.parametrize("beside", [{}, {"image": BASE64}], ids=["alone", "beside a payload"])
def test_a_callers_own_mark_is_not_taken_for_ours(own, beside):
    there_and_back(DataPart(data={"own": own, **beside}))
    there_and_back(TextPart(text="a", metadata={"own": own, **beside}))


def test_a_callers_own_mark_at_the_top_of_a_part_field():
    there_and_back(DataPart(data={"$blob": "x"}))
    there_and_back(ToolCallPart(call_id="c", tool="t", arguments={"$blob": None, "is": BASE64}))


@given(st.binary(min_size=1_600, max_size=2_000), st.sampled_from(["", "data:a/b;base64,"]))
def test_any_bytes_come_back(payload, prefix):
    there_and_back(AttachmentPart(url=prefix + base64.b64encode(payload).decode()))


ANY = st.recursive(
    st.sampled_from([None, True, 1, "a", BASE64, URL, LONG, "$blob"]),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.sampled_from(["$blob", "is", "as", "x", "text"]), some, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(ANY)
def test_any_data_comes_back(value: Any):
    there_and_back(DataPart(data=value))
    there_and_back(DataPart(native={"block": value}))


def test_a_tool_calls_text_is_moved_when_large():
    text = '{"image": "' + BASE64 * 20 + '"}'
    there_and_back(ToolCallPart(call_id="c", tool="t", arguments_text=text))


def test_different_content_has_different_names():
    one, two = (base64.b64encode(os.urandom(3_000)).decode() for _ in range(2))
    found = there_and_back(AttachmentPart(data=one), AttachmentPart(data=two))
    assert found is not None
    assert len(found) == 2


@pytest.mark.parametrize("part", [TextPart(text=LONG), ToolResultPart(call_id="c", text=BASE64)])
def test_plain_parts_are_known_without_looking_into_them(part):
    assert blob.is_plain(part)
