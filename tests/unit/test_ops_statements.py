"""Operations fed by hand: which statements they yield, and what they make of the rows. No database is near."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from recollect import sql
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
from recollect.model.message import Draft
from recollect.model.part import AttachmentPart, TextPart, ToolCallPart, ToolResultPart
from recollect.model.session import Session
from recollect.op import Op, Scope
from recollect.ops import appends, lists, messages, paths, retention, sessions, settings, turns

NOW = 1_763_287_200_123
SCOPE = Scope("me", "here:1:2", NOW, lambda holder: holder == "dead")
ANY = dict.fromkeys(("archived", "pinned", "channel", "model", "status", "role", "tool", "parent", "delegates"))
HELLO = Draft(role="user", parts=(TextPart(text="hello"),))
COUNTS = (8, 3, 30, 0, 0, NOW, NOW - 5, NOW)  # revision, messages, tokens, in, out, updated, active, last message


class Script:
    """Runs an operation against rows that are given by the name of the statement, and notes what was asked."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows
        self.asked: list[tuple[str, Any, bool]] = []

    def run(self, op: Op[Any]) -> Any:
        steps = op.start()
        found: Any = None
        try:
            while True:
                statement = steps.send(found)
                name, params, many = statement
                assert isinstance(params, list if many else dict)
                self.asked.append(statement)
                given = self.rows.get(name, [])
                found = given(params) if callable(given) else given
        except StopIteration as done:
            return done.value

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.asked]

    def params(self, name: str) -> Any:
        return next(params for asked, params, _ in self.asked if asked == name)


def columns(name: str) -> list[str]:
    """Name the columns that a query gives, as its text lists them."""
    text = sql.queries("sqlite")[name]
    listed = text.rpartition("RETURNING")[2] if "RETURNING" in text else text.removeprefix("SELECT")
    found, depth, word = [], 0, ""
    for piece in re.findall(r"[(),]|[^(),]+", listed):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        ends = depth == 0 and "\nFROM" in piece
        if depth == 0 and piece == ",":
            found.append(word.strip())
            word = ""
        else:
            word += piece.partition("\nFROM")[0] if ends else piece
        if ends:
            break
    return [*found, word.strip()]


def row_of(name: str, known: dict[str, Any]) -> tuple[Any, ...]:
    """Make a row of a query: each column from what is known, under its name or the words that it begins with."""
    row = []
    for column in columns(name):
        bare = "parent" if "SELECT p.id" in column else column.removeprefix("s.")
        bare = "delegate_count" if "FROM sessions AS d" in bare else bare
        key = next(
            (word for word in sorted(known, key=len, reverse=True) if bare == word or bare.startswith(word + " ")), None
        )
        assert key is not None, column
        row.append(known[key])
    return tuple(row)


def session_row(*, open_turns: int = 1, **fields: Any) -> tuple[Any, ...]:
    """Make a row as session_get gives it."""
    value = Session(id="cli:a", created_at=1, updated_at=2, active_at=3, revision=7, **fields)
    known = {name: getattr(value, name) for name in Session.__struct_fields__}
    return row_of("session_get", {**known, "key": 11, "tree": 21, "head": 31, "open_turns": open_turns})


def advanced(*, open_turns: int = 0) -> list[tuple[Any, ...]]:
    """Make a row as session_advance gives it: three messages on the branch after one was added, at revision 8."""
    known = {
        "key": 11, "head": 31, "last": 2, "branch": 1, "open_turns": open_turns, "revision": 8,
        "message_count": 3, "token_count": 30, "input_tokens": 0, "output_tokens": 0, "updated_at": NOW,
        "active_at": NOW - 5, "last_message_at": NOW, "( SELECT o.active_at": None,
    }  # fmt: skip
    return [row_of("session_advance", known)[:-1]]  # what is at the top of the list stays with the engine


def held(position: int) -> turns.Held:
    """Name a turn of the branch that these rows are about."""
    known = {"session": 11, "branch": 31, "position": position, "number": 1}
    return turns.Held(**{name: known[name] for name in turns.Held._fields})


CALL = Draft(role="assistant", parts=(ToolCallPart(call_id="c", tool="t"),))
RESULT = Draft(role="tool", parts=(ToolResultPart(call_id="c", text="ok"),))


