"""Operations without a database: which statements they yield, and what they return for the rows of a script."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from recollect.engine.sqlite.search import SqliteSearch
from recollect.errors import (
    InvalidValue,
    KeyReused,
    SessionBusy,
    SessionExists,
    SessionInTrash,
    SessionNotFound,
    StaleRevision,
    TurnClosed,
)
from recollect.model import json, labels
from recollect.model.message import AttachmentPart, Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.model.session import SessionInfo
from recollect.model.value import json_fields
from recollect.storage import (
    appends,
    leases,
    listing,
    messages,
    paths,
    records,
    retention,
    sessions,
    turns,
)
from recollect.storage.fast_paths import (
    ACTIVITY_RESOLUTION,
    AdvancedRow,
    AppendRequest,
    EnsureSessionRequest,
    FastPath,
    LastMessagesRequest,
    ListedSessionRow,
    ListSessionsRequest,
    NewestMessageRow,
    SaveTurnRequest,
    StoredSessionRow,
)
from recollect.storage.operation import Deletion, Operation, Scope

NOW = 1_763_287_200_123  # milliseconds: 2025-11-16T10:00:00.123Z, an ordinary time
SCOPE = Scope("me", "here:1:2", NOW, lambda holder: holder == "dead", SqliteSearch)
NO_FILTERS = dict.fromkeys(("archived", "pinned", "channel", "model", "status", "role", "tool", "parent", "delegates"))
HELLO = Draft(role="user", parts=(TextPart(text="hello"),))
COUNTS = (8, 3, 30, 0, 0, NOW, NOW - 5, NOW)  # revision, messages, tokens, in, out, updated, active, last message


class Script:
    """Runs an operation against rows by the name of their statement, and records the statements."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows
        self.statements: list[tuple[str, Any, bool]] = []

    def run(self, op: Operation[Any]) -> Any:
        steps = op.start()
        rows: Any = None
        try:
            while True:
                statement = steps.send(rows)
                name, params, many = statement
                assert isinstance(params, list if many else dict)
                self.statements.append(statement)
                response = self.rows.get(name, [])
                rows = response(params) if callable(response) else response
        except StopIteration as done:
            return done.value

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.statements]

    def params(self, name: str) -> Any:
        return next(params for statement, params, _ in self.statements if statement == name)


def session_row(*, open_turns: int = 1, **fields: Any) -> StoredSessionRow:
    """Make a row of session_get. The fields that most sessions lack are one JSON array."""
    value = SessionInfo(id="cli:a", created_at_ms=1, updated_at_ms=2, active_at_ms=3, revision=7, **fields)
    rare = [name for name in SessionInfo.__struct_encode_fields__ if name not in StoredSessionRow._fields]
    fields = json_fields(value)
    values = {name: field for name, field in fields.items() if name not in rare}
    columns = {name: fields[name] for name in rare} | {"labels": labels.encode_labels(value.labels)}
    has_rare = any(columns[name] is not None for name in rare[1:])  # the first one is the schema version
    return StoredSessionRow(
        session=11, tree=21, head=31, open_turns=open_turns,
        rare=json.encode(list(columns.values())) if has_rare else None, **values,
    )  # fmt: skip


def listed_row(**fields: Any) -> ListedSessionRow:
    """Make a row of a list, which has no columns of the branch."""
    values = session_row(**fields)._asdict()
    return ListedSessionRow(**{name: values[name] for name in ListedSessionRow._fields})


def advanced_row(*, open_turns: int = 0) -> AdvancedRow:
    """Make the row of session_advance: three messages on the branch after one was added, at revision 8."""
    return AdvancedRow(
        session=11, head=31, last=2, branch=1, open_turns=open_turns, revision=8, message_count=3, token_count=30,
        input_tokens=0, output_tokens=0, updated_at=NOW, active_at=NOW - 5, last_message_at=NOW,
    )  # fmt: skip


def turn_row(**changes: Any) -> leases.TurnRow:
    """Make a row of turn_get: an open turn of a process that runs."""
    empty = dict.fromkeys(leases.TurnRow._fields)
    values = {"position": 1, "status": "open", "started_at": 1, "holder": "other:1:2", "lease_until": NOW + 1_000}
    return leases.TurnRow(**{**empty, **values, **changes})


def branch_row(*, open_turn: int | None = None) -> paths.BranchRow:
    """Make a row of branch_get: the first branch of the session."""
    return paths.BranchRow(
        key=31, number=1, session=11, parent=None, fork_at=0, last=9, open_turn=open_turn, created_at=1
    )


def span(branch: int, *, high: int, number: int = 1, low: int = 0) -> paths.PathSpan:
    """Make a row of branch_path."""
    return paths.PathSpan(branch=branch, number=number, low=low, high=high)


