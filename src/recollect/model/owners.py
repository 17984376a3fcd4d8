"""The owners of a database."""

from __future__ import annotations

from recollect.model.value import Value


class Owners(Value, frozen=True, kw_only=True, gc=False):
    """The owners that have anything in a database, by name. The owner without a name is the empty text."""

    names: tuple[str, ...]
    everyone: bool
    """Whether these are all: False if row-level security of the server's own may hide some from this role."""
