"""Documents: what of a message is found, and as what."""

from __future__ import annotations

import pytest

from recollect.model.part import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.ops.search.document import document, pieces
from recollect.ops.search.words import tag, tokens


def words(text: str) -> list[str]:
    return tokens(text)


def test_each_kind_of_part_has_its_place():
    parts = (
        TextPart(text="Said Ä"),
        ReasoningPart(text="thought"),
        ToolCallPart(call_id="c", tool="Read_File", arguments={"path": "a.md", "deep": [1, {"x": None, "y": True}]}),
        ToolResultPart(call_id="c", text="answer", error_message="failed"),
        AttachmentPart(name="map.png", url="https://example.org/x.png", mime_type="image/png"),
        DataPart(data={"k": "v"}),
    )
    found = document("assistant", parts, {3: "other_tool"})
    assert words(found.said) == ["said", "a", "thought", "map", "png", "https", "example", "org", "x", "png", "k", "v"]
    assert words(found.calls) == ["read", "file", "path", "a", "md", "deep", "1", "x", "y", "true"]
    assert words(found.results) == ["answer", "failed"]
    assert found.tags.split() == ["a", tag("r", "assistant"), tag("t", "read_file"), tag("t", "other_tool")]
    kinds = [(piece.kind, piece.tool) for piece in pieces(parts, {3: "other_tool"})]
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
def test_results_that_are_json(output, expected):
    found = document("tool", (ToolResultPart(call_id="c", text=output),), {})
    assert words(found.results) == expected


def test_arguments_that_are_not_json():
    part = ToolCallPart(call_id="c", tool="t", arguments_text='{"broken": ')
    assert words(document("assistant", (part,), {}).calls) == ["t", "broken"]


def test_a_result_names_its_own_tool_first():
    part = ToolResultPart(call_id="c", text="x", tool="own")
    assert document("tool", (part,), {0: "other"}).tags.split()[2:] == [tag("t", "own")]


def test_pictures_are_not_words():
    data = AttachmentPart(name=None, url="data:image/png;base64,AAAA", mime_type="image/png", data="AAAA")
    assert document("user", (data,), {}).said == ""
    assert document("user", (), {}) == ("", "", "", f"a {tag('r', 'user')}")


def test_the_same_message_has_the_same_words_always():
    parts = (TextPart(text="Ünïcödé 北京 ½"), DataPart(data={"b": 1, "a": [2]}))
    assert document("user", parts, {}) == document("user", parts, {})
    assert words(document("user", (DataPart(data={"b": 1, "a": [2]}),), {}).said) == ["b", "1", "a", "2"]


def test_what_went_wrong_is_there_once():
    part = ToolResultPart(call_id="c", status="error", error_message="no such file")
    assert [piece.text for piece in pieces((part,), {})] == ["no such file"]
