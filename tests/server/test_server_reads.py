"""No GET changes anything: every GET route of the server is read, and the whole content of the store stays the same."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import sqlite3

import httpx
import psycopg
import pytest
from litestar.routes import HTTPRoute
from running import TOKEN, cookie_of, wait_for

import recollect

CACHES = re.compile(r"search|commits|watchers|sqlite_")
"""What may change by reading: the search index, which is brought up to date before a search; and on PostgreSQL the
marks of transactions and of who watches."""

CACHED = ("indexed_to", "title_changed", "waiting")
"""Columns that say how far the search index is."""

STREAMS = ("/events", "/api/v1/changes", "/api/v1/sessions/{session:str}/events")
PATHS = {
    "session:str": ["a", "dead", "nowhere"],
    "message:str": ["1.4", "2.3"],
    "place:str": ["1.2.0"],
    "path:str": ["x"],
    "key:str": ["web.models", "nothing"],
    "name:str": ["frame.js"],
    "number:int": ["0"],
    "round_:int": ["1"],
    "turn:str": ["1.1", "1.5"],
    "call_id:str": ["one"],
    "kind:str": ["title", "summary"],
}
READ = "q=word&name=a&id=a&id=busy&first=1.1&last=1.2&limit=2&days=all"
QUERIES = [
    "",
    f"m=1.4&format=md&{READ}",
    f"m=1.1&format=jsonl&{READ}",
    f"format=openai&before=3&{READ}",
    f"session=a&format=html&deleted=true&{READ}",
]


def filled(place):
    """Store a session with branches, a compaction and a fork, one with a turn whose lease has ended, one in the trash."""
    with recollect.open(place) as store:
        first = store.session("a", title="first")
        first.append([{"role": "user", "content": f"word {number}"} for number in range(4)])
        first.rewind("1.2")
        first.append([{"role": "user", "content": "another way"}, {"role": "assistant", "content": "so be it"}])
        first.compact(before="2.3", summary="what was said")
        first.fork()
        store.set_setting("web.models", ["demo"])
        store.session("busy").append({"role": "user", "content": "x"})
        store.session("trashed").append({"role": "user", "content": "y"})
        store.delete_session("trashed")
        store.set_last_session("busy")
        store.session("dead").turn("what is it?", lease=0.001).__enter__()


def opened(server):
    """Have the server open its store, as `recollect serve` does when it starts: that marks turns left open before."""
    with server.client() as client:
        assert client.get("/info").status_code == 200


def hashed(place):
    """Hash every table of the store, but for the caches."""
    if "://" in str(place):
        return _hashed_postgres(place)
    with contextlib.closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        found = {}
        for name in names:
            if not CACHES.search(name):
                columns = [row[1] for row in file.execute(f'PRAGMA table_info("{name}")') if row[1] not in CACHED]
                listed = ", ".join(f'"{column}"' for column in columns)
                rows = sorted(map(repr, file.execute(f'SELECT {listed} FROM "{name}"')))
                found[name] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        return found


def _hashed_postgres(url):
    found = {}
    with psycopg.connect(url.replace("plain@", "postgres@")) as link:
        names = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'recollect' ORDER BY 1").fetchall()
        for (name,) in names:
            if CACHES.search(name):
                continue
            rows = link.execute(
                f"SELECT to_jsonb(t) - %s::text[] FROM recollect.{name} AS t", [list(CACHED)]
            ).fetchall()
            found[name] = hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
    return found


def routes(server):
    """Return the path of every GET route, filled with everything plausible."""
    made = []
    for route in server.app.inner.routes:
        if isinstance(route, HTTPRoute) and "GET" in route.methods:
            names = re.findall(r"\{([^}]*)\}", route.path)
            missing = [name for name in names if name not in PATHS]
            assert not missing, f"Say in PATHS what {route.path} can be asked for: {missing}"
            for values in itertools.product(*(PATHS[name] for name in names)):
                path = route.path
                for name, value in zip(names, values, strict=True):
                    path = path.replace(f"{{{name}}}", value)
                made.append((route.path, path))
    return made


def read_all(server, place):
    before = hashed(place)
    assert len(before) > 8
    paths = routes(server)
    assert {"/", "/c/{session:str}", "/events", "/api/v1/sessions", "/page/conversation/{session:str}"} <= {
        route for route, _ in paths
    }
    accesses = ({"Authorization": f"Bearer {TOKEN}"}, {"Cookie": cookie_of(server), "Accept": "text/html"})
    succeeded, changed = set(), []
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for route, path in paths:
            for number, query in enumerate(QUERIES):
                address = f"{path}?{query}" if query else path
                access = accesses[number % 2]
                if route in STREAMS:
                    with client.stream("GET", address, headers=access) as answer:
                        if answer.status_code == 200:
                            next(answer.iter_raw())
                else:
                    answer = client.get(address, headers=access)
                if answer.status_code < 400 or answer.status_code == 501:  # what PostgreSQL does not have
                    succeeded.add(route)
                else:
                    assert answer.status_code < 500, (address, answer.text)
            after = hashed(place)
            if after != before:
                changed.append((path, [name for name in after if after[name] != before.get(name)]))
                before = after
    assert changed == []
    never = {route for route, _ in paths} - succeeded
    assert never <= UNREAD, f"These were never read: {never - UNREAD}"


UNREAD = {
    "/files/{session:str}/{message:str}/{place:str}", "/page/conversation/{session:str}/tool/{place:str}",
    "/api/v1/sessions/{session:str}/messages/{message:str}/files/{number:int}", "/api/v1/openapi.json/{path:str}",
}  # fmt: skip
"""Routes that need a file or a tool call, which the sessions here do not have, and one of the framework."""


def test_no_get_changes_the_store(server, tmp_path):
    opened(server)
    filled(tmp_path / "r.db")
    read_all(server, tmp_path / "r.db")


def test_no_get_changes_the_store_on_postgres(serving, postgres):
    server = serving(postgres)
    opened(server)
    filled(postgres)
    read_all(server, postgres)


def test_a_turn_of_a_process_that_is_gone_is_marked_by_a_post_and_not_by_a_get(server, api, tmp_path):
    opened(server)
    with recollect.open(tmp_path / "r.db") as store:
        store.session("dead").turn("what is it?", lease=0.001).__enter__()
    access = {"Authorization": f"Bearer {TOKEN}"}

    def status():
        return api.get("/sessions/dead/turns").json()["turns"][-1]["status"]

    for path in ("/c/dead", "/page/conversation/dead", "/api/v1/sessions/dead"):
        assert httpx.get(f"{server.url}{path}", headers=access).status_code == 200
        assert status() == "open"
    wait_for(
        lambda: (httpx.post(f"{server.url}/page/conversation/dead/opened", headers=access), status() == "interrupted")[
            1
        ]
    )


def test_the_first_page_of_an_empty_store_makes_no_session(server, api):
    answer = httpx.get(server.url, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert 'class="begin' in answer.text
    assert api.get("/sessions").json()["sessions"] == []
    assert httpx.get(server.url, headers={"Cookie": cookie_of(server)}).status_code == 200


def test_opening_is_remembered_by_a_post(server, api):
    access = {"Authorization": f"Bearer {TOKEN}"}
    for name in ("a", "b"):
        api.put(f"/sessions/{name}")
        api.put("/last-session", json={"session": name})
    httpx.get(f"{server.url}/c/a", headers=access)
    assert httpx.get(server.url, headers=access).headers["location"] == "/c/b"
    assert httpx.post(f"{server.url}/page/conversation/a/opened", headers=access).status_code == 204
    assert httpx.get(server.url, headers=access).headers["location"] == "/c/a"
    assert httpx.post(f"{server.url}/page/conversation/nowhere/opened", headers=access).status_code == 204
    assert httpx.get(server.url, headers=access).headers["location"] == "/c/a"


def test_a_link_shows_a_message_of_another_branch_without_switching(server, api, tmp_path):
    filled(tmp_path / "r.db")
    access = {"Authorization": f"Bearer {TOKEN}"}
    page = httpx.get(f"{server.url}/c/a?m=1.4", headers=access).text
    assert '<section class="elsewhere"' in page
    assert "word 3" in page
    assert "another way" in page
    assert '<section class="elsewhere"' not in httpx.get(f"{server.url}/c/a?m=2.3", headers=access).text
    shown = httpx.post(f"{server.url}/page/conversation/a/show", headers=access, json={"message": "1.4"})
    assert shown.json() == {"switched": True}
    page = httpx.get(f"{server.url}/c/a?m=1.4", headers=access).text
    assert '<section class="elsewhere"' not in page
    assert 'data-target="1.4"' in page
    for message in ("1.4", "9.9", "x", ""):
        again = httpx.post(f"{server.url}/page/conversation/a/show", headers=access, json={"message": message})
        assert again.json() == {"switched": False}


@pytest.mark.parametrize("name", [".", ".."])
def test_the_start_never_leads_to_an_id_that_no_address_can_have(server, api, tmp_path, name, monkeypatch):
    """A browser takes /c/.. for /, escaped or not: a session of that name would lock the person out."""
    access = {"Authorization": f"Bearer {TOKEN}"}
    with recollect.open(tmp_path / "r.db") as store:
        store.session("reachable")
        store.session("odd").append({"role": "user", "content": "x"})
    with contextlib.closing(sqlite3.connect(tmp_path / "r.db")) as file, file:
        file.execute("UPDATE sessions SET id = ? WHERE id = 'odd'", [name])  # as an older version could store it
    assert httpx.get(server.url, headers=access).headers["location"] == "/c/reachable"
    api.delete("/sessions/reachable")
    answer = httpx.get(server.url, headers=access)
    assert (answer.status_code, "location" in answer.headers) == (200, False)
    made = httpx.post(f"{server.url}/page/new", headers=access, json={}).json()["session"]
    assert made != name
    assert httpx.get(server.url, headers=access).headers["location"] == f"/c/{made}"
