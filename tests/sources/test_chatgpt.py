from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import pytest
import zstandard
from document_checks import (
    FIXTURES,
    check_mutations,
    drafts_by_key,
    of_kind,
    parents_by_key,
    path_to,
    read_all,
    read_mutated,
)

import recollect
from recollect.model.message import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.sources.source import INJECTION_KEY, ActiveFound, MessageFound, Note, Original, SessionFound
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

EXPORT = FIXTURES / "chatgpt"
DOT = "chatgpt:0c0ffee0-0000-4000-8000-000000000001"
PROJECT = "chatgpt:entry-g-p-1"
PLAIN = "chatgpt:0c0ffee0-0000-4000-8000-000000000002"


@pytest.fixture(scope="module")
def events():
    return read_all("chatgpt", EXPORT)


@pytest.fixture(scope="module")
def drafts(events):
    return drafts_by_key(events, DOT)


def test_the_fields_of_a_conversation(events):
    new_events, entry, plain = of_kind(events, SessionFound)
    assert (new_events.session, new_events.title, new_events.title_rank) == (DOT, "A dot", 2)
    assert (new_events.created_at, new_events.updated_at) == (1730000000250, 1730000020250)
    assert (new_events.model, new_events.provider, new_events.archived, new_events.pinned) == (
        "gpt-5",
        "openai",
        True,
        True,
    )
    assert new_events.metadata == {"gizmo_id": "g-p-1"}
    assert (plain.session, plain.title, plain.title_rank) == (PLAIN, "Hello there", 1)
    assert plain.created_at is None
    assert (entry.session, entry.title, entry.archived) == (PROJECT, "A project", True)


def test_the_tree_has_both_answers_and_the_active_one(events):
    parents = parents_by_key(events, DOT)
    assert parents["ctx"] is None  # the empty system message and the root are not messages
    assert parents["a1"] == parents["a2"] == "recap"
    assert parents["q2"] == "a1"
    assert [event.last for event in of_kind(events, ActiveFound)] == ["a2", "n2"]


def test_custom_instructions_are_marked(drafts):
    assert [(part.text, part.metadata) for part in drafts["ctx"].parts] == [
        ("I write tests.", {INJECTION_KEY: "instructions"}),
        ("Be short.", {INJECTION_KEY: "instructions"}),
    ]


def test_files_of_the_archive_become_attachments(drafts):
    picture, text, notes = drafts["q1"].parts
    assert isinstance(picture, AttachmentPart)
    assert (picture.data, picture.mime_type, picture.name) == ("iVBOR2RhdGE=", "image/png", "dot.png")
    assert text == TextPart(text="What is in this picture?")
    assert isinstance(notes, AttachmentPart)
    assert (notes.data, notes.name, notes.mime_type) == (None, "notes.txt", "text/plain")


def test_reasoning(drafts):
    assert drafts["th"].parts == (ReasoningPart(text="The picture is a dot.", metadata={"summary": "Looking"}),)
    assert drafts["recap"].parts[0].text == "Thought for 3 seconds"
    assert drafts["th"].model == "gpt-5"


def test_tool_calls_and_results(drafts):
    (call,) = drafts["call"].parts
    assert call == ToolCallPart(
        call_id="call", tool="python", arguments={"code": "print(6*7)"}, metadata={"language": "python"}
    )
    (result,) = drafts["out"].parts
    assert isinstance(result, ToolResultPart)
    assert (result.call_id, result.tool, result.status) == ("call", "python", "success")
    assert [type(piece) for piece in result.content or ()] == [TextPart, AttachmentPart]
    assert result.metadata == {
        "started_at": 1730000002250,
        "completed_at": 1730000002750,
        "latency_ms": 500,
        "status": "success",
        "run_id": "r1",
    }
    assert drafts["fail"].parts[0].arguments_text == '{"search_query":[{"q":"dots"}]}'
    error = drafts["err"].parts[0]
    assert (error.call_id, error.status, error.output) == ("fail", "error", "timed out")


def test_a_second_message_of_a_tool_is_context(drafts):
    assert drafts["extra"].role == "tool"
    (part,) = drafts["extra"].parts
    assert part.text == "A dot is round."
    assert part.metadata[INJECTION_KEY] == "tool_output"


def test_facts_of_messages(drafts):
    assert drafts["a1"].metadata["citations"] == [{"start_ix": 0, "end_ix": 5, "metadata": {"title": "Dots"}}]
    assert drafts["a1"].metadata["feedback"]["rating"] == "thumbsUp"
    assert (drafts["a1"].created_at_ms, drafts["a1"].state) == (1730000007250, "completed")
    assert (drafts["a2"].model, drafts["a2"].state) == ("gpt-5-mini", "interrupted")
    assert drafts["q2"].parts[0].text == "Thank you"