def key_row(digest: bytes) -> appends.AppendKeyRow:
    """Make a row of append_get: one message at position 3."""
    return appends.AppendKeyRow(digest=digest, branch=31, position=3, messages=1)


def finish(op: Operation[Any], answer: Any) -> Any:
    """Return the result that an operation makes of the answer to its fast path."""
    assert op.fast is not None
    assert op.finish is not None
    return op.finish(op.fast, answer)


def params_of(request: FastPath[Any]) -> dict[str, Any]:
    return msgspec.structs.asdict(request)


def held_turn(position: int) -> turns.HeldTurn:
    """Return an open turn on the branch of these rows."""
    values = {"session": 11, "branch": 31, "position": position, "number": 1}
    return turns.HeldTurn(**{name: values[name] for name in turns.HeldTurn._fields})


CALL = Draft(role="assistant", parts=(ToolCallPart(call_id="c", tool="t"),))
RESULT = Draft(role="tool", parts=(ToolResultPart(call_id="c", text="ok"),))


class TestAppend:
    def test_the_fast_path_and_the_steps_return_the_same(self):
        op = appends.append(SCOPE, "cli:a", [HELLO])
        result, counts = finish(op, advanced_row())
        assert type(op.fast) is AppendRequest
        assert (result.branch, result.first, result.count, result.revision, result.repeated) == (1, 3, 1, 8, False)
        assert result.ids == ["1.3"]
        assert counts == COUNTS
        script = Script({"session_advance": [advanced_row()]})
        assert script.run(op) == (result, counts)
        assert script.names == ["session_advance", "message_insert"]

    def test_the_statement_carries_owner_time_and_sums(self):
        drafts = [
            Draft(role="user", parts=(), tokens=5),
            Draft(role="assistant", parts=(), tokens=7, input_tokens=100, output_tokens=20),
        ]
        script = Script({"session_advance": [advanced_row()]})
        script.run(appends.append(SCOPE, "cli:a", drafts, expected=7))
        assert script.params("session_advance") == {
            "owner": "me", "id": "cli:a", "now": NOW, "messages": 2, "tokens": 12, "input_tokens": 100,
            "output_tokens": 20, "expected": 7, "activity_resolution": ACTIVITY_RESOLUTION,
        }  # fmt: skip

    def test_the_request_carries_owner_time_and_sums(self):
        drafts = [
            Draft(role="user", parts=(), tokens=5),
            Draft(role="assistant", parts=(), tokens=7, input_tokens=100, output_tokens=20),
        ]
        op = appends.append(SCOPE, "cli:a", drafts, expected=7)
        assert op.fast is not None
        script = Script({"session_advance": [advanced_row()]})
        script.run(op)
        params = params_of(op.fast)
        rows = params.pop("rows")
        assert (params.pop("calls"), [(31, at, None, *row) for at, row in enumerate(rows, 3)]) == (
            (), script.params("message_insert"),
        )  # fmt: skip
        assert params | {"activity_resolution": ACTIVITY_RESOLUTION} == script.params("session_advance")

    def test_the_request_carries_the_rows_and_the_calls_with_their_results(self):
        request = appends.append(SCOPE, "cli:a", [HELLO, CALL, RESULT], expected=7).fast
        assert type(request) is AppendRequest
        assert params_of(request).keys() - {"rows", "calls"} == {
            "owner", "id", "now", "messages", "tokens", "input_tokens", "output_tokens", "expected",
        }  # fmt: skip
        assert [row[0] for row in request.rows] == ["user", "assistant", "tool"]
        (row,) = request.calls
        assert row[:10] == (0, 2, 0, 0, "c", "t", "success", 0, 3, 0)

    @pytest.mark.parametrize(
        "drafts",
        [
            [RESULT],
            [CALL, RESULT, RESULT],
            [Draft(role="system", parts=(TextPart(text="s"),))],
            [HELLO, Draft(role="user", parts=(AttachmentPart(data="QUFB" * 1_000),))],
        ],
        ids=["a result of an older call", "a second result", "a pin", "a payload"],
    )
    def test_results_pins_and_payloads_have_no_fast_path(self, drafts):
        assert turns.save_turn(SCOPE, "cli:a", drafts, []).fast is None
        op = appends.append(SCOPE, "cli:a", drafts)
        assert op.fast is None
        script = Script({"session_advance": [advanced_row()]})
        script.run(op)
        assert script.names[:2] == ["session_advance", "message_insert"]

    def test_rows_get_consecutive_positions(self):
        script = Script({"session_advance": [advanced_row()]})
        script.run(appends.append(SCOPE, "cli:a", [HELLO] * 3))
        rows = script.params("message_insert")
        assert [row[:3] for row in rows] == [(31, 3, None), (31, 4, None), (31, 5, None)]

    def test_an_append_to_a_missing_session_is_refused(self):
        script = Script({})
        with pytest.raises(SessionNotFound, match="cli:a"):
            script.run(appends.append(SCOPE, "cli:a", [HELLO]))
        lookups = ["session_get", "session_in_trash"] * 2  # a restore may move it from one to the other in between
        assert script.names == ["session_advance", *lookups]

    def test_an_append_to_a_session_in_the_trash_is_refused(self):
        script = Script({"session_in_trash": [session_row(deleted_at_ms=5)]})
        with pytest.raises(SessionInTrash):
            script.run(appends.append(SCOPE, "cli:a", [HELLO]))

    def test_an_append_with_a_stale_revision_is_refused(self):
        script = Script({"session_get": [session_row()]})
        with pytest.raises(StaleRevision) as excinfo:
            script.run(appends.append(SCOPE, "cli:a", [HELLO], expected=5))
        assert (excinfo.value.revision, excinfo.value.expected) == (7, 5)  # pyright: ignore[reportAttributeAccessIssue]
        assert "message_insert" not in script.names

    def test_an_idempotency_key_is_looked_up_first_and_stored(self):
        op = appends.append(SCOPE, "cli:a", [HELLO], key="k1")
        assert op.fast is None
        script = Script({"session_get": [session_row()], "session_advance": [advanced_row()]})
        script.run(op)
        assert script.names == ["session_get", "append_get", "session_advance", "message_insert", "append_insert"]
        params = script.params("append_insert")
        assert (params["session"], params["key"], params["branch"], params["position"], params["count"]) == (
            11,
            "k1",
            31,
            3,
            1,
        )

    def append_again(self, again: Draft) -> Any:
        first = Script({"session_get": [session_row()], "session_advance": [advanced_row()]})
        first.run(appends.append(SCOPE, "cli:a", [HELLO], key="k1"))
        digest = first.params("append_insert")["digest"]
        second = Script(
            {
                "session_get": [session_row()],
                "append_get": [key_row(digest)],
                "branch_get": [branch_row()],
            }
        )
        later = replace(SCOPE, now=NOW + 60_000)
        return second.run(appends.append(later, "cli:a", [again], key="k1")), second

    def test_the_same_key_and_content_writes_nothing(self):
        (result, _), script = self.append_again(HELLO)
        assert (result.ids, result.repeated) == (["1.3"], True)
        assert script.names == ["session_get", "append_get", "branch_get"]

    def test_the_same_key_for_other_content_is_refused(self):
        with pytest.raises(KeyReused):
            self.append_again(Draft(role="user", parts=(TextPart(text="other"),)))
        with pytest.raises(KeyReused):
            self.append_again(Draft(role="assistant", parts=HELLO.parts))

    def test_a_payload_is_stored_once_and_counted(self):
        image = Draft(role="user", parts=(AttachmentPart(data="QUFB" * 1_000),))
        script = Script({"session_advance": [advanced_row()]})
        script.run(appends.append(SCOPE, "cli:a", [image]))
        assert script.names == ["session_advance", "message_insert", "blob_reference", "blob_insert"]
        assert script.params("blob_insert")["data"] == b"AAA" * 1_000
        script = Script({"session_advance": [advanced_row()], "blob_reference": [appends.BlobReferencesRow(2)]})
        script.run(appends.append(SCOPE, "cli:a", [image]))
        assert script.names == ["session_advance", "message_insert", "blob_reference"]

    def test_a_call_and_its_result_are_one_row_written_once(self):
        script = Script({"session_get": [session_row()], "session_advance": [advanced_row()]})
        script.run(appends.append(SCOPE, "cli:a", [CALL, RESULT], key="k"))
        assert script.names[2:5] == ["session_advance", "message_insert", "tool_call_insert"]
        (row,) = script.params("tool_call_insert")
        assert row[:10] == (31, 3, 0, 31, "c", "t", "success", 31, 4, 0)

    def test_a_result_without_a_call_is_stored_without_a_tool_call(self):
        script = Script({"session_advance": [advanced_row()], "branch_path": [span(31, high=3)]})
        script.run(appends.append(SCOPE, "cli:a", [RESULT]))
        assert script.names[:2] == ["session_advance", "message_insert"]
        assert "tool_call_insert" not in script.names

    def test_an_operation_can_be_run_again(self):
        op = appends.append(SCOPE, "cli:a", [HELLO])
        scripts = [Script({"session_advance": [advanced_row()]}) for _ in range(2)]
        assert scripts[0].run(op) == scripts[1].run(op)
        assert scripts[0].statements == scripts[1].statements

    @pytest.mark.parametrize("key", ["", 5])
    def test_invalid_appends_are_refused_before_any_statement(self, key):
        with pytest.raises(InvalidValue):
            appends.append(SCOPE, "cli:a", [])
        with pytest.raises(InvalidValue):
            appends.append(SCOPE, "cli:a", [HELLO], key=key)
        with pytest.raises(InvalidValue):
            appends.append(SCOPE, "cli:a", [Draft(role="robot")])


