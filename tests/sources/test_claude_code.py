"""Claude Code's transcripts: files that version 2.1.327 wrote, and files of older versions, written by hand."""

from __future__ import annotations

import copy
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from recollect.formats.registry import render
from recollect.model.json import decode, encode
from recollect.model.message import AttachmentPart, Draft, TextPart, ToolCallPart, ToolResultPart, check_draft
from recollect.model.session_ids import check_new_id
from recollect.model.validation import check_message_key
from recollect.sources.claude_code import SOURCE, is_transcript
from recollect.sources.claude_code_content import split_injected
from recollect.sources.files import FolderTree
from recollect.sources.source import (
    INJECTION_KEY,
    ActiveFound,
    CompactionFound,
    Environment,
    ForkFound,
    MessageFound,
    Note,
    ReadFromStart,
    SessionFound,
    SourceEvent,
    Transcript,
)

FIXTURES = Path(__file__).parent / "fixtures" / "claude_code"
SAMPLES = os.environ.get("RECOLLECT_TRANSCRIPTS")
MAIN, FORK = (f"claude-code:{digit * 8}-2222-4333-8444-555555555555" for digit in "12")
EARLY = "claude-code:bbbbbbbb-0000-4000-8000-000000000009"
INLINE, QUEUE, SDK_FORK = (f"claude-code:aaaaaaaa-0000-4000-8000-00000000000{digit}" for digit in "123")
MAIN_FILE, FORK_FILE = (f"{session.partition(':')[2]}.jsonl" for session in (MAIN, FORK))
AGENT = "a2d64d29e0c9ee5e2"
MAX_STATE = 16_384  # bytes


def transcripts(folder: Path = FIXTURES) -> list[tuple[FolderTree, Transcript]]:
    tree = FolderTree(folder)
    return [(tree, transcript) for transcript in SOURCE.detect(tree, tree.names())]


def find(name: str) -> tuple[FolderTree, Transcript]:
    return next((tree, transcript) for tree, transcript in transcripts() if name in transcript.name)


def lines_of(tree: FolderTree, transcript: Transcript) -> list[tuple[int, Any]]:
    rows: list[tuple[int, Any]] = []
    with tree.open(transcript.name) as file:
        for number, raw in enumerate(file, 1):
            try:
                rows.append((number, decode(raw)))
            except (ValueError, RecursionError):
                continue  # the writer reports it
    return rows


class Result(NamedTuple):
    """What remains of the events: the last value of everything."""

    sessions: dict[str, dict[str, Any]]
    messages: dict[tuple[str, str], tuple[str | None, Draft]]
    compactions: set[CompactionFound]
    active: dict[str, str]
    forks: set[ForkFound]


def fold(events: list[SourceEvent]) -> Result:
    result = Result({}, {}, set(), {}, set())
    for event in events:
        match event:
            case SessionFound():
                fields = result.sessions.setdefault(event.session, {"metadata": {}})
                for name, value in event._asdict().items():
                    if name == "metadata":
                        fields["metadata"].update(value or {})
                    elif value not in (None, (), 0):
                        fields[name] = value
            case MessageFound():
                assert event.draft.key is not None
                result.messages[event.session, event.draft.key] = (event.parent, event.draft)
            case CompactionFound():
                result.compactions.add(event)
            case ActiveFound():
                result.active[event.session] = event.last
            case ForkFound():
                result.forks.add(event)
            case _:
                pass
    return result


def read(tree: FolderTree, transcript: Transcript, rows: list[tuple[int, Any]] | None = None) -> list[SourceEvent]:
    reader = SOURCE.read_lines(tree, transcript, None)
    events = [
        event
        for number, line in (lines_of(tree, transcript) if rows is None else rows)
        for event in reader.read_line(number, line)
    ]
    return [*events, *reader.finish()]


def read_fixture(name: str) -> tuple[list[SourceEvent], Result]:
    events = read(*find(name))
    return events, fold(events)


