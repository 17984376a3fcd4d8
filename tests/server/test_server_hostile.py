"""Hostile texts: what reads them takes time in proportion to them, and nothing of it holds the event loop."""

import asyncio
import gc
import re
import time

import pytest
from test_server_page import CLOCK, an_account, run

from recollect.agent import titles
from recollect.agent.events import ReasoningDelta, TextDelta
from recollect.export import chunks_async, prose, speech
from recollect.export.redaction import Redactor
from recollect.ops.search import query, words
from recollect.server.page import items, markdown, plaintext, rendering, worker
from recollect.server.page.picture import picture
from recollect.server.page.worker_protocol import Request
from recollect.server.talks import Run

HELD = 0.05
"""Seconds of CPU time that the event loop may be held."""

UNITS = [
    "\\(", "\\[", "\\( \\(", "$", "$$", "$a ", "$\\", "$$\n", "`", "``a ", "a`b``", "*", "**a", "*a **b ", "_a", "~~a ", "[", "[a](", "[[]",
    "](", "![a](", "[a]: b\n\n", "[a](<b", "<a", "<http://a", "http://a ", "http://.,", "&amp;", "&#", "|a", "a|b\n-|-\n", "> ", "> - ",
    ">>>>\na\n", "> #\na\n", ">>\n> a\n", "- a\n", "  - a\n", "1. a\n", "# a\n", "a\n-\n", "\\", "a ", "\n", "```\n", "    a\n", "\t", "(", '"a ',
    "password='", "-----BEGIN PRIVATE KEY-----", "a://b:", "&key=", "eyJaaaaaaaa.", "Bearer ", "a.b-", "authorization: ", "(a ", "NOT ",
]  # fmt: skip
READERS = {
    "markdown": markdown.blocks,
    "prose": prose.rendered,
    "speech": speech.told,
    "redaction": lambda text: Redactor().text(text),
    "titles": titles.shortened,
    "query": lambda text: query.parse(text, 0),
    "words": words.spans,
}


def seconds(read, text):
    begun = time.thread_time()
    read(text)
    return time.thread_time() - begun


@pytest.mark.parametrize("name", READERS)
def test_four_times_the_text_takes_about_four_times_as_long(name):
    """Quadratic time would be sixteen times as long. CPU time is compared, and several tries are made."""
    read = READERS[name]
    read("a")
    for unit in UNITS:
        short, long = ((unit * size)[:size] for size in (3_000, 12_000))
        ratios = []
        while len(ratios) < 5 and min(ratios, default=9) > 8:
            ratios.append(max(seconds(read, long), 0.004) / max(seconds(read, short), 0.004))
        assert min(ratios) <= 8, (unit, ratios)


def test_a_formula_ends_where_another_one_begins():
    assert markdown.render(r"\(a\) *b* \(c").count("<em>") == 1
    assert r"\(a_b_ \\ c\)" in markdown.render(r"\(a_b_ \\ c\)")
    assert r"\[x \\[2pt] y\]" in markdown.render(r"\[x \\[2pt] y\]")


@pytest.fixture
def without_collector():
    """Other tests have callbacks of the collector in this process; a timer that fires in one is reported as an error."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_the_worker_gives_up_a_text_that_takes_too_long():
    text = "- a\n" * 15_000
    assert plaintext.fits(text)
    reply = worker.answer(Request(text), seconds=0.1)
    assert reply.gave_up
    assert reply.rendered.blocks == [plaintext.plain(text)]
    assert not worker.answer(Request("- a")).gave_up


@pytest.mark.usefixtures("without_collector")
def test_a_single_match_that_would_take_years_is_ended(monkeypatch):
    monkeypatch.setattr(worker, "rendered", lambda *_, **__: re.match(r"(a+)+b", "a" * 60))
    reply = worker.answer(Request("text"), seconds=0.1)
    assert reply.gave_up
    assert reply.cpu < 30


def test_a_text_that_breaks_the_parser_is_shown_as_it_is(monkeypatch):
    def broken(*_, **__):
        raise RecursionError

    monkeypatch.setattr(worker, "rendered", broken)
    assert worker.answer(Request("<b>")).rendered.blocks == [plaintext.plain("<b>")]


def test_a_worker_that_was_killed_is_replaced():
    async def story():
        assert "<em>first</em>" in (await rendering.rendered(["*first*"]))["*first*"]
        process = rendering._WORKER._process
        process.kill()
        process.wait()
        text = "*the one that meets a dead worker*"
        assert text in (await rendering.rendered([text]))[text]
        assert "<em>third</em>" in (await rendering.rendered(["*third*"]))["*third*"]

    run(story())


def test_a_stream_costs_time_in_proportion_to_its_length():
    """Characters are counted that are handed to the renderer. A block that never ends is the worst case."""
    for begin, unit in (("", "word "), ("```\n", "code\n"), ("[a]: https://a.example\n\n", "[a] b\n\n")):
        stream, rendered, length = rendering.Stream(), 0, 0
        stream.take(begin)
        while length < 150_000:
            stream.take(unit * 20)
            length += len(unit) * 20
            while (text := stream.due()) is not None:
                rendered += len(text)
                stream.show(markdown.Rendered(["x"], references=unit.startswith("[")))
        assert rendered < 30 * length, (begin, rendered / length)


async def longest_hold(work):
    """Run a coroutine, and give the longest CPU time that the event loop's thread took between two of its turns."""
    ended = asyncio.Event()
    longest = 0.0

    async def tick():
        nonlocal longest
        last = time.thread_time()
        while not ended.is_set():
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    ticking = asyncio.create_task(tick())
    try:
        result = await work
    finally:
        ended.set()
        await ticking
    return longest, result


LONGEST = {
    "formulas": "\\(" * 10_000,
    "lists": "- a\n" * 20_000,
    "quotes": ">>>>\na\n" * 25_000,
    "words": "word *word* " * 10_000,
    "brackets": "[a](" * 3_000,
    "code": "```js\n" + "/*" * 19_000 + "\n```",
    "too long": "<" * 2_000_000,
}


@pytest.mark.parametrize("name", LONGEST)
def test_no_text_holds_the_event_loop(name):
    async def story():
        await rendering.rendered(["the worker has started"])
        held, shown = await longest_hold(rendering.rendered([LONGEST[name]]))
        assert held < HELD
        assert len(shown[LONGEST[name]]) >= len(LONGEST[name]) // 2

    run(story())


def test_a_page_of_long_messages_an_answer_and_an_export_do_not_hold_the_event_loop():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            for number in range(20):
                text = f"{number} " + "word *word* \\(" * 3_000
                call = {"kind": "tool_call", "call_id": "c", "tool": "look", "arguments": {"x": text}}
                await session.append([{"role": "user", "content": text}, {"role": "assistant", "content": text}])
                await session.append({"role": "assistant", "parts": [call]})
            held, view = await longest_hold(items.latest(account, session, CLOCK))
            assert held < HELD
            assert len(view.items) > 20
            for format in ("md", "html", "jsonl"):

                async def exported(format=format):
                    return [len(piece) async for piece in chunks_async(account.store, None, format, redact=True)]

                held, _ = await longest_hold(exported())
                assert held < HELD, format
        live = Run("s")
        live.turn = "1.1"
        for _ in range(300):
            live.add(ReasoningDelta(text="thought " * 20))
        for _ in range(300):
            live.add(TextDelta(text="word \\( *a* " * 20))
        held, changes = await longest_hold(picture(live).changes(-1))
        assert held < HELD
        assert len(changes["blocks"]) == 2

    run(story())
