"""Who may come in. Everything passes here before the web framework sees it.

- Host must name this server, so that a page of another name that was rebound to this address gets nothing.
- A write from a page of another origin is refused; a host check alone lets it through.
- A bearer token, or the cookie that a browser got in exchange for it: HttpOnly, SameSite=Strict, the port in its name,
  because cookies do not know ports. It is signed with the token, so that it outlives a restart and dies with the token.
- Every answer carries the headers that keep what is shown from running.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from recollect.server.account import Accounts
from recollect.server.problem import TYPE, Problem

SLASH = "\ue000"
"""Stands for an escaped slash in a path until a handler reads it: ids may contain one, and routes split at it."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/static/", "/api/v1/health", "/favicon.ico")
_YEAR = 31_536_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Refusal(Exception):
    """A request that is answered here, and why."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status=status, code=code, title=code.replace("-", " ").capitalize(), detail=detail)


class Access:
    """The door, as an ASGI application around another one. `tokens` says whose token each is."""

    def __init__(
        self, app: Any, accounts: Accounts, tokens: Mapping[str, str], *, hosts: tuple[str, ...], port: int
    ) -> None:
        self._app = app
        self._accounts = accounts
        self._tokens = dict(tokens)
        self._hosts = {_bare(host) for host in ("localhost", "127.0.0.1", "[::1]", *hosts)}
        self._cookie = f"recollect-{port}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        _keep_slashes(scope)

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(name, value) for name, value in _HEADERS if name not in present]
                if b"cache-control" not in present:
                    extra.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            self._check_host(headers)
            self._check_origin(scope["method"], headers)
            if await self._exchange(scope, guarded):
                return
            await self._identify(scope, headers)
        except Refusal as refusal:
            await _answer(refusal.problem, scope, headers, guarded)
            return
        await self._app(scope, receive, guarded)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        if _bare(host) not in self._hosts:
            raise Refusal(421, "wrong-host", f"This server does not answer for {host or 'a request without a host'!r}.")

    def _check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        if method in _SAFE_METHODS:
            return
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()
        if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refusal(403, "foreign-origin", "A page of another origin may not change anything here.")

    async def _exchange(self, scope: Any, send: Any) -> bool:
        """Give a browser its cookie for the token in its link, and send it on without the token."""
        if scope["method"] != "GET" or scope["path"].startswith("/api/"):
            return False
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in pairs if name == "token"), None)
        if token is None:
            return False
        if self._owner_of(token) is None:
            raise Refusal(401, "wrong-token", "This link has a token that this server does not know.")
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        place = "/" + scope["raw_path"].decode("latin-1").lstrip("/") + (f"?{rest}" if rest else "")
        cookie = f"{self._cookie}={_signed(token)}; Path=/; HttpOnly; SameSite=Strict; Max-Age={_YEAR}"
        headers = [(b"location", place.encode("latin-1")), (b"set-cookie", cookie.encode())]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _identify(self, scope: Any, headers: Mapping[str, str]) -> None:
        """Find out whose request this is; the handlers find the account in the scope's state."""
        scope.setdefault("state", {})
        if scope["path"].startswith(_OPEN):
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            owner = self._owner_of(token.strip())
        else:
            owner = self._owner_of_cookie(headers.get("cookie", ""))
            if owner is not None and scope["method"] not in _SAFE_METHODS:
                self._check_own_page(headers)
        if owner is None:
            raise Refusal(401, "token-needed", "This needs the token that `recollect serve` prints in its link.")
        scope["state"]["account"] = await self._accounts.get(owner)

    def _check_own_page(self, headers: Mapping[str, str]) -> None:
        """Take a write with a cookie only from what says that it is a page of ours; programs use the bearer token."""
        if "origin" not in headers and "sec-fetch-site" not in headers:
            raise Refusal(403, "origin-needed", "A write with a cookie must say where it comes from (Origin).")

    def _owner_of(self, token: str) -> str | None:
        found = None
        for known, owner in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = owner
        return found

    def _owner_of_cookie(self, header: str) -> str | None:
        try:
            morsel = SimpleCookie(header).get(self._cookie)
        except CookieError:
            return None
        nonce, _, sign = (morsel.value if morsel is not None else "").partition(".")
        found = None
        for token, owner in self._tokens.items():
            if nonce and hmac.compare_digest(_signature(token, nonce), sign):
                found = owner
        return found


def _signed(token: str) -> str:
    nonce = secrets.token_urlsafe(18)
    return f"{nonce}.{_signature(token, nonce)}"


def _signature(token: str, nonce: str) -> str:
    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def _bare(host: str) -> str:
    """Give a host without its port, in small letters; [::1]:80 is [::1]."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return f"[{host}]" if host.count(":") > 1 else host.partition(":")[0]


def _keep_slashes(scope: Any) -> None:
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        mark = SLASH.encode()
        scope["path"] = unquote(raw.replace(b"%2F", mark).replace(b"%2f", mark).decode("utf-8", "replace"))


async def _answer(problem: Problem, scope: Any, headers: Mapping[str, str], send: Any) -> None:
    """Answer a request that does not come in: a page for a person, problem+json for a program."""
    if "text/html" in headers.get("accept", "") and not scope["path"].startswith("/api/"):
        from recollect.server.page.door import door  # noqa: PLC0415  most requests come in

        body, kind = door(problem), b"text/html; charset=utf-8"
    else:
        body, kind = problem.body(), TYPE.encode()
    given = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if problem.status == 401:  # noqa: PLR2004
        given.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": problem.status, "headers": given})
    await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})
