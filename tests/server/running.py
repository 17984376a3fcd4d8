"""A server for the tests, with real sockets: in a thread of this process, or as the command that a person starts."""

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
from recollect.server.connection import Connection

TOKEN = "a-token-for-the-tests-0123456789"
LIMIT = 60.0


class Words:
    """A model that says as many words as it is asked for, and stops in the middle while the gate is shut."""

    name = "words"
    window = 10_000

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()

    async def run(self, spoken, *, instructions, tools, toolsets=()):
        text = "".join(part.text for part in spoken[-1].parts if isinstance(part, TextPart))
        asked = re.search(r"(\d+) words", text)
        said = []
        for number in range(int(asked.group(1)) if asked else 3):
            if number == 2 and not self.gate.is_set():
                until = time.monotonic() + LIMIT
                while not self.gate.is_set() and time.monotonic() < until:
                    await asyncio.sleep(0.01)
            said.append(f"w{number} ")
            yield TextDelta(text=said[-1])
            await asyncio.sleep(0)
        if "fail" in text:
            raise RuntimeError("the model broke")
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="".join(said)),), model="words"))

    async def write(self, task, spoken):
        return f"a {task}"

    async def close(self):
        pass


class Server:
    """A server in a thread: started when it is made, ended by close()."""

    def __init__(self, place, *, tokens=None, hosts=(), public=False, team=False, connection=Connection):
        self.model = Words()
        self.tokens = tokens or {TOKEN: ""}
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._options = {"hosts": hosts, "port": self.port, "public": public, "team": team}
        self._place = str(place)
        self._connection = connection
        self._ready = threading.Event()
        self._failed = None
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        assert self._ready.wait(LIMIT)
        if self._failed is not None:
            raise self._failed

    def _main(self):
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  raised where the server was started
            self._failed = error
        finally:
            self._ready.set()

    async def _run(self):
        accounts = Accounts(self._place, lambda store: Agent(self.model, store=store, name="web"))
        self.accounts, self.loop = accounts, asyncio.get_running_loop()
        self.app = app.make(accounts, self.tokens, **self._options)
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


class Command:
    """`recollect serve`, as a person starts it."""

    def __init__(self, folder, *arguments, **environment):
        self.folder = folder
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        told = {
            "RECOLLECT_DB": str(folder / "r.db"), "XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "serve", *(arguments or ("--port", "0"))],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**plain, **told, **environment},
        )  # fmt: skip
        self.lines = [self.process.stdout.readline().strip()]
        found = re.search(r"(http://[^/]+)/(?:#token=(\S+))?", self.lines[0])
        self.url, self.token = found.groups() if found else (None, None)

    def wait_until_up(self):
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/api/v1/health", timeout=5).status_code == 200:
                    return self
            assert self.process.poll() is None, self.rest()
            time.sleep(0.05)
        raise AssertionError("The server did not come up.")

    def client(self):
        return httpx.Client(
            base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {self.token}"}, timeout=LIMIT
        )

    def rest(self):
        return "\n".join([*self.lines, self.process.stdout.read()])

    def end(self, sign=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sign)
        return self.process.wait(LIMIT)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        self.process.stdout.close()


class Events:
    """An event stream as a client reads it."""

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
        """Read to an event of a name, and give all up to it."""
        found = []
        for item in self:
            found.append(item)
            if item[0] in names:
                return found
        raise AssertionError(f"The stream ended before {names}: {found}")


def log_in(server, token=TOKEN, **headers):
    """Post a token to /login as the form of the page does, and return the answer."""
    return httpx.post(f"{server.url}/login", data={"token": token}, headers={"Origin": server.url, **headers})


def cookie_of(server, token=TOKEN):
    """Return the cookie that a browser gets for a token."""
    answer = log_in(server, token)
    assert answer.status_code == 303, answer.text
    return answer.headers["set-cookie"].partition(";")[0]


def wait_for(condition, what="it"):
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"Waited in vain for {what}.")
