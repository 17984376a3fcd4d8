"""Claude Code: files next to a transcript, files without a conversation, and what the tool writes itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transcript_checks import check_events, read_events, transcripts

from recollect.formats.registry import render
from recollect.model.json import encode
from recollect.model.message import DataPart, Draft, TextPart, ToolResultPart
from recollect.sources.claude_code import SOURCE
from recollect.sources.files import FolderTree
from recollect.sources.source import (
    INJECTION_KEY,
    ActiveFound,
    CompactionFound,
    MessageFound,
    Note,
    SessionFound,
    Transcript,
)

FIXTURES = Path(__file__).parent / "fixtures" / "claude_code"
QUEUE_OUTPUT = "queue/aaaaaaaa-0000-4000-8000-000000000002/tool-results/b0.txt"


def user_line(uuid: str, parent: str | None, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **fields}


def command_output(uuid: str, parent: str | None, text: str) -> dict[str, Any]:
    line = {"type": "system", "subtype": "local_command", "uuid": uuid, "parentUuid": parent, "sessionId": "s"}
    return {**line, "content": f"<local-command-stdout>{text}</local-command-stdout>"}


def result_line(path: str) -> dict[str, Any]:
    text = f"<persisted-output>\nOutput too large (9KB). Full output saved to: {path}\n\nPreview (first 2KB):\nbegin"
    return user_line("a", None, [{"type": "tool_result", "tool_use_id": "t", "content": text}])


def read_as(folder: Path, name: str, lines: list[dict[str, Any]]) -> list[Any]:
    """Write a transcript, and return its events."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    tree, by_name = transcripts(SOURCE, folder)
    events = read_events(SOURCE, tree, by_name[name])
    check_events(events)
    return events


def drafts_of(events: list[Any]) -> list[Draft]:
    return [event.draft for event in events if isinstance(event, MessageFound)]


def title_of(events: list[Any]) -> str | None:
    titles = [event.title for event in events if isinstance(event, SessionFound) and event.title]
    return titles[-1] if titles else None


# Files next to the transcripts


def test_the_full_output_of_a_tool_is_read_and_not_sent_to_models():
    tree, by_name = transcripts(SOURCE, FIXTURES)
    (transcript,) = (each for name, each in by_name.items() if name.startswith("queue/"))
    assert transcript.files == (QUEUE_OUTPUT,)
    drafts = drafts_of(read_events(SOURCE, tree, transcript))
    (draft,) = (draft for draft in drafts if "full_output" in (draft.parts[-1].metadata or {}))
    answer, full = draft.parts
    assert isinstance(answer, ToolResultPart)
    assert isinstance(full, DataPart)
    assert full.data == (FIXTURES / QUEUE_OUTPUT).read_text()
    assert full.metadata == {"full_output": {"file": "tool-results/b0.txt", "call_id": answer.call_id}}
    for format in ("anthropic", "openai", "openai-responses", "ai-sdk"):
        text = encode(render([draft], format))
        assert "begin" in text
        assert "the last line" not in text


def test_a_fork_reads_the_output_in_the_folder_of_its_origin(tmp_path: Path):
    (tmp_path / "s0" / "tool-results").mkdir(parents=True)
    (tmp_path / "s0" / "tool-results" / "a.txt").write_text("complete")
    for name in ("s1.jsonl", "s0/subagents/workflows/agent-7.jsonl"):
        (draft,) = drafts_of(read_as(tmp_path, name, [result_line("C:\\u\\p\\s0\\tool-results\\a.txt")]))
        assert [part.data for part in draft.parts if isinstance(part, DataPart)] == ["complete"]


@pytest.mark.parametrize("path", ["secret.txt", "s0/tool-results/..", "../tool-results/secret.txt", "s0/x/secret.txt"])
def test_an_output_elsewhere_is_not_read(tmp_path: Path, path: str):
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    project = tmp_path / "project"
    (project / "s0").mkdir(parents=True)
    (project / "s0" / "tool-results").symlink_to(tmp_path / "outside")
    for each in (path, "s0/tool-results/secret.txt"):  # the folder is a link
        (draft,) = drafts_of(read_as(project, "s0.jsonl", [result_line(f"/p/{each}")]))
        assert [type(part) for part in draft.parts] == [ToolResultPart]


@pytest.mark.parametrize("data", [b"caf\xe9", b"x" * ((4 << 20) + 1)], ids=["no text", "too large"])
def test_an_output_that_cannot_be_a_part_is_reported(tmp_path: Path, data: bytes):
    (tmp_path / "s0" / "tool-results").mkdir(parents=True)
    (tmp_path / "s0" / "tool-results" / "a.txt").write_bytes(data)
    events = read_as(tmp_path, "s0.jsonl", [result_line("/p/s0/tool-results/a.txt")])
    notes = [event for event in events if isinstance(event, Note)]
    assert [(note.kind, note.text) for note in notes] == [
        ("missing", "The file with the full output of a tool cannot be read.")
    ]


def test_a_single_file_of_a_sub_agent_has_no_sidecar(tmp_path: Path):
    path = tmp_path / "agent-7f.jsonl"
    path.write_bytes(encode(user_line("a", None, "Count", isSidechain=True, agentId="7f", description="No")).encode())
    tree = FolderTree(path)
    (transcript,) = SOURCE.detect(tree, tree.names())
    assert transcript.files == ()
    assert title_of(read_events(SOURCE, tree, transcript)) == "Count"


