"""Run the server: listen first, so that the link can be printed at once, then start uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Generator, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from recollect.errors import InvalidValue
from recollect.server import log
from recollect.server.account import Accounts, AgentFactory, StoreHook

_MAX_PORT_ATTEMPTS = 20  # ports that are tried: more servers on one machine are rare
_POLL_INTERVAL = 0.1  # seconds between checks for a shutdown; a person does not notice the delay
_TASK_TIMEOUT = 5.0  # seconds for a background task to end; one that is cut off continues with the next start
_DOCUMENTATION_ADDRESSES = (
    (socket.AF_INET, "192.0.2.1"),
    (socket.AF_INET6, "2001:db8::1"),
)  # reserved for documentation (RFC 5737, RFC 3849): nobody has them
_MAX_OPENED_AT_START = 16
"""Number of owners whose store is opened at the start; the others are opened with their first request."""


class BackgroundTask(Protocol):
    """Work that a server does in a thread of its own."""

    def run(self) -> None:
        """Run until stop() is called. It logs its errors."""
        ...

    def stop(self) -> None:
        """End run() soon. It may be called from any thread, also before run()."""
        ...


def listen(host: str, port: int, *, exact: bool) -> socket.socket:
    """Return a listening socket. Unless `exact`, try the next ports too. Raise InvalidValue if none is free."""
    reason: object = None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, port + (1 if exact or port == 0 else _MAX_PORT_ATTEMPTS)):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
        except (OSError, OverflowError) as error:
            listener.close()
            reason = getattr(error, "strerror", None) or error
        else:
            listener.listen(128)
            listener.setblocking(False)  # noqa: FBT003
            return listener
    raise InvalidValue(f"Cannot listen on {host} port {port} ({reason}). Choose another port with --port.")


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def page_link(host: str, port: int, token: str | None) -> str:
    """Return the link that opens the page; without a token, the address alone.

    The token is in the fragment, which a browser does not send: the page exchanges it for a cookie.
    """
    link_host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{link_host}:{port}/" + ("" if token is None else f"#token={quote(token, safe='')}")


def address_for_others(host: str) -> str | None:
    """Return an address of this machine for other machines, if the server listens on all addresses; otherwise None.

    It is the source address of a packet to another network. Nothing is sent.
    """
    probes = {"0.0.0.0": _DOCUMENTATION_ADDRESSES[:1], "::": _DOCUMENTATION_ADDRESSES}.get(host, ())  # noqa: S104
    for family, remote in probes:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((remote, 9))
            address: str = probe.getsockname()[0]
            if not ipaddress.ip_address(address).is_loopback:
                return address
    return None


def run(
    listener: socket.socket, target: str | None, make_agent: AgentFactory, tokens: Mapping[str, str], *,
    hosts: tuple[str, ...] = (), on_open: StoreHook | None = None, team: bool = False, log_level: str = "info",
    background: BackgroundTask | None = None,
) -> None:  # fmt: skip
    """Serve until the process receives a signal to stop. `on_open` is called with each owner's store when it is opened.

    With `team`, an administrator has assigned the tokens. `log_level` is debug, info, warning or error. `background`
    runs while the server does.
    """
    with log.to_stderr(log_level), _running(background):
        asyncio.run(_serve(listener, Accounts(target, make_agent, on_open), tokens, hosts, team=team))


@contextlib.contextmanager
def _running(task: BackgroundTask | None) -> Generator[None]:
    """Run a task in a thread, and stop it at the end."""
    if task is None:
        yield
        return
    thread = threading.Thread(target=task.run, name="recollect-background", daemon=True)
    thread.start()
    try:
        yield
    finally:
        task.stop()
        thread.join(_TASK_TIMEOUT)


async def _serve(
    listener: socket.socket, accounts: Accounts, tokens: Mapping[str, str], hosts: tuple[str, ...], *, team: bool
) -> None:
    import uvicorn  # noqa: PLC0415  0.5 s of imports, after the link is printed

    from recollect.server import app  # noqa: PLC0415
    from recollect.server.connection import BACKLOG, HttpConnection, connection_limit  # noqa: PLC0415

    HttpConnection.max_connections = connection_limit()
    address, port = listener.getsockname()[:2]
    application = app.create_app(accounts, tokens, hosts=hosts, port=port, public=not is_loopback(address), team=team)
    options = uvicorn.Config(
        application, log_config=None, log_level="error", access_log=False, server_header=False, date_header=True,
        lifespan="on", timeout_graceful_shutdown=3, timeout_keep_alive=30, proxy_headers=False, http=HttpConnection,
        ws="none", backlog=BACKLOG,
    )  # fmt: skip
    server = uvicorn.Server(options)
    for owner in list(dict.fromkeys(tokens.values()))[:_MAX_OPENED_AT_START]:
        await accounts.get(owner)  # report errors of the store now, and mark abandoned turns
    shutdown_task = asyncio.create_task(_announce_shutdown(server, accounts.closing))
    try:
        await server.serve(sockets=[listener])
    finally:
        shutdown_task.cancel()
        await accounts.close()


async def _announce_shutdown(server: Any, closing: asyncio.Event) -> None:
    """Set `closing` when the server begins to stop: uvicorn waits for the event streams before it ends the lifespan."""
    while not server.should_exit:  # noqa: ASYNC110  a signal handler sets it; there is no event
        await asyncio.sleep(_POLL_INTERVAL)
    closing.set()
