"""Store URLs: a path, a sqlite: or postgresql: URL, :memory:, or the default database."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from recollect import config
from recollect.engine import registry
from recollect.errors import InvalidValue, format_value
from recollect.model import validation
from recollect.model.json import escape_surrogates

MEMORY = ":memory:"
_OWNER_MAX_CHARACTERS = 256  # PostgreSQL indexes the owner; an index entry has at most 2.7 kB
_OWNER_MAX_BYTES = 512  # bytes in UTF-8, for the same reason. U+0010 counts twice, because PostgreSQL stores it so
_MAX_TIMEOUT = 10 * 365 * 24 * 3600  # seconds: 10 years, which the time functions of all systems accept
# First words of a libpq connection string. As a path it would create a file whose name contains the password.
_CONNINFO_KEYS = frozenset({"host", "hostaddr", "port", "dbname", "user", "password", "service", "sslmode"})


class StoreTarget(NamedTuple):
    """The URL scheme of a store's engine, and the path or URL of its database."""

    engine: str
    path: str

    @property
    def display_url(self) -> str:
        """The path, or the URL without its password."""
        if "://" not in self.path:
            return self.path
        scheme, authority, query = split_url(self.path)
        user, at, host = authority.rpartition("@")
        visible_query = "&".join(item for item in query if not item.startswith(("password=", "sslpassword=")))
        return f"{scheme}{user.partition(':')[0]}{at}{host}{'?' if visible_query else ''}{visible_query}"


def split_url(url: str) -> tuple[str, str, list[str]]:
    """Split a postgresql: URL as libpq does: the scheme, user, hosts and database, and the items of the query.

    libpq has no fragments, and a password may contain #, ? and /; urllib would split the URL there.
    """
    scheme, separator, remainder = url.partition("://")
    user, at, _ = remainder.partition("/")[0].rpartition("@")
    authority, _, query = remainder[len(user + at) :].partition("?")
    return scheme + separator, user + at + authority, [item for item in query.split("&") if item]


def check_owner_and_timeout(owner: Any, timeout: Any) -> None:
    """Raise InvalidValue unless `owner` can be an owner and `timeout` a number of seconds."""
    check_owner(owner)
    if type(timeout) not in (int, float) or not 0 <= timeout <= _MAX_TIMEOUT:
        raise InvalidValue(f"timeout must be between 0 and {_MAX_TIMEOUT} seconds, got {format_value(timeout)}.")


def check_owner(owner: Any) -> None:
    """Raise InvalidValue unless `owner` can be an owner."""
    if type(owner) is not str or "\0" in owner or owner != escape_surrogates(owner):
        raise InvalidValue(
            f"owner must be a str without NUL and unpaired surrogates ('' for none), got {format_value(owner)}."
        )
    if len(owner) > _OWNER_MAX_CHARACTERS:
        raise InvalidValue(f"owner must have at most {_OWNER_MAX_CHARACTERS} characters, got {len(owner):,}.")
    size = len(owner.encode()) + owner.count("\x10")
    if size > _OWNER_MAX_BYTES:
        raise InvalidValue(f"owner must have at most {_OWNER_MAX_BYTES} bytes in UTF-8, got {size}.")


def parse_target(target: str | os.PathLike[str] | None) -> StoreTarget:
    """Parse a path or URL. None means the configured database, or the default file."""
    text: Any = target if target is not None else config.database()
    text = validation.convert_path(text)
    if not isinstance(text, str) or not text:
        raise InvalidValue(f"A database must be a path or a URL, got {format_value(text)}.")
    if text == MEMORY:
        return StoreTarget("sqlite", MEMORY)
    scheme, colon, remainder = text.partition(":")
    scheme = scheme.lower()
    if colon and scheme == "sqlite":
        return StoreTarget("sqlite", _sqlite_path(remainder))
    if colon and scheme in ("postgresql", "postgres"):
        if remainder != escape_surrogates(remainder):
            raise InvalidValue(f"A URL must be valid UTF-8, got {format_value(text)}.")
        return StoreTarget("postgres", f"{scheme}:{remainder}")
    if "://" in text or (colon and scheme == "file"):
        if registry.is_registered(scheme):
            return StoreTarget(scheme, f"{scheme}:{remainder}")
        raise InvalidValue(
            f"{scheme}: is not a supported kind of store. Use a path, sqlite:///path, "
            "postgresql://host/database or :memory:."
        )
    setting, equals, _ = text.partition("=")
    if equals and setting.strip() in _CONNINFO_KEYS and not os.path.lexists(text):
        raise InvalidValue(
            f"{setting.strip()}=... looks like a PostgreSQL connection string. "
            "Use a URL: postgresql://user:password@host:port/database. (For a file of that name, add ./ in front.)"
        )
    return StoreTarget("sqlite", absolute_path(text))


def _sqlite_path(remainder: str) -> str:
    """Parse the part after `sqlite:`: `///relative`, `////absolute`, `//` alone or `:memory:`, or a bare path."""
    from urllib.parse import unquote  # noqa: PLC0415  takes 4 ms; a plain path does not need it

    # Treated as part of the path, `?mode=ro` would silently create another, empty file.
    if "?" in remainder or "#" in remainder:
        raise InvalidValue(
            f"A sqlite: URL has no options, got sqlite:{remainder}. Remove them, or write ? and # in a file name as "
            "%3F and %23."
        )
    path = unquote(remainder.removeprefix("//"))
    if path in ("", "/", MEMORY, "/" + MEMORY):
        return MEMORY
    # sqlite:///file is relative and sqlite:////file absolute, as SQLAlchemy and others write it.
    return absolute_path(path[1:] if remainder.startswith("///") else path)


def absolute_path(path: str) -> str:
    """Return the absolute path of a file. Raise InvalidValue if SQLite cannot open such a path."""
    if "\0" in path:
        raise InvalidValue(f"A path must not contain a NUL character, got {format_value(path)}.")
    if not path.isprintable() and any("\ud800" <= char <= "\udfff" for char in path):
        raise InvalidValue(f"A path must be valid UTF-8 for SQLite, got {format_value(path)}. Choose another name.")
    return os.path.abspath(config.expand_home(path))
