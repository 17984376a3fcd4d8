"""Which operations PostgreSQL runs side by side in one transaction: those that keep to their own session, and no others."""

from __future__ import annotations

import pytest

from recollect.engine.postgres.concurrent import _own_session
from recollect.model.message import Draft
from recollect.model.part import TextPart
from recollect.op import Scope
from recollect.ops import appends, branches, messages, retention, sessions, settings, streams, tools, turns

SCOPE = Scope("", "h", 1, lambda _: False)
DRAFT = Draft(role="user", parts=(TextPart(text="x"),))
HELD = turns.Held(1, 1, 1, 1)
FLOW = streams.Flow(HELD, 2)


@pytest.mark.parametrize(
    "op",
    [
        appends.append(SCOPE, "a", [DRAFT]),
        turns.begin(SCOPE, "a", [DRAFT], lease=1, take_over=False),
        turns.save(SCOPE, "a", [DRAFT], []),
        turns.add(SCOPE, "a", HELD, [DRAFT], lease=1),
        turns.end(SCOPE, "a", HELD, "completed"),
        streams.begin(SCOPE, "a", HELD, DRAFT, lease=1),
        streams.write(SCOPE, "a", FLOW, DRAFT, lease=1),
    ],
    ids=lambda op: f"{op.steps.__module__.rpartition('.')[2]}{op.steps.__name__}",
)
def test_side_by_side(op):
    assert _own_session(op) == "a"


@pytest.mark.parametrize(
    "op",
    [
        appends.append(SCOPE, "a", [DRAFT], key="k"),
        messages.mark(SCOPE, "a", "1.1", deleted=True),
        streams.close(SCOPE, "a", FLOW, Draft(role="assistant"), lease=1),
        branches.rewind(SCOPE, "a", 1),
        branches.fork(SCOPE, "a", None, "b", {}),
        retention.erase(SCOPE, "a"),
        sessions.create(SCOPE, "a", {}),
        sessions.trash(SCOPE, "a"),
        tools.start(SCOPE, "a", "c"),
        settings.set_setting(SCOPE, "a", 1),
    ],
    ids=lambda op: f"{op.steps.__module__.rpartition('.')[2]}{op.steps.__name__}",
)
def test_alone(op):
    assert _own_session(op) is None
