"""The synchronous store. All modules except waiting and backups are generated from recollect.store_async."""

from __future__ import annotations

import os

from recollect.engine.registry import find_provider
from recollect.engine.url import StoreTarget, check_owner_and_timeout, parse_target
from recollect.store.records import Records
from recollect.store.session import Session
from recollect.store.store import Store
from recollect.store.turn import Stream, Turn

__all__ = ["Records", "Session", "Store", "Stream", "Turn", "open"]


def open(path_or_url: str | os.PathLike[str] | None = None, *, owner: str = "", timeout: float = 30.0) -> Store:
    """Open a store and return it. The database is created or migrated if necessary.

    - `path_or_url`: a path, a `sqlite:` or `postgresql:` URL, or `:memory:`. Without it, the environment variable
      RECOLLECT_DB decides, then the default file of the user.
    - `owner`: the user whose sessions the store sees.
    - `timeout`: seconds to wait for a locked file or for the server, 30 by default.

    Raise StoreUnavailable if the database cannot be opened, StoreLocked after `timeout`, SchemaTooNew for a database of
    a newer version, and NotADatabase for another kind of file.
    """
    check_owner_and_timeout(owner, timeout)
    return open_target(parse_target(path_or_url), owner, timeout)


def open_target(target: StoreTarget, owner: str, timeout: float, *, trusted: bool = False) -> Store:
    """Open a store at a parsed location.

    `trusted` also accepts a PostgreSQL role that bypasses row-level security, which a copy of all owners needs.
    """
    provider = find_provider(target.engine)
    return Store(provider.open(target.path, owner=owner, timeout=timeout, trusted=trusted), owner)
