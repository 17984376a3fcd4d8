"""Markdown rendering off the event loop: a worker process, a time budget, and a cache of the latest texts.

While an answer streams, complete blocks are never rendered again. The total time is linear in the length of the stream.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from recollect.export.plaintext import ParseBudget, fits_budget, normalize_text, render_plain
from recollect.server.page.markdown_protocol import RenderedText, RenderReply, RenderRequest, read_frame, write_frame

_log = logging.getLogger("recollect.server")

_PAGE_CPU_SECONDS = 2.0
"""Seconds of CPU time for the texts of one page; texts above it are plain text. A page should open in seconds."""

_DEADLINE = 60.0
"""Seconds after which a worker without a reply is killed. Its own timer (CPU time) normally ends it earlier."""

_EAGER_LENGTH = 16_000
"""Characters of an unstable block up to which every piece of a stream is rendered at once: milliseconds of work."""

_GROWTH_DIVISOR = 16
"""A longer block is rendered again after it grew by 1/16, so that the total time stays linear."""

_WORKER_COMMAND = (
    "import sys; sys.path[:] = sys.argv[1:]; from recollect.server.page.markdown_worker import serve; serve()"
)


class MarkdownWorker:
    """The worker process, started on first use. Used by one thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def answer(self, request: RenderRequest) -> RenderReply:
        """Return a rendered text; as plain text if the worker crashes or takes too long."""
        try:
            body = self._exchange(self._running(), msgspec.msgpack.encode(request))
        except OSError as error:
            _log.warning("The Markdown worker failed, so a text is shown as plain text: %s", error)
            body = b""
        if body:
            return msgspec.msgpack.decode(body, type=RenderReply)
        self.close()
        return RenderReply(RenderedText([render_plain(request.text)]), is_fallback=True)

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes) -> bytes:
        alarm = threading.Timer(_DEADLINE, process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            write_frame(process.stdin, request)
            return read_frame(process.stdout)
        finally:
            alarm.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # Not multiprocessing: it imports the caller's main module again. In a new process session, so that
            # Ctrl-C in a terminal reaches only the server.
            command = [sys.executable, "-P", "-c", _WORKER_COMMAND, *sys.path]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603
        return self._process

    def close(self) -> None:
        """End the process; the next text starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


_WORKER = MarkdownWorker()
_POOL = ThreadPoolExecutor(1, thread_name_prefix="recollect-markdown")
atexit.register(_WORKER.close)


async def render_texts(texts: Iterable[str]) -> dict[str, str]:
    """Return the HTML of each text. Texts are rendered in order until the page's CPU budget is used."""
    by_text: dict[str, str] = {}
    cpu_seconds = 0.0
    for text in texts:
        await asyncio.sleep(0)  # let other tasks run: hashing long texts takes time
        if text in by_text:
            continue
        html = _CACHE.get(text)
        if html is None:
            reply = await _render_in_pool(text, plain=cpu_seconds > _PAGE_CPU_SECONDS)
            html = "".join(reply.rendered.blocks)
            if cpu_seconds <= _PAGE_CPU_SECONDS:
                _CACHE.put(text, html)
            cpu_seconds += reply.cpu
        by_text[text] = html
    return by_text


async def _render_in_pool(text: str, *, growing: bool = False, plain: bool = False) -> RenderReply:
    return await asyncio.get_running_loop().run_in_executor(_POOL, _render_in_worker, text, growing, plain)


def _render_in_worker(text: str, growing: bool, plain: bool) -> RenderReply:
    text = normalize_text(text)
    if plain or not fits_budget(text):
        return RenderReply(RenderedText([render_plain(text)]))
    return _WORKER.answer(RenderRequest(text, growing))


def is_due(length: int, rendered: int) -> bool:
    """Return whether a growing text is rendered again: `rendered` of its `length` characters were rendered."""
    return length > rendered and (length <= _EAGER_LENGTH or (length - rendered) * _GROWTH_DIVISOR >= length)


class MarkdownStream:
    """A growing text. `blocks` is its current HTML; the first `stable` of them no longer change."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.stable = 0
        self.plain = False
        """Whether the text exceeded the budget and is shown as plain text."""
        self._budget = ParseBudget()
        self._stable_texts: list[str] = []  # texts of the stable blocks
        self._tail: list[str] = []
        self._length = 0  # of the tail
        self._rendered_length = 0  # rendered characters of the tail
        self._after_return = False

    def take(self, piece: str) -> None:
        """Add a piece of the text."""
        if self._after_return:
            piece = piece.removeprefix("\n")  # CR LF in two pieces is one line end
        self._after_return = piece.endswith("\r") or (self._after_return and not piece)
        piece = normalize_text(piece)
        self._tail.append(piece)
        self._length += len(piece)
        self._budget.take(piece)
        if self._budget.over_limit and not self.plain:
            self.fall_back()

    def fall_back(self) -> None:
        """Show the text as plain text from now on."""
        self.plain = True
        self._restart()

    def due(self) -> str | None:
        """Return the text to render now and hand to show(); None if nothing is due."""
        if not is_due(self._length, self._rendered_length):
            return None
        self._tail = ["".join(self._tail)]
        return self._tail[0]

    def show(self, rendered: RenderedText) -> int:
        """Apply the rendering of the text that due() returned. Return the number of unchanged blocks."""
        unchanged = self.stable
        self.blocks[unchanged:] = rendered.blocks
        self._rendered_length = self._length
        if rendered.references and self._stable_texts:
            self._restart()  # earlier text may use the references
        elif rendered.stable and not self.plain:
            text = self._tail[0]
            self._stable_texts.append(text[: rendered.stable_length])
            self._tail[0] = text[rendered.stable_length :]
            self.stable += rendered.stable
            self._length -= rendered.stable_length
            self._rendered_length = self._length
        return unchanged

    def _restart(self) -> None:
        self._tail = [*self._stable_texts, *self._tail]
        self._stable_texts = []
        self._length = sum(map(len, self._tail))
        self.stable = self._rendered_length = 0


async def grow_stream(stream: MarkdownStream, piece: str) -> int | None:
    """Add a piece to a stream. Return the number of unchanged blocks; None if no block changed."""
    stream.take(piece)
    unchanged: int | None = None
    while (text := stream.due()) is not None:
        reply = await _render_in_pool(text, growing=True, plain=stream.plain)
        same_count = stream.show(reply.rendered)
        unchanged = same_count if unchanged is None else min(same_count, unchanged)
        if reply.is_fallback:
            stream.fall_back()
    return unchanged


class RenderCache:
    """A least-recently-used cache of rendered texts, limited by characters."""

    def __init__(self, characters: int) -> None:
        self._capacity = self._free = characters
        self._entries: OrderedDict[str, str] = OrderedDict()

    def get(self, text: str) -> str | None:
        """Return the HTML of a text, or None."""
        html = self._entries.get(text)
        if html is not None:
            self._entries.move_to_end(text)
        return html

    def put(self, text: str, html: str) -> None:
        """Store the HTML of a text. Evict the least recently used texts above the limit."""
        if text in self._entries or len(text) + len(html) > self._capacity:
            return
        self._entries[text] = html
        self._free -= len(text) + len(html)
        while self._free < 0:
            old_text, old_html = self._entries.popitem(last=False)
            self._free += len(old_text) + len(old_html)


_CACHE = RenderCache(8_000_000)  # characters, 8 to 32 MB: the texts of some hundred screens
