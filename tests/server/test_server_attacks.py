"""Attacks by a client that can reach the port, and by pages, files and titles that a person opens."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import hmac
import json
import logging
import pathlib
import re
import socket
import urllib.parse

import httpx
import pytest
from server_harness import LIMIT, TOKEN, cookie_of

from recollect.errors import KeyReused, NotADatabase, SessionInTrash
from recollect.server.access import SECURITY_HEADERS
from recollect.server.problems import code_of

ACCESS = f"Authorization: Bearer {TOKEN}\r\n"
OPENAPI = pathlib.Path(__file__).parents[2] / "docs" / "openapi.json"
JSON = {"Content-Type": "application/json"}
BODY = '{"id":"smuggled"}'
SQL_SYNTAX = [
    "'",
    '"',
    "';--",
    "' OR '1'='1",
    "\\",
    "%",
    "_",
    "x' UNION SELECT * FROM sessions --",
    "\x00",
    "?1",
    ":now",
    "$1",
]
SEARCH_SYNTAX = [
    '"',
    '""',
    "*",
    "a*",
    "NEAR(a b)",
    "a AND",
    "OR",
    "NOT",
    "text:a",
    "{a b}:c",
    "^a",
    "a + b",
    "-a",
    "()",
    "(",
    '"a',
    "-",
    "a:b:c",
]


def send_raw(server, request, seconds=LIMIT):
    """Send bytes and return the complete response, until the server closes the connection."""
    response = b""
    with socket.create_connection(("127.0.0.1", server.port), seconds) as sock:
        sock.settimeout(seconds)
        try:
            sock.sendall(request.encode("latin-1") if isinstance(request, str) else request)
            while chunk := sock.recv(65_536):
                response += chunk
        except ConnectionError:
            pass
    return response


def send_request(server, request_line, host="Host: localhost\r\n", rest="", body=""):
    return send_raw(server, f"{request_line} HTTP/1.1\r\n{host}{rest}Connection: close\r\n\r\n{body}")


def status(answer):
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
def stranger(server):
    with server.client(None) as client:
        yield client


def test_invalid_host_headers_are_refused(server):
    for host in (
        "[::1].evil.example", "localhost:80@evil.example", "localhost:evil", "localhost:80:80", "localhost evil", "localhost/evil",
        "localhost.", "localhost#", "127.0.0.1.evil.example", "2130706433", "127.1", "0x7f000001", "localhost:999999", "[::1", "::1]",
    ):  # fmt: skip
        answer = send_request(server, "GET /api/v1/sessions", f"Host: {host}\r\n", ACCESS)
        assert status(answer) in (400, 421), host
        assert b"sessions" not in answer.partition(b"\r\n\r\n")[2], host
    for host in ("localhost", "LocalHost:1", "127.0.0.1:80", "[::1]:80", f"localhost:{server.port}"):
        assert status(send_request(server, "GET /api/v1/sessions", f"Host: {host}\r\n", ACCESS)) == 200, host


def test_the_host_in_the_request_target_does_not_replace_the_header(server):
    for host, line in (
        ("evil.example", "GET http://localhost/api/v1/sessions"),
        ("localhost", "GET http://evil.example/api/v1/sessions"),
    ):
        answer = send_request(server, line, f"Host: {host}\r\n", ACCESS)
        assert status(answer) in (400, 404, 421)
        assert b'"sessions":' not in answer
    assert (
        status(send_request(server, "GET /api/v1/sessions", "Host: localhost\r\nHost: evil.example\r\n", ACCESS)) == 400
    )
    assert status(send_request(server, "GET /api/v1/sessions", "", ACCESS)) == 400
    assert status(send_raw(server, f"GET /api/v1/sessions HTTP/1.0\r\n{ACCESS}\r\n")) == 421


def test_bodies_with_a_wrong_length_create_nothing(server, api):
    head = f"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n{ACCESS}Content-Type: application/json\r\nConnection: close\r\n"
    for rest in (
        f"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{BODY}\r\n0\r\n\r\n",
        f"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n11\r\n{BODY}\r\n0\r\n\r\n",
        f"Transfer-Encoding: xchunked\r\n\r\n11\r\n{BODY}\r\n0\r\n\r\n",
        f"Transfer-Encoding: chunked\r\n\r\n-5\r\n{BODY}\r\n0\r\n\r\n",
        f"Transfer-Encoding: chunked\r\n\r\n3\r\n{BODY}\r\n0\r\n\r\n",
        f"Content-Length: -1\r\n\r\n{BODY}",
        f"Content-Length: 17\r\nContent-Length: 18\r\n\r\n{BODY}",
        f"Content-Length: 5\r\n\r\n{BODY}",
    ):
        assert status(send_raw(server, head + rest)) == 400, rest
    with socket.create_connection(("127.0.0.1", server.port), LIMIT) as sock:
        sock.sendall((head + "Content-Length: 100\r\n\r\n" + BODY).encode())  # and closes the connection in the middle
    assert api.get("/sessions/smuggled").status_code == 404


def test_request_smuggling_is_refused(server):
    """A proxy that counts the bytes differently would assign the second request to another client."""
    second = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = f"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n{ACCESS}"
    for rest in (
        f"Content-Length: {5 + len(second)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}",
        f"{ACCESS}Content-Length: 2\r\n\r\n{{}}{second}",
    ):
        answer = send_raw(server, head + rest)
        assert status(answer) == 400
        assert answer.count(b"HTTP/1.1") == 1
        assert b"\r\nconnection: close\r\n" in answer.lower()


def test_an_invalid_chunked_body_is_answered_once(server, api, caplog):
    log = logging.getLogger("uvicorn.error")
    before = log.level
    log.addHandler(caplog.handler)
    log.setLevel(logging.ERROR)
    try:
        for line in (
            "GET /api/v1/health",
            "GET /api/v1/sessions",
            "POST /api/v1/sessions",
            "POST /none",
            "PUT /api/v1/import",
        ):
            head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{ACCESS if '/import' not in line else ''}"
            for rest in ("2\r\n{}\r\nzz\r\n", "2\r\n{}zz\r\n", "f" * 30 + "\r\n{}"):
                answer = send_raw(server, f"{head}Transfer-Encoding: chunked\r\n\r\n{rest}")
                assert answer.count(b"HTTP/1.1") == 1
                assert status(answer) == 400
        assert api.get("/sessions").status_code == 200
        server.close()  # all tasks have ended, and have logged their errors
    finally:
        log.setLevel(before)
        log.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"] == []


def test_form_fields_that_are_not_text_are_refused(server, api):
    api.put("/sessions/a")
    for header, content in (
        ("", b"\xe3i\xaf"), ("Content-Type: text/plain; charset=klingon\r\n", b"qapla"),
        ("Content-Type: text/plain; charset=utf-16\r\n", b"odd"), ("Content-Type: text/plain; charset=rot13\r\n", b"x"),
        ("Content-Type: text/plain; charset=idna\r\n", b"xn--\xff"),
    ):  # fmt: skip
        field = b'--X\r\nContent-Disposition: form-data; name="text"\r\n' + header.encode()
        answer = api.post(
            f"{server.url}/page/conversation/a/say", content=field + b"\r\n" + content + b"\r\n--X--\r\n",
            headers={"Content-Type": "multipart/form-data; boundary=X"},
        )  # fmt: skip
        assert answer.status_code == 400, (header, answer.text)
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", "application/json", "text/plain"):
        answer = api.post(f"{server.url}/page/conversation/a/say", content=b"--X", headers={"Content-Type": kind})
        assert answer.status_code == 400, (kind, answer.text)


def test_pipelined_requests_are_authorized_separately(server):
    get = "GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
    answer = send_raw(server, f"{get}{ACCESS}\r\n{get}\r\n{get}{ACCESS}Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"401", b"200"]


def test_every_response_has_security_headers_even_to_invalid_http(server, api, stranger):
    for request in (
        b"\x16\x03\x01\x00\xa5\x01\x00\x01",
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    ):
        answer = send_raw(server, request).lower()
        assert status(answer) == 400
        for name, value in SECURITY_HEADERS:
            assert name + b": " + value.lower() in answer
        assert b"cache-control: no-store" in answer
        assert b"application/problem+json" in answer
    for method in ("GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "BREW", "PATCH", "DELETE"):
        for path in (
            "/",
            "/events",
            "/api/v1",
            "/api/v1/healthy",
            "/api/v1/nothing",
            "/files/a/1.1/0",
            "/static/nothing",
            "/x",
        ):
            for client in (stranger, api):
                answer = client.build_request(method, f"{server.url}{path}", headers={"Origin": server.url})
                answer = client.send(answer, stream=True)
                answer.close()
                assert answer.status_code < 500, (method, path)
                assert all(name.decode() in answer.headers for name, _ in SECURITY_HEADERS), (method, path)
                assert answer.headers["cache-control"] == "no-store", (method, path)
                assert "access-control-allow-origin" not in answer.headers
                assert client is api or path == "/static/nothing" or answer.status_code == 401, (method, path)


def test_path_traversal_in_names_is_refused(server, api):
    api.put("/sessions/a")
    for name in (
        "../assets.py", "..%2fassets.py", "..%2f..%2f..%2fapp.py", "%2e%2e/assets.py", "..%5cassets.py", "%00", ".", "..", "",
        "x" * 5_000, "%F0%9F", "..;/assets.py", "/etc/passwd", "%2fetc%2fpasswd", "elements.css%00.py", "ELEMENTS.CSS",
    ):  # fmt: skip
        answer = send_request(server, f"GET /static/{name}")
        assert status(answer) == 404, name
        assert b"import" not in answer
        assert status(send_request(server, f"GET /files/{name}/1.1/0", rest=ACCESS)) == 404, name
        assert status(send_request(server, f"GET /files/a/{name}/0", rest=ACCESS)) in (400, 404), name
        assert status(send_request(server, f"GET /files/a/1.1/{name}", rest=ACCESS)) == 404, name
    assert status(send_request(server, "GET /static/" + "y" * 3_000)) == 404


def test_a_token_in_a_url_of_the_api_is_ignored(server):
    for path in ("/api/v1/sessions", "//api/v1/sessions", "/api/v1//sessions", "/api/v1/sessions/"):
        answer = send_request(server, f"GET {path}?token={TOKEN}")
        assert (status(answer), b"set-cookie" in answer.lower()) == (401, False), path
    for method in ("POST", "DELETE", "PUT", "HEAD"):
        assert status(send_request(server, f"{method} /page/new?token={TOKEN}", rest="Content-Length: 0\r\n")) in (
            401,
            403,
        )


def test_cookies_of_other_ports_and_tokens_are_refused(server, start_server, tmp_path):
    other = start_server(tmp_path / "other.db", tokens={"another-token-0123456789-0123456789": ""})
    theirs = cookie_of(other, "another-token-0123456789-0123456789")
    value = theirs.partition("=")[2]
    mac = hmac.new(b"another-token-0123456789-0123456789", b"nonce", hashlib.sha256).hexdigest()
    empty = hmac.new(b"", b"nonce", hashlib.sha256).hexdigest()
    for cookie in (
        theirs, f"recollect-{server.port}={value}", f"recollect-{server.port}=nonce.{mac}", f"recollect-{server.port}=nonce.{empty}",
        f"recollect-{server.port}={TOKEN}", f"recollect-{server.port}=.{TOKEN}", "recollect-0=x.y", "=", f"recollect-{server.port}=é.é",
    ):  # fmt: skip
        answer = send_request(server, "GET /api/v1/sessions", rest=f"Cookie: {cookie}\r\n")
        assert status(answer) == 401, cookie


def test_many_concurrent_logins(server):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        cookies = set(pool.map(lambda _: cookie_of(server), range(32)))
    assert len(cookies) == 32
    for cookie in cookies:
        assert status(send_request(server, "GET /api/v1/last-session", rest=f"Cookie: {cookie}\r\n")) == 200


HOSTILE_NAMES = [
    'a"; filename="b.html', "a\r\nSet-Cookie: x=1", "a\nb", "\u202egnp.exe", "../../etc/passwd", "..\\..\\x", "\x00", "a;b,c", "é😀", "'",
    "a%0d%0aX: y", "x" * 5_000, "<script>", " ", ".", "..", "-rf", ".bashrc", "CON", "nul.html", "\u2028", "half \ud83d",
    "\U0001f600" * 5_000,
]  # fmt: skip


def test_names_and_titles_cannot_inject_headers(server, api):
    name = "/sessions/named"
    api.put(name)
    for number, hostile in enumerate(HOSTILE_NAMES):
        update = api.patch(name, content=json.dumps({"title": hostile}), headers=JSON)
        assert update.status_code in (200, 400), hostile
        format = ("md", "html", "json", "jsonl")[number % 4]
        assert_safe_download(api.get(f"{name}/export", params={"format": format}))
        assert_safe_download(api.get(f"{server.url}/page/export", params={"format": format, "session": "named"}))
        data = base64.b64encode(b"<script>1</script>").decode()
        part = {"kind": "attachment", "mime_type": "text/html", "name": hostile, "data": data}
        body = {"messages": {"role": "user", "parts": [part]}, "format": "recollect"}
        stored_message = api.post(f"{name}/messages", content=json.dumps(body), headers=JSON)
        assert stored_message.status_code == 201, stored_message.text
        for path in (f"{name}/messages/1.{number + 1}/files/0", f"{server.url}/files/named/1.{number + 1}/0"):
            answer = api.get(path)
            assert_safe_download(answer)
            assert answer.headers["content-type"] == "application/octet-stream"


def assert_safe_download(answer):
    """Assert that a response is a file to be saved, with a safe name and no injected header."""
    assert answer.status_code == 200, answer.text
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith("attachment"), disposition
    assert re.fullmatch(r"[\x20-\x7e]+", disposition)
    assert disposition.count('"') in (0, 2)
    file_name = urllib.parse.unquote(disposition.partition("filename*=UTF-8''")[2])
    assert file_name.isprintable()
    assert not set(file_name) & set("/\\")
    for name in (file_name, disposition.split('"')[1]):
        assert not name.startswith(("-", "."))
        assert name.partition(".")[0].upper() not in ("CON", "NUL")
    assert len(disposition) < 2_000
    assert "set-cookie" not in answer.headers
    assert "x" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"


FILES = [
    ("x.svg", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"),
    ("x.html", "text/html", b"<script>1</script>"), ("x.png", "image/png", b"<script>1</script>"), ("x.xml", "text/xml", b"<a/>"),
    ("x.png", "text/html", b"<html>"), ("x.html", "image/png", b"<html>"), ("x.js", "text/javascript", b"1"),
    ("x.xhtml", "application/xhtml+xml", b"<html/>"), ("x.pdf", "application/pdf", b"%PDF-1.7"), ("x", "a/b\r\nX: y", b"1"),
]  # fmt: skip


def test_an_attached_file_never_runs_in_the_browser(server, api):
    api.put("/sessions/up")
    for name, kind, content in FILES:
        answer = api.post(
            f"{server.url}/page/conversation/up/say", data={"text": "look"}, files={"files": (name, content, kind)},
            headers={"Origin": server.url},
        )  # fmt: skip
        assert answer.status_code in (202, 400, 409), answer.text
        with api.stream("GET", "/sessions/up/events") as _:
            api.post("/sessions/up/stop")
    part = {"kind": "attachment", "mime_type": "image/svg+xml", "name": "x.svg", "data": "PHN2Zz4="}
    api.post("/sessions/up/messages", json={"messages": {"role": "user", "parts": [part]}, "format": "recollect"})
    count = 0
    for message in api.get("/sessions/up/messages", params={"limit": 1000}).json()["messages"]:
        for number, part in enumerate(message["parts"]):
            if part["kind"] != "attachment":
                continue
            count += 1
            answer = api.get(f"{server.url}/files/up/{message['id']}/{number}")
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert answer.headers["x-content-type-options"] == "nosniff"
            inline = answer.headers["content-disposition"].startswith("inline")
            assert answer.headers["content-type"] in (
                ("image/png", "image/jpeg", "image/gif", "image/webp") if inline else ("application/octet-stream",)
            )
            assert answer.headers["cache-control"].startswith("private")
    assert count > 2


def query_parameters():
    """Yield the path of each GET operation with the name of each of its query parameters."""
    for path, item in json.loads(OPENAPI.read_text())["paths"].items():
        for parameter in item.get("get", {}).get("parameters", ()):
            if parameter["in"] == "query" and "{" not in path:
                yield path.removeprefix("/api/v1"), parameter["name"]


def test_sql_and_search_syntax_in_parameters_is_text(api, server):
    api.put("/sessions/target", json={"title": "target"})
    api.post("/sessions/target/messages", json={"messages": {"role": "user", "content": "a treasure"}})
    parameters = list(query_parameters())
    assert len(parameters) > 20
    for turn, word in enumerate(SQL_SYNTAX + SEARCH_SYNTAX):
        for path, field in parameters[turn % 8 :: 8]:
            with api.stream("GET", path, params={"q": "a", "name": "target", field: word}) as answer:
                assert answer.status_code < 500, (path, field, word)
        if word.isprintable():
            session_path = "/sessions/" + "".join(f"%{byte:02x}" for byte in f"inject {word}".encode())
            session = api.put(session_path, json={"title": word, "model": word, "metadata": {word: word}})
            assert session.status_code in (200, 201), session.text
            stored_message = api.post(f"{session_path}/messages", json={"messages": {"role": "user", "content": word}})
            assert stored_message.status_code == 201, stored_message.text
            assert api.get(f"{session_path}/messages").json()["messages"][0]["parts"][0]["text"] == word
        assert api.get(f"{server.url}/page/search", params={"q": word}).status_code < 500
    assert api.get("/sessions/target").json()["title"] == "target"
    assert [hit["session"] for hit in api.get("/search", params={"q": "treasure"}).json()["hits"]] == ["target"]


def test_deeply_nested_and_invalid_bodies_are_refused(api):
    api.put("/sessions/a")
    for body in (
        b"[" * 100_000, b'{"a":' * 100_000, b'{"messages":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"messages": {"role": "user", "content": ' + b'[{"type":"x","a":' * 3_000 + b"1" + b"}]" * 3_000 + b"}}",
        b'{"messages": {"role": "user", "content": "x", "n": ' + b"9" * 100_000 + b"}}", b"\xff\xfe", b"", b"null", b"1e999", b"NaN",
        b'{"messages": {"role": "user", "content": "\xed\xa0\x80"}}', b'{"messages": []}', b'{"messages": {}}', b"{" + b'"a":1,' * 50_000 + b'"a":1}',
    ):  # fmt: skip
        for path in ("/sessions/a/messages", "/sessions/a/chat", "/sessions", "/sessions/a/turns"):
            answer = api.post(path, content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, (path, body[:40], answer.text[:300])
    for body in (
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\x00" * 1_000,
        b'{"recollect": 1}\n' * 100,
        b"\xff\xfe\x00",
        b"",
    ):
        answer = api.post("/import", content=body)
        assert answer.status_code < 500, (body[:40], answer.text[:300])


def test_the_token_is_in_no_log_and_no_error(server, api, caplog, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("recollect.server.api.messages.message_to_dict", fail)
    api.put("/sessions/a")
    api.post("/sessions/a/messages", json={"messages": {"role": "user", "content": "x"}})
    with caplog.at_level(logging.DEBUG):
        cookie = cookie_of(server)
        responses = [
            api.get("/sessions/a/messages").text, api.get("/sessions/a%0AINFO:forged/messages").text,
            httpx.get(f"{server.url}/c/a?token={TOKEN}x").text,
            httpx.get(f"{server.url}/c/a?token={TOKEN}x", headers={"Accept": "text/html"}).text,
            httpx.get(f"{server.url}/api/v1/sessions/a/messages", headers={"Cookie": cookie}).text,
            send_raw(server, f"GET /?token={TOKEN} HTTP/1.1\r\nbroken\r\n\r\n").decode(),
        ]  # fmt: skip
    assert "server-error" in responses[0]
    log_lines = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    for text in (*responses, *log_lines):
        assert TOKEN not in text
        assert cookie.partition("=")[2] not in text
        assert "\n" not in text or text in responses


def test_a_lone_surrogate_is_not_a_server_error(server, api):
    api.put("/sessions/a")
    surrogate = json.dumps("\ud800").encode()
    for method, path, body in (
        ("PUT", "/last-session", b'{"session": %b}' % surrogate), ("POST", "/sessions/a/chat", surrogate),
        ("POST", f"{server.url}/page/conversation/a/switch", b'{"branch": %b}' % surrogate),
        ("POST", f"{server.url}/page/conversation/a/edit", b'{"message": %b, "text": "x"}' % surrogate),
    ):  # fmt: skip
        answer = api.request(method, path, content=body, headers=JSON)
        assert 400 <= answer.status_code < 500, (path, answer.text)
        assert answer.json()["code"]
    stored_message = api.post(
        "/sessions/a/messages", content=b'{"messages": {"role": "user", "content": %b}}' % surrogate, headers=JSON
    )
    assert stored_message.status_code == 201
    assert api.get(f"{server.url}/c/a").status_code == 200


def test_an_error_code_is_the_class_name_in_words():
    assert code_of(NotADatabase("x")) == "not-a-database"
    assert code_of(SessionInTrash("x")) == "session-in-trash"
    assert code_of(KeyReused("x")) == "key-reused"


def test_many_slow_clients_do_not_delay_others(server, api):
    """150 connections: half a header, half a body, an event stream, and a large response that is not read."""
    api.put("/sessions/big")
    for _ in range(4):
        assert api.post("/sessions/big/messages", json={"messages": [{"role": "user", "content": "y" * 500_000}]})
    headers = f"Host: 127.0.0.1:{server.port}\r\n{ACCESS}"
    requests = (
        "GET /api/v1/info HTTP/1.1\r\nHost: 127",
        f"POST /api/v1/sessions/big/messages HTTP/1.1\r\n{headers}Content-Type: application/json\r\nContent-Length: 999\r\n\r\n{{",
        f"GET /api/v1/changes HTTP/1.1\r\n{headers}Accept: text/event-stream\r\n\r\n",
        f"GET /api/v1/sessions/big/export?format=json HTTP/1.1\r\n{headers}\r\n",
    )
    sockets = []
    try:
        for number in range(150):
            sock = socket.socket()
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            sock.connect(("127.0.0.1", server.port))
            sock.sendall(requests[number % len(requests)].encode())
        for number in range(10):
            body = {"messages": [{"role": "user", "content": f"meanwhile {number}"}]}
            assert api.post("/sessions/other/messages", json=body).status_code in (201, 404)
            assert api.put("/sessions/other").status_code in (200, 201)
            assert api.get("/sessions").status_code == 200
        assert api.get("/sessions/other/messages").json()["messages"][-1]["parts"][0]["text"] == "meanwhile 9"
    finally:
        for sock in sockets:
            sock.close()
    assert api.get("/health").status_code == 200
