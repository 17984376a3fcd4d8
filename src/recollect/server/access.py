"""Access control: an ASGI middleware that every request passes before the web framework sees it.

- Host must name this server. This defeats DNS rebinding.
- Requests that a page of another origin sends are refused, except for following a link. A Host check alone is not
  enough: to a browser, another port of this machine is the same site, and it sends the cookie there.
- A request needs the access token as a bearer token, or the cookie that a browser received for it: HttpOnly,
  SameSite=Strict, with the port in its name because cookies ignore ports. The cookie is signed with the token, so it
  survives a restart and becomes invalid when the token changes.
- A browser gets the cookie with POST /login. A token in a URL is never accepted, because proxies and browsers store
  URLs.
- Images, frames and scripts of a page may load only files, so markup in a message cannot start a request that does
  more.
- Failed logins are counted for each client address, logged, and answered with 429 above a limit. A valid token is
  accepted regardless of earlier failures, because many people can share one address. The length of the tokens makes
  guessing hard; the limit makes it visible, and slows down a misconfigured program.
- Every request is logged (log.py), and every response has the security headers.
- A client that stops in the middle of a body is disconnected.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from recollect.errors import RecollectError
from recollect.server.account import Accounts
from recollect.server.log import BoundedLog, RequestEntry
from recollect.server.path_segments import preserve_escaped_slashes
from recollect.server.problems import PROBLEM_TYPE, Problem, make_problem, problem_of

FAILURE_BURST = 20
"""Failed logins of one address that are answered with 401 before 429 begins. A person mistypes a few times at most."""

RECOVERY_PER_SECOND = 1 / 3
"""Failures per second that expire: one every 3 seconds, so that a mistyped token costs seconds, not minutes."""

_MAX_ADDRESSES = 4_096  # addresses, about 1 MB. Above it, the address with the oldest failure is removed.
_IPV6_PREFIX_LENGTH = 64  # bits. Providers assign each customer at least this network.


class FailedAttempts:
    """The failed logins of each client address."""

    def __init__(self, log: BoundedLog) -> None:
        self._log = log
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, client: str, reason: str) -> int | None:
        """Count and log a failure. Return the seconds to wait if the address has failed too often, None otherwise."""
        address, now = client_network(client), time.monotonic()
        count, last = self._failures.pop(address, (0.0, now))
        count = max(count - (now - last) * RECOVERY_PER_SECOND, 0.0) + 1
        self._failures[address] = (min(count, FAILURE_BURST + 1.0), now)
        while len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)
        self._log.log_event(logging.WARNING, address, "Failed login from %s: %s", client, reason)
        return math.ceil((count - FAILURE_BURST) / RECOVERY_PER_SECOND) if count > FAILURE_BURST else None


def client_network(client: str) -> str:
    """Return the key for counting failures: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        ipv4 = address.ipv4_mapped
        return str(ipv4 or ipaddress.ip_network((address, _IPV6_PREFIX_LENGTH), strict=False))
    return str(address)


