"""Documents for people: the zone of their times, images of other hosts, and what is shown beside a message."""

import datetime
import zoneinfo

import pytest
from markdown_it import MarkdownIt

import recollect
from recollect.export import chunks
from recollect.export.markdown import moment
from recollect.export.prose import rendered
from recollect.export.speech import told
from recollect.model.message import Draft
from recollect.model.part import TextPart

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
AT = datetime.datetime(2026, 11, 17, 19, 40, tzinfo=datetime.UTC)
AT_MS = int(AT.timestamp() * 1000)


@pytest.fixture
def store():
    with recollect.open(":memory:") as store:
        session = store.session("a", title="Plans")
        session.append(Draft(role="user", parts=(TextPart(text="Hello"),), created_at=AT_MS))
        session.append(
            Draft(role="assistant", parts=(TextPart(text="~~struck~~"),), created_at=AT_MS - 150 * 86_400_000)
        )
        yield store


def written(store, format, zone):
    return b"".join(chunks(store, ["a"], format, zone=zone)).decode()


def test_times_have_the_offset_of_their_zone(store):
    shown = written(store, "md", BERLIN)
    assert "2026-11-17 20:40 +01:00" in shown
    assert "2026-06-20 21:40 +02:00" in shown
    page = written(store, "html", BERLIN)
    assert '<time datetime="2026-11-17">2026-11-17</time> <small>UTC+01:00</small>' in page
    assert '<time datetime="2026-06-20">2026-06-20</time> <small>UTC+02:00</small>' in page
    assert "<time>20:40</time>" in page
    assert "2026-11-17 19:40 +00:00" in written(store, "md", datetime.UTC)


def test_without_a_zone_it_is_that_of_the_machine(store):
    local = AT.astimezone().isoformat(sep=" ", timespec="minutes")
    assert f"{local[:16]} {local[16:]}" in written(store, "md", None)


def test_json_has_its_times_in_utc(store):
    for format in ("json", "jsonl"):
        assert "2026-11-17T19:40:00.000Z" in written(store, format, BERLIN)


def test_a_time_that_no_calendar_has_is_a_number():
    assert moment(10**17, BERLIN) == str(10**17)


def test_the_page_strikes_text_and_keeps_ids_and_tokens_out_of_sight(store):
    page = written(store, "html", BERLIN)
    assert "<del>struck</del>" in page
    assert 'title="2026-11-17 20:40 +01:00 · 1.1 · ' in page
    assert "tokens</span>" not in page
    assert ">1.1<" not in page


@pytest.mark.parametrize(
    "text",
    [
        "![cat](https://elsewhere.example/a.gif)", "![a][b]\n\n[b]: https://elsewhere.example/a.gif", "![b]\n\n[b]: https://elsewhere.example/a.gif",
        "[![x](https://elsewhere.example/a.gif)](https://a.example)", "\\\\![a](https://elsewhere.example/a.gif)", "> - ![a](<https://elsewhere.example/a.gif>)",
        "`a ![a](https://elsewhere.example/a.gif)", "| a |\n|---|\n| ![a](https://elsewhere.example/a.gif) |", "![![a](https://e.example/a.gif)](https://e.example/b.gif)",
        "\\\\\\![a](https://elsewhere.example/a.gif)", "\\![a](https://elsewhere.example/a.gif)", "    ![a](https://elsewhere.example/a.gif)\n![b](//e.example/b)",
    ],
)  # fmt: skip
def test_an_image_of_another_host_is_a_link(text):
    shown = MarkdownIt("commonmark").enable("table").render(told(text))
    assert "<img" not in shown
    assert "example/a.gif" in shown
    assert "<img" not in rendered(text)


def test_an_image_in_code_stays_as_it_is():
    assert told("```\n![a](b)\n```") == "```\n![a](b)\n```"
    assert told("with `![a](b)` in it") == "with `![a](b)` in it"


def test_the_page_links_an_image_by_its_text():
    shown = rendered("see ![cat](https://elsewhere.example/a.gif).")
    assert 'see <a href="https://elsewhere.example/a.gif"' in shown
    assert ">cat</a>." in shown