def path_to(result: Result, session: str, key: str) -> list[Draft]:
    path: list[Draft] = []
    current: str | None = key
    while current is not None:
        current, draft = result.messages[session, current]
        path.append(draft)
    return path[::-1]


def check_events(events: list[SourceEvent]) -> None:
    """Check what a writer relies on for any data."""
    sessions: set[str] = set()
    messages: set[tuple[str, str]] = set()
    for event in events:
        if isinstance(event, Note):
            assert event.text.isprintable()
            assert len(event.text) < 120
            continue
        if isinstance(event, SessionFound):
            sessions.add(check_new_id(event.session))
            encode(event._asdict()).encode()
        assert event.session in sessions
        if isinstance(event, MessageFound):
            key = check_message_key(event.draft.key)
            assert check_draft(event.draft).key == key
            assert event.parent is None or (event.session, event.parent) in messages
            assert event.parent != key
            messages.add((event.session, key))
        if isinstance(event, CompactionFound | ActiveFound):
            assert (event.session, event.last) in messages


ALL = [pytest.param(tree, transcript, id=transcript.name) for tree, transcript in transcripts()]


# Files


def test_discover_looks_where_the_tool_keeps_projects():
    environment = Environment(Path("/home/user"), {}, "linux")
    assert SOURCE.discover(environment) == [
        Path("/home/user/.claude/projects"),
        Path("/home/user/.config/claude/projects"),
    ]
    elsewhere = environment._replace(variables={"CLAUDE_CONFIG_DIR": "/data/claude"})
    assert SOURCE.discover(elsewhere) == [Path("/data/claude/projects")]


def test_detect_finds_every_transcript_and_the_file_of_a_sub_agent():
    files = {transcript.name: transcript.files for _, transcript in transcripts()}
    agent = f"projects/-srv-project/{MAIN.removeprefix('claude-code:')}/subagents/agent-{AGENT}"
    assert files.pop(f"{agent}.jsonl") == (f"{agent}.meta.json",)
    assert len(files) == 7
    assert files.pop(f"queue/{QUEUE.removeprefix('claude-code:')}.jsonl") == (
        f"queue/{QUEUE.removeprefix('claude-code:')}/tool-results/b0.txt",
    )
    assert set(files.values()) == {()}


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"not json\n",
        b'{"role":"user","message":{"content":[]}}\n',
        b'{"type":"user","content":"no ids"}\n',
        b'{"timestamp":"2026-01-01","type":"session_meta","payload":{"id":"x","sessionId":"y"}}\n',
        b'{"sessionId":"x","projectHash":"y","startTime":"z","kind":"main"}\n',
        b'{"uuid":"a","parentUuid":null,"sessionId":"b","type":"user","message":{"role":"user","parts":[]}}\n',
        b'[{"type":"user","uuid":"a","sessionId":"b","isSidechain":false}]\n',
    ],
)
def test_detect_leaves_the_files_of_other_tools(head: bytes):
    assert not is_transcript(head)


def test_detect_recognizes_a_first_line_that_is_longer_than_the_head():
    line = '{"type":"user","isSidechain":false,"sessionId":"s","uuid":"u","message":{"content":"' + "x" * 100_000
    assert is_transcript(line.encode()[:65_536])


# What the real tool writes


def test_response_of_several_lines_is_one_message_and_its_results_are_one_path():
    events, result = read_fixture(MAIN_FILE)
    calls = [draft for _, draft in result.messages.values() if len([*draft_calls(draft)]) == 2]
    assert len(calls) == 1
    assert [type(part).__name__ for part in calls[0].parts] == [
        "ReasoningPart",
        "TextPart",
        "ToolCallPart",
        "ToolCallPart",
    ]
    assert (calls[0].input_tokens, calls[0].output_tokens, calls[0].model) == (151, 51, "claude-sonnet-4-5")
    path = path_to(result, MAIN, result.active[MAIN])
    assert len(path) == len(result.messages)  # nothing is on a dead branch
    statuses = [part.status for draft in path for part in draft.parts if isinstance(part, ToolResultPart)]
    assert statuses == ["error", "success", "success"]
    assert not [event for event in events if isinstance(event, Note)]


