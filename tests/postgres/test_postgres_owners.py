"""Owners: every method is called with ids of another owner, and row-level security separates owners in the database."""

from __future__ import annotations

import asyncio
import copy
import threading

import psycopg
import pytest

import recollect
from public_methods import list_all_methods

TABLES = (
    "trees", "sessions", "branches", "turns", "messages", "appends", "tool_calls", "compactions", "snapshots", "blobs",
    "records", "pins", "search_index", "search_titles", "search_terms", "session_labels",
    "message_versions",
)  # fmt: skip


def user_message(text):
    return {"role": "user", "content": text}


@pytest.fixture
def ann(postgres):
    """Open a store with every kind of row."""
    with recollect.open(postgres, owner="ann") as store:
        session = store.session("cli:one", title="Hers", metadata={"a": 1}, labels=["hers"], external_id="x1")
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
        session.mark_message(1, {"pinned": True})
        session.append(recollect.Draft(role="user", parts=(recollect.TextPart(text="first"),), key="hers"))
        session.replace_message(session.message(key="hers").id, user_message("second"))
        session.snapshots.add("summary", "so far")
        session.fork(id="cli:fork").compact(summary="in short", keep_turns=0)
        session.rewind(2)
        store.session("gone").append(user_message("in the trash"))
        store.delete_session("gone")
        store.maintenance.index()
        store.records.put("setting", "color", "red")
        session.presence.arrive("terminal", id="hers")
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


def has_no_message(store, key):
    with pytest.raises(recollect.MessageNotFound):
        store.message(key=key)
    return True


# Methods of a store that take a session id, called with an id of another owner.
STORE = {
    "session": lambda store, name: store.session(name, create=False),
    "get_session": lambda store, name: store.get_session(name),
    "find_session": lambda store, name: store.find_session(name),
    "delete_session": lambda store, name: store.delete_session(name),
    "restore_session": lambda store, name: store.restore_session(name),
    "erase_session": lambda store, name: store.erase_session(name, forks="erase"),
}
# Methods without a session id: they affect the owner's own data only.
STORE_WIDE = {
    "search": lambda store: list(store.search("question")) == [],
    "maintenance.index": lambda store: store.maintenance.index() == 0,
    "maintenance.reindex": lambda store: store.maintenance.reindex() == 0,
    "maintenance.empty_trash": lambda store: store.maintenance.empty_trash().count == 0,
    "maintenance.prune": lambda store: (
        store.maintenance.prune(keep=0, max_messages=1, tool_output_over=0, erase=True).count == 0
    ),
    "stats": lambda store: store.stats().messages == 0,
    "tools.stats": lambda store: store.tools.stats() == [],
    "maintenance.check": lambda store: store.maintenance.check(repair=True).findings == (),
    "maintenance.recover": lambda store: store.maintenance.recover() == [],
    "shown_counts": lambda store: store.shown_counts(["cli:one", "cli:fork"]) == [0, 0],
    "message": lambda store: has_no_message(store, "hers"),
}
NO_SESSION = {
    "maintenance.owners",
    "as_owner",
    "list_sessions",
    "watch",
    "close",
}
NO_FILE = {"maintenance.backup", "maintenance.space", "maintenance.optimize"}
SESSION = {
    "refresh": lambda s: s.refresh(),
    "append": lambda s: s.append(user_message("x")),
    "messages": lambda s: s.messages(),
    "find_append": lambda s: s.find_append("k"),
    "shown_counts": lambda s: s.shown_counts([(0, None)]),
    "branches.shown_counts": lambda s: s.branches.shown_counts(),
    "message": lambda s: s.message("1.1"),
    "message_versions": lambda s: s.message_versions("1.1"),
    "mark_message": lambda s: s.mark_message("1.1", {"a": 1}),
    "replace_message": lambda s: s.replace_message("1.1", user_message("mine"), erase=True),
    "restore_messages": lambda s: s.restore_messages(["1.1"]),
    "delete_messages": lambda s: s.delete_messages(["1.1"]),
    "pop": lambda s: s.pop(),
    "history": lambda s: s.history("openai"),
    "update": lambda s: s.update(title="mine"),
    "turn": lambda s: s.turn("q", take_over=True),
    "save_turn": lambda s: s.save_turn("q", {"role": "assistant", "content": "r"}),
    "turns.list": lambda s: s.turns.list(),
    "tools.list": lambda s: s.tools.list(),
    "tools.start": lambda s: s.tools.start("c1"),
    "tools.record_result": lambda s: s.tools.record_result("c1", "x"),
    "branches.list": lambda s: s.branches.list(),
    "rewind": lambda s: s.rewind(0),
    "branches.switch": lambda s: s.branches.switch(1),
    "fork": lambda s: s.fork(at="1.1"),
    "active_tokens": lambda s: s.active_tokens(),
    "compact": lambda s: s.compact(summary="mine"),
    "compactions.undo": lambda s: s.compactions.undo(),
    "compactions.list": lambda s: s.compactions.list(),
    "compactions.latest": lambda s: s.compactions.latest(),
    "snapshots.add": lambda s: s.snapshots.add("summary", "mine"),
    "snapshots.list": lambda s: s.snapshots.list(),
    "stats": lambda s: s.stats(),
    "turns.resume": lambda s: s.turns.resume("1.1"),
    "presence.arrive": lambda s: s.presence.arrive("terminal"),
    "presence.list": lambda s: s.presence.list(),
}


