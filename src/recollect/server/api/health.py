"""Health, readiness (the store answers a read in time), server information, and the available models."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated, Any

import msgspec
from litestar import Response, get

from recollect import __version__
from recollect.agent.models import callable_model
from recollect.errors import ModelError, RecollectError
from recollect.server.account import Account, Accounts
from recollect.server.api.responses import json_response
from recollect.server.problems import PROBLEM_TYPE, code_of, make_problem

STORE_TIMEOUT = 2.0
"""Seconds after which a store that has not answered counts as not ready. Load balancers probe every few seconds."""

_CACHE_SECONDS = 1.0  # seconds. The route needs no token, so frequent requests must not load the database.
_PROBE_KIND = "server.ready"  # never written; reading a missing record is the cheapest read

_log = logging.getLogger("recollect.server")


class Readiness:
    """Readiness of the store, checked at most once per second and logged when it changes."""

    def __init__(self, accounts: Accounts, owner: str) -> None:
        self._accounts = accounts
        self._owner = owner
        self._reading: asyncio.Task[str | None] | None = None
        self._reason: str | None = None
        self._until = 0.0

    async def reason(self) -> str | None:
        """Return a code for why the server is not ready, or None if it is ready. Take at most STORE_TIMEOUT."""
        if self._accounts.closing.is_set():
            return "server-stopping"
        if time.monotonic() < self._until:
            return self._reason
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        await asyncio.wait([self._reading], timeout=STORE_TIMEOUT)
        self._remember(self._reading.result() if self._reading.done() else "store-timeout")
        return self._reason

    async def _read(self) -> str | None:
        try:
            account = self._accounts.first() or await self._accounts.get(self._owner)
            await account.store.records.get(_PROBE_KIND, "probe")
        except RecollectError as error:
            return code_of(error)
        except Exception as error:  # noqa: BLE001  after any error the server is not ready
            _log.error("The readiness check failed", exc_info=error)
            return "store-error"
        return None

    def _remember(self, reason: str | None) -> None:
        if reason is not None and self._reason is None:
            _log.error("The server is not ready: %s", reason)
        elif reason is None and self._reason is not None:
            _log.warning("The server is ready again")
        self._reason, self._until = reason, time.monotonic() + _CACHE_SECONDS

    async def close(self) -> None:
        """Cancel a running check."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])


class Health(msgspec.Struct, frozen=True):
    """The server runs."""

    status: str
    version: str


class Ready(msgspec.Struct, frozen=True):
    """The server is ready for requests."""

    status: str


class Info(msgspec.Struct, frozen=True):
    """Version, engine, owner and limits of the server."""

    version: str
    engine: Annotated[str, msgspec.Meta(description="sqlite, postgres, or the URL scheme of another engine.")]
    owner: Annotated[str, msgspec.Meta(description="The owner of the sessions; empty on a single-user server.")]
    running: Annotated[list[str], msgspec.Meta(description="The sessions in which a turn runs now.")]
    largest_file: int
    largest_import: int


class ModelChoice(msgspec.Struct, frozen=True):
    """An available model."""

    name: str
    default: bool


class Models(msgspec.Struct, frozen=True):
    """The available models: the configured one, the built-in one, and those that sessions have used."""

    models: list[ModelChoice]


@get("/health", tags=["server"], operation_id="health", sync_to_thread=False)
def health() -> Health:
    """Return the version of the server. This liveness check does not read the store and needs no token."""
    return Health("ok", __version__)


@get("/ready", tags=["server"], operation_id="ready")
async def ready(readiness: Readiness) -> Response[Ready]:
    """Return whether the store answers: 200, or 503 (`not-ready`) within 2 seconds. Needs no token.

    `fields.reason` is `store-timeout`, `server-stopping`, or the code of the store's error. The result is
    cached for one second.
    """
    reason = await readiness.reason()
    if reason is None:
        return Response(Ready("ready"))
    problem = make_problem(
        503, "not-ready", "The store does not respond. See the server's log for the reason.", {"reason": reason}
    )
    response: Any = Response(problem.body(), status_code=503, media_type=PROBLEM_TYPE)
    return response


@get("/info", tags=["server"], operation_id="info")
async def info(account: Account) -> Info:
    """Return information about the server, and the sessions in which turns run."""
    from recollect.server import attachments, transfer  # noqa: PLC0415

    return Info(
        __version__,
        account.engine,
        account.owner,
        account.runner.sessions(),
        attachments.MAX_FILE_SIZE,
        transfer.MAX_IMPORT_SIZE,
    )


@get("/models", tags=["server"], operation_id="list_models")
async def list_models(account: Account) -> Response[Models]:
    """List the available models. Any other `provider:name` is accepted too."""
    model_names = [tally.name for tally in (await account.store.stats()).by_model]
    try:
        default_model = (
            await asyncio.to_thread(account.agent.model)
        ).name  # importing a provider's library takes a second
    except ModelError:
        default_model = "demo"
    names = dict.fromkeys([default_model, "demo", *(name for name in model_names if callable_model(name))])
    return json_response({"models": [{"name": name, "default": name == default_model} for name in names if name]})


ROUTES: list[Any] = [health, ready, info, list_models]
