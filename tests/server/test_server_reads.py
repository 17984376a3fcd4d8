"""GET requests do not change the store: every GET route is read, and the content of all tables is compared."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re

import apsw
import httpx
import psycopg
import pytest
from litestar.routes import HTTPRoute
from server_harness import TOKEN, cookie_of, wait_for

import recollect

CACHES = re.compile(r"search|commits|watchers|sqlite_")
"""Tables that reading may change: the search index, which is updated before a search, and on PostgreSQL the commit
tokens and the watchers."""

INDEX_COLUMNS = ("indexed_to", "title_changed", "waiting")
"""Columns with the progress of the search index."""

STREAMS = ("/events", "/api/v1/changes", "/api/v1/sessions/{session:str}/events")
PATH_VALUES = {
    "session:str": ["a", "dead", "nowhere"],
    "message:str": ["1.4", "2.3"],
    "place:str": ["1.2.0"],
    "path:str": ["x"],
    "key:str": ["recent", "nothing"],
    "name:str": ["frame.js"],
    "number:int": ["0"],
    "round_:int": ["1"],
    "turn:str": ["1.1", "1.5"],
    "call_id:str": ["one"],
    "kind:str": ["title", "summary", "web.models"],
}
PARAMETERS = "q=word&name=a&id=a&id=busy&first=1.1&last=1.2&limit=2&days=all"
QUERIES = [
    "",
    f"m=1.4&format=md&{PARAMETERS}",
    f"m=1.1&format=jsonl&{PARAMETERS}",
    f"format=openai&before=3&{PARAMETERS}",
    f"session=a&format=html&deleted=true&{PARAMETERS}",
]


def fill_store(database):
    """Store a session with branches, a compaction and a fork, one whose turn's lease has expired, and one in the trash."""
    with recollect.open(database) as store:
        first = store.session("a", title="first")
        first.append([{"role": "user", "content": f"word {number}"} for number in range(4)])
        first.rewind("1.2")
        first.append([{"role": "user", "content": "another way"}, {"role": "assistant", "content": "so be it"}])
        first.compact(before="2.3", summary="the first messages")
        first.fork()
        for records in (store.records, first.records):
            records.put("web.models", "recent", ["demo"])
        store.session("busy").append({"role": "user", "content": "x"})
        store.session("trashed").append({"role": "user", "content": "y"})
        store.delete_session("trashed")
        store.records.put("agent.state", "last_session", "busy")
        store.session("dead").turn("what is it?", lease=0.001).__enter__()


def open_store(server):
    """Open the store of the server, as `recollect serve` does when it starts: this marks interrupted turns."""
    with server.client() as client:
        assert client.get("/info").status_code == 200


def hash_tables(database):
    """Return a hash of each table of the store except the caches."""
    if "://" in str(database):
        return _hash_postgres_tables(database)
    # Use the SQLite library of the server, which runs in this process: if another copy of the library closes a
    # connection, the locks of the first are released, and the next opener truncates the shared memory in use (SIGBUS).
    with contextlib.closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        hashes = {}
        for name in names:
            if not CACHES.search(name):
                columns = [
                    row[1] for row in file.execute(f'PRAGMA table_info("{name}")') if row[1] not in INDEX_COLUMNS
                ]
                column_list = ", ".join(f'"{column}"' for column in columns)
                rows = sorted(map(repr, file.execute(f'SELECT {column_list} FROM "{name}"')))
                hashes[name] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        return hashes


def _hash_postgres_tables(url):
    hashes = {}
    with psycopg.connect(url.replace("plain@", "postgres@")) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'recollect' ORDER BY 1"
        ).fetchall()
        for (name,) in names:
            if CACHES.search(name):
                continue
            rows = connection.execute(
                f"SELECT to_jsonb(t) - %s::text[] FROM recollect.{name} AS t", [list(INDEX_COLUMNS)]
            ).fetchall()
            hashes[name] = hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
    return hashes


