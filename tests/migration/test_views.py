"""The SQL views, with a stock SQLite: the acceptance queries of a chat application, run by Python's sqlite3."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest

import recollect

PNG = base64.b64encode(bytes(range(256)) * 20).decode()
MESSAGE_TEXTS = (
    "SELECT role, content_text FROM chat_messages JOIN message_parts ON chat_messages.id = message_parts.message_id"
)
SESSION_COLUMNS = {
    "id", "title", "created_at", "updated_at", "last_message_at", "provider_config_id", "model_id",
    "data_schema_version", "message_count", "archived_at", "pinned_at", "summary", "summary_updated_at", "color",
    "metadata",
}  # fmt: skip
MESSAGE_COLUMNS = {
    "id", "session_id", "role", "state", "sequence", "created_at", "completed_at", "input_tokens", "output_tokens",
    "error", "metadata", "parent_message_id", "deleted_at",
}  # fmt: skip
PART_COLUMNS = {
    "id", "message_id", "session_id", "kind", "sequence", "content_text", "content_json", "mime_type", "size_bytes",
    "tool_call_id", "tool_name", "status", "error_code", "error_message", "related_part_id", "metadata", "created_at",
    "updated_at",
}  # fmt: skip
INVOCATION_COLUMNS = {
    "id", "session_id", "message_id", "invocation_part_id", "result_part_id", "tool_call_id", "tool_name",
    "input_json", "output_json", "status", "error_code", "error_message", "latency_ms", "started_at", "completed_at",
    "created_at", "updated_at",
}  # fmt: skip
SNAPSHOT_COLUMNS = {
    "id",
    "session_id",
    "kind",
    "content_json",
    "message_cutoff_id",
    "token_count",
    "created_at",
    "updated_at",
}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


STOCK_PROGRAM = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for line in sys.stdin:
    statement, values = json.loads(line)
    print(json.dumps(connection.execute(statement, values).fetchall()), flush=True)
connection.close()
"""


class StockSqlite:
    """Python's stock sqlite3 in another process.

    Two copies of SQLite in one process would release each other's locks on the file.
    """

    def __init__(self, path: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STOCK_PROGRAM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def query(self, statement: str, *values: object) -> list[tuple]:
        print(json.dumps([statement, values]), file=self.process.stdin, flush=True)
        return [tuple(row) for row in json.loads(self.process.stdout.readline())]

    def close(self) -> None:
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0


@pytest.fixture
def query(path):
    """Return a function that queries the file from another program while the store is open."""
    stock = StockSqlite(path)
    yield stock.query
    stock.close()


def openai_call(id: str, name: str, arguments: str) -> dict:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def anthropic_call(id: str, name: str, arguments: dict) -> dict:
    block = {"type": "tool_use", "id": id, "name": name, "input": arguments}
    return {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, block]}


def anthropic_result(id: str, content, **fields) -> dict:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content, **fields}]}


class TestNames:
    @pytest.mark.parametrize(
        ("view", "columns"),
        [
            ("chat_sessions", SESSION_COLUMNS),
            ("chat_messages", MESSAGE_COLUMNS),
            ("message_parts", PART_COLUMNS),
            ("tool_invocations", INVOCATION_COLUMNS),
            ("session_snapshots", SNAPSHOT_COLUMNS),
        ],
    )
    def test_every_column_exists(self, store, query, view, columns):
        assert columns <= {row[1] for row in query(f"PRAGMA table_info({view})")}
        assert query(f"SELECT * FROM {view}") == []

    def test_records_are_a_table_too(self, store, query):
        store.records.put("setting", "theme", "dark")
        assert query("SELECT kind, key, value FROM records") == [("setting", "theme", '"dark"')]


