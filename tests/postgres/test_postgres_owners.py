"""Owners: two scopes try each other's ids through every method, and the database itself keeps them apart."""

from __future__ import annotations

import asyncio
import inspect
import threading

import psycopg
import pytest

import recollect

TABLES = (
    "trees", "sessions", "branches", "turns", "messages", "appends", "tool_calls", "compactions", "snapshots", "blobs",
    "settings", "pins", "search_index", "search_titles", "search_terms",
)  # fmt: skip


def said(text):
    return {"role": "user", "content": text}


@pytest.fixture
def ann(postgres):
    """A store with everything in it that there is."""
    with recollect.open(postgres, owner="ann") as store:
        session = store.session("cli:one", title="Hers", metadata={"a": 1})
        with session.turn("a question") as turn:
            turn.add(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}],
                }
            )
            turn.add({"role": "tool", "tool_call_id": "c1", "content": "r"})
        session.append(
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}],
            },
            key="k",
        )
        session.pin_message(1)
        session.snapshot("summary", "what was said")
        session.fork(id="cli:fork").compact(summary="in short", keep_turns=0)
        session.rewind(2)
        store.session("gone").append(said("in the trash"))
        store.delete_session("gone")
        store.index()
        store.set_setting("color", "red")
        session.arrive("terminal", id="hers")
        yield store


@pytest.fixture
def bob(postgres):
    with recollect.open(postgres, owner="bob") as store:
        yield store


def contents(databases, database, owner):
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        return {
            table: sorted(
                str(row) for row in admin.execute(f"SELECT * FROM recollect.{table} WHERE owner = %s", (owner,))
            )
            for table in TABLES
        }


# Every method of a store that names a session, tried with an id of someone else.
STORE = {
    "session": lambda store, name: store.session(name, create=False),
    "create_session": None,  # the id is free in one's own scope
    "get_session": lambda store, name: store.get_session(name),
    "find_session": lambda store, name: store.find_session(name),
    "delete_session": lambda store, name: store.delete_session(name),
    "restore_session": lambda store, name: store.restore_session(name),
    "erase_session": lambda store, name: store.erase_session(name, forks="erase"),
    "set_last_session": lambda store, name: store.set_last_session(name),
}
# Those that name none: whatever they do, it is done to one's own.
WHOLE = {
    "search": lambda store: list(store.search("question")) == [],
    "index": lambda store: store.index() == 0,
    "reindex": lambda store: store.reindex() == 0,
    "empty_trash": lambda store: store.empty_trash().count == 0,
    "prune": lambda store: store.prune(keep=0, max_messages=1, tool_output_over=0, erase=True).count == 0,
    "stats": lambda store: store.stats().messages == 0,
    "tool_stats": lambda store: store.tool_stats() == [],
    "check": lambda store: store.check(repair=True).found == (),
    "recover": lambda store: store.recover() == [],
    "shown_counts": lambda store: store.shown_counts(["cli:one", "cli:fork"]) == [0, 0],
}
NO_SESSION = {
    "owners",
    "list_sessions",
    "last_session",
    "setting",
    "set_setting",
    "watch",
    "close",
    "run",
    "follow",
    "scope",
}
NO_FILE = {"backup", "space", "optimize"}
SESSION = {
    "refresh": lambda s: s.refresh(),
    "append": lambda s: s.append(said("x")),
    "messages": lambda s: s.messages(),
    "iter_messages": lambda s: list(s.iter_messages()),
    "message": lambda s: s.message("1.1"),
    "response": lambda s: s.response("1.1"),
    "history": lambda s: s.history("openai"),
    "delete_message": lambda s: s.delete_message("1.1"),
    "restore_message": lambda s: s.restore_message("1.1"),
    "update": lambda s: s.update(title="mine"),
    "turn": lambda s: s.turn("q", take_over=True),
    "save_turn": lambda s: s.save_turn("q", {"role": "assistant", "content": "r"}),
    "turns": lambda s: s.turns(),
    "tool_calls": lambda s: s.tool_calls(),
    "start_tool_call": lambda s: s.start_tool_call("c1"),
    "record_tool_result": lambda s: s.record_tool_result("c1", "x"),
    "branches": lambda s: s.branches(),
    "rewind": lambda s: s.rewind(0),
    "switch": lambda s: s.switch(1),
    "fork": lambda s: s.fork(at="1.1"),
    "active_tokens": lambda s: s.active_tokens(),
    "compact": lambda s: s.compact(summary="mine"),
    "undo_compaction": lambda s: s.undo_compaction(),
    "compactions": lambda s: s.compactions(),
    "compaction": lambda s: s.compaction(),
    "snapshot": lambda s: s.snapshot("summary", "mine"),
    "snapshots": lambda s: s.snapshots(),
    "pin_message": lambda s: s.pin_message("1.1"),
    "unpin_message": lambda s: s.unpin_message("1.1"),
    "stats": lambda s: s.stats(),
    "resume_turn": lambda s: s.resume_turn("1.1"),
    "arrive": lambda s: s.arrive("terminal"),
    "present": lambda s: s.present(),
}


