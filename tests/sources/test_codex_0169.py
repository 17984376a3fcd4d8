"""Rollouts that Codex 0.169 wrote with a stub of its provider: texts over 300 characters were cut, paths replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transcript_checks import check_events, check_steps, lines_of, outcome, read_events, transcripts

from recollect import formats
from recollect.model.message import TextPart, ToolResultPart
from recollect.sources.codex import SOURCE
from recollect.sources.files import FolderTree
from recollect.sources.source import INJECTION_KEY, ForkFound, MessageFound, Note, ReadFromStart, SessionFound

FIXTURES = Path(__file__).parent / "fixtures" / "codex_0169"
TREE, ALL = transcripts(SOURCE, FIXTURES)
APP, APP_FORK, PARENT, AGENT, AGENT_WITH_CONTEXT = (
    "01a1f5a3-3340-7a81-ae65-a550f43d6dfd",
    "01a1f5a3-35a2-75d1-94c9-9a7266d775b8",
    "01a1f5a3-ff62-7a60-99b3-f0fcab1a46a4",
    "01a1f5a4-0235-7cb2-bde2-66bcaea42cda",
    "01a1f5a4-025e-7773-8d81-9e1cba7c6a33",
)
THREADS = (APP, APP_FORK, PARENT, AGENT, AGENT_WITH_CONTEXT)


def transcript_of(thread: str) -> Any:
    return next(each for name, each in ALL.items() if thread in name)


def read(thread: str) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return the events of a conversation, its fields, and its messages by key."""
    events = read_events(SOURCE, TREE, transcript_of(thread))
    check_events(events)
    sessions, messages, _, _ = outcome(events)
    id = f"codex:{thread}"
    return events, sessions[id], {key: value for (session, key), value in messages.items() if session == id}


def texts_of(events: list[Any]) -> list[str]:
    """Return what a person or a model wrote."""
    parts = [part for event in events if isinstance(event, MessageFound) for part in event.draft.parts]
    return [part.text for part in parts if type(part) is TextPart and not part.metadata]


def read_as(folder: Path, name: str, lines: list[dict[str, Any]]) -> list[Any]:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    tree, by_name = transcripts(SOURCE, folder)
    events = read_events(SOURCE, tree, by_name[name])
    check_events(events)
    return events


