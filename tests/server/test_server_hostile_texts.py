"""Hostile texts: every parser takes linear time, and none blocks the event loop."""

import asyncio
import gc
import re
import time

import pytest
from test_server_page import CLOCK, open_account, run

from recollect.agent import titles
from recollect.agent.events import ReasoningDelta, TextDelta
from recollect.export import chunks_async, markdown_html, plaintext, safe_markup
from recollect.export.redaction import Redactor
from recollect.server.page import item_rendering, markdown, markdown_rendering, markdown_worker
from recollect.server.page.live_updates import live_answer_of
from recollect.server.page.markdown_protocol import RenderRequest
from recollect.server.turn_runner import TurnRun
from recollect.storage.search import analysis, query

MAX_BLOCK = 0.05
"""Seconds of CPU time for which the event loop may be blocked."""

UNITS = [
    "\\(", "\\[", "\\( \\(", "$", "$$", "$a ", "$\\", "$$\n", "`", "``a ", "a`b``", "*", "**a", "*a **b ", "_a", "~~a ", "[", "[a](", "[[]",
    "](", "![a](", "[a]: b\n\n", "[a](<b", "<a", "<http://a", "http://a ", "http://.,", "&amp;", "&#", "|a", "a|b\n-|-\n", "> ", "> - ",
    ">>>>\na\n", "> #\na\n", ">>\n> a\n", "- a\n", "  - a\n", "1. a\n", "# a\n", "a\n-\n", "\\", "a ", "\n", "```\n", "    a\n", "\t", "(", '"a ',
    "password='", "-----BEGIN PRIVATE KEY-----", "a://b:", "&key=", "eyJaaaaaaaa.", "Bearer ", "a.b-", "authorization: ", "(a ", "NOT ",
]  # fmt: skip
PARSERS = {
    "markdown": markdown.render_blocks,
    "prose": markdown_html.markdown_to_html,
    "speech": safe_markup.sanitize_markdown,
    "redaction": lambda text: Redactor().text(text),
    "titles": titles.shorten_title,
    "query": lambda text: query.parse_query(text, 0),
    "words": analysis.token_spans,
}


def render_html(text):
    return "".join(markdown.render_blocks(text))


def cpu_time(parse, text):
    start = time.thread_time()
    parse(text)
    return time.thread_time() - start


