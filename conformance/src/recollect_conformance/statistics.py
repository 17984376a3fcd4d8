"""Statistics: totals by model, channel, day, tool and period."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.errors import InvalidValue, SessionNotFound
from recollect.model.message import Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.model.value import parse_iso
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import (
    ANTHROPIC_RESPONSE,
    OPENAI_RESPONSE,
    numbered_messages,
    tool_call_message,
    tool_result_message,
    user,
)


def message_at(time: str) -> Draft:
    """Return a draft with a creation time."""
    return Draft(role="user", parts=(TextPart(text="x"),), tokens=5, created_at=parse_iso(time))


def call_tool(
    session: Session, tool: str, latencies: list[int], day: str = "2025-03-03", status: str = "success"
) -> None:
    """Call a tool once per latency."""
    for number, latency in enumerate(latencies):
        call_id, time = f"{tool}-{day}-{status}-{number}", parse_iso(f"{day}T12:00Z")
        call = ToolCallPart(call_id=call_id, tool=tool, arguments={})
        result: Any = {"call_id": call_id, "text": "r", "status": status, "metadata": {"latency_ms": latency}}
        session.append(
            [
                Draft(role="assistant", parts=(call,), created_at=time),
                Draft(role="tool", parts=(ToolResultPart(**result),), created_at=time),
            ]
        )


class TestStatistics:
    """Totals of a store and of a session."""

    def test_of_an_empty_store(self, store: Store):
        stats = store.stats()
        assert (stats.sessions, stats.messages, stats.turns, stats.tokens, stats.tool_calls) == (0, 0, 0, 0, 0)
        assert (stats.by_model, stats.by_channel, stats.by_day) == ((), (), ())
        assert store.tools.stats() == []
        empty = store.session("a").stats()
        assert (empty.sessions, empty.messages, empty.by_day) == (1, 0, ())

    def test_of_an_erased_session(self, store: Store):
        session = store.session("a")
        store.erase_session("a")
        with pytest.raises(SessionNotFound):
            session.stats()

    def test_totals(self, store: Store):
        session = store.session("cli:a", model="m1")
        session.append(numbered_messages(4))
        session.save_turn("q", ANTHROPIC_RESPONSE, "anthropic")
        session.save_turn("q", OPENAI_RESPONSE, "openai", status="failed", input_tokens=100)
        store.session("web:b").append(user("hello"))
        with pytest.raises(RuntimeError), store.session("web:b").turn("q"):
            raise RuntimeError
        stats = store.stats()
        assert (stats.sessions, stats.messages, stats.turns, stats.failures) == (2, 10, 3, 2)
        assert (stats.input_tokens, stats.output_tokens) == (16 + 100, 7 + 4)
        assert stats.tokens == session.refresh().token_count + store.session("web:b").token_count
        assert (stats.tool_calls, stats.tool_failures) == (2, 0)
        by_channel = {tally.name: (tally.sessions, tally.messages, tally.turns) for tally in stats.by_channel}
        assert by_channel == {"cli": (1, 8, 2), "web": (1, 2, 1)}
        by_model = {tally.name: (tally.messages, tally.input_tokens) for tally in stats.by_model}
        assert by_model == {"m1": (6, 0), "claude-test-1": (1, 16), "gpt-test-1": (1, 100), None: (2, 0)}
        assert store.stats(channel="web").messages == store.session("web:b").stats().messages == 2
        assert store.stats(model="m1").messages == session.stats().messages == 8
        assert store.stats(channel="none") == store.stats(model="none")

    def test_tokens_of_messages_outside_of_turns(self, store: Store):
        store.session("a").append(Draft(role="assistant", input_tokens=3, output_tokens=4, tokens=9))
        stats = store.stats()
        assert (stats.tokens, stats.input_tokens, stats.output_tokens) == (9, 3, 4)

    def test_days_follow_the_utc_offset(self, store: Store):
        session = store.session("a")
        session.append(
            [message_at("2025-03-01T22:30Z"), message_at("2025-03-01T23:30Z"), message_at("2025-03-02T00:30Z")]
        )
        store.session("b").append(message_at("2025-03-02T12:00Z"))

        def days(offset: int) -> dict[str | None, tuple[int, int]]:
            by_day = store.stats(utc_offset=offset).by_day
            assert list(by_day) == sorted(by_day, key=lambda tally: tally.name or "")
            return {tally.name: (tally.sessions, tally.messages) for tally in by_day}

        assert days(0) == {"2025-03-01": (1, 2), "2025-03-02": (2, 2)}
        assert days(60) == {"2025-03-01": (1, 1), "2025-03-02": (2, 3)}
        assert days(-60) == {"2025-03-01": (1, 3), "2025-03-02": (1, 1)}
        assert {tally.name for tally in session.stats(utc_offset=-60).by_day} == {"2025-03-01"}
        for invalid in (1.5, "60", 1440, True, None):
            with pytest.raises(InvalidValue):
                store.stats(utc_offset=invalid)  # type: ignore[arg-type]

    def test_between_two_times(self, store: Store):
        store.session("a").append([message_at("2025-03-01"), message_at("2025-03-02"), message_at("2025-03-03")])
        store.session("b")
        stats = store.stats(since="2025-03-02", until="2025-03-03")
        assert (stats.sessions, stats.messages, stats.tokens) == (1, 1, 5)
        assert [tally.name for tally in stats.by_day] == ["2025-03-02"]
        assert store.stats(until="2025-03-01").sessions == 0
        assert store.stats().sessions == 2

    def test_a_shared_message_counts_once(self, store: Store):
        session = store.session("cli:a")
        session.append(numbered_messages(4))
        fork = session.fork(2, id="web:f")
        fork.append(numbered_messages(1))
        session.rewind(1)
        session.append(numbered_messages(2))
        session.delete_messages(["1.4"])
        assert store.stats().messages == 4 + 1 + 2 - 1
        assert (session.stats().messages, fork.stats().messages) == (5, 1)
        store.delete_session("cli:a")
        assert (store.stats().sessions, store.stats().messages) == (1, 1)

    def test_of_more_sessions_than_a_page(self, store: Store):
        for number in range(205):
            store.session(f"c{number % 3}:{number}").append(user("x"))
        stats = store.stats()
        assert (stats.sessions, stats.messages) == (205, 205)
        assert {tally.name: tally.sessions for tally in stats.by_channel} == {"c0": 69, "c1": 68, "c2": 68}
        assert sum(tally.sessions for tally in stats.by_day) in (205, 206)

    def test_statistics_convert_to_json_and_back(self, store: Store):
        store.session("a").append(user("x"))
        stats = store.stats()
        assert type(stats).from_json(stats.to_json()) == stats


class TestToolStatistics:
    """Counts and latencies of tools."""

    @pytest.mark.parametrize("count", [1, 2, 3, 19, 20, 21, 100])
    def test_percentiles_are_by_nearest_rank(self, store: Store, count: int):
        """Check that a percentile is the smallest latency that at least that percentage of calls did not exceed."""
        latencies = [number * 10 for number in range(1, count + 1)]
        shuffled_latencies = sorted(latencies, key=lambda latency: latency * 7919 % 1009)
        call_tool(store.session("a"), "grep", shuffled_latencies)
        (stats,) = store.tools.stats()
        for rank, percentile in ((50, stats.p50_ms), (95, stats.p95_ms)):
            assert percentile in latencies
            assert sum(latency <= percentile for latency in latencies) * 100 >= rank * count
            assert sum(latency < percentile for latency in latencies) * 100 < rank * count

    def test_by_tool_and_status(self, store: Store):
        session = store.session("a")
        call_tool(session, "grep", [10, 20, 30])
        call_tool(session, "grep", [1000], status="error")
        call_tool(session, "grep", [9999], status="cancelled")
        session.append(tool_call_message("open", tool="grep"))
        session.append(tool_call_message("running", tool="read"))
        session.tools.start("running")
        grep, read = store.tools.stats()
        assert (grep.tool, grep.period, grep.calls, grep.failures, grep.cancelled) == ("grep", None, 6, 1, 1)
        assert (grep.unanswered, grep.p50_ms, grep.p95_ms) == (1, 20, 1000)
        assert (read.tool, read.calls, read.unanswered, read.p50_ms, read.p95_ms) == ("read", 1, 1, None, None)
        assert store.tools.stats(tool="read") == [read]
        assert store.tools.stats(tool="none") == []
        store.delete_session("a")
        assert store.tools.stats() == []

    def test_by_period(self, store: Store):
        session = store.session("a")
        for day in ("2025-03-02", "2025-03-03", "2025-03-09", "2025-03-10", "2025-04-01"):  # the first day is a Sunday
            call_tool(session, "t", [5], day)

        def periods(period: Any, offset: int = 0) -> dict[str | None, int]:
            return {stats.period: stats.calls for stats in store.tools.stats(period=period, utc_offset=offset)}

        assert list(periods("day")) == ["2025-03-02", "2025-03-03", "2025-03-09", "2025-03-10", "2025-04-01"]
        assert periods("week") == {"2025-02-24": 1, "2025-03-03": 2, "2025-03-10": 1, "2025-03-31": 1}
        assert periods("month") == {"2025-03": 4, "2025-04": 1}
        assert periods("month", -13 * 60) == {"2025-03": 5}
        assert periods(None) == {None: 5}
        assert len(store.tools.stats(since="2025-03-10", period="day")) == 2
        assert len(store.tools.stats(until="2025-03-10", period="day")) == 3
        for invalid in ("year", "", 5):
            with pytest.raises(InvalidValue):
                periods(invalid)
        with pytest.raises(InvalidValue):
            store.tools.stats(tool=5)  # type: ignore[arg-type]

    def test_another_owner_is_not_counted(self, database: DatabaseUnderTest):
        mine, theirs = database.open("me"), database.open("you")
        if mine is theirs:
            pytest.skip("This database can be opened only once.")
        mine.session("a").append([tool_call_message("1"), tool_result_message("1")])
        assert [stats.calls for stats in mine.tools.stats()] == [1]
        assert (theirs.tools.stats(), theirs.stats().messages, mine.stats().messages) == ([], 0, 2)