class TestAppend:
    def test_one_message_takes_one_statement(self):
        script = Script({"session_append": advanced()})
        made, counts = script.run(appends.append(SCOPE, "cli:a", [HELLO]))
        assert script.names == ["session_append"]
        assert (made.branch, made.first, made.count, made.revision, made.repeated) == (1, 3, 1, 8, False)
        assert made.ids == ["1.3"]
        assert counts == COUNTS

    def test_the_statement_carries_owner_time_and_sums(self):
        drafts = [
            Draft(role="user", parts=(), tokens=5),
            Draft(role="assistant", parts=(), tokens=7, input_tokens=100, output_tokens=20),
        ]
        script = Script({"session_advance": advanced()})
        script.run(appends.append(SCOPE, "cli:a", drafts, expected=7))
        assert script.params("session_advance") == {
            "owner": "me", "id": "cli:a", "now": NOW, "messages": 2, "tokens": 12, "input_tokens": 100,
            "output_tokens": 20, "expected": 7,
        }  # fmt: skip

    def test_it_carries_the_rows_and_the_calls_with_their_results(self):
        script = Script({"session_append": advanced()})
        script.run(appends.append(SCOPE, "cli:a", [HELLO, CALL, RESULT], expected=7))
        asked = script.params("session_append")
        assert asked.keys() - {"rows", "calls"} == {
            "owner", "id", "now", "messages", "tokens", "input_tokens", "output_tokens", "expected",
        }  # fmt: skip
        assert [row[0] for row in asked["rows"]] == ["user", "assistant", "tool"]
        (row,) = asked["calls"]
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
    def test_what_has_more_to_it_goes_step_by_step(self, drafts):
        script = Script({"session_advance": advanced()})
        script.run(appends.append(SCOPE, "cli:a", drafts))
        assert script.names[:2] == ["session_advance", "message_insert"]

    def test_rows_are_placed_one_after_another(self):
        script = Script({"session_advance": advanced()})
        script.run(appends.append(SCOPE, "cli:a", [HELLO] * 3))
        rows = script.params("message_insert")
        assert [row[:3] for row in rows] == [(31, 3, None), (31, 4, None), (31, 5, None)]

    def test_a_missing_session(self):
        script = Script({})
        with pytest.raises(SessionNotFound, match="cli:a"):
            script.run(appends.append(SCOPE, "cli:a", [HELLO]))
        looked = ["session_get", "session_in_trash"] * 2  # a restore may move it from one to the other in between
        assert script.names == ["session_append", "session_advance", *looked]

    def test_a_session_in_the_trash(self):
        script = Script({"session_in_trash": [session_row(deleted_at=5)]})
        with pytest.raises(SessionInTrash):
            script.run(appends.append(SCOPE, "cli:a", [HELLO]))

    def test_a_stale_revision(self):
        script = Script({"session_get": [session_row()]})
        with pytest.raises(StaleRevision) as caught:
            script.run(appends.append(SCOPE, "cli:a", [HELLO], expected=5))
        assert (caught.value.revision, caught.value.expected) == (7, 5)
        assert "message_insert" not in script.names

    def test_a_key_is_looked_up_first_and_kept(self):
        script = Script({"session_get": [session_row()], "session_advance": advanced()})
        script.run(appends.append(SCOPE, "cli:a", [HELLO], key="k1"))
        assert script.names == ["session_get", "append_get", "session_advance", "message_insert", "append_insert"]
        kept = script.params("append_insert")
        assert (kept["session"], kept["key"], kept["branch"], kept["position"], kept["count"]) == (11, "k1", 31, 3, 1)

    def repeated(self, again: Draft) -> Any:
        first = Script({"session_get": [session_row()], "session_advance": advanced()})
        first.run(appends.append(SCOPE, "cli:a", [HELLO], key="k1"))
        digest = first.params("append_insert")["digest"]
        second = Script(
            {
                "session_get": [session_row()],
                "append_get": [(digest, 31, 3, 1)],
                "branch_get": [(31, 1, 11, None, 0, 9, None, 1)],
            }
        )
        later = replace(SCOPE, now=NOW + 60_000)
        return second.run(appends.append(later, "cli:a", [again], key="k1")), second

    def test_the_same_key_and_content_writes_nothing(self):
        (made, _), script = self.repeated(HELLO)
        assert (made.ids, made.repeated) == (["1.3"], True)
        assert script.names == ["session_get", "append_get", "branch_get"]

    def test_the_same_key_for_other_content_is_refused(self):
        with pytest.raises(KeyReused):
            self.repeated(Draft(role="user", parts=(TextPart(text="other"),)))
        with pytest.raises(KeyReused):
            self.repeated(Draft(role="assistant", parts=HELLO.parts))

    def test_a_payload_is_stored_once_and_counted(self):
        image = Draft(role="user", parts=(AttachmentPart(data="QUFB" * 1_000),))
        script = Script({"session_advance": advanced()})
        script.run(appends.append(SCOPE, "cli:a", [image]))
        assert script.names == ["session_advance", "message_insert", "blob_keep", "blob_insert"]
        assert script.params("blob_insert")["data"] == b"AAA" * 1_000
        script = Script({"session_advance": advanced(), "blob_keep": [(2,)]})
        script.run(appends.append(SCOPE, "cli:a", [image]))
        assert script.names == ["session_advance", "message_insert", "blob_keep"]

    def test_a_call_and_its_result_are_one_row_written_once(self):
        script = Script({"session_get": [session_row()], "session_advance": advanced()})
        script.run(appends.append(SCOPE, "cli:a", [CALL, RESULT], key="k"))
        assert script.names[2:5] == ["session_advance", "message_insert", "tool_call_insert"]
        (row,) = script.params("tool_call_insert")
        assert row[:10] == (31, 3, 0, 31, "c", "t", "success", 31, 4, 0)

    def test_a_result_without_a_call_is_kept_as_it_came(self):
        script = Script({"session_advance": advanced(), "branch_path": [(31, 1, 0, 3)]})
        script.run(appends.append(SCOPE, "cli:a", [RESULT]))
        assert script.names[:2] == ["session_advance", "message_insert"]
        assert "tool_call_insert" not in script.names

    def test_it_can_be_run_again_from_the_start(self):
        op = appends.append(SCOPE, "cli:a", [HELLO])
        scripts = [Script({"session_advance": advanced()}) for _ in range(2)]
        assert scripts[0].run(op) == scripts[1].run(op)
        assert scripts[0].asked == scripts[1].asked

    @pytest.mark.parametrize("key", ["", 5])
    def test_what_can_not_be_appended_is_refused_before_anything_is_asked(self, key):
        with pytest.raises(InvalidValue):
            appends.append(SCOPE, "cli:a", [])
        with pytest.raises(InvalidValue):
            appends.append(SCOPE, "cli:a", [HELLO], key=key)
        with pytest.raises(InvalidValue):
            appends.append(SCOPE, "cli:a", [Draft(role="robot")])