# Those that name a place of one's own instead: a place of someone else is not there.
PLACES = {"stay": lambda s: s.stay("hers"), "leave": lambda s: s.leave("hers")}


def public(kind):
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_every_method_is_tried():
    assert public(recollect.Store) == set(STORE) | set(WHOLE) | NO_SESSION | NO_FILE
    assert public(recollect.Session) - {"saw", "to_dict"} == set(SESSION) | set(PLACES)


def test_nothing_of_another_is_found_or_touched(ann, bob, databases, database):
    before = contents(databases, database, "ann")
    for id in ("cli:one", "cli:fork"):
        for name, call in STORE.items():
            if call is None:
                continue
            try:
                assert call(bob, id) is None, name
            except recollect.SessionNotFound:
                continue
        foreign = ann.session(id, create=False)
        before = contents(databases, database, "ann")
        # A handle with everything in it that the other's has, as if keys had been guessed.
        stolen = recollect.Session(bob, foreign.info)
        for name, call in SESSION.items():
            with pytest.raises(recollect.NotFound):
                call(stolen)
            assert contents(databases, database, "ann") == before, name
        for name, call in PLACES.items():
            assert not call(stolen)
            assert contents(databases, database, "ann") == before, name
    for name in ("find", "prefix"):
        with pytest.raises(recollect.SessionNotFound):
            bob.find_session({"find": "Hers", "prefix": "cli"}[name])
    assert list(bob.list_sessions(archived=None, delegates=True)) == []
    assert list(bob.list_sessions(deleted=True)) == []
    assert bob.last_session() is None
    assert bob.setting("color") is None
    bob.set_setting("color", "blue")
    assert ann.setting("color") == "red"
    assert contents(databases, database, "ann") == before


def test_what_is_about_all_is_about_ones_own(ann, bob, databases, database):
    before = contents(databases, database, "ann")
    for name, call in WHOLE.items():
        assert call(bob), name
        assert contents(databases, database, "ann") == before, name
    assert [hit.session for hit in ann.search("question")] != []
    assert (ann.stats().messages, ann.check().problems) == (4, ())


def test_there_is_no_file_to_look_after(bob, tmp_path):
    for call in (lambda: bob.backup(tmp_path / "copy"), bob.space, bob.optimize):
        with pytest.raises(recollect.NotSupported):
            call()


def test_turns_and_streams_that_are_held(ann, bob, databases, database):
    session = ann.session("cli:one", create=False)
    turn = session.turn("q")
    stream = turn.stream()
    before = contents(databases, database, "ann")
    from recollect.store.turn import Turn

    stolen = Turn(recollect.Session(bob, session.info), turn.held, 60.0)
    for call in (
        lambda: stolen.add(said("x")),
        stolen.complete,
        stolen.cancel,
        lambda: stolen.fail("e"),
        stolen.stream,
    ):
        with pytest.raises(recollect.NotFound):
            call()
    assert contents(databases, database, "ann") == before
    stream.close()
    turn.complete()


def test_the_same_names_in_two_scopes(ann, bob):
    theirs = bob.session("cli:one", title="His")
    theirs.append(
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}],
        },
        key="k",
    )
    bob.set_last_session("cli:one")
    assert (ann.session("cli:one").title, theirs.title) == ("Hers", "His")
    assert bob.erase_session("cli:one") == ["cli:one"]
    image = ann.session("cli:fork").messages()[-1]
    assert "QUJD" * 2000 in str(image.parts)


