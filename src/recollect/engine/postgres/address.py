"""A postgresql:// URL: what goes to the server, what is meant for us, and how it is shown without its password."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from recollect.errors import InvalidValue

POOL_SIZE = 10
_OURS = ("pool_size", "prepare", "listen", "replica")
_OFF = ("off", "false", "no", "0")
# A server that vanishes without a word is noticed within half a minute.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "fallback_application_name": "recollect",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Address:
    """Where a server is, and how it is used.

    `pool_size`, `prepare`, `listen` and `replica` in the query of the URL are for us; everything else is the server's.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            raise _no_url() from None
        query = [item.partition("=") for item in parts.query.split("&") if item]
        ours = {name: unquote(value) for name, _, value in query if name in _OURS}
        rest = "&".join("".join(item) for item in query if item[0] not in _OURS)  # as it is: the driver reads it itself
        plain = urlunsplit(parts._replace(query=rest))
        try:
            self._known = conninfo_to_dict(plain)
        except psycopg.Error:
            raise _no_url() from None  # the driver's sentence repeats parts of the URL, which may be the password
        self.pool_size = _size(ours.get("pool_size"))
        self.prepares = ours.get("prepare", "on").lower() not in _OFF
        self.conninfo = make_conninfo("", **{**_DEFAULTS, **self._known})
        self.listening = self._elsewhere(ours.get("listen"))
        self.replica = self._replicas(ours.get("replica"))
        self.shown = self._shown()

    def _elsewhere(self, place: str | None) -> str:
        """Give the way to the server for one who listens: past a pooler, where `listen` names the servers behind it."""
        if not place:
            return self.conninfo
        named = [each.rpartition(":") if ":" in each else (each, "", "5432") for each in place.split(",")]
        hosts, _, ports = zip(*named, strict=True)
        return make_conninfo(self.conninfo, host=",".join(hosts), port=",".join(ports))

    def _replicas(self, places: str | None) -> str | None:
        """Give the way to the servers that may be read from, if there are any: one of them, whichever answers."""
        if not places:
            return None
        pairs = [place.rpartition(":") if ":" in place else (place, "", "5432") for place in places.split(",")]
        return make_conninfo(
            self.conninfo, host=",".join(pair[0] for pair in pairs), port=",".join(pair[2] for pair in pairs),
            hostaddr="", target_session_attrs="any", connect_timeout=2,
        )  # fmt: skip

    def _shown(self) -> str:
        known = self._known
        user = f"{known['user']}@" if known.get("user") else ""
        hosts, ports = str(known.get("host") or "").split(","), str(known.get("port") or "").split(",")
        named = [f"{host}:{port}" if port else host for host, port in zip(hosts, ports * len(hosts), strict=False)]
        return f"postgresql://{user}{','.join(named)}/{known.get('dbname') or ''}"

    def without_password(self, text: str) -> str:
        """Take the password out of what the driver says, should it be there."""
        password = self._known.get("password")
        return text.replace(str(password), "***") if password else text


def _no_url() -> InvalidValue:
    return InvalidValue(
        "This is no URL of a PostgreSQL server. It looks like postgresql://user:password@host:5432/database; "
        "characters such as @ : / in a password are written %40 %3A %2F."
    )


def _size(text: str | None) -> int:
    if text is None:
        return POOL_SIZE
    if text.isdecimal() and len(text) < 10 and int(text) > 0:  # noqa: PLR2004
        return int(text)
    raise InvalidValue(f"pool_size is a number from 1 on; got {text!r}.")
