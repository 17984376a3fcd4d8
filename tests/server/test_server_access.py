"""The door, as an attacker tries it: other hosts and origins, wrong tokens, odd requests, slow and oversized ones."""

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
from running import LIMIT, TOKEN, cookie_of, log_in

from recollect.errors import InvalidValue
from recollect.server import connection, files, token

ALICE = "alice-token-0123456789-0123456789"
BOB = "bob-token-0123456789-0123456789-01"


def code(response):
    return response.status_code, response.json()["code"]


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


def test_a_login_gives_a_cookie_and_leads_to_the_page(server):
    answer = log_in(server)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    told = answer.headers["set-cookie"]
    cookie = told.partition(";")[0]
    assert told.startswith(f"recollect-{server.port}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {piece.strip() for piece in told.split(";")}
    assert "Secure" not in told
    assert TOKEN not in answer.text
    assert TOKEN not in told
    assert log_in(server, Accept="application/json").status_code == 204
    assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": cookie}).status_code == 200
    among = f'other=a"b; bad cookie={{; {cookie}; =;;'
    assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": among}).status_code == 200
    for forged in (cookie[:-1], cookie.replace("=", "=x", 1), cookie.partition(".")[0], f"recollect-{server.port}=."):
        assert httpx.get(f"{server.url}/api/v1/sessions", headers={"Cookie": forged}).status_code == 401
    wrong = log_in(server, "nope", Accept="text/html")
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    assert '<form method="post" action="/login"' in wrong.text
    assert httpx.get(f"{server.url}/login").headers["location"] == "/"


def test_a_token_in_an_address_opens_nothing(server):
    for path in ("/", "/c/a", "/login", "/page/new"):
        answer = httpx.get(f"{server.url}{path}", params={"token": TOKEN}, headers={"Accept": "text/html"})
        assert "set-cookie" not in answer.headers
        assert answer.status_code == (303 if path == "/login" else 401)
        assert TOKEN not in answer.text


def test_a_login_comes_from_the_page_itself_and_is_a_small_form(server):
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


def test_a_link_asks_before_it_changes_the_account_of_a_browser(serving, tmp_path):
    """Otherwise a member of a team could have others write into the wrong account, with a link."""
    server = serving(tmp_path / "r.db", tokens={ALICE: "alice", BOB: "bob"})
    cookie = cookie_of(server, ALICE)
    script = {"Accept": "application/json", "Cookie": cookie}
    assert log_in(server, ALICE, **script).status_code == 204
    assert code(log_in(server, BOB, **script)) == (409, "other-account")
    fields = {"token": BOB, "change": "yes"}
    assert httpx.post(f"{server.url}/login", data=fields, headers={"Origin": server.url, **script}).status_code == 204
    assert log_in(server, BOB, Cookie=cookie).status_code == 303  # the form: a person has typed it


def test_the_login_page_tells_a_person_and_a_team_where_the_token_is(serving, tmp_path):
    page = {"Accept": "text/html"}
    alone = httpx.get(serving().url, headers=page).text
    team = httpx.get(serving(tmp_path / "t.db", tokens={ALICE: "alice"}, team=True).url, headers=page).text
    assert "recollect serve" in alone
    assert "restart the server" in alone
    assert "recollect serve" not in team
    assert "administrator" in team
    server = serving(tmp_path / "u.db", tokens={ALICE: "alice", BOB: "bob"})
    with server.client("wrong") as client:
        assert "administrator" in client.get("/sessions").json()["detail"]
        assert "recollect serve" not in client.get("/sessions").json()["detail"]


def test_what_a_message_embeds_reaches_nothing_but_files(server, api, session):
    cookie = {"Cookie": cookie_of(server)}
    for destination in ("image", "iframe", "script", "style", "video", "object", "embed", "track", "manifest"):
        embedded = {
            **cookie,
            "Sec-Fetch-Dest": destination,
            "Sec-Fetch-Mode": "no-cors",
            "Sec-Fetch-Site": "same-origin",
        }
        for path in ("/", "/c/s%2F1", "/events", "/figures", "/page/export?format=md", "/page/search?q=a", "/page/rows?id=a",
                     "/page/conversation/s%2F1", "/api/v1/export", "/api/v1/sessions", "/login"):  # fmt: skip
            answer = httpx.get(f"{server.url}{path}", headers=embedded)
            assert code(answer) == (403, "wrong-destination"), (destination, path)
        assert httpx.get(f"{server.url}/static/icon.svg", headers=embedded).status_code == 200
        assert httpx.get(f"{server.url}/files/s%2F1/1.1/0", headers=embedded).status_code == 404
    for destination in ("document", "empty"):
        read = {**cookie, "Sec-Fetch-Dest": destination, "Sec-Fetch-Mode": "navigate"}
        assert httpx.get(f"{server.url}/c/s%2F1", headers=read).status_code == 200


def test_a_cookie_is_secure_where_a_proxy_on_this_machine_speaks_tls(serving):
    server = serving(hosts=("chat.example.org",))
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
    cookie = cookie_of(server)
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
    headers["Cookie"] = cookie_of(server)
    assert httpx.get(server.url, headers=headers).status_code in (200, 303)


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


def test_a_token_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A power cut leaves a whole token, or none: the content is synced before the link, the folder after it."""
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    done = []
    sync, link = os.fsync, os.link

    def synced(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", lambda *names: (done.append("link"), link(*names)))
    token.kept()
    assert done == ["file", "link", "folder"]


def test_an_empty_token_file_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    first = token.kept()
    path = next(tmp_path.rglob(token.NAME))
    for content in ("", " \n"):
        path.write_text(content)
        made = token.kept()
        assert len(made) >= 32
        assert made != first
        assert path.read_text().strip() == made
        assert path.stat().st_mode & 0o777 == 0o600
        assert [item.name for item in path.parent.iterdir()] == [token.NAME]


def test_processes_that_start_together_agree_on_a_token(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: token.kept(), range(32)))) == 1


def test_tokens_are_ones_own_and_long_enough():
    long = "x" * token.SHORTEST
    assert token.checked({"a": long}) == {long: "a"}
    for owner, whose in (("a", "token of 'a'"), ("", "server's token")):
        with pytest.raises(InvalidValue, match=f"{whose} must have at least 32 characters, got 31.*config token"):
            token.checked({owner: "x" * 31})
    with pytest.raises(InvalidValue, match="same token"):
        token.checked({"a": long, "b": long})
    assert token.checked({"": token.generate()})


def test_an_error_nobody_foresaw_tells_nothing(server, api, session, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("the secret inside")

    monkeypatch.setattr("recollect.server.api.messages.plain", broken)
    api.post(f"{session}/messages", json={"messages": {"role": "user", "content": "x"}})
    answer = api.get(f"{session}/messages")
    assert code(answer) == (500, "server-error")
    assert "secret" not in json.dumps(answer.json())
