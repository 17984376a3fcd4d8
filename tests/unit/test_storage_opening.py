"""Opening a session: a plan that reads, and writes only if there is something to create or to recover."""

from __future__ import annotations

from typing import Any

import pytest
from test_storage_statements import NOW, SCOPE, Script, finish, session_row, turn_row

from recollect.errors import InvalidValue, SessionNotFound
from recollect.storage import leases, paths, sessions
from recollect.storage.fast_paths import OpenSessionRequest
from recollect.storage.operation import Operation


class TestOpen:
    """sessions.open_session(): a plan that reads, and writes only if there is something to create or to recover."""

    def follow(self, plan: Any, script: Script) -> tuple[Any, list[Operation[Any]]]:
        """Run a plan. Return its result and its operations."""
        operations: list[Operation[Any]] = []
        try:
            op = next(plan)
            while True:
                operations.append(op)
                op = plan.send(script.run(op))
        except StopIteration as done:
            return done.value, operations

    def turn_rows(self, holder: str) -> dict[str, Any]:
        return {
            "branches_open": [leases.OpenBranchRow(key=31, number=1, open_turn=5)],
            "turn_get": [turn_row(position=5, holder=holder, lease_until=NOW + 9_999)],
            "branch_release": [paths.BranchKeyRow(31)],
        }

    @pytest.mark.parametrize("fields", [None, {}, {"title": "other"}])
    def test_an_existing_session_is_only_read(self, fields):
        script = Script({"session_get": [session_row(title="T", open_turns=0)]})
        value, operations = self.follow(sessions.open_session(SCOPE, "cli:a", fields), script)
        assert value.title == "T"
        assert script.names == ["session_get"]
        assert [op.writes for op in operations] == [False]

    def test_the_request_to_read_a_session(self):
        for op in (sessions.look_up(SCOPE, "cli:a"), sessions.get(SCOPE, "cli:a"), sessions.read(SCOPE, "cli:a")):
            assert op.fast == OpenSessionRequest(owner="me", id="cli:a")
        assert sessions.look_up(SCOPE, "\ud800").fast is None  # no session has such an id
        op = sessions.look_up(SCOPE, "cli:a")
        assert op.finish is not None
        result = op.finish(op.fast, [session_row(title="T", open_turns=0)])
        assert result is not None
        assert result.value is not None
        assert result.value.title == "T"
        assert op.finish(op.fast, [session_row(open_turns=1)]) is None  # the steps examine the turn
        assert op.finish(op.fast, []) == (None, False)
        for op in (sessions.get(SCOPE, "cli:a"), sessions.read(SCOPE, "cli:a")):
            assert finish(op, [session_row(title="T", open_turns=1)]).title == "T"
            assert finish(op, []) is None  # the steps return None, or find out why

    @pytest.mark.parametrize("fields", [None, {}])
    def test_a_live_turn_is_only_read(self, fields):
        script = Script({"session_get": [session_row()], **self.turn_rows("alive")})
        _, operations = self.follow(sessions.open_session(SCOPE, "cli:a", fields), script)
        assert script.names == ["session_get", "branches_open", "turn_get"]
        assert [op.writes for op in operations] == [False]

    @pytest.mark.parametrize("fields", [None, {}])
    def test_an_abandoned_turn_is_interrupted(self, fields):
        script = Script(
            {"session_get": [session_row()], "session_by_key": [session_row(title="T")], **self.turn_rows("dead")}
        )
        value, operations = self.follow(sessions.open_session(SCOPE, "cli:a", fields), script)
        assert value.title == "T"
        assert [op.writes for op in operations] == [False, True]
        assert "turn_end" in script.names
        assert "session_activate" not in script.names

    def test_a_turn_that_ended_after_the_read(self):
        """The second operation reads again: another process may have ended the turn, or interrupted it."""
        rows = iter([[session_row()], [session_row(title="T", open_turns=0)]])
        script = Script({"session_get": lambda _: next(rows), **self.turn_rows("dead")})
        value, _ = self.follow(sessions.open_session(SCOPE, "cli:a"), script)
        assert value.title == "T"
        assert "turn_end" not in script.names

    def test_a_session_that_appeared_after_the_read(self):
        rows = iter([[], [session_row(title="T", open_turns=0)]])
        script = Script({"session_get": lambda _: next(rows)})
        value, operations = self.follow(sessions.open_session(SCOPE, "cli:a", {"title": "other"}), script)
        assert value.title == "T"
        assert [(op.writes, op.latest) for op in operations] == [(False, False), (True, False)]
        rows = iter([[], [session_row(title="T", open_turns=0)]])
        value, operations = self.follow(sessions.open_session(SCOPE, "cli:a"), script)
        assert value.title == "T"
        assert [(op.writes, op.latest) for op in operations] == [(False, False), (False, True)]

    @pytest.mark.parametrize("name", ["cli:a", "\ud800", ""])
    def test_a_missing_session_is_not_created_without_fields(self, name):
        with pytest.raises(SessionNotFound):
            self.follow(sessions.open_session(SCOPE, name), Script({}))

    @pytest.mark.parametrize(("name", "fields"), [("\ud800", {}), ("cli:a", {"nonsense": 1})])
    def test_arguments_are_checked_before_any_statement(self, name, fields):
        script = Script({})
        with pytest.raises(InvalidValue):
            self.follow(sessions.open_session(SCOPE, name, fields), script)
        assert script.statements == []
