"""The contents of the sidebar, the statistics, the search and the import report, without a server."""

import asyncio
import datetime
import os
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("litestar")

import itertools

from recollect.errors import NotSupported
from recollect.export.import_report import Refused, Report
from recollect.model import humanize
from recollect.model.reports import Space, Stats, Tally, ToolStats
from recollect.model.search import Hit
from recollect.model.session import SessionInfo
from recollect.server.page import charts, search, statistics_page, templating, transfers
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.session_rows import SessionRow, group_rows, make_row, sessions_without_title
from recollect.store_async import AsyncSession

HOUR, DAY = 3_600_000, 86_400_000


def to_ms(text):
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


NOON = to_ms("2026-03-10T12:00:00+00:00")


def session(id="a", time_ms=NOON, **fields):
    return SessionInfo(id=id, created_at_ms=time_ms, updated_at_ms=time_ms, active_at_ms=time_ms, **fields)


@pytest.mark.parametrize(("time_ms", "expected"), [
    (NOON, "now"), (NOON - 59_000, "now"), (NOON + 30_000, "now"), (NOON - 60_000, "1 min ago"), (NOON - 3 * HOUR, "3 h ago"),
    (NOON - 13 * HOUR, "yesterday"), (NOON - 2 * DAY, "Sun"), (NOON - 7 * DAY, "3 Mar"), (NOON - 400 * DAY, "3 Feb 2025"),
    (NOON + 3 * DAY, "13 Mar"), (1 << 62, "31 Dec 9999"), (0, "1 Jan 1970"),
])  # fmt: skip
def test_relative_times_are_short(time_ms, expected):
    assert Clock("UTC", NOON).ago(time_ms) == expected


@pytest.mark.parametrize(("zone", "time_ms", "expected"), [
    ("UTC", NOON, "today"), ("UTC", NOON - 13 * HOUR, "yesterday"), ("UTC", NOON - 7 * DAY, "week"),
    ("UTC", NOON - 8 * DAY, "2026-03"), ("UTC", NOON - 300 * DAY, "2025-05"), ("UTC", NOON + 40 * DAY, "today"),
    ("Asia/Tokyo", to_ms("2026-03-09T15:30:00+00:00"), "today"), ("America/Los_Angeles", to_ms("2026-03-10T06:30:00+00:00"), "yesterday"),
])  # fmt: skip
def test_days_are_in_the_time_zone_of_the_browser(zone, time_ms, expected):
    assert Clock(zone, NOON).group(time_ms)[0] == expected


def test_a_day_of_23_hours_is_one_day():
    clock = Clock("Europe/Berlin", to_ms("2026-03-30T00:30:00+02:00"))
    assert clock.group(to_ms("2026-03-29T00:10:00+01:00"))[0] == "yesterday"
    assert clock.midnight(1) == to_ms("2026-03-29T00:00:00+01:00")
    assert clock.utc_offset == 120


@pytest.mark.parametrize(
    "cookie", ["", "|", "Nowhere/Land", "../../etc/passwd", "Europe/Berlin\x00", "x" * 5000, "|99999", "|-", "\ud800|1"]
)
def test_an_invalid_time_zone_cookie_is_ignored(cookie):
    assert clock_of({"recollect-zone": cookie}, NOON).exact(NOON)


def test_an_unknown_time_zone_uses_its_offset():
    clock = clock_of({"recollect-zone": "Mars%2FOlympus|-90"}, NOON)
    assert clock.utc_offset == -90
    assert clock.zone == "Mars/Olympus"


def test_a_row_shows_the_title_the_task_the_first_words_or_new_chat():
    clock = Clock("UTC", NOON)
    assert make_row(session(title=" A\n title "), clock).title == "A title"
    assert make_row(session(task="Do it"), clock).title == "Do it"
    assert make_row(session(), clock, first_words="my question").title == "my question"
    new = make_row(session(), clock)
    assert (new.title, new.untitled) == ("New chat", True)
    assert len(make_row(session(title="x" * 100_000), clock).title) == 200


def test_only_an_active_pinned_session_is_at_the_top():
    clock = Clock("UTC", NOON)
    assert make_row(session(pinned_at_ms=1), clock).group == "pinned"
    assert make_row(session(pinned_at_ms=1, archived_at_ms=2), clock).group == "today"
    assert make_row(session(pinned_at_ms=1, deleted_at_ms=NOON), clock).group == "today"


def test_an_unknown_color_is_shown_as_other():
    clock = Clock("UTC", NOON)
    assert [make_row(session(color=color), clock).color for color in (None, "", "red", '#f00" onload="x')] == [
        "",
        "",
        "red",
        "other",
    ]


