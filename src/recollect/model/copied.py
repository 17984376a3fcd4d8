"""What a copy of a store came to: how much was copied, and what is not the same in both."""

from __future__ import annotations

from typing import Literal

from recollect.model.value import Value


class Difference(Value, frozen=True, kw_only=True, gc=False):
    """Something of the source that is not in the target, or is not the same there."""

    owner: str
    kind: Literal["session", "payload", "setting"]
    name: str
    """The session's id, the payload's hash or the setting's key."""

    missing: bool
    """Whether it is not there at all."""


class Copied(Value, frozen=True, kw_only=True, gc=False):
    """A copy of a store, compared with its source."""

    source: str
    target: str
    owners: tuple[str, ...]
    everyone: bool
    """Whether every owner of the source was copied, or those that were named.

    False if none was named and row-level security of the server's own may hide some from this role.
    """

    counts: dict[str, int]
    """How much of each kind the source has, and was compared."""

    differences: tuple[Difference, ...] = ()
    """The first thousand that were found."""

    @property
    def whole(self) -> bool:
        """Whether everything is in the target as it is in the source."""
        return self.everyone and not self.differences
