"""The door, as an attacker tries it: other hosts and origins, wrong tokens, odd requests, slow and oversized ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import socket

import httpx
import pytest
from running import LIMIT, TOKEN

from recollect.errors import InvalidValue
from recollect.server import connection, files, token


def code(response):
    return response.status_code, response.json()["code"]


def cookie_of(server):
    answer = httpx.get(f"{server.url}/?token={TOKEN}")
    assert answer.status_code == 200
    return answer, answer.headers["set-cookie"].partition(";")[0]


def raw(server, request: bytes, seconds=20.0) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), seconds) as link:
        found = b""
        with contextlib.suppress(ConnectionError):
            link.sendall(request)
            while piece := link.recv(65_536):
                found += piece
        return found


def test_nothing_comes_in_without_the_token(server):
    with server.client(token=None) as client:
        assert client.get("/health").status_code == 200
        for path in ("/sessions", "/openapi.json", "/changes", "/export", "/nothing"):
            assert code(client.get(path)) == (401, "token-needed")
            assert client.get(path).headers["www-authenticate"] == "Bearer"
        for wrong in ("x", TOKEN[:-1], TOKEN + "x", "é", TOKEN.upper()):
            answer = client.get("/sessions", headers={"Authorization": f"Bearer {wrong}".encode("latin-1")})
            assert code(answer) == (401, "wrong-token")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "recollect serve" in answer.json()["detail"]
            assert wrong not in answer.json()["detail"].split()
        assert code(client.get("/sessions", headers={"Authorization": "Bearer"})) == (401, "wrong-token")
        assert code(client.get("/sessions", params={"token": TOKEN})) == (401, "token-needed")
        assert code(client.get("/sessions", headers={"Authorization": f"Basic {TOKEN}"})) == (401, "token-needed")


def test_the_link_gives_a_cookie_and_a_page_that_goes_on(server):
    answer, cookie = cookie_of(server)
    told = answer.headers["set-cookie"]
    assert told.startswith(f"recollect-{server.port}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {piece.strip() for piece in told.split(";")}
    assert "Secure" not in told
    assert TOKEN not in answer.text
    assert TOKEN not in told
    assert '<meta http-equiv="refresh" content="0; url=/">' in answer.text
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": cookie}).status_code == 200
    among = f'other=a"b; bad cookie={{; {cookie}; =;;'
    assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": among}).status_code == 200
    for forged in (cookie[:-1], cookie.replace("=", "=x", 1), cookie.partition(".")[0], f"recollect-{server.port}=."):
        assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": forged}).status_code == 401
    wrong = httpx.get(f"{server.url}/?token=nope", headers={"Accept": "text/html"})
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)


def test_the_link_never_leads_elsewhere(server):
    for path in ["//evil.example/", "/%5Cevil.example", "/c/a%22%3E%3Cscript%3E", "/\\evil.example/"]:
        _leads_here(server, path)


def _leads_here(server, path):
    request = f"GET {path}?token={TOKEN}&m=%22%3E1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = raw(server, request.encode()).decode()
    place = re.search(r'url=([^"]*)"', answer)
    if place is None:
        assert " 400 " in answer.splitlines()[0]
        return
    assert re.match(r"/(?![/\\])", place.group(1))
    assert "<script" not in answer
    assert TOKEN not in answer.partition("\r\n\r\n")[2]


def test_a_cookie_is_secure_where_a_proxy_on_this_machine_speaks_tls(serving):
    server = serving(hosts=("chat.example.org",))
    headers = {"Host": "chat.example.org", "X-Forwarded-Proto": "https"}
    assert "; Secure" in httpx.get(f"{server.url}/?token={TOKEN}", headers=headers).headers["set-cookie"]
    with server.client(headers={"Host": "chat.example.org", "Origin": "https://chat.example.org"}) as client:
        assert client.post("/sessions").status_code == 201


def test_another_host_is_refused(server):
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
        "0.0.0.0",
        "[::2]",
        "10.0.0.1",
        "localhost@evil",
    ]:
        answer = httpx.get(f"{server.url}/api/v1/health", headers={"Host": host})
        assert answer.status_code in (400, 421), host


def test_a_public_server_takes_addresses_in_numbers_but_no_names(serving):
    server = serving(public=True)
    for host, status in (("10.1.2.3:80", 200), ("[fe80::1]:80", 200), ("0.0.0.0", 421), ("evil.example", 421)):
        assert httpx.get(f"{server.url}/api/v1/health", headers={"Host": host}).status_code == status


FOREIGN = [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"}, {"Origin": "garbage"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},
    ]  # fmt: skip


def test_a_foreign_page_has_no_access(server):
    for headers in FOREIGN:
        _stays_out(server, headers)


def _stays_out(server, headers):
    _, cookie = cookie_of(server)
    for access in ({"Cookie": cookie}, {"Authorization": f"Bearer {TOKEN}"}):
        with server.client(token=None, headers={**access, **headers}) as client:
            for method in ("POST", "TRACE", "DELETE"):
                assert code(client.request(method, "/sessions")) == (403, "foreign-origin")
            fetched = client.get("/sessions", headers={"Sec-Fetch-Mode": "cors"})
            assert code(fetched) == (403, "foreign-origin")
    own = {"Cookie": cookie, "Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    with server.client(token=None, headers=own) as client:
        assert client.post("/sessions").status_code == 201
    with server.client(token=None, headers={"Cookie": cookie}) as client:
        assert code(client.post("/sessions")) == (403, "origin-needed")


def test_a_person_may_follow_a_link_from_elsewhere(server):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert httpx.get(f"{server.url}/?token={TOKEN}", headers=headers).status_code == 200


def test_every_answer_keeps_what_is_shown_from_running(server, api):
    for answer in (
        api.get("/sessions"),
        api.get("/nothing"),
        httpx.get(server.url),
        httpx.get(f"{server.url}/static/icon.svg"),
    ):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers
    assert api.get("/sessions").headers["cache-control"] == "no-store"


def test_other_methods(api):
    assert api.options("/sessions").status_code in (204, 405)
    assert "access-control-allow-origin" not in api.options("/sessions").headers
    for method in ("TRACE", "PUT", "BREW"):
        assert api.request(method, "/sessions").status_code in (400, 405)
    assert api.head("/sessions").status_code in (200, 405)


def test_headers_that_count_once_come_once(server):
    for name in (b"Host: localhost", b"Origin: http://evil.example", f"Authorization: Bearer {TOKEN}".encode()):
        request = b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + name + b"\r\n" + name
        assert b" 400 " in raw(server, request + b"\r\n\r\n").splitlines()[0]


def test_what_is_too_large_is_refused(server, api, session):
    answer = raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000)
    assert not answer or b" 400 " in answer.splitlines()[0]
    big = api.post(
        f"{session}/messages", content=b" " * (65 * 1024 * 1024), headers={"content-type": "application/json"}
    )
    assert code(big) == (413, "too-large")
    assert "at most 64 MiB (67,108,864 bytes)" in big.json()["detail"]


def test_a_client_that_does_not_come_to_the_point_is_let_go_of(serving, monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE", 0.3)
    monkeypatch.setattr("recollect.server.access.PATIENCE", 0.3)
    server = serving()
    assert raw(server, b"") == b""
    assert raw(server, b"GET /api/v1/health HTTP/1.1\r\nHost: local") == b""
    head = f"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    slow = raw(
        server, f"{head}Content-Type: application/json\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{{".encode()
    )
    assert slow == b"" or b" 4" in slow.splitlines()[0] or b" 5" in slow.splitlines()[0]
    whole = raw(server, b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b" 200 " in whole.splitlines()[0]


def test_of_too_many_connections_those_that_ask_for_nothing_go(serving, monkeypatch):
    """Whoever has no token can open some; whoever listens stays, and whoever asks is answered."""
    monkeypatch.setattr(connection.Connection, "most", 8)
    server = serving()
    request = f"GET /api/v1/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    with contextlib.ExitStack() as opened:

        def connected(said: bytes) -> socket.socket:
            link = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), LIMIT))
            link.sendall(said)
            return link

        listener = connected(request.encode())
        assert b"event: ready" in until(listener, b"event: ready")
        done = connected(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(done, b"status")
        silent = [connected(b"GET /api/v1/hea" if number % 2 else b"") for number in range(30)]
        assert [ended(link) for link in (done, *silent[:20])] == [True] * 21
        whole = raw(server, b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in whole.splitlines()[0]
        with server.client() as client:
            client.put("/sessions/new")
        assert b"event: change" in until(listener, b"event: change")


def until(link: socket.socket, sought: bytes) -> bytes:
    """Read until something comes."""
    found = b""
    while sought not in found and (more := link.recv(65_536)):
        found += more
    return found


def ended(link: socket.socket) -> bool:
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True


def test_as_many_connections_as_the_process_may_have_files(monkeypatch):
    limits = {"now": (1_024, 1_024)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.update(now=given))
    assert connection.room() == 1_024 - 7 * connection.BACKLOG
    assert limits["now"] == (1_024, 1_024)
    for hard in (1 << 20, resource.RLIM_INFINITY):
        limits["now"] = (256, hard)
        assert connection.room() == connection.MOST
        assert limits["now"] == (connection.MOST + 7 * connection.BACKLOG, hard)
    limits["now"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert connection.room() == connection.MOST
    limits["now"] = (100, 100)
    assert connection.room() == connection.BACKLOG


def test_a_websocket_is_closed(server):
    sent = []

    async def work():
        async def send(message):
            sent.append(message)

        await server.app({"type": "websocket", "path": "/", "headers": []}, None, send)

    asyncio.run(work())
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_files_are_given_so_that_they_can_not_run(api, session):
    page = {"name": "x.html", "mime_type": "text/html", "data": "PHNjcmlwdD4="}
    picture = {"name": "p.png", "mime_type": "image/png", "data": "iVBORw0KGgo="}
    said = api.post(f"{session}/chat", json={"text": "look", "attachments": [page, picture]})
    assert said.status_code == 202, said.text
    html = api.get(f"{session}/messages/1.1/files/0")
    assert html.headers["content-type"] == "application/octet-stream"
    assert html.headers["content-disposition"].startswith("attachment")
    assert html.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert html.headers["x-content-type-options"] == "nosniff"
    png = api.get(f"{session}/messages/1.1/files/1")
    assert (png.headers["content-type"], png.content) == ("image/png", b"\x89PNG\r\n\x1a\n")
    assert api.get(f"{session}/messages/1.1/files/2").status_code == 404
    for wrong in (
        {"mime_type": "image/svg+xml", "data": "PHN2Zz4="}, {"mime_type": "application/x-msdownload", "data": "TVo="},
        {"mime_type": "image/png", "data": "PHN2Zz4="}, {"mime_type": "image/png", "data": "%%%"},
        {"mime_type": "text/plain", "data": ""}, {"mime_type": "a\r\nSet-Cookie: x", "data": "YQ=="},
    ):  # fmt: skip
        assert api.post(f"{session}/chat", json={"text": "x", "attachments": [wrong]}).status_code == 400, wrong
    with pytest.raises(InvalidValue, match="at most"):
        files.taken("x", "text/plain", b"x" * (files.LARGEST + 1))


def test_the_token_is_made_once_and_only_its_owner_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("HOME", str(tmp_path))
    before = os.umask(0)
    try:
        first = token.kept()
    finally:
        os.umask(before)
    path = next(tmp_path.rglob(token.NAME))
    assert {folder.stat().st_mode & 0o777 for folder in (path.parent, tmp_path / "new")} == {0o700}
    assert len(first) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    os.chmod(path, 0o644)
    assert token.kept() == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == [token.NAME]


def test_tokens_are_ones_own_and_long_enough():
    assert token.checked({"a": "x"}, public=False) == {"x": "a"}
    with pytest.raises(InvalidValue, match="16"):
        token.checked({"a": "short"}, public=True)
    with pytest.raises(InvalidValue, match="same token"):
        token.checked({"a": "x" * 20, "b": "x" * 20}, public=True)


def test_an_error_nobody_foresaw_tells_nothing(server, api, session, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("the secret inside")

    monkeypatch.setattr("recollect.server.api.messages.plain", broken)
    api.post(f"{session}/messages", json={"messages": {"role": "user", "content": "x"}})
    answer = api.get(f"{session}/messages")
    assert code(answer) == (500, "server-error")
    assert "secret" not in json.dumps(answer.json())
