from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from document_checks import (
    FIXTURES,
    check_mutations,
    drafts_by_key,
    mutations,
    of_kind,
    parents_by_key,
    path_to,
    read_all,
    read_mutated,
)

import recollect
from recollect.model.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.sources import sqlite_copy
from recollect.sources.files import open_tree
from recollect.sources.registry import get_source
from recollect.sources.source import (
    INJECTION_KEY,
    ActiveFound,
    CompactionFound,
    Environment,
    MessageFound,
    Note,
    Original,
    SessionFound,
)
from recollect.sync.importer import ImportOptions, import_files

FOLDER = FIXTURES / "opencode"
MAIN = "opencode:ses_e0b07d43affeMVf0M5yPQIz1VD"
CHILD = "opencode:ses_e0b07587affe0rrhEJv1jqRqK1"
SECOND = "opencode:ses_second"
PARENT = "opencode:ses_parent"
HOSTILE_COLUMNS = [b"\xff\x00", float("inf"), '{"time": "x", "type": [], "role": 3}', "", "\x00", 10**15, "[]", "null"]


def make_database(path, *, script=None):
    """Make a database with rows in its WAL, as a running opencode leaves it. The connection must stay open."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.executescript(script or (FOLDER / "database.sql").read_text())
    return connection


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("opencode") / "opencode.db"
    connection = make_database(path)
    yield path
    connection.close()


@pytest.fixture(scope="module")
def events(database):
    return read_all("opencode", database.parent)


def test_the_database_is_read_with_its_wal(database, events):
    assert database.stat().st_size < database.with_name("opencode.db-wal").stat().st_size
    (transcript,) = get_source("opencode").detect(open_tree(database), [database.name])
    assert transcript.files == ("opencode.db-wal",)
    assert read_all("opencode", database) == events


def test_the_fields_of_sessions(events):
    new_events = {each.session: each for each in of_kind(events, SessionFound)}
    assert list(new_events) == [MAIN, CHILD, SECOND]
    main = new_events[MAIN]
    assert (main.title, main.title_rank, main.working_dir) == (
        'Stub answer to: "\\"please list files\\""',
        2,
        "/home/ada/project",
    )
    assert (main.model, main.provider, main.created_at) == ("stub-1", "stub", 1795111267269)
    assert main.metadata["version"] == "1.18.33"
    assert main.metadata["project"] == {"id": "global", "worktree": "/"}
    assert new_events[CHILD].parent == MAIN
    assert (new_events[SECOND].title, new_events[SECOND].title_rank, new_events[SECOND].archived) == (
        "Count the files",
        1,
        True,
    )


def test_all_messages_of_a_session_are_one_path(events):
    parents = parents_by_key(events, MAIN)
    keys = list(parents)
    assert list(parents.values()) == [None, *keys[:-1]]
    assert len(keys) == 12


def test_parallel_tool_calls_are_answered_in_their_message(events):
    draft = list(drafts_by_key(events, MAIN).values())[1]
    assert [type(part) for part in draft.parts] == [
        ReasoningPart, TextPart, ToolCallPart, ToolCallPart, ToolResultPart, ToolResultPart,
    ]  # fmt: skip
    success, failure = draft.parts[4:]
    assert (success.call_id, success.status, success.text) == ("call_a", "success", "a.txt\nopencode.json\n")
    assert (success.metadata["started_at"], success.metadata["completed_at"]) == (1795111268779, 1795111269327)
    assert success.metadata["metadata"] == {"exit": 0, "truncated": False}
    assert (failure.call_id, failure.status) == ("call_b", "error")
    assert failure.text.startswith("File not found")


def test_tokens_models_and_facts(events):
    draft = list(drafts_by_key(events, MAIN).values())[1]
    assert (draft.model, draft.input_tokens, draft.output_tokens) == ("stub-1", 100, 20)
    assert draft.metadata["usage"]["cache"] == {"write": 0, "read": 40}
    assert draft.metadata["provider"] == "stub"
    assert [step["type"] for step in draft.metadata["steps"]] == ["step-start", "step-finish"]


def test_context_and_files(events):
    draft = list(drafts_by_key(events, MAIN).values())[6]
    flags = [part.metadata == {INJECTION_KEY: "synthetic"} for part in draft.parts]
    assert flags == [True, True, False, True, True, True, False]
    picture = draft.parts[5]
    assert isinstance(picture, AttachmentPart)
    assert (picture.mime_type, picture.name) == ("image/png", "p.png")
    assert picture.data.startswith("iVBOR")
    assert draft.parts[2].url == "file:///home/ada/project/a.txt"


def test_compaction_and_revert(events):
    (compaction,) = of_kind(events, CompactionFound, MAIN)
    drafts = drafts_by_key(events, MAIN)
    assert drafts[compaction.last].parts[0].text == compaction.summary
    assert compaction.created_at == drafts[compaction.last].created_at_ms
    keys = list(drafts)
    question = drafts[keys[keys.index(compaction.last) - 1]]
    assert (
        question.parts[0].metadata == {INJECTION_KEY: "compaction", "auto": False}
        or INJECTION_KEY in question.parts[0].metadata
    )
    (active,) = of_kind(events, ActiveFound, MAIN)
    assert active.last == compaction.last  # the messages after it were reverted
    assert keys[-1] != active.last


def test_the_second_form_of_messages(events):
    drafts = list(drafts_by_key(events, SECOND).values())
    assert [draft.role for draft in drafts] == ["user", "assistant", "user", "assistant", "user"]
    question, answer, context, shell, _ = drafts
    assert question.parts == (
        TextPart(text="Count the files"),
        AttachmentPart(mime_type="image/png", name="p.png", data="aGVsbG8="),
    )
    reasoning, text, call, failed_call, result, failure = answer.parts
    assert reasoning.native == {"signature": "c2ln"}
    assert text.text == "Counting."
    assert (call.call_id, call.input) == ("call_v2", {"command": "ls | wc -l"})
    assert [getattr(piece, "text", None) for piece in result.content] == ["2", None]
    assert (failure.call_id, failure.status, failure.output) == (failed_call.call_id, "error", "no such file")
    assert (answer.input_tokens, answer.output_tokens) == (13, 5)
    assert context.parts[0].metadata == {INJECTION_KEY: "synthetic"}
    assert shell.parts[1].text == "/home/ada"
    (compaction,) = of_kind(events, CompactionFound, SECOND)
    assert (compaction.summary, compaction.last) == ("Two files were counted.", shell.key)
    assert Note("unknown", "opencode.db", "session_message hologram") in events


def test_the_originals_are_the_rows_of_the_conversation(database, events):
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    originals = {}
    for each in of_kind(events, Original):
        originals.setdefault(each.name, []).extend(json.loads(each.data))
    assert of_kind(events, Original, MAIN)[0].name == "session.json"  # the first name identifies the conversation
    for table in ("session", "message", "part", "session_message", "event", "event_sequence", "todo"):
        rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
        assert rows
        assert sorted(map(str, originals[f"{table}.json"])) == sorted(map(str, rows))
    connection.close()
    assert "project.json" not in originals  # its row changes at each start of opencode
    assert not any(b"hidden-" in each.data for each in of_kind(events, Original))


CHANGES = [
    ("UPDATE message SET data = '{}', time_updated = time_updated + 1 WHERE session_id = ?", MAIN),
    ("UPDATE part SET time_updated = 9e12 WHERE session_id = ?", MAIN),
    ("DELETE FROM part WHERE id = (SELECT max(id) FROM part WHERE session_id = ?)", MAIN),
    ("UPDATE session SET title = 'Other' WHERE id = ?", CHILD),
    ("UPDATE event_sequence SET seq = seq + 1 WHERE aggregate_id = ?", CHILD),
    ("INSERT INTO extra VALUES (?, 'abc')", SECOND),
    ("UPDATE session_message SET time_updated = time_updated + 1 WHERE seq = 2 AND session_id = ?", SECOND),
    ("UPDATE session_share SET secret = 'x' WHERE session_id = ?", None),
    ("UPDATE project SET time_updated = 3 WHERE ? <> ''", None),
]


@pytest.mark.parametrize(("change", "session"), CHANGES)
def test_only_changed_sessions_are_read(tmp_path, change, session):
    path = tmp_path / "opencode.db"
    with closing(make_database(path)) as connection:
        connection.execute("CREATE TABLE extra (session_id TEXT, note TEXT)")
        connection.execute("INSERT INTO extra VALUES ('ses_second', 'ab')")
        old = versions_of(path)
        connection.execute("INSERT INTO extra VALUES (NULL, x'00')")
        assert versions_of(path) == old
        connection.execute(change, ((session or MAIN).removeprefix("opencode:"),))
        new = versions_of(path)
        events = read_selection(path, lambda versions: {key for key in versions if versions[key] != old[key]})
    assert {key for key in new if new[key] != old[key]} == ({session} if session else set())
    assert {event.session for event in events if not isinstance(event, Note)} == ({session} if session else set())
    fields = [event for event in events if isinstance(event, SessionFound)]
    assert [event.version for event in fields] == ([new[session]] if session else [])


def read_selection(path, select):
    tree = open_tree(path)
    source = get_source("opencode")
    (transcript,) = source.detect(tree, tree.names())
    return list(source.read(tree, transcript, select))


def versions_of(path):
    """Return the versions that the source passes to the writer."""
    versions = {}

    def select(items):
        versions.update(items)
        return ()

    assert read_selection(path, select) == []
    return versions


def test_the_storage_folder():
    new_events = read_all("opencode", FOLDER / "storage")
    drafts = drafts_by_key(new_events, PARENT)
    assert parents_by_key(new_events, PARENT) == {"msg_1": None, "msg_2": "msg_1"}
    assert drafts["msg_1"].parts == (
        TextPart(text="Rename it, please"),
        TextPart(text="<reminder>", metadata={INJECTION_KEY: "synthetic"}),
    )
    answer = drafts["msg_2"]
    assert (answer.state, answer.error["name"]) == ("interrupted", "MessageAbortedError")
    assert [part.call_id for part in answer.parts if isinstance(part, ToolCallPart)] == ["call_1", "call_2"]
    assert [part.call_id for part in answer.parts if isinstance(part, ToolResultPart)] == ["call_1"]
    assert {"type": "patch", "hash": "abc", "files": ["a.py"]} in answer.metadata["steps"]
    child = next(each for each in of_kind(new_events, SessionFound) if each.session.endswith("ses_child"))
    assert (child.parent, child.title, child.title_rank) == (PARENT, "Find the callers", 1)
    originals = {each.name: each.data for each in of_kind(new_events, Original)}
    files = {
        str(path.relative_to(FOLDER / "storage")): path.read_bytes() for path in (FOLDER / "storage").rglob("*.json")
    }
    assert {name: json.loads(data) for name, data in originals.items()} == {
        name: json.loads(data) for name, data in files.items()
    }


def test_the_oldest_layout_of_the_storage_folder(tmp_path):
    root = tmp_path / "project" / "home-ada" / "storage" / "session"
    for source, target in [
        ("session/prj/ses_parent.json", "info/ses_parent.json"),
        ("message/ses_parent/msg_1.json", "message/ses_parent/msg_1.json"),
        ("part/msg_1/prt_1.json", "part/ses_parent/msg_1/prt_1.json"),
    ]:
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FOLDER / "storage" / source, root / target)
    new_events = read_all("opencode", tmp_path)
    assert drafts_by_key(new_events, PARENT)["msg_1"].parts == (TextPart(text="Rename it, please"),)
    assert len(of_kind(new_events, Original)) == 3


def test_an_export_has_the_messages_of_the_database(events):
    new_events = read_all("opencode", FOLDER / "export.json")
    database_drafts = drafts_by_key(events, MAIN)
    assert all(database_drafts[key] == draft for key, draft in drafts_by_key(new_events, MAIN).items())
    (original,) = of_kind(new_events, Original)
    assert json.loads(original.data) == json.loads((FOLDER / "export.json").read_bytes())


def test_a_compaction_with_a_tail_summarizes_what_precedes_the_tail(tmp_path):
    document = json.loads((FOLDER / "export.json").read_bytes())
    first, second, *rest = document["messages"]
    compaction = next(part for item in rest for part in item["parts"] if part["type"] == "compaction")
    compaction["tail_start_id"] = second["info"]["id"]
    (tmp_path / "export.json").write_text(json.dumps(document))
    (new_events,) = of_kind(read_all("opencode", tmp_path), CompactionFound)
    assert new_events.last == first["info"]["id"]


def test_where_opencode_keeps_its_data(tmp_path):
    (tmp_path / "data" / "opencode").mkdir(parents=True)
    (tmp_path / "data" / "opencode" / "opencode-beta.db").touch()
    variables = {"XDG_DATA_HOME": str(tmp_path / "data"), "OPENCODE_DB": "other.db"}
    paths = get_source("opencode").discover(Environment(tmp_path, variables, "linux"))
    assert [path.name for path in paths] == ["storage", "project", "opencode-beta.db", "opencode.db", "other.db"]


def test_hostile_values_and_truncation_of_an_export(tmp_path, long):
    document = json.loads((FOLDER / "export.json").read_bytes())
    check_mutations("opencode", document, tmp_path / "export.json", step=1 if long else 31)


def test_hostile_values_in_files(tmp_path):
    folder = tmp_path / "storage"
    shutil.copytree(FOLDER / "storage", folder)
    for path in sorted(folder.rglob("*.json")):
        original = path.read_bytes()
        for mutant in mutations(json.loads(original), 23):
            path.write_text(json.dumps(mutant))
            read_all("opencode", folder)
        for data in (b"", b"[]", b"{", b"\xff\xfe", b"null"):
            path.write_bytes(data)
            read_all("opencode", folder)
        path.write_bytes(original)


@pytest.mark.parametrize("table", ["session", "message", "part", "session_message", "project", "event"])
def test_hostile_values_in_the_database(tmp_path, table, monkeypatch):
    monkeypatch.setattr(sqlite_copy, "_CLOCK_STEP", 0)  # this process is the only writer
    connection = make_database(tmp_path / "opencode.db")
    connection.execute("PRAGMA foreign_keys = OFF")
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    for column in columns:
        for value in HOSTILE_COLUMNS if column in ("id", "data", "model", "revert") else HOSTILE_COLUMNS[:3]:
            connection.execute("BEGIN")
            try:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE rowid IN (SELECT max(rowid) FROM {table})", (value,)
                )
                connection.execute("COMMIT")
            except sqlite3.IntegrityError:
                connection.execute("ROLLBACK")
                continue
            read_all("opencode", tmp_path / "opencode.db")
    connection.close()


def test_damaged_databases_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_copy, "_CLOCK_STEP", 0)
    connection = make_database(tmp_path / "whole.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = (tmp_path / "whole.db").read_bytes()
    for index in range(0, len(data), len(data) // 60):
        damaged = data[:index] + bytes([255 - byte for byte in data[index : index + 40]]) + data[index + 40 :]
        read_mutated("opencode", tmp_path / "opencode.db", damaged)
        read_mutated("opencode", tmp_path / "opencode.db", data[:index])


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-responses"])
def test_the_imported_path_is_a_valid_history(events, tmp_path, format):
    keys = list(drafts_by_key(events, MAIN))
    with recollect.open(tmp_path / "store.db") as store:
        session = store.session("s")
        session.append(path_to(events, keys[-1], MAIN))
        messages = session.history(format)
    text = json.dumps(list(messages))
    assert all(each in text for each in ("please list files", "call_a", "call_b", "File not found", "after compaction"))
    assert text.count("call_a") == 2
    assert not messages.repairs


@pytest.mark.skipif("RECOLLECT_TRANSCRIPTS" not in os.environ, reason="needs RECOLLECT_TRANSCRIPTS")
def test_public_samples():
    folder = Path(os.environ["RECOLLECT_TRANSCRIPTS"]) / "opencode"
    new_events = read_all("opencode", folder)
    assert len(of_kind(new_events, SessionFound)) == 3
    ids = {json.loads(path.read_bytes())["id"] for path in folder.rglob("message/*/*.json")}
    assert drafts_by_key(new_events).keys() == ids
    originals = [json.loads(each.data) for each in of_kind(new_events, Original)]
    files = [json.loads(path.read_bytes()) for path in folder.rglob("*/*.json")]
    assert sorted(map(str, originals)) == sorted(map(str, files))
    assert all(part.parts for part in drafts_by_key(new_events).values())
    assert of_kind(new_events, MessageFound)


@pytest.mark.parametrize(
    ("tool", "metadata", "status"),
    [("bash", {"exit": 3}, "error"), ("bash", {"exit": 0}, "success"), ("bash", {"exit": None}, "success"),
     ("invalid", {}, "error")],
)  # fmt: skip
def test_a_call_that_failed_is_an_error_although_its_status_is_completed(tmp_path, tool, metadata, status):
    state = {
        "status": "completed", "input": {}, "output": "no", "metadata": metadata, "time": {"start": 1000, "end": 3500},
    }  # fmt: skip
    part = {"id": "p", "type": "tool", "tool": tool, "callID": "c", "state": state}
    info = {"id": "ses_x", "projectID": "p", "directory": "/d", "title": "T"}
    export = {"info": info, "messages": [{"info": {"id": "m", "role": "assistant"}, "parts": [part]}]}
    (tmp_path / "export.json").write_text(json.dumps(export))
    _, result = drafts_by_key(read_all("opencode", tmp_path))["m"].parts
    assert (result.status, result.metadata["latency_ms"]) == (status, 2500)
    with recollect.open(tmp_path / "x.db") as store:
        import_files(store, [tmp_path / "export.json"])
        (call,) = store.get_session("opencode:ses_x").tools.list()
        assert (call.status, call.latency_ms) == (status, 2500)


def test_a_reverted_session_shows_the_messages_before_the_revert(tmp_path):
    messages = [
        {"info": {"id": f"m{n}", "role": "user"}, "parts": [{"type": "text", "text": f"{n}"}]} for n in range(4)
    ]
    info = {"id": "ses_x", "projectID": "p", "directory": "/d", "title": "T", "revert": {"messageID": "m2"}}
    path = tmp_path / "export.json"
    with recollect.open(tmp_path / "x.db") as store:
        for revert, keys in (({"messageID": "m2"}, ["m0", "m1"]), (None, ["m0", "m1", "m2", "m3"])):
            path.write_text(json.dumps({"info": info | {"revert": revert}, "messages": messages}))
            import_files(store, [path], ImportOptions(again=True))
            session = store.get_session("opencode:ses_x")
            assert [message.key for message in session.messages()] == keys
            revision = session.revision
            import_files(store, [path])
            assert store.get_session("opencode:ses_x").revision == revision
            assert store.maintenance.check().problems == ()


@pytest.mark.parametrize("table", ["part", "message", "session_message", "todo", "project"])
def test_a_database_without_a_table(tmp_path, table):
    with closing(make_database(tmp_path / "opencode.db")) as connection:
        connection.execute(f"DROP TABLE {table}")
        events = read_all("opencode", tmp_path)
    assert {event.session for event in of_kind(events, SessionFound)} >= {MAIN, CHILD, SECOND}
    assert not any(event.name == f"{table}.json" for event in of_kind(events, Original))


def test_a_damaged_database_is_reported(tmp_path):
    with closing(make_database(tmp_path / "a.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    data = (tmp_path / "a.db").read_bytes()
    (tmp_path / "a.db").write_bytes(data[: len(data) // 2])
    (tmp_path / "b.db").write_bytes(data[:100] + bytes(5000))
    with recollect.open(tmp_path.parent / f"{tmp_path.name}.db") as store:
        report = import_files(store, [tmp_path])
    assert {(note.kind, note.first) for note in report.notes} == {("failed", "a.db"), ("failed", "b.db")}
    assert all("cannot be read as a database" in note.text for note in report.notes)
