"""Commands for lists, search, statistics, pruning, export, import and maintenance of a store."""

from __future__ import annotations

import json
import os
import re
import shlex

import pytest
from cli_messages import user_message

import recollect


class TestLists:
    def test_sort_and_filter_options(self, call, store, session):
        store.session("cli:b", title="Zebra").update(pinned=True)
        store.session("cli:a", title="Antelope")

        def list_ids(*options):
            return [line.split("\t")[0] for line in call("sessions", "list", *options).stdout.splitlines()]

        assert list_ids("--sort", "title") == [session.id, "cli:a", "cli:b"]
        assert list_ids("--pinned-first")[0] == "cli:b"
        assert list_ids("--tool", "read") == [session.id]
        assert list_ids("--role", "assistant") == [session.id]
        assert len(list_ids("--since", "1h")) == 3
        assert list_ids("--until", "1h") == []

    def test_delegates_are_counted(self, call, store):
        store.session("cli:a")
        store.session("cli:a:delegate:x", parent="cli:a")
        (line,) = call("sessions", "list").stdout.splitlines()
        assert line.split("\t")[4] == "1"


class TestSearch:
    def test_lines_and_json(self, call, store, session):
        store.session("cli:other").append(user_message("nothing of it"))
        (line,) = call("sessions", "search", "has", "a", "title").stdout.splitlines()
        session_id, message, role, _, title, text = line.split("\t")
        assert (session_id, message, role, title) == (session.id, "1.4", "assistant", "About the README")
        assert "It has a title" in text
        (hit,) = json.loads(call("sessions", "search", "has a title", "--json").stdout)["hits"]
        assert (hit["session"], hit["message"]) == (session.id, "1.4")
        assert hit["created_at"].endswith("Z")

    def test_in_one_conversation(self, call, store, session):
        store.session("cli:other").append(user_message("a title"))
        output = call("sessions", "search", "title", "--in", "cli:other").stdout
        assert {line.split("\t")[0] for line in output.splitlines()} == {"cli:other"}

    def test_reindex(self, call, session):
        assert json.loads(call("db", "reindex", "--json").stdout)["messages"] == 4
        assert call("sessions", "search", "title").stdout

    def test_a_search_without_hits(self, call, store):
        result = call("sessions", "search", "nowhere")
        assert (result.stdout, result.stderr) == ("", "No matching messages.\n")

    @pytest.mark.parametrize(
        "query", ['"', "*", "a AND", "NOT", "(", "role:", "before:x", "a:b:c", "\x1b[31m", "'; --"]
    )
    def test_no_query_is_a_syntax_error(self, call, session, query):
        call("sessions", "search", "--", query)

    def test_on_a_terminal(self, terminal, store, session):
        store.session("cli:a", title="evil \x1b[2J").append(user_message("the needle \x1b]0;x\x07 here"))
        screen = terminal("sessions", "search", "needle")
        assert "needle" in screen
        assert "\x1b[2J" not in screen
        assert "\x07" not in screen


class TestStats:
    def test_stats(self, call, session):
        document = json.loads(call("sessions", "stats", "--json").stdout)
        assert (document["sessions"], document["messages"], document["tool_steps"]) == (1, 4, 2)
        lines = [line.split("\t") for line in call("sessions", "stats").stdout.splitlines()]
        assert lines[0][:4] == ["all", "", "1", "2"]
        assert ["model", "some-model"] in [line[:2] for line in lines]

    def test_stats_on_a_terminal(self, terminal, session):
        assert "1 conversation" in terminal("sessions", "stats")

    def test_tools(self, call, session):
        (line,) = call("sessions", "tools").stdout.splitlines()
        assert line.split("\t")[:4] == ["read", "", "1", "0"]
        (tool,) = json.loads(call("sessions", "tools", "read", "--json").stdout)["tools"]
        assert (tool["tool"], tool["calls"], tool["failures"]) == ("read", 1, 0)
        assert call("sessions", "tools", "none").stderr == "No tool calls.\n"