def test_headings_are_not_repeated_on_the_next_page():
    clock = Clock("UTC", NOON)
    rows = [make_row(session(str(n), NOON - n * DAY), clock) for n in range(4)]
    first, second = group_rows(rows[:2]), group_rows(rows[2:], "week")
    assert [(group.label, group.continues) for group in first] == [("Today", False), ("Yesterday", False)]
    assert [(group.label, group.continues) for group in second] == [("Last 7 days", True)]


@given(st.lists(st.integers(0, 900), max_size=40))
def test_every_row_is_under_one_heading_in_its_order(ages):
    clock = Clock("Europe/Berlin", NOON)
    rows = [make_row(session(str(n), NOON - age * DAY), clock) for n, age in enumerate(sorted(ages))]
    groups = group_rows(rows)
    assert [item for group in groups for item in group.rows] == rows
    assert len({group.key for group in groups}) == len(groups)
    assert all(isinstance(item, SessionRow) for group in groups for item in group.rows)


def test_first_words_are_read_only_for_sessions_without_a_title():
    infos = [
        session("a", message_count=2),
        session("b", message_count=0),
        session("c", message_count=2, title="T"),
        session("d", message_count=1, title="  "),
    ]
    sessions = sessions_without_title(AsyncSession(cast("Any", None), info) for info in infos)
    assert [item.id for item in sessions] == ["a", "d"]


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0"), (999, "999"), (1000, "1.0k"), (9_960, "10k"), (999_999, "1.0M"), (5e12, "5000G")]
)
def test_counts_are_short(number, expected):
    assert humanize.format_count(number) == expected


def test_durations_and_sizes_are_short():
    assert [humanize.format_duration(value) for value in (None, 12, 1500, 90_000)] == ["", "12 ms", "1.5 s", "1.5 min"]
    assert [humanize.format_size(value) for value in (0, 1_500, 2_000_000)] == ["0 B", "1.5 kB", "2.0 MB"]


@given(st.lists(st.floats(0, 1e15), max_size=20))
def test_the_axis_ends_shortly_above_the_maximum(values):
    end, maximum = charts.axis_maximum(values), max(values, default=0)
    assert end >= maximum - 1e-6 * max(maximum, 1)
    assert maximum <= 1e-300 or end <= maximum * 1.5 + 1e-9


@given(st.dates(datetime.date(1999, 1, 1), datetime.date(2030, 1, 1)), st.integers(0, 3_000))
def test_periods_cover_the_time_without_a_gap(first, days):
    last = first + datetime.timedelta(days=days)
    periods = charts.split_periods(first, last)
    assert 1 <= len(periods) <= 110
    assert periods[0].first <= first
    assert periods[-1].last >= last
    for one, other in itertools.pairwise(periods):
        assert other.first == one.last + datetime.timedelta(days=1)
    values = {first + datetime.timedelta(days=n): 1.0 for n in range(days + 1)}
    assert sum(charts.sum_by_period(values, periods)) == days + 1


def test_a_chart_is_valid_xml_without_styles_and_escapes_its_texts():
    series = [charts.ChartSeries("In", "tone-1", [1, 0, 3]), charts.ChartSeries("Out", "tone-2", [0, 0, 9])]
    svg = str(
        charts.draw_columns(["a", "b", "c"], series, ['<script>"&', "b", "c"], name='"><script>alert(1)</script>')
    )
    root = ET.fromstring(svg)
    assert root.attrib["aria-label"] == '"><script>alert(1)</script>'
    assert [title.text for title in root.iter("title")] == ['<script>"&', "b", "c"]
    assert "style" not in svg
    heights = [float(rect.attrib["height"]) for rect in root.iter("rect") if rect.attrib["class"] == "tone-2"]
    assert heights == [pytest.approx(9 / 15 * 100)]


def test_the_segments_of_a_bar_add_up():
    root = ET.fromstring(str(charts.draw_bar([(1, "tone-1", "a"), (0, "tone-2", "b"), (3, "tone-3", "c")], name="all")))
    assert [float(rect.attrib["width"]) for rect in root.iter("rect")] == [25, 75]


def stats():
    days = (
        Tally(name="2026-03-08", sessions=1, messages=4, turns=2, input_tokens=10, output_tokens=5),
        Tally(name="2026-03-10", sessions=2, messages=6),
    )
    models = (*tuple(Tally(name=f"m{n}", messages=10 - n) for n in range(10)), Tally(name=None, messages=1))
    return Stats(
        sessions=2,
        messages=10,
        turns=2,
        failures=1,
        input_tokens=10,
        output_tokens=5,
        tool_calls=3,
        tool_failures=1,
        by_model=models,
        by_channel=(Tally(name="<b>", messages=10),),
        by_day=days,
    )


