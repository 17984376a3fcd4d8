"""A real server in a process of its own, a browser in front of it, and the library beside it as another process has it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from around import TOKEN, WAIT, Place, wait_for

import recollect

BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
LOOP = []
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip

# Loaded, and with the list for the zone of this browser, which is read again where the server did not know it.
READY = """() => {
  const list = document.getElementById('sessions'), { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  if (document.querySelector('#conversation > .begin')) return false;
  return window.recollect && document.readyState === 'complete' && (!list || list.dataset.zone === timeZone);
}"""
# What is shown for some seconds is shown for longer here: a test on a busy machine must not come too late for it.
PATIENT = """(() => {
  const plain = window.setTimeout;
  window.setTimeout = (run, wait, ...rest) => plain(run, wait >= 1800 ? wait * 20 : wait, ...rest);
})();"""


@pytest.fixture(scope="session")
def chromium():
    found = next((path for path in (*BROWSERS, shutil.which("chromium") or "") if path and os.path.exists(path)), None)
    if found is None:
        pytest.skip("There is no Chromium here. scripts/test installs it where it may.")
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=WAIT)
    with sync_api.sync_playwright() as playwright:
        LOOP.append(asyncio._get_running_loop())
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        asyncio._set_running_loop(LOOP.pop())
        browser.close()


@pytest.fixture(autouse=True)
def _a_loop_of_its_own():
    """Leave other tests of this process their loops: the browser's counts as running for as long as it is open."""
    if LOOP:
        asyncio._set_running_loop(LOOP[0])
    yield
    asyncio._set_running_loop(None)


def environment():
    """Give the environment of a server. Where no bytecode may be written beside the sources, it is kept apart: servers
    start often here.
    """
    env = dict(os.environ)
    if env.pop("PYTHONDONTWRITEBYTECODE", ""):
        env["PYTHONPYCACHEPREFIX"] = os.path.join(tempfile.gettempdir(), f"recollect-bytecode-{os.getuid()}")
    return env


@pytest.fixture(scope="session")
def started(tmp_path_factory):
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
            line = process.stdout.readline()
            url = line.split(" at ", 1)[1].split("/#token", 1)[0]
            wait_for(url)
            yield Place(url, path, store)
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()


@pytest.fixture
def place(started):
    started.clear()
    return started


class Server:
    """A server of a test's own, on a store of its own, that can be ended and started again at the same address."""

    def __init__(self, folder):
        self.folder = folder
        self.path = str(folder / "talk.db")
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
        wait_for(self.url)
        return self

    def stop(self, *, kill=False):
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait(60)
            self._process.stdout.close()
            self._process = None

    def let(self, name):
        """Let what waits for this name go on."""
        (self.folder / name).touch()


@pytest.fixture(scope="session")
def common_server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("talk")).start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path):
    server = Server(tmp_path).start()
    yield server
    server.stop()


@pytest.fixture
def talk(chromium, common_server):
    """Give what opens the page of the scripted server."""
    with browsing(chromium) as open_:
        yield lambda path="/", **options: open_(common_server.url, path, **options)


@pytest.fixture
def talk_at(chromium):
    """Give what opens the page of any server."""
    with browsing(chromium) as open_:
        yield open_


@pytest.fixture
def opened(chromium, place):
    """Give what opens the page in a browser of its own; whatever the page complains about fails the test."""
    with browsing(chromium) as open_:
        yield lambda path="/", **options: open_(place.url, path, **options)


@contextlib.contextmanager
def browsing(chromium):
    contexts, complaints = [], []

    def open_(url, path="/", *, width=1280, height=800, expected=(), context=None, **options):
        if context is not None:
            page = context.new_page()
            page.goto(f"{url}{path}")
            return page
        context = chromium.new_context(viewport={"width": width, "height": height}, **{"timezone_id": "UTC", **options})
        contexts.append(context)
        context.set_default_timeout(WAIT)
        context.add_init_script(PATIENT)
        page = context.new_page()

        def said(message):
            if message.type == "error" and not any(word in message.text for word in expected):
                complaints.append(f"console: {message.text} ({message.location.get('url')})")

        def asked(request):
            if not request.url.startswith((url, "blob:", "data:")):
                complaints.append(f"request: {request.url}")

        page.on("console", said)
        page.on("pageerror", lambda error: complaints.append(f"page: {error}"))
        page.on("request", asked)
        answer = page.request.post(
            f"{url}/login", form={"token": TOKEN}, headers={"Origin": url, "Accept": "application/json"}
        )
        assert answer.status == 204
        page.goto(f"{url}{path}")
        page.wait_for_function(READY)
        return page

    try:
        yield open_
    finally:
        for context in contexts:
            context.close()
    assert complaints == []
