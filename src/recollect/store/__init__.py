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
    """Open a database and return a [Store].

    It creates the file and its parent folders if they do not exist, and migrates a file with an older schema after it
    has written a backup next to it.

    - `path_or_url`: the location of the database.
      - a path, as `str` or as an object with `__fspath__`; `~` is your home folder
      - `sqlite:///file.db` (relative) or `sqlite:////folder/file.db` (absolute), without options; write a `?` in a name
        as `%3F`
      - `postgresql://user:password@host/database` for a server
      - `:memory:` or `sqlite://` for a database in memory, which is lost when the store is closed
      - `None`: the environment variable `RECOLLECT_DB`, else `[db]` of the configuration file, else the default file;
        see [configuration.md]
    - `owner`: the user to whom the sessions belong, at most 256 characters and 512 bytes, without NUL
      and lone surrogates. A store sees only the sessions, records and blobs of its owner, and two owners may use the
      same session ids. An owner separates data but does not protect it: anyone who can read the file can read the data
      of all owners.
    - `timeout`: maximum number of seconds that an operation waits for a file that another process has locked, before it
      raises `StoreLocked`, or for a server, before it raises `StoreUnavailable`.

    Raise `NotADatabase` if the file is not a Recollect database, `SchemaTooNew` if a newer version wrote it,
    `Corrupted` if it is damaged, `NetworkFileSystem` if it is on a network file system, `StoreUnavailable` if it cannot
    be opened, and `InvalidConfig` if `path_or_url` is `None` and the configuration is invalid.

    A `postgresql:` URL requires the extra `recollect[postgres]`. [postgresql.md] describes the URL, the guarantees of
    the database, and the separation of owners.

    ```python
    import recollect

    store = recollect.open("conversations.db")

    with recollect.open(":memory:") as scratch:    # closes at the end of the block
        scratch.session("cli:default").append({"role": "user", "content": "Hello"})
    ```
    """
    check_owner_and_timeout(owner, timeout)
    return open_target(parse_target(path_or_url), owner, timeout)


def open_target(target: StoreTarget, owner: str, timeout: float, *, trusted: bool = False) -> Store:
    """Open a store at a parsed location.

    `trusted` also accepts a PostgreSQL role that bypasses row-level security, which a copy of all owners needs.
    """
    provider = find_provider(target.engine)
    return Store(provider.open(target.path, owner=owner, timeout=timeout, trusted=trusted), owner)