class TestTurn:
    def turn_row(self, **changes: Any) -> tuple[Any, ...]:
        row = {"position": 1, "status": "open", "started": 1, "ended": None, "latency": None, "input": None}
        row |= {"output": None, "model": None, "error": None, "holder": "other:1:2", "until": NOW + 1_000, **changes}
        return tuple(row.values())

    def begin(self, **options: Any) -> Op[Any]:
        return turns.begin(SCOPE, "cli:a", [HELLO], **{"lease": 5_000, "take_over": False, **options})

    def busy(self, **changes: Any) -> Script:
        return Script(
            {
                "session_advance": advanced(open_turns=1),
                "branch_open": [(1,)],
                "turn_get": [self.turn_row(**changes)],
                "branch_release": [(1,)],
            }
        )

    def test_a_turn_on_another_branch_of_the_session_is_no_hindrance(self):
        script = Script({"session_advance": advanced(open_turns=1)})
        script.run(self.begin())
        assert "turn_insert" in script.names
        assert "turn_end" not in script.names

    def test_on_a_free_branch(self):
        script = Script({"session_advance": advanced()})
        step = script.run(self.begin())
        assert script.names == [
            "session_advance",
            "message_insert",
            "turn_insert",
            "branch_claim",
            "session_opens_turn",
        ]
        assert script.params("session_opens_turn") == {"session": 11, "change": 1}
        (row,) = script.params("turn_insert")
        assert row == (31, 3, "open", NOW, None, None, None, None, None, None, "here:1:2", NOW + 5_000)
        assert script.params("branch_claim") == {"branch": 31, "position": 3}
        assert script.params("message_insert")[0][:3] == (31, 3, 3)
        assert step.held == held(3)

    def test_on_a_busy_branch_it_is_refused(self):
        script = self.busy()
        with pytest.raises(SessionBusy) as caught:
            script.run(self.begin())
        assert caught.value.holder == "other:1:2"
        assert caught.value.until == "2025-11-16T10:00:01.123Z"
        assert not {"turn_insert", "branch_claim", "turn_end", "messages_interrupt", "tool_calls_cancel"} & set(
            script.names
        )

    @pytest.mark.parametrize(
        "changes",
        [{"until": NOW}, {"until": NOW - 1}, {"holder": "dead"}, {"status": "completed"}, {"status": "interrupted"}],
        ids=repr,
    )
    def test_one_that_nobody_holds_is_interrupted_first(self, changes):
        script = self.busy(**changes)
        script.run(self.begin())
        after = script.names[script.names.index("turn_get") + 1 :]
        assert after == [
            "messages_interrupt", "tool_calls_cancel", "turn_end", "branch_release", "session_opens_turn", "turn_insert",
            "branch_claim", "session_opens_turn",
        ]  # fmt: skip
        changes = [params["change"] for name, params, _ in script.asked if name == "session_opens_turn"]
        assert changes == [-1, 1]
        assert script.params("turn_end")["status"] == "interrupted"
        assert script.params("branch_release") == {"branch": 31, "position": 1}

    def test_a_live_one_is_taken_over_on_request(self):
        script = self.busy()
        script.run(self.begin(take_over=True))
        assert script.names.index("turn_end") < script.names.index("branch_claim")

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    def test_a_step_of_a_turn_that_has_ended_is_refused(self, status):
        script = Script({"turn_get": [self.turn_row(status=status)], "branch_get": [(31, 1, 11, None, 0, 9, None, 1)]})
        with pytest.raises(TurnClosed, match=status):
            script.run(turns.add(SCOPE, "cli:a", held(1), [HELLO], lease=5_000))
        assert "message_insert" not in script.names

    def test_a_step_beside_a_turn_that_was_opened_since_is_refused(self):
        rows = {"turn_get": [self.turn_row(status="interrupted")], "branch_get": [(31, 1, 11, None, 0, 9, 7, 1)]}
        with pytest.raises(TurnClosed):
            Script(rows).run(turns.add(SCOPE, "cli:a", held(1), [HELLO], lease=5_000))

    def test_a_turn_begins_with_a_message_and_ends_in_a_known_way(self):
        with pytest.raises(InvalidValue):
            turns.begin(SCOPE, "cli:a", [], lease=1, take_over=False)
        with pytest.raises(InvalidValue):
            turns.end(SCOPE, "cli:a", held(1), "open")