@pytest.fixture
def without_collector():
    """Disable the garbage collector: it visits the objects of all tests, and raises the errors of their timers."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("name", PARSERS)
def test_parsing_takes_linear_time(name):
    """Four times the text may take at most eight times as long, each in the best of runs. Quadratic time would be 16.

    Ten runs, because another process on the same core can double the CPU time of one.
    """
    parse = PARSERS[name]
    parse("a")
    for unit in UNITS:
        short, long = ((unit * size)[:size] for size in (3_000, 12_000))
        best_short = best_long = 1.0
        for attempt in range(10):
            best_short = min(best_short, max(cpu_time(parse, short), 0.004))
            best_long = min(best_long, cpu_time(parse, long))
            if attempt and best_long / best_short <= 8:
                break
        else:
            pytest.fail(f"{unit!r}: {best_long / best_short:.1f} times as long")


def test_a_formula_ends_at_its_delimiter():
    assert render_html(r"\(a\) *b* \(c").count("<em>") == 1
    assert r"\(a_b_ \\ c\)" in render_html(r"\(a_b_ \\ c\)")
    assert r"\[x \\[2pt] y\]" in render_html(r"\[x \\[2pt] y\]")


@pytest.mark.usefixtures("without_collector")
def test_the_worker_falls_back_to_plain_text_after_a_timeout():
    text = "- a\n" * 15_000
    assert plaintext.fits_budget(text)
    reply = markdown_worker.handle_request(RenderRequest(text), seconds=0.1)
    assert reply.is_fallback
    assert reply.rendered.blocks == [plaintext.render_plain(text)]
    assert not markdown_worker.handle_request(RenderRequest("- a")).is_fallback


@pytest.mark.usefixtures("without_collector")
def test_a_catastrophic_regular_expression_is_interrupted(monkeypatch):
    monkeypatch.setattr(markdown_worker, "render_normalized", lambda *_, **__: re.match(r"(a+)+b", "a" * 60))
    reply = markdown_worker.handle_request(RenderRequest("text"), seconds=0.1)
    assert reply.is_fallback
    assert reply.cpu < 30


def test_a_parser_error_falls_back_to_plain_text(monkeypatch):
    def fail(*_, **__):
        raise RecursionError

    monkeypatch.setattr(markdown_worker, "render_normalized", fail)
    assert markdown_worker.handle_request(RenderRequest("<b>")).rendered.blocks == [plaintext.render_plain("<b>")]


def test_a_killed_worker_is_replaced():
    async def scenario():
        assert "<em>first</em>" in (await markdown_rendering.render_texts(["*first*"]))["*first*"]
        process = markdown_rendering._WORKER._process
        process.kill()
        process.wait()
        text = "*the one that a dead worker receives*"
        assert text in (await markdown_rendering.render_texts([text]))[text]
        assert "<em>third</em>" in (await markdown_rendering.render_texts(["*third*"]))["*third*"]

    run(scenario())


def test_rendering_a_stream_takes_linear_time():
    """Count the characters that reach the renderer. A block that never ends is the worst case."""
    for begin, unit in (("", "word "), ("```\n", "code\n"), ("[a]: https://a.example\n\n", "[a] b\n\n")):
        stream, rendered_length, length = markdown_rendering.MarkdownStream(), 0, 0
        stream.take(begin)
        while length < 150_000:
            stream.take(unit * 20)
            length += len(unit) * 20
            while (text := stream.due()) is not None:
                rendered_length += len(text)
                stream.show(markdown.RenderedText(["x"], references=unit.startswith("[")))
        assert rendered_length < 30 * length, (begin, rendered_length / length)


async def longest_block(work):
    """Run a coroutine, and return the longest CPU time between two iterations of the event loop.

    The garbage collector is off meanwhile: a full collection of the objects of all earlier tests takes up to 0.2 s.
    """
    ended = asyncio.Event()
    longest = 0.0

    async def tick():
        nonlocal longest
        last = time.thread_time()
        while not ended.is_set():
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    gc.disable()
    ticker = asyncio.create_task(tick())
    try:
        result = await work
    finally:
        gc.enable()
        ended.set()
        await ticker
    return longest, result


LONG_TEXTS = {
    "formulas": "\\(" * 10_000,
    "lists": "- a\n" * 20_000,
    "quotes": ">>>>\na\n" * 25_000,
    "words": "word *word* " * 10_000,
    "brackets": "[a](" * 3_000,
    "code": "```js\n" + "/*" * 19_000 + "\n```",
    "too long": "<" * 2_000_000,
}


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_no_text_blocks_the_event_loop(name):
    async def scenario():
        await markdown_rendering.render_texts(["the worker has started"])
        blocked_time, html = await longest_block(markdown_rendering.render_texts([LONG_TEXTS[name]]))
        assert blocked_time < MAX_BLOCK
        assert len(html[LONG_TEXTS[name]]) >= len(LONG_TEXTS[name]) // 2

    run(scenario())


def test_long_pages_answers_and_exports_do_not_block_the_event_loop():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            for number in range(20):
                text = f"{number} " + "word *word* \\(" * 3_000
                call = {"kind": "tool_call", "call_id": "c", "tool": "look", "arguments": {"x": text}}
                await session.append([{"role": "user", "content": text}, {"role": "assistant", "content": text}])
                await session.append({"role": "assistant", "parts": [call]})
            blocked_time, view = await longest_block(item_rendering.read_latest(account, session, CLOCK))
            assert blocked_time < MAX_BLOCK
            assert len(view.items) > 20
            for format in ("md", "html", "jsonl"):

                async def export(format=format):
                    return [len(chunk) async for chunk in chunks_async(account.store, None, format, redact=True)]

                blocked_time, _ = await longest_block(export())
                assert blocked_time < MAX_BLOCK, format
        live = TurnRun("s")
        live.turn = "1.1"
        for _ in range(300):
            live.add(ReasoningDelta(text="thought " * 20))
        for _ in range(300):
            live.add(TextDelta(text="word \\( *a* " * 20))
        blocked_time, changes = await longest_block(live_answer_of(live).changes(-1))
        assert blocked_time < MAX_BLOCK
        assert len(changes["blocks"]) == 2

    run(scenario())
