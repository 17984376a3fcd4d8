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
    """False where the source is a server that shows this role one owner at a time, and none was named."""

    counts: dict[str, int]
    """How much of each kind the source has, and was compared."""

    differences: tuple[Difference, ...] = ()
    """The first thousand that were found."""

    @property
    def whole(self) -> bool:
        """Whether everything is in the target as it is in the source."""
        return not self.differences