class TestEnsure:
    def test_one_that_is_there_is_opened(self):
        script = Script({"session_ensure": [session_row(title="T", open_turns=0)]})
        found = script.run(sessions.ensure(SCOPE, "cli:a", {"title": "other"}))
        assert script.names == ["session_ensure"]
        assert found.title == "T"

    def test_one_with_an_open_turn_takes_more(self):
        script = Script(
            {
                "session_ensure": [session_row(title="T")],
                "session_activate": [(NOW,)],
                "session_by_key": [session_row(title="T")],
            }
        )
        found = script.run(sessions.ensure(SCOPE, "cli:a", {"title": "other"}))
        assert script.names == ["session_ensure", "branches_open", "session_activate", "session_by_key"]
        assert found.title == "T"

    def test_what_a_dead_process_left_open_is_marked(self):
        script = Script(
            {
                "session_ensure": [session_row()],
                "branches_open": [(31, 1, 5)],
                "turn_get": [(5, "open", 1, None, None, None, None, None, None, "dead", NOW + 9_999)],
                "branch_release": [(1,)],
                "session_activate": [(NOW,)],
                "session_by_key": [session_row()],
            }
        )
        script.run(sessions.ensure(SCOPE, "cli:a", {}))
        assert script.names == [
            "session_ensure", "branches_open", "turn_get", "messages_interrupt", "tool_calls_cancel", "turn_end",
            "branch_release", "session_opens_turn", "session_change", "session_activate", "session_by_key",
        ]  # fmt: skip

    def test_a_live_turn_is_not_touched(self):
        script = Script(
            {
                "session_ensure": [session_row()],
                "branches_open": [(31, 1, 5)],
                "turn_get": [(5, "open", 1, None, None, None, None, None, None, "alive", NOW + 9_999)],
                "session_activate": [(NOW,)],
                "session_by_key": [session_row()],
            }
        )
        script.run(sessions.ensure(SCOPE, "cli:a", {}))
        assert not {"messages_interrupt", "tool_calls_cancel", "turn_end", "session_change"} & set(script.names)

    def made(self, name: str, fields: dict[str, Any], parent: list[Any]) -> Script:
        script = Script(
            {
                "session_get": lambda params: [] if params["id"] == name else parent,
                "tree_insert": [(21,)],
                "session_insert": [(11,)],
                "tree_branch": [(1,)],
                "branch_insert": [(31,)],
                "session_activate": [(NOW,)],
                "session_by_key": [session_row()],
            }
        )
        script.run(sessions.ensure(SCOPE, name, fields))
        return script

    def test_one_that_is_not_there_is_created_with_a_tree_and_a_branch(self):
        script = self.made("cli:a", {"title": "T", "pinned": True}, [])
        assert script.names == [
            "session_ensure", "tree_insert", "session_insert", "title_set", "tree_branch", "branch_insert",
            "session_head", "session_by_key",
        ]  # fmt: skip
        assert script.params("title_set")["folded"] == "t"
        row = script.params("session_insert")
        assert (row["owner"], row["id"], row["tree"], row["now"]) == ("me", "cli:a", 21, NOW)
        assert (row["channel"], row["channel_id"], row["status"]) == ("cli", "a", "active")
        assert (row["title"], row["pinned_at"], row["archived_at"]) == ("T", NOW, None)
        assert script.params("branch_insert")["fork_at"] == 0
        assert script.params("session_head") == {"session": 11, "head": 31, "branch": 1, "last": 0}

    def test_a_delegate_finds_its_parent(self):
        script = self.made("cli:a:delegate:coder", {"parent": "cli:a"}, [session_row()])
        row = script.params("session_insert")
        assert (row["parent"], row["relation"]) == (11, "delegate")

    def test_an_id_alone_makes_no_delegate(self):
        row = self.made("cli:a:delegate:coder", {}, [session_row()]).params("session_insert")
        assert (row["parent"], row["relation"]) == (None, None)

    @pytest.mark.parametrize(
        "fields",
        [{"nonsense": 1}, {"title": 5}, {"status": "asleep"}, {"pinned": "yes"}, {"metadata": []}, {"title": "a\0b"},
         {"title": "\ud800"}, {"id": "x"}, {"metadata": {1: 2}}, {"revision": 5}],
        ids=repr,
    )  # fmt: skip
    def test_fields_that_can_not_be_set_are_refused_before_anything_is_asked(self, fields):
        for make in (sessions.ensure, sessions.create, sessions.update):
            with pytest.raises(InvalidValue):
                make(SCOPE, "cli:a", fields)

    def test_create_refuses_an_id_that_is_taken(self):
        script = Script({"session_get": [session_row()]})
        with pytest.raises(SessionExists):
            script.run(sessions.create(SCOPE, "cli:a", {}))
        assert script.names == ["session_create", "session_get"]

    @pytest.mark.parametrize("make", [sessions.create, sessions.ensure])
    def test_an_engine_may_make_one_by_one_statement(self, make):
        name = "session_create" if make is sessions.create else "session_ensure"
        script = Script({name: [session_row(title="T", open_turns=0)], "session_get": [session_row()]})
        assert script.run(make(SCOPE, "cli:b", {"title": "Éa"})).title == "T"
        assert script.names == [name]
        assert script.params(name)["parent"] is None
        script = Script({name: [session_row(title="T", open_turns=0)], "session_get": [session_row()]})
        script.run(make(SCOPE, "cli:a:delegate:b", {"title": "Éa", "parent": "cli:a"}))
        asked = script.params(name)
        assert (asked["parent"], asked["folded"], asked["channel"], asked["now"]) == ("cli:a", "ea", "cli", NOW)
        assert make(SCOPE, "cli:a", {}).args[1] == "cli:a"


