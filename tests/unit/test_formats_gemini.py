"""Google's Gemini format: parts, calls without ids, bytes, responses, and the rules of a request."""

from __future__ import annotations

from typing import Any

import pytest

import recollect
from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue
from recollect.formats import RegisteredFormat
from recollect.formats.display import is_truncated, visible_remainder
from recollect.formats.registry import read
from recollect.model.message import Draft, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

PIXELS = b"\x89PNG\xff\xfe\x00" * 900
LOOK = {"functionCall": {"name": "look", "args": {"at": 1}}}
RESULT = {"functionResponse": {"name": "look", "response": {"output": "a cat"}}}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


@pytest.fixture
def session():
    with recollect.open(":memory:") as store:
        yield store.session("a")


def test_parts_have_their_meaning_in_both_spellings() -> None:
    for call, result in (("functionCall", "functionResponse"), ("function_call", "function_response")):
        reasoning = {"text": "hm", "thought": True, "thought_signature": "AAAA"}
        (answer,) = read(model(reasoning, {"text": "I look"}, {call: {"id": "c", "name": "look", "args": {}}}))
        assert [type(part) for part in answer.parts] == [ReasoningPart, TextPart, ToolCallPart]
        assert (answer.role, answer.format) == ("assistant", "gemini")
        (reply,) = read(user({result: {"id": "c", "name": "look", "response": {"error": "no light"}}}))
        (part,) = reply.parts
        assert isinstance(part, ToolResultPart)
        assert (reply.role, part.call_id, part.tool, part.status, part.text) == (
            "tool",
            "c",
            "look",
            "error",
            "no light",
        )


