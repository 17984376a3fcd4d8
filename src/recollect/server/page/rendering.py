"""Markdown rendered off the event loop: by a worker process, with a budget, and with a cache of the latest texts.

While an answer streams, the blocks that are complete are never rendered again, and rendering all of the stream takes
time in proportion to its length.
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

from recollect.server.page.plaintext import Budget, fits, normalized, plain
from recollect.server.page.worker_protocol import Rendered, Reply, Request, read_frame, write_frame

_log = logging.getLogger("recollect.server")

_PER_REQUEST = 2.0
"""Seconds of CPU time that the worker spends on the texts of one page; texts past it are shown as they are."""

_DEADLINE = 60.0
"""Seconds after which a worker that does not answer is killed. Its own timer counts CPU time and comes first."""

_EAGER = 16_000
"""Characters of an incomplete block up to which every piece of a stream is rendered at once."""

_GROWTH = 16
"""A longer one is rendered again after it has grown by one part in this many, so the whole stream stays linear."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from recollect.server.page.worker import serve; serve()"


class Worker:
    """The process that renders, started when it is first needed. Used by one thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def answer(self, request: Request) -> Reply:
        """Have a text rendered. A text that the worker dies of, or that it takes too long for, is shown as it is."""
        try:
            body = self._exchanged(self._running(), msgspec.msgpack.encode(request))
        except OSError as error:
            _log.warning("The process that renders Markdown failed, so a text is shown as it is: %s", error)
            body = b""
        if body:
            return msgspec.msgpack.decode(body, type=Reply)
        self.close()
        return Reply(Rendered([plain(request.text)]), gave_up=True)

    def _exchanged(self, process: subprocess.Popen[bytes], request: bytes) -> bytes:
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
            # Not multiprocessing: it imports the caller's main module again. In a session of its own, so that Ctrl-C
            # in a terminal reaches the server alone.
            command = [sys.executable, "-P", "-c", _START, *sys.path]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)  # noqa: S603
        return self._process

    def close(self) -> None:
        """End the process; the next text starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


_WORKER = Worker()
_POOL = ThreadPoolExecutor(1, thread_name_prefix="recollect-markdown")
atexit.register(_WORKER.close)


async def rendered(texts: Iterable[str]) -> dict[str, str]:
    """Render finished texts, those that matter most first, and return the HTML of each."""
    found: dict[str, str] = {}
    spent = 0.0
    for text in texts:
        await asyncio.sleep(0)  # looking up long texts takes a moment each
        if text in found:
            continue
        known = _CACHE.get(text)
        if known is None:
            reply = await _in_pool(text, as_it_is=spent > _PER_REQUEST)
            known = "".join(reply.rendered.blocks)
            if spent <= _PER_REQUEST:
                _CACHE.put(text, known)
            spent += reply.cpu
        found[text] = known
    return found


async def _in_pool(text: str, *, growing: bool = False, as_it_is: bool = False) -> Reply:
    return await asyncio.get_running_loop().run_in_executor(_POOL, _answer, text, growing, as_it_is)


def _answer(text: str, growing: bool, as_it_is: bool) -> Reply:
    text = normalized(text)
    if as_it_is or not fits(text):
        return Reply(Rendered([plain(text)]))
    return _WORKER.answer(Request(text, growing))


def is_due(length: int, drawn: int) -> bool:
    """Whether a text that grows is drawn again: it has `length` characters, of which `drawn` were drawn."""
    return length > drawn and (length <= _EAGER or (length - drawn) * _GROWTH >= length)


class Stream:
    """A text that grows. `blocks` is what it looks like now; the first `settled` of them stay as they are."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.settled = 0
        self.as_it_is = False
        """Whether the text exceeded the budget: then it is no longer taken for Markdown."""
        self._budget = Budget()
        self._before: list[str] = []  # what the settled blocks are made of
        self._tail: list[str] = []
        self._length = 0  # of the tail
        self._drawn = 0  # characters of the tail that were drawn
        self._after_return = False

    def take(self, piece: str) -> None:
        """Add a piece of the text."""
        if self._after_return:
            piece = piece.removeprefix("\n")  # CR LF in two pieces is one line end
        self._after_return = piece.endswith("\r") or (self._after_return and not piece)
        piece = normalized(piece)
        self._tail.append(piece)
        self._length += len(piece)
        self._budget.take(piece)
        if self._budget.exceeded and not self.as_it_is:
            self.give_up()

    def give_up(self) -> None:
        """Take the text for Markdown no longer."""
        self.as_it_is = True
        self._begin_again()

    def due(self) -> str | None:
        """Return the text to render now and hand to show(); None if nothing is due."""
        if not is_due(self._length, self._drawn):
            return None
        self._tail = ["".join(self._tail)]
        return self._tail[0]

    def show(self, made: Rendered) -> int:
        """Take over what due() returned, rendered, and return the number of blocks that did not change."""
        unchanged = self.settled
        self.blocks[unchanged:] = made.blocks
        self._drawn = self._length
        if made.references and self._before:
            self._begin_again()  # what is defined here may be used anywhere before
        elif made.settled and not self.as_it_is:
            text = self._tail[0]
            self._before.append(text[: made.settled_at])
            self._tail[0] = text[made.settled_at :]
            self.settled += made.settled
            self._length -= made.settled_at
            self._drawn = self._length
        return unchanged

    def _begin_again(self) -> None:
        self._tail = [*self._before, *self._tail]
        self._before = []
        self._length = sum(map(len, self._tail))
        self.settled = self._drawn = 0


async def grow(stream: Stream, piece: str) -> int | None:
    """Add a piece to a stream, and return how many of its blocks did not change; None if all are as they were."""
    stream.take(piece)
    unchanged: int | None = None
    while (text := stream.due()) is not None:
        reply = await _in_pool(text, growing=True, as_it_is=stream.as_it_is)
        kept = stream.show(reply.rendered)
        unchanged = kept if unchanged is None else min(kept, unchanged)
        if reply.gave_up:
            stream.give_up()
    return unchanged


class Cache:
    """What was rendered, the latest of it, up to a number of characters."""

    def __init__(self, characters: int) -> None:
        self._most = self._room = characters
        self._kept: OrderedDict[str, str] = OrderedDict()

    def get(self, text: str) -> str | None:
        """Give what was rendered of a text, if it is still there."""
        found = self._kept.get(text)
        if found is not None:
            self._kept.move_to_end(text)
        return found

    def put(self, text: str, made: str) -> None:
        """Keep what was rendered, and let go of what was not asked for longest."""
        if text in self._kept or len(text) + len(made) > self._most:
            return
        self._kept[text] = made
        self._room -= len(text) + len(made)
        while self._room < 0:
            old, gone = self._kept.popitem(last=False)
            self._room += len(old) + len(gone)


_CACHE = Cache(8_000_000)
