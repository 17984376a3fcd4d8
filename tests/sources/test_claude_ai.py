from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from document_checks import FIXTURES, check_mutations, drafts_by_key, of_kind, parents_by_key, path_to, read_all

import recollect
from recollect import formats
from recollect.model.message import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.sources.source import ActiveFound, MessageFound, Note, Original, SessionFound

EXPORT = FIXTURES / "claude-ai"
TREE = "claude-ai:c1a0de00-0000-4000-8000-000000000001"
LINE = "claude-ai:c1a0de00-0000-4000-8000-000000000002"


@pytest.fixture(scope="module")
def events():
    return read_all("claude-ai", EXPORT)


@pytest.fixture(scope="module")
def drafts(events):
    return drafts_by_key(events, TREE)


def test_the_fields_of_a_conversation(events):
    tree, line = of_kind(events, SessionFound)
    assert (tree.session, tree.title, tree.title_rank) == (TREE, "Sorting", 2)
    assert (tree.created_at, tree.updated_at) == (1740823200000, 1740826800000)
    assert (tree.provider, tree.pinned) == ("anthropic", True)
    assert tree.metadata == {"project": {"uuid": "p1", "name": "Notes"}}
    assert (line.session, line.title, line.title_rank) == (LINE, "Hello", 1)


def test_branches_and_older_exports_without_parents(events):
    assert parents_by_key(events, TREE) == {
        "m1": None, "m2": "m1", "m3": "m2", "m4": "m3", "m5": "m2", "m6": "m5", "m7": "m6",
    }  # fmt: skip
    assert parents_by_key(events, LINE) == {"l1": None, "l2": "l1"}
    assert [event.last for event in of_kind(events, ActiveFound)] == ["m7", "l2"]


def test_attachments_and_files(drafts):
    text, attachment, file = drafts["m1"].parts
    assert text.text == "Sort this list"
    assert isinstance(attachment, AttachmentPart)
    assert (attachment.name, attachment.text, attachment.mime_type) == ("list.txt", "3\n1\n2", "text/plain")
    assert isinstance(file, AttachmentPart)
    assert (file.name, file.mime_type, file.metadata) == ("photo.png", "image/png", {"file_uuid": "f1"})


def test_an_answer_with_reasoning_returns_to_its_provider_exactly(drafts):
    draft = drafts["m2"]
    assert draft.format == "anthropic"
    assert draft.created_at_ms == 1740823202500
    assert formats.render(draft, "anthropic") == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Three numbers.", "signature": "c2lnbmF0dXJl"},
                {"type": "text", "text": "1, 2, 3"},
            ],
        }
    ]
    assert draft.parts[0].metadata["summaries"] == [{"summary": "Counting"}]


def test_an_answer_with_tools_keeps_calls_and_results_in_order(drafts):
    reasoning, call, result, artifact, failure, text = drafts["m4"].parts
    assert isinstance(reasoning, ReasoningPart)
    assert reasoning.native == {"signature": "c2ln"}
    assert isinstance(call, ToolCallPart)
    assert (call.call_id, call.tool, call.input) == ("toolu_1", "repl", {"code": "sorted(x)"})
    assert call.metadata["started_at"] == 1740823204000
    assert isinstance(result, ToolResultPart)
    assert (result.call_id, result.status, result.text) == ("toolu_1", "success", "[1, 2, 3]")
    assert artifact.call_id == failure.call_id == "m4:2"
    assert failure.status == "error"
    assert failure.content == (TextPart(text="failed"), DataPart(data={"type": "hologram", "depth": 1}))
    assert text == TextPart(text="Done.", metadata=text.metadata)


def test_text_without_blocks_and_unknown_blocks(events, drafts):
    assert drafts["m7"].parts == (TextPart(text="Only text"),)
    assert drafts["m6"].parts[1] == DataPart(data={"type": "hologram", "depth": 3})
    assert Note("unknown", "conversations.json", "block hologram") in events


def test_the_originals_equal_the_entries(events):
    document = json.loads((EXPORT / "conversations.json").read_bytes())
    assert [json.loads(each.data) for each in of_kind(events, Original)] == document


def test_a_zip_leads_to_the_same_messages(events, tmp_path):
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in EXPORT.iterdir():
            archive.write(path, f"data/{path.name}")
    assert of_kind(read_all("claude-ai", tmp_path / "export.zip"), MessageFound) == of_kind(events, MessageFound)


def test_duplicate_ids_and_cycles_lose_no_message(tmp_path):
    rows = [
        {"uuid": "a", "sender": "human", "text": "1", "parent_message_uuid": "b"},
        {"uuid": "b", "sender": "assistant", "text": "2", "parent_message_uuid": "a"},
        {"uuid": "a", "sender": "human", "text": "3", "parent_message_uuid": "zz"},
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"uuid": "x", "chat_messages": rows}]))
    texts = {getattr(draft.parts[0], "text", None) for draft in drafts_by_key(read_all("claude-ai", path)).values()}
    assert texts == {"1", "2", "3"}


def test_hostile_values_and_truncation(tmp_path, long):
    document = json.loads((EXPORT / "conversations.json").read_bytes())
    check_mutations("claude-ai", document, tmp_path / "conversations.json", step=1 if long else 23)


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses"])
def test_the_imported_path_is_a_valid_history(events, tmp_path, format):
    with recollect.open(tmp_path / "store.db") as store:
        session = store.session("s")
        session.append(path_to(events, "m4", TREE))
        messages = session.history(format)
    text = json.dumps(list(messages))
    assert all(each in text for each in ("Sort this list", "sorted(x)", "[1, 2, 3]", "failed", "Done."))
    if format == "anthropic":
        results = [block for message in messages for block in message["content"] if "tool_use_id" in block]
        assert [result.get("is_error", False) for result in results] == [False, True]


@pytest.mark.skipif("RECOLLECT_TRANSCRIPTS" not in os.environ, reason="needs RECOLLECT_TRANSCRIPTS")
def test_public_samples():
    folder = Path(os.environ["RECOLLECT_TRANSCRIPTS"]) / "claude-ai"
    new_events = read_all("claude-ai", folder)
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_bytes())
        session = f"claude-ai:{document['uuid']}"
        drafts = drafts_by_key(new_events, session)
        assert drafts.keys() == {row["uuid"] for row in document["chat_messages"]}
        for row in document["chat_messages"]:
            assert any(getattr(part, "text", None) == row["text"] for part in drafts[row["uuid"]].parts)
        assert [json.loads(each.data) for each in of_kind(new_events, Original, session)] == [document]
