"""A page of a list: the items, and where the next page begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class Page(list[T]):
    """A list that knows where it goes on: pass `next` as `after`; None where this is the end.

    `hindered` says why a search could not look at everything; None where it did.
    """

    def __init__(self, items: Iterable[T] = (), next: str | None = None, hindered: str | None = None) -> None:
        super().__init__(items)
        self.next = next
        self.hindered = hindered
