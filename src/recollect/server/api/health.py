"""Whether the server answers, whether its store does, what it is, and which models can be talked to."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Response, get

from recollect import __version__
from recollect.agent.models import talkable
from recollect.engine.url import target
from recollect.errors import ModelError
from recollect.server.account import Account
from recollect.server.api.answer import told
from recollect.server.problem import TYPE, coded
from recollect.server.readiness import Readiness


class Health(msgspec.Struct, frozen=True):
    """The server is there."""

    status: str
    version: str


class Ready(msgspec.Struct, frozen=True):
    """The server can do its work."""

    status: str


class Info(msgspec.Struct, frozen=True):
    """What this server is, and for whom."""

    version: str
    engine: Annotated[str, msgspec.Meta(description="sqlite or postgres.")]
    owner: Annotated[str, msgspec.Meta(description="Whose conversations these are; empty where there is one owner.")]
    running: Annotated[list[str], msgspec.Meta(description="The sessions in which an answer is written now.")]
    largest_file: int
    largest_import: int


class ModelChoice(msgspec.Struct, frozen=True):
    """A model that can be chosen."""

    name: str
    default: bool


class Models(msgspec.Struct, frozen=True):
    """The models that can be chosen: the configured one, the built-in one, and those that sessions were held with."""

    models: list[ModelChoice]


@get("/health", tags=["server"], operation_id="health", sync_to_thread=False)
def health() -> Health:
    """Return that the server runs, and its version, whatever the store does. Needs no token."""
    return Health("ok", __version__)


@get("/ready", tags=["server"], operation_id="ready")
async def ready(readiness: Readiness) -> Response[Ready]:
    """Return whether the store answers: 200, or 503 (`not-ready`) within 2 seconds. Needs no token.

    `fields.reason` is `store-timeout`, `server-stopping`, or the code of the store's error. An answer is up to a second
    old.
    """
    reason = await readiness.reason()
    if reason is None:
        return Response(Ready("ready"))
    problem = coded(503, "not-ready", "The store does not answer. The server's log says why.", {"reason": reason})
    answer: Any = Response(problem.body(), status_code=503, media_type=TYPE)
    return answer


@get("/info", tags=["server"], operation_id="info")
async def info(account: Account) -> Info:
    """Say what this server is, and which answers it writes now."""
    from recollect.server import files, transfer  # noqa: PLC0415

    engine = target(account.store.path).engine
    return Info(__version__, engine, account.owner, account.talks.sessions(), files.LARGEST, transfer.LARGEST)


@get("/models", tags=["server"], operation_id="list_models")
async def list_models(account: Account) -> Response[Models]:
    """List the models that can be chosen. Any other `provider:name` can be given where a model is asked for."""
    used = [tally.name for tally in (await account.store.stats()).by_model]
    try:
        first = (await asyncio.to_thread(account.agent.model)).name  # a provider's library takes a second
    except ModelError:
        first = "demo"
    names = dict.fromkeys([first, "demo", *(name for name in used if talkable(name))])
    return told({"models": [{"name": name, "default": name == first} for name in names if name]})


ROUTES: list[Any] = [health, ready, info, list_models]