def draft_calls(draft: Draft) -> Iterator[ToolCallPart]:
    return (part for part in draft.parts if isinstance(part, ToolCallPart))


def test_history_goes_back_to_the_provider_as_it_was_written():
    tree, transcript = find(MAIN_FILE)
    result = fold(read(tree, transcript))
    expected: list[dict[str, Any]] = []
    ids: list[str | None] = []
    for _, line in lines_of(tree, transcript):
        if line.get("subtype") == "local_command":  # the tool sends it as a message of the user
            line = {"type": "user", "message": {"role": "user", "content": line["content"]}}  # noqa: PLW2901
        if line["type"] not in ("user", "assistant"):
            continue
        message = line["message"]
        if line["type"] == "assistant" and message["id"] in ids:
            expected[ids.index(message["id"])]["content"] += message["content"]
            continue
        content = message["content"]
        expected.append({"role": message["role"], "content": copy.copy(content)})
        ids.append(message.get("id"))
    assert render(path_to(result, MAIN, result.active[MAIN]), "anthropic") == expected


def test_fields_of_the_session():
    fields = read_fixture(MAIN_FILE)[1].sessions[MAIN]
    assert fields["title"] == "DO-PARALLEL first question"
    assert fields["title_rank"] == 1
    assert fields["working_dir"] == "/srv/project"
    assert (fields["model"], fields["provider"]) == ("claude-sonnet-4-5", "anthropic")
    assert fields["system_prompt"] == "You are a coding agent.\n\nAnswer briefly."
    assert fields["created_at"] < fields["updated_at"]
    assert fields["metadata"] == {"version": "2.1.327"}


def test_error_of_the_api_is_a_message_with_an_error():
    _, result = read_fixture(MAIN_FILE)
    draft = result.messages[MAIN, result.active[MAIN]][1]
    assert draft.state == "error"
    assert draft.model is None
    assert draft.error == {
        "message": "API Error: 400 Stub refuses this prompt.",
        "status": 400,
        "type": "invalid_request_error",
    }


def test_file_of_a_sub_agent_is_a_session_with_a_parent():
    events, result = read_fixture(f"agent-{AGENT}")
    session = f"{MAIN}:agent:{AGENT}"
    fields = result.sessions[session]
    assert fields["parent"] == MAIN
    assert (fields["title"], fields["title_rank"]) == ("Count files", 2)
    assert fields["metadata"]["tool_call_id"] == "toolu_stub_0003_1"
    assert fields["metadata"]["agent_type"] == "general-purpose"
    assert len(path_to(result, session, result.active[session])) == len(result.messages) == 5
    check_events(events)


def test_sub_agent_is_named_in_the_result_of_its_call():
    _, result = read_fixture(MAIN_FILE)
    parts = [part for _, draft in result.messages.values() for part in draft.parts]
    assert [part.metadata for part in parts if isinstance(part, ToolResultPart) and part.metadata] == [
        {"agent_id": AGENT}
    ]


def test_sub_agent_has_the_same_session_if_its_file_is_imported_alone():
    tree, transcript = find(f"agent-{AGENT}")
    path = tree.local_path(transcript.name)
    assert path is not None
    alone = FolderTree(path)
    events = read(alone, next(iter(SOURCE.detect(alone, alone.names()))))
    assert {event.session for event in events if isinstance(event, MessageFound)} == {f"{MAIN}:agent:{AGENT}"}


def test_fork_names_the_last_message_that_it_shares():
    _, result = read_fixture(FORK_FILE)
    _, origin = read_fixture(MAIN_FILE)
    (fork,) = result.forks
    assert fork.origin == MAIN
    shared = path_to(origin, MAIN, fork.last)
    assert path_to(result, FORK, fork.last) == shared
    assert len(shared) == 11