class TestTurn:
    def begin(self, **options: Any) -> Operation[Any]:
        return turns.begin_turn(SCOPE, "cli:a", [HELLO], **{"lease": 5_000, "take_over": False, **options})

    def busy_branch(self, **changes: Any) -> Script:
        return Script(
            {
                "session_advance": [advanced_row(open_turns=1)],
                "branch_open": [leases.OpenBranchRow(key=31, number=1, open_turn=1)],
                "turn_get": [turn_row(**changes)],
                "branch_release": [paths.BranchKeyRow(31)],
            }
        )

    def test_a_turn_on_another_branch_does_not_block(self):
        script = Script({"session_advance": [advanced_row(open_turns=1)]})
        script.run(self.begin())
        assert "turn_insert" in script.names
        assert "turn_end" not in script.names

    def test_a_turn_begins_on_a_free_branch(self):
        script = Script({"session_advance": [advanced_row()]})
        step = script.run(self.begin())
        assert script.names == [
            "session_advance",
            "message_insert",
            "turn_insert",
            "branch_claim",
            "session_change_open_turns",
        ]
        assert script.params("session_change_open_turns") == {"session": 11, "change": 1}
        (row,) = script.params("turn_insert")
        assert row == (31, 3, "open", NOW, None, None, None, None, None, None, "here:1:2", NOW + 5_000)
        assert script.params("branch_claim") == {"branch": 31, "position": 3}
        assert script.params("message_insert")[0][:3] == (31, 3, 3)
        assert step.held == held_turn(3)

    def test_a_turn_on_a_busy_branch_is_refused(self):
        script = self.busy_branch()
        with pytest.raises(SessionBusy) as excinfo:
            script.run(self.begin())
        assert excinfo.value.holder == "other:1:2"  # pyright: ignore[reportAttributeAccessIssue]
        assert excinfo.value.until == "2025-11-16T10:00:01.123Z"  # pyright: ignore[reportAttributeAccessIssue]
        assert not {"turn_insert", "branch_claim", "turn_end", "messages_interrupt", "tool_calls_cancel"} & set(
            script.names
        )

    @pytest.mark.parametrize(
        "changes",
        [
            {"lease_until": NOW},
            {"lease_until": NOW - 1},
            {"holder": "dead"},
            {"status": "completed"},
            {"status": "interrupted"},
        ],
        ids=repr,
    )
    def test_an_abandoned_turn_is_interrupted_first(self, changes):
        script = self.busy_branch(**changes)
        script.run(self.begin())
        after = script.names[script.names.index("turn_get") + 1 :]
        assert after == [
            "messages_interrupt", "tool_calls_cancel", "turn_end", "branch_release", "session_change_open_turns", "turn_insert",
            "branch_claim", "session_change_open_turns",
        ]  # fmt: skip
        changes = [params["change"] for name, params, _ in script.statements if name == "session_change_open_turns"]
        assert changes == [-1, 1]
        assert script.params("turn_end")["status"] == "interrupted"
        assert script.params("branch_release") == {"branch": 31, "position": 1}

    def test_a_live_turn_is_taken_over_on_request(self):
        script = self.busy_branch()
        script.run(self.begin(take_over=True))
        assert script.names.index("turn_end") < script.names.index("branch_claim")

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    def test_a_step_of_a_turn_that_has_ended_is_refused(self, status):
        script = Script({"turn_get": [turn_row(status=status)], "branch_get": [branch_row()]})
        with pytest.raises(TurnClosed, match=status):
            script.run(turns.add_messages(SCOPE, "cli:a", held_turn(1), [HELLO], lease=5_000))
        assert "message_insert" not in script.names

    def test_a_step_is_refused_if_a_newer_turn_is_open(self):
        rows = {"turn_get": [turn_row(status="interrupted")], "branch_get": [branch_row(open_turn=7)]}
        with pytest.raises(TurnClosed):
            Script(rows).run(turns.add_messages(SCOPE, "cli:a", held_turn(1), [HELLO], lease=5_000))

    def test_a_turn_begins_with_a_message_and_ends_with_a_final_status(self):
        with pytest.raises(InvalidValue):
            turns.begin_turn(SCOPE, "cli:a", [], lease=1, take_over=False)
        with pytest.raises(InvalidValue):
            turns.end_turn(SCOPE, "cli:a", held_turn(1), "open")