class TestConversations:
    def test_a_session_is_listed_with_its_title(self, store, query):
        session = store.session(
            title="Acceptance Test", model="m1", provider_config="p1", color="red", metadata={"a": 1}
        )
        session.update(pinned=True)
        rows = query(
            "SELECT id, title, model_id, provider_config_id, color, json_extract(metadata, '$.a'), message_count, data_schema_version, pinned_at IS NULL, archived_at FROM chat_sessions"
        )
        assert rows == [(session.id, "Acceptance Test", "m1", "p1", "red", 1, 0, 1, 0, None)]

    def test_messages_are_read_by_a_join(self, store, query):
        session = store.session("cli:a")
        with session.turn("Hello, how are you?") as turn:
            turn.add({"role": "assistant", "content": "I'm doing well"})
        rows = query(f"{MESSAGE_TEXTS} ORDER BY chat_messages.created_at, chat_messages.sequence")
        assert rows == [("user", "Hello, how are you?"), ("assistant", "I'm doing well")]

    def test_counts_of_messages_and_parts(self, store, query):
        session = store.session("cli:a")
        session.append(
            [{"role": "user", "content": "a"}, anthropic_call("t1", "read", {}), anthropic_result("t1", "x")]
        )
        assert query("SELECT count(*) FROM chat_messages") == [(3,)]
        assert query("SELECT count(*) FROM message_parts") == [(4,)]
        assert query("SELECT message_count FROM chat_sessions") == [(3,)]

    def test_times_are_milliseconds(self, store, query):
        store.session("cli:a").append({"role": "user", "content": "a"})
        (row,) = query("SELECT created_at, updated_at, last_message_at FROM chat_sessions")
        now = store._scope().now
        assert all(now - 60_000 < at <= now for at in row)

    def test_a_message_has_state_sequence_and_parent(self, store, query):
        session = store.session("cli:a")
        session.append([{"role": "user", "content": str(n)} for n in range(3)])
        rows = query("SELECT session_id, state, sequence, id, parent_message_id FROM chat_messages ORDER BY sequence")
        ids = [row[3] for row in rows]
        assert len(set(ids)) == 3
        assert [row[:3] for row in rows] == [("cli:a", "completed", n) for n in (1, 2, 3)]
        assert [row[4] for row in rows] == [None, ids[0], ids[1]]

    def test_ids_are_unique_across_sessions(self, store, query):
        for name in ("cli:a", "cli:b"):
            store.session(name).append([{"role": "user", "content": "x"}, openai_call("c", "t", "{}")])
        for view in ("chat_messages", "message_parts", "tool_invocations"):
            assert query(f"SELECT count(*) = count(DISTINCT id) FROM {view}") == [(1,)]

    def test_an_interrupted_answer_shows_its_state_and_error(self, store, query):
        session = store.session("cli:a")
        with contextlib.suppress(RuntimeError), session.turn("go") as turn, turn.stream() as answer:
            answer.write("half an ")
            raise RuntimeError("cut")
        rows = query(
            "SELECT state, json_extract(error, '$.message'), content_text FROM chat_messages AS m JOIN message_parts AS p ON p.message_id = m.id WHERE role = 'assistant'"
        )
        assert rows == [("error", "cut", "half an ")]

    def test_a_deleted_message_has_a_time_and_is_not_counted(self, store, query):
        session = store.session("cli:a")
        result = session.append([{"role": "user", "content": "keep"}, {"role": "user", "content": "drop"}])
        session.delete_messages([result.ids[1]])
        assert query(f"{MESSAGE_TEXTS} WHERE deleted_at IS NULL") == [("user", "keep")]
        assert query("SELECT count(*) FROM chat_messages WHERE deleted_at IS NOT NULL") == [(1,)]
        assert query("SELECT message_count FROM chat_sessions") == [(1,)]
        session.restore_messages([result.ids[1]])
        assert len(query(f"{MESSAGE_TEXTS} WHERE deleted_at IS NULL")) == 2

    def test_a_session_in_the_trash_has_a_time(self, store, query):
        store.session("cli:a")
        store.delete_session("cli:a")
        assert query("SELECT id, deleted_at IS NOT NULL FROM chat_sessions") == [("cli:a", 1)]

    def test_an_erased_session_is_in_no_view(self, store, query):
        session = store.session("cli:a")
        session.append([openai_call("c", "t", "{}"), {"role": "tool", "tool_call_id": "c", "content": "x"}])
        store.erase_session("cli:a")
        for view in ("chat_sessions", "chat_messages", "message_parts", "tool_invocations"):
            assert query(f"SELECT count(*) FROM {view}") == [(0,)]

    def test_text_written_by_the_standard_json_module(self, store, query):
        """Such a row begins with a space. A lone surrogate is not valid UTF-8 and must not fail the query."""
        store.session("cli:a").append(
            [{"role": "user", "content": "half \ud83d"}, {"role": "user", "content": "whole"}]
        )
        rows = query("SELECT kind, count(*) FROM message_parts GROUP BY kind")
        assert rows == [("text", 2)]