def test_statistics_have_a_column_for_every_day_and_a_table_for_every_chart():
    tools = [ToolStats(tool="read", calls=3, failures=1, cancelled=0, unanswered=1, p50_ms=12, p95_ms=2_000)]
    statistics = statistics_page.build_statistics(stats(), tools, None, Clock("UTC", NOON), "7")
    messages = statistics.days[0]
    assert [value for _, value in messages.table.rows] == ["0", "0", "0", "0", "4", "0", "6"]
    assert str(messages.drawing).count("<title>") == 7
    assert statistics.days[1].table.rows[4] == ["Sun 8 Mar 2026", "10", "5"]
    assert statistics.bytes is None
    assert statistics.tools.rows == [["read", "3", "1 (33%)", "0", "1", "12 ms", "2.0 s"]]  # pyright: ignore[reportOptionalMemberAccess]
    models, channels = statistics.shares
    assert len(models.items) == 9
    assert models.items[-1].name == "3 others"
    assert len(models.table.rows) == 11
    assert channels.items[0].name == "<b>"


def test_statistics_of_all_time_begin_with_the_first_day():
    statistics = statistics_page.build_statistics(stats(), [], None, Clock("UTC", NOON), "all")
    assert [len(chart.table.rows) for chart in statistics.days] == [3, 3, 3]


def test_statistics_without_messages_are_empty():
    statistics = statistics_page.build_statistics(Stats(), [], None, Clock("UTC", NOON), "all")
    assert statistics.empty
    assert re.search(r'viewBox="0 0 1 100"', str(statistics.days[0].drawing))


def test_the_size_of_the_store_is_split_by_kind():
    space = Space(total=100, text=40, tool_output=20, attachments=10, index=15, free=5, other=10, log=7, tables={})
    usage = statistics_page.build_statistics(Stats(), [], space, Clock("UTC", NOON), "30").bytes
    assert [(piece.name, piece.value) for piece in usage.pieces][:2] == [("Text", "40 B"), ("Tool output", "20 B")]  # pyright: ignore[reportOptionalMemberAccess]
    assert usage.log == "7 B"  # pyright: ignore[reportOptionalMemberAccess]


def test_every_keyboard_shortcut_is_in_the_docs():
    with open(
        os.path.join(os.path.dirname(__file__), "..", "..", "docs", "how-to", "web.md"), encoding="utf-8"
    ) as file:
        page = file.read()
    for _, rows in templating.KEYBOARD_HELP:
        for keys, action in rows:
            assert f"| {' '.join(keys)} | {action} |" in page


def test_statistics_omit_the_size_if_the_store_cannot_measure_it():
    async def stats(**options):
        return Stats()

    async def tool_stats(**options):
        return []

    async def space():
        raise NotSupported(what="A measurement of the file")

    store: Any = SimpleNamespace(
        stats=stats, tools=SimpleNamespace(stats=tool_stats), maintenance=SimpleNamespace(space=space)
    )
    assert asyncio.run(statistics_page.read_statistics(store, Clock("UTC", NOON), "30")).bytes is None


def test_an_import_is_described_in_sentences():
    assert transfers.describe_import(Report()) == ["This file contains no conversations."]
    full = Report(
        created=["a"],
        updated=["b", "c"],
        unchanged=["d"],
        conflicts=[Refused("e", "x"), Refused("f", "x", "g")],
        messages=1,
        bad_count=2,
        redacted=True,
    )
    assert transfers.describe_import(full) == [
        "1 conversation imported, with 1 stored message.",
        "2 conversations updated.",
        "1 conversation was unchanged.",
        "1 conversation imported with a new id, because the id in the file is already used or not valid.",
        "1 conversation was skipped because a different version already exists.",
        "2 lines could not be read.",
        "Secrets were redacted when this file was exported; they are not in it.",
    ]


def test_hits_are_grouped_by_session_and_split_at_their_marks():
    hits = [
        Hit("a", "A", "text", "one two three", ((4, 7),), 3.0, NOON, "1.2", "user"),
        Hit("b", None, "title", "two", ((0, 3),), 2.0, NOON, archived_at_ms=1),
        Hit("a", "A", "tool_result", "two", (), 1.0, NOON, "1.3", "tool", "read"),
    ]
    first, second = search.group_hits(hits, Clock("UTC", NOON), {})
    assert [hit.label for hit in first.hits] == ["You", "Tool result, read"]
    assert first.hits[0].pieces == [("one ", False), ("two", True), (" three", False)]
    assert (second.title, second.note, second.hits[0].is_title) == ("New chat", "archived", True)
