"""Where a store is: a path, a sqlite: or postgresql: URL, :memory:, or the default."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from recollect import config
from recollect.errors import InvalidValue, displayed
from recollect.model import argument
from recollect.model.json import storable

MEMORY = ":memory:"
_LONGEST_OWNER = 256
_LARGEST_OWNER = 512
_LONGEST = 10 * 365 * 24 * 3600
_CONNINFO = frozenset({"host", "hostaddr", "port", "dbname", "user", "password", "service", "sslmode"})
"""How `host=... dbname=...` begins, which would be a file of that name, with the password in it."""


class Target(NamedTuple):
    """The engine that a store needs, and where it finds its data."""

    engine: str
    path: str

    @property
    def shown(self) -> str:
        """The path, or the URL without its password."""
        if self.engine != "postgres":
            return self.path
        scheme, place, query = parted(self.path)
        user, at, host = place.rpartition("@")
        kept = "&".join(item for item in query if not item.startswith(("password=", "sslpassword=")))
        return f"{scheme}{user.partition(':')[0]}{at}{host}{'?' if kept else ''}{kept}"


def parted(url: str) -> tuple[str, str, list[str]]:
    """Take a postgresql: URL apart as PostgreSQL's own library does: the scheme, what is named, and the query.

    It knows no #, and a password may have a ? in it; urllib would take what follows for something else.
    """
    scheme, mark, rest = url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    place, _, query = rest[len(user + at) :].partition("?")
    return scheme + mark, user + at + place, [item for item in query.split("&") if item]


def check(owner: Any, timeout: Any) -> None:
    """Refuse what can not be an owner, or a number of seconds to wait."""
    if type(owner) is not str or "\0" in owner or owner != storable(owner):
        raise InvalidValue(f"An owner is a text, and '' where there is none; got {displayed(owner)}.")
    if len(owner) > _LONGEST_OWNER:  # every index of PostgreSQL's begins with it, and has no room for a long one
        raise InvalidValue(f"An owner has at most {_LONGEST_OWNER} characters; this one has {len(owner):,}.")
    if len(owner.encode()) > _LARGEST_OWNER:
        raise InvalidValue(f"An owner has at most {_LARGEST_OWNER} bytes of UTF-8; this one has {len(owner.encode())}.")
    if type(timeout) not in (int, float) or not 0 <= timeout <= _LONGEST:
        raise InvalidValue(f"timeout is a number of seconds, from 0 to those of ten years; got {displayed(timeout)}.")


def target(place: str | os.PathLike[str] | None) -> Target:
    """Read a path or URL; None is what the environment says, or the default file."""
    text: Any = place if place is not None else config.database()
    text = argument.fspath(text)
    if not isinstance(text, str) or not text:
        raise InvalidValue(f"A store is named by a path or a URL; got {displayed(text)}.")
    if text == MEMORY:
        return Target("sqlite", MEMORY)
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if colon and scheme == "sqlite":
        return Target("sqlite", _sqlite_path(rest))
    if colon and scheme in ("postgresql", "postgres"):
        if rest != storable(rest):
            raise InvalidValue(f"A URL is text that UTF-8 can carry; got {displayed(text)}.")
        return Target("postgres", f"{scheme}:{rest}")
    if "://" in text or (colon and scheme == "file"):
        raise InvalidValue(
            f"{scheme}: is no store that Recollect knows. Use a path, sqlite:///path, "
            "postgresql://host/database or :memory:."
        )
    setting, equals, _ = text.partition("=")
    if equals and setting.strip() in _CONNINFO and not os.path.lexists(text):
        raise InvalidValue(
            f"{setting.strip()}=... looks like a connection string of PostgreSQL's. "
            "Write it as a URL: postgresql://user:password@host:port/database. (A file of that name: put ./ before it.)"
        )
    return Target("sqlite", absolute(text))


def _sqlite_path(rest: str) -> str:
    """Read what follows `sqlite:`: `///relative`, `////absolute`, `//` alone or `:memory:`, or a bare path."""
    from urllib.parse import unquote  # noqa: PLC0415  4 ms that a plain path need not pay

    if "?" in rest or "#" in rest:  # it would be a file of another name, and what was said before would not be there
        raise InvalidValue(
            f"A sqlite: URL has no options; got sqlite:{rest}. Leave them out, or write a ? or # of a file's name as "
            "%3F or %23."
        )
    path = unquote(rest.removeprefix("//"))
    if path in ("", "/", MEMORY, "/" + MEMORY):
        return MEMORY
    # sqlite:///file is relative and sqlite:////file absolute, as SQLAlchemy and others write it.
    return absolute(path[1:] if rest.startswith("///") else path)


def absolute(path: str) -> str:
    """Give the whole path of a file that SQLite can open."""
    if "\0" in path:
        raise InvalidValue("A path has no NUL character.")
    if not path.isprintable() and any("\ud800" <= char <= "\udfff" for char in path):
        raise InvalidValue(f"SQLite takes a path only where it is UTF-8; got {displayed(path)}. Choose another name.")
    return os.path.abspath(config.expanded(path))