class TestTools:
    @pytest.mark.parametrize("format", ["openai", "anthropic"])
    def test_a_call_and_its_result(self, store, query, format):
        session = store.session("cli:a")
        if format == "openai":
            call, result = (
                openai_call("c1", "read", '{"path": "README.md"}'),
                {"role": "tool", "tool_call_id": "c1", "content": "# Title"},
            )
        else:
            call, result = anthropic_call("c1", "read", {"path": "README.md"}), anthropic_result("c1", "# Title")
        session.append({"role": "user", "content": "What's in README.md?"})
        session.append(call)
        assert query("SELECT status, output_json, result_part_id, completed_at FROM tool_invocations") == [
            ("pending", None, None, None)
        ]
        session.append(result)
        rows = query(
            "SELECT tool_name, status FROM tool_invocations ORDER BY completed_at DESC, created_at DESC LIMIT 1"
        )
        assert rows == [("read", "success")]
        ((input_json, output_json),) = query("SELECT input_json, substr(output_json, 1, 50) FROM tool_invocations")
        assert json.loads(input_json) == {"path": "README.md"}
        assert output_json in ("# Title", '"# Title"')
        assert query("SELECT count(*) FROM tool_invocations WHERE status='success'") == [(1,)]

    @pytest.mark.parametrize("format", ["openai", "anthropic"])
    def test_parts_join_calls_and_results(self, store, query, format):
        session = store.session("cli:a")
        if format == "openai":
            session.append(
                [openai_call("c1", "read", "{}"), {"role": "tool", "tool_call_id": "c1", "content": "# Title"}]
            )
        else:
            session.append([anthropic_call("c1", "read", {}), anthropic_result("c1", "# Title")])
        calls = query(
            "SELECT id, tool_name, status FROM message_parts WHERE kind = 'tool_call' AND tool_call_id = 'c1'"
        )
        results = query(
            "SELECT related_part_id, tool_name, status, content_text FROM message_parts WHERE kind = 'tool_result' AND tool_call_id = 'c1'"
        )
        assert [row[1:] for row in calls] == [("read", "success")]
        assert results == [(calls[0][0], "read", "success", "# Title")]
        rows = query(
            "SELECT i.tool_name, c.kind, r.kind, r.content_text FROM tool_invocations AS i "
            "JOIN message_parts AS c ON c.id = i.invocation_part_id JOIN message_parts AS r ON r.id = i.result_part_id"
        )
        assert rows == [("read", "tool_call", "tool_result", "# Title")]

    def test_result_blocks_are_joined_as_text(self, store, query):
        blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        store.session("cli:a").append([anthropic_call("c1", "read", {}), anthropic_result("c1", blocks)])
        assert query("SELECT content_text FROM message_parts WHERE kind = 'tool_result'") == [("one\ntwo",)]

    def test_failed_tool_calls(self, store, query):
        session = store.session("cli:a")
        session.append([anthropic_call("c1", "read", {}), anthropic_result("c1", "no such file", is_error=True)])
        session.append(openai_call("c2", "write", "{}"))
        session.tools.record_result(
            "c2", status="error", error_code="EACCES", error_message="not allowed", latency_ms=12
        )
        rows = query(
            "SELECT tool_name, status, error_code, error_message, latency_ms FROM tool_invocations WHERE tool_call_id = 'c2'"
        )
        assert rows == [("write", "error", "EACCES", "not allowed", 12)]
        assert query("SELECT status FROM tool_invocations WHERE tool_call_id = 'c1'") == [("error",)]
        parts = query(
            "SELECT status, error_code, error_message FROM message_parts WHERE kind = 'tool_result' AND tool_call_id = 'c2'"
        )
        assert parts == [("error", "EACCES", "not allowed")]

    def test_tool_calls_by_status(self, store, query):
        session = store.session("cli:a")
        session.append([openai_call(f"c{n}", "t", "{}") for n in range(5)])
        session.tools.start("c1")
        session.tools.record_result("c2", "ok")
        session.tools.record_result("c3", status="error", error_message="x")
        session.tools.record_result("c4", status="cancelled")
        rows = query("SELECT status, group_concat(tool_call_id) FROM tool_invocations GROUP BY status ORDER BY status")
        assert rows == [("cancelled", "c4"), ("error", "c3"), ("pending", "c0"), ("running", "c1"), ("success", "c2")]

    def test_arguments_that_are_not_json_are_unchanged(self, store, query):
        store.session("cli:a").append(openai_call("c1", "t", '{"path": '))
        assert query("SELECT input_json FROM tool_invocations") == [('{"path": ',)]
        assert query("SELECT content_json FROM message_parts") == [('{"path": ',)]

    def test_structured_results_are_json(self, store, query):
        session = store.session("cli:a")
        session.append(openai_call("c1", "t", "{}"))
        session.tools.record_result("c1", {"rows": [1, 2]})
        ((output,),) = query("SELECT output_json FROM tool_invocations")
        assert json.loads(output) == {"rows": [1, 2]}

    def test_the_same_call_id_twice(self, store, query):
        session = store.session("cli:a")
        for answer in ("first", "second"):
            session.append(
                [openai_call("call_0", "t", "{}"), {"role": "tool", "tool_call_id": "call_0", "content": answer}]
            )
        rows = query("SELECT message_id, output_json FROM tool_invocations ORDER BY 1")
        assert [row[1] for row in rows] == ["first", "second"]
        assert len(set(rows)) == 2