def test_unknown_content_is_kept_and_reported(events, drafts):
    assert drafts["odd"].parts == (DataPart(data={"content_type": "hologram", "depth": 3}),)
    notes = {(note.kind, note.text) for note in of_notes(events)}
    assert ("unknown", "content_type hologram") in notes
    assert ("missing", "A file of a message is not in the export.") in notes
    assert ("unknown", "An entry has no messages, such as the entry of a project.") in notes


def of_notes(events):
    return [event for event in events if isinstance(event, Note)]


def test_the_originals_equal_the_entries(events):
    document = json.loads((EXPORT / "conversations.json").read_bytes())
    originals = {(each.session, each.name): json.loads(each.data) for each in of_kind(events, Original)}
    assert originals == {
        (DOT, "conversation.json"): document[0],
        (PROJECT, "conversation.json"): document[1],
        (PLAIN, "conversation.json"): document[2],
        (DOT, "message_feedback.json"): json.loads((EXPORT / "message_feedback.json").read_bytes()),
    }


def test_a_zip_and_numbered_files_lead_to_the_same_messages(events, tmp_path):
    document = json.loads((EXPORT / "conversations.json").read_bytes())
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for index, entry in enumerate(document):
            archive.writestr(f"conversations-{index:03}.json", json.dumps([entry]))
        for name in ("message_feedback.json", "file-AbC123-dot.png", "user.json"):
            archive.write(EXPORT / name, name)
    from_zip = read_all("chatgpt", tmp_path / "export.zip")
    assert of_kind(from_zip, MessageFound) == of_kind(events, MessageFound)


def test_a_single_conversation(events, tmp_path):
    document = json.loads((EXPORT / "conversations.json").read_bytes())
    (tmp_path / "one.txt").write_text(json.dumps(document[2], indent=2))
    assert of_kind(read_all("chatgpt", tmp_path / "one.txt"), MessageFound) == of_kind(events, MessageFound, PLAIN)


def test_other_json_files_are_not_detected(tmp_path):
    (tmp_path / "a.json").write_text('[{"mapping": "none"}]')
    (tmp_path / "b.json").write_text('{"mapping": {}}')
    assert read_all("chatgpt", tmp_path) == []


@pytest.mark.parametrize("links", [[("a", "b"), ("b", "a")], [("a", "a"), ("b", "a")], [("a", "zz"), ("b", None)]])
def test_damaged_links_lose_no_message(tmp_path, links):
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hello"]}}
    mapping = {node: {"parent": parent, "message": message} for node, parent in links}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"id": "x", "mapping": mapping}]))
    assert drafts_by_key(read_all("chatgpt", path)).keys() == {"a", "b"}


def test_a_node_without_a_parent_follows_the_one_that_lists_it(tmp_path):
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hello"]}}
    mapping = {"b": {"message": message}, "a": {"message": message, "children": ["b"]}}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"id": "x", "mapping": mapping}]))
    assert parents_by_key(read_all("chatgpt", path)) == {"a": None, "b": "a"}


def test_a_truncated_file_yields_the_conversations_before_its_end(tmp_path):
    data = (EXPORT / "conversations.json").read_bytes()
    new_events = read_mutated("chatgpt", tmp_path / "conversations.json", data[:-300])
    assert drafts_by_key(new_events, DOT).keys() >= {"a1", "a2"}
    assert any(note.kind == "malformed" for note in of_notes(new_events))


def test_hostile_values_and_truncation(tmp_path, long):
    document = json.loads((EXPORT / "conversations.json").read_bytes())
    check_mutations("chatgpt", document, tmp_path / "conversations.json", step=1 if long else 31)


