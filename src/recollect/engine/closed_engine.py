"""The engine of a closed view: a store of as_owner() that was closed while the store that it came from stays open."""

from __future__ import annotations

from typing import NoReturn

from recollect.errors import StoreClosed


class ClosedEngine:
    """Raises StoreClosed for every use except its path."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> NoReturn:
        raise StoreClosed
