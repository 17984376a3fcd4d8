"""Commands over the larger operations of the store: lists, search, statistics, pruning, files, maintenance."""

from __future__ import annotations

import json
import os
import re
import shlex

import pytest
from cli_words import said

import recollect


class TestLists:
    def test_by_title_pinned_first_by_tool_and_time(self, call, store, talk):
        store.session("cli:b", title="Zebra").update(pinned=True)
        store.session("cli:a", title="Antelope")

        def listed(*words):
            return [line.split("\t")[0] for line in call("sessions", "list", *words).stdout.splitlines()]

        assert listed("--sort", "title") == [talk.id, "cli:a", "cli:b"]
        assert listed("--pinned-first")[0] == "cli:b"
        assert listed("--tool", "read") == [talk.id]
        assert listed("--role", "assistant") == [talk.id]
        assert len(listed("--since", "1h")) == 3
        assert listed("--until", "1h") == []

    def test_sub_agents_are_counted(self, call, store):
        store.session("cli:a")
        store.session("cli:a:delegate:x", parent="cli:a")
        (line,) = call("sessions", "list").stdout.splitlines()
        assert line.split("\t")[4] == "1"


class TestSearch:
    def test_lines_and_json(self, call, store, talk):
        store.session("cli:other").append(said("nothing of it"))
        (line,) = call("sessions", "search", "has", "a", "title").stdout.splitlines()
        session, message, role, _, title, text = line.split("\t")
        assert (session, message, role, title) == (talk.id, "1.4", "assistant", "About the README")
        assert "It has a title" in text
        (hit,) = json.loads(call("sessions", "search", "has a title", "--json").stdout)["hits"]
        assert (hit["session"], hit["message"]) == (talk.id, "1.4")
        assert hit["created_at"].endswith("Z")

    def test_in_one_conversation(self, call, store, talk):
        store.session("cli:other").append(said("a title"))
        shown = call("sessions", "search", "title", "--in", "cli:other").stdout
        assert {line.split("\t")[0] for line in shown.splitlines()} == {"cli:other"}

    def test_the_index_made_anew(self, call, talk):
        assert json.loads(call("db", "reindex", "--json").stdout)["messages"] == 4
        assert call("sessions", "search", "title").stdout

    def test_nothing(self, call, store):
        shown = call("sessions", "search", "nowhere")
        assert (shown.stdout, shown.stderr) == ("", "Nothing was found.\n")

    @pytest.mark.parametrize(
        "query", ['"', "*", "a AND", "NOT", "(", "role:", "before:x", "a:b:c", "\x1b[31m", "'; --"]
    )
    def test_nothing_that_is_typed_is_a_syntax_error(self, call, talk, query):
        call("sessions", "search", "--", query)

    def test_on_a_terminal(self, terminal, store, talk):
        store.session("cli:a", title="evil \x1b[2J").append(said("the needle \x1b]0;x\x07 here"))
        shown = terminal("sessions", "search", "needle")
        assert "needle" in shown
        assert "\x1b[2J" not in shown
        assert "\x07" not in shown


class TestFigures:
    def test_stats(self, call, talk):
        shown = json.loads(call("sessions", "stats", "--json").stdout)
        assert (shown["sessions"], shown["messages"], shown["tool_steps"]) == (1, 4, 2)
        lines = [line.split("\t") for line in call("sessions", "stats").stdout.splitlines()]
        assert lines[0][:4] == ["all", "", "1", "2"]
        assert ["model", "some-model"] in [line[:2] for line in lines]

    def test_stats_on_a_terminal(self, terminal, talk):
        assert "1 conversation" in terminal("sessions", "stats")

    def test_tools(self, call, talk):
        (line,) = call("sessions", "tools").stdout.splitlines()
        assert line.split("\t")[:4] == ["read", "", "1", "0"]
        (tool,) = json.loads(call("sessions", "tools", "read", "--json").stdout)["tools"]
        assert (tool["tool"], tool["calls"], tool["failures"]) == ("read", 1, 0)
        assert call("sessions", "tools", "none").stderr == "No tool was called.\n"