def test_compaction_keeps_the_preserved_messages():
    _, result = read_fixture(FORK_FILE)
    (compaction,) = result.compactions
    assert compaction.summary.endswith("Summary of everything.")
    kept_messages = [draft for parent, draft in result.messages.values() if parent == compaction.last]
    assert [draft.role for draft in kept_messages] == ["assistant"]  # compactMetadata.preservedSegment
    texts = [draft.parts for _, draft in result.messages.values()]
    assert not [part for parts in texts for part in parts if isinstance(part, TextPart) and "Summary:" in part.text]
    path = path_to(result, FORK, result.active[FORK])
    assert len(path) == len(result.messages)


# Older versions, and what people do


def test_lines_of_sub_agents_in_the_same_file_are_sessions_of_their_own():
    _, result = read_fixture("inline/")
    agents = {session for session, _ in result.messages} - {INLINE}
    assert agents == {f"{INLINE}:agent:s-1", f"{INLINE}:agent:t-1"}
    assert all(result.sessions[session]["parent"] == INLINE for session in agents)
    keys = [draft.key for draft in path_to(result, f"{INLINE}:agent:s-1", "s-4")]
    assert keys == ["s-1", "s-2", "s-3", "s-4"]


def test_titles_labels_and_links():
    fields = read_fixture("inline/")[1].sessions[INLINE]
    assert (fields["title"], fields["title_rank"]) == ("Parser, by hand", 3)  # an automatic title does not replace it
    assert fields["labels"] == ("parser",)
    assert fields["metadata"]["pull_request"] == "https://example.com/pull/7"
    assert fields["metadata"]["git_branch"] == "main"


def test_calls_and_results_of_early_versions():
    events, result = read_fixture("early/")
    path = path_to(result, EARLY, "o6")
    assert [draft.key for draft in path] == ["o1", "o2", "o3", "o4", "o5", "o6"]
    calls = [part for draft in path for part in draft.parts if isinstance(part, ToolCallPart)]
    assert [(part.call_id, part.tool, part.arguments) for part in calls] == [
        ("o2", "bash", {"command": "cat depth.txt"}), ("call_7", "read", {"path": "fish.txt"}),
    ]  # fmt: skip
    results = [part for draft in path for part in draft.parts if isinstance(part, ToolResultPart)]
    assert [(part.call_id, part.status) for part in results] == [("o2", "success"), ("call_7", "error")]
    assert not [event for event in events if isinstance(event, Note)]


def test_a_result_without_a_call_is_reported():
    tree, transcript = find("early/")
    rows = [row for row in lines_of(tree, transcript) if row[0] != 2]
    events = read(tree, transcript, rows)
    assert [event.kind for event in events if isinstance(event, Note)] == ["missing"]


def test_an_empty_tag_removes_the_label():
    events, _ = read_fixture("early/")
    assert [event.labels for event in events if isinstance(event, SessionFound) and event.labels is not None] == [
        ("pond",), (),
    ]  # fmt: skip


def test_title_of_a_summary_needs_its_last_message():
    tree, transcript = find("inline/")
    rows = [(number, line) for number, line in lines_of(tree, transcript) if line["type"] != "custom-title"]
    titles = [event.title for event in read(tree, transcript, rows) if isinstance(event, SessionFound) and event.title]
    assert "Build the parser" in titles
    assert "A title of another file" not in titles


def test_usage_of_a_streamed_response_is_the_greatest():
    _, result = read_fixture("inline/")
    draft = result.messages[INLINE, "m-2"][1]
    assert (draft.input_tokens, draft.output_tokens) == (114, 55)
    assert draft.metadata is not None
    assert draft.metadata["usage"]["cache_read_input_tokens"] == 100
    assert [part.call_id for part in draft_calls(draft)] == ["toolu_1", "toolu_2"]


def test_results_in_any_order_are_one_path_and_an_edited_question_is_a_branch():
    _, result = read_fixture("inline/")
    parents = {key: parent for (session, key), (parent, _) in result.messages.items() if session == INLINE}
    assert (parents["m-5"], parents["m-6"], parents["m-7"]) == ("m-2", "m-5", "m-6")
    assert parents["m-8"] == parents["m-13"] == "m-7"


