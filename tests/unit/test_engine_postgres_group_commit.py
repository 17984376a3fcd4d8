"""Which operations the PostgreSQL engine group-commits in one transaction: those that use only their own session."""

from __future__ import annotations

import pytest

from recollect.engine.postgres.search import PostgresSearch
from recollect.model.message import Draft, TextPart
from recollect.storage import (
    appends,
    branches,
    combined_appends,
    edits,
    records,
    retention,
    sessions,
    tools,
    turns,
)
from recollect.storage.operation import Scope

SCOPE = Scope("", "h", 1, lambda _: False, PostgresSearch)
DRAFT = Draft(role="user", parts=(TextPart(text="x"),))
TURN = turns.HeldTurn(1, 1, 1, 1)
STREAM = turns.OpenStream(TURN, 2)


@pytest.mark.parametrize(
    "op",
    [
        appends.append(SCOPE, "a", [DRAFT]),
        appends.append(SCOPE, "a", [DRAFT], key="k"),  # it reads and writes rows of its session only
        turns.begin_turn(SCOPE, "a", [DRAFT], lease=1, take_over=False),
        turns.save_turn(SCOPE, "a", [DRAFT], []),
        turns.add_messages(SCOPE, "a", TURN, [DRAFT], lease=1),
        turns.extend_lease(SCOPE, "a", TURN, lease=1),
        turns.end_turn(SCOPE, "a", TURN, "completed"),
        turns.begin_stream(SCOPE, "a", TURN, DRAFT, lease=1),
        turns.write_stream(SCOPE, "a", STREAM, DRAFT, lease=1),
    ],
    ids=lambda op: f"{op.steps.__module__.rpartition('.')[2]}{op.steps.__name__}",
)
def test_an_operation_on_one_session_shares_a_transaction(op):
    assert op.session == "a"


@pytest.mark.parametrize(
    "op",
    [
        edits.delete(SCOPE, "a", ["1.1"]),
        edits.restore(SCOPE, "a", ["1.1"]),
        turns.close_stream(SCOPE, "a", STREAM, Draft(role="assistant"), lease=1),
        branches.rewind(SCOPE, "a", 1),
        branches.fork(SCOPE, "a", None, "b", {}),
        combined_appends.append_and_update(SCOPE, "a", [DRAFT], after=1),  # it may add a branch to the tree
        combined_appends.append_and_update(SCOPE, "a", [DRAFT], update={"title": "T"}),
        retention.erase_session(SCOPE, "a"),
        sessions.create(SCOPE, "a", {}),
        sessions.trash(SCOPE, "a"),
        tools.start_call(SCOPE, "a", "c"),
        records.put(SCOPE, "a", "k", "x", 1),
    ],
    ids=lambda op: f"{op.steps.__module__.rpartition('.')[2]}{op.steps.__name__}",
)
def test_other_operations_get_their_own_transaction(op):
    assert op.session is None