def test_bytes_come_back_as_bytes_and_base64_as_base64(session: recollect.Session) -> None:
    contents = [
        user({"inline_data": {"mime_type": "image/png", "data": PIXELS}}, {"text": "?"}),
        model({"text": "A cat", "thought_signature": b"\xfb\xff"}),
        user({"inlineData": {"mimeType": "image/png", "data": "iVBO-_8="}}),
    ]
    session.append(contents)
    assert session.history("gemini") == contents
    picture, url_safe = session.messages()[0].parts[0], session.messages()[2].parts[0]
    assert (picture.mime_type, len(picture.data)) == ("image/png", 4 * len(PIXELS) // 3)  # type: ignore[union-attr]
    assert url_safe.data == "iVBO+/8="  # type: ignore[union-attr]  # in the alphabet that other formats read
    image = session.history("openai")[0]["content"][0]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR//+")
    with pytest.raises(InvalidValue, match="must be JSON data"):
        session.append({"role": "user", "content": [{"type": "text", "text": b"x"}]})


def test_a_dict_that_looks_like_stored_bytes_stays_a_dict(session: recollect.Session) -> None:
    args = {"$bytes": "AAAA", "inner": {"$bytes": {"$bytes": "AAAA"}}}
    contents = [
        user({"text": "q"}),
        model({"functionCall": {"id": "c", "name": "f", "args": {"x": {"$bytes": "AAAA"}}}}),
        user({"functionResponse": {"id": "c", "name": "f", "response": args}}),
    ]
    session.append(contents)
    assert session.history("gemini") == contents


def test_calls_without_ids_are_paired_by_tool_and_order(session: recollect.Session) -> None:
    other = {"functionCall": {"name": "listen"}}
    contents = [
        user({"text": "q"}),
        model(LOOK, other, LOOK),
        user(RESULT, {"functionResponse": {"name": "listen", "response": {"db": 3}}}, RESULT),
        model(LOOK),
        user(RESULT),
    ]
    session.append(contents)
    assert session.history("gemini") == contents
    assert session.history("gemini").repairs == []
    calls = session.tools.list()
    assert [(call.call_id, call.status) for call in calls] == [
        ("look", "success"), ("listen", "success"), ("look_2", "success"), ("look", "success"),
    ]  # fmt: skip
    anthropic = session.history("anthropic")
    ids = [block["id"] for message in anthropic[1:] for block in message["content"] if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids) == 4


def test_a_recorded_result_has_an_id_only_if_its_call_has_one(session: recollect.Session) -> None:
    session.append([user({"text": "q"}), model(LOOK)])
    session.tools.record_result("look", "a cat")
    assert session.history("gemini")[-1] == user(RESULT)
    session.append(model({"functionCall": {"id": "c", "name": "look", "args": {}}}))
    assert session.history("gemini")[-1]["parts"][0]["functionResponse"]["id"] == "c"
    assert [repair.kind for repair in session.history("gemini").repairs] == ["interrupted_call"]


def test_a_history_for_gemini_keeps_its_rules(session: recollect.Session) -> None:
    session.append(
        [
            model({"text": "Welcome"}),
            {"role": "system", "parts": [{"text": "Be brief."}]},
            user({"text": "one"}),
            user({"text": ""}, {"text": "two"}, {}, {"thought": True}),
            model({"text": "I look"}, LOOK),
            user({"text": "and?"}),
            model({"text": ""}),
        ],
        format="gemini",
    )
    history = session.history("gemini")
    assert [message["role"] for message in history] == ["user", "model", "user", "model", "user"]
    assert history[2]["parts"] == [{"text": "one"}, {"text": "two"}]
    assert [list(part) for part in history[4]["parts"]] == [["functionResponse"], ["text"]]
    assert {repair.kind for repair in history.repairs} == {
        "first_role", "wrong_role", "same_role", "unreadable_block", "blank_text", "interrupted_call", "empty_message",
    }  # fmt: skip
    assert history[4]["parts"][0]["functionResponse"].keys() == {"name", "response"}  # no id, as its call
    again = session.store.session("b")
    again.append(history, format="gemini")
    assert again.history("gemini") == history
    assert again.history("gemini").repairs == []


def test_a_result_that_is_joined_with_a_question_has_the_name_of_its_tool(session: recollect.Session) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    session.append([user({"text": "q"}), {"role": "assistant", "content": None, "tool_calls": [call]}])
    session.append([{"role": "tool", "tool_call_id": "c", "content": "a cat"}, {"role": "user", "content": "and?"}])
    result = {"id": "c", "name": "look", "response": {"output": "a cat"}}
    assert session.history("gemini")[-1] == user({"functionResponse": result}, {"text": "and?"})


def test_an_empty_text_with_a_signature_is_kept(session: recollect.Session) -> None:
    contents = [user({"text": "q"}), model({"text": "a"}, {"text": "", "thoughtSignature": "AAAA"})]
    session.append(contents)
    assert session.history("gemini") == contents
    assert session.history("openai")[-1] == {"role": "assistant", "content": "a"}


def test_signatures_go_only_to_google_and_calls_of_others_get_the_documented_one(session: recollect.Session) -> None:
    session.append([user({"text": "q"}), model({**LOOK, "thoughtSignature": "AAAA"}, LOOK), user(RESULT, RESULT)])
    session.append({"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
        {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
    ]})  # fmt: skip
    assert "AAAA" not in str(
        [session.history(RegisteredFormat(name)) for name in formats.PROVIDERS if name != "gemini"]
    )
    first, second = session.history("gemini")[3]["parts"]
    assert first["thoughtSignature"] == "skip_thought_signature_validator"
    assert second == {"functionCall": {"id": "t2", "name": "look", "args": {}}}


def test_files_in_a_result_follow_the_results(session: recollect.Session) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    session.append({"role": "user", "content": "q"})
    session.append({"role": "assistant", "content": [
        {"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ("t1", "t2")
    ]})  # fmt: skip
    session.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": id, "content": [image]} for id in ("t1", "t2")
    ]})  # fmt: skip
    parts = session.history("gemini")[-1]["parts"]
    assert [list(part) for part in parts] == [["functionResponse"]] * 2 + [["inlineData"]] * 2
    piece = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    result = {"functionResponse": {"name": "f", "response": {"output": "x"}, "parts": [piece]}}
    (draft,) = read(user(result))
    assert draft.parts[0].output == "x"  # type: ignore[union-attr]
    assert formats.render([draft], "gemini") == [user(result)]


