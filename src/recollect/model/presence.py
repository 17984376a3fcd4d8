"""Who is in a session: a window, a page or a bot of a process that talks there."""

from __future__ import annotations

from typing import NamedTuple

from recollect.model.value import Value


class Presence(Value, frozen=True, kw_only=True, gc=False):
    """Someone in a session: where they talk (`terminal`, `web`, ...), in which process, since when."""

    id: str
    session: str
    surface: str
    holder: str
    since_at: int
    seen_at: int


class Arrived(NamedTuple):
    """One's own place in a session, and the others who were there."""

    id: str
    others: list[Presence]