class TestLast:
    """The last messages, read with their session where one branch has them all."""

    ROW = (b'[{"kind": "text", "text": "x"}]', 0, "user", 1, None, 3, None, None, None, None, None, None)

    def rows(self, *positions: int, fork_at: int = 0) -> list[tuple[Any, ...]]:
        return [(self.ROW[0], at, *self.ROW[2:], 31, 1, 9, fork_at) for at in positions]

    @pytest.mark.parametrize("fork_at", [0, 6])
    def test_in_one_statement(self, fork_at):
        script = Script({"messages_last": self.rows(9, 8, 7, fork_at=fork_at)})
        page = script.run(messages.backward(SCOPE, "cli:a", limit=3))
        assert script.names == ["messages_last"]
        assert [message.id for message in page.messages] == ["1.7", "1.8", "1.9"]
        assert (page.branch, page.until, page.more) == (31, 9, 7)

    def test_in_whatever_order_they_come(self):
        script = Script({"messages_last": self.rows(8, 9, 7)})
        page = script.run(messages.backward(SCOPE, "cli:a", limit=5))
        assert [message.position for message in page.messages] == [7, 8, 9]
        assert page.more is None

    def test_where_the_branch_has_too_few_of_them(self):
        known = {"messages_last": self.rows(9, 8, fork_at=7), "session_get": [session_row()]}
        script = Script(known | {"branch_path": [(31, 2, 7, 9), (30, 1, 0, 7)]})
        script.run(messages.backward(SCOPE, "cli:a", limit=3))
        assert script.names == ["messages_last", "session_get", "branch_path", *["messages_backward"] * 2]

    def test_before_a_message_it_is_read_along_the_path(self):
        script = Script({"session_get": [session_row()], "branch_path": [(31, 1, 0, 9)]})
        script.run(messages.backward(SCOPE, "cli:a", before=5))
        assert script.names == ["session_get", "branch_path", "messages_backward"]

    def test_of_a_session_that_is_not_there(self):
        for name in ("cli:a", "\ud800"):
            with pytest.raises(SessionNotFound):
                Script({}).run(messages.backward(SCOPE, name))