RECEIVE_TIMEOUT = 30.0
"""Seconds that a client may pause in the middle of a request body. A slow mobile connection stalls less long."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_SINGLE_HEADERS = (b"host", b"transfer-encoding", b"origin", b"authorization", b"content-length", b"content-type")
_PUBLIC_PATHS = ("/api/v1/health", "/api/v1/ready", "/favicon.ico")
LOGIN_PATH = "/login"
_MAX_LOGIN_BYTES = 4_096  # bytes. A login form holds one token.
_FORM_TYPE = "application/x-www-form-urlencoded"
_JSON_TYPE = "application/json"
_EMBEDDABLE = re.compile(
    r"/static/.*|/favicon\.ico|/files/.*|/api/v1/sessions/[^/]+/messages/[^/]+/files/[^/]+", re.DOTALL
)
_READ_DESTINATIONS = ("document", "empty")  # Sec-Fetch-Dest of a navigation, and of fetch, EventSource and a download
_HOST_PATTERN = re.compile(r"(\[[0-9a-f:.%]+\]|[^][:@/?#\s]+)(?::[0-9]{0,5})?", re.ASCII | re.IGNORECASE)
_MAX_SHOWN = 100  # characters of a header value that are quoted in an error
_COOKIE_MAX_AGE = 31_536_000  # seconds: one year. The token decides how long a login is valid.
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", _CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class _Refusal(Exception):
    """A request that the middleware answers itself, and the reason."""

    def __init__(self, problem: Problem, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = headers


def _refusal(status: int, code: str, detail: str) -> _Refusal:
    return _Refusal(make_problem(status, code, detail))


class _AmbiguousRequest(_Refusal):
    """A request that a proxy may have parsed differently. The connection is closed: its next request is not trusted."""


class AccessMiddleware:
    """An ASGI application that checks requests before it passes them to another one. `tokens` maps tokens to owners.

    `hosts` are the host names of the server. With `public`, other machines reach it, and numeric addresses are accepted
    as hosts too, because DNS rebinding cannot use them. With `team`, an administrator has assigned the tokens.
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
        self._hosts = {_normalize_host(host) for host in ("localhost", "127.0.0.1", "[::1]", *hosts)}
        self._cookie = f"recollect-{port}"
        self._public = public
        self._team = team or len(set(tokens.values())) > 1
        self._log = BoundedLog()
        self._failures = FailedAttempts(self._log)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request to the application, or answer it."""
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": f"{scope['type']}.close", "code": 1008})
            return
        headers = _read_headers(scope["headers"])
        entry = RequestEntry(scope, _client_address(scope, headers), self._tokens, owners=self._team)
        preserve_escaped_slashes(scope)
        scope.setdefault("state", {})["log_failure"] = lambda status, error: self._log.log_failure(
            entry.request_line, status, error
        )

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                entry.status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(name, value) for name, value in SECURITY_HEADERS if name not in present]
                if b"cache-control" not in present:
                    extra.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            if await self._admit(scope, headers, receive, send_with_headers, entry.client):
                await self.inner(scope, _with_receive_timeout(receive), send_with_headers)
        finally:
            entry.write()

    async def _admit(self, scope: Any, headers: Mapping[str, str], receive: Any, send: Any, client: str) -> bool:
        """Return whether the request is admitted. Otherwise answer it."""
        try:
            _check_single_headers(scope["headers"])
            self._check_host(headers)
            self._check_origin(scope, headers)
            _check_destination(scope, headers)
            if scope["path"] == LOGIN_PATH:
                await self._log_in(scope, headers, _with_receive_timeout(receive), send, client)
                return False
            await self._identify(scope, headers, client)
        except _Refusal as refusal:
            if refusal.__cause__ is not None:
                scope["state"]["log_failure"](refusal.problem.status, refusal.__cause__)
            await self._answer(refusal, scope, headers, send)
            return False
        return True

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        host_label = host[:_MAX_SHOWN] or "a request without Host"
        is_own_host = _normalize_host(host) in self._hosts or (self._public and _is_ip_address(host))
        if not is_own_host or _HOST_PATTERN.fullmatch(host.strip()) is None:
            raise _refusal(
                421, "wrong-host",
                f"This server does not accept the host {host_label!r}. Add it to the setting server.hosts.",
            )  # fmt: skip

    def _check_origin(self, scope: Any, headers: Mapping[str, str]) -> None:
        """Refuse requests from pages of other origins, except for following a link."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if scope["method"] in _SAFE_METHODS and headers.get("sec-fetch-mode") in ("navigate", None):
            return
        host = headers["host"].lower()
        own = (f"{_scheme(scope, headers)}://{host}", f"https://{host}")
        if (origin is not None and origin.lower() not in own) or site not in ("same-origin", "none"):
            raise _refusal(403, "foreign-origin", "Requests from pages of another origin are not allowed.")

    async def _log_in(self, scope: Any, headers: Mapping[str, str], receive: Any, send: Any, client: str) -> None:
        """Set the cookie for a posted token: 303 for a form, 204 for the page's script."""
        response_headers, status = [(b"content-length", b"0")], 303
        if scope["method"] == "POST":
            self._check_own_page(headers)
            if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM_TYPE:
                raise _refusal(
                    415, "wrong-media-type", f"Post the token as a form ({_FORM_TYPE}), in the field `token`."
                )
            token = self._check_login(
                parse_qs((await _read_login_body(receive)).decode("utf-8", "replace")), headers, client
            )
            cookie = (
                f"{self._cookie}={_sign_cookie(token)}; Path=/; HttpOnly; SameSite=Strict; Max-Age={_COOKIE_MAX_AGE}"
            )
            if _scheme(scope, headers) == "https":
                cookie += "; Secure"
            response_headers.append((b"set-cookie", cookie.encode()))
            status = 204 if _JSON_TYPE in headers.get("accept", "") else 303
        elif scope["method"] not in ("GET", "HEAD"):
            raise _refusal(405, "method-not-allowed", "Post a token to /login, in the field `token` of a form.")
        if status == 303:  # noqa: PLR2004
            response_headers.append((b"location", b"/"))
        await send({"type": "http.response.start", "status": status, "headers": response_headers})
        await send({"type": "http.response.body", "body": b""})

    def _check_login(self, fields: Mapping[str, list[str]], headers: Mapping[str, str], client: str) -> str:
        """Return the token of a login, or refuse it. A script must confirm a change of the browser's account."""
        token = fields.get("token", [""])[0].strip()
        owner = self._owner_of(token)
        if owner is None:
            raise self._reject_token(client, "wrong token in the login form")
        current_owner, _ = self._owner_of_cookie(headers.get("cookie", ""))
        if _JSON_TYPE in headers.get("accept", "") and current_owner not in (None, owner) and "change" not in fields:
            raise _refusal(
                409, "other-account", "This browser is logged in with another account. Send `change=yes` to change it."
            )
        return token

    def _reject_token(self, client: str, reason: str) -> _Refusal:
        """Count a wrong token. Return the refusal: 401, or 429 if this address has failed too often."""
        wait = self._failures.add(client, reason)
        if wait is None:
            return _refusal(401, "wrong-token", f"The access token is not valid. {self._token_hint()}")
        problem = make_problem(
            429, "too-many-attempts",
            f"Too many failed logins from this address. A valid token is still accepted; otherwise wait {wait} "
            f"seconds. {self._token_hint()}",
        )  # fmt: skip
        return _Refusal(problem, (b"retry-after", str(wait).encode()))

    def _token_hint(self) -> str:
        """Return a sentence about where to find the token."""
        if self._team:
            return "Use your access token for this server, or ask its administrator for one."
        return "Use the token in the link that `recollect serve` printed when it started."

    async def _identify(self, scope: Any, headers: Mapping[str, str], client: str) -> None:
        """Store the account of a request in the scope's state, or refuse the request."""
        if scope["path"] in _PUBLIC_PATHS or scope["path"].startswith("/static/"):
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            owner = self._owner_of(token.strip())
            if owner is None:
                raise self._reject_token(client, "wrong bearer token")
        else:
            owner, has_cookie = self._owner_of_cookie(headers.get("cookie", ""))
            if owner is None and has_cookie:
                raise self._reject_token(client, "cookie of an unknown token")
            if owner is not None and scope["method"] not in _SAFE_METHODS:
                self._check_own_page(headers)
        if owner is None:
            raise _refusal(401, "token-needed", f"An access token is required. {self._token_hint()}")
        try:
            scope["state"]["account"] = await self._accounts.get(owner)
        except RecollectError as error:  # the store cannot be opened
            raise _Refusal(problem_of(error)) from error

    def _check_own_page(self, headers: Mapping[str, str]) -> None:
        """Refuse a write with a cookie that does not state its origin. Programs use the bearer token."""
        if "origin" not in headers and "sec-fetch-site" not in headers:
            raise _refusal(403, "origin-needed", "A write with a cookie needs an Origin header.")

    def _owner_of(self, token: str) -> str | None:
        matching_owner = None
        for valid_token, owner in self._tokens.items():
            if hmac.compare_digest(valid_token.encode(), token.encode()):
                matching_owner = owner
        return matching_owner

    def _owner_of_cookie(self, header: str) -> tuple[str | None, bool]:
        """Return the owner of our cookie, and whether a cookie with our name exists.

        Other programs on this host share the cookie header, and their cookies may be malformed.
        """
        matching_owner, has_cookie = None, False
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            nonce, _, signature = value.partition(".")
            if name != self._cookie:
                continue
            has_cookie = True
            if not nonce:
                continue
            for token, owner in self._tokens.items():
                if hmac.compare_digest(_signature(token, nonce).encode(), signature.encode()):
                    matching_owner = owner
        return matching_owner, has_cookie

    async def _answer(self, refusal: _Refusal, scope: Any, headers: Mapping[str, str], send: Any) -> None:
        """Answer a refused request: HTML for a browser, problem+json for a program."""
        problem = refusal.problem
        if "text/html" in headers.get("accept", "") and not scope["path"].startswith("/api/"):
            from recollect.server.page.document import error_page  # noqa: PLC0415  few requests need it

            body, content_type = error_page(problem, team=self._team), b"text/html; charset=utf-8"
        else:
            body, content_type = problem.body(), PROBLEM_TYPE.encode()
        response_headers = [
            (b"content-type", content_type),
            (b"content-length", str(len(body)).encode()),
            *refusal.headers,
        ]
        if problem.status == 401:  # noqa: PLR2004
            response_headers.append((b"www-authenticate", b"Bearer"))
        if isinstance(refusal, _AmbiguousRequest):
            response_headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": problem.status, "headers": response_headers})
        await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})


