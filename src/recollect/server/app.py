"""The application: every route, how errors are answered, and the door around it all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig

from recollect import __version__
from recollect.errors import RecollectError
from recollect.server import api, page
from recollect.server.access import Access
from recollect.server.account import Account, Accounts
from recollect.server.problem import TYPE, Problem, problem

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes that a request may have; an import is sent in a stream of its own."""


def make(
    accounts: Accounts, tokens: Mapping[str, str], *, hosts: tuple[str, ...] = (), port: int = 0, public: bool = False
) -> Access:
    """Put the application together."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await accounts.close()

    app = Litestar(
        route_handlers=[*api.ROUTES, *page.ROUTES],
        dependencies={"account": Provide(_account, sync_to_thread=False)},
        exception_handlers={RecollectError: _told, HTTPException: _refused},
        lifespan=[lifespan],
        openapi_config=OpenAPIConfig(title="Recollect", version=__version__, path="/api/v1", render_plugins=[]),
        request_max_body_size=LARGEST_BODY,
        logging_config=None,
    )
    return Access(app, accounts, tokens, hosts=hosts, port=port, public=public)


def _account(request: Request[Any, Any, Any]) -> Account:
    account: Account = request.scope["state"]["account"]
    return account


def _told(request: Request[Any, Any, Any], error: RecollectError) -> Response[bytes]:
    return _response(request, problem(error))


def _refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer what the framework refuses: a path that is not there, a body that is none."""
    codes = {400: "invalid-request", 404: "not-found", 405: "method-not-allowed", 413: "too-large"}
    code = codes.get(error.status_code, "refused")
    told = Problem(status=error.status_code, code=code, title=code.replace("-", " ").capitalize(), detail=error.detail)
    return _response(request, told)


def _response(_: Request[Any, Any, Any], told: Problem) -> Response[bytes]:
    return Response(told.body(), status_code=told.status, media_type=TYPE)