class TestEnsure:
    def test_an_existing_session_is_opened(self):
        op = sessions.ensure(SCOPE, "cli:a", {"title": "other"})
        assert type(op.fast) is EnsureSessionRequest
        assert finish(op, session_row(title="T", open_turns=0)).title == "T"
        script = self.script_of_open(session_row(title="T", open_turns=0))
        session = script.run(op)
        assert script.names == ["session_get"]
        assert session == finish(op, session_row(title="T", open_turns=0))

    def script_of_open(self, row: StoredSessionRow, **rows: Any) -> Script:
        """Make the script of a session that exists."""
        return Script({"session_get": [row], "session_by_key": [row], **rows})

    def test_a_session_with_an_open_turn_takes_more_statements(self):
        script = self.script_of_open(session_row(title="T"))
        session = script.run(sessions.ensure(SCOPE, "cli:a", {"title": "other"}))
        assert script.names == ["session_get", "branches_open"]
        assert session.title == "T"

    def test_an_open_turn_of_a_dead_process_is_interrupted(self):
        script = self.script_of_open(
            session_row(),
            branches_open=[leases.OpenBranchRow(key=31, number=1, open_turn=5)],
            turn_get=[turn_row(position=5, holder="dead", lease_until=NOW + 9_999)],
            branch_release=[paths.BranchKeyRow(31)],
        )
        script.run(sessions.ensure(SCOPE, "cli:a", {}))
        assert script.names == [
            "session_get", "branches_open", "turn_get", "messages_interrupt", "tool_calls_cancel", "turn_end",
            "branch_release", "session_change_open_turns", "session_change", "session_by_key",
        ]  # fmt: skip

    def test_a_live_turn_is_not_touched(self):
        script = self.script_of_open(
            session_row(),
            branches_open=[leases.OpenBranchRow(key=31, number=1, open_turn=5)],
            turn_get=[turn_row(position=5, holder="alive", lease_until=NOW + 9_999)],
        )
        script.run(sessions.ensure(SCOPE, "cli:a", {}))
        assert not {"messages_interrupt", "tool_calls_cancel", "turn_end", "session_change"} & set(script.names)

    def create(self, name: str, fields: dict[str, Any], parent: list[Any]) -> Script:
        script = Script(
            {
                "session_get": lambda params: [] if params["id"] == name else parent,
                "tree_insert": [paths.TreeRow(21)],
                "session_insert": [sessions.SessionKeyRow(11)],
                "tree_branch": [paths.BranchNumberRow(1)],
                "branch_insert": [paths.BranchKeyRow(31)],
                "session_by_key": [session_row()],
            }
        )
        script.run(sessions.ensure(SCOPE, name, fields))
        return script

    def test_a_missing_session_is_created_with_a_tree_and_a_branch(self):
        script = self.create("cli:a", {"title": "T", "pinned": True}, [])
        assert script.names == [
            "session_get", "tree_insert", "session_insert", "title_set", "tree_branch", "branch_insert",
            "session_head", "session_by_key",
        ]  # fmt: skip
        assert script.params("title_set")["folded"] == "t"
        row = script.params("session_insert")
        assert (row["owner"], row["id"], row["tree"], row["now"]) == ("me", "cli:a", 21, NOW)
        assert (row["channel"], row["channel_id"], row["status"]) == ("cli", "a", "active")
        assert (row["title"], row["pinned_at"], row["archived_at"]) == ("T", NOW, None)
        assert script.params("branch_insert")["fork_at"] == 0
        assert script.params("session_head") == {"session": 11, "head": 31, "last": 0}

    def test_a_delegate_finds_its_parent(self):
        script = self.create("cli:a:delegate:coder", {"parent": "cli:a"}, [session_row()])
        row = script.params("session_insert")
        assert (row["parent"], row["relation"]) == (11, "delegate")

    def test_an_id_alone_does_not_make_a_delegate(self):
        row = self.create("cli:a:delegate:coder", {}, [session_row()]).params("session_insert")
        assert (row["parent"], row["relation"]) == (None, None)

    @pytest.mark.parametrize(
        "fields",
        [{"nonsense": 1}, {"title": 5}, {"status": "asleep"}, {"pinned": "yes"}, {"metadata": []}, {"title": "a\0b"},
         {"title": "\ud800"}, {"id": "x"}, {"metadata": {1: 2}}, {"revision": 5}],
        ids=repr,
    )  # fmt: skip
    def test_invalid_fields_are_refused_before_any_statement(self, fields):
        for make in (sessions.ensure, sessions.create, sessions.update):
            with pytest.raises(InvalidValue):
                make(SCOPE, "cli:a", fields)

    def test_create_refuses_an_existing_id(self):
        script = Script({"session_get": [session_row()]})
        with pytest.raises(SessionExists):
            script.run(sessions.create(SCOPE, "cli:a", {}))
        assert script.names == ["session_get"]

    @pytest.mark.parametrize("make", [sessions.create, sessions.ensure])
    def test_the_request_to_create_a_session(self, make):
        op = make(SCOPE, "cli:b", {"title": "Éa"})
        assert type(op.fast) is EnsureSessionRequest
        assert (op.fast.owner, op.fast.id, op.fast.now) == ("me", "cli:b", NOW)
        assert op.fast.parent is None
        assert finish(op, session_row(title="T", open_turns=0)).title == "T"
        op = make(SCOPE, "cli:a:delegate:b", {"title": "Éa", "parent": "cli:a", "pinned": True})
        assert type(op.fast) is EnsureSessionRequest
        columns = op.fast.columns
        assert (op.fast.parent, columns["folded"], columns["channel"], columns["pinned_at"]) == (
            "cli:a", "ea", "cli", NOW,
        )  # fmt: skip

    def test_the_request_has_the_columns_that_the_steps_insert(self):
        request = sessions.ensure(SCOPE, "cli:a", {"title": "T", "pinned": True, "model": "m"}).fast
        assert type(request) is EnsureSessionRequest
        script = self.create("cli:a", {"title": "T", "pinned": True, "model": "m"}, [])
        session_row = script.params("session_insert")
        columns = dict(request.columns)
        assert columns.pop("folded") == script.params("title_set")["folded"]
        assert {**columns, "owner": request.owner, "id": request.id, "now": request.now, "tree": 21} == session_row


