"""PostgreSQL addresses: the libpq settings and own options of a URL, and its form without the password."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote, unquote

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from recollect.engine.url import split_url
from recollect.errors import InvalidValue, format_value

# Connections per store, unless ?pool_size= states another number. They are opened as needed; ten stores that use all of
# them exhaust a server with the default max_connections of 100.
POOL_SIZE = 10
_REPLICA_CONNECT_TIMEOUT = 2  # seconds. The primary answers a read for which the replica has no connection by then
_OWN_OPTIONS = ("pool_size", "prepare", "listen", "replica")
_OFF, _ON = ("off", "false", "no", "0"), ("on", "true", "yes", "1")
_DEFAULT_PORT = "5432"
# Seconds; tcp_user_timeout is in milliseconds. A server that vanishes without closing the connection is noticed within
# 30 seconds (15 + 3 * 5), instead of the two hours of the system's default.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "fallback_application_name": "recollect",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Address:
    """A server, and the options of its URL.

    `pool_size`, `prepare`, `listen` and `replica` in the query of the URL are Recollect's; all others are libpq's.
    """

    def __init__(self, url: str) -> None:
        scheme, authority, items = split_url(url)
        query = [item.partition("=") for item in items]
        own_options = {name: unquote(value) for name, _, value in query if name in _OWN_OPTIONS}
        # Passed on undecoded: libpq decodes them itself.
        libpq_options = [item for item in query if item[0] not in _OWN_OPTIONS]
        try:
            self._parameters = conninfo_to_dict(
                f"{scheme}{authority}?{'&'.join(''.join(item) for item in libpq_options)}"
            )
        except psycopg.Error:
            # The driver's message repeats parts of the URL, which may include the password.
            raise _invalid_url([unquote(name) for name, equals, _ in libpq_options if equals]) from None
        self.pool_size = _parse_pool_size(own_options.get("pool_size"))
        self.prepares = _parse_prepare(own_options.get("prepare", "on"))
        # Text is always UTF-8; the environment, the role or the database may set another encoding for other programs.
        self.conninfo = make_conninfo("", **{**_defaults(), **self._parameters, "client_encoding": "UTF8"})
        self.listen_conninfo = self._listen_conninfo(own_options.get("listen"))
        self.replica = self._replica_conninfo(own_options.get("replica"))
        self.display_url = self._display_url()

    def _listen_conninfo(self, hosts: str | None) -> str:
        """Return the settings of the connection for LISTEN: to the hosts in `listen` behind a pooler, if set."""
        return make_conninfo(self.conninfo, **_parse_hosts("listen", hosts)) if hosts else self.conninfo

    def _replica_conninfo(self, hosts: str | None) -> str | None:
        """Return the settings of the connection to a replica, or None. Of several, the first that answers is used."""
        if not hosts:
            return None
        parameters = _parse_hosts("replica", hosts)
        # "any": a target_session_attrs=read-write of the URL would refuse every replica.
        return make_conninfo(
            self.conninfo, **parameters, target_session_attrs="any", connect_timeout=_REPLICA_CONNECT_TIMEOUT
        )

    def _display_url(self) -> str:
        """Return the URL without the password."""
        parameters = self._parameters
        user = f"{quote(str(parameters['user']), safe='')}@" if parameters.get("user") else ""
        hosts, ports = str(parameters.get("host") or "").split(","), str(parameters.get("port") or "").split(",")
        locations = [
            f"{_quote_host(host)}:{port}" if port else _quote_host(host)
            for host, port in zip(hosts, ports * len(hosts), strict=False)
        ]
        service = f"?service={quote(str(parameters['service']), safe='')}" if parameters.get("service") else ""
        return (
            f"postgresql://{user}{','.join(locations)}/{quote(str(parameters.get('dbname') or ''), safe='')}{service}"
        )

    def without_password(self, text: str) -> str:
        """Return a text of the driver with the password masked."""
        password = self._parameters.get("password")
        return text.replace(str(password), "***") if password else text


def _defaults() -> dict[str, Any]:
    """Return the connection defaults; a variable of the environment overrides connect_timeout."""
    has_timeout = "PGCONNECT_TIMEOUT" in os.environ
    return {name: value for name, value in _DEFAULTS.items() if not (has_timeout and name == "connect_timeout")}


def _parse_hosts(name: str, hosts: str) -> dict[str, str]:
    """Parse `host:port`, or several with commas, as settings that replace the host of the URL."""
    pairs = [_parse_host(location) for location in hosts.split(",")]
    if not all(host and port.isdecimal() for host, port in pairs):
        raise InvalidValue(f"{name} must be host:port, or several of these with commas, got {format_value(hosts)}.")
    return {"host": ",".join(host for host, _ in pairs), "port": ",".join(port for _, port in pairs), "hostaddr": ""}


def _parse_host(location: str) -> tuple[str, str]:
    """Parse `host:port` or `host`; an IPv6 address is in brackets."""
    host, colon, port = location.rpartition(":")
    if not colon or location.endswith("]"):
        host, port = location, _DEFAULT_PORT
    return host.removeprefix("[").removesuffix("]"), port


def _quote_host(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("/") else quote(host, safe="")


def _parse_prepare(text: str) -> bool:
    if text.lower() in (*_OFF, *_ON):
        return text.lower() in _ON
    raise InvalidValue(f"prepare must be on or off, got {format_value(text)}.")


def _invalid_url(names: list[str]) -> InvalidValue:
    keywords = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    unknown = next((name for name in names if name not in keywords), None)
    if unknown is not None:
        return InvalidValue(
            f"This is not a PostgreSQL URL: {format_value(unknown)} is not a known option. The options are pool_size, "
            "prepare, listen, replica, and the connection parameters of libpq (see the PostgreSQL manual)."
        )
    return InvalidValue(
        "This is not a PostgreSQL URL. Use postgresql://user:password@host:5432/database; "
        "write @ : / in a password as %40 %3A %2F."
    )


def _parse_pool_size(text: str | None) -> int:
    if text is None:
        return POOL_SIZE
    if text.isdecimal() and len(text) < 10 and int(text) > 0:  # noqa: PLR2004
        return int(text)
    raise InvalidValue(f"pool_size must be a positive integer, got {format_value(text)}.")