class TestAttachments:
    def test_an_image_has_a_type_and_is_stored_as_a_blob(self, store, query):
        session = store.session("cli:a")
        image = {"kind": "attachment", "mime_type": "image/png", "size": 5120, "data": PNG}
        for _ in range(2):
            session.append({"role": "user", "parts": [{"kind": "text", "text": "see"}, image]}, "recollect")
        rows = query("SELECT kind, mime_type, size_bytes, sequence FROM message_parts WHERE kind = 'attachment'")
        assert rows == [("attachment", "image/png", 5120, 1)] * 2
        assert query("SELECT count(*), sum(refs), sum(size) FROM blobs") == [(1, 2, 5120)]
        assert query("SELECT max(length(parts)) < 2000 FROM messages") == [(1,)]
        assert session.messages()[0].parts[1].data == PNG

    def test_an_image_in_a_providers_form_is_stored_once(self, store, query):
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        session = store.session("cli:a")
        message = {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "source": source}]}
        session.append([message, message], "anthropic")
        assert query("SELECT count(*), sum(refs) FROM blobs") == [(1, 2)]
        assert session.history("anthropic", repair=False) == [message, message]

    def test_a_screenshot_in_a_tool_result_is_stored_as_a_blob(self, store, query):
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        session = store.session("cli:a")
        for number in range(3):
            blocks = [{"type": "text", "text": "shot"}, {"type": "image", "source": source}]
            session.append([anthropic_call(f"c{number}", "look", {}), anthropic_result(f"c{number}", blocks)])
        assert query("SELECT count(*), sum(refs) FROM blobs") == [(1, 3)]
        assert query("SELECT max(length(parts)) < 2000 FROM messages") == [(1,)]
        assert session.history("anthropic", repair=False)[1]["content"][0]["content"][1]["source"] == source


class TestBranches:
    def test_a_fork_has_its_own_messages_and_shares_its_parents(self, store, query):
        session = store.session("cli:a")
        session.append([{"role": "user", "content": "1"}, {"role": "user", "content": "2"}])
        fork = session.fork(at=1, id="cli:f")
        fork.append({"role": "user", "content": "2b"})
        assert query("SELECT count(*) FROM chat_messages") == [(3,)]
        assert query("SELECT id, message_count FROM chat_sessions ORDER BY id") == [("cli:a", 2), ("cli:f", 2)]
        ((parent, sequence),) = query(
            "SELECT parent_message_id, sequence FROM chat_messages WHERE session_id = 'cli:f'"
        )
        assert sequence == 2
        assert query("SELECT session_id, sequence FROM chat_messages WHERE id = ?", parent) == [("cli:a", 1)]

    def test_both_branches_after_a_rewind(self, store, query):
        session = store.session("cli:a")
        session.append([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}])
        session.rewind(1)
        session.append({"role": "assistant", "content": "2b"})
        rows = query(f"{MESSAGE_TEXTS} WHERE chat_messages.sequence = 2 ORDER BY 2")
        assert rows == [("assistant", "2"), ("assistant", "2b")]
        assert query("SELECT count(DISTINCT parent_message_id) FROM chat_messages WHERE sequence = 2") == [(1,)]
        assert query("SELECT message_count FROM chat_sessions") == [(2,)]

    def test_a_fork_that_answers_a_shared_call_gets_its_own_row(self, store, query):
        session = store.session("cli:a")
        session.append(openai_call("c1", "t", "{}"))
        fork = session.fork(id="cli:f")
        session.tools.record_result("c1", "in a")
        fork.tools.record_result("c1", "in f")
        rows = query("SELECT session_id, status, output_json FROM tool_invocations ORDER BY session_id")
        assert rows == [("cli:a", "success", "in a"), ("cli:f", "success", "in f")]
        assert query("SELECT count(DISTINCT id) FROM tool_invocations") == [(2,)]
        assert query("SELECT count(*) FROM message_parts WHERE kind = 'tool_call'") == [(1,)]
        results = query(
            "SELECT session_id, tool_name, related_part_id FROM message_parts WHERE kind = 'tool_result' ORDER BY 1"
        )
        call = query("SELECT id FROM message_parts WHERE kind = 'tool_call'")[0][0]
        assert results == [("cli:a", "t", call), ("cli:f", "t", call)]


