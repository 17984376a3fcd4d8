"""A connection of a client, and how long the server waits for a client that does not come to the point.

uvicorn waits for ever for the rest of a request's headers; a few hundred such connections would take every descriptor.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.server.access import HEADERS
from recollect.server.problem import TYPE, coded

PATIENCE = 30.0
"""Seconds from a connection, or from the first byte of a request, to the end of the request's headers."""


class Connection(H11Protocol):
    """A connection that is closed where no request comes in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(PATIENCE, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Take what came. The first bytes of another request on this connection begin another wait."""
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