def test_second_result_of_a_call_is_a_branch():
    tree, transcript = find("inline/")
    rows = lines_of(tree, transcript)
    again = copy.deepcopy(next(line for _, line in rows if line.get("uuid") == "m-12"))
    again["uuid"] = "m-12b"
    result = fold(read(tree, transcript, [*rows, (len(rows) + 1, again)]))
    assert result.messages[INLINE, "m-12"][0] == result.messages[INLINE, "m-12b"][0] == "m-11"


def kinds(draft: Draft) -> list[str | None]:
    return [None if part.metadata is None else part.metadata.get(INJECTION_KEY) for part in draft.parts]


def test_context_of_the_tool_is_marked():
    _, result = read_fixture("inline/")
    marks = {key: kinds(draft) for (session, key), (_, draft) in result.messages.items() if session == INLINE}
    assert marks["m-1"] == ["ide", None]
    assert marks["m-8"] == ["command"]
    assert marks["m-9"] == ["command_output"]
    assert marks["m-10"] == [None, None]  # quoted within a line
    assert marks["m-12"] == [None, "interruption"]
    assert marks["m-13"] == [None, "reminder"]
    metadata = result.messages[INLINE, "m-12"][1].parts[0].metadata
    assert metadata == {"denied": "user-rejected"}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain", [("plain", None)]),
        ("<system-reminder>a", [("<system-reminder>a", None)]),
        ("<system-reminder>a</system-reminder>", [("<system-reminder>a</system-reminder>", "reminder")]),
        (
            "ask\n<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>\n",
            [
                ("ask\n", None),
                ("<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>\n", "reminder"),
            ],
        ),
        (
            "  <ide_selection>a</ide_selection>ask",
            [("  <ide_selection>a</ide_selection>", "ide"), ("ask", None)],
        ),
        ("", [("", None)]),
    ],
)
def test_split_injected(text: str, pieces: list[tuple[str, str | None]]):
    assert split_injected(text) == pieces


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<system-reminder>\n" * 100_000, 1),
        ("<system-reminder>\n</system-reminder>\n" * 100_000, 1),
        ("x<system-reminder></system-reminder>" * 100_000, 1),
        ("x\n<system-reminder></system-reminder>" * 100_000, 200_000),
        ("x<system-reminder>" * 100_000 + "</system-reminder>", 1),
    ],
)
def test_split_injected_takes_linear_time(text: str, count: int):
    pieces = split_injected(text)
    assert len(pieces) == count
    assert "".join(piece for piece, _ in pieces) == text


def test_prompts_from_the_queue_and_named_files_are_messages():
    _, result = read_fixture("queue/")
    parents = {key: parent for (_, key), (parent, _) in result.messages.items()}
    assert "q-4" not in parents  # an instructions file
    assert (parents["q-5"], parents["q-6"], parents["q-9"], parents["q-10"]) == ("q-3", "q-5", "q-6", "q-9")
    note, image = (result.messages[QUEUE, key][1].parts[0] for key in ("q-2", "q-3"))
    assert isinstance(note, AttachmentPart)
    assert (note.text, note.metadata) == ("remember", {INJECTION_KEY: "file"})
    assert isinstance(image, AttachmentPart)
    assert (image.data, image.mime_type) == ("iVBORw0KGgo=", "image/png")
    assert kinds(result.messages[QUEUE, "q-11"][1]) == ["notification"]
    answer = result.messages[QUEUE, "q-5"][1]
    assert [type(part) for part in answer.parts] == [TextPart, ToolCallPart]  # a repeated block counts once


def test_interrupted_response():
    _, result = read_fixture("queue/")
    assert result.messages[QUEUE, "q-12"][1].state == "interrupted"
    assert kinds(result.messages[QUEUE, "q-13"][1]) == ["interruption"]


def test_compaction_connects_the_messages_around_it():
    _, result = read_fixture("queue/")
    (compaction,) = result.compactions
    assert compaction.last == result.messages[QUEUE, "q-17"][0] == "q-13"


