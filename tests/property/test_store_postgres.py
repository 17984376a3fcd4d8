"""The comparison of test_store_combined.py on PostgreSQL, with fewer examples: it has the same operations but other SQL."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from test_store_combined import CombinedComparison

import recollect
from recollect.engine.process import is_gone
from recollect.storage.operation import Scope


def test_comparison_on_postgres(databases, long):
    class OnPostgres(CombinedComparison):
        """Compares a store that is empty at the start of each example."""

        def __init__(self):
            databases.wipe()
            super().__init__()

        def open_store(self):
            store = recollect.open(databases.url_of(databases.common, "plain"))
            store._scope = lambda: Scope("", self.holder, self.now, is_gone, store._engine.search_dialect)
            return store

        def check_order(self, sessions, expected, time):
            """Check the order of times. Within a millisecond, the order of sessions is not defined."""
            assert sorted(session.id for session in sessions) == sorted(model.id for model in expected)
            times = [getattr(session, time) for session in sessions]
            assert times == sorted(times, reverse=True)

    few = settings(
        max_examples=12 if long else 6, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    with databases.pools.reuse():
        run_state_machine_as_test(OnPostgres, settings=few)
