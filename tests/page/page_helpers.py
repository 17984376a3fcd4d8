"""Helpers of the browser tests: a server with its store, waiting, sidebar rows, and held responses."""

from __future__ import annotations

import time
import urllib.request

WAIT = 60_000  # milliseconds. Long enough for a busy machine; a test that passes never waits for all of it.
TOKEN = "a-token-for-the-page-tests-0123456789"


class ServerWithStore:
    """The address of a server, and its store, opened in the process of the tests."""

    def __init__(self, url: str, path: str, store) -> None:
        self.url = url
        self.path = path
        self.store = store

    def session(self, id=None, *texts, **fields):
        session = self.store.session(id, **fields)
        for text in texts:
            session.append({"role": "user", "content": text})
        return session

    def clear(self) -> None:
        for deleted in (False, True):
            page = self.store.list_sessions(5_000, archived=None, deleted=deleted, delegates=True)
            for session in page:
                if not deleted:
                    self.store.delete_session(session.id)
        self.store.maintenance.empty_trash()

    def titles(self, **filters):
        return [session.title for session in self.store.list_sessions(2_000, **filters)]


def wait_for_server(url: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/api/v1/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


def row(tab, id):
    return tab.locator(f'li.session[data-id="{id}"]')


def until(condition, *, seconds=60.0):
    """Wait until a condition holds. Poll every 50 ms; the limit is for slow machines."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)


def listed_ids(tab):
    """Return the ids of the session rows, from top to bottom."""
    return tab.eval_on_selector_all("#sessions section > ul > li.session", "rows => rows.map((row) => row.dataset.id)")


HOLD = """([part, body]) => {
    window.originalFetch ??= window.fetch;
    const hold = { release: null };
    window.fetch = async (url, options) => {
        const response = await window.originalFetch(url, options);
        const matches = String(url).includes(part) && String(options?.body).includes(body);
        if (!hold.release && matches) await new Promise((resolve) => { hold.release = resolve; });
        return response;
    };
    window.hold = hold;
}"""


class HeldResponse:
    """The response to the next matching request: the server has sent it, and the page does not get it yet.

    A request matches if its address contains `part` and its body contains `body`.
    """

    def __init__(self, page, part, body=""):
        self._page = page
        page.evaluate(HOLD, [part, body])

    def wait_until_held(self):
        self._page.wait_for_function("() => window.hold.release")
        return self

    def release(self):
        """Release the response, and wait until the page has processed it."""
        self.wait_until_held()
        self._page.evaluate("() => { window.hold.release(); return new Promise((done) => setTimeout(done, 50)); }")
