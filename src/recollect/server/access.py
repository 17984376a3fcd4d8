"""Who may come in. Everything passes here before the web framework sees it.

- Host must name this server, so that a page of another name that was rebound to this address gets nothing.
- What a page of another origin sends is refused, but for following a link; a host check alone lets it through, and
  another port of this machine is the same site to a browser, which sends it the cookie.
- A bearer token, or the cookie that a browser got in exchange for it: HttpOnly, SameSite=Strict, the port in its name,
  because cookies do not know ports. It is signed with the token, so that it outlives a restart and dies with the token.
- Every answer carries the headers that keep what is shown from running.
- A client that stops in the middle of what it sends is let go of.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import ipaddress
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from recollect.errors import RecollectError
from recollect.server.account import Accounts
from recollect.server.problem import TYPE, Problem, coded, problem

SLASH = "\ue000"
"""Stands for an escaped slash in a path until a handler reads it: ids may contain one, and routes split at it."""

PATIENCE = 30.0
"""Seconds that a client may be silent in the middle of what it sends."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_ONCE = (b"host", b"transfer-encoding", b"origin", b"authorization", b"content-length", b"content-type")
_OPEN = ("/api/v1/health", "/favicon.ico")
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^][:@/?#\s]+)(?::[0-9]{0,5})?", re.ASCII | re.IGNORECASE)
_SHOWN = 100
_YEAR = 31_536_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ARRIVAL = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Recollect</title>
<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url={place}">
</head><body><p><a href="{place}">Open Recollect</a></p></body></html>
"""
HEADERS = (
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

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def _refusal(status: int, code: str, detail: str) -> Refusal:
    return Refusal(coded(status, code, detail))


class Ambiguity(Refusal):
    """A request that a proxy may have read differently. What follows it on the connection is not trusted either."""


class Access:
    """The door, as an ASGI application around another one. `tokens` says whose token each is.

    `hosts` are names that the server is reached by. `public` says that other machines reach it: then addresses in
    numbers are taken too, since nobody can rebind those.
    """

    def __init__(
        self,
        app: Any,
        accounts: Accounts,
        tokens: Mapping[str, str],
        *,
        hosts: tuple[str, ...],
        port: int,
        public: bool = False,
    ) -> None:
        self.inner = app
        self._accounts = accounts
        self._tokens = dict(tokens)
        self._hosts = {_bare(host) for host in ("localhost", "127.0.0.1", "[::1]", *hosts)}
        self._cookie = f"recollect-{port}"
        self._public = public

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": f"{scope['type']}.close", "code": 1008})
            return
        headers = _read(scope["headers"])
        _keep_slashes(scope)

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(name, value) for name, value in HEADERS if name not in present]
                if b"cache-control" not in present:
                    extra.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            _check_once(scope["headers"])
            self._check_host(headers)
            self._check_origin(scope, headers)
            if await self._exchange(scope, headers, guarded):
                return
            await self._identify(scope, headers)
        except Refusal as refusal:
            await _answer(refusal, scope, headers, guarded)
            return
        await self.inner(scope, _impatient(receive), guarded)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        shown = host[:_SHOWN] or "a request without a host"
        known = _bare(host) in self._hosts or (self._public and _is_address(host))
        if not known or _HOST.fullmatch(host.strip()) is None:
            raise _refusal(
                421, "wrong-host",
                f"This server does not answer for {shown!r}. server.hosts names the hosts "
                f"that it is reached by.",
            )  # fmt: skip

    def _check_origin(self, scope: Any, headers: Mapping[str, str]) -> None:
        """Refuse what pages of other origins send; a person may still follow a link from one."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if scope["method"] in _SAFE_METHODS and headers.get("sec-fetch-mode") in ("navigate", None):
            return
        host = headers["host"].lower()
        own = (f"{_scheme(scope, headers)}://{host}", f"https://{host}")
        if (origin is not None and origin.lower() not in own) or site not in ("same-origin", "none"):
            raise _refusal(403, "foreign-origin", "A page of another origin has no access here.")

    async def _exchange(self, scope: Any, headers: Mapping[str, str], send: Any) -> bool:
        """Give a browser its cookie for the token in its link, and send it on without the token.

        Not by a redirect: after a link on a page of another site it would belong to that site, and a browser would not
        send the cookie with it. The page that goes on by itself is our own.
        """
        if scope["method"] != "GET" or scope["path"].lstrip("/").startswith("api/"):
            return False
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in pairs if name == "token"), None)
        if token is None:
            return False
        if self._owner_of(token) is None:
            raise _refusal(401, "wrong-token", "This link has a token that this server does not know.")
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        path = quote((scope.get("raw_path") or scope["path"].encode()).lstrip(b"/\\"), safe="/%:@!$&'()*+,;=~-._")
        body = _ARRIVAL.format(place=html.escape(f"/{path}" + (f"?{rest}" if rest else ""))).encode()
        cookie = f"{self._cookie}={_signed(token)}; Path=/; HttpOnly; SameSite=Strict; Max-Age={_YEAR}"
        if _scheme(scope, headers) == "https":
            cookie += "; Secure"
        given = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"referrer-policy", b"no-referrer"),
            (b"set-cookie", cookie.encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": given})
        await send({"type": "http.response.body", "body": body})
        return True

    async def _identify(self, scope: Any, headers: Mapping[str, str]) -> None:
        """Find out whose request this is; the handlers find the account in the scope's state."""
        scope.setdefault("state", {})
        if scope["path"] in _OPEN or scope["path"].startswith("/static/"):
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            owner = self._owner_of(token.strip())
            if owner is None:
                raise _refusal(
                    401, "wrong-token",
                    "This server does not know this token. Use the one that `recollect serve` prints in its link.",
                )  # fmt: skip
        else:
            owner = self._owner_of_cookie(headers.get("cookie", ""))
            if owner is not None and scope["method"] not in _SAFE_METHODS:
                self._check_own_page(headers)
        if owner is None:
            raise _refusal(401, "token-needed", "This needs the token that `recollect serve` prints in its link.")
        try:
            scope["state"]["account"] = await self._accounts.get(owner)
        except RecollectError as error:  # the store can not be opened now
            raise Refusal(problem(error)) from error

    def _check_own_page(self, headers: Mapping[str, str]) -> None:
        """Take a write with a cookie only from what says that it is a page of ours; programs use the bearer token."""
        if "origin" not in headers and "sec-fetch-site" not in headers:
            raise _refusal(403, "origin-needed", "A write with a cookie must say where it comes from (Origin).")

    def _owner_of(self, token: str) -> str | None:
        found = None
        for known, owner in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = owner
        return found

    def _owner_of_cookie(self, header: str) -> str | None:
        """Find our cookie among those of every other program on this machine, which may be malformed."""
        found = None
        for piece in header.split(";"):
            name, _, value = piece.strip().partition("=")
            nonce, _, sign = value.partition(".")
            if name != self._cookie or not nonce:
                continue
            for token, owner in self._tokens.items():
                if hmac.compare_digest(_signature(token, nonce).encode(), sign.encode()):
                    found = owner
        return found


def _signed(token: str) -> str:
    nonce = secrets.token_urlsafe(18)
    return f"{nonce}.{_signature(token, nonce)}"


def _signature(token: str, nonce: str) -> str:
    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def _read(headers: Any) -> dict[str, str]:
    """Give the headers by name; cookies may come in several."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}; {text}" if name == "cookie" and name in found else text
    return found


def _check_once(headers: Any) -> None:
    """Refuse a request that says twice what counts once: this side and a proxy could read it differently."""
    names = [name.lower() for name, _ in headers]
    if b"content-length" in names and b"transfer-encoding" in names:
        raise Ambiguity(
            coded(400, "invalid-request", "Say the length of the body, or send it in chunks, but not both.")
        )
    twice = next((name for name in _ONCE if names.count(name) > 1), None)
    if twice is not None:
        raise Ambiguity(coded(400, "invalid-request", f"The header {twice.decode()} is there more than once."))


def _scheme(scope: Any, headers: Mapping[str, str]) -> str:
    """Say how the client came. A proxy on this machine is believed; its header does nothing but make cookies Secure."""
    peer = scope.get("client")
    told = headers.get("x-forwarded-proto", "").strip().lower()
    return told if told in ("http", "https") and peer and _is_loopback(peer[0]) else scope.get("scheme", "http")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    """Whether a host is written in numbers. 0.0.0.0 is no address that one comes by, but browsers let pages try it."""
    try:
        return not ipaddress.ip_address(_bare(host).strip("[]")).is_unspecified
    except ValueError:
        return False


def _impatient(receive: Any) -> Any:
    """Let go of a client that is silent in the middle of a body. What comes after it (the end) is waited for."""
    whole = False

    async def received() -> Any:
        nonlocal whole
        if whole:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), PATIENCE)
        except TimeoutError:
            whole = True
            return {"type": "http.disconnect"}
        whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return received


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


async def _answer(refusal: Refusal, scope: Any, headers: Mapping[str, str], send: Any) -> None:
    """Answer a request that does not come in: a page for a person, problem+json for a program."""
    problem = refusal.problem
    if "text/html" in headers.get("accept", "") and not scope["path"].startswith("/api/"):
        from recollect.server.page.door import door  # noqa: PLC0415  most requests come in

        body, kind = door(problem), b"text/html; charset=utf-8"
    else:
        body, kind = problem.body(), TYPE.encode()
    given = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if problem.status == 401:  # noqa: PLR2004
        given.append((b"www-authenticate", b"Bearer"))
    if isinstance(refusal, Ambiguity):
        given.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": given})
    await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})