class TestSaveTurn:
    ANSWER = Draft(role="assistant", parts=(TextPart(text="yes"),), input_tokens=9, output_tokens=4, model="m")

    def save(self, *answer: Draft, **options: Any) -> Operation[Any]:
        return turns.save_turn(SCOPE, "cli:a", [HELLO], answer, **options)

    def test_the_fast_path_and_the_steps_return_the_same(self):
        op = self.save(self.ANSWER)
        write = finish(op, advanced_row())
        assert type(op.fast) is SaveTurnRequest
        assert (write.held, write.appended.ids, write.counts) == (held_turn(3), ["1.3", "1.4"], COUNTS)
        script = Script({"session_advance": [advanced_row()]})
        assert script.run(op) == write
        assert script.names == ["session_advance", "message_insert", "turn_insert"]

    def test_the_request_has_the_rows_that_the_steps_write(self):
        op = self.save(self.ANSWER, status="failed", usage=turns.TurnUsage(latency_ms=5, error={"name": "x"}))
        request = op.fast
        assert type(request) is SaveTurnRequest
        script = Script({"session_advance": [advanced_row()]})
        script.run(op)
        assert script.params("turn_insert") == [(31, 3, *request.turn, None, None)]
        assert request.turn == ("failed", NOW, NOW, 5, 9, 4, "m", '{"name":"x"}')
        assert [(31, at, 3, *row) for at, row in enumerate(request.rows, 3)] == script.params("message_insert")
        assert (request.messages, request.input_tokens, request.output_tokens) == (2, 9, 4)

    def test_calls_without_a_result_have_a_fast_path_only_in_a_completed_turn(self):
        assert self.save(CALL).fast is not None
        assert self.save(CALL, status="cancelled").fast is None
        assert self.save(self.ANSWER, status="cancelled").fast is not None
        assert self.save(self.ANSWER, key="k").fast is None


