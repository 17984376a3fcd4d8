"""Who may come in. Everything passes here before the web framework sees it.

- Host must name this server, so that a page of another name that was rebound to this address gets nothing.
- What a page of another origin sends is refused, but for following a link; a host check alone lets it through, and
  another port of this machine is the same site to a browser, which sends it the cookie.
- A bearer token, or the cookie that a browser got in exchange for it: HttpOnly, SameSite=Strict, the port in its name,
  because cookies do not know ports. It is signed with the token, so that it outlives a restart and dies with the token.
- A browser gets the cookie by POST /login. A token is never taken from an address, which proxies and browsers keep.
- What a page loads as an image, a frame or a script reaches only files: markup in a message cannot start a request that
  does more.
- Every request is logged (log.py), and failed logins are limited (attempts.py).
- Every answer carries the headers that keep what is shown from running.
- A client that stops in the middle of what it sends is let go of.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from recollect.errors import RecollectError
from recollect.server.account import Accounts
from recollect.server.attempts import FailedAttempts
from recollect.server.log import BoundedLog, RequestEntry
from recollect.server.problem import TYPE, Problem, coded, problem

SLASH = "\ue000"
"""Stands for an escaped slash in a path until a handler reads it: ids may contain one, and routes split at it."""

PATIENCE = 30.0
"""Seconds that a client may be silent in the middle of what it sends."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_ONCE = (b"host", b"transfer-encoding", b"origin", b"authorization", b"content-length", b"content-type")
_OPEN = ("/api/v1/health", "/api/v1/ready", "/favicon.ico")
LOGIN = "/login"
_LONGEST_LOGIN = 4_096
_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
_EMBEDDABLE = re.compile(
    r"/static/.*|/favicon\.ico|/files/.*|/api/v1/sessions/[^/]+/messages/[^/]+/files/[^/]+", re.DOTALL
)
_READ_BY = ("document", "empty")  # Sec-Fetch-Dest of a navigation, and of fetch, EventSource and a download
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^][:@/?#\s]+)(?::[0-9]{0,5})?", re.ASCII | re.IGNORECASE)
_SHOWN = 100
_YEAR = 31_536_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
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

    def __init__(self, problem: Problem, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = headers


def _refusal(status: int, code: str, detail: str) -> Refusal:
    return Refusal(coded(status, code, detail))


class Ambiguity(Refusal):
    """A request that a proxy may have read differently. What follows it on the connection is not trusted either."""


class Access:
    """The door, as an ASGI application around another one. `tokens` says whose token each is.

    `hosts` are names that the server is reached by. `public` says that other machines reach it: then addresses in
    numbers are taken too, since nobody can rebind those. `team` says that people were given their tokens.
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
        team: bool = False,
    ) -> None:
        self.inner = app
        self._accounts = accounts
        self._tokens = dict(tokens)
        self._hosts = {_bare(host) for host in ("localhost", "127.0.0.1", "[::1]", *hosts)}
        self._cookie = f"recollect-{port}"
        self._public = public
        self._team = team or len(set(tokens.values())) > 1
        self._log = BoundedLog()
        self._failed = FailedAttempts(self._log)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": f"{scope['type']}.close", "code": 1008})
            return
        headers = _read(scope["headers"])
        entry = RequestEntry(scope, _client(scope, headers), self._tokens, owners=self._team)
        _keep_slashes(scope)
        scope.setdefault("state", {})["failed"] = lambda status, error: self._log.failed(entry.asked, status, error)

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                entry.status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(name, value) for name, value in HEADERS if name not in present]
                if b"cache-control" not in present:
                    extra.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            if await self._let_in(scope, headers, receive, guarded, entry.client):
                await self.inner(scope, _impatient(receive), guarded)
        finally:
            entry.write()

    async def _let_in(self, scope: Any, headers: Mapping[str, str], receive: Any, send: Any, client: str) -> bool:
        """Return whether the request comes in; otherwise it is answered here."""
        try:
            _check_once(scope["headers"])
            self._check_host(headers)
            self._check_origin(scope, headers)
            _check_destination(scope, headers)
            if scope["path"] == LOGIN:
                await self._log_in(scope, headers, _impatient(receive), send, client)
                return False
            await self._identify(scope, headers, client)
        except Refusal as refusal:
            if refusal.__cause__ is not None:
                scope["state"]["failed"](refusal.problem.status, refusal.__cause__)
            await self._answer(refusal, scope, headers, send)
            return False
        return True

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

    async def _log_in(self, scope: Any, headers: Mapping[str, str], receive: Any, send: Any, client: str) -> None:
        """Give a browser its cookie for the token that it posts: 303 to a form, 204 to the script of the page."""
        given, status = [(b"content-length", b"0")], 303
        if scope["method"] == "POST":
            self._check_own_page(headers)
            if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
                raise _refusal(415, "wrong-media-type", f"Post the token as a form ({_FORM}), in the field `token`.")
            token = self._checked_login(parse_qs((await _body(receive)).decode("utf-8", "replace")), headers, client)
            cookie = f"{self._cookie}={_signed(token)}; Path=/; HttpOnly; SameSite=Strict; Max-Age={_YEAR}"
            if _scheme(scope, headers) == "https":
                cookie += "; Secure"
            given.append((b"set-cookie", cookie.encode()))
            status = 204 if _JSON in headers.get("accept", "") else 303
        elif scope["method"] not in ("GET", "HEAD"):
            raise _refusal(405, "method-not-allowed", "Post a token to /login, in the field `token` of a form.")
        if status == 303:  # noqa: PLR2004
            given.append((b"location", b"/"))
        await send({"type": "http.response.start", "status": status, "headers": given})
        await send({"type": "http.response.body", "body": b""})

    def _checked_login(self, fields: Mapping[str, list[str]], headers: Mapping[str, str], client: str) -> str:
        """Return the token of a login, or refuse it. A script must ask before it changes the account of a browser."""
        token = fields.get("token", [""])[0].strip()
        owner = self._owner_of(token)
        if owner is None:
            raise self._wrong(client, "wrong token in the login form")
        now, _ = self._owner_of_cookie(headers.get("cookie", ""))
        if _JSON in headers.get("accept", "") and now not in (None, owner) and "change" not in fields:
            raise _refusal(409, "other-account", "This browser is logged in as someone else. Send `change=yes` too.")
        return token

    def _wrong(self, client: str, what: str) -> Refusal:
        """Count a wrong token. Return how it is refused: 401, or 429 if this address has failed too often."""
        wait = self._failed.add(client, what)
        if wait is None:
            return _refusal(401, "wrong-token", f"This server does not know this token. {self._advice()}")
        limited = coded(
            429, "too-many-attempts",
            f"Too many failed logins came from this address. A correct token is accepted at once; otherwise wait "
            f"{wait} seconds. {self._advice()}",
        )  # fmt: skip
        return Refusal(limited, (b"retry-after", str(wait).encode()))

    def _advice(self) -> str:
        """Return where a person finds the token: who runs a server for a team has given each member one."""
        if self._team:
            return "Use the token that you were given for this server, or ask its administrator for it."
        return "Use the token in the link that `recollect serve` printed when it started."

    async def _identify(self, scope: Any, headers: Mapping[str, str], client: str) -> None:
        """Find out whose request this is; the handlers find the account in the scope's state."""
        if scope["path"] in _OPEN or scope["path"].startswith("/static/"):
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            owner = self._owner_of(token.strip())
            if owner is None:
                raise self._wrong(client, "wrong bearer token")
        else:
            owner, forged = self._owner_of_cookie(headers.get("cookie", ""))
            if owner is None and forged:
                raise self._wrong(client, "cookie of an unknown token")
            if owner is not None and scope["method"] not in _SAFE_METHODS:
                self._check_own_page(headers)
        if owner is None:
            raise _refusal(401, "token-needed", f"This needs a token. {self._advice()}")
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

    def _owner_of_cookie(self, header: str) -> tuple[str | None, bool]:
        """Find our cookie among those of every other program on this machine, which may be malformed.

        Return its owner, and whether there was a cookie of our name at all.
        """
        found, named = None, False
        for piece in header.split(";"):
            name, _, value = piece.strip().partition("=")
            nonce, _, sign = value.partition(".")
            if name != self._cookie:
                continue
            named = True
            if not nonce:
                continue
            for token, owner in self._tokens.items():
                if hmac.compare_digest(_signature(token, nonce).encode(), sign.encode()):
                    found = owner
        return found, named

    async def _answer(self, refusal: Refusal, scope: Any, headers: Mapping[str, str], send: Any) -> None:
        """Answer a request that does not come in: a page for a person, problem+json for a program."""
        problem = refusal.problem
        if "text/html" in headers.get("accept", "") and not scope["path"].startswith("/api/"):
            from recollect.server.page.door import door  # noqa: PLC0415  most requests come in

            body, kind = door(problem, team=self._team), b"text/html; charset=utf-8"
        else:
            body, kind = problem.body(), TYPE.encode()
        given = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *refusal.headers]
        if problem.status == 401:  # noqa: PLR2004
            given.append((b"www-authenticate", b"Bearer"))
        if isinstance(refusal, Ambiguity):
            given.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": problem.status, "headers": given})
        await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})


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