def user_line(uuid: str, parent: str | None, text: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **fields}


def read_as(folder: Path, name: str, lines: list[dict[str, Any]]) -> Result:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    ((tree, transcript),) = transcripts(folder)
    assert transcript.name == name
    events = read(tree, transcript)
    check_events(events)
    return fold(events)


def test_summary_without_a_boundary(tmp_path: Path):
    lines = [
        user_line("a", None, "summary of another file", isCompactSummary=True),
        user_line("b", "a", "continue"),
        user_line("c", None, "summary of this file", isCompactSummary=True),
        user_line("d", "c", "and on"),
    ]
    result = read_as(tmp_path, "x.jsonl", lines)
    session = "claude-code:s"
    assert result.compactions == {CompactionFound(session, "b", "summary of this file", None)}
    assert {key: parent for (_, key), (parent, _) in result.messages.items()} == {"a": None, "b": "a", "d": "b"}
    assert kinds(result.messages[session, "a"][1]) == ["summary"]
    assert result.sessions[session]["title"] == "continue"


def test_sub_agent_in_a_folder_of_an_old_version_and_in_a_renamed_file(tmp_path: Path):
    lines = [
        user_line("a", None, "Count", isSidechain=True, agentId="7f"),
        user_line("b", "a", "more", isSidechain=True, agentId="7f"),
    ]
    for name in ("-srv-app/agent-7f.jsonl", "copy.jsonl"):
        result = read_as(tmp_path / name.partition(".")[0], name, lines)
        assert list(result.sessions) == ["claude-code:s:agent:7f"]
        assert result.sessions["claude-code:s:agent:7f"]["parent"] == "claude-code:s"


def test_name_of_the_file_is_the_id_of_the_session(tmp_path: Path):
    id = "0d8bfb35-7a0e-4d0b-9a59-3f0c27b2b7ee"
    result = read_as(tmp_path, f"{id}.jsonl", [user_line("a", None, "Moved from another session")])
    assert list(result.sessions) == [f"claude-code:{id}"]


def test_file_without_messages_is_not_a_session(tmp_path: Path):
    lines = [{"type": "custom-title", "customTitle": "Empty", "sessionId": "s"}]
    result = read_as(tmp_path, "x.jsonl", lines)
    assert not result.sessions


def test_repeated_and_unknown_lines_are_reported():
    events, result = read_fixture("queue/")
    notes = Counter((event.kind, event.text) for event in events if isinstance(event, Note))
    assert notes == {
        ("skipped", "A line repeats the id of an earlier line."): 1,
        ("malformed", "A line repeats the id of an earlier line."): 1,
        ("unknown", "A line has the unknown type wormhole."): 1,
    }
    (other,) = (
        draft.parts[0] for (_, key), (_, draft) in result.messages.items() if key.endswith("-21") and "line" in key
    )
    assert isinstance(other, TextPart)
    assert other.text == "Continue, but differently"
    assert result.messages[QUEUE, "q-20"][0] == "q-18"  # through the unknown line


def test_fork_by_the_sdk_has_the_keys_of_its_origin():
    _, result = read_fixture("sdk-fork/")
    assert result.forks == {ForkFound(SDK_FORK, INLINE, "m-7")}
    keys = [draft.key for draft in path_to(result, SDK_FORK, result.active[SDK_FORK])]
    assert keys == ["m-1", "m-2", "m-6", "m-7", "k-6", "k-7"]


def test_lines_without_links_and_call_ids():
    events, result = read_fixture("drift/")
    session = "claude-code:drift-1"
    path = path_to(result, session, result.active[session])
    assert [draft.key for draft in path[:-1]] == ["d-1", "d-3", "d-4", "d-5"]
    assert (path[-1].key or "").startswith("line-")
    (call,) = draft_calls(path[1])
    answer = path[2].parts[0]
    assert isinstance(answer, ToolResultPart)
    assert answer.call_id == call.call_id
    notes = {(event.kind, event.text) for event in events if isinstance(event, Note)}
    assert ("unknown", "A line has the unknown type tool_plan.") in notes
    assert ("malformed", "A message has no content that can be read.") in notes