class TestLast:
    """The last messages, read together with their session if one branch contains all of them."""

    def rows(self, *positions: int, fork_at: int = 0, **columns: Any) -> list[NewestMessageRow]:
        empty = dict.fromkeys(NewestMessageRow._fields)
        values = {
            **empty, "parts": b'[{"kind": "text", "text": "x"}]', "role": "user", "created_at": 1, "tokens": 3,
            "head": 31, "number": 1, "last": 9, "fork_at": fork_at, **columns,
        }  # fmt: skip
        return [NewestMessageRow(**{**values, "position": position}) for position in positions]  # type: ignore[arg-type]

    @pytest.mark.parametrize("fork_at", [0, 6])
    def test_the_last_messages_take_one_statement(self, fork_at):
        op = messages.read_backward(SCOPE, "cli:a", limit=3)
        assert op.fast == LastMessagesRequest(owner="me", id="cli:a", limit=3, deleted=False)
        script = Script({"messages_last": self.rows(9, 8, 7, fork_at=fork_at)})
        page = script.run(op)
        assert script.names == ["messages_last"]
        assert script.params("messages_last") == params_of(op.fast)
        assert [message.id for message in page.messages] == ["1.7", "1.8", "1.9"]
        assert (page.branch, page.until, page.more) == (31, 9, 7)
        assert finish(op, self.rows(9, 8, 7, fork_at=fork_at)) == page

    def test_messages_elsewhere_and_payloads_are_read_by_the_steps(self):
        op = messages.read_backward(SCOPE, "cli:a", limit=3)
        assert finish(op, []) is None
        assert finish(op, self.rows(9, 8, fork_at=7)) is None
        rare = json.encode([None, None, None, None, None, json.encode(["hash"]), None, None])
        assert finish(op, [*self.rows(9), *self.rows(8, rare=rare)]) is None
        script = Script({"messages_last": self.rows(9, rare=rare), "blob_get": [messages.BlobDataRow(b"x")]})
        assert len(script.run(op).messages) == 1
        assert script.names == ["messages_last", "blob_get"]

    def test_the_rows_may_come_in_any_order(self):
        script = Script({"messages_last": self.rows(8, 9, 7)})
        page = script.run(messages.read_backward(SCOPE, "cli:a", limit=5))
        assert [message.position for message in page.messages] == [7, 8, 9]
        assert page.more is None

    def test_a_branch_with_too_few_messages_takes_more_statements(self):
        rows = {"messages_last": self.rows(9, 8, fork_at=7), "session_get": [session_row()]}
        script = Script(rows | {"branch_path": [span(31, number=2, low=7, high=9), span(30, high=7)]})
        script.run(messages.read_backward(SCOPE, "cli:a", limit=3))
        assert script.names == ["messages_last", "session_get", "branch_path", *["messages_backward"] * 2]

    def test_messages_before_a_position_are_read_along_the_path(self):
        script = Script({"session_get": [session_row()], "branch_path": [span(31, high=9)]})
        op = messages.read_backward(SCOPE, "cli:a", before=5)
        assert op.fast is None
        script.run(op)
        assert script.names == ["session_get", "branch_path", "messages_backward"]

    def test_the_last_messages_of_a_missing_session_are_refused(self):
        for name in ("cli:a", "\ud800"):
            with pytest.raises(SessionNotFound):
                Script({}).run(messages.read_backward(SCOPE, name))


