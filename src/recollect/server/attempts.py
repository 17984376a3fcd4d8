"""Failed logins: counted for each client address, refused with 429 past a limit, and logged.

A correct token is accepted whatever failed before, from the same address or another: many people can share one
address. So the limit does not make guessing hard; the length of the tokens does. It keeps guessing from going
unnoticed, and tells a misconfigured program to slow down.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import time
from collections import OrderedDict

from recollect.server.log import BoundedLog

BURST = 20
"""Failures of one address that are answered with 401 at once."""

PER_SECOND = 1 / 3
"""Failures for each second that are forgotten again."""

_ADDRESSES = 4_096  # about 1 MB. Past that the address that failed least recently is forgotten.
_NETWORK = 64  # bits. A provider gives a customer at least this IPv6 network.


class FailedAttempts:
    """The failed logins of each client address."""

    def __init__(self, log: BoundedLog) -> None:
        self._log = log
        self._failed: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, client: str, what: str) -> int | None:
        """Count and log a failure. Return the seconds to wait if the address has failed too often, None otherwise."""
        address, now = network(client), time.monotonic()
        count, last = self._failed.pop(address, (0.0, now))
        count = max(count - (now - last) * PER_SECOND, 0.0) + 1
        self._failed[address] = (min(count, BURST + 1.0), now)
        while len(self._failed) > _ADDRESSES:
            self._failed.popitem(last=False)
        self._log.say(logging.WARNING, address, "Failed login from %s: %s", client, what)
        return math.ceil((count - BURST) / PER_SECOND) if count > BURST else None


def network(client: str) -> str:
    """Return what failures are counted by: an IPv4 address, or the network that an IPv6 address belongs to."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, _NETWORK), strict=False))
    return str(address)
