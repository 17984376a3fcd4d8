"""The same comparison on PostgreSQL, with fewer examples: the operations are the same, the SQL is not."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from test_store import Comparison

import recollect
from recollect.engine.process import gone
from recollect.op import Scope


def test_comparison(databases, long):
    class OnPostgres(Comparison):
        """Does everything to a store that is empty at the start of each example."""

        def __init__(self):
            databases.wipe()
            super().__init__()

        def opened(self):
            store = recollect.open(databases.url_of(databases.common, "plain"))
            store.scope = lambda: Scope("", self.holder, self.now, gone)
            return store

        def in_order(self, listed, expected, time):
            """Within a millisecond sessions of one tree are together, and nothing is said of the rest."""
            assert sorted(session.id for session in listed) == sorted(talk.id for talk in expected)
            times = [getattr(session, time) for session in listed]
            assert times == sorted(times, reverse=True)

    few = settings(
        max_examples=12 if long else 6, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    with databases.pools.kept():
        run_state_machine_as_test(OnPostgres, settings=few)
