"""Access control under attack: other hosts and origins, wrong tokens, and malformed, slow and oversized requests."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import resource
import socket
import stat

import httpx
import pytest
from server_harness import LIMIT, TOKEN, cookie_of, log_in

from recollect.errors import InvalidValue
from recollect.server import access_token, attachments, connection

ALICE = "alice-token-0123456789-0123456789"
BOB = "bob-token-0123456789-0123456789-01"


def code(response):
    return response.status_code, response.json()["code"]


def send_raw(server, request: bytes, seconds=20.0) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), seconds) as sock:
        response = b""
        with contextlib.suppress(ConnectionError):
            sock.sendall(request)
            while chunk := sock.recv(65_536):
                response += chunk
        return response


def test_requests_without_the_token_are_refused(server):
    with server.client(token=None) as client:
        assert client.get("/health").status_code == 200
        for path in ("/sessions", "/openapi.json", "/changes", "/export", "/nothing"):
            assert code(client.get(path)) == (401, "token-needed")
            assert client.get(path).headers["www-authenticate"] == "Bearer"
        for wrong_token in ("x", TOKEN[:-1], TOKEN + "x", "é", TOKEN.upper()):
            answer = client.get("/sessions", headers={"Authorization": f"Bearer {wrong_token}".encode("latin-1")})
            assert code(answer) == (401, "wrong-token")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "recollect serve" in answer.json()["detail"]
            assert wrong_token not in answer.json()["detail"].split()
        assert code(client.get("/sessions", headers={"Authorization": "Bearer"})) == (401, "wrong-token")
        assert code(client.get("/sessions", params={"token": TOKEN})) == (401, "token-needed")
        assert code(client.get("/sessions", headers={"Authorization": f"Basic {TOKEN}"})) == (401, "token-needed")


def test_login_sets_a_cookie_and_redirects_to_the_page(server):
    answer = log_in(server)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    set_cookie = answer.headers["set-cookie"]
    cookie = set_cookie.partition(";")[0]
    assert set_cookie.startswith(f"recollect-{server.port}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {attribute.strip() for attribute in set_cookie.split(";")}
    assert "Secure" not in set_cookie
    assert TOKEN not in answer.text
    assert TOKEN not in set_cookie
    assert log_in(server, Accept="application/json").status_code == 204
    assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": cookie}).status_code == 200
    several_cookies = f'other=a"b; bad cookie={{; {cookie}; =;;'
    assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": several_cookies}).status_code == 200
    for forgery in (cookie[:-1], cookie.replace("=", "=x", 1), cookie.partition(".")[0], f"recollect-{server.port}=."):
        assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": forgery}).status_code == 401
    wrong = log_in(server, "nope", Accept="text/html")
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    assert '<form method="post" action="/login"' in wrong.text
    assert httpx.get(f"{server.url}/login").headers["location"] == "/"


def test_a_token_in_a_url_is_ignored(server):
    for path in ("/", "/c/a", "/login", "/page/new"):
        answer = httpx.get(f"{server.url}{path}", params={"token": TOKEN}, headers={"Accept": "text/html"})
        assert "set-cookie" not in answer.headers
        assert answer.status_code == (303 if path == "/login" else 401)
        assert TOKEN not in answer.text


def test_login_accepts_only_a_small_form_of_the_same_origin(server):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for headers, status in (
        ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": server.url, "Content-Type": "application/json"}, 415),
    ):  # fmt: skip
        answer = httpx.post(f"{server.url}/login", content=f"token={TOKEN}", headers={**form, **headers})
        assert (answer.status_code, "set-cookie" in answer.headers) == (status, status == 303), headers
    assert log_in(server, "x" * 5_000).status_code == 413
    assert httpx.put(f"{server.url}/login", headers={"Origin": server.url}).status_code == 405
    empty = httpx.post(f"{server.url}/login", content=b"", headers={**form, "Origin": server.url})
    assert code(empty) == (401, "wrong-token")


def test_a_login_link_does_not_silently_switch_the_account(start_server, tmp_path):
    """Otherwise a team member could send a link that makes others write into the wrong account."""
    server = start_server(tmp_path / "r.db", tokens={ALICE: "alice", BOB: "bob"})
    cookie = cookie_of(server, ALICE)
    script = {"Accept": "application/json", "Cookie": cookie}
    assert log_in(server, ALICE, **script).status_code == 204
    assert code(log_in(server, BOB, **script)) == (409, "other-account")
    fields = {"token": BOB, "change": "yes"}
    assert httpx.post(f"{server.url}/login", data=fields, headers={"Origin": server.url, **script}).status_code == 204
    assert log_in(server, BOB, Cookie=cookie).status_code == 303  # in the form, a person has typed the token


def test_the_login_page_explains_where_the_token_is(start_server, tmp_path):
    page = {"Accept": "text/html"}
    alone = httpx.get(start_server().url, headers=page).text
    team = httpx.get(start_server(tmp_path / "t.db", tokens={ALICE: "alice"}, team=True).url, headers=page).text
    assert "recollect serve" in alone
    assert "restart the server" in alone
    assert "recollect serve" not in team
    assert "administrator" in team
    server = start_server(tmp_path / "u.db", tokens={ALICE: "alice", BOB: "bob"})
    with server.client("wrong") as client:
        assert "administrator" in client.get("/sessions").json()["detail"]
        assert "recollect serve" not in client.get("/sessions").json()["detail"]


def test_embedded_content_can_only_request_files(server, api, session):
    cookie = {"Cookie": cookie_of(server)}
    for destination in ("image", "iframe", "script", "style", "video", "object", "embed", "track", "manifest"):
        headers = {
            **cookie,
            "Sec-Fetch-Dest": destination,
            "Sec-Fetch-Mode": "no-cors",
            "Sec-Fetch-Site": "same-origin",
        }
        for path in ("/", "/c/s%2F1", "/events", "/usage", "/page/export?format=md", "/page/search?q=a", "/page/rows?id=a",
                     "/page/conversation/s%2F1", "/api/v1/export", "/api/v1/sessions", "/login"):  # fmt: skip
            answer = httpx.get(f"{server.url}{path}", headers=headers)
            assert code(answer) == (403, "wrong-destination"), (destination, path)
        assert httpx.get(f"{server.url}/static/icon.svg", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/files/s%2F1/1.1/0", headers=headers).status_code == 404
    for destination in ("document", "empty"):
        navigation = {**cookie, "Sec-Fetch-Dest": destination, "Sec-Fetch-Mode": "navigate"}
        assert httpx.get(f"{server.url}/c/s%2F1", headers=navigation).status_code == 200


def test_a_cookie_is_secure_behind_a_local_tls_proxy(start_server):
    server = start_server(hosts=("chat.example.org",))
    headers = {"Host": "chat.example.org", "X-Forwarded-Proto": "https"}
    secure = log_in(server, **{**headers, "Origin": "https://chat.example.org"})
    assert "; Secure" in secure.headers["set-cookie"]
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


def test_a_public_server_accepts_numeric_hosts_and_no_names(start_server):
    server = start_server(public=True)
    for host, status in (("10.1.2.3:80", 200), ("[fe80::1]:80", 200), ("0.0.0.0", 421), ("evil.example", 421)):
        assert httpx.get(f"{server.url}/api/v1/health", headers={"Host": host}).status_code == status


FOREIGN = [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"}, {"Origin": "garbage"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},
    ]  # fmt: skip


def test_requests_of_other_origins_are_refused(server):
    for headers in FOREIGN:
        _assert_refused(server, headers)


def _assert_refused(server, headers):
    cookie = cookie_of(server)
    for access in ({"Cookie": cookie}, {"Authorization": f"Bearer {TOKEN}"}):
        with server.client(token=None, headers={**access, **headers}) as client:
            for method in ("POST", "TRACE", "DELETE"):
                assert code(client.request(method, "/sessions")) == (403, "foreign-origin")
            response = client.get("/sessions", headers={"Sec-Fetch-Mode": "cors"})
            assert code(response) == (403, "foreign-origin")
    same_origin = {"Cookie": cookie, "Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    with server.client(token=None, headers=same_origin) as client:
        assert client.post("/sessions").status_code == 201
    with server.client(token=None, headers={"Cookie": cookie}) as client:
        assert code(client.post("/sessions")) == (403, "origin-needed")


def test_navigation_from_another_site_is_allowed(server):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    headers["Cookie"] = cookie_of(server)
    assert httpx.get(server.url, headers=headers).status_code in (200, 303)


def test_every_response_has_security_headers(server, api):
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


def test_repeated_security_relevant_headers_are_refused(server):
    for name in (b"Host: localhost", b"Origin: http://evil.example", f"Authorization: Bearer {TOKEN}".encode()):
        request = b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + name + b"\r\n" + name
        assert b" 400 " in send_raw(server, request + b"\r\n\r\n").splitlines()[0]


def test_oversized_headers_and_bodies_are_refused(server, api, session):
    answer = send_raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000)
    assert not answer or b" 400 " in answer.splitlines()[0]
    big = api.post(
        f"{session}/messages", content=b" " * (65 * 1024 * 1024), headers={"content-type": "application/json"}
    )
    assert code(big) == (413, "too-large")
    assert "at most 64 MiB (67,108,864 bytes)" in big.json()["detail"]


def test_slow_clients_are_disconnected(start_server, monkeypatch):
    monkeypatch.setattr(connection, "HEADER_TIMEOUT", 0.3)
    monkeypatch.setattr("recollect.server.access.RECEIVE_TIMEOUT", 0.3)
    server = start_server()
    assert send_raw(server, b"") == b""
    assert send_raw(server, b"GET /api/v1/health HTTP/1.1\r\nHost: local") == b""
    head = f"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    slow = send_raw(
        server, f"{head}Content-Type: application/json\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{{".encode()
    )
    assert slow == b"" or b" 4" in slow.splitlines()[0] or b" 5" in slow.splitlines()[0]
    response = send_raw(server, b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b" 200 " in response.splitlines()[0]


def test_idle_connections_are_closed_above_the_limit(start_server, monkeypatch):
    """A client without a token can open connections, but listeners stay connected and new requests are answered."""
    monkeypatch.setattr(connection.HttpConnection, "max_connections", 8)
    server = start_server()
    request = f"GET /api/v1/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    with contextlib.ExitStack() as stack:

        def connect(data: bytes) -> socket.socket:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), LIMIT))
            sock.sendall(data)
            return sock

        listener = connect(request.encode())
        assert b"event: ready" in read_until(listener, b"event: ready")
        idle = connect(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(idle, b"status")
        silent = [connect(b"GET /api/v1/hea" if number % 2 else b"") for number in range(30)]
        assert [is_closed(sock) for sock in (idle, *silent[:20])] == [True] * 21
        response = send_raw(server, b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in response.splitlines()[0]
        with server.client() as client:
            client.put("/sessions/new")
        assert b"event: change" in read_until(listener, b"event: change")


def read_until(sock: socket.socket, pattern: bytes) -> bytes:
    """Read until a pattern has arrived, and return the data."""
    data = b""
    while pattern not in data and (chunk := sock.recv(65_536)):
        data += chunk
    return data


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_the_connection_limit_follows_the_open_files_limit(monkeypatch):
    limits = {"now": (1_024, 1_024)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.update(now=limit))
    assert connection.connection_limit() == 1_024 - 7 * connection.BACKLOG
    assert limits["now"] == (1_024, 1_024)
    for hard in (1 << 20, resource.RLIM_INFINITY):
        limits["now"] = (256, hard)
        assert connection.connection_limit() == connection.MAX_CONNECTIONS
        assert limits["now"] == (connection.MAX_CONNECTIONS + 7 * connection.BACKLOG, hard)
    limits["now"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert connection.connection_limit() == connection.MAX_CONNECTIONS
    limits["now"] = (100, 100)
    assert connection.connection_limit() == connection.BACKLOG


def test_a_websocket_is_closed(server):
    messages = []

    async def work():
        async def send(message):
            messages.append(message)

        await server.app({"type": "websocket", "path": "/", "headers": []}, None, send)

    asyncio.run(work())
    assert messages == [{"type": "websocket.close", "code": 1008}]


def test_files_are_served_so_that_they_cannot_run(api, session):
    page = {"name": "x.html", "mime_type": "text/html", "data": "PHNjcmlwdD4="}
    picture = {"name": "p.png", "mime_type": "image/png", "data": "iVBORw0KGgo="}
    answer = api.post(f"{session}/chat", json={"text": "look", "attachments": [page, picture]})
    assert answer.status_code == 202, answer.text
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
        attachments.accept_file("x", "text/plain", b"x" * (attachments.MAX_FILE_SIZE + 1))


def test_the_token_file_is_created_once_and_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("HOME", str(tmp_path))
    before = os.umask(0)
    try:
        first = access_token.load_or_create_token()
    finally:
        os.umask(before)
    path = next(tmp_path.rglob(access_token.TOKEN_FILE_NAME))
    assert {folder.stat().st_mode & 0o777 for folder in (path.parent, tmp_path / "new")} == {0o700}
    assert len(first) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    os.chmod(path, 0o644)
    assert access_token.load_or_create_token() == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == [access_token.TOKEN_FILE_NAME]


def test_a_token_file_is_synced_before_it_is_linked(tmp_path, monkeypatch):
    """A power cut leaves a complete token or none: the content is synced before the link, the folder after it."""
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    calls = []
    sync, link = os.fsync, os.link

    def record_sync(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", lambda *names: (calls.append("link"), link(*names)))
    access_token.load_or_create_token()
    assert calls == ["file", "link", "folder"]


def test_an_empty_token_file_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    first = access_token.load_or_create_token()
    path = next(tmp_path.rglob(access_token.TOKEN_FILE_NAME))
    for content in ("", " \n"):
        path.write_text(content)
        token = access_token.load_or_create_token()
        assert len(token) >= 32
        assert token != first
        assert path.read_text().strip() == token
        assert path.stat().st_mode & 0o777 == 0o600
        assert [item.name for item in path.parent.iterdir()] == [access_token.TOKEN_FILE_NAME]


def test_processes_that_start_together_agree_on_a_token(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: access_token.load_or_create_token(), range(32)))) == 1


def test_tokens_must_be_unique_and_long_enough():
    long = "x" * access_token.MIN_TOKEN_LENGTH
    assert access_token.validate_tokens({"a": long}) == {long: "a"}
    for owner, subject in (("a", "token of 'a'"), ("", "server's token")):
        with pytest.raises(InvalidValue, match=f"{subject} must have at least 32 characters, got 31.*config token"):
            access_token.validate_tokens({owner: "x" * 31})
    with pytest.raises(InvalidValue, match="same token"):
        access_token.validate_tokens({"a": long, "b": long})
    assert access_token.validate_tokens({"": access_token.generate_token()})


def test_an_unexpected_error_reveals_no_details(server, api, session, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("the secret inside")

    monkeypatch.setattr("recollect.server.api.messages.message_to_dict", fail)
    api.post(f"{session}/messages", json={"messages": {"role": "user", "content": "x"}})
    answer = api.get(f"{session}/messages")
    assert code(answer) == (500, "server-error")
    assert "secret" not in json.dumps(answer.json())
