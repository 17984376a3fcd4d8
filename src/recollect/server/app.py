"""The application: routes, error handlers and the access middleware."""

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
from recollect.server.access import AccessMiddleware
from recollect.server.account import Account, Accounts
from recollect.server.api import openapi
from recollect.server.api.health import Readiness
from recollect.server.api.responses import ExactRequest
from recollect.server.page.document import error_page
from recollect.server.problems import PROBLEM_TYPE, Problem, make_problem, problem_of

MAX_BODY_SIZE = 64 * 1024 * 1024
"""Maximum size of a request body in bytes. It bounds memory; an import is streamed and has its own limit."""

_SERVER_ERROR = 500  # HTTP status
_NOT_SUPPORTED = 501  # HTTP status. It is not logged: the engine cannot do this, nothing failed.
_PROBLEM_CODES = {
    400: "invalid-request", 404: "not-found", 405: "method-not-allowed", 413: "too-large", 415: "wrong-media-type",
}  # fmt: skip


class Application(Litestar):
    """Litestar without its default plugins, which would import other libraries if they are installed."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def create_app(
    accounts: Accounts, tokens: Mapping[str, str], *, hosts: tuple[str, ...] = (), port: int = 0, public: bool = False,
    team: bool = False,
) -> AccessMiddleware:  # fmt: skip
    """Return the application with all routes, wrapped in the access middleware."""
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
            "account": Provide(_provide_account, sync_to_thread=False),
            "readiness": Provide(lambda: readiness, sync_to_thread=False),
        },
        exception_handlers={
            RecollectError: _handle_recollect_error,
            HTTPException: _handle_http_exception,
            Exception: _handle_unexpected_error,
        },
        request_class=ExactRequest,
        lifespan=[lifespan],
        openapi_config=openapi.openapi_config(),
        request_max_body_size=MAX_BODY_SIZE,
        logging_config=None,
    )
    return AccessMiddleware(app, accounts, tokens, hosts=hosts, port=port, public=public, team=team)


def _provide_account(request: Request[Any, Any, Any]) -> Account:
    account: Account = request.scope["state"]["account"]
    return account


def _handle_recollect_error(request: Request[Any, Any, Any], error: RecollectError) -> Response[bytes]:
    problem = problem_of(error)
    if problem.status >= _SERVER_ERROR and problem.status != _NOT_SUPPORTED:
        request.scope["state"]["log_failure"](problem.status, error)
    return _problem_response(request, problem)


def _handle_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Return a problem for an error of the framework, such as an unknown path or a malformed body."""
    code = _PROBLEM_CODES.get(error.status_code, "refused")
    extra = getattr(error, "extra", None)
    detail = error.detail
    if isinstance(error, RequestEntityTooLarge):
        detail = f"The request body must have at most 64 MiB ({MAX_BODY_SIZE:,} bytes). Send less at a time."
    if isinstance(extra, list) and extra:
        field_errors = [f"{item.get('key') or 'request'}: {item.get('message')}" for item in extra[:5]]
        detail = f"{detail.partition(' for ')[0]}: {'; '.join(field_errors)}."
    response = _problem_response(request, make_problem(error.status_code, code, detail))
    for name, value in (error.headers or {}).items():
        if name.lower() in ("allow", "retry-after"):
            response.set_header(name, value)
    return response


def _handle_unexpected_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return a problem for an unexpected error, without details. The log has them."""
    if isinstance(error, RecursionError):
        problem = make_problem(400, "invalid-request", "The JSON is nested too deeply.")
    elif isinstance(error, UnicodeEncodeError) and request.method != "GET":  # a lone surrogate where a number belongs
        problem = make_problem(400, "invalid-request", "The text is not valid Unicode.")
    else:
        request.scope["state"]["log_failure"](_SERVER_ERROR, error)
        problem = make_problem(500, "server-error", "Internal server error. See the server's log for details.")
    return _problem_response(request, problem)


def _problem_response(request: Request[Any, Any, Any], problem: Problem) -> Response[bytes]:
    """Return a problem as problem+json, or as an HTML page for a browser navigation."""
    if request.headers.get("sec-fetch-mode") == "navigate" and not request.scope["path"].startswith(api.PATH):
        return Response(error_page(problem), status_code=problem.status, media_type="text/html")
    return Response(problem.body(), status_code=problem.status, media_type=PROBLEM_TYPE)
