"""The application: every route, how errors are answered, and the door around it all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from recollect.errors import RecollectError
from recollect.server import api, page
from recollect.server.access import Access
from recollect.server.account import Account, Accounts
from recollect.server.api import openapi
from recollect.server.api.answer import ExactRequest
from recollect.server.page.door import door
from recollect.server.problem import TYPE, Problem, coded, problem
from recollect.server.readiness import Readiness

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes that a request may have; an import is sent in a stream of its own."""

_FAILURES = 500
_NOT_SUPPORTED = 501
_CODES = {
    400: "invalid-request", 404: "not-found", 405: "method-not-allowed", 413: "too-large", 415: "wrong-media-type",
}  # fmt: skip


class Application(Litestar):
    """The framework without its plugins for the classes of other libraries, which it would load where they are."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def make(
    accounts: Accounts, tokens: Mapping[str, str], *, hosts: tuple[str, ...] = (), port: int = 0, public: bool = False,
    team: bool = False,
) -> Access:  # fmt: skip
    """Put the application together."""
    readiness = Readiness(accounts, next(iter(tokens.values()), ""))

    @contextlib.asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await readiness.close()
            await accounts.close()

    app = Application(
        route_handlers=[*api.ROUTES, *page.ROUTES],
        dependencies={
            "account": Provide(_account, sync_to_thread=False),
            "readiness": Provide(lambda: readiness, sync_to_thread=False),
        },
        exception_handlers={RecollectError: _told, HTTPException: _refused, Exception: _failed},
        request_class=ExactRequest,
        lifespan=[lifespan],
        openapi_config=openapi.config(),
        request_max_body_size=LARGEST_BODY,
        logging_config=None,
    )
    return Access(app, accounts, tokens, hosts=hosts, port=port, public=public, team=team)


def _account(request: Request[Any, Any, Any]) -> Account:
    account: Account = request.scope["state"]["account"]
    return account


def _told(request: Request[Any, Any, Any], error: RecollectError) -> Response[bytes]:
    told = problem(error)
    if told.status >= _FAILURES and told.status != _NOT_SUPPORTED:
        request.scope["state"]["failed"](told.status, error)
    return _response(request, told)


def _refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer what the framework refuses: a path that is not there, a body that is none."""
    code = _CODES.get(error.status_code, "refused")
    extra = getattr(error, "extra", None)
    detail = error.detail
    if isinstance(error, RequestEntityTooLarge):
        detail = f"The request is too large: it can have at most 64 MiB ({LARGEST_BODY:,} bytes). Send less at a time."
    if isinstance(extra, list) and extra:
        wrong = [f"{item.get('key') or 'the request'}: {item.get('message')}" for item in extra[:5]]
        detail = f"{detail.partition(' for ')[0]}: {'; '.join(wrong)}."
    answer = _response(request, coded(error.status_code, code, detail))
    for name, value in (error.headers or {}).items():
        if name.lower() in ("allow", "retry-after"):
            answer.set_header(name, value)
    return answer


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer what nobody foresaw, without telling more than that; the log has the rest."""
    if isinstance(error, RecursionError):
        told = coded(400, "invalid-request", "This is nested too deeply.")
    elif (
        isinstance(error, UnicodeEncodeError) and request.method != "GET"
    ):  # half a surrogate pair where a number belongs
        told = coded(400, "invalid-request", "This text can not be read.")
    else:
        request.scope["state"]["failed"](_FAILURES, error)
        told = coded(500, "server-error", "Something went wrong here. It is in the log.")
    return _response(request, told)


def _response(request: Request[Any, Any, Any], told: Problem) -> Response[bytes]:
    """Answer with a problem; a person who followed a link in a browser is shown a page."""
    if request.headers.get("sec-fetch-mode") == "navigate" and not request.scope["path"].startswith(api.PATH):
        return Response(door(told), status_code=told.status, media_type="text/html")
    return Response(told.body(), status_code=told.status, media_type=TYPE)