def routes(server):
    """Return the paths of every GET route, with all plausible values."""
    paths = []
    for route in server.app.inner.routes:
        if isinstance(route, HTTPRoute) and "GET" in route.methods:
            names = re.findall(r"\{([^}]*)\}", route.path)
            missing = [name for name in names if name not in PATH_VALUES]
            assert not missing, f"Add values to PATH_VALUES for {route.path}: {missing}"
            for values in itertools.product(*(PATH_VALUES[name] for name in names)):
                path = route.path
                for name, value in zip(names, values, strict=True):
                    path = path.replace(f"{{{name}}}", value)
                paths.append((route.path, path))
    return paths


def read_all(server, database):
    before = hash_tables(database)
    assert len(before) > 8
    paths = routes(server)
    assert {"/", "/c/{session:str}", "/events", "/api/v1/sessions", "/page/conversation/{session:str}"} <= {
        route for route, _ in paths
    }
    accesses = ({"Authorization": f"Bearer {TOKEN}"}, {"Cookie": cookie_of(server), "Accept": "text/html"})
    successful_routes, changed = set(), []
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
                if answer.status_code < 400 or answer.status_code == 501:  # not available on PostgreSQL
                    successful_routes.add(route)
                else:
                    assert answer.status_code < 500, (address, answer.text)
            after = hash_tables(database)
            if after != before:
                changed.append((path, [name for name in after if after[name] != before.get(name)]))
                before = after
    assert changed == []
    unread_routes = {route for route, _ in paths} - successful_routes
    assert unread_routes <= UNREADABLE_ROUTES, (
        f"No request to these routes succeeded: {unread_routes - UNREADABLE_ROUTES}"
    )


UNREADABLE_ROUTES = {
    "/files/{session:str}/{message:str}/{place:str}", "/page/conversation/{session:str}/tool/{place:str}",
    "/api/v1/sessions/{session:str}/messages/{message:str}/files/{number:int}", "/api/v1/openapi.json/{path:str}",
}  # fmt: skip
"""Routes that need a file or a tool call, which these sessions do not have, and one route of the framework."""


def test_no_get_changes_the_store(server, tmp_path):
    open_store(server)
    fill_store(tmp_path / "r.db")
    read_all(server, tmp_path / "r.db")


def test_no_get_changes_the_store_on_postgres(start_server, postgres):
    server = start_server(postgres)
    open_store(server)
    fill_store(postgres)
    read_all(server, postgres)


def test_an_interrupted_turn_is_marked_by_a_post_and_not_by_a_get(server, api, tmp_path):
    open_store(server)
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


def test_the_start_page_of_an_empty_store_creates_no_session(server, api):
    answer = httpx.get(server.url, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert 'class="starting' in answer.text
    assert api.get("/sessions").json()["sessions"] == []
    assert httpx.get(server.url, headers={"Cookie": cookie_of(server)}).status_code == 200


def test_the_last_session_is_set_by_a_post(server, api):
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
    fill_store(tmp_path / "r.db")
    access = {"Authorization": f"Bearer {TOKEN}"}
    page = httpx.get(f"{server.url}/c/a?m=1.4", headers=access).text
    assert '<section class="elsewhere"' in page
    assert "word 3" in page
    assert "another way" in page
    assert '<section class="elsewhere"' not in httpx.get(f"{server.url}/c/a?m=2.3", headers=access).text
    response = httpx.post(f"{server.url}/page/conversation/a/show", headers=access, json={"message": "1.4"})
    assert response.json() == {"switched": True}
    page = httpx.get(f"{server.url}/c/a?m=1.4", headers=access).text
    assert '<section class="elsewhere"' not in page
    assert 'data-target="1.4"' in page
    for message in ("1.4", "9.9", "x", ""):
        response = httpx.post(f"{server.url}/page/conversation/a/show", headers=access, json={"message": message})
        assert response.json() == {"switched": False}


@pytest.mark.parametrize("name", [".", ".."])
def test_the_start_page_redirects_to_an_id_that_a_browser_would_resolve(server, name):
    """A browser resolves /c/.. to /, escaped or not: a redirect to it would never end."""
    access = {"Authorization": f"Bearer {TOKEN}"}
    httpx.post(f"{server.url}/api/v1/sessions", headers=access, json={"id": name, "title": "Dots"})
    assert httpx.get(server.url, headers=access).headers["location"] == f"/c/~{name}"
    page = httpx.get(f"{server.url}/c/~{name}", headers=access)
    assert (page.status_code, "Dots" in page.text) == (200, True)
