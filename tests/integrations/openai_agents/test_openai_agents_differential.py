"""RecollectSession compared with the SDK's SQLiteSession, on random operations with items of every type."""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile

import pytest
from agents import SQLiteSession
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from openai_agents_items import ALL_ITEMS, answer, call, output

import recollect
from recollect.integrations.openai_agents import RecollectSession

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=6), children, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(
    ["type", "role", "content", "id", "call_id", "name", "output", "status", "summary", "object", "text"]
)
odd_items = st.dictionaries(
    fields, json_values | st.sampled_from(["message", "user", "assistant", "function_call", "response"]), max_size=6
)
mutated_items = st.tuples(st.sampled_from(ALL_ITEMS), fields, json_values).map(
    lambda parts: {**parts[0], parts[1]: parts[2]}
)
items = st.sampled_from(ALL_ITEMS) | mutated_items | odd_items
batches = st.lists(items, min_size=1, max_size=5)
numbers = st.integers(0, 3)
REPEATED_ITEMS = [
    answer("OK", "msg_1"),
    answer("Not OK", "msg_1"),
    call(1),
    output(1),
    {"role": "user", "content": "Continue."},
]
"""Items of a provider whose ids are not unique."""


class Comparison(RuleBasedStateMachine):
    """Each operation runs on both sessions, and their results are equal."""

    url: str

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = self.loop.run_until_complete(_open(self.url))
        self.theirs = SQLiteSession("s")
        self.objects = 0
        self.reopen()

    def teardown(self):
        self.loop.run_until_complete(self.store.close())
        self.loop.close()
        self.theirs.close()

    def compare(self, call):
        results = [self.loop.run_until_complete(call(session)) for session in (self.ours, self.theirs)]
        assert results[0] == results[1]

    @rule()
    def reopen(self):
        """Continue with another object, as another process does, and with other ids of items."""
        self.ours = RecollectSession(self.store, "s")
        self.objects += 1
        self.last = None
        first = {"role": "user", "content": f"of object {self.objects}"}
        self.compare(lambda session: session.add_items([first]))

    def number_ids(self, batch, number):
        """Return a batch whose ids belong to this object; with a number of its own, they are new."""
        batch = copy.deepcopy(batch)
        for item in batch:
            if isinstance(item.get("id"), str):
                item["id"] = f"{item['id'][:20]}_{self.objects}_{number}"
        return batch

    @rule(batch=batches, number=numbers)
    def add(self, batch, number):
        batch = self.number_ids(batch, number)
        if batch != self.last:  # the same batch at once is the repetition of an append
            self.compare(lambda session: session.add_items(copy.deepcopy(batch)))
            self.last = batch

    @rule(batch=st.lists(st.sampled_from(REPEATED_ITEMS), min_size=1, max_size=3))
    def add_ids_again(self, batch):
        self.add(batch, 0)

    @rule(limit=st.none() | st.integers(-2, 12))
    def get(self, limit):
        self.compare(lambda session: session.get_items(limit))

    @rule()
    def get_all(self):
        self.compare(lambda session: session.get_items())

    @rule()
    def pop(self):
        self.compare(lambda session: session.pop_item())

    @rule()
    def clear(self):
        self.compare(lambda session: session.clear_session())

    @rule(batch=batches, number=numbers)
    def add_and_rewind(self, batch, number):
        self.add(batch, number)
        for _ in batch:
            self.pop()


async def _open(url):
    return await recollect.open_async(url)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_the_sessions_agree(engine, request, long):
    few = settings(
        max_examples=300 if long else 12 if engine == "postgresql" else 60,
        stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=not long,
    )  # fmt: skip

    def machine():
        comparison = type("EngineComparison", (Comparison,), {"url": new_url()})
        return comparison()

    if engine == "postgresql":
        databases = request.getfixturevalue("databases")

        def new_url():
            databases.wipe()
            return databases.url_of(databases.common, "plain")

        run_state_machine_as_test(machine, settings=few)
        return
    with tempfile.TemporaryDirectory() as folder:
        count = iter(range(10**6))

        def new_url():
            return os.path.join(folder, f"{next(count)}.db")

        run_state_machine_as_test(machine, settings=few)
