"""The server as someone attacks it who can reach its port, or whose page, file or title a person looks at."""

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
from running import LIMIT, TOKEN, cookie_of

from recollect.errors import KeyReused, NotADatabase, SessionInTrash
from recollect.server.access import HEADERS
from recollect.server.problem import code_of

ACCESS = f"Authorization: Bearer {TOKEN}\r\n"
OPENAPI = pathlib.Path(__file__).parents[2] / "docs" / "openapi.json"
JSON = {"Content-Type": "application/json"}
BODY = '{"id":"smuggled"}'
SQL = [
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
FTS = [
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


def raw(server, request, seconds=LIMIT):
    """Send bytes and give all that comes back until the server hangs up."""
    found = b""
    with socket.create_connection(("127.0.0.1", server.port), seconds) as link:
        link.settimeout(seconds)
        try:
            link.sendall(request.encode("latin-1") if isinstance(request, str) else request)
            while piece := link.recv(65_536):
                found += piece
        except ConnectionError:
            pass
    return found


def asked(server, line, host="Host: localhost\r\n", rest="", body=""):
    return raw(server, f"{line} HTTP/1.1\r\n{host}{rest}Connection: close\r\n\r\n{body}")


def status(answer):
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
def stranger(server):
    with server.client(None) as client:
        yield client


def test_the_host_is_one_name_with_a_port_and_nothing_else(server):
    for host in (
        "[::1].evil.example", "localhost:80@evil.example", "localhost:evil", "localhost:80:80", "localhost evil", "localhost/evil",
        "localhost.", "localhost#", "127.0.0.1.evil.example", "2130706433", "127.1", "0x7f000001", "localhost:999999", "[::1", "::1]",
    ):  # fmt: skip
        answer = asked(server, "GET /api/v1/sessions", f"Host: {host}\r\n", ACCESS)
        assert status(answer) in (400, 421), host
        assert b"sessions" not in answer.partition(b"\r\n\r\n")[2], host
    for host in ("localhost", "LocalHost:1", "127.0.0.1:80", "[::1]:80", f"localhost:{server.port}"):
        assert status(asked(server, "GET /api/v1/sessions", f"Host: {host}\r\n", ACCESS)) == 200, host


def test_a_target_with_a_host_in_it_does_not_stand_for_the_header(server):
    for host, line in (
        ("evil.example", "GET http://localhost/api/v1/sessions"),
        ("localhost", "GET http://evil.example/api/v1/sessions"),
    ):
        answer = asked(server, line, f"Host: {host}\r\n", ACCESS)
        assert status(answer) in (400, 404, 421)
        assert b'"sessions":' not in answer
    assert status(asked(server, "GET /api/v1/sessions", "Host: localhost\r\nHost: evil.example\r\n", ACCESS)) == 400
    assert status(asked(server, "GET /api/v1/sessions", "", ACCESS)) == 400
    assert status(raw(server, f"GET /api/v1/sessions HTTP/1.0\r\n{ACCESS}\r\n")) == 421


def test_bodies_that_lie_about_their_length_make_nothing(server, api):
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
        assert status(raw(server, head + rest)) == 400, rest
    with socket.create_connection(("127.0.0.1", server.port), LIMIT) as link:
        link.sendall((head + "Content-Length: 100\r\n\r\n" + BODY).encode())  # and hangs up in the middle
    assert api.get("/sessions/smuggled").status_code == 404


def test_what_follows_a_request_that_can_be_read_in_two_ways_is_not_answered(server):
    """To a proxy that counts the bytes, the second request is another client's, or it is part of the first one's body."""
    second = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = f"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n{ACCESS}"
    for rest in (
        f"Content-Length: {5 + len(second)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}",
        f"{ACCESS}Content-Length: 2\r\n\r\n{{}}{second}",
    ):
        answer = raw(server, head + rest)
        assert status(answer) == 400
        assert answer.count(b"HTTP/1.1") == 1
        assert b"\r\nconnection: close\r\n" in answer.lower()


def test_a_body_that_breaks_off_in_nonsense_is_answered_once(server, api, caplog):
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
                answer = raw(server, f"{head}Transfer-Encoding: chunked\r\n\r\n{rest}")
                assert answer.count(b"HTTP/1.1") == 1
                assert status(answer) == 400
        assert api.get("/sessions").status_code == 200
        server.close()  # what runs has ended, and has said what went wrong with it
    finally:
        log.setLevel(before)
        log.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"] == []


def test_a_form_whose_fields_are_no_text_is_refused(server, api):
    api.put("/sessions/a")
    for about, content in (
        ("", b"\xe3i\xaf"), ("Content-Type: text/plain; charset=klingon\r\n", b"qapla"),
        ("Content-Type: text/plain; charset=utf-16\r\n", b"odd"), ("Content-Type: text/plain; charset=rot13\r\n", b"x"),
        ("Content-Type: text/plain; charset=idna\r\n", b"xn--\xff"),
    ):  # fmt: skip
        field = b'--X\r\nContent-Disposition: form-data; name="text"\r\n' + about.encode()
        answer = api.post(
            f"{server.url}/page/conversation/a/say", content=field + b"\r\n" + content + b"\r\n--X--\r\n",
            headers={"Content-Type": "multipart/form-data; boundary=X"},
        )  # fmt: skip
        assert answer.status_code == 400, (about, answer.text)
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", "application/json", "text/plain"):
        answer = api.post(f"{server.url}/page/conversation/a/say", content=b"--X", headers={"Content-Type": kind})
        assert answer.status_code == 400, (kind, answer.text)


def test_requests_in_one_piece_are_answered_in_order_each_by_its_own_access(server):
    get = "GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
    answer = raw(server, f"{get}{ACCESS}\r\n{get}\r\n{get}{ACCESS}Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"401", b"200"]


def test_every_answer_has_the_headers_also_one_to_what_is_no_http(server, api, stranger):
    for request in (
        b"\x16\x03\x01\x00\xa5\x01\x00\x01",
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    ):
        answer = raw(server, request).lower()
        assert status(answer) == 400
        for name, value in HEADERS:
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
                assert all(name.decode() in answer.headers for name, _ in HEADERS), (method, path)
                assert answer.headers["cache-control"] == "no-store", (method, path)
                assert "access-control-allow-origin" not in answer.headers
                assert client is api or path == "/static/nothing" or answer.status_code == 401, (method, path)


def test_names_lead_to_no_other_file(server, api):
    api.put("/sessions/a")
    for name in (
        "../assets.py", "..%2fassets.py", "..%2f..%2f..%2fapp.py", "%2e%2e/assets.py", "..%5cassets.py", "%00", ".", "..", "",
        "x" * 5_000, "%F0%9F", "..;/assets.py", "/etc/passwd", "%2fetc%2fpasswd", "elements.css%00.py", "ELEMENTS.CSS",
    ):  # fmt: skip
        answer = asked(server, f"GET /static/{name}")
        assert status(answer) == 404, name
        assert b"import" not in answer
        assert status(asked(server, f"GET /files/{name}/1.1/0", rest=ACCESS)) == 404, name
        assert status(asked(server, f"GET /files/a/{name}/0", rest=ACCESS)) in (400, 404), name
        assert status(asked(server, f"GET /files/a/1.1/{name}", rest=ACCESS)) == 404, name
    assert status(asked(server, "GET /static/" + "y" * 3_000)) == 404


def test_a_token_works_in_no_address_of_the_api(server):
    for path in ("/api/v1/sessions", "//api/v1/sessions", "/api/v1//sessions", "/api/v1/sessions/"):
        answer = asked(server, f"GET {path}?token={TOKEN}")
        assert (status(answer), b"set-cookie" in answer.lower()) == (401, False), path
    for method in ("POST", "DELETE", "PUT", "HEAD"):
        assert status(asked(server, f"{method} /page/new?token={TOKEN}", rest="Content-Length: 0\r\n")) in (401, 403)


def test_cookies_are_of_this_port_and_this_token(server, serving, tmp_path):
    other = serving(tmp_path / "other.db", tokens={"another-token-0123456789-0123456789": ""})
    theirs = cookie_of(other, "another-token-0123456789-0123456789")
    value = theirs.partition("=")[2]
    mac = hmac.new(b"another-token-0123456789-0123456789", b"nonce", hashlib.sha256).hexdigest()
    empty = hmac.new(b"", b"nonce", hashlib.sha256).hexdigest()
    for cookie in (
        theirs, f"recollect-{server.port}={value}", f"recollect-{server.port}=nonce.{mac}", f"recollect-{server.port}=nonce.{empty}",
        f"recollect-{server.port}={TOKEN}", f"recollect-{server.port}=.{TOKEN}", "recollect-0=x.y", "=", f"recollect-{server.port}=é.é",
    ):  # fmt: skip
        answer = asked(server, "GET /api/v1/sessions", rest=f"Cookie: {cookie}\r\n")
        assert status(answer) == 401, cookie


def test_many_browsers_log_in_at_once(server):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        cookies = set(pool.map(lambda _: cookie_of(server), range(32)))
    assert len(cookies) == 32
    for cookie in cookies:
        assert status(asked(server, "GET /api/v1/last-session", rest=f"Cookie: {cookie}\r\n")) == 200


HOSTILE = [
    'a"; filename="b.html', "a\r\nSet-Cookie: x=1", "a\nb", "\u202egnp.exe", "../../etc/passwd", "..\\..\\x", "\x00", "a;b,c", "é😀", "'",
    "a%0d%0aX: y", "x" * 5_000, "<script>", " ", ".", "..", "-rf", ".bashrc", "CON", "nul.html", "\u2028", "half \ud83d",
    "\U0001f600" * 5_000,
]  # fmt: skip


def test_names_and_titles_write_no_header(server, api):
    name = "/sessions/named"
    api.put(name)
    for number, hostile in enumerate(HOSTILE):
        titled = api.patch(name, content=json.dumps({"title": hostile}), headers=JSON)
        assert titled.status_code in (200, 400), hostile
        format = ("md", "html", "json", "jsonl")[number % 4]
        harmless(api.get(f"{name}/export", params={"format": format}))
        harmless(api.get(f"{server.url}/page/export", params={"format": format, "session": "named"}))
        data = base64.b64encode(b"<script>1</script>").decode()
        part = {"kind": "attachment", "mime_type": "text/html", "name": hostile, "data": data}
        given = {"messages": {"role": "user", "parts": [part]}, "format": "recollect"}
        kept = api.post(f"{name}/messages", content=json.dumps(given), headers=JSON)
        assert kept.status_code == 201, kept.text
        for path in (f"{name}/messages/1.{number + 1}/files/0", f"{server.url}/files/named/1.{number + 1}/0"):
            answer = api.get(path)
            harmless(answer)
            assert answer.headers["content-type"] == "application/octet-stream"


def harmless(answer):
    """Whether a file comes as something to be saved, with the headers that the server means and no other."""
    assert answer.status_code == 200, answer.text
    told = answer.headers["content-disposition"]
    assert told.startswith("attachment"), told
    assert re.fullmatch(r"[\x20-\x7e]+", told)
    assert told.count('"') in (0, 2)
    named = urllib.parse.unquote(told.partition("filename*=UTF-8''")[2])
    assert named.isprintable()
    assert not set(named) & set("/\\")
    for name in (named, told.split('"')[1]):
        assert not name.startswith(("-", "."))
        assert name.partition(".")[0].upper() not in ("CON", "NUL")
    assert len(told) < 2_000
    assert "set-cookie" not in answer.headers
    assert "x" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"


KINDS = [
    ("x.svg", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"),
    ("x.html", "text/html", b"<script>1</script>"), ("x.png", "image/png", b"<script>1</script>"), ("x.xml", "text/xml", b"<a/>"),
    ("x.png", "text/html", b"<html>"), ("x.html", "image/png", b"<html>"), ("x.js", "text/javascript", b"1"),
    ("x.xhtml", "application/xhtml+xml", b"<html/>"), ("x.pdf", "application/pdf", b"%PDF-1.7"), ("x", "a/b\r\nX: y", b"1"),
]  # fmt: skip


def test_what_is_sent_along_never_runs_whatever_it_says_it_is(server, api):
    api.put("/sessions/up")
    for name, kind, content in KINDS:
        answer = api.post(
            f"{server.url}/page/conversation/up/say", data={"text": "look"}, files={"files": (name, content, kind)},
            headers={"Origin": server.url},
        )  # fmt: skip
        assert answer.status_code in (202, 400, 409), answer.text
        with api.stream("GET", "/sessions/up/events") as _:
            api.post("/sessions/up/stop")
    part = {"kind": "attachment", "mime_type": "image/svg+xml", "name": "x.svg", "data": "PHN2Zz4="}
    api.post("/sessions/up/messages", json={"messages": {"role": "user", "parts": [part]}, "format": "recollect"})
    seen = 0
    for message in api.get("/sessions/up/messages", params={"limit": 1000}).json()["messages"]:
        for number, part in enumerate(message["parts"]):
            if part["kind"] != "attachment":
                continue
            seen += 1
            answer = api.get(f"{server.url}/files/up/{message['id']}/{number}")
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert answer.headers["x-content-type-options"] == "nosniff"
            inline = answer.headers["content-disposition"].startswith("inline")
            assert answer.headers["content-type"] in (
                ("image/png", "image/jpeg", "image/gif", "image/webp") if inline else ("application/octet-stream",)
            )
            assert answer.headers["cache-control"].startswith("private")
    assert seen > 2


def queries():
    """Every parameter of a query that takes text, with the path of its operation."""
    for path, item in json.loads(OPENAPI.read_text())["paths"].items():
        for about in item.get("get", {}).get("parameters", ()):
            if about["in"] == "query" and "{" not in path:
                yield path.removeprefix("/api/v1"), about["name"]


def test_words_are_never_commands_to_the_database(api, server):
    api.put("/sessions/kept", json={"title": "kept"})
    api.post("/sessions/kept/messages", json={"messages": {"role": "user", "content": "a treasure"}})
    known = list(queries())
    assert len(known) > 20
    for turn, word in enumerate(SQL + FTS):
        for path, field in known[turn % 8 :: 8]:
            with api.stream("GET", path, params={"q": "a", "name": "kept", field: word}) as answer:
                assert answer.status_code < 500, (path, field, word)
        if word.isprintable():
            at = "/sessions/" + "".join(f"%{byte:02x}" for byte in f"inject {word}".encode())
            made = api.put(at, json={"title": word, "model": word, "metadata": {word: word}})
            assert made.status_code in (200, 201), made.text
            said = api.post(f"{at}/messages", json={"messages": {"role": "user", "content": word}})
            assert said.status_code == 201, said.text
            assert api.get(f"{at}/messages").json()["messages"][0]["parts"][0]["text"] == word
        assert api.get(f"{server.url}/page/search", params={"q": word}).status_code < 500
    assert api.get("/sessions/kept").json()["title"] == "kept"
    assert [hit["session"] for hit in api.get("/search", params={"q": "treasure"}).json()["hits"]] == ["kept"]


def test_bodies_that_are_nested_or_odd_are_refused(api):
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
    def broken(*_, **__):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("recollect.server.api.messages.plain", broken)
    api.put("/sessions/a")
    api.post("/sessions/a/messages", json={"messages": {"role": "user", "content": "x"}})
    with caplog.at_level(logging.DEBUG):
        cookie = cookie_of(server)
        told = [
            api.get("/sessions/a/messages").text, api.get("/sessions/a%0AINFO:forged/messages").text,
            httpx.get(f"{server.url}/c/a?token={TOKEN}x").text,
            httpx.get(f"{server.url}/c/a?token={TOKEN}x", headers={"Accept": "text/html"}).text,
            httpx.get(f"{server.url}/api/v1/sessions/a/messages", headers={"Cookie": cookie}).text,
            raw(server, f"GET /?token={TOKEN} HTTP/1.1\r\nbroken\r\n\r\n").decode(),
        ]  # fmt: skip
    assert "server-error" in told[0]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    for text in (*told, *ours):
        assert TOKEN not in text
        assert cookie.partition("=")[2] not in text
        assert "\n" not in text or text in told


def test_half_a_surrogate_pair_is_no_error_of_the_server(server, api):
    api.put("/sessions/a")
    half = json.dumps("\ud800").encode()
    for method, path, body in (
        ("PUT", "/last-session", b'{"session": %b}' % half), ("POST", "/sessions/a/chat", half),
        ("POST", f"{server.url}/page/conversation/a/switch", b'{"branch": %b}' % half),
        ("POST", f"{server.url}/page/conversation/a/edit", b'{"message": %b, "text": "x"}' % half),
    ):  # fmt: skip
        answer = api.request(method, path, content=body, headers=JSON)
        assert 400 <= answer.status_code < 500, (path, answer.text)
        assert answer.json()["code"]
    said = api.post(
        "/sessions/a/messages", content=b'{"messages": {"role": "user", "content": %b}}' % half, headers=JSON
    )
    assert said.status_code == 201
    assert api.get(f"{server.url}/c/a").status_code == 200


def test_a_code_is_the_name_of_its_error_in_words():
    assert code_of(NotADatabase("x")) == "not-a-database"
    assert code_of(SessionInTrash("x")) == "session-in-trash"
    assert code_of(KeyReused("x")) == "key-reused"


def test_many_who_dawdle_keep_nobody_else_waiting(server, api):
    """Half a head, half a body, an event stream and a large answer that nobody reads: a hundred and fifty at once."""
    api.put("/sessions/big")
    for _ in range(4):
        assert api.post("/sessions/big/messages", json={"messages": [{"role": "user", "content": "y" * 500_000}]})
    at = f"Host: 127.0.0.1:{server.port}\r\n{ACCESS}"
    requests = (
        "GET /api/v1/info HTTP/1.1\r\nHost: 127",
        f"POST /api/v1/sessions/big/messages HTTP/1.1\r\n{at}Content-Type: application/json\r\nContent-Length: 999\r\n\r\n{{",
        f"GET /api/v1/changes HTTP/1.1\r\n{at}Accept: text/event-stream\r\n\r\n",
        f"GET /api/v1/sessions/big/export?format=json HTTP/1.1\r\n{at}\r\n",
    )
    links = []
    try:
        for number in range(150):
            link = socket.socket()
            links.append(link)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            link.connect(("127.0.0.1", server.port))
            link.sendall(requests[number % len(requests)].encode())
        for number in range(10):
            said = {"messages": [{"role": "user", "content": f"said meanwhile {number}"}]}
            assert api.post("/sessions/a-talk/messages", json=said).status_code in (201, 404)
            assert api.put("/sessions/a-talk").status_code in (200, 201)
            assert api.get("/sessions").status_code == 200
        assert api.get("/sessions/a-talk/messages").json()["messages"][-1]["parts"][0]["text"] == "said meanwhile 9"
    finally:
        for link in links:
            link.close()
    assert api.get("/health").status_code == 200
