"""Gemini CLI: versions of messages, tools, rewinds, lists of messages, compactions, old documents, and damaged files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from transcript_checks import (
    check_damage,
    check_damaged_document,
    check_events,
    check_steps,
    lines_of,
    outcome,
    read_events,
    transcripts,
)

import recollect
from recollect.model.message import AttachmentPart, DataPart, ReasoningPart, TextPart, ToolCallPart
from recollect.sources.files import FolderTree
from recollect.sources.gemini_cli import SOURCE
from recollect.sources.source import (
    INJECTION_KEY,
    ActiveFound,
    CompactionFound,
    Environment,
    MessageFound,
    Note,
    Original,
    ReadFromStart,
    SessionFound,
    Transcript,
)
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals

FIXTURES = Path(__file__).parent / "fixtures" / "gemini-cli"
TREE, TRANSCRIPTS = transcripts(SOURCE, FIXTURES)
CHATS = "garden/chats/"
MAIN = f"{CHATS}session-2026-05-01T08-00-5f000000.jsonl"
NEXT = f"{CHATS}session-2026-05-02T08-00-5f000000.jsonl"
OLD = f"{CHATS}session-2025-12-01T08-00-7b000000.json"
CHECKPOINT = "garden/checkpoint-spring.json"
SESSION = "gemini-cli:5f000000-0000-4000-8000-000000000001"
META = {"sessionId": "s", "projectHash": "00", "startTime": "2026-05-01T08:00:00Z", "kind": "main"}


def read(name):
    return read_events(SOURCE, TREE, TRANSCRIPTS[name])


def drafts_of(events) -> dict[str, Any]:
    """Return the last version of each message by key."""
    return {event.draft.key or "": event.draft for event in events if isinstance(event, MessageFound)}


def parents_of(events):
    return {event.draft.key: event.parent for event in events if isinstance(event, MessageFound)}


def events_of(tmp_path, lines):
    (tmp_path / "session-x.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return read_events(SOURCE, FolderTree(tmp_path), Transcript("gemini-cli", "session-x.jsonl", "lines"))


def say(key, text, kind="user", **fields):
    return {"id": key, "timestamp": "2026-05-01T08:00:00Z", "type": kind, "content": text, **fields}


def test_every_fixture_is_found_and_nothing_else():
    assert {name for name in TREE.names() if not name.endswith(".project_root")} == TRANSCRIPTS.keys()
    others = FolderTree(FIXTURES.parent / "codex")
    assert list(SOURCE.detect(others, others.names())) == []


def test_the_folder_of_the_tool():
    assert SOURCE.discover(Environment(Path("/home/x"), {}, "linux")) == [Path("/home/x/.gemini/tmp")]
    environment = Environment(Path("/home/x"), {"GEMINI_CLI_HOME": "/data"}, "linux")
    assert SOURCE.discover(environment) == [Path("/data/.gemini/tmp")]


def test_the_fields_of_a_conversation():
    fields = outcome(read(MAIN))[0][SESSION]
    assert (fields["title"], fields["title_rank"]) == ("Garden plan", 2)
    assert fields["provider"] == "google"
    assert fields["metadata"] == {"kind": "main", "project_hash": "00ff"}
    folders = [each.working_dir for each in read(MAIN) if isinstance(each, SessionFound) and each.working_dir]
    assert folders == ["/srv/garden", "/srv/other"]


def test_the_first_question_is_what_the_screen_showed():
    titles = [event.title for event in read(MAIN) if isinstance(event, SessionFound) and event.title_rank == 1]
    assert titles == ["Which bed is dry? @map.txt"]


def test_context_is_marked():
    drafts = drafts_of(read(MAIN))
    assert drafts["c1"].parts[0].metadata == {INJECTION_KEY: "environment"}
    marks = [part.metadata for part in drafts["q1"].parts]
    assert marks == [None, {INJECTION_KEY: "file"}, {INJECTION_KEY: "file"}, {INJECTION_KEY: "file"}, None]
    assert isinstance(drafts["q1"].parts[4], AttachmentPart)
    assert drafts["q1"].parts[4].data == "iVBORw0KGgo="


def test_a_message_and_its_versions_have_one_key():
    events = [event for event in read(MAIN) if isinstance(event, MessageFound) and event.draft.key == "a1"]
    assert [len(event.draft.parts) for event in events] == [2, 6, 6]
    assert {event.parent for event in events} == {"q1"}
    answer = drafts_of(events)["a1"]
    assert [type(part) for part in answer.parts] == [ReasoningPart, TextPart, *[ToolCallPart] * 4]
    assert [part.call_id for part in answer.parts if isinstance(part, ToolCallPart)] == ["k1", "k2", "k3", "k4"]
    assert answer.parts[0].text == "**Sensors** Two of them."
    assert answer.parts[1].metadata == {"thought_signature": "c2ln"}


def test_tokens_of_reasoning_are_output():
    answer = drafts_of(read(MAIN))["a1"]
    assert (answer.model, answer.input_tokens, answer.output_tokens) == ("gemini-2.5-pro", 52, 10)
    assert answer.metadata["usage"]["cached"] == 3


def test_results_follow_their_calls_once():
    events = read(MAIN)
    drafts, parents = drafts_of(events), parents_of(events)
    results = drafts["a1:results"]
    assert [(part.call_id, part.status) for part in results.parts] == [
        ("k1", "success"), ("k2", "error"), ("k3", "cancelled"), ("k4", "success"),
    ]  # fmt: skip
    assert results.parts[0].text == "Output: 12 %\nExit Code: 0"
    assert results.parts[0].metadata == {"exit_code": 0, "completed_at": 1777622460000}
    assert results.parts[1].error_message == "File not found"
    assert results.parts[2].text == "The user said no"
    assert isinstance(results.parts[3].content[1], AttachmentPart)
    assert (parents["a1:results"], parents["a2"]) == ("a1", "a1:results")
    assert "f1" not in drafts
    assert "f1:results" not in drafts


def test_results_that_only_the_user_record_holds():
    events = read(MAIN)
    drafts, parents = drafts_of(events), parents_of(events)
    assert drafts["a4:results"].parts[0].data == {"plan": ["dig", "water"]}
    assert drafts["f4"].parts[0].text == "Also moss."
    assert [parents[key] for key in ("a4:results", "f4", "a5")] == ["a4", "a4:results", "f4"]


def test_after_a_resumption_each_call_has_its_own_result(tmp_path):
    both = [{"functionResponse": {"id": each, "name": "read", "response": {"output": each}}} for each in ("k1", "k2")]
    calls = [{"id": each, "name": "read", "args": {}, "status": "success", "result": both} for each in ("k1", "k2")]
    drafts = drafts_of(events_of(tmp_path, [META, say("a", "", "gemini", toolCalls=calls)]))
    assert [part.text for part in drafts["a:results"].parts] == ["k1", "k2"]


IMAGE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


def response(call, text="ok"):
    return {"functionResponse": {"id": call, "name": "read", "response": {"output": text}}}


@pytest.mark.parametrize("has_calls", [True, False])
def test_files_behind_a_response_belong_to_its_result(tmp_path, has_calls):
    calls = [{"id": each, "name": "read", "args": {}} for each in ("k1", "k2")]
    results = [response("k1"), IMAGE, response("k2", "text")]
    if has_calls:
        calls[0] |= {"status": "success", "result": results}
        calls[1] |= {"status": "success", "result": results}
    answer = say("a", "", "gemini", toolCalls=calls)
    events = events_of(tmp_path, [META, answer, say("r", results), say("b", "Seen.", "gemini")])
    drafts = drafts_of(events)
    assert drafts.keys() == {"a", "a:results", "b"}
    first, second = drafts["a:results"].parts
    assert [type(piece) for piece in first.content] == [TextPart, AttachmentPart]
    assert (second.text, second.content) == ("text", None)
    assert parents_of(events)["b"] == "a:results"


def test_a_resumption_does_not_replace_messages_by_their_content(tmp_path):
    """Gemini CLI 0.61 writes all known messages again, with the time of the resumption and without the model."""
    answer = say("a", "Hi", "gemini", model="m", tokens={"input": 3, "output": 2}, thoughts=[{"description": "hm"}])
    later = {"timestamp": "2026-05-09T09:00:00Z"}
    context = say("c", "<session_context>")
    messages = [say("q", [{"text": "Hello"}]) | later, say("a", [{"text": "Hi"}], "gemini") | later]
    lists = [{"$set": {"messages": [context]}}, {"$set": {"messages": messages}}]
    events = events_of(tmp_path, [META, lists[0], say("q", "Hello"), answer, META, *lists, say("q2", "More")])
    drafts = drafts_of(events)
    assert {draft.created_at_ms for draft in drafts.values()} == {1777622400000}
    assert (drafts["a"].model, drafts["a"].output_tokens, len(drafts["a"].parts)) == ("m", 2, 2)
    assert parents_of(events) == {"c": None, "q": "c", "a": "q", "q2": "a"}
    changed = say("a", [{"text": "Hi"}], "gemini", model="m2")
    events = events_of(tmp_path, [META, say("q", "Hello"), answer, {"$set": {"messages": [messages[0], changed]}}])
    assert drafts_of(events)["a"].model == "m2"


def test_remarks_are_kept_and_not_sent():
    drafts = drafts_of(read(MAIN))
    part = drafts["i1"].parts[0]
    assert isinstance(part, DataPart)
    assert part.data == {"type": "info", "text": "Update available"}
    assert drafts["e1"].parts[0].metadata == {INJECTION_KEY: "error"}


def test_a_rewind_begins_a_branch():
    events = read(MAIN)
    assert [parents_of(events)[key] for key in ("q2", "q3")] == ["i1", "i1"]
    assert events[-1] == ActiveFound(SESSION, "a6")


def test_a_summary_in_front_of_the_messages_is_a_compaction():
    events = read(MAIN)
    (compaction,) = [event for event in events if isinstance(event, CompactionFound)]
    assert (compaction.last, compaction.summary) == ("f4", "<state_snapshot>Ferns are planned.</state_snapshot>")
    assert not {"s1", "s2", "c2"} & drafts_of(events).keys()
    assert parents_of(events)["q4"] == "e1"


def test_unknown_data_is_reported():
    notes = [(event.kind, event.text) for name in (MAIN, f"{CHATS}session-2026-05-03T08-00-8c000000.jsonl")
             for event in read(name) if isinstance(event, Note)]  # fmt: skip
    assert notes == [
        ("unknown", "field tide"),
        ("unknown", "record"),
        ("missing", "A rewind names a message that is missing."),
        ("unknown", "message hologram"),
        ("malformed", "A line is not an object."),
    ]


def test_other_messages_replace_all_as_a_branch():
    events = read(f"{CHATS}session-2026-05-03T08-00-8c000000.jsonl")
    assert parents_of(events) == {"v1": None, "v2": "v1", "w1": None, "z1": "w1", "y1": None, "2": "y1"}


def test_a_second_file_of_a_conversation_continues_the_first():
    assert TRANSCRIPTS[NEXT].files == (MAIN, "garden/.project_root")
    events = read(NEXT)
    assert outcome(events)[0].keys() == {SESSION}
    assert [parents_of(events)[key] for key in ("c1", "n1", "n2")] == [None, "a6", "n1"]
    assert parents_of(events).items() >= parents_of(read(MAIN)).items()
    assert events[-1] == ActiveFound(SESSION, "n2")


@pytest.mark.parametrize("is_old", [False, True])
def test_resumptions_in_new_files_keep_the_messages_of_the_first_file(tmp_path, is_old):
    """Each new file begins with all known messages, of which it has only the content."""
    answer = say("a", "Hi", "gemini", model="m", tokens={"input": 3, "output": 2})
    first = tmp_path / ("session-2026-05-01T08-00-aaaaaaaa.json" + ("" if is_old else "l"))
    messages = [say("c", "<session_context>1"), say("q", "Hello"), answer]
    first.write_text(
        json.dumps(META | {"lastUpdated": "2026-05-01T08:00:00Z", "messages": messages}, indent=1)
        if is_old else "\n".join(map(json.dumps, [META, *messages]))
    )  # fmt: skip
    history = [say("c", "<session_context>2"), say("q", "Hello"), say("a", "Hi", "gemini")]
    for number in (2, 3):
        meta = META | {"startTime": f"2026-05-0{number}T08:00:00Z"}
        new = [meta, {"$set": {"messages": history[:1]}}, {"$set": {"messages": history}}, say(f"q{number}", "More")]
        history.append(say(f"q{number}", [{"text": "More"}]) | {"timestamp": "2026-05-09T09:00:00Z"})
        path = tmp_path / f"session-2026-05-0{number}T08-00-aaaaaaaa.jsonl"
        path.write_text("\n".join(map(json.dumps, new)) + "\n")
    with recollect.open(tmp_path / "x.db") as store:
        report = import_files(store, [tmp_path])
        (session,) = [store.get_session(info.id) for info in store.list_sessions()]
        assert report.notes == ()
        assert [message.key for message in session.messages()] == ["c", "q", "a", "q2", "q3"]
        assert {message.created_at_ms for message in session.messages()} == {1777622400000}
        assert [message.model for message in session.messages()][2] == "m"
        report = import_files(store, [tmp_path], ImportOptions(again=True))
        assert {item.outcome for item in report.conversations} == {"unchanged"}
        originals = dict(read_originals(store, session.id))
        assert originals == {path.name: path.read_bytes() for path in tmp_path.glob("session-*")}


def test_a_chain_of_many_files_is_read_in_bounded_time(tmp_path):
    for number in range(80):
        new = [META, say("a", "Hello"), {"$set": {"messages": [say("a", "Hello")]}}, say(f"q{number:03}", "More")]
        (tmp_path / f"session-2026-{number:03}-aaaaaaaa.jsonl").write_text("\n".join(map(json.dumps, new)) + "\n")
    tree, files = transcripts(SOURCE, tmp_path)
    assert max(len(each.files) for each in files.values()) == 30
    keys = {
        event.draft.key for event in read_events(SOURCE, tree, files[max(files)]) if isinstance(event, MessageFound)
    }
    assert {"a", "q079", "q078", "q049"} <= keys


def test_a_sub_agent_is_below_its_caller():
    name = next(name for name in TRANSCRIPTS if "/6a000000" in name)
    (fields,) = outcome(read(name))[0].values()
    assert (fields["parent"], fields["title"]) == (SESSION, "Find the pump")


def test_the_document_of_an_older_version():
    events = read(OLD)
    drafts = drafts_of(events)
    assert [draft.role for draft in drafts.values()] == ["user", "assistant", "tool", "system", "assistant"]
    assert drafts["o4"].parts[0].text == "Done."
    original = next(event for event in events if isinstance(event, Original))
    assert json.loads(original.data) == json.loads((FIXTURES / OLD).read_text())
    assert original.name == "session-2025-12-01T08-00-7b000000.json"


def test_a_saved_chat():
    drafts = list(drafts_of(read(CHECKPOINT)).values())
    assert [draft.role for draft in drafts] == ["user", "assistant", "tool"]
    assert drafts[1].parts[1].call_id == drafts[2].parts[0].call_id


def test_a_failed_command_is_an_error(tmp_path):
    call = {"id": "k", "name": "run_shell_command", "args": {}, "status": "success"}
    call["result"] = [{"functionResponse": {"id": "k", "response": {"output": "Output: x\nExit Code: 2\nSignal: 0"}}}]
    drafts = drafts_of(events_of(tmp_path, [META, say("a", "", "gemini", toolCalls=[call])]))
    assert drafts["a:results"].parts[0].status == "error"


def test_the_state_stays_small_and_a_far_rewind_reads_the_file_again(tmp_path):
    transcript = Transcript("gemini-cli", "session-x.jsonl", "lines")
    reader = SOURCE.read_lines(FolderTree(tmp_path), transcript, None)
    reader.read_line(1, META)
    for number in range(1_000):
        reader.read_line(number, say(f"0000-{number}", "text"))
    assert len(json.dumps(reader.state())) < 8_000
    for line in ({"$rewindTo": "0000-7"}, {"$set": {"messages": [say("0000-7", "text")]}}):
        with pytest.raises(ReadFromStart):
            SOURCE.read_lines(FolderTree(tmp_path), transcript, reader.state()).read_line(9, line)


def test_a_damaged_state_reads_the_file_again():
    with pytest.raises(ReadFromStart):
        SOURCE.read_lines(TREE, TRANSCRIPTS[MAIN], {"entries": 3})


@pytest.mark.parametrize("name", [name for name, each in TRANSCRIPTS.items() if each.kind == "lines"])
def test_reading_in_two_steps_has_the_same_result(name):
    check_steps(SOURCE, TREE, TRANSCRIPTS[name])


@pytest.mark.parametrize("name", [name for name, each in TRANSCRIPTS.items() if each.kind == "lines"])
def test_damaged_lines_are_never_fatal(name):
    check_damage(SOURCE, TREE, TRANSCRIPTS[name])


@pytest.mark.parametrize("name", [OLD, CHECKPOINT])
def test_damaged_documents_are_never_fatal(name, tmp_path):
    check_damaged_document(SOURCE, tmp_path, TREE, TRANSCRIPTS[name])


@pytest.mark.skipif("RECOLLECT_TRANSCRIPTS" not in os.environ, reason="RECOLLECT_TRANSCRIPTS is not set")
def test_the_transcripts_of_other_projects():
    tree, by_name = transcripts(SOURCE, Path(os.environ["RECOLLECT_TRANSCRIPTS"]))
    assert {name.partition("/")[0] for name in by_name} == {"gemini"}
    assert len(by_name) == 4
    for each in by_name.values():
        events = read_events(SOURCE, tree, each)
        check_events(events)
        assert any(event.draft.role == "assistant" for event in events if isinstance(event, MessageFound))
        if each.kind == "lines":
            assert lines_of(tree, each.name)
            check_steps(SOURCE, tree, each)
