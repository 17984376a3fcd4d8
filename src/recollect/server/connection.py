"""Client connections: a timeout for request headers, and a limit on their number.

uvicorn waits forever for the rest of a request's headers; a few hundred such connections would take every file
descriptor. If none is left, asyncio retries to accept the next client in a loop and writes a traceback each time:
100 MB of them in 30 seconds were seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.server.access import SECURITY_HEADERS
from recollect.server.problems import PROBLEM_TYPE, make_problem

_log = logging.getLogger("recollect.server")

HEADER_TIMEOUT = 30.0
"""Seconds from the connection, or from the first byte of a request, to the end of its headers. Headers are small."""

MAX_CONNECTIONS = 4_000
"""Maximum number of connections, if the process may open so many files. A browser keeps up to 6 open."""

BACKLOG = 64
"""Listen backlog: connections that the kernel queues, and asyncio accepts in one step."""

_RESERVED_DESCRIPTORS = 7 * BACKLOG
"""File descriptors for everything else: connections being accepted and closed, the store, files that tools open."""


def connection_limit() -> int:
    """Return the maximum number of connections. Raise the process's limit of open files if possible."""
    try:
        import resource  # noqa: PLC0415  not on every system
    except ImportError:
        return MAX_CONNECTIONS
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_CONNECTIONS + _RESERVED_DESCRIPTORS
    if resource.RLIM_INFINITY != soft_limit < target:
        raised_limit = target if hard_limit == resource.RLIM_INFINITY else min(hard_limit, target)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised_limit, hard_limit))
            soft_limit = raised_limit
    return (
        MAX_CONNECTIONS
        if soft_limit == resource.RLIM_INFINITY
        else max(BACKLOG, min(MAX_CONNECTIONS, soft_limit - _RESERVED_DESCRIPTORS))
    )


class HttpConnection(H11Protocol):
    """A connection that is closed if no request comes in time, or if it is idle and others need its descriptor."""

    max_connections = MAX_CONNECTIONS
    _timer: asyncio.TimerHandle | None = None
    _last_activity = 0.0

    def connection_made(self, transport: Any) -> None:
        """Start the header timeout. Above the limit, close the connection that has been idle longest."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEADER_TIMEOUT, self._close_idle)
        self._last_activity = self.loop.time()
        if len(self.connections) > self.max_connections:
            idle = [other for other in self.connections if isinstance(other, HttpConnection) and other.is_idle()]
            min(idle, key=lambda other: other._last_activity, default=self).transport.abort()  # noqa: SLF001  same class

    def is_idle(self) -> bool:
        """Return whether no request is in progress."""
        return (not self.cycle or self.cycle.response_complete) and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Process received bytes. The first bytes of another request start the header timeout again."""
        self._last_activity = self.loop.time()
        if self._timer is None and self.conn.their_state is h11.IDLE:
            self._timer = self.loop.call_later(HEADER_TIMEOUT, self._close_idle)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the header timeout."""
        self._cancel_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with a problem and the security headers."""
        _log.info("%s sent an invalid request 400", (self.client or ("-",))[0])
        body = make_problem(400, "invalid-request", msg).body()
        headers = [
            (b"content-type", PROBLEM_TYPE.encode()), (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"), (b"cache-control", b"no-store"), *SECURITY_HEADERS,
        ]  # fmt: skip
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.cycle:  # the malformed data is in a body: its running request must not respond too
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_idle(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
