"""The owners that a command about the whole database covers: everyone who has anything there, or the one named."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from recollect.cli import place
from recollect.cli.screen import remark, safe
from recollect.errors import RecollectError

if TYPE_CHECKING:
    from recollect.store import Store

T = TypeVar("T")

UNNAMED = "(unnamed)"
HIDDEN = (
    "A row-level security policy may hide owners from this role. Connect as a superuser or as a role with BYPASSRLS, "
    "or name each owner with --owner."
)


class Covered(NamedTuple, Generic[T]):
    """The results by owner, and what is known about the owners without one."""

    results: dict[str, T]
    unread: dict[str, str]
    """The owners that could not be read, each with the reason."""

    everyone: bool
    """Whether there is nobody besides these."""

    named: bool
    """Whether the caller chose the owner."""

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for was read."""
        return not self.unread and (self.everyone or self.named)

    @property
    def shared(self) -> bool:
        """Whether owners are worth mentioning: somebody other than the owner without a name is, or may be, there."""
        return self.named or not self.complete or list(self.results) != [""]

    def to_dict(self) -> dict[str, Any]:
        """Return which owners were covered, for JSON."""
        return {"owners": list(self.results), "everyone": self.everyone, "unread": self.unread}

    def describe(self) -> str:
        """Return a sentence that names the owners covered; nothing for a database without named owners."""
        if not self.shared:
            return ""
        names = ", ".join(shown(owner) for owner in self.results) or "none"
        return f" Owner {names} only." if self.named else f" Owners: {names}."

    def remark_missing(self) -> None:
        """Print to standard error which owners were not covered."""
        for owner, reason in self.unread.items():
            remark(f"Owner {shown(owner)} could not be read: {safe(reason)}")
        if not self.everyone and not self.named:
            remark(HIDDEN)


def shown(owner: str) -> str:
    """Return the name of an owner as a person reads it."""
    return safe(owner) or UNNAMED


def cover(work: Callable[[Store], T]) -> Covered[T]:
    """Run something on the store of each owner, one after another.

    An owner whose store fails is left out and reported; if every one fails, the last error is raised.
    """
    owner = place.chosen_owner()
    names, everyone, named = [owner or ""], False, owner is not None
    if not named:
        with place.opened_for("") as store:
            found = store.owners()
        names, everyone = list(found.names) or [""], found.everyone
    results: dict[str, T] = {}
    unread: dict[str, str] = {}
    for name in names:
        try:
            with place.opened_for(name) as store:
                results[name] = work(store)
        except RecollectError as error:
            if len(unread) + 1 == len(names):
                raise
            unread[name] = str(error)
    return Covered(results, unread, everyone, named)