class TestPrune:
    @pytest.fixture
    def store_with_sessions(self, store):
        for number in range(3):
            store.session(f"cli:{number}").append(user_message("x"))
        return store

    def test_a_dry_run_changes_nothing(self, call, store_with_sessions):
        document = json.loads(call("sessions", "prune", "--keep", "1", "--dry-run", "--json").stdout)
        assert (document["count"], document["dry_run"], document["erased"]) == (2, True, False)
        assert [session["id"] for session in document["sessions"]] == ["cli:0", "cli:1"]
        assert document["oldest_at"] == document["sessions"][0]["active_at"]
        assert document["oldest_at"].endswith("Z")
        assert (
            "2 conversations to the trash (2 messages" in call("sessions", "prune", "--keep", "1", "--dry-run").stderr
        )
        assert len(store_with_sessions.list_sessions()) == 3

    def test_prune_moves_sessions_to_the_trash(self, call, store_with_sessions):
        assert "-y" in call("sessions", "prune", "--keep", "1", code=4).stderr
        call("sessions", "prune", "--keep", "1", "-y")
        assert [session.id for session in store_with_sessions.list_sessions()] == ["cli:2"]
        assert len(store_with_sessions.list_sessions(deleted=True)) == 2

    def test_a_writing_command_applies_the_retention_limit_and_reports_it(self, call, store_with_sessions, monkeypatch):
        import time

        time.sleep(0.01)
        result = call("sessions", "pin", "cli:2", code=3, RECOLLECT_MAX_AGE="0.001s")
        assert "3 conversations" in result.stderr
        assert "trash" in result.stderr
        assert len(store_with_sessions.list_sessions(deleted=True)) == 3

    def test_prune_the_trash_permanently(self, call, store_with_sessions):
        call("sessions", "delete", "cli:0")
        assert "permanently" in call("sessions", "prune", "--trash", "-y").stderr
        assert not store_with_sessions.list_sessions(deleted=True)
        call("sessions", "prune", "--trash", "--keep", "1", code=2)

    def test_prune_long_sessions_and_large_tool_output(self, call, store_with_sessions):
        session = store_with_sessions.session("cli:long")
        for number in range(5):
            session.save_turn(f"question {number}", {"role": "assistant", "content": "answer"})
        block = {"type": "tool_use", "id": "c", "name": "cat", "input": {}}
        session.append({"role": "assistant", "content": [block]})
        session.tools.record_result("c", "y" * 5000)
        document = json.loads(call("sessions", "prune", "--tool-output-over", "1kB", "-y", "--json").stdout)
        assert (document["outputs"], document["count"]) == (1, 0)
        assert (
            "\nDeleted 8 stored messages of long conversations."
            in call("sessions", "prune", "--max-messages", "4", "-y").stderr
        )

    def test_a_reading_command_prunes_nothing(self, call, store_with_sessions):
        call("sessions", "list", RECOLLECT_MAX_AGE="0.001s")
        assert len(store_with_sessions.list_sessions()) == 3


