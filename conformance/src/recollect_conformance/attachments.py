"""Attachments and other large payloads: stored once by content hash, and returned unchanged."""

from __future__ import annotations

import base64
import random
from typing import Any

from recollect.model.message import AttachmentPart, DataPart, Draft, TextPart, ToolResultPart
from recollect.store import Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import check_counts, texts, user


def payload(seed: int, size: int = 6_000) -> str:
    """Return base64 of pseudorandom bytes; the same seed returns the same text."""
    return base64.b64encode(random.Random(seed).randbytes(size)).decode()  # noqa: S311  not a secret


def image(data: str) -> dict[str, Any]:
    """Return a message with an image in the format of Anthropic's API."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "what is it?"}]}


_LOOK_LIKE_PAYLOADS: list[Any] = [
    {"$blob": "x"},
    {"$blob": None},
    {"$blob": None, "is": {}},
    {"$blob": payload(1)},
    {"$blob": {"$blob": payload(1), "as": "base64"}},
    {"a": payload(1), "$blob": {"is": [payload(2)]}},
    payload(1) + "\n",
    payload(1)[:-1],
    payload(1).replace("A", "-"),
    "data:;base64," + payload(1),
    "data:;base64," + payload(1) + ";base64," + payload(2),
    "\0" * 70_000,
    "\ud800" * 70_000,
    "é" * 70_000,
    "A" * 2_047,
    "A" * 2_048,
    " " * 65_535,
    " " * 65_536,
]


class TestAttachments:
    """Payloads in every position in which they occur."""

    def test_images_of_anthropic(self, store: Store, database: DatabaseUnderTest):
        messages = [image(payload(1)), {"role": "assistant", "content": "A cat."}, image(payload(1)), image(payload(2))]
        store.session("a").append(messages, format="anthropic")
        session = database.reopen().session("a")
        assert session.history("anthropic", repair=False) == messages
        assert [m["content"] for m in session.history("anthropic", repair=False)[-1:]] == [messages[3]["content"]]
        assert session.messages(last=1)[0].parts == session.messages()[3].parts
        assert session.message(3).parts == session.messages()[0].parts

    def test_data_urls_of_openai(self, store: Store, database: DatabaseUnderTest):
        messages = [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{payload(1)}"}}],
            }
            for kind in ("image/png", "image/jpeg", "x" * 300, "")
        ]
        store.session("a").append(messages, format="openai")
        assert database.reopen().session("a").history("openai", repair=False) == messages

    def test_plain_attachments(self, store: Store, database: DatabaseUnderTest):
        parts = (
            AttachmentPart(mime_type="image/png", size=6_000, name="cat.png", data=payload(1)),
            AttachmentPart(url="https://example.org/cat.png"),
            TextPart(text=payload(3)),
        )
        store.session("a").append(Draft(role="user", parts=parts))
        assert database.reopen().session("a").messages()[0].parts == parts

    def test_results_of_tools(self, store: Store, database: DatabaseUnderTest):
        screenshot = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": payload(4)}}
        messages = [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "shot", "input": {}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": [screenshot, screenshot]}],
            },
        ]
        session = store.session("a")
        session.append(messages, format="anthropic")
        session.append({"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "x", "input": {}}]})
        session.tools.record_result("u", {"png": payload(4), "text": "y" * 100_000})
        session = database.reopen().session("a")
        assert session.history("anthropic", repair=False)[:2] == messages
        assert session.messages()[-1].tool_results[0].data == {"png": payload(4), "text": "y" * 100_000}

    def test_values_that_look_like_payloads_are_returned_unchanged(self, store: Store, database: DatabaseUnderTest):
        for number, unusual in enumerate(_LOOK_LIKE_PAYLOADS):
            session = store.session(f"s{number}")
            session.append({"role": "user", "content": [{"type": "odd", "value": unusual}]}, format="anthropic")
            part = DataPart(data={"v": [unusual]}, metadata={"m": unusual}, native={"n": unusual})
            result = ToolResultPart(call_id="c", data=unusual, metadata={"m": unusual})
            session.append([Draft(role="user", parts=(part, part)), Draft(role="tool", parts=(result,))])
        second_store = database.reopen()
        for number, unusual in enumerate(_LOOK_LIKE_PAYLOADS):
            part = DataPart(data={"v": [unusual]}, metadata={"m": unusual}, native={"n": unusual})
            result = ToolResultPart(call_id="c", data=unusual, metadata={"m": unusual})
            second_session = second_store.session(f"s{number}")
            assert second_session.history("anthropic", repair=False)[0]["content"][0]["value"] == unusual
            assert second_session.messages()[1].parts == (part, part)
            assert second_session.messages()[2].parts == (result,)

    def test_a_payload_is_kept_until_nothing_refers_to_it(self, store: Store, database: DatabaseUnderTest):
        for id in ("a", "b"):
            store.session(id).append(
                [image(payload(1)), image(payload(1)), image(payload(ord(id)))], format="anthropic"
            )
        fork = store.session("a").fork(2, id="f")
        fork.append(image(payload(7)), format="anthropic")
        store.erase_session("a", forks="keep")
        store = database.reopen()
        assert store.session("b").history("anthropic", repair=False) == [
            image(payload(1)),
            image(payload(1)),
            image(payload(98)),
        ]
        assert store.session("f").history("anthropic", repair=False) == [
            image(payload(1)),
            image(payload(1)),
            image(payload(7)),
        ]
        store.erase_session("b")
        assert store.session("f").history("anthropic", repair=False)[0] == image(payload(1))
        store.erase_session("f")
        store.session("c").append(image(payload(1)), format="anthropic")
        assert database.reopen().session("c").history("anthropic", repair=False) == [image(payload(1))]

    def test_attachments_in_a_stream_and_in_a_turn(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        with session.turn(image(payload(1)), format="anthropic") as turn:
            turn.add(image(payload(2)), format="anthropic")
            answer = turn.stream()
            answer.write("so far")
            answer.close({**image(payload(1)), "role": "assistant"}, format="anthropic")
        session.save_turn(image(payload(3)), [image(payload(1))], format="anthropic")
        session = database.reopen().session("a")
        expected = [image(payload(n)) for n in (1, 2, 1, 3, 1)]
        expected[2]["role"] = "assistant"
        assert session.history("anthropic", repair=False) == expected
        check_counts(session)

    def test_deleting_and_restoring_keeps_the_payload(self, store: Store, database: DatabaseUnderTest):
        session = store.session("a")
        session.append([image(payload(1)), user("x")], format="anthropic")
        session.delete_messages([1])
        session = database.reopen().session("a")
        session.restore_messages([1])
        assert session.history("anthropic", repair=False)[0] == image(payload(1))
        assert texts(session) == ["what is it?", "x"]
