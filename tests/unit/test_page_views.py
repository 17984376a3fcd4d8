"""What fills the sidebar and the page of figures, without a server."""

import asyncio
import datetime
import os
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("litestar")

import itertools

from recollect.errors import NotSupported
from recollect.export.report import Refused, Report
from recollect.model import amount
from recollect.model.hit import Hit
from recollect.model.session import Session
from recollect.model.space import Space
from recollect.model.statistics import Stats, Tally, ToolStats
from recollect.server.page import charts, figures, keys, searching, transfers
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.rows import Row, groups, row, wanting_words

HOUR, DAY = 3_600_000, 86_400_000


def at(text):
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


NOON = at("2026-03-10T12:00:00+00:00")


def session(id="a", moment=NOON, **fields):
    return Session(id=id, created_at=moment, updated_at=moment, active_at=moment, **fields)


@pytest.mark.parametrize(("moment", "expected"), [
    (NOON, "now"), (NOON - 59_000, "now"), (NOON + 30_000, "now"), (NOON - 60_000, "1 min"), (NOON - 3 * HOUR, "3 h"),
    (NOON - 13 * HOUR, "yesterday"), (NOON - 2 * DAY, "Sun"), (NOON - 7 * DAY, "3 Mar"), (NOON - 400 * DAY, "3 Feb 2025"),
    (NOON + 3 * DAY, "13 Mar"), (1 << 62, "31 Dec 9999"), (0, "1 Jan 1970"),
])  # fmt: skip
def test_a_time_is_told_shortly(moment, expected):
    assert Clock("UTC", NOON).ago(moment) == expected


@pytest.mark.parametrize(("zone", "moment", "expected"), [
    ("UTC", NOON, "today"), ("UTC", NOON - 13 * HOUR, "yesterday"), ("UTC", NOON - 7 * DAY, "week"),
    ("UTC", NOON - 8 * DAY, "2026-03"), ("UTC", NOON - 300 * DAY, "2025-05"), ("UTC", NOON + 40 * DAY, "today"),
    ("Asia/Tokyo", at("2026-03-09T15:30:00+00:00"), "today"), ("America/Los_Angeles", at("2026-03-10T06:30:00+00:00"), "yesterday"),
])  # fmt: skip
def test_a_day_is_that_of_the_browser(zone, moment, expected):
    assert Clock(zone, NOON).group(moment)[0] == expected


def test_a_day_of_23_hours_is_one_day():
    clock = Clock("Europe/Berlin", at("2026-03-30T00:30:00+02:00"))
    assert clock.group(at("2026-03-29T00:10:00+01:00"))[0] == "yesterday"
    assert clock.midnight(1) == at("2026-03-29T00:00:00+01:00")
    assert clock.utc_offset == 120


@pytest.mark.parametrize(
    "cookie", ["", "|", "Nowhere/Land", "../../etc/passwd", "Europe/Berlin\x00", "x" * 5000, "|99999", "|-", "\ud800|1"]
)
def test_a_cookie_that_is_no_zone_is_passed_over(cookie):
    assert clock_of({"recollect-zone": cookie}, NOON).exact(NOON)


def test_a_zone_that_this_machine_does_not_know_has_its_offset():
    clock = clock_of({"recollect-zone": "Mars%2FOlympus|-90"}, NOON)
    assert clock.utc_offset == -90
    assert clock.zone == "Mars/Olympus"


def test_a_row_is_called_by_its_title_its_task_its_first_words_or_as_new():
    clock = Clock("UTC", NOON)
    assert row(session(title=" A\n title "), clock).title == "A title"
    assert row(session(task="Do it"), clock).title == "Do it"
    assert row(session(), clock, first_words="what I said").title == "what I said"
    new = row(session(), clock)
    assert (new.title, new.untitled) == ("New chat", True)
    assert len(row(session(title="x" * 100_000), clock).title) == 200


def test_only_a_living_pin_stands_on_top():
    clock = Clock("UTC", NOON)
    assert row(session(pinned_at=1), clock).group == "pinned"
    assert row(session(pinned_at=1, archived_at=2), clock).group == "today"
    assert row(session(pinned_at=1, deleted_at=NOON), clock).group == "today"


