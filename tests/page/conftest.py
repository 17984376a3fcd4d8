"""A real server in its own process, a browser that opens its pages, and its store, as another process would open it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from page_helpers import TOKEN, WAIT, ServerWithStore, wait_for_server

import recollect

BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
LOOP = []  # the event loop of the open browser
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip

# Loaded, and with the list in the time zone of this browser. The page reads the list again if the server did not know it.
READY = """() => {
  const list = document.getElementById('sessions'), { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  if (document.querySelector('#conversation > .starting')) return false;
  return window.recollect && document.readyState === 'complete' && (!list || list.dataset.zone === timeZone);
}"""
# Messages that disappear after seconds stay 20 times longer, so that a test on a busy machine is not too late for them.
SLOW_TIMEOUTS = """(() => {
  const original = window.setTimeout;
  window.setTimeout = (run, wait, ...rest) => original(run, wait >= 1800 ? wait * 20 : wait, ...rest);
})();"""


@pytest.fixture(scope="session")
def chromium():
    executable = next(
        (path for path in (*BROWSERS, shutil.which("chromium") or "") if path and os.path.exists(path)), None
    )
    if executable is None:
        pytest.skip("Chromium is missing. scripts/test installs it if it has the permission.")
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=WAIT)
    with sync_api.sync_playwright() as playwright:
        LOOP.append(asyncio._get_running_loop())
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield browser
        asyncio._set_running_loop(LOOP.pop())
        browser.close()


@pytest.fixture(autouse=True)
def _isolate_event_loop():
    """Restore the browser's event loop for this test, and hide it from others: it counts as running while it is open."""
    if LOOP:
        asyncio._set_running_loop(LOOP[0])
    yield
    asyncio._set_running_loop(None)


def environment():
    """Return the environment of a server.

    If bytecode must not be written next to the sources, it is cached elsewhere, because the tests start many servers.
    """
    env = dict(os.environ)
    if env.pop("PYTHONDONTWRITEBYTECODE", ""):
        env["PYTHONPYCACHEPREFIX"] = os.path.join(tempfile.gettempdir(), f"recollect-bytecode-{os.getuid()}")
    return env


@pytest.fixture(scope="session")
def running_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    path = str(folder / "page.db")
    env = {**environment(), "RECOLLECT_DB": path, "RECOLLECT_TOKEN": TOKEN, "XDG_CONFIG_HOME": str(folder)}
    env.pop("RECOLLECT_CONFIG", None)
    with recollect.open(path) as store:
        process = subprocess.Popen(
            [sys.executable, "-c", "from recollect.cli import main; main()", "serve", "--port", "0", "--log-level", "error"],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = line.split(" at ", 1)[1].split("/#token", 1)[0]
            wait_for_server(url)
            yield ServerWithStore(url, path, store)
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]


@pytest.fixture
def server(running_server):
    """Return the server of `recollect serve`, with an empty store."""
    running_server.clear()
    return running_server


class ScriptedServer:
    """A process of scripted_server.py with its own store; it can be stopped and started again at the same address."""

    def __init__(self, folder):
        self.folder = folder
        self.path = str(folder / "sessions.db")
        self.url = ""
        self._process = None

    def start(self):
        port = self.url.rpartition(":")[2] or "0"
        script = os.path.join(os.path.dirname(__file__), "scripted_server.py")
        self._process = subprocess.Popen(
            [sys.executable, script, str(self.folder), port, TOKEN], env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.url = self._process.stdout.readline().split(" at ", 1)[1].split("/#token", 1)[0]
        wait_for_server(self.url)
        return self

    def stop(self, *, kill=False):
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait(60)
            self._process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]
            self._process = None

    def create_file(self, name):
        """Create a file in the server's folder, for which the model may wait."""
        (self.folder / name).touch()


@pytest.fixture(scope="session")
def common_server(tmp_path_factory):
    server = ScriptedServer(tmp_path_factory.mktemp("scripted")).start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path):
    server = ScriptedServer(tmp_path).start()
    yield server
    server.stop()


@pytest.fixture
def open_scripted_page(chromium, common_server):
    """Return a function that opens a page of the scripted server."""
    with page_opener(chromium) as open_:
        yield lambda path="/", **options: open_(common_server.url, path, **options)


@pytest.fixture
def open_page_at(chromium):
    """Return a function that opens a page of any server."""
    with page_opener(chromium) as open_:
        yield open_


@pytest.fixture
def open_page(chromium, server):
    """Return a function that opens a page of `server`, each in its own browser context."""
    with page_opener(chromium) as open_:
        yield lambda path="/", **options: open_(server.url, path, **options)


@contextlib.contextmanager
def page_opener(chromium):
    """Yield a function that opens a page, logged in. At the end, fail on console errors and requests to other servers."""
    contexts, problems = [], []

    def open_(url, path="/", *, width=1280, height=800, expected=(), context=None, **options):
        if context is not None:
            page = context.new_page()
            page.goto(f"{url}{path}")
            return page
        context = chromium.new_context(viewport={"width": width, "height": height}, **{"timezone_id": "UTC", **options})
        contexts.append(context)
        context.set_default_timeout(WAIT)
        context.add_init_script(SLOW_TIMEOUTS)
        page = context.new_page()

        def check_console(message):
            if message.type == "error" and not any(word in message.text for word in expected):
                problems.append(f"console: {message.text} ({message.location.get('url')})")

        def check_request(request):
            if not request.url.startswith((url, "blob:", "data:")):
                problems.append(f"request: {request.url}")

        page.on("console", check_console)
        page.on("pageerror", lambda error: problems.append(f"page: {error}"))
        page.on("request", check_request)
        response = page.request.post(
            f"{url}/login", form={"token": TOKEN}, headers={"Origin": url, "Accept": "application/json"}
        )
        assert response.status == 204
        page.goto(f"{url}{path}")
        page.wait_for_function(READY)
        return page

    try:
        yield open_
    finally:
        for context in contexts:
            context.close()
    assert problems == []
