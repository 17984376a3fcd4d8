"""Documents: which texts of a message are indexed, and in which field."""

from __future__ import annotations

import pytest

from recollect.model.message import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.storage.search.analysis import encode_tag, make_document, text_pieces, tokenize


def tokens(text: str) -> list[str]:
    return tokenize(text)


def test_each_kind_of_part_has_its_field():
    parts = (
        TextPart(text="Said Ä"),
        ReasoningPart(text="thought"),
        ToolCallPart(call_id="c", tool="Read_File", arguments={"path": "a.md", "deep": [1, {"x": None, "y": True}]}),
        ToolResultPart(call_id="c", text="answer", error_message="failed"),
        AttachmentPart(name="map.png", url="https://example.org/x.png", mime_type="image/png"),
        DataPart(data={"k": "v"}),
    )
    document = make_document("assistant", parts, {3: "other_tool"})
    assert tokens(document.text) == [
        "said",
        "a",
        "thought",
        "map",
        "png",
        "https",
        "example",
        "org",
        "x",
        "png",
        "k",
        "v",
    ]
    assert tokens(document.calls) == ["read", "file", "path", "a", "md", "deep", "1", "x", "y", "true"]
    assert tokens(document.results) == ["answer", "failed"]
    assert document.tags.split() == [
        "a",
        encode_tag("r", "assistant"),
        encode_tag("t", "read_file"),
        encode_tag("t", "other_tool"),
    ]
    kinds = [(piece.kind, piece.tool) for piece in text_pieces(parts, {3: "other_tool"})]
    assert kinds == [
        ("text", None), ("reasoning", None), ("tool_call", "Read_File"), ("tool_result", "other_tool"),
        ("attachment", None), ("data", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("plain", ["plain"]),
        ('{"a": "b\\nc"}', ["a", "b", "c"]),
        ('["x", {"y": [null, 1.5]}]', ["x", "y", "1", "5"]),
        ('{"not": json', ["not", "json"]),
        ("[" * 100_000, []),
        ('{"a": 1} and more', ["a", "1", "and", "more"]),
        ("", []),
    ],
)
def test_json_results_are_indexed_by_their_values(output, expected):
    document = make_document("tool", (ToolResultPart(call_id="c", text=output),), {})
    assert tokens(document.results) == expected


def test_arguments_that_are_not_json_are_indexed_as_text():
    part = ToolCallPart(call_id="c", tool="t", arguments_text='{"broken": ')
    assert tokens(make_document("assistant", (part,), {}).calls) == ["t", "broken"]


def test_the_tool_of_a_result_precedes_the_tool_of_its_call():
    part = ToolResultPart(call_id="c", text="x", tool="own")
    assert make_document("tool", (part,), {0: "other"}).tags.split()[2:] == [encode_tag("t", "own")]


def test_image_data_is_not_indexed():
    data = AttachmentPart(name=None, url="data:image/png;base64,AAAA", mime_type="image/png", data="AAAA")
    assert make_document("user", (data,), {}).text == ""
    assert make_document("user", (), {}) == ("", "", "", f"a {encode_tag('r', 'user')}")


def test_the_same_message_has_the_same_document():
    parts = (TextPart(text="Ünïcödé 北京 ½"), DataPart(data={"b": 1, "a": [2]}))
    assert make_document("user", parts, {}) == make_document("user", parts, {})
    assert tokens(make_document("user", (DataPart(data={"b": 1, "a": [2]}),), {}).text) == ["b", "1", "a", "2"]


def test_an_error_message_is_indexed_once():
    part = ToolResultPart(call_id="c", status="error", error_message="no such file")
    assert [piece.text for piece in text_pieces((part,), {})] == ["no such file"]