class TestOthers:
    def test_reading_operations_do_not_write(self):
        operations = [
            sessions.get(SCOPE, "a"), sessions.read(SCOPE, "a"), sessions.resolve(SCOPE, "a"),
            records.get(SCOPE, None, "k", "x"), records.list_records(SCOPE, None, "k"), messages.read_forward(SCOPE, "a"), messages.read_backward(SCOPE, "a"),
            messages.get(SCOPE, "a", 1), turns.list_turns(SCOPE, "a"),
            listing.read_page(SCOPE, limit=1, filters=NO_FILTERS),
        ]  # fmt: skip
        assert not any(op.writes for op in operations)
        assert appends.append(SCOPE, "a", [HELLO]).writes

    def test_only_erasing_wipes(self):
        assert retention.erase_session(SCOPE, "a").deletion is Deletion.CONTENT
        assert sessions.trash(SCOPE, "a").deletion is Deletion.ROWS
        with pytest.raises(InvalidValue):
            retention.erase_session(SCOPE, "a", forks="maybe")

    @pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".1", "1.2.3", "-1.2", "1.x"])
    def test_an_invalid_cursor_is_refused(self, cursor):
        with pytest.raises(InvalidValue):
            listing.read_page(SCOPE, limit=1, after=cursor, filters=NO_FILTERS)

    @pytest.mark.parametrize("limit", [0, -1, "5", None, 1.5])
    def test_an_invalid_limit_is_refused(self, limit):
        with pytest.raises(InvalidValue):
            listing.read_page(SCOPE, limit=limit, filters=NO_FILTERS)

    def test_one_more_row_is_read_to_detect_a_next_page(self):
        script = Script({"sessions_by_activity": [listed_row()] * 3})
        page = script.run(listing.read_page(SCOPE, limit=2, filters=dict(NO_FILTERS)))
        assert script.params("sessions_by_activity")["limit"] == 3
        assert len(page.sessions) == 2
        second = Script({"sessions_by_activity": []})
        assert second.run(listing.read_page(SCOPE, limit=2, after=page.next, filters=dict(NO_FILTERS))).next is None
        params = second.params("sessions_by_activity")
        assert (params["at"], params["key"]) == (page.sessions[-1].active_at_ms, listed_row().session)