def test_the_database_itself_keeps_them_apart(ann, postgres):
    """The role of the application sees nothing of others, whatever it asks, though it owns the tables."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        for owner, seen in (("", False), ("bob", False), ("ann", True)):
            connection.execute("SELECT set_config('recollect.owner', %s, false)", (owner,))
            for table in TABLES:
                count = connection.execute(f"SELECT count(*) FROM recollect.{table}").fetchone()[0]
                assert (count > 0) == seen, (owner, table)
        connection.execute("SELECT set_config('recollect.owner', 'bob', false)")
        assert connection.execute("UPDATE recollect.sessions SET title = 'x'").rowcount == 0
        assert connection.execute("DELETE FROM recollect.messages").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                "INSERT INTO recollect.settings (owner, key, value, updated_at) VALUES ('ann', 'x', '1', 1)"
            )


def test_the_names_of_owners_and_nothing_else_are_listed(ann, bob, postgres, databases, database):
    bob.set_setting("color", "green")
    for store in (ann, bob):
        assert (store.owners().names, store.owners().everyone) == (("ann", "bob"), True)
    assert list(bob.list_sessions()) == []  # the setting that lists has ended with its transaction
    assert bob.setting("color") == "green"
    before = contents(databases, database, "ann")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SELECT set_config('recollect.listing', 'on', false)")
        for table in set(TABLES) - {"trees", "blobs", "settings"}:
            assert connection.execute(f"SELECT count(*) FROM recollect.{table}").fetchone()[0] == 0, table
        for table in ("trees", "blobs", "settings"):
            assert connection.execute(f"SELECT count(*) FROM recollect.{table}").fetchone()[0] > 0, table
            assert connection.execute(f"UPDATE recollect.{table} SET owner = ''").rowcount == 0
            assert connection.execute(f"DELETE FROM recollect.{table}").rowcount == 0
    assert contents(databases, database, "ann") == before


@pytest.mark.parametrize(
    "policy",
    [
        "CREATE POLICY mine ON recollect.trees AS RESTRICTIVE TO plain USING (owner = 'bob')",
        "CREATE POLICY mine ON recollect.messages AS RESTRICTIVE TO plain USING (owner = 'bob')",
        "DROP POLICY blobs_listing ON recollect.blobs",
        "DROP POLICY turns_owner ON recollect.turns",
    ],
)
def test_a_policy_that_may_hide_owners_is_noticed(databases, policy):
    name = databases.make()
    try:
        with recollect.open(databases.url_of(name, "plain"), owner="bob") as store:
            store.session("x").append(said("y"))
            assert store.owners().everyone
            with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
                admin.execute(policy)
            assert not store.owners().everyone
        with recollect.open(databases.url_of(name, "postgres")) as store:
            assert store.owners() == recollect.Owners(names=("bob",), everyone=True)
    finally:
        databases.drop(name)


@pytest.mark.parametrize("power", ["SUPERUSER", "BYPASSRLS"])
def test_a_mighty_role_is_refused_for_an_owner(databases, database, power):
    role = f"mighty_{power.lower()}"
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute(f"DROP ROLE IF EXISTS {role}")
        admin.execute(f"CREATE ROLE {role} LOGIN {power}")
    url = databases.url_of(database, "plain").replace("plain", role, 1)
    with pytest.raises(recollect.StoreUnavailable, match="row-level security"):
        recollect.open(url, owner="ann")
    with pytest.raises(recollect.StoreUnavailable, match="row-level security"):
        asyncio.run(_opened(url, "ann"))
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute(f"DROP ROLE {role}")


async def _opened(url, owner):
    async with recollect.open_async(url, owner=owner):
        pass


def test_a_superuser_without_an_owner(databases, database, ann):
    with recollect.open(databases.url_of(database, "postgres")) as store:
        assert list(store.list_sessions()) == []
        store.session("x").append(said("y"))
        assert [session.id for session in store.list_sessions()] == ["x"]
    assert {session.id for session in ann.list_sessions()} == {"cli:one", "cli:fork"}


def test_a_connection_that_is_used_again_leaks_nothing(postgres):
    """One connection serves many owners in turn, as behind a pooler: the setting ends with the transaction."""
    from recollect.engine.postgres.server import Server
    from recollect.op import Scope
    from recollect.ops import lists, sessions

    server = Server(f"{postgres}?pool_size=1", "", 10)
    failures = []
    filters = dict.fromkeys(("archived", "pinned", "delegates", "channel", "model", "tool", "parent", "status", "role"))

    def work(owner):
        for number in range(15):
            scope = Scope(owner, "h", 1, lambda _: False)
            one = Server.__new__(Server)
            one.__dict__.update(server.__dict__, owner=owner)
            one.write(sessions.create(scope, f"{owner}{number}", {}))
            found = one.read(lists.page(scope, limit=100, filters=filters)).sessions
            if {session.id for session in found} != {f"{owner}{n}" for n in range(number + 1)}:
                failures.append((owner, found))

    threads = [threading.Thread(target=work, args=(owner,)) for owner in ("a", "b", "")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.close()
    assert failures == []
