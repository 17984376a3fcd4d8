"""What the tests of the page around the conversation look at it with."""

from __future__ import annotations

import time
import urllib.request

WAIT = 60_000
TOKEN = "a-token-for-the-page-tests-0123456789"


class Place:
    """A server's address, and its store opened from outside."""

    def __init__(self, url: str, path: str, store) -> None:
        self.url = url
        self.path = path
        self.store = store

    def session(self, id=None, *said, **fields):
        made = self.store.session(id, **fields)
        for text in said:
            made.append({"role": "user", "content": text})
        return made

    def clear(self) -> None:
        for deleted in (False, True):
            page = self.store.list_sessions(5_000, archived=None, deleted=deleted, delegates=True)
            for session in page:
                if not deleted:
                    self.store.delete_session(session.id)
        self.store.empty_trash()

    def titles(self, **asked):
        return [session.title for session in self.store.list_sessions(2_000, **asked)]


def wait_for(url: str) -> None:
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
    """Wait until a condition holds; it is tried often, and a slow machine has its time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def shown(tab):
    """Give the ids of the rows, from top to bottom."""
    return tab.eval_on_selector_all("#sessions section > ul > li.session", "rows => rows.map((row) => row.dataset.id)")


HOLD = """([part, body]) => {
    window.unheld ??= window.fetch;
    const mine = { through: null };
    window.fetch = async (url, options) => {
        const answer = await window.unheld(url, options);
        const meant = String(url).includes(part) && String(options?.body).includes(body);
        if (!mine.through && meant) await new Promise((done) => { mine.through = done; });
        return answer;
    };
    window.held = mine;
}"""


class Held:
    """The answer to the next request of a kind: the server has given it, and the page has to wait for it.

    A kind has this part in its address, and `body` in what is sent.
    """

    def __init__(self, page, part, body=""):
        self._page = page
        page.evaluate(HOLD, [part, body])

    def taken(self):
        self._page.wait_for_function("() => window.held.through")
        return self

    def let(self):
        """Let the answer through, and wait until the page has done what it does with it."""
        self.taken()
        self._page.evaluate("() => { window.held.through(); return new Promise((done) => setTimeout(done, 50)); }")
