"""The public methods of a store and of a session with their groups, by dotted name, such as `branches.list`."""

from __future__ import annotations

import inspect

from recollect import Session, Store
from recollect.types import Records
from recollect_conformance.arguments import GROUPS

SYNC_GROUPS = {cls: {"records": Records, **GROUPS[cls]} for cls in (Store, Session)}
"""The groups of methods by the names of their properties."""


def list_methods(cls: type) -> set[str]:
    """Return the names of the public methods of a class, without those of its groups."""
    return {name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}


def list_all_methods(cls: type) -> set[str]:
    """Return the dotted names of the public methods of Store or Session and of its groups."""
    group_methods = {f"{noun}.{name}" for noun, group in SYNC_GROUPS[cls].items() for name in list_methods(group)}
    return list_methods(cls) | group_methods