RESPONSE: dict[str, Any] = {
    "candidates": [
        {"content": {"parts": [{"text": "Yes."}, {"executableCode": {"code": "1+1"}}], "role": "model"},
         "finishReason": "MAX_TOKENS", "groundingMetadata": {"webSearchQueries": ["q"]}, "index": 0},
        {"content": {"parts": [{"text": "No."}]}},
    ],
    "usageMetadata": {"promptTokenCount": 7, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 3,
                      "thoughtsTokenCount": 5, "totalTokenCount": 17},
    "modelVersion": "gemini-test", "responseId": "r",
}  # fmt: skip


def snake(value: Any) -> Any:
    """Return a value with the field names that Python programs use."""
    if isinstance(value, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(item) for key, item in value.items()}
    return [snake(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("response", [RESPONSE, snake(RESPONSE)])
def test_a_whole_response(session: recollect.Session, response: dict[str, Any]) -> None:
    session.save_turn("q", response)
    question, message = session.messages()
    assert question.text == "q"
    assert formats.response(message) == response
    assert (message.model, message.input_tokens, message.output_tokens) == ("gemini-test", 9, 8)
    assert is_truncated(message)
    assert session.history("gemini") == [user({"text": "q"}), response["candidates"][0]["content"]]
    assert session.history("anthropic")[-1] == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize(
    "response",
    [
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}},
        {"candidates": [], "modelVersion": "m"},
        {"candidates": None},
        {"candidates": [{"finishReason": "SAFETY"}]},
        {"candidates": [{"content": {}}, 5]},
        {"candidates": [{"content": {"role": "model"}}]},
    ],
)
def test_a_response_without_an_answer(session: recollect.Session, response: dict[str, Any]) -> None:
    session.append([user({"text": "q"}), response], format="gemini")
    assert formats.response(session.messages()[1]) == response
    assert session.history("gemini") == [user({"text": "q"})]


def test_text_equal_in_every_format_is_written_with_parts(session: recollect.Session) -> None:
    session.append({"role": "user", "content": "hi"}, format="gemini")
    session.append(
        [{"role": "system", "content": "s"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]
    )
    assert session.history("gemini") == [user({"text": "hi"}), model({"text": "a"})]
    assert session.history("openai")[0] == {"role": "user", "content": "hi"}


@pytest.mark.parametrize("part", [{"text": "hi"}, {"inline_data": {}}, {"functionCall": {}}, {"executable_code": {}}])
def test_a_content_is_detected(part: dict[str, Any]) -> None:
    for content in (user(part), model(part), {"parts": [part]}, {"role": None, "parts": [part]}):
        assert read(content)[0].format == "gemini"
        assert formats.render(read(content), "gemini") == [content]


@pytest.mark.parametrize(
    "message",
    [user(), user({}), user({"x": 1}), user({"text": "hi", "kind": "text"}, {"text": "hi"}), user(5)],
)
def test_a_content_that_may_be_another_format_is_ambiguous(message: dict[str, Any]) -> None:
    with pytest.raises(AmbiguousFormat):
        read(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "user", "parts": ["hi"]}, r"parts\[0\] must be a dict, got str"),
        ({"role": "user", "parts": {"text": "hi"}}, "must be a list"),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, "A content of Gemini has parts"),
        ({"role": "assistant", "parts": []}, "Gemini has no role 'assistant'"),
    ],
)
def test_a_malformed_content_is_refused(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        read(message, "gemini")


def test_a_file_that_only_google_can_read_is_not_a_link(session: recollect.Session) -> None:
    uri = "https://generativelanguage.googleapis.com/v1beta/files/abc"
    contents = [user({"fileData": {"fileUri": uri, "mimeType": "image/png"}}, {"text": "q"})]
    session.append(contents)
    assert session.history("gemini") == contents
    assert session.history("openai") == [{"role": "user", "content": "q"}]
    assert uri in str(visible_remainder(session.messages()[0]))


def test_a_result_without_the_name_of_its_tool_gets_it_from_the_call(session: recollect.Session) -> None:
    session.append([user({"text": "q"}), model({"functionCall": {"id": "c", "name": "look", "args": {}}})])
    session.append(Draft(role="tool", format="gemini", parts=(ToolResultPart(call_id="c", text="a cat"),)))
    result = {"id": "c", "name": "look", "response": {"output": "a cat"}}
    assert session.history("gemini")[-1] == user({"functionResponse": result})
