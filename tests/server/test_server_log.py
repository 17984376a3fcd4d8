"""The log of a server process: its lines, which never contain a token, content or a query string."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
from server_harness import LIMIT, wait_for

from recollect.errors import StoreUnavailable
from recollect.server import changes, log

SECRET = "xyzzy-content-of-a-person"
TOKEN = "a-configured-token-0123456789-abcdefg"
WRONG = "a-wrong-token-0123456789-0123456789-x"
ASYNCIO_ERROR = f"Task exception was never retrieved\nfuture: {SECRET}"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) \S.*")


class LoggedServer:
    """A process of `recollect serve` whose standard error is read while it runs."""

    def __init__(self, folder, *arguments, **environment):
        inherited_variables = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        variables = {
            "RECOLLECT_DB": str(folder / "r.db"), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder),
            "RECOLLECT_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "serve", "--port", "0", *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**inherited_variables, **variables, **environment},
        )  # fmt: skip
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = re.search(r"http://[^/]+", self.process.stdout.readline()).group()
        self.port = int(self.url.rpartition(":")[2])
        wait_for(self._answers)

    def _read(self):
        for line in self.process.stderr or ():
            self.lines.append(line.rstrip("\n"))

    def _answers(self):
        try:
            return httpx.get(f"{self.url}/api/v1/health", timeout=5).status_code == 200
        except httpx.TransportError:
            assert self.process.poll() is None, self.lines
            return False

    def api(self, token=TOKEN):
        return httpx.Client(base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=LIMIT)

    def wait_for_line(self, pattern):
        return wait_for(lambda: [line for line in self.lines if re.search(pattern, line)], pattern)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        self.process.stdout.close()
        self.process.stderr.close()
        return self.lines


@pytest.fixture
def start_logged(tmp_path):
    started = []

    def start(*arguments, **environment):
        started.append(LoggedServer(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for server in started:
        server.end()


def send_raw(server, text):
    with socket.create_connection(("127.0.0.1", server.port), LIMIT) as sock:
        sock.sendall(text.encode("latin-1"))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass


def send_everything(server):
    """Send tokens and content in every way that a client can, and return the value of the login cookie."""
    send_api_requests(server)
    cookie = send_page_requests(server)
    send_raw_requests(server)
    return cookie.partition("=")[2]


def send_api_requests(server):
    """Send content to the API, and wrong tokens."""
    with server.api() as api:
        api.put("/sessions/a", json={"title": SECRET, "system_prompt": SECRET, "metadata": {SECRET: SECRET}})
        api.patch("/sessions/a", json={"title": SECRET})
        api.post("/sessions/a/messages", json={"messages": {"role": "user", "content": SECRET}})
        api.post(
            "/sessions/a/messages", content=f'{{"messages": "{SECRET}', headers={"Content-Type": "application/json"}
        )
        api.post("/sessions/a/messages", json={"messages": {"role": SECRET, "content": SECRET}, SECRET: 1})
        data = base64.b64encode(SECRET.encode()).decode()
        api.post(
            "/sessions/a/chat",
            json={"text": SECRET, "attachments": [{"mime_type": "text/plain", "data": data, "name": SECRET}]},
        )
        with api.stream(
            "POST", "/sessions/a/chat", json={"text": SECRET}, headers={"Accept": "text/event-stream"}
        ) as stream:
            stream.read()
        api.get("/search", params={"q": SECRET})
        api.get("/resolve", params={"name": SECRET})
        api.put("/records/kind/key", json={"value": SECRET})
        api.post("/import", content=json.dumps({"type": SECRET}))
        api.post("/sessions/a/command", json={"line": f"/title {SECRET}"})
        api.get(
            "/sessions",
            params={"token": TOKEN, "after": SECRET},
            headers={"Cookie": f"x={TOKEN}", "Referer": f"http://x/?{TOKEN}"},
        )
        api.get("/sessions", headers={"User-Agent": SECRET, "X-Forwarded-For": SECRET, SECRET: SECRET})
        api.get(f"/sessions/{TOKEN}")
        api.get(f"/sessions/{TOKEN[:5]}%{ord(TOKEN[5]):x}{TOKEN[6:]}")
    for token in (WRONG, TOKEN + "x"):
        with server.api(token) as api:
            api.get("/sessions")
            api.get("/sessions", headers={"Accept": "text/html"})


def send_page_requests(server):
    """Log in with correct and wrong tokens, send content to the page, and return the cookie."""
    form = {"Origin": server.url}
    cookie = (
        httpx.post(f"{server.url}/login", data={"token": TOKEN}, headers=form).headers["set-cookie"].partition(";")[0]
    )
    httpx.post(f"{server.url}/login", data={"token": WRONG}, headers=form)
    httpx.post(f"{server.url}/login", params={"token": WRONG}, data={"token": WRONG}, headers=form)
    httpx.get(f"{server.url}/", params={"token": TOKEN}, headers={"Accept": "text/html"})
    httpx.get(f"{server.url}/c/a?m={SECRET}", headers={"Cookie": cookie})
    httpx.get(f"{server.url}/page/search?q={SECRET}", headers={"Cookie": cookie})
    httpx.post(f"{server.url}/page/conversation/a/say", data={"text": SECRET}, headers={"Cookie": cookie, **form})
    return cookie


def send_raw_requests(server):
    """Send tokens and content in malformed requests."""
    head = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
    send_raw(server, f"GET http://user:{TOKEN}@localhost/api/v1/info?q={SECRET} HTTP/1.1\r\n{head}\r\n")
    send_raw(server, f"GET /api/v1/info#{SECRET}{TOKEN} HTTP/1.1\r\n{head}\r\n")
    send_raw(server, f"GET /a%0Aforged%1b[31m%e2%80%ae HTTP/1.1\r\n{head}\r\n")
    send_raw(server, f"GET /api/v1/info HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nbroken {SECRET}\r\n\r\n")
    send_raw(server, f"{SECRET} {TOKEN}\r\n\r\n")
    send_raw(server, f'POST /api/v1/sessions/a/messages HTTP/1.1\r\n{head}Content-Length: 999\r\n\r\n{{"x": "{SECRET}')


@pytest.mark.parametrize("level", ["debug", "info"])
def test_no_token_and_no_content_is_ever_logged(start_logged, level):
    server = start_logged("--log-level", level)
    cookie = send_everything(server)
    server.wait_for_line("/api/v1/info")
    lines = server.end()
    text = "\n".join(lines)
    for secret in (SECRET, TOKEN, WRONG, cookie, "forged\n", "\x1b", "?", "title=", "q="):
        assert secret not in text, [line for line in lines if secret in line]
    assert all(LINE.fullmatch(line) for line in lines if level == "info"), lines
    assert re.search(r"127\.0\.0\.1 PUT /api/v1/sessions/a 200 \d+\.\d ms", text)
    assert re.search(r"GET /a%0Aforged%1b\[31m%e2%80%ae 404", text)
    assert re.search(r"GET \(a path that contains a token\) 404", text)
    assert re.search(r" warning Failed login from 127\.0\.0\.1: wrong bearer token", text)
    assert re.search(r"sent an invalid request 400", text)
    assert ("/static/" in text) is False
    assert ("/api/v1/health 200" in text) is (level == "debug")


def test_the_level_is_an_option_a_variable_and_a_setting(start_logged, tmp_path):
    error_server = start_logged("--log-level", "error")
    with error_server.api() as api, error_server.api(WRONG) as wrong:
        assert api.get("/info").status_code == 200
        assert wrong.get("/info").status_code == 401
    assert error_server.end() == []
    warning_server = start_logged(RECOLLECT_LOG_LEVEL="warning")
    with warning_server.api() as api, warning_server.api(WRONG) as wrong:
        api.get("/info")
        wrong.get("/info")
    assert [line.partition("Z ")[2] for line in warning_server.end()] == [
        "warning Failed login from 127.0.0.1: wrong bearer token"
    ]
    path = tmp_path / "config.toml"
    path.write_text('[server]\nlog_level = "loud"\n')
    path.chmod(0o600)
    env = {**os.environ, "RECOLLECT_CONFIG": str(path)}
    result = subprocess.run(
        [sys.executable, "-m", "recollect", "config"], env=env, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert 'one of "debug", "info", "warning", "error"' in result.stderr


def test_a_full_log_pipe_does_not_block_the_server(tmp_path):
    """A paused terminal does not read standard error, and the pipe fills: the server must still answer."""
    inherited_variables = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
    env = {
        **inherited_variables,
        "RECOLLECT_DB": str(tmp_path / "r.db"),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "RECOLLECT_TOKEN": TOKEN,
    }
    command = [sys.executable, "-u", "-m", "recollect", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        url = re.search(r"http://[^/]+", process.stdout.readline()).group()
        path = "/api/v1/" + "y" * 250
        with httpx.Client(
            headers={"Authorization": f"Bearer {TOKEN}"}, timeout=LIMIT, transport=httpx.HTTPTransport(retries=9)
        ) as api:
            for _ in range(400):  # more than 100 kB of lines; a pipe holds 64 kB
                assert api.get(url + path).status_code == 404
        process.terminate()
        assert process.wait(LIMIT) is not None
    finally:
        process.kill()
        process.wait(LIMIT)
        process.stdout.close()
        process.stderr.close()


def test_the_log_names_the_owner_if_there_are_several(start_logged, postgres):
    owners = f"alice={TOKEN},bob={TOKEN}-of-bob"
    server = start_logged(RECOLLECT_DB=postgres, RECOLLECT_OWNERS=owners, RECOLLECT_TOKEN="")
    for token in (TOKEN, f"{TOKEN}-of-bob"):
        with server.api(token) as api:
            api.get("/info")
    text = "\n".join(server.end())
    assert "127.0.0.1 alice GET /api/v1/info 200" in text
    assert "127.0.0.1 bob GET /api/v1/info 200" in text
    assert TOKEN not in text


def test_a_missing_database_is_logged_at_intervals(start_logged, tmp_path):
    server = start_logged()
    with server.api() as api:
        api.put("/sessions/a")
        api.get("/sessions/a")
        for name in ("r.db", "r.db-wal", "r.db-shm"):
            os.unlink(tmp_path / name)
        wait_for(lambda: api.get("/sessions/a").status_code == 503)
        start = time.monotonic()
        for _ in range(100):
            assert api.get("/sessions/a").status_code == 503
        seconds = time.monotonic() - start
    lines = [line for line in server.end() if "/api/v1/sessions/a failed with 503 (StoreUnavailable)" in line]
    assert 1 <= len(lines) <= 2 + seconds / log.REPEAT_INTERVAL
    assert all(" error " in line for line in lines)


def test_exceptions_are_logged_by_class_and_with_a_stack_at_debug_level(capsys):
    def fail_with_secret():
        raise ZeroDivisionError(SECRET) from ValueError(SECRET)

    for level, stack in (("info", False), ("debug", True)):
        with log.to_stderr(level):
            for name in ("recollect.server", "litestar", "asyncio"):
                try:
                    fail_with_secret()
                except ZeroDivisionError as error:
                    logging.getLogger(name).exception("failed\nwith %s", "x", exc_info=error)
            logging.getLogger("asyncio").error(ASYNCIO_ERROR)
            logging.getLogger("httpx").info("HTTP Request: %s", SECRET)
            logging.getLogger("other").warning("said %s", SECRET)
        text = capsys.readouterr().err
        assert SECRET not in text
        assert "error failed\\nwith x (ZeroDivisionError)" in text
        assert "error litestar: failed (ZeroDivisionError)" in text
        assert "error asyncio: Task exception was never retrieved\n" in text
        assert "warning other: said %s\n" in text
        assert "HTTP Request" not in text
        assert ("in fail_with_secret" in text) is stack
        assert ("builtins.ValueError" in text) is stack


def test_a_failed_turn_is_logged_without_the_error_text(server, api, caplog):
    api.put("/sessions/a")
    with caplog.at_level(logging.WARNING, "recollect.server"):
        api.post("/sessions/a/chat", json={"text": f"fail {SECRET}"})
        wait_for(lambda: [record for record in caplog.records if "A turn in session 'a' failed" in record.getMessage()])
    for record in caplog.records:
        line = log.LineFormatter(stacks=True).format(record)
        assert SECRET not in line
        assert "the model broke" not in line


class LostStore:
    """A store whose watch fails a number of times, and then works."""

    def __init__(self, failures):
        self.failures = failures
        self.back = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watch(self):
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable(SECRET)
        yield self._changes()

    async def _changes(self):
        self.back.set()
        await asyncio.Event().wait()
        yield None


def test_a_lost_watch_and_its_return_are_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(changes, "_RETRY", 0.001)

    async def scenario():
        store = LostStore(50)
        watcher = changes.ChangeWatcher(store)
        await watcher.start()
        await store.back.wait()
        await watcher.close()

    with caplog.at_level(logging.DEBUG, "recollect.server"):
        asyncio.run(asyncio.wait_for(scenario(), LIMIT))
    assert [(record.levelname, record.getMessage()) for record in caplog.records if record.name == log.LOGGER_NAME] == [
        ("ERROR", "Changes of the store cannot be watched; trying again"),
        ("WARNING", "Changes of the store can be watched again"),
    ]