# Methods that take a presence id: one of another owner does not exist.
PRESENCE = {"presence.stay": lambda s: s.presence.stay("hers"), "presence.leave": lambda s: s.presence.leave("hers")}


def test_every_public_method_is_in_a_table():
    records = {f"records.{name}" for name in ("put", "get", "list", "delete")}  # tested below
    assert list_all_methods(recollect.Store) - records == set(STORE) | set(STORE_WIDE) | NO_SESSION | NO_FILE
    assert list_all_methods(recollect.Session) - {"to_dict"} - records == set(SESSION) | set(PRESENCE)


def test_methods_find_and_change_nothing_of_another_owner(ann, bob, databases, database):
    before = contents(databases, database, "ann")
    for id in ("cli:one", "cli:fork"):
        for name, method in STORE.items():
            try:
                assert method(bob, id) is None, name
            except recollect.SessionNotFound:
                continue
        foreign = ann.session(id, create=False)
        before = contents(databases, database, "ann")
        # A handle with the keys of the other owner's session, as if they had been guessed.
        foreign_handle = recollect.Session(bob, foreign.info)
        for name, method in SESSION.items():
            with pytest.raises(recollect.NotFound):
                method(foreign_handle)
            assert contents(databases, database, "ann") == before, name
        for name, method in PRESENCE.items():
            assert not method(foreign_handle)
            assert contents(databases, database, "ann") == before, name
    for name in ("find", "prefix"):
        with pytest.raises(recollect.SessionNotFound):
            bob.find_session({"find": "Hers", "prefix": "cli"}[name])
    assert list(bob.list_sessions(archived=None, delegates=True)) == []
    assert list(bob.list_sessions(deleted=True)) == []
    assert bob.records.get("setting", "color") is None
    assert list(bob.records.list("setting")) == []
    assert bob.records.delete("setting", "color") is False
    with pytest.raises(recollect.StaleRecord):
        bob.records.put("setting", "color", "blue", expected=1)
    bob.records.put("setting", "color", "blue", expected=0)
    assert ann.records.get("setting", "color").value == "red"
    assert contents(databases, database, "ann") == before


def test_store_wide_methods_affect_one_owner_only(ann, bob, databases, database):
    before = contents(databases, database, "ann")
    for name, method in STORE_WIDE.items():
        assert method(bob), name
        assert contents(databases, database, "ann") == before, name
    assert [hit.session for hit in ann.search("question")] != []
    assert (ann.stats().messages, ann.maintenance.check().problems) == (5, ())


def test_file_maintenance_is_not_supported(bob, tmp_path):
    for method in (lambda: bob.maintenance.backup(tmp_path / "copy"), bob.maintenance.space, bob.maintenance.optimize):
        with pytest.raises(recollect.errors.NotSupported):
            method()


def test_a_turn_of_another_owner_cannot_be_used(ann, bob, databases, database):
    session = ann.session("cli:one", create=False)
    turn = session.turn("q")
    stream = turn.stream()
    before = contents(databases, database, "ann")
    foreign_handle = copy.copy(turn)
    foreign_handle.session = recollect.Session(bob, session.info)
    foreign_handle._streams = []  # those belong to the other handle, which may write
    for method in (
        lambda: foreign_handle.add(user_message("x")),
        foreign_handle.complete,
        foreign_handle.cancel,
        lambda: foreign_handle.fail("e"),
        foreign_handle.stream,
    ):
        with pytest.raises(recollect.NotFound):
            method()
    assert contents(databases, database, "ann") == before
    stream.close()
    turn.complete()


def test_two_owners_use_the_same_ids(ann, bob):
    bobs_session = bob.session("cli:one", title="His")
    bobs_session.append(
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}],
        },
        key="k",
    )
    assert (ann.session("cli:one").title, bobs_session.title) == ("Hers", "His")
    assert bob.erase_session("cli:one") == ["cli:one"]
    image = ann.session("cli:fork").messages()[-2]
    assert "QUJD" * 2000 in str(image.parts)


