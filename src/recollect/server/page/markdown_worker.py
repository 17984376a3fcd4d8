"""The worker process that renders Markdown, so that no text can block the server's event loop.

It reads requests from standard input and writes replies to standard output. It exits when its standard input is
closed, so it never outlives the server. Each text has a budget of CPU time: `re` checks for signals while it
matches, so a timer stops even a single match that would take minutes.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import NoReturn

import msgspec

from recollect.export.plaintext import render_plain
from recollect.server.page.markdown import render_normalized
from recollect.server.page.markdown_protocol import RenderedText, RenderReply, RenderRequest, read_frame, write_frame

CPU_SECONDS = 2.0
"""CPU seconds for one text. A list of 25,000 lines took 1.6 s; a text that takes longer is shown as plain text."""

_TIMER_REPEAT = 0.05  # seconds. Python ignores exceptions in finalizers and GC callbacks, so raise again.
_HAS_TIMER = hasattr(signal, "setitimer")  # not on Windows, where the server kills a worker that takes too long


class _OutOfTime(BaseException):
    """Raised by the timer. Not an Exception: no library may handle it as an error of its own."""


def serve() -> None:
    """Answer requests until standard input ends."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # output of a library must not mix with the replies
    while body := read_frame(requests):
        write_frame(replies, msgspec.msgpack.encode(handle_request(msgspec.msgpack.decode(body, type=RenderRequest))))


def handle_request(request: RenderRequest, seconds: float = CPU_SECONDS) -> RenderReply:
    """Render a text within its budget; as plain text if it exceeds the budget or the parser fails."""
    start = time.process_time()
    is_fallback = False
    try:
        _set_timer(seconds)
        rendered = render_normalized(request.text, growing=request.growing)
        _set_timer(0)
    except (_OutOfTime, Exception):  # noqa: BLE001  any parser error, such as RecursionError
        _set_timer(0)
        rendered, is_fallback = RenderedText([render_plain(request.text)]), True
    return RenderReply(rendered, is_fallback, time.process_time() - start)


def _set_timer(seconds: float) -> None:
    """Start the timer, or stop it (0)."""
    if _HAS_TIMER:
        signal.signal(signal.SIGVTALRM, _expire if seconds else signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _TIMER_REPEAT if seconds else 0)


def _expire(*_: object) -> NoReturn:
    raise _OutOfTime