def line_of(kind: str, payload: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2025-07-12T10:00:00.000Z", "type": kind, "payload": payload, **fields}


def question(*texts: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    return line_of("response_item", {"type": "message", "role": "user", "content": content})


@pytest.mark.parametrize("thread", THREADS)
def test_reading_in_two_steps_has_the_same_result(thread: str):
    check_steps(SOURCE, TREE, transcript_of(thread))


def test_nothing_is_unknown_and_nothing_is_doubled():
    for thread in THREADS:
        events, _, _ = read(thread)
        assert not [event for event in events if isinstance(event, Note)]
    texts = texts_of(read(APP)[0])
    assert len(texts) == len(set(texts))
    assert texts[-2:] == ["Two commands.", "Alpha complete."]


def test_a_conversation_with_tools_and_a_compaction():
    events, fields, _ = read(APP)
    assert (fields["model"], fields["provider"], fields["working_dir"]) == ("gpt-5.1-codex", "stub", "/srv/garden")
    assert fields["metadata"]["git_branch"] == "feature-x"
    drafts = [event.draft for event in events if isinstance(event, MessageFound)]
    results = [part for draft in drafts for part in draft.parts if type(part) is ToolResultPart]
    assert [(part.status, (part.metadata or {})["exit_code"]) for part in results] == [
        ("success", 0), ("error", 3), ("success", 0), ("success", 0),
    ]  # fmt: skip
    final = {draft.key: draft for draft in drafts}
    assert [draft.output_tokens for draft in final.values() if draft.role == "assistant"][-4:] == [100, 101, 102, 103]
    items = formats.write(list(final.values()), "openai-responses")
    assert [item["type"] for item in items if item.get("type", "message") != "message"][:3] == [
        "reasoning", "function_call", "function_call",
    ]  # fmt: skip


def test_a_fork_of_an_archived_conversation_shares_its_past_and_has_the_model():
    events, fields, messages = read(APP_FORK)
    (fork,) = (event for event in events if isinstance(event, ForkFound))
    assert (fork.origin, fork.last in messages) == (f"codex:{APP}", True)
    assert (fields["title"], fields["model"], fields["archived"]) == ("Forked in app", "gpt-5.1-codex", True)
    assert texts_of(events)[-2:] == ["Forked in app", "Reply to: Forked in app"]


def test_a_sub_agent_with_the_context_of_its_parent_shares_it():
    events, fields, messages = read(AGENT_WITH_CONTEXT)
    (fork,) = (event for event in events if isinstance(event, ForkFound))
    assert (fork.origin, fields["parent"]) == (f"codex:{PARENT}", f"codex:{PARENT}")
    assert fork.last in read(PARENT)[2]
    assert fields["title"] == "CHILDTASK with context"
    own = list(messages)[list(messages).index(fork.last) + 1 :]
    assert own
    assert not set(own) & set(read(PARENT)[2])


def test_a_sub_agent_of_its_own_is_no_fork():
    events, fields, _ = read(AGENT)
    assert fields["parent"] == f"codex:{PARENT}"
    assert fields["title"] == "CHILDTASK please"
    assert not [event for event in events if isinstance(event, ForkFound)]


def test_the_last_name_in_the_index_is_the_title():
    (event,) = read_events(SOURCE, TREE, ALL["session_index.jsonl"])
    assert event == SessionFound(f"codex:{APP}", title="My thread name", title_rank=3)


def test_a_partial_copy_is_read_again_when_the_file_grows(tmp_path: Path):
    lines = lines_of(TREE, transcript_of(AGENT_WITH_CONTEXT).name)
    cut = next(index for index, line in enumerate(lines) if line["payload"].get("type") == "task_complete")
    name = f"rollout-2026-11-19T21-08-48-{AGENT_WITH_CONTEXT}.jsonl"
    (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines[:cut]))
    tree, by_name = transcripts(SOURCE, tmp_path)
    reader = SOURCE.read_lines(tree, by_name[name], None)
    for number, line in enumerate(lines[:cut], 1):
        list(reader.read_line(number, line))
    reader.finish()
    continuation = SOURCE.read_lines(tree, by_name[name], json.loads(json.dumps(reader.state())))
    with pytest.raises(ReadFromStart):
        continuation.read_line(cut + 1, lines[cut])


def test_the_tags_around_an_image_are_context_and_no_title(tmp_path: Path):
    tag = '<image name=[Image #1] path="map.png">'
    events = read_as(tmp_path, "a.jsonl", [question(tag, "</image>", "Where is the pump?")])
    (message,) = (event for event in events if isinstance(event, MessageFound))
    assert [(part.metadata or {}).get(INJECTION_KEY) for part in message.draft.parts] == ["image", "image", None]
    assert [event.title for event in events if isinstance(event, SessionFound) and event.title] == [
        "Where is the pump?"
    ]
    events = read_as(tmp_path, "b.jsonl", [question("<image> is an HTML tag")])
    assert texts_of(events) == ["<image> is an HTML tag"]


def test_meta_data_alone_is_not_a_conversation(tmp_path: Path):
    meta = line_of("session_meta", {"id": APP, "timestamp": "2025-07-12T10:00:00.000Z", "cwd": "/srv/garden"})
    (tmp_path / "a.jsonl").write_text(json.dumps(meta))
    tree, by_name = transcripts(SOURCE, tmp_path)
    reader = SOURCE.read_lines(tree, by_name["a.jsonl"], None)
    reader.read_line(1, meta)
    reader.finish()
    assert reader.session is None
    reader.read_line(2, question("Hello"))
    assert reader.session == f"codex:{APP}"


def test_a_line_without_a_time_has_that_of_the_line_before(tmp_path: Path):
    meta = {"id": APP, "timestamp": "2025-07-12T10:00:00.000Z", "instructions": None}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    output = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    events = read_as(tmp_path, "a.jsonl", [meta, item, output])
    drafts = [event.draft for event in events if isinstance(event, MessageFound)]
    assert [draft.created_at_ms for draft in drafts] == [1_752_314_400_000] * 2
    assert drafts[1].parts[0].metadata is None  # nobody knows when the tool ended


def test_the_history_of_prompts_is_reported_and_not_imported(tmp_path: Path):
    (tmp_path / "history.jsonl").write_text(json.dumps({"session_id": APP, "ts": 1763000000, "text": "Hello"}) + "\n")
    tree = FolderTree(tmp_path)
    (transcript,) = SOURCE.detect(tree, tree.names())
    (note,) = SOURCE.read(tree, transcript)
    assert isinstance(note, Note)
    assert (note.kind, transcript.kind) == ("skipped", "document")


def test_a_value_that_json_lacks_does_not_change_in_the_state(tmp_path: Path):
    call = {"type": "function_call", "name": "shell", "call_id": "t1", "arguments": float("nan")}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done"}]}
    lines = [question("Hello"), line_of("response_item", call), line_of("response_item", text)]
    read_as(tmp_path, "a.jsonl", lines)
    tree, by_name = transcripts(SOURCE, tmp_path)
    check_steps(SOURCE, tree, by_name["a.jsonl"])