def _sign_cookie(token: str) -> str:
    nonce = secrets.token_urlsafe(18)
    return f"{nonce}.{_signature(token, nonce)}"


def _signature(token: str, nonce: str) -> str:
    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def _read_headers(headers: Any) -> dict[str, str]:
    """Return the headers by lower-case name. Several cookie headers are joined."""
    by_name: dict[str, str] = {}
    for raw, value in headers:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        by_name[name] = f"{by_name[name]}; {text}" if name == "cookie" and name in by_name else text
    return by_name


def _check_single_headers(headers: Any) -> None:
    """Refuse duplicate headers that must be unique: a proxy and this server could use different ones."""
    names = [name.lower() for name, _ in headers]
    if b"content-length" in names and b"transfer-encoding" in names:
        raise _AmbiguousRequest(
            make_problem(400, "invalid-request", "Content-Length and Transfer-Encoding must not be sent together.")
        )
    duplicate = next((name for name in _SINGLE_HEADERS if names.count(name) > 1), None)
    if duplicate is not None:
        raise _AmbiguousRequest(
            make_problem(400, "invalid-request", f"The header {duplicate.decode()} must be sent only once.")
        )


def _check_destination(scope: Any, headers: Mapping[str, str]) -> None:
    """Refuse to serve anything but files as an image, a script or a frame.

    A message can contain an image with any URL of this server, and a browser sends the cookie with the request.
    """
    destination = headers.get("sec-fetch-dest", "empty")
    if destination not in _READ_DESTINATIONS and _EMBEDDABLE.fullmatch(scope["path"]) is None:
        raise _refusal(403, "wrong-destination", f"This address cannot be loaded as {destination[:_MAX_SHOWN]!r}.")


