"""A change that someone committed, as a watch tells it."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A session that has changed, and its revision now; None where it was erased."""

    session: str
    revision: int | None
