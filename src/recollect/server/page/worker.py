"""The process that renders Markdown for the server, so that no text can hold the server's event loop.

It reads requests on standard input and writes replies to standard output. It ends when its standard input does, so it
never outlives the server. A text has a budget of CPU time: `re` checks for signals while it matches, so a timer ends
even a single match that would take minutes.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import NoReturn

import msgspec

from recollect.server.page.markdown import rendered
from recollect.server.page.plaintext import plain
from recollect.server.page.worker_protocol import Rendered, Reply, Request, read_frame, write_frame

CPU_SECONDS = 2.0
"""CPU time for one text. A list of 25,000 lines took 1.6 s; a text that takes longer is shown as it is."""

_AGAIN = 0.05  # seconds. Python swallows what is raised in a finalizer or a callback of the collector: raise again.
_HAS_TIMER = hasattr(signal, "setitimer")  # not on Windows, where the server kills a worker that takes too long


class _OutOfTime(BaseException):
    """Raised by the timer. Not an Exception: no library may handle it as an error of its own."""


def serve() -> None:
    """Answer requests until standard input ends."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever a library prints must not get between the replies
    while body := read_frame(requests):
        write_frame(replies, msgspec.msgpack.encode(answer(msgspec.msgpack.decode(body, type=Request))))


def answer(request: Request, seconds: float = CPU_SECONDS) -> Reply:
    """Render a text within its budget; a text that exceeds it, or that the parser fails on, is shown as it is."""
    begun = time.process_time()
    gave_up = False
    try:
        _arm(seconds)
        made = rendered(request.text, growing=request.growing)
        _arm(0)
    except (_OutOfTime, Exception):  # noqa: BLE001  whatever breaks the parser (RecursionError): the text is shown
        _arm(0)
        made, gave_up = Rendered([plain(request.text)]), True
    return Reply(made, gave_up, time.process_time() - begun)


def _arm(seconds: float) -> None:
    """Start the timer, or stop it (0)."""
    if _HAS_TIMER:
        signal.signal(signal.SIGVTALRM, _expire if seconds else signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN if seconds else 0)


def _expire(*_: object) -> NoReturn:
    raise _OutOfTime
