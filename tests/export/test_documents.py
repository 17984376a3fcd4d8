"""Documents for people: time zones, images of other hosts, and the details of a message."""

import datetime
import zoneinfo

import pytest
from markdown_it import MarkdownIt

import recollect
from recollect.export import chunks
from recollect.export.markdown import format_time
from recollect.export.markdown_html import markdown_to_html
from recollect.export.safe_markup import sanitize_markdown
from recollect.model.message import Draft, TextPart

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


def export_text(store, format, zone):
    return b"".join(chunks(store, ["a"], format, zone=zone)).decode()


def test_times_have_the_offset_of_their_zone(store):
    text = export_text(store, "md", BERLIN)
    assert "2026-11-17 20:40 +01:00" in text
    assert "2026-06-20 21:40 +02:00" in text
    page = export_text(store, "html", BERLIN)
    assert '<time datetime="2026-11-17">2026-11-17</time> <small>UTC+01:00</small>' in page
    assert '<time datetime="2026-06-20">2026-06-20</time> <small>UTC+02:00</small>' in page
    assert "<time>20:40</time>" in page
    assert "2026-11-17 19:40 +00:00" in export_text(store, "md", datetime.UTC)


def test_the_default_zone_is_that_of_the_machine(store):
    local = AT.astimezone().isoformat(sep=" ", timespec="minutes")
    assert f"{local[:16]} {local[16:]}" in export_text(store, "md", None)


def test_json_has_its_times_in_utc(store):
    for format in ("json", "jsonl"):
        assert "2026-11-17T19:40:00.000Z" in export_text(store, format, BERLIN)


def test_a_time_beyond_the_calendar_is_a_number():
    assert format_time(10**17, BERLIN) == str(10**17)


def test_the_page_renders_strikethrough_and_hides_ids_and_tokens(store):
    page = export_text(store, "html", BERLIN)
    assert "<s>struck</s>" in page
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
    html = MarkdownIt("commonmark").enable("table").render(sanitize_markdown(text))
    assert "<img" not in html
    assert "example/a.gif" in html
    assert "<img" not in markdown_to_html(text)


def test_an_image_in_code_is_unchanged():
    assert sanitize_markdown("```\n![a](b)\n```") == "```\n![a](b)\n```"
    assert sanitize_markdown("with `![a](b)` in it") == "with `![a](b)` in it"


def test_the_page_links_an_image_by_its_text():
    html = markdown_to_html("see ![cat](https://elsewhere.example/a.gif).")
    assert 'see <a href="https://elsewhere.example/a.gif"' in html
    assert ">cat</a>." in html
