"""Servers for the tests, with real sockets: in a thread of this process, or as a `recollect serve` process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import uvicorn

from recollect import Draft, TextPart
from recollect.agent import Agent
from recollect.agent.events import Responded, TextDelta
from recollect.server import app
from recollect.server.account import Accounts
from recollect.server.connection import HttpConnection

TOKEN = "a-token-for-the-tests-0123456789"
LIMIT = 60.0  # seconds. A wait that takes longer is a failure; a busy machine needs a few.


class WordModel:
    """A model that answers with the requested number of words, and pauses after two of them while the gate is closed."""

    name = "words"
    window = 10_000

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()

    async def run(self, messages, *, instructions, tools, toolsets=()):
        text = "".join(part.text for part in messages[-1].parts if isinstance(part, TextPart))
        request = re.search(r"(\d+) words", text)
        words = []
        for number in range(int(request.group(1)) if request else 3):
            if number == 2 and not self.gate.is_set():
                deadline = time.monotonic() + LIMIT
                while not self.gate.is_set() and time.monotonic() < deadline:
                    await asyncio.sleep(0.01)
            words.append(f"w{number} ")
            yield TextDelta(text=words[-1])
            await asyncio.sleep(0)
        if "fail" in text:
            raise RuntimeError("the model broke")
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="".join(words)),), model="words"))

    async def write(self, task, messages):
        return f"a {task}"

    async def close(self):
        pass


class Server:
    """A server in a thread, from the constructor until close()."""

    def __init__(self, database, *, tokens=None, hosts=(), public=False, team=False, connection=HttpConnection):
        self.model = WordModel()
        self.tokens = tokens or {TOKEN: ""}
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._options = {"hosts": hosts, "port": self.port, "public": public, "team": team}
        self._database = str(database)
        self._connection = connection
        self._ready = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        assert self._ready.wait(LIMIT)
        if self._error is not None:
            raise self._error

    def _main(self):
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  the constructor raises it again
            self._error = error
        finally:
            self._ready.set()

    async def _run(self):
        accounts = Accounts(self._database, lambda store: Agent(self.model, store=store, name="web"))
        self.accounts, self.loop = accounts, asyncio.get_running_loop()
        self.app = app.create_app(accounts, self.tokens, **self._options)
        config = uvicorn.Config(
            self.app, log_level="critical", access_log=False, lifespan="on", timeout_graceful_shutdown=3,
            http=self._connection, ws="none", server_header=False, proxy_headers=False,
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self._ready.set()
        await self.server.serve(sockets=[self._listener])

    def client(self, token=TOKEN, **options):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(
            base_url=f"{self.url}/api/v1", headers={**headers, **options.pop("headers", {})}, timeout=LIMIT, **options
        )

    def close(self):
        self.model.gate.set()
        if not self._thread.is_alive():
            return
        self.loop.call_soon_threadsafe(self.accounts.closing.set)
        self.server.should_exit = True
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()


class ServeProcess:
    """A process of `recollect serve`."""

    def __init__(self, folder, *arguments, **environment):
        self.folder = folder
        inherited_variables = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        variables = {
            "RECOLLECT_DB": str(folder / "r.db"), "XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "serve", *(arguments or ("--port", "0"))],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**inherited_variables, **variables, **environment},
        )  # fmt: skip
        self.lines = [self.process.stdout.readline().strip()]
        match = re.search(r"(http://[^/]+)/(?:#token=(\S+))?", self.lines[0])
        self.url, self.token = match.groups() if match else (None, None)

    def wait_until_up(self):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/api/v1/health", timeout=5).status_code == 200:
                    return self
            assert self.process.poll() is None, self.remaining_output()
            time.sleep(0.05)
        raise AssertionError("The server did not come up.")

    def client(self):
        return httpx.Client(
            base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {self.token}"}, timeout=LIMIT
        )

    def remaining_output(self):
        return "\n".join([*self.lines, self.process.stdout.read()])

    def end(self, signal_number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(LIMIT)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        self.process.stdout.close()


class Events:
    """An event stream, as a client parses it."""

    def __init__(self, response):
        self.response = response
        self._lines = response.iter_lines()
        self.id = None
        self.comments = []

    def __iter__(self):
        return self

    def __next__(self):
        name, data = None, []
        for line in self._lines:
            if not line:
                if name is not None:
                    return name, json.loads("\n".join(data)), self.id
                continue
            field, _, value = line.partition(": ")
            if field == "":
                self.comments.append(value)
            elif line.startswith(":"):
                self.comments.append(line)
            elif field == "id":
                self.id = value
            elif field == "event":
                name = value
            elif field == "data":
                data.append(value)
        raise StopIteration

    def until(self, *names):
        """Read up to an event with one of the names, and return the events."""
        events = []
        for item in self:
            events.append(item)
            if item[0] in names:
                return events
        raise AssertionError(f"The stream ended before {names}: {events}")


def log_in(server, token=TOKEN, **headers):
    """Post a token to /login like the form of the page, and return the response."""
    return httpx.post(f"{server.url}/login", data={"token": token}, headers={"Origin": server.url, **headers})


def cookie_of(server, token=TOKEN):
    """Return the cookie that a browser gets for a token."""
    answer = log_in(server, token)
    assert answer.status_code == 303, answer.text
    return answer.headers["set-cookie"].partition(";")[0]


def wait_for(condition, description="the condition"):
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"Timed out while waiting for {description}.")