class TestSnapshots:
    def test_snapshots_name_the_last_message_they_cover(self, store, query):
        store.session("cli:a").append({"role": "user", "content": "x"})
        store._engine._file.writer.execute(
            "INSERT INTO snapshots (session, kind, content, message, tokens, created_at, updated_at) "
            "SELECT s.key, 'title', '\"T\"', (s.head << 32) | 1, 3, 5, 6 FROM sessions AS s"
        )
        rows = query(
            "SELECT n.session_id, kind, content_json, token_count, n.created_at, m.role FROM session_snapshots AS n JOIN chat_messages AS m ON m.id = n.message_cutoff_id"
        )
        assert rows == [("cli:a", "title", '"T"', 3, 5, "user")]


def fill(store):
    for name in ("cli:a", "cli:b"):
        session = store.session(name)
        for number in range(150):
            session.append({"role": "user", "content": f"{number} " + "x" * 400})


def read_and_append(path):
    with recollect.open(path) as store:
        sessions = store.list_sessions()
        assert {session.id for session in sessions} == {"cli:a", "cli:b"}
        for session in sessions:
            texts = [message.text.split()[0] for message in session.messages()]
            assert texts == [str(number) for number in range(150)]
            session.append({"role": "user", "content": "and more"})


class TestOtherPrograms:
    def test_checksums_are_valid_after_a_checkpoint_by_stock_sqlite(self, path):
        with recollect.open(path) as store:
            fill(store)
            stock = StockSqlite(path)
            assert stock.query("SELECT count(*) FROM chat_messages") == [(300,)]
            assert stock.query("PRAGMA wal_checkpoint(TRUNCATE)")[0][0] == 0
            stock.close()
        read_and_append(path)

    def test_stock_sqlite_checkpoints_when_it_closes_last(self, path):
        with recollect.open(path) as store:
            fill(store)
            stock = StockSqlite(path)
            assert stock.query("SELECT count(*) FROM message_parts") == [(300,)]
        stock.close()
        assert not os.path.exists(path + "-wal")
        read_and_append(path)

    def test_stock_sqlite_checkpoints_the_wal_of_a_crash(self, path):
        code = (
            "import os, sys, recollect\n"
            "store = recollect.open(sys.argv[1])\n"
            "for name in ('cli:a', 'cli:b'):\n"
            "    texts = [f'{number} ' + 'x' * 400 for number in range(150)]\n"
            "    store.session(name).append([{'role': 'user', 'content': text} for text in texts])\n"
            "os._exit(0)\n"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True)
        stock = StockSqlite(path)
        assert stock.query("SELECT count(*) FROM chat_messages") == [(300,)]
        stock.close()
        read_and_append(path)

    def test_the_integrity_check_of_stock_sqlite_passes(self, path):
        with recollect.open(path) as store:
            fill(store)
        stock = StockSqlite(path)
        assert stock.query("PRAGMA integrity_check") == [("ok",)]
        assert stock.query("PRAGMA foreign_key_check") == []
        stock.close()
        read_and_append(path)

    @pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 command is not installed")
    def test_the_sqlite3_command(self, path):
        with recollect.open(path) as store, store.session("cli:a", title="T").turn("Hello") as turn:
            turn.add({"role": "assistant", "content": "Hi"})

        def shell(statement: str) -> list[str]:
            process = subprocess.run(["sqlite3", path, statement], capture_output=True, text=True, check=True)
            return process.stdout.splitlines()

        assert shell("SELECT id, title FROM chat_sessions") == ["cli:a|T"]
        by_time = "ORDER BY chat_messages.created_at, chat_messages.sequence"
        assert shell(f"{MESSAGE_TEXTS} {by_time}") == ["user|Hello", "assistant|Hi"]
        tables = set(" ".join(shell(".tables")).split())
        assert {
            "chat_sessions",
            "chat_messages",
            "message_parts",
            "tool_invocations",
            "session_snapshots",
            "records",
        } <= tables
