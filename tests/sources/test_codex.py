"""Codex CLI: responses, usage, branches, forks, compactions, titles, old formats, and damaged files."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
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

from recollect import formats
from recollect.errors import UnreadableFile
from recollect.model.message import DataPart, TextPart, ToolCallPart, ToolResultPart
from recollect.sources.codex import SOURCE
from recollect.sources.files import FolderTree
from recollect.sources.source import (
    INJECTION_KEY,
    ActiveFound,
    CompactionFound,
    Environment,
    ForkFound,
    MessageFound,
    Note,
    Original,
    ReadFromStart,
    SessionFound,
    Transcript,
)

FIXTURES = Path(__file__).parent / "fixtures" / "codex"
TREE, TRANSCRIPTS = transcripts(SOURCE, FIXTURES)
MAIN, FORK, SUB_AGENT = (
    next(name for name in TRANSCRIPTS if name.endswith(f"{letter}.jsonl") and "/2025/" in name) for letter in "abc"
)
A, B, C = (
    f"codex:01980{n}0-0000-7000-8000-00000000000{letter}" for n, letter in (("00", "a"), ("01", "b"), ("02", "c"))
)


def read(name):
    return read_events(SOURCE, TREE, TRANSCRIPTS[name])


def drafts_of(events) -> dict[str, Any]:
    """Return the messages of events by key, in the order of their first event."""
    return {event.draft.key or "": event.draft for event in events if isinstance(event, MessageFound)}


def parents_of(events):
    return {event.draft.key: event.parent for event in events if isinstance(event, MessageFound)}


def fields_of(events, name):
    return [
        value for event in events if isinstance(event, SessionFound) and (value := getattr(event, name)) is not None
    ]


def events_of(tmp_path, lines, name="rollout-x.jsonl"):
    """Return the events of lines in a folder of their own."""
    (tmp_path / name).write_text("\n".join(map(json.dumps, lines)) + "\n")
    return read_events(SOURCE, FolderTree(tmp_path), Transcript("codex", name, "lines"))


def test_every_fixture_is_found_and_nothing_else():
    assert set(TREE.names()) == TRANSCRIPTS.keys()
    assert list(TRANSCRIPTS)[-1] == "session_index.jsonl"
    assert all(transcript.files == () for transcript in TRANSCRIPTS.values())
    others = FolderTree(FIXTURES.parent / "gemini-cli")
    assert list(SOURCE.detect(others, others.names())) == []


def test_a_long_first_line_is_recognized(tmp_path):
    line = {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "x", "text": "y" * 90_000}}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    tree = FolderTree(tmp_path)
    assert [each.name for each in SOURCE.detect(tree, tree.names())] == ["a.jsonl"]


def test_the_places_are_those_of_conversations_and_titles(tmp_path):
    for name in ("session_index.jsonl", "state_4.sqlite", "state_5.sqlite", "state_5.sqlite-wal", "logs.sqlite"):
        (tmp_path / name).touch()
    places = SOURCE.discover(Environment(Path("/home/x"), {"CODEX_HOME": str(tmp_path)}, "linux"))
    names = ["sessions", "archived_sessions", "session_index.jsonl", "state_4.sqlite", "state_5.sqlite"]
    assert places == [tmp_path / name for name in names]
    variables = {"CODEX_HOME": "/nowhere", "CODEX_SQLITE_HOME": str(tmp_path)}
    assert SOURCE.discover(Environment(Path("/home/x"), variables, "linux"))[2:] == places[2:]
    home = Path("/home/x/.codex")
    assert SOURCE.discover(Environment(home.parent, {}, "linux")) == [home / "sessions", home / "archived_sessions"]


def test_the_lines_of_a_response_are_one_message_with_its_usage():
    answer = drafts_of(read(MAIN))["rs_1"]
    assert [type(part).__name__ for part in answer.parts] == [
        "ReasoningPart",
        "TextPart",
        "ToolCallPart",
        "ToolCallPart",
    ]
    assert (answer.model, answer.input_tokens, answer.output_tokens) == ("gpt-5-codex", 100, 20)
    assert answer.metadata == {
        "usage": {
            "input_tokens": 100, "cached_input_tokens": 10, "output_tokens": 20, "reasoning_output_tokens": 5,
            "total_tokens": 120,
        }
    }  # fmt: skip
    assert answer.created_at_ms == 1752314409000


def test_usage_is_counted_once():
    drafts = drafts_of(read(MAIN)).values()
    assert sum(draft.input_tokens or 0 for draft in drafts) == 100 + 200 + 400 + 500


def test_a_history_is_sent_to_the_provider_exactly_as_codex_does():
    lines = [line["payload"] for line in lines_of(TREE, MAIN)[:20] if line["type"] == "response_item"]
    unsent = ("metadata", "internal_chat_message_metadata_passthrough")
    expected = [{name: value for name, value in item.items() if name not in unsent} for item in lines]
    drafts = list(drafts_of(read(MAIN)).values())[:7]
    assert formats.render(drafts, "openai-responses") == expected


def test_results_form_one_path_with_status_and_times():
    events = read(MAIN)
    drafts, parents = drafts_of(events), parents_of(events)
    assert [parents[key] for key in ("fco_1", "fco_2", "msg_a2")] == ["rs_1", "fco_1", "fco_2"]
    first, second = (drafts[key].parts[0] for key in ("fco_1", "fco_2"))
    assert (first.status, first.tool, second.status) == ("success", "exec_command", "error")
    assert first.metadata == {
        "exit_code": 0, "duration_ms": 1500, "started_at": 1752314410000, "completed_at": 1752314411500,
    }  # fmt: skip
    assert second.metadata["exit_code"] == 1
    assert drafts["cto_1"].parts[0].status == "error"


def test_context_is_marked_and_no_title():
    drafts = drafts_of(read(MAIN))
    kinds = {key: draft.parts[0].metadata for key, draft in drafts.items() if draft.role in ("user", "system")}
    assert kinds["msg_dev"] == {INJECTION_KEY: "instructions"}
    assert kinds["msg_env"] == {INJECTION_KEY: "environment"}
    assert kinds["msg_ab"] == {INJECTION_KEY: "turn_aborted"}
    assert kinds["am_1"] == {INJECTION_KEY: "agent"}
    assert kinds["msg_q1"] is None
    titles = [event.title for event in read(MAIN) if isinstance(event, SessionFound) and event.title]
    assert titles == ["Which beds need water?", "Watering"]


def test_the_fields_of_a_conversation():
    sessions, *_ = outcome(read(MAIN))
    fields = sessions[A]
    assert fields["working_dir"] == "/srv/garden"
    assert fields["metadata"]["git_branch"] == "spring"
    assert fields["system_prompt"] == "You help with a garden."
    assert (fields["provider"], fields["archived"]) == ("openai", False)
    assert fields["created_at"] < fields["updated_at"]


def test_a_rollback_begins_a_branch_before_the_context_of_its_turn():
    events = read(MAIN)
    parents = parents_of(events)
    assert (parents["msg_env2"], parents["msg_q2"], parents["msg_q3"]) == ("msg_a2", "msg_env2", "msg_a2")
    assert events[-1] == ActiveFound(A, "25:msg_a5")


def test_compactions_keep_their_summaries():
    compactions = [event for event in read(MAIN) if isinstance(event, CompactionFound)]
    assert [(each.last, each.summary) for each in compactions] == [
        ("msg_ab", "The north bed is dry; ferns were planned."),
        ("msg_a5", "Continue."),
    ]
    assert Note("missing", f"{MAIN}:49", "Only the provider can read the summary of a compaction.") in read(MAIN)


def test_an_aborted_response_is_interrupted():
    assert drafts_of(read(MAIN))["msg_a4"].state == "interrupted"


def test_unknown_data_is_reported():
    notes = [event.text for event in read(MAIN) if isinstance(event, Note) and event.kind == "unknown"]
    assert notes == ["item hologram", "record moon_phase", "event kite_flown"]
    part = drafts_of(read(MAIN))["x_1"].parts[0]
    assert isinstance(part, DataPart)
    assert part.data["beam"] == 3


def test_an_id_that_repeats_is_another_message():
    drafts = drafts_of(read(MAIN))
    assert drafts["msg_a5"].parts[0].text == "It will rain."
    assert drafts["25:msg_a5"].parts[0].text == "It rained."


def test_a_fork_reads_its_beginning_from_the_other_file():
    events = read(FORK)
    assert ForkFound(B, A, "msg_a3") in events
    shared = {key: draft for key, draft in drafts_of(read(MAIN)).items() if key in drafts_of(events)}
    assert len(shared) == 10
    assert {key: drafts_of(events)[key] for key in shared} == shared
    assert parents_of(events)["msg_q5"] == "msg_a3"
    assert fields_of(events, "title") == ["And tulips?"]
    assert SessionFound(B, title="Tulips", title_rank=3) in read("session_index.jsonl")


def test_a_fork_without_the_other_file_is_reported(tmp_path):
    shutil.copy(FIXTURES / FORK, tmp_path / "a.jsonl")
    events = read_events(SOURCE, FolderTree(tmp_path), Transcript("codex", "a.jsonl", "lines"))
    assert [event.kind for event in events if isinstance(event, Note)] == ["missing"]
    assert parents_of(events) == {"msg_q5": None, "msg_a6": "msg_q5"}


def test_a_conversation_may_continue_in_another_file_of_its_own(tmp_path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    shutil.copy(FIXTURES / MAIN, folder)
    lines = lines_of(TREE, FORK)
    lines[0]["payload"]["id"] = A.removeprefix("codex:")
    lines[0]["payload"]["forked_from_id"] = None
    events = events_of(folder, lines, "rollout-2025-07-13-01980000-0000-7000-8000-00000000000a_0198.jsonl")
    assert not any(isinstance(event, ForkFound) for event in events)
    assert parents_of(events)["msg_q5"] == "msg_a3"
    assert events[-1] == ActiveFound(A, "msg_a6")


def test_files_that_continue_each_other_in_a_circle_end(tmp_path):
    ids = ["01980000-0000-7000-8000-0000000000a1", "01980000-0000-7000-8000-0000000000a2"]
    for own, other in (ids, ids[::-1]):
        meta = {"id": own, "history_base": {"thread_id": other, "end_ordinal_exclusive": 9}}
        line = {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": meta}
        (tmp_path / f"rollout-2026-{own}.jsonl").write_text(json.dumps(line))
    tree, by_name = transcripts(SOURCE, tmp_path)
    for each in by_name.values():
        check_events(read_events(SOURCE, tree, each))


def test_a_sub_agent_shares_the_lines_that_were_copied():
    events = read(SUB_AGENT)
    assert ForkFound(C, A, "msg_a2") in events
    assert outcome(events)[0][C]["parent"] == A
    assert fields_of(events, "title") == ["Find the pump."]


@pytest.mark.parametrize("shares", [True, False])
def test_turns_without_times_are_compared_with_those_of_the_origin(tmp_path, shares):
    main, agent = lines_of(TREE, MAIN), lines_of(TREE, SUB_AGENT)
    text = json.dumps([main, agent]).replace("01980001-1111-7000", "01980001-1111-4000")
    main, agent = json.loads(text)
    if shares:
        (tmp_path / Path(MAIN).name).write_text("\n".join(map(json.dumps, main)))
    events = events_of(tmp_path, agent, Path(SUB_AGENT).name)
    assert any(isinstance(event, ForkFound) for event in events) == shares


def test_an_ordinal_ends_the_copied_lines(tmp_path):
    lines = lines_of(TREE, SUB_AGENT)
    for ordinal, line in enumerate(lines):
        line["ordinal"] = ordinal
    lines[0]["payload"]["subagent_history_start_ordinal"] = 5
    events = events_of(tmp_path, lines)
    assert [event.last for event in events if isinstance(event, ForkFound)] == ["msg_env"]


def test_items_without_an_envelope():
    events = read(next(name for name in TRANSCRIPTS if name.startswith("archived_sessions")))
    drafts = drafts_of(events)
    assert [draft.role for draft in drafts.values()] == ["user", "user", "assistant", "tool", "assistant"]
    assert drafts["5"].parts[0].metadata == {"exit_code": 0, "duration_ms": 200}
    assert fields_of(events, "archived") == [True]


def test_usage_before_the_items_of_a_response():
    events = read("usage_first.jsonl")
    drafts = drafts_of(events)
    assert [draft.input_tokens for draft in drafts.values() if draft.role == "assistant"] == [50, 60]
    assert [part.call_id for part in drafts["2"].parts if isinstance(part, ToolCallPart)] == ["t1", "t2"]
    results = [draft.parts[0] for draft in drafts.values() if draft.role == "tool"]
    assert [(part.output.partition("\n")[0], part.status) for part in results] == [
        ("dripping", "error"),
        ("Exit code: 0", "success"),
    ]
    assert parents_of(events) == {"1": None, "2": "1", "3": "2", "5": "3", "6": "5"}


def test_events_are_read_if_there_are_no_items():
    drafts = drafts_of(read("events_only.jsonl"))
    assert [draft.role for draft in drafts.values()] == ["user", "user", "assistant", "tool", "user", "assistant"]
    assert drafts["3"].parts[1].text == "Yes."
    assert drafts["3"].input_tokens == 5


def test_a_question_in_an_event_waits_for_the_items(tmp_path):
    lines = lines_of(TREE, "events_only.jsonl")[:3]
    item = {"type": "message", "role": "user", "content": "Is it spring?"}
    lines.append({"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": item})
    assert len(drafts_of(events_of(tmp_path, lines))) == 1


def test_calls_and_results_without_ids():
    drafts = list(drafts_of(read("loose.jsonl")).values())
    call, result = drafts[1].parts[0], drafts[2].parts[0]
    assert isinstance(call, ToolCallPart)
    assert isinstance(result, ToolResultPart)
    assert (call.tool, call.input, call.call_id) == ("pick", {"kind": "tree"}, result.call_id)


def test_the_document_of_a_first_version():
    name = next(name for name in TRANSCRIPTS if name.endswith(".json"))
    events = read(name)
    assert [draft.parts[0].text for draft in drafts_of(events).values()] == ["First of all", "Hello"]
    original = next(event for event in events if isinstance(event, Original))
    assert original.data == (FIXTURES / name).read_bytes()


def test_titles_in_the_database(tmp_path):
    with closing(sqlite3.connect(tmp_path / "state_5.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "CREATE TABLE threads (id TEXT, title TEXT, name TEXT, first_user_message TEXT, archived INT, is_pinned INT)"
        )
        rows = [
            ("a", "Dry beds", None, "Which beds need water?", 0, 1),
            ("b", "And tulips?", None, "And tulips?", 1, None),
            ("c", "", "A name", "And roses?", None, "x"),
            (None, "No id", None, None, 0, 0),
        ]
        connection.executemany("INSERT INTO threads VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
        tree, by_name = transcripts(SOURCE, tmp_path)
        (transcript,) = by_name.values()
        assert (transcript.kind, transcript.files) == ("document", ("state_5.sqlite-wal",))
        assert read_events(SOURCE, tree, transcript) == [
            SessionFound("codex:a", title="Dry beds", title_rank=2, archived=False, pinned=True),
            SessionFound("codex:b", title="And tulips?", title_rank=1, archived=True),
            SessionFound("codex:c", title="A name", title_rank=3),
        ]
        connection.execute("DROP TABLE threads")
        assert read_events(SOURCE, tree, transcript) == []


def test_the_last_name_in_the_index_counts(tmp_path):
    lines = [{"id": "a", "thread_name": "one"}, {"id": "a", "thread_name": "two"}, {"id": 3, "thread_name": []}]
    text = "\n".join(map(json.dumps, lines)) + '\nnot json\n{"id": "b", "thread_na'
    (tmp_path / "session_index.jsonl").write_text(text)
    tree, by_name = transcripts(SOURCE, tmp_path)
    events = read_events(SOURCE, tree, by_name["session_index.jsonl"])
    assert [event for event in events if isinstance(event, SessionFound)] == [
        SessionFound("codex:a", title="two", title_rank=3)
    ]
    assert [event.kind for event in events if isinstance(event, Note)] == ["malformed", "malformed"]


def test_a_damaged_database_of_titles_is_reported(tmp_path):
    (tmp_path / "state_5.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    tree, by_name = transcripts(SOURCE, tmp_path)
    with pytest.raises(UnreadableFile, match="state_5"):
        read_events(SOURCE, tree, by_name["state_5.sqlite"])


def test_a_file_in_a_folder_of_conversations_finds_its_beginning_in_the_other_one(tmp_path):
    live, archive = tmp_path / "sessions", tmp_path / "archived_sessions"
    for folder, name in ((live, FORK), (archive, MAIN)):
        folder.mkdir()
        shutil.copy(FIXTURES / name, folder)
    tree, by_name = transcripts(SOURCE, live)
    events = read_events(SOURCE, tree, by_name[Path(FORK).name])
    assert drafts_of(events) == drafts_of(read(FORK))
    assert fields_of(events, "archived") == [False]
    tree, by_name = transcripts(SOURCE, archive)
    assert fields_of(read_events(SOURCE, tree, by_name[Path(MAIN).name]), "archived") == [True]


def test_a_compressed_file(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    data = (FIXTURES / MAIN).read_bytes()
    (tmp_path / f"{Path(MAIN).name}.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    tree, by_name = transcripts(SOURCE, tmp_path)
    (transcript,) = by_name.values()
    assert drafts_of(read_events(SOURCE, tree, transcript)) == drafts_of(read(MAIN))


def test_a_response_too_large_for_the_state_reads_the_file_again(tmp_path):
    item = {"type": "function_call", "call_id": "c", "name": "write", "arguments": json.dumps({"text": "x" * 100_000})}
    reader = SOURCE.read_lines(FolderTree(tmp_path), Transcript("codex", "x.jsonl", "lines"), None)
    reader.read_line(1, {"type": "response_item", "payload": item})
    state = reader.state()
    assert len(json.dumps(state)) < 1_000
    usage = {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 1, "output_tokens": 1}}}
    again = SOURCE.read_lines(FolderTree(tmp_path), Transcript("codex", "x.jsonl", "lines"), state)
    with pytest.raises(ReadFromStart):
        again.read_line(2, {"type": "event_msg", "payload": usage})


def test_the_state_stays_small(tmp_path):
    reader = SOURCE.read_lines(FolderTree(tmp_path), Transcript("codex", "x.jsonl", "lines"), None)
    for number in range(3_000):
        role = "assistant" if number % 2 else "user"
        item = {"type": "message", "role": role, "id": f"m{number}", "content": f"Text {number}"}
        reader.read_line(number, {"type": "response_item", "payload": item})
    assert len(json.dumps(reader.state())) < 10_000


def test_a_rollback_of_more_turns_than_the_state_holds_reads_the_file_again(tmp_path):
    transcript = Transcript("codex", "x.jsonl", "lines")
    reader = SOURCE.read_lines(FolderTree(tmp_path), transcript, None)
    for number in range(100):
        item = {"type": "message", "role": "user", "content": f"Text {number}"}
        reader.read_line(number, {"type": "response_item", "payload": item})
    rollback = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 80}}
    again = SOURCE.read_lines(FolderTree(tmp_path), transcript, reader.state())
    with pytest.raises(ReadFromStart):
        again.read_line(101, rollback)
    reader.read_line(101, rollback)
    assert reader.last == "20"


def test_a_damaged_state_reads_the_file_again():
    with pytest.raises(ReadFromStart):
        SOURCE.read_lines(TREE, TRANSCRIPTS[MAIN], {"items": "many"})


@pytest.mark.parametrize("name", [name for name, each in TRANSCRIPTS.items() if each.kind == "lines"])
def test_reading_in_two_steps_has_the_same_result(name):
    check_steps(SOURCE, TREE, TRANSCRIPTS[name])


@pytest.mark.parametrize("name", [name for name, each in TRANSCRIPTS.items() if each.kind == "lines"])
def test_damaged_lines_are_never_fatal(name):
    check_damage(SOURCE, TREE, TRANSCRIPTS[name])


def test_damaged_documents_are_never_fatal(tmp_path):
    name = next(name for name in TRANSCRIPTS if name.endswith(".json"))
    check_damaged_document(SOURCE, tmp_path, TREE, TRANSCRIPTS[name])


@pytest.mark.skipif("RECOLLECT_TRANSCRIPTS" not in os.environ, reason="RECOLLECT_TRANSCRIPTS is not set")
def test_the_transcripts_of_other_projects():
    tree, by_name = transcripts(SOURCE, Path(os.environ["RECOLLECT_TRANSCRIPTS"]) / "codex")
    assert len(by_name) == 7
    for each in by_name.values():
        events = read_events(SOURCE, tree, each)
        check_events(events)
        check_steps(SOURCE, tree, each)
        own_texts = [
            part.text for draft in drafts_of(events).values() for part in draft.parts if isinstance(part, TextPart)
        ]
        assert own_texts or each.name.startswith("older/")