# Reading on


@pytest.mark.parametrize(("tree", "transcript"), ALL)
def test_file_that_is_read_in_two_steps_has_the_same_result(tree: FolderTree, transcript: Transcript):
    rows = lines_of(tree, transcript)
    events = read(tree, transcript, rows)
    check_events(events)
    expected = fold(events)
    restarts = 0
    for count in range(len(rows) + 1):
        for finishes in (True, False):
            first = SOURCE.read_lines(tree, transcript, None)
            events = [event for number, line in rows[:count] for event in first.read_line(number, line)]
            events += first.finish() if finishes else []
            text = json.dumps(first.state())
            assert len(text) < MAX_STATE
            try:
                second = SOURCE.read_lines(tree, transcript, json.loads(text))
                assert second.session == first.session
                later = [event for number, line in rows[count:] for event in second.read_line(number, line)]
                later += second.finish()
            except ReadFromStart:
                restarts += 1
                later = read(tree, transcript, rows)
            assert fold(events + later) == expected
    assert restarts <= {"inline": 26, "drift": 14, "queue": 42, "early": 12}.get(transcript.name.partition("/")[0], 8)


def test_transcript_that_grows_line_by_line_is_not_read_from_its_start():
    tree, transcript = find(FORK_FILE)
    state = None
    events: list[SourceEvent] = []
    rows = lines_of(tree, transcript)
    for number, line in rows:
        reader = SOURCE.read_lines(tree, transcript, state)
        events += [*reader.read_line(number, line), *reader.finish()]
        state = json.loads(json.dumps(reader.state()))
    assert fold(events) == fold(read(tree, transcript, rows))


def test_line_that_follows_one_before_the_state_needs_the_start():
    tree, transcript = find(FORK_FILE)
    rows = lines_of(tree, transcript)
    question = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "again"}}
    reader = SOURCE.read_lines(tree, transcript, None)
    for number, line in rows:
        reader.read_line(number, line)
    for number in range(200):
        line = {
            **question,
            "uuid": f"n-{number}",
            "parentUuid": f"n-{number - 1}" if number else rows[-1][1].get("uuid"),
        }
        list(reader.read_line(1_000 + number, line))
    second = SOURCE.read_lines(tree, transcript, reader.state())
    with pytest.raises(ReadFromStart):
        second.read_line(2_000, {**question, "uuid": "late", "parentUuid": "n-3"})
    events = reader.read_line(2_000, {**question, "uuid": "late", "parentUuid": "n-3"})
    assert [event.parent for event in events if isinstance(event, MessageFound)] == ["n-3"]


def test_state_of_another_version_needs_the_start():
    tree, transcript = find("inline/")
    for state in ({}, {"version": 1}, {"version": 0}):
        with pytest.raises(ReadFromStart):
            SOURCE.read_lines(tree, transcript, state)


def test_memory_and_state_do_not_grow_with_the_content():
    tree, transcript = find("queue/")
    reader = SOURCE.read_lines(tree, transcript, None)
    block = {"type": "text", "text": "x" * 100_000}
    for number in range(300):
        message = {"id": f"msg_{number}", "role": "assistant", "content": [block]}
        line = {"type": "assistant", "uuid": f"u-{number}", "parentUuid": f"u-{number - 1}", "message": message}
        list(reader.read_line(number, line))
    assert len(json.dumps(reader.state())) < MAX_STATE
    second = SOURCE.read_lines(tree, transcript, reader.state())
    line["uuid"], line["parentUuid"] = "u-300", "u-299"  # continues a response that the state does not hold
    with pytest.raises(ReadFromStart):
        second.read_line(300, line)


# Hostile data

VALUES: list[Any] = [
    None, True, 0, -1, 1 << 80, 1e308, "", "x", "\ud800", "\0", "x" * 3_000, [], {}, [None], {"type": "text"},
    [{"type": "tool_result"}], [[]],
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*path, name)
        yield from places(item, (*path, name))