async def _read_login_body(receive: Any) -> bytes:
    """Return the body of a login. Refuse one above _MAX_LOGIN_BYTES."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _MAX_LOGIN_BYTES:
            raise _refusal(413, "too-large", f"The body of a login must have at most {_MAX_LOGIN_BYTES} bytes.")
        if message["type"] != "http.request" or not message.get("more_body", False):
            return body


def _client_address(scope: Any, headers: Mapping[str, str]) -> str:
    """Return the client's address. A proxy on this machine is trusted; it appends the address that it sees."""
    peer: str = (scope.get("client") or ("-",))[0]
    forwarded_address = _normalize_host(headers.get("x-forwarded-for", "").rpartition(",")[2]).strip(
        "[]"
    )  # some proxies append the port
    return forwarded_address if _is_loopback(peer) and _is_ip_address(forwarded_address) else peer


def _scheme(scope: Any, headers: Mapping[str, str]) -> str:
    """Return the client's scheme. A proxy on this machine is trusted; its header only makes cookies Secure."""
    peer = scope.get("client")
    forwarded_proto = headers.get("x-forwarded-proto", "").strip().lower()
    return (
        forwarded_proto
        if forwarded_proto in ("http", "https") and peer and _is_loopback(peer[0])
        else scope.get("scheme", "http")
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_ip_address(host: str) -> bool:
    """Return whether a host is a numeric address. 0.0.0.0 does not count, although browsers accept it."""
    try:
        return not ipaddress.ip_address(_normalize_host(host).strip("[]")).is_unspecified
    except ValueError:
        return False


def _with_receive_timeout(receive: Any) -> Any:
    """Wrap `receive` so that a client that pauses too long in the middle of a body is disconnected.

    After the body there is no timeout: the next message is the disconnect.
    """
    complete = False

    async def receive_in_time() -> Any:
        nonlocal complete
        if complete:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), RECEIVE_TIMEOUT)
        except TimeoutError:
            complete = True
            return {"type": "http.disconnect"}
        complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return receive_in_time


def _normalize_host(host: str) -> str:
    """Return a host in lower case without its port; [::1]:80 becomes [::1]."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return f"[{host}]" if host.count(":") > 1 else host.partition(":")[0]