def test_a_color_of_another_program_is_grey():
    clock = Clock("UTC", NOON)
    assert [row(session(color=color), clock).color for color in (None, "", "red", '#f00" onload="x')] == [
        "",
        "",
        "red",
        "other",
    ]


def test_headings_are_not_repeated_on_the_next_page():
    clock = Clock("UTC", NOON)
    rows = [row(session(str(n), NOON - n * DAY), clock) for n in range(4)]
    first, second = groups(rows[:2]), groups(rows[2:], "week")
    assert [(group.label, group.goes_on) for group in first] == [("Today", False), ("Yesterday", False)]
    assert [(group.label, group.goes_on) for group in second] == [("Last 7 days", True)]


@given(st.lists(st.integers(0, 900), max_size=40))
def test_every_row_is_under_one_heading_in_its_order(ages):
    clock = Clock("Europe/Berlin", NOON)
    rows = [row(session(str(n), NOON - age * DAY), clock) for n, age in enumerate(sorted(ages))]
    made = groups(rows)
    assert [item for group in made for item in group.rows] == rows
    assert len({group.key for group in made}) == len(made)
    assert all(isinstance(item, Row) for group in made for item in group.rows)


def test_the_words_of_a_session_are_read_only_where_nothing_else_names_it():
    asked = [
        session("a", message_count=2),
        session("b", message_count=0),
        session("c", message_count=2, title="T"),
        session("d", message_count=1, title="  "),
    ]
    assert wanting_words(asked) == ["a", "d"]


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0"), (999, "999"), (1000, "1.0k"), (9_960, "10k"), (999_999, "1.0M"), (5e12, "5000G")]
)
def test_a_count_is_written_short(number, expected):
    assert amount.count(number) == expected


def test_a_span_and_a_size_are_written_short():
    assert [amount.lasting(value) for value in (None, 12, 1500, 90_000)] == ["", "12 ms", "1.5 s", "1.5 min"]
    assert [amount.size(value) for value in (0, 1_500, 2_000_000)] == ["0 B", "1.5 kB", "2.0 MB"]


@given(st.lists(st.floats(0, 1e15), max_size=20))
def test_a_scale_ends_above_the_greatest_value_and_not_far_above(values):
    end, most = charts.top(values), max(values, default=0)
    assert end >= most - 1e-6 * max(most, 1)
    assert most <= 1e-300 or end <= most * 1.5 + 1e-9


@given(st.dates(datetime.date(1999, 1, 1), datetime.date(2030, 1, 1)), st.integers(0, 3_000))
def test_columns_cover_the_time_without_a_gap(first, days):
    last = first + datetime.timedelta(days=days)
    made = charts.periods(first, last)
    assert 1 <= len(made) <= 110
    assert made[0].first <= first
    assert made[-1].last >= last
    for one, other in itertools.pairwise(made):
        assert other.first == one.last + datetime.timedelta(days=1)
    values = {first + datetime.timedelta(days=n): 1.0 for n in range(days + 1)}
    assert sum(charts.gathered(values, made)) == days + 1


def test_a_chart_is_sound_xml_without_styles_and_escapes_what_it_is_told():
    series = [charts.Series("In", "tone-1", [1, 0, 3]), charts.Series("Out", "tone-2", [0, 0, 9])]
    drawn = str(charts.columns(["a", "b", "c"], series, ['<script>"&', "b", "c"], name='"><script>alert(1)</script>'))
    root = ET.fromstring(drawn)
    assert root.attrib["aria-label"] == '"><script>alert(1)</script>'
    assert [title.text for title in root.iter("title")] == ['<script>"&', "b", "c"]
    assert "style" not in drawn
    heights = [float(rect.attrib["height"]) for rect in root.iter("rect") if rect.attrib["class"] == "tone-2"]
    assert heights == [pytest.approx(9 / 15 * 100)]


