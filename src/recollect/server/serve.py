"""The server at work: its socket first, so that the link can be told at once, then uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from recollect.errors import InvalidValue
from recollect.server import log
from recollect.server.account import Accounts, Keep, MakeAgent

_TRIES = 20
_LOOK = 0.1
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # of nobody: kept free for examples
_OPENED = 16
"""Of so many owners the store is opened at the start; those of others when they come."""


def listen(host: str, port: int, *, exact: bool) -> socket.socket:
    """Take a port to listen on; unless just this one is wanted, the next ones are tried where it is taken."""
    failed: object = None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + (1 if exact or port == 0 else _TRIES)):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
        except (OSError, OverflowError) as error:
            listener.close()
            failed = getattr(error, "strerror", None) or error
        else:
            listener.listen(128)
            listener.setblocking(False)  # noqa: FBT003
            return listener
    raise InvalidValue(f"{host} port {port} can not be listened on ({failed}). Choose another one with --port.")


def loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def link(host: str, port: int, token: str | None) -> str:
    """Return the link that opens the page; without a token, the address alone.

    The token is in the fragment, which a browser does not send: the page exchanges it for a cookie.
    """
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}/" + ("" if token is None else f"#token={quote(token, safe='')}")


def address_for_others(host: str) -> str | None:
    """Give an address of this machine that others can use, where all of them are listened on; None where none is known.

    It is that from which this machine would send to another one. Nothing is sent.
    """
    ways = {"0.0.0.0": _FAR[:1], "::": _FAR}.get(host, ())  # noqa: S104
    for family, far in ways:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((far, 9))
            found: str = asked.getsockname()[0]
            if not ipaddress.ip_address(found).is_loopback:
                return found
    return None


def run(
    listener: socket.socket, place: str | None, make_agent: MakeAgent, tokens: Mapping[str, str], *,
    hosts: tuple[str, ...] = (), keep: Keep | None = None, team: bool = False, log_level: str = "info",
) -> None:  # fmt: skip
    """Serve until the process is told to stop. `keep` is called with each owner's store when it is opened.

    `team` says that people were given their tokens. `log_level` is debug, info, warning or error.
    """
    with log.to_stderr(log_level):
        asyncio.run(_serve(listener, Accounts(place, make_agent, keep), tokens, hosts, team=team))


async def _serve(
    listener: socket.socket, accounts: Accounts, tokens: Mapping[str, str], hosts: tuple[str, ...], *, team: bool
) -> None:
    import uvicorn  # noqa: PLC0415  the link is printed before half a second of imports

    from recollect.server import app  # noqa: PLC0415
    from recollect.server.connection import BACKLOG, Connection, room  # noqa: PLC0415

    Connection.most = room()
    address, port = listener.getsockname()[:2]
    application = app.make(accounts, tokens, hosts=hosts, port=port, public=not loopback(address), team=team)
    options = uvicorn.Config(
        application, log_config=None, log_level="error", access_log=False, server_header=False, date_header=True,
        lifespan="on", timeout_graceful_shutdown=3, timeout_keep_alive=30, proxy_headers=False, http=Connection,
        ws="none", backlog=BACKLOG,
    )  # fmt: skip
    server = uvicorn.Server(options)
    for owner in list(dict.fromkeys(tokens.values()))[:_OPENED]:
        await accounts.get(owner)  # what is wrong with the store is said now, and what was left open is marked
    watching = asyncio.create_task(_tell_of_end(server, accounts.closing))
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        await accounts.close()


async def _tell_of_end(server: Any, closing: asyncio.Event) -> None:
    """Let the streams know that the server is about to stop: it waits for them first, and only then for the rest."""
    while not server.should_exit:  # noqa: ASYNC110  a signal sets it, and nothing else tells
        await asyncio.sleep(_LOOK)
    closing.set()
