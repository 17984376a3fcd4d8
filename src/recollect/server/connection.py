"""A connection of a client, how long the server waits for a client that says nothing, and how many it has.

uvicorn waits for ever for the rest of a request's headers; a few hundred such connections would take every descriptor.
Where none is left, asyncio tries again and again to accept the next client, and writes a traceback each time: a
hundred megabytes of them in half a minute were seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.server.access import HEADERS
from recollect.server.problem import TYPE, coded

_log = logging.getLogger("recollect.server")

PATIENCE = 30.0
"""Seconds from a connection, or from the first byte of a request, to the end of the request's headers."""

MOST = 4_000
"""Connections at one time, where the process may have so many files open."""

BACKLOG = 64
"""Connections that are accepted before anything else is done."""

_OTHERS = 7 * BACKLOG
"""Descriptors for the rest: what is being accepted and closed, the store, what tools open."""


def room() -> int:
    """Say how many connections there may be. The process may have more files open from now on, where it can."""
    try:
        import resource  # noqa: PLC0415  not on every system
    except ImportError:
        return MOST
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + _OTHERS
    if resource.RLIM_INFINITY != most < wanted:
        more = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            most = more
    return MOST if most == resource.RLIM_INFINITY else max(BACKLOG, min(MOST, most - _OTHERS))


class Connection(H11Protocol):
    """A connection that is closed where no request comes in time, or where others need its room."""

    most = MOST
    _timer: asyncio.TimerHandle | None = None
    _heard = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request. Where there are too many, whoever has asked for nothing the longest goes."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(PATIENCE, self._give_up)
        self._heard = self.loop.time()
        if len(self.connections) > self.most:
            waiting = [other for other in self.connections if isinstance(other, Connection) and other.waits()]
            min(waiting, key=lambda other: other._heard, default=self).transport.abort()  # noqa: SLF001  of its own kind

    def waits(self) -> bool:
        """Whether no request is under way; a new connection has none yet."""
        return (not self.cycle or self.cycle.response_complete) and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Take what came. The first bytes of another request on this connection begin another wait."""
        self._heard = self.loop.time()
        if self._timer is None and self.conn.their_state is h11.IDLE:
            self._timer = self.loop.call_later(PATIENCE, self._give_up)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._rest()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, with the headers that every answer has."""
        _log.info("%s sent an invalid request 400", (self.client or ("-",))[0])
        told = coded(400, "invalid-request", msg).body()
        given = [
            (b"content-type", TYPE.encode()), (b"content-length", str(len(told)).encode()),
            (b"connection", b"close"), (b"cache-control", b"no-store"), *HEADERS,
        ]  # fmt: skip
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=400, headers=given, reason=b"Bad Request"),
                h11.Data(data=told),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.cycle:  # a body that breaks off in nonsense: its request runs, and must not answer too
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