def test_pieces_of_a_bar_add_up():
    root = ET.fromstring(str(charts.bar([(1, "tone-1", "a"), (0, "tone-2", "b"), (3, "tone-3", "c")], name="all")))
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


def test_figures_have_a_column_for_every_day_and_a_table_for_every_chart():
    tools = [ToolStats(tool="read", calls=3, failures=1, canceled=0, unanswered=1, p50_ms=12, p95_ms=2_000)]
    made = figures.figures(stats(), tools, None, Clock("UTC", NOON), "7")
    messages = made.days[0]
    assert [value for _, value in messages.table.rows] == ["0", "0", "0", "0", "4", "0", "6"]
    assert str(messages.drawing).count("<title>") == 7
    assert made.days[1].table.rows[4] == ["Sun 8 Mar 2026", "10", "5"]
    assert made.bytes is None
    assert made.tools.rows == [["read", "3", "1 (33%)", "0", "1", "12 ms", "2.0 s"]]
    models, channels = made.shares
    assert len(models.items) == 9
    assert models.items[-1].name == "3 others"
    assert len(models.table.rows) == 11
    assert channels.items[0].name == "<b>"


def test_figures_of_all_time_begin_with_the_first_day():
    made = figures.figures(stats(), [], None, Clock("UTC", NOON), "all")
    assert [len(chart.table.rows) for chart in made.days] == [3, 3, 3]


def test_figures_of_nothing_say_so():
    made = figures.figures(Stats(), [], None, Clock("UTC", NOON), "all")
    assert made.empty
    assert re.search(r'viewBox="0 0 1 100"', str(made.days[0].drawing))


def test_bytes_are_in_pieces():
    space = Space(total=100, text=40, tool_output=20, attachments=10, index=15, free=5, other=10, log=7, tables={})
    made = figures.figures(Stats(), [], space, Clock("UTC", NOON), "30").bytes
    assert [(piece.name, piece.value) for piece in made.pieces][:2] == [("Text", "40 B"), ("Tool output", "20 B")]
    assert made.log == "7 B"


def test_every_key_of_the_help_is_in_the_docs():
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "web.md"), encoding="utf-8") as file:
        page = file.read()
    for _, rows in keys.HELP:
        for pressed, does in rows:
            assert f"| {' '.join(pressed)} | {does} |" in page


def test_a_store_that_can_not_measure_its_bytes_leaves_them_out():
    class Remote:
        async def stats(self, **asked):
            return Stats()

        async def tool_stats(self, **asked):
            return []

        async def space(self):
            raise NotSupported(what="A measurement of the file")

    assert asyncio.run(figures.read(Remote(), Clock("UTC", NOON), "30")).bytes is None


def test_an_import_is_told_in_words():
    assert transfers.told(Report()) == ["There is no conversation in this file."]
    full = Report(
        created=["a"],
        updated=["b", "c"],
        unchanged=["d"],
        conflicts=[Refused("e", "x"), Refused("f", "x", "g")],
        messages=1,
        bad_count=2,
        redacted=True,
    )
    assert transfers.told(full) == [
        "1 conversation imported, with 1 stored message.",
        "2 conversations went on.",
        "1 conversation was here already.",
        "1 conversation got a new id: the one in the file is taken, or cannot be used.",
        "1 conversation differed from the one here, and was left out.",
        "2 lines could not be read.",
        "Secrets had been masked when the file was written; they are not in it.",
    ]


def test_hits_are_grouped_by_session_and_cut_at_their_marks():
    hits = [
        Hit("a", "A", "text", "one two three", ((4, 7),), 3.0, NOON, "1.2", "user"),
        Hit("b", None, "title", "two", ((0, 3),), 2.0, NOON, archived_at=1),
        Hit("a", "A", "tool_result", "two", (), 1.0, NOON, "1.3", "tool", "read"),
    ]
    first, second = searching.places(hits, Clock("UTC", NOON), {})
    assert [hit.what for hit in first.hits] == ["You", "Tool result, read"]
    assert first.hits[0].pieces == [("one ", False), ("two", True), (" three", False)]
    assert (second.title, second.note, second.hits[0].titled) == ("New chat", "archived", True)