class TestLists:
    def page(self, *, order: str = "activity", **options: Any) -> Operation[Any]:
        names = ("after", "deleted", "pinned_first", "since", "until")
        arguments = {name: options.pop(name) for name in names if name in options}
        return listing.read_page(SCOPE, limit=2, order=order, filters={**NO_FILTERS, **options}, **arguments)

    @pytest.mark.parametrize(
        ("options", "query"),
        [
            ({}, "sessions_by_activity"),
            ({"order": "created"}, "sessions_by_creation"),
            ({"deleted": True}, "sessions_by_deletion"),
            ({"archived": False, "delegates": False}, "sessions_default_list"),
            ({"since": 5, "role": "user", "tool": "t"}, "sessions_by_activity"),
        ],
        ids=repr,
    )
    def test_a_list_without_an_index_takes_one_statement(self, options, query):
        op = self.page(**options)
        request = op.fast
        assert type(request) is ListSessionsRequest
        assert request.query == query
        script = Script({query: [listed_row(), listed_row(), listed_row()]})
        page = script.run(op)
        assert script.names == [query]
        assert script.params(query) == request.params
        assert finish(op, [tuple(row) for row in script.rows[query]]) == page

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            ({"channel": "cli"}, ["sessions_of_channel", "sessions_through_activity"]),
            ({"channel": "cli", "order": "created"}, ["sessions_of_channel", "sessions_through_creation"]),
            ({"pinned": True, "model": "m"}, ["sessions_of_pin", "sessions_through_activity"]),
            ({"status": "failed"}, ["sessions_of_status", "sessions_through_activity"]),
            ({"archived": True}, ["sessions_of_archive", "sessions_through_activity"]),
            (
                {"model": "m", "order": "title"},
                ["sessions_of_model", "sessions_through_title", "sessions_of_untitled", "sessions_through_activity"],
            ),
        ],
        ids=repr,
    )
    def test_a_filter_with_an_index_takes_two_statements(self, options, names):
        op = self.page(**options)
        assert op.fast is None
        row = listing.SessionKeysRow("[11]")
        script = Script({name: [row] for name in names if name.startswith("sessions_of_")})
        script.run(op)
        assert script.names == names
        assert script.params(names[1])["keys"] == "[11]"

    def test_a_filter_without_matches_reads_no_session(self):
        script = Script({"sessions_of_channel": [listing.SessionKeysRow("[]")]})
        assert script.run(self.page(channel="cli")).sessions == []
        assert script.names == ["sessions_of_channel"]

    def test_a_filter_with_many_matches_walks_the_list(self):
        script = Script({})
        script.run(self.page(channel="cli", status="failed"))
        assert script.names == ["sessions_of_channel", "sessions_of_status", "sessions_by_activity"]

    def test_the_first_page_with_pinned_sessions_first(self):
        op = self.page(pinned_first=True, archived=False, delegates=False)
        request = op.fast
        assert type(request) is ListSessionsRequest
        assert request.query is None
        assert dict(request.params) == {"owner": "me", "limit": 3, "sort_limit": 500}
        rows = [listed_row(pinned_at_ms=5), listed_row(), listed_row()]
        page = finish(op, [tuple(row) for row in rows])
        assert [session.pinned_at_ms for session in page.sessions] == [5, None]
        script = Script(
            {
                "sessions_of_pin": [listing.SessionKeysRow("[11]")],
                "sessions_through_activity": rows[:1],
                "sessions_by_activity": rows[1:],
            }
        )
        assert script.run(op) == page
        assert script.names == ["sessions_of_pin", "sessions_through_activity", "sessions_by_activity"]

    @pytest.mark.parametrize(
        "options",
        [
            {"pinned_first": True},
            {"pinned_first": True, "archived": False, "delegates": False, "since": 5},
            {"pinned_first": True, "archived": False, "delegates": False, "order": "created"},
            {"order": "title"},
        ],
        ids=repr,
    )
    def test_other_lists_with_several_stages_have_no_fast_path(self, options):
        assert self.page(**options).fast is None


class TestMessageIds:
    @pytest.mark.parametrize("name", ["", "x", "1", "1.", ".5", "1.5.2", "a.b", "-1", -1, True, None])
    def test_an_invalid_message_id_is_refused(self, name):
        with pytest.raises(InvalidValue):
            paths.parse_message_id(name)

    def test_message_ids_are_parsed(self):
        assert paths.parse_message_id("2.17") == (2, 17)
        assert paths.parse_message_id(17) == (None, 17)
        assert paths.parse_message_id(0) == (None, 0)