class TestPrune:
    @pytest.fixture
    def old(self, store):
        for number in range(3):
            store.session(f"cli:{number}").append(said("x"))
        return store

    def test_trying_it_does_nothing(self, call, old):
        shown = json.loads(call("sessions", "prune", "--keep", "1", "--dry-run", "--json").stdout)
        assert (shown["count"], shown["dry_run"], shown["erased"]) == (2, True, False)
        assert [session["id"] for session in shown["sessions"]] == ["cli:0", "cli:1"]
        assert shown["oldest_at"] == shown["sessions"][0]["active_at"]
        assert shown["oldest_at"].endswith("Z")
        assert "2 conversations (2 messages" in call("sessions", "prune", "--keep", "1", "--dry-run").stderr
        assert len(old.list_sessions()) == 3

    def test_to_the_trash(self, call, old):
        assert "-y" in call("sessions", "prune", "--keep", "1", code=4).stderr
        call("sessions", "prune", "--keep", "1", "-y")
        assert [session.id for session in old.list_sessions()] == ["cli:2"]
        assert len(old.list_sessions(deleted=True)) == 2

    def test_retention_is_kept_at_the_start_of_what_writes_and_said(self, call, old, monkeypatch):
        import time

        time.sleep(0.01)
        shown = call("sessions", "pin", "cli:2", code=3, RECOLLECT_MAX_AGE="0.001s")
        assert "3 conversations" in shown.stderr
        assert "trash" in shown.stderr
        assert len(old.list_sessions(deleted=True)) == 3

    def test_the_trash_for_good(self, call, old):
        call("sessions", "delete", "cli:0")
        assert "for good" in call("sessions", "prune", "--trash", "-y").stderr
        assert not old.list_sessions(deleted=True)
        call("sessions", "prune", "--trash", "--keep", "1", code=2)

    def test_long_ones_and_large_output(self, call, old):
        session = old.session("cli:long")
        for number in range(5):
            session.save_turn(f"question {number}", {"role": "assistant", "content": "answer"})
        block = {"type": "tool_use", "id": "c", "name": "cat", "input": {}}
        session.append({"role": "assistant", "content": [block]})
        session.record_tool_result("c", "y" * 5000)
        shown = json.loads(call("sessions", "prune", "--tool-output-over", "1kB", "-y", "--json").stdout)
        assert (shown["outputs"], shown["count"]) == (1, 0)
        assert "messages of long conversations went" in call("sessions", "prune", "--max-messages", "4", "-y").stderr

    def test_reading_lets_nothing_go(self, call, old):
        call("sessions", "list", RECOLLECT_MAX_AGE="0.001s")
        assert len(old.list_sessions()) == 3