def test_the_history_of_prompts_is_reported_and_not_imported(tmp_path: Path):
    prompt = {"display": "Hello", "pastedContents": {}, "timestamp": 1763000000000, "project": "/srv/app"}
    (tmp_path / "history.jsonl").write_text(f"{encode(prompt)}\n" * 2)
    tree = FolderTree(tmp_path)
    (transcript,) = SOURCE.detect(tree, tree.names())
    (note,) = SOURCE.read(tree, transcript)
    assert isinstance(note, Note)
    assert (note.kind, transcript.kind) == ("skipped", "document")


def test_a_reader_without_messages_has_no_session(tmp_path: Path):
    tree = FolderTree(tmp_path)
    transcript = Transcript("claude-code", "0d8bfb35-7a0e-4d0b-9a59-3f0c27b2b7ee.jsonl", "lines")
    reader = SOURCE.read_lines(tree, transcript, None)
    list(reader.read_line(1, {"type": "mode", "mode": "normal", "sessionId": "s"}))
    list(reader.read_line(2, {"type": "system", "subtype": "informational", "uuid": "a", "parentUuid": None}))
    assert reader.session is None
    list(reader.read_line(3, user_line("b", "a", "Hello")))
    assert reader.session == "claude-code:0d8bfb35-7a0e-4d0b-9a59-3f0c27b2b7ee"


# What the tool writes itself


def test_the_output_of_a_command_is_context(tmp_path: Path):
    lines = [
        user_line("a", None, "Hello"),
        command_output("b", "a", "Cost: $1"),
        user_line("c", "b", "More"),
    ]  # fmt: skip
    events = read_as(tmp_path, "x.jsonl", lines)
    drafts = drafts_of(events)
    assert [draft.key for draft in drafts] == ["a", "b", "c"]
    assert drafts[1].role == "user"
    assert [part.metadata for part in drafts[1].parts] == [{INJECTION_KEY: "command_output"}]
    assert title_of(events) == "Hello"


def test_a_placeholder_of_the_tool_is_context(tmp_path: Path):
    message = {"id": "m", "role": "assistant", "model": "<synthetic>", "content": [
        {"type": "text", "text": "No response requested."},
    ]}  # fmt: skip
    answer = {**user_line("b", "a", ""), "type": "assistant", "message": message}
    draft = drafts_of(read_as(tmp_path, "x.jsonl", [user_line("a", None, "Hello"), answer]))[1]
    assert [part.metadata for part in draft.parts] == [{INJECTION_KEY: "placeholder"}]
    assert draft.model is None


def test_a_line_without_a_time_has_that_of_the_line_before(tmp_path: Path):
    lines = [user_line("a", None, "Hello"), user_line("b", "a", "More")]
    lines[0]["timestamp"] = "2025-06-01T10:00:00.000Z"
    lines[1].pop("timestamp", None)
    times = [draft.created_at_ms for draft in drafts_of(read_as(tmp_path, "x.jsonl", lines))]
    assert times == [1_748_772_000_000] * 2


@pytest.mark.parametrize(
    "details",
    [
        {"preservedSegment": {"headUuid": "c", "tailUuid": "d"}},
        {"preservedMessages": {"anchorUuid": "f", "uuids": ["c", "d"]}},
    ],
)
def test_a_compaction_ends_before_the_preserved_messages(tmp_path: Path, details: dict[str, Any]):
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "e", "parentUuid": None, "sessionId": "s"}
    lines = [
        *(user_line(uuid, parent, f"text {uuid}") for uuid, parent in zip("abcd", (None, "a", "b", "c"), strict=True)),
        {**boundary, "logicalParentUuid": "d", "compactMetadata": {"trigger": "auto", **details}},
        user_line("f", "e", "The summary.", isCompactSummary=True),
        user_line("g", "f", "More"),
    ]
    events = read_as(tmp_path, "x.jsonl", lines)
    compactions = [event for event in events if isinstance(event, CompactionFound)]
    assert [(each.last, each.summary) for each in compactions] == [("b", "The summary.")]


def test_the_output_of_two_commands_with_one_id_is_not_lost(tmp_path: Path):
    lines = [user_line("a", None, "Hello"), command_output("b", "a", "one"), command_output("b", "a", "two")]
    parts = [part for draft in drafts_of(read_as(tmp_path, "x.jsonl", lines)) for part in draft.parts]
    texts = [part.text for part in parts if isinstance(part, TextPart) and "stdout" in part.text]
    assert texts == [f"<local-command-stdout>{text}</local-command-stdout>" for text in ("one", "two")]


def answer_line(uuid: str, parent: str | None, id: str, text: str) -> dict[str, Any]:
    message = {"id": id, "role": "assistant", "content": [{"type": "text", "text": text}]}
    return {**user_line(uuid, parent, ""), "type": "assistant", "message": message}


def test_a_late_line_of_an_earlier_response_does_not_end_the_conversation(tmp_path: Path):
    lines = [
        user_line("a", None, "Hello"), answer_line("b", "a", "m1", "Hi."), user_line("c", "b", "One"),
        answer_line("d", "c", "m2", "1"), user_line("e", "b", "Two"), answer_line("f", "b", "m1", "Late."),
    ]  # fmt: skip
    events = read_as(tmp_path, "x.jsonl", lines)
    assert [event.last for event in events if isinstance(event, ActiveFound)] == ["e"]
    assert [draft.key for draft in drafts_of(events) if len(draft.parts) > 1] == ["b"]