def test_row_level_security_separates_owners(ann, postgres):
    """The role of the application sees only rows of the current owner, although it owns the tables."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        for owner, visible in (("", False), ("bob", False), ("ann", True)):
            connection.execute("SELECT set_config('recollect.owner', %s, false)", (owner,))
            for table in TABLES:
                count = connection.execute(f"SELECT count(*) FROM recollect.{table}").fetchone()[0]
                assert (count > 0) == visible, (owner, table)
        connection.execute("SELECT set_config('recollect.owner', 'bob', false)")
        assert connection.execute("UPDATE recollect.sessions SET title = 'x'").rowcount == 0
        assert connection.execute("DELETE FROM recollect.messages").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                "INSERT INTO recollect.records (owner, kind, key, value, created_at, updated_at) "
                "VALUES ('ann', 'x', 'x', '1', 1, 1)"
            )


def test_listing_shows_names_of_owners_only(ann, bob, postgres, databases, database):
    bob.records.put("setting", "color", "green")
    for store in (ann, bob):
        assert (store.maintenance.owners().names, store.maintenance.owners().everyone) == (("ann", "bob"), True)
    assert list(bob.list_sessions()) == []  # recollect.listing ended with its transaction
    for filters in ({"label": "hers"}, {"external_id": "x1"}, {"id_prefix": "cli:"}, {"metadata": {"a": 1}}):
        assert (len(ann.list_sessions(**filters)), len(bob.list_sessions(**filters))) == (
            2 if filters.keys() <= {"label", "id_prefix", "metadata"} else 1, 0,
        )  # fmt: skip
    with pytest.raises(recollect.SessionNotFound):
        bob.find_session("x1")
    with pytest.raises(recollect.SessionNotFound):
        bob.session("own").update(parent="cli:one")
    assert bob.records.get("setting", "color").value == "green"
    before = contents(databases, database, "ann")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SELECT set_config('recollect.listing', 'on', false)")
        for table in set(TABLES) - {"trees", "blobs", "records"}:
            assert connection.execute(f"SELECT count(*) FROM recollect.{table}").fetchone()[0] == 0, table
        for table in ("trees", "blobs", "records"):
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
            store.session("x").append(user_message("y"))
            assert store.maintenance.owners().everyone
            with psycopg.connect(databases.url_of(name, "postgres"), autocommit=True) as admin:
                admin.execute(policy)
            assert not store.maintenance.owners().everyone
        with recollect.open(databases.url_of(name, "postgres")) as store:
            assert store.maintenance.owners() == recollect.types.Owners(names=("bob",), everyone=True)
    finally:
        databases.drop(name)


@pytest.mark.parametrize("attribute", ["SUPERUSER", "BYPASSRLS"])
def test_a_role_that_bypasses_policies_is_refused_for_an_owner(databases, database, attribute):
    role = f"role_{attribute.lower()}"
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute(f"DROP ROLE IF EXISTS {role}".encode())
        admin.execute(f"CREATE ROLE {role} LOGIN {attribute}".encode())
    url = databases.url_of(database, "plain").replace("plain", role, 1)
    with pytest.raises(recollect.StoreUnavailable, match="row-level security"):
        recollect.open(url, owner="ann")
    with pytest.raises(recollect.StoreUnavailable, match="row-level security"):
        asyncio.run(_open_async(url, "ann"))
    with psycopg.connect(databases.url_of(database, "postgres"), autocommit=True) as admin:
        admin.execute(f"DROP ROLE {role}".encode())


async def _open_async(url, owner):
    async with recollect.open_async(url, owner=owner):
        pass


def test_a_superuser_uses_the_default_owner(databases, database, ann):
    with recollect.open(databases.url_of(database, "postgres")) as store:
        assert list(store.list_sessions()) == []
        store.session("x").append(user_message("y"))
        assert [session.id for session in store.list_sessions()] == ["x"]
    assert {session.id for session in ann.list_sessions()} == {"cli:one", "cli:fork"}


def test_a_reused_connection_does_not_keep_the_owner(postgres):
    """One connection serves several owners in turn, as behind a pooler: the owner ends with the transaction."""
    from recollect.engine.postgres.search import PostgresSearch
    from recollect.engine.postgres.server import DatabaseServer
    from recollect.storage import listing, sessions
    from recollect.storage.operation import Scope

    server = DatabaseServer(f"{postgres}?pool_size=1", "", 10)
    failures = []
    filters = dict.fromkeys(("archived", "pinned", "delegates", "channel", "model", "tool", "parent", "status", "role"))

    def work(owner):
        for number in range(15):
            scope = Scope(owner, "h", 1, lambda _: False, PostgresSearch)
            server.write(sessions.create(scope, f"{owner}{number}", {}), owner)
            page = server.read(listing.read_page(scope, limit=100, filters=filters), owner).sessions
            if {session.id for session in page} != {f"{owner}{n}" for n in range(number + 1)}:
                failures.append((owner, page))

    threads = [threading.Thread(target=work, args=(owner,)) for owner in ("a", "b", "")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.close()
    assert failures == []
