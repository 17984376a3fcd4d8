"""Whether the server answers, and which version it is. The one thing that needs no token."""

from __future__ import annotations

import msgspec
from litestar import get

from recollect import __version__


class Health(msgspec.Struct, frozen=True):
    """The server is there."""

    status: str
    version: str


@get("/api/v1/health", tags=["server"], sync_to_thread=False)
def health() -> Health:
    """Say that the server is there, and its version."""
    return Health("ok", __version__)