def test_deep_and_wide_values(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    nested = '{"a":' * 300 + "1" + "}" * 300
    for value in (deep, nested, "NaN", "1e999", '"\\ud800"', "\xff"):
        text = (EXPORT / "conversations.json").read_text().replace('"A dot."', value)
        read_mutated("chatgpt", tmp_path / "conversations.json", text.encode("latin-1", "replace"))


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses"])
def test_the_imported_path_is_a_valid_history(events, tmp_path, format):
    with recollect.open(tmp_path / "store.db") as store:
        session = store.session("s")
        session.append(path_to(events, "a1", DOT))
        messages = session.history(format)
    text = json.dumps(list(messages))
    assert all(each in text for each in ("print(6*7)", "42", "timed out", "A dot is round.", "A dot."))


@pytest.mark.skipif("RECOLLECT_TRANSCRIPTS" not in os.environ, reason="needs RECOLLECT_TRANSCRIPTS")
def test_public_samples(tmp_path):
    folder = Path(os.environ["RECOLLECT_TRANSCRIPTS"]) / "chatgpt"
    new_events = read_all("chatgpt", folder)
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_bytes())
        session = f"chatgpt:{document['id']}"
        assert drafts_by_key(new_events, session).keys() == document["mapping"].keys()
        assert [json.loads(each.data) for each in of_kind(new_events, Original, session)] == [document]
    document = json.loads((folder / "sample-00.json").read_bytes())
    check_mutations("chatgpt", document, tmp_path / "conversations.json", step=397)


def message(text, **fields):
    return {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [text]}, **fields}


def read_messages(tmp_path, **nodes):
    (tmp_path / "conversations.json").write_text(json.dumps([{"id": "x", "mapping": nodes}]))
    return read_all("chatgpt", tmp_path)


def test_every_entry_is_kept(tmp_path):
    """Together, the originals are the array: entries of projects, entries without an id, and other values."""
    document = [
        {"id": "x", "mapping": {"a": {"message": message("Hello"), "parent": None}}},
        {"id": "p", "title": "P"},
        {"n": 1},
        17,
        None,
    ]
    (tmp_path / "conversations.json").write_text(json.dumps(document))
    with recollect.open(tmp_path / "x.db") as store:
        report = import_files(store, [tmp_path / "conversations.json"])
        assert [note.count for note in report.notes if note.kind == "unknown"] == [4]
        assert [info.id for info in store.list_sessions()] == ["chatgpt:x"]
        assert (report.count("new"), report.count("kept")) == (1, 4)
        originals = [read_originals(store, item.session) for item in report.conversations]
        assert [json.loads(data) for ((_, data),) in originals] == document
        second_report = import_files(store, [tmp_path / "conversations.json"], ImportOptions(again=True))
        assert {item.outcome for item in second_report.conversations} == {"unchanged"}


def test_a_weight_of_zero_is_kept(tmp_path):
    drafts = drafts_by_key(
        read_messages(
            tmp_path, a={"message": message("no", weight=0.0), "children": ["b"]}, b={"message": message("x")}
        )
    )
    assert (drafts["a"].metadata, drafts["b"].metadata) == ({"weight": 0}, None)


def test_content_of_a_known_type_without_a_value_is_not_unknown(tmp_path):
    content = {"content_type": "tether_browsing_display", "result": "", "summary": None, "assets": None}
    events = read_messages(tmp_path, a={"message": {"author": {"role": "tool"}, "content": content}, "parent": None})
    assert of_kind(events, Note) == []


@pytest.mark.parametrize("name", ["export.jsonl", "export.txt", "export.jsonl.gz", "export.jsonl.zst"])
def test_json_lines_are_read_line_by_line(events, tmp_path, name):
    document = json.loads((EXPORT / "conversations.json").read_bytes())
    lines = [json.dumps(document[0]).encode(), b"", json.dumps(document[2]).encode(), b'{"mapping": {"parent": "dam']
    data = b"\n".join(lines)
    data = {"gz": gzip.compress, "st": zstandard.compress}.get(name[-2:], bytes)(data)
    (tmp_path / name).write_bytes(data)
    new_events = read_all("chatgpt", tmp_path / name)
    assert [event.draft.key for event in of_kind(new_events, MessageFound)] == [
        event.draft.key for event in of_kind(events, MessageFound)
    ]
    assert ("malformed", "A conversation is not JSON.") in {(note.kind, note.text) for note in of_notes(new_events)}


def test_bytes_that_are_not_utf_8_are_replaced_and_reported(tmp_path):
    data = json.dumps(
        {"id": "x", "title": "T\xeftle", "mapping": {"a": {"message": message("Hell\xf6"), "parent": None}}}
    )
    path = tmp_path / "conversations.json"
    path.write_bytes(f"[{data}]".encode().decode("unicode_escape").encode("latin-1"))
    events = read_all("chatgpt", path)
    assert of_kind(events, SessionFound)[0].title == "T\ufffdtle"
    assert drafts_by_key(events)["a"].parts == (TextPart(text="Hell\ufffd"),)
    assert [note.text for note in of_notes(events)] == ["Bytes that are not UTF-8 were replaced."]
    (original,) = of_kind(events, Original)
    assert b"T\xeftle" in original.data