class TestOthers:
    def test_reading_operations_say_that_they_only_read(self):
        reading = [
            sessions.get(SCOPE, "a"), sessions.read(SCOPE, "a"), sessions.resolve(SCOPE, "a"), settings.last(SCOPE),
            settings.setting(SCOPE, "k"), messages.forward(SCOPE, "a"), messages.backward(SCOPE, "a"),
            messages.get(SCOPE, "a", 1), turns.turns(SCOPE, "a"),
            lists.page(SCOPE, limit=1, filters=ANY),
        ]  # fmt: skip
        assert not any(op.writes for op in reading)
        assert appends.append(SCOPE, "a", [HELLO]).writes

    def test_only_erasing_scrubs(self):
        assert retention.erase(SCOPE, "a").scrubs
        assert not sessions.trash(SCOPE, "a").scrubs
        with pytest.raises(InvalidValue):
            retention.erase(SCOPE, "a", forks="maybe")

    @pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".1", "1.2.3", "-1.2", "1.x"])
    def test_a_cursor_that_is_none(self, cursor):
        with pytest.raises(InvalidValue):
            lists.page(SCOPE, limit=1, after=cursor, filters=ANY)

    @pytest.mark.parametrize("limit", [0, -1, "5", None, 1.5])
    def test_a_limit_that_is_none(self, limit):
        with pytest.raises(InvalidValue):
            lists.page(SCOPE, limit=limit, filters=ANY)

    def test_one_more_is_read_to_know_whether_the_list_goes_on(self):
        row = session_row()
        script = Script({"sessions_by_activity": [(row[0], *row[4:])] * 3})  # a list has nothing of the branch it is on
        listed = script.run(lists.page(SCOPE, limit=2, filters=ANY))
        assert script.params("sessions_by_activity")["limit"] == 3
        assert len(listed.sessions) == 2
        again = Script({"sessions_by_activity": []})
        assert again.run(lists.page(SCOPE, limit=2, after=listed.next, filters=ANY)).next is None
        asked = again.params("sessions_by_activity")
        assert (asked["at"], asked["key"]) == (listed.sessions[-1].active_at, session_row()[0])

    @pytest.mark.parametrize("name", ["", "x", "1", "1.", ".5", "1.5.2", "a.b", "-1", -1, True, None])
    def test_what_is_no_message_id(self, name):
        with pytest.raises(InvalidValue):
            paths.parse(name)

    def test_message_ids(self):
        assert paths.parse("2.17") == (2, 17)
        assert paths.parse(17) == (None, 17)
        assert paths.parse(0) == (None, 0)