class TestTransfer:
    @pytest.mark.parametrize("format", ["json", "jsonl"])
    def test_export_and_import(self, call, store, session, tmp_path, format):
        file = str(tmp_path / f"session.{format}")
        call("sessions", "export", session.id, "-o", file)
        other = str(tmp_path / "other.db")
        result = call("--db", other, "import", file, "--dry-run", "--json")
        assert not os.path.exists(other)
        assert (json.loads(result.stdout)["dry_run"], result.stderr) == (True, "")
        call("--db", other, "import", file)
        with recollect.open(other) as copy:
            copied_messages = copy.get_session(session.id).messages()  # pyright: ignore[reportOptionalMemberAccess]
            assert [m.to_dict() for m in copied_messages] == [m.to_dict() for m in session.messages()]

    @pytest.mark.parametrize("format", ["md", "html"])
    def test_export_formats_for_people(self, call, session, format):
        assert "It has a title." in call("sessions", "export", session.id, "--format", format).stdout

    def test_export_overwrites_a_file_only_with_yes(self, call, session, tmp_path):
        file = tmp_path / "session.md"
        file.write_text("mine", encoding="utf-8")
        call("sessions", "export", session.id, "-o", str(file), code=4)
        assert "-o must be a file name, got ''" in call("sessions", "export", session.id, "-o", "", code=2).stderr
        assert file.read_text(encoding="utf-8") == "mine"
        call("sessions", "export", session.id, "-o", str(file), "-y")
        assert "It has a title." in file.read_text(encoding="utf-8")
        assert "session.md.part" not in os.listdir(tmp_path)

    def test_bad_lines_are_reported_and_the_rest_is_imported(self, call, store, session, tmp_path):
        file = tmp_path / "session.jsonl"
        call("sessions", "export", session.id, "-o", str(file))
        file.write_text(file.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
        result = call("--db", str(tmp_path / "other.db"), "import", str(file), code=5)
        assert "session.jsonl" in result.stderr

    def test_a_conflict_of_diverged_sessions_names_the_option(self, call, session, tmp_path):
        file, other = str(tmp_path / "session.json"), str(tmp_path / "other.db")
        call("sessions", "export", session.id, "-o", file)
        call("--db", other, "import", file)
        with recollect.open(other) as copy:
            copy.session(session.id).append({"role": "user", "content": "there"})
        session.append({"role": "user", "content": "here"})
        call("sessions", "export", session.id, "-o", file, "-y")
        dry_run = call("--db", other, "import", file, "--dry-run", "--on-conflict", "new", code=5).stderr
        assert "Would be imported as " in dry_run
        assert "Would import " in dry_run
        assert "--on-conflict new" in call("--db", other, "import", file, code=5).stderr
        assert "Imported as " in call("--db", other, "import", file, "--on-conflict", "new", code=5).stderr

    def test_the_errors_of_a_file_of_another_format_are_summarized(self, call, tmp_path):
        file = tmp_path / "other.jsonl"
        file.write_text('{"a": 1}\n' * 50)
        arguments = ("--db", str(tmp_path / "other.db"), "import", str(file))
        lines = call(*arguments, code=5).stderr.splitlines()
        assert len(lines) < 20
        assert any("more lines cannot be read. See --json." in line for line in lines)
        assert any("has no conversation that can be imported" in line for line in lines)
        report = json.loads(call(*arguments, "--json", code=5).stdout)["exports"][0]
        assert len(report["bad"]) == report["bad_count"] > 20

    def test_the_confirmation_error_names_the_file(self, call, session, tmp_path):
        file = tmp_path / "session.md"
        file.write_text("mine", encoding="utf-8")
        result = call("sessions", "export", session.id, "-o", str(file), code=4)
        error = f"Confirmation needed, but this is not a terminal. Pass --yes to overwrite {file}."
        assert result.stderr == f"recollect: {error}\n"


class TestDatabase:
    def test_check(self, call, session):
        document = json.loads(call("db", "check", "--json").stdout)
        assert (document["ok"], document["findings"]) == (True, [])
        assert "no problems found" in call("db", "check").stderr
        assert "no problems found" in call("db", "check", "--quick", "--repair").stderr

    def test_damage_is_reported_with_exit_status_5(self, call, path, store, session):
        from recollect.engine.sqlite.connection import connect

        store.close()
        connection = connect(path, 5.0)  # plain sqlite3 would write pages without checksums
        connection.execute("UPDATE sessions SET message_count = 99")
        connection.close()
        result = call("db", "check", code=5)
        assert result.stdout.startswith("problem: ")
        assert json.loads(call("db", "check", "--json", code=5).stdout)["ok"] is False
        call("db", "check", "--repair")
        call("db", "check")

    def test_backup_and_restore(self, call, store, session, tmp_path):
        file = str(tmp_path / "copy.db")
        assert json.loads(call("db", "backup", file, "--json").stdout)["bytes"] == os.path.getsize(file)
        call("db", "backup", file, code=4)
        call("db", "backup", file, "-y")
        store.erase_session(session.id)
        store.close()
        dry_run = call("db", "restore", file, "--dry-run").stderr
        assert "is valid: 1 conversation, 4 stored messages" in dry_run
        assert "kept next to it" in dry_run
        contents = json.loads(call("db", "restore", file, "--dry-run", "--json").stdout)["holds"]
        assert contents["bytes"] == os.path.getsize(file)
        assert (contents["sessions"], contents["messages"]) == (1, 4)
        assert session.id not in call("sessions", "list").stdout
        call("db", "restore", file, code=4)
        previous = json.loads(call("db", "restore", file, "-y", "--json").stdout)["kept"]
        assert os.path.exists(previous)
        assert session.id in call("sessions", "list").stdout
        undo = re.search(r"^To undo: recollect (.*)$", call("db", "restore", previous, "-y").stderr, re.MULTILINE)
        assert session.id not in call("sessions", "list").stdout
        assert undo is not None
        call(*shlex.split(undo[1]), "-y")
        assert session.id in call("sessions", "list").stdout

    def test_a_dry_run_of_restore_refuses_the_same_files(self, call, session, tmp_path):
        other = tmp_path / "notes.txt"
        other.write_text("These are notes. " * 500)
        for options in (["--dry-run"], ["-y"]):
            assert "is not a Recollect database" in call("db", "restore", str(other), *options, code=1).stderr

    def test_stats_and_optimize(self, call, session):
        assert json.loads(call("db", "stats", "--json").stdout)
        assert call("db", "stats").stdout
        assert json.loads(call("db", "optimize", "--json").stdout)["after"] > 0