def mutate(rows: list[tuple[int, Any]], generator: random.Random) -> list[tuple[int, Any]]:
    rows = list(rows)
    index = generator.randrange(len(rows))
    number, line = rows[index]
    line = copy.deepcopy(line)
    choices = list(places(line))
    *path, name = generator.choice(choices)
    parent: Any = line
    for step in path:
        parent = parent[step]
    action = generator.random()
    if action < 0.2:
        del parent[name]
    elif action < 0.3:
        other = generator.choice(rows)[1]
        parent[name] = other.get(name, other) if isinstance(name, str) else other
    else:
        parent[name] = copy.deepcopy(generator.choice(VALUES))
    rows[index] = (number, line)
    if generator.random() < 0.2:
        rows.insert(generator.randrange(len(rows)), rows[generator.randrange(len(rows))])
    if generator.random() < 0.2:
        generator.shuffle(rows)
    return [(number, line) for number, (_, line) in enumerate(rows, 1)]


@pytest.mark.parametrize(("tree", "transcript"), ALL)
def test_damaged_lines_are_never_fatal(tree: FolderTree, transcript: Transcript):
    rows = lines_of(tree, transcript)
    generator = random.Random(transcript.name)
    for _ in range(150):
        damaged = mutate(rows, generator)
        events = read(tree, transcript, damaged)
        check_events(events)
        count = generator.randrange(len(damaged))
        first = SOURCE.read_lines(tree, transcript, None)
        events_of_both = [event for number, line in damaged[:count] for event in first.read_line(number, line)]
        state = json.loads(json.dumps(first.state()))
        assert len(json.dumps(state)) < 2 * MAX_STATE
        try:
            second = SOURCE.read_lines(tree, transcript, state)
            events_of_both += [event for number, line in damaged[count:] for event in second.read_line(number, line)]
        except ReadFromStart:
            continue
        assert fold([*events_of_both, *second.finish()]) == fold(events)


@pytest.mark.parametrize(
    "value", [None, 5, "text", [], [1], True, {}, {"type": []}, {"type": "user"}, {"type": "system"}]
)
def test_lines_of_other_shapes(value: Any):
    tree, transcript = find("drift/")
    check_events(read(tree, transcript, [(1, value), (2, value)]))


def test_deep_nesting_is_reported():
    tree, transcript = find("drift/")
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    lines = [
        {"type": "user", "uuid": "a", "parentUuid": None, "sessionId": "s", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": deep}]}},
        {"type": "user", "uuid": "b", "parentUuid": "a", "sessionId": "s", "message": {"content": deep}},
        {"type": "user", "uuid": "c", "parentUuid": "b", "sessionId": "s", "message": {"content": "fine"}},
    ]  # fmt: skip
    events = read(tree, transcript, list(enumerate(lines, 1)))
    check_events(events)
    assert [event.kind for event in events if isinstance(event, Note)] == ["malformed", "malformed"]
    assert len(fold(events).messages) == 1


def test_cycles_and_unknown_parents_end():
    tree, transcript = find("drift/")
    lines = [
        {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": {"content": "x"}}
        for uuid, parent in [("a", "b"), ("b", "a"), ("c", "c"), ("a", "c")]
    ]
    events = read(tree, transcript, list(enumerate(lines, 1)))
    check_events(events)
    assert [parent for parent, _ in fold(events).messages.values()] == [None, "a", "b"]  # "a" comes before its parent


@pytest.mark.skipif(not SAMPLES, reason="RECOLLECT_TRANSCRIPTS is not set")
def test_samples():
    folder = Path(SAMPLES or "")
    samples = transcripts(folder)
    assert len(samples) == 5
    assert all(transcript.name.startswith("claude/") for _, transcript in samples)
    for tree, transcript in samples:
        events = read(tree, transcript)
        check_events(events)
        assert fold(events).messages
        assert msgspec.json.encode([event for event in events if isinstance(event, MessageFound)])
