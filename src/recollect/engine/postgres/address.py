"""A postgresql:// URL: what goes to the server, what is meant for us, and how it is shown without its password."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote, unquote

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from recollect.engine.url import parted
from recollect.errors import InvalidValue, displayed

POOL_SIZE = 10
_OURS = ("pool_size", "prepare", "listen", "replica")
_OFF, _ON = ("off", "false", "no", "0"), ("on", "true", "yes", "1")
_PORT = "5432"
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
        scheme, place, items = parted(url)
        query = [item.partition("=") for item in items]
        ours = {name: unquote(value) for name, _, value in query if name in _OURS}
        rest = [item for item in query if item[0] not in _OURS]  # as it is: the driver reads it itself
        try:
            self._known = conninfo_to_dict(f"{scheme}{place}?{'&'.join(''.join(item) for item in rest)}")
        except psycopg.Error:
            # The driver's sentence repeats parts of the URL, which may be the password.
            raise _no_url([unquote(name) for name, equals, _ in rest if equals]) from None
        self.pool_size = _size(ours.get("pool_size"))
        self.prepares = _prepares(ours.get("prepare", "on"))
        # Text is sent and read as UTF-8, whatever the environment, the role or the database say of other programs.
        self.conninfo = make_conninfo("", **{**_defaults(), **self._known, "client_encoding": "UTF8"})
        self.listening = self._elsewhere(ours.get("listen"))
        self.replica = self._replicas(ours.get("replica"))
        self.shown = self._shown()

    def _elsewhere(self, places: str | None) -> str:
        """Give the way to the server for one who listens: past a pooler, where `listen` names the servers behind it."""
        return make_conninfo(self.conninfo, **_named("listen", places)) if places else self.conninfo

    def _replicas(self, places: str | None) -> str | None:
        """Give the way to the servers that may be read from, if there are any: one of them, whichever answers."""
        if not places:
            return None
        named = _named("replica", places)
        return make_conninfo(self.conninfo, **named, target_session_attrs="any", connect_timeout=2)

    def _shown(self) -> str:
        """Give a URL that leads here, without the password."""
        known = self._known
        user = f"{quote(str(known['user']), safe='')}@" if known.get("user") else ""
        hosts, ports = str(known.get("host") or "").split(","), str(known.get("port") or "").split(",")
        named = [
            f"{_in_url(host)}:{port}" if port else _in_url(host)
            for host, port in zip(hosts, ports * len(hosts), strict=False)
        ]
        service = f"?service={quote(str(known['service']), safe='')}" if known.get("service") else ""
        return f"postgresql://{user}{','.join(named)}/{quote(str(known.get('dbname') or ''), safe='')}{service}"

    def without_password(self, text: str) -> str:
        """Take the password out of what the driver says, should it be there."""
        password = self._known.get("password")
        return text.replace(str(password), "***") if password else text


def _defaults() -> dict[str, Any]:
    """Give what we would have of the driver where neither the URL nor the environment says anything else."""
    named = "PGCONNECT_TIMEOUT" in os.environ
    return {name: value for name, value in _DEFAULTS.items() if not (named and name == "connect_timeout")}


def _named(name: str, places: str) -> dict[str, str]:
    """Read `host:port`, or several with commas between, in the place of the server that the URL names."""
    pairs = [_pair(place) for place in places.split(",")]
    if not all(host and port.isdecimal() for host, port in pairs):
        raise InvalidValue(f"{name} is host:port, or several with commas between; got {displayed(places)}.")
    return {"host": ",".join(host for host, _ in pairs), "port": ",".join(port for _, port in pairs), "hostaddr": ""}


def _pair(place: str) -> tuple[str, str]:
    """Read `host:port` or `host`; an address with colons of its own stands in brackets."""
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, _PORT
    return host.removeprefix("[").removesuffix("]"), port


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("/") else quote(host, safe="")


def _prepares(text: str) -> bool:
    if text.lower() in (*_OFF, *_ON):
        return text.lower() in _ON
    raise InvalidValue(f"prepare is on or off; got {displayed(text)}.")


def _no_url(names: list[str]) -> InvalidValue:
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    other = next((name for name in names if name not in known), None)
    if other is not None:
        return InvalidValue(
            f"This is no URL of a PostgreSQL server: {displayed(other)} after its ? is nothing that can be set "
            "there. What "
            "there is besides pool_size, prepare, listen and replica is in the manual of PostgreSQL's libpq."
        )
    return InvalidValue(
        "This is no URL of a PostgreSQL server. It looks like postgresql://user:password@host:5432/database; "
        "characters such as @ : / in a password are written %40 %3A %2F."
    )


def _size(text: str | None) -> int:
    if text is None:
        return POOL_SIZE
    if text.isdecimal() and len(text) < 10 and int(text) > 0:  # noqa: PLR2004
        return int(text)
    raise InvalidValue(f"pool_size is a number from 1 on; got {displayed(text)}.")