def _check_destination(scope: Any, headers: Mapping[str, str]) -> None:
    """Refuse what a page loads as an image, a script, a frame and so on, unless it is a file.

    A message can contain an image with any address of this server, and a browser sends the cookie with it.
    """
    destination = headers.get("sec-fetch-dest", "empty")
    if destination not in _READ_BY and _EMBEDDABLE.fullmatch(scope["path"]) is None:
        raise _refusal(403, "wrong-destination", f"This address cannot be loaded as {destination[:_SHOWN]!r}.")


async def _body(receive: Any) -> bytes:
    """Read the body of a login."""
    found = b""
    while True:
        message = await receive()
        found += message.get("body", b"")
        if len(found) > _LONGEST_LOGIN:
            raise _refusal(413, "too-large", f"A login must have at most {_LONGEST_LOGIN} bytes.")
        if message["type"] != "http.request" or not message.get("more_body", False):
            return found


def _client(scope: Any, headers: Mapping[str, str]) -> str:
    """Return the client's address. A proxy on this machine is believed; it appends the address that it sees."""
    peer: str = (scope.get("client") or ("-",))[0]
    told = _bare(headers.get("x-forwarded-for", "").rpartition(",")[2]).strip("[]")  # some proxies append the port
    return told if _is_loopback(peer) and _is_address(told) else peer


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