class TestTransfer:
    @pytest.mark.parametrize("format", ["json", "jsonl"])
    def test_there_and_back(self, call, store, talk, tmp_path, format):
        file = str(tmp_path / f"talk.{format}")
        call("sessions", "export", talk.id, "-o", file)
        other = str(tmp_path / "other.db")
        shown = call("--db", other, "sessions", "import", file, "--dry-run", "--json")
        assert not os.path.exists(other)
        assert (json.loads(shown.stdout)["dry_run"], shown.stderr) == (True, "")
        call("--db", other, "sessions", "import", file)
        with recollect.open(other) as copy:
            assert [m.to_dict() for m in copy.get_session(talk.id).messages()] == [m.to_dict() for m in talk.messages()]

    @pytest.mark.parametrize("format", ["md", "html"])
    def test_for_people(self, call, talk, format):
        assert "It has a title." in call("sessions", "export", talk.id, "--format", format).stdout

    def test_a_file_is_not_overwritten_without_a_yes_and_not_left_half(self, call, talk, tmp_path):
        file = tmp_path / "talk.md"
        file.write_text("mine", encoding="utf-8")
        call("sessions", "export", talk.id, "-o", str(file), code=4)
        assert "-o must be the name of a file, got ''" in call("sessions", "export", talk.id, "-o", "", code=2).stderr
        assert file.read_text(encoding="utf-8") == "mine"
        call("sessions", "export", talk.id, "-o", str(file), "-y")
        assert "It has a title." in file.read_text(encoding="utf-8")
        assert "talk.md.part" not in os.listdir(tmp_path)

    def test_bad_lines_are_reported_and_the_rest_is_imported(self, call, store, talk, tmp_path):
        file = tmp_path / "talk.jsonl"
        call("sessions", "export", talk.id, "-o", str(file))
        file.write_text(file.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
        shown = call("--db", str(tmp_path / "other.db"), "sessions", "import", str(file), code=5)
        assert "talk.jsonl" in shown.stderr

    def test_two_that_went_on_apart_are_told_with_what_to_do(self, call, talk, tmp_path):
        file, other = str(tmp_path / "talk.json"), str(tmp_path / "other.db")
        call("sessions", "export", talk.id, "-o", file)
        call("--db", other, "sessions", "import", file)
        with recollect.open(other) as copy:
            copy.session(talk.id).append({"role": "user", "content": "there"})
        talk.append({"role": "user", "content": "here"})
        call("sessions", "export", talk.id, "-o", file, "-y")
        foreseen = call("--db", other, "sessions", "import", file, "--dry-run", "--on-conflict", "new", code=5).stderr
        assert "It would be" in foreseen
        assert "would be imported" in foreseen
        assert "--on-conflict new" in call("--db", other, "sessions", "import", file, code=5).stderr
        assert "It is now" in call("--db", other, "sessions", "import", file, "--on-conflict", "new", code=5).stderr

    def test_a_file_of_another_kind_is_told_in_a_few_lines(self, call, talk, tmp_path):
        file = tmp_path / "talk.html"
        call("sessions", "export", talk.id, "-o", str(file))
        other = ("--db", str(tmp_path / "other.db"), "sessions", "import", str(file))
        shown = call(*other, code=5).stderr.splitlines()
        assert len(shown) < 20
        assert any("more lines can not be read. --json lists them." in line for line in shown)
        assert any("has no conversation that can be imported" in line for line in shown)
        told = json.loads(call(*other, "--json", code=5).stdout)["files"][0]
        assert len(told["bad"]) == told["bad_count"] > 20

    def test_what_needs_a_yes_says_what_it_is_about(self, call, talk, tmp_path):
        file = tmp_path / "talk.md"
        file.write_text("mine", encoding="utf-8")
        shown = call("sessions", "export", talk.id, "-o", str(file), code=4)
        assert shown.stderr.startswith(f"recollect: {file} is there already. Write over it? Nothing was done:")


class TestDatabase:
    def test_check(self, call, talk):
        shown = json.loads(call("db", "check", "--json").stdout)
        assert (shown["sound"], shown["found"]) == (True, [])
        assert "sound" in call("db", "check").stderr
        assert "sound" in call("db", "check", "--quick", "--repair").stderr

    def test_damage_is_told_and_ends_with_5(self, call, path, store, talk):
        from recollect.engine.sqlite.connection import connect

        store.close()
        file = connect(path, 5.0)  # not with plain sqlite3, whose pages would lack their checksums
        file.execute("UPDATE sessions SET message_count = 99")
        file.close()
        shown = call("db", "check", code=5)
        assert shown.stdout.startswith("problem: ")
        assert json.loads(call("db", "check", "--json", code=5).stdout)["sound"] is False
        call("db", "check", "--repair")
        call("db", "check")

    def test_backup_and_restore(self, call, store, talk, tmp_path):
        file = str(tmp_path / "copy.db")
        assert json.loads(call("db", "backup", file, "--json").stdout)["bytes"] == os.path.getsize(file)
        call("db", "backup", file, code=4)
        call("db", "backup", file, "-y")
        store.erase_session(talk.id)
        store.close()
        foretold = call("db", "restore", file, "--dry-run").stderr
        assert "is sound: 1 session, 4 stored messages" in foretold
        assert "kept beside it" in foretold
        holds = json.loads(call("db", "restore", file, "--dry-run", "--json").stdout)["holds"]
        assert holds["bytes"] == os.path.getsize(file)
        assert (holds["sessions"], holds["messages"]) == (1, 4)
        assert talk.id not in call("sessions", "list").stdout
        call("db", "restore", file, code=4)
        kept = json.loads(call("db", "restore", file, "-y", "--json").stdout)["kept"]
        assert os.path.exists(kept)
        assert talk.id in call("sessions", "list").stdout
        undo = re.search(r"^To undo: recollect (.*)$", call("db", "restore", kept, "-y").stderr, re.MULTILINE)
        assert talk.id not in call("sessions", "list").stdout
        call(*shlex.split(undo[1]), "-y")
        assert talk.id in call("sessions", "list").stdout

    def test_a_dry_run_refuses_what_bringing_it_back_would(self, call, talk, tmp_path):
        other = tmp_path / "notes.txt"
        other.write_text("These are notes. " * 500)
        for more in (["--dry-run"], ["-y"]):
            assert "is not a Recollect database" in call("db", "restore", str(other), *more, code=1).stderr

    def test_stats_and_optimize(self, call, talk):
        assert json.loads(call("db", "stats", "--json").stdout)
        assert call("db", "stats").stdout
        assert json.loads(call("db", "optimize", "--json").stdout)["after"] > 0
