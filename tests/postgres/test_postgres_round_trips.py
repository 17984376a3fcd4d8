"""The number of round trips per operation, and the results of operations whose COMMIT is pipelined."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

import psycopg
import pytest

import recollect
from recollect.engine.postgres import fast_paths, server, transactions
from recollect.engine.postgres.connections import PipelinedConnection
from recollect.engine.postgres.statements import PreparedStatement


def user_message(text):
    return {"role": "user", "content": text}


def tool_call(*names):
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tool_result(name):
    return {"role": "tool", "tool_call_id": name, "content": f"of {name}"}


ANSWER_MESSAGE = {"role": "assistant", "content": "answer"}
IMAGE_MESSAGE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}],
}


@pytest.fixture(autouse=True)
def _keep_old_commit_tokens(monkeypatch):
    """Keep old commit tokens, because deleting them follows the commit of a random operation and takes a round trip."""
    monkeypatch.setattr(server, "_SWEEP_AFTER_COMMITS", sys.maxsize)


@pytest.fixture
def round_trips(monkeypatch):
    """Return a context manager that expects a number of round trips."""
    receive = PipelinedConnection.receive

    @contextlib.contextmanager
    def expect_round_trips(expected):
        receives = []

        def count_receive(pipeline, *, end=False):
            receives.append(end)
            return receive(pipeline, end=end)

        with monkeypatch.context() as patch:
            patch.setattr(PipelinedConnection, "receive", count_receive)
            yield
        assert len(receives) == expected

    return expect_round_trips


@pytest.fixture(params=["", "ann"], ids=["default owner", "owner"])
def store(request, postgres):
    with recollect.open(postgres, owner=request.param) as store:
        yield store
        assert store.maintenance.check().problems == ()


@pytest.mark.parametrize(
    "turn",
    [
        [user_message("q")],
        [user_message("q"), ANSWER_MESSAGE],
        [user_message("q"), tool_call("a", "b"), tool_result("b"), tool_result("a"), ANSWER_MESSAGE],
        [user_message("q"), tool_call("a", "a"), tool_result("a")],
        [user_message(f"m{number}") for number in range(100)],
        [user_message('\0\x10 "quoted" \\ {a,NULL} \U0001f600'), user_message(""), user_message("NULL")],
    ],
    ids=["one", "two", "calls", "an open call", "many", "hostile"],
)
@pytest.mark.parametrize("method", ["append", "save_turn"])
def test_append_and_save_turn_take_one_round_trip(store, round_trips, turn, method):
    with recollect.open(":memory:") as model:
        outcomes = []
        for target_store in (store, model):
            session = target_store.session("a")
            session.append(user_message("before"))
            with round_trips(target_store is store):
                append_result = session.append(turn) if method == "append" else session.save_turn(turn[0], turn[1:])
            outcomes.append(
                (
                    append_result,
                    [
                        (message.id, message.role, message.turn, message.parts, message.tokens)
                        for message in session.messages()
                    ],
                    [(call.message, call.part, call.status, call.result_message) for call in session.tools.list()],
                    [(record.position, record.status, record.holder) for record in session.turns.list()],
                    (session.message_count, session.token_count, session.revision),
                )
            )
        assert outcomes[0] == outcomes[1]


def test_old_commit_tokens_are_deleted_in_a_round_trip_of_their_own(store, round_trips, monkeypatch):
    session = store.session("a")
    monkeypatch.setattr(server, "_SWEEP_AFTER_COMMITS", 1)
    with round_trips(2):
        session.append(user_message("x"))
    with round_trips(1):  # not again within a minute
        session.append(user_message("y"))


def test_late_results_and_payloads_take_more_round_trips(store, round_trips):
    session = store.session("a")
    session.append(tool_call("a"))
    with round_trips(4):  # the session, the path, the calls with this id, and the writes with COMMIT
        session.append(tool_result("a"))
    with round_trips(3):
        session.append(IMAGE_MESSAGE)
    assert [call.status for call in session.tools.list()] == ["success"]
    assert len(session.messages()) == 3


def test_a_large_append_is_sent_in_several_statements(store, round_trips, monkeypatch):
    monkeypatch.setattr(fast_paths, "_LARGE_TEXT", 5_000)
    session = store.session("a")
    with round_trips(2):
        session.append([user_message("x" * 1_000)] * 6)
    with round_trips(1):
        session.append([user_message("x" * 1_000)] * 4)
    assert [message.position for message in session.messages()] == list(range(1, 11))


def test_opening_and_reading_last_messages_take_one_round_trip_each(store, round_trips):
    store.session("a").append([user_message(f"m{number}") for number in range(80)])
    with round_trips(1):
        session = store.session("a")
    with round_trips(1):
        assert [message.text for message in session.messages(last=50)] == [f"m{number}" for number in range(30, 80)]
    with round_trips(1):
        assert len(session.messages(last=100)) == 80
    session.delete_messages([79])
    with round_trips(1):
        assert [message.position for message in session.messages(last=3)] == [77, 78, 80]


@pytest.mark.parametrize("owner", ["", "ann"])
def test_messages_last_uses_a_generic_plan(postgres, owner):
    """A server plans a statement again for each of its first five runs, which takes as long as running it."""
    plans = PreparedStatement(
        "plans", "SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE name = 'messages_last'"
    )
    with recollect.open(f"{postgres}?pool_size=1", owner=owner) as store:
        session = store.session("a")
        session.append(user_message("x"))
        for _ in range(3):
            session.messages(last=50)
        with store._engine._server._connection(time.monotonic() + 10) as pipeline:  # pyright: ignore[reportAttributeAccessIssue]
            pipeline.send(plans, [])
            assert pipeline.receive(end=True) == [[(0, 3)]]


def test_last_messages_of_a_fork(store, round_trips):
    session = store.session("a")
    session.append([user_message(f"m{number}") for number in range(5)])
    fork = session.fork(at=3)
    assert [message.text for message in fork.messages(last=2)] == ["m1", "m2"]
    fork.append([user_message("f0"), user_message("f1")])
    with round_trips(1):
        assert [message.id for message in fork.messages(last=2)] == ["2.4", "2.5"]
    assert [message.text for message in fork.messages(last=4)] == ["m1", "m2", "f0", "f1"]
    assert [message.text for message in fork.messages(last=99)] == ["m0", "m1", "m2", "f0", "f1"]
    session.rewind(2)
    assert [message.text for message in session.messages(last=1)] == ["m1"]


def test_a_new_session(store, round_trips):
    with round_trips(2):  # it is read, then created
        session = store.session("a")
    with round_trips(1):
        store.session("b", exist_ok=False)
    with round_trips(1):
        child = store.session(
            "child", exist_ok=False, labels=["x", "y"], parent="a", relation="fork", metadata={"k": 1}
        )
    assert (child.labels, child.parent, child.relation) == (("x", "y"), "a", "fork")
    assert [entry.id for entry in store.list_sessions(label=["y", "x"])] == ["child"]
    with round_trips(1):
        assert store.session("other", exist_ok=False, labels=["z"]).labels == ("z",)
    with round_trips(2):  # the update, and the rows of the labels with COMMIT
        child.update(labels=["z"], title="T")
    with round_trips(3):  # the session, and the same
        child.update(add_labels=["w"])
    with round_trips(2):  # the session, and COMMIT
        child.update(add_labels=["w"])
    assert [entry.id for entry in store.list_sessions(label="z")] == ["other", "child"]
    assert session.messages(last=5) == []
    with pytest.raises(recollect.SessionNotFound):
        store.session("c", create=False)
    store.delete_session("a")
    with pytest.raises(recollect.SessionInTrash):
        store.session("a", create=False)
    with pytest.raises(recollect.SessionInTrash):
        session.messages(last=5)


def test_last_messages_contain_payloads(store):
    session = store.session("a")
    session.append([user_message("x"), IMAGE_MESSAGE])
    assert "QUJD" * 2000 in str(session.messages(last=1)[0].parts)


def test_save_turn_raises_session_busy_next_to_an_open_turn(store):
    session = store.session("a")
    with session.turn("open"), pytest.raises(recollect.SessionBusy):
        session.save_turn("q", ANSWER_MESSAGE)
    assert [message.text for message in session.messages()] == ["open"]
    session.save_turn("q", ANSWER_MESSAGE)
    session.rewind(1)
    with session.turn("open on another branch"):
        session.branches.switch(1)
        assert session.save_turn("q", ANSWER_MESSAGE).ids == ["1.4", "1.5"]


def test_writes_to_a_deleted_session_raise(store):
    session = store.session("a")
    session.append(user_message("first"))
    store.delete_session("a")
    for write in (lambda: session.append(user_message("x")), lambda: session.save_turn("q", ANSWER_MESSAGE)):
        with pytest.raises(recollect.SessionInTrash):
            write()
    store.restore_session("a")
    assert session.append(user_message("second")).ids == ["1.2"]
    store.erase_session("a")
    with pytest.raises(recollect.SessionNotFound):
        session.append(user_message("x"))


def test_refused_operations_do_not_fail_their_batch(postgres, monkeypatch):
    """The other operations are committed and do not run again."""
    runs = []
    write = transactions.write

    def count_operations(pipeline, registry, ops, *arguments, **options):
        runs.append(len(ops))
        return write(pipeline, registry, ops, *arguments, **options)

    async def append_batch():
        async with recollect.open_async(postgres) as store:
            sessions = [await store.session(f"s{number}") for number in range(8)]
            await store.delete_session("s3")
            await store.delete_session("s6")
            monkeypatch.setattr(transactions, "write", count_operations)
            outcomes = await asyncio.gather(
                *(session.append([user_message("one"), ANSWER_MESSAGE]) for session in sessions), return_exceptions=True
            )
            assert [type(outcome).__name__ for outcome in outcomes] == [
                "SessionInTrash" if number in (3, 6) else "Appended" for number in range(8)
            ]
            assert sum(runs) == 10  # each once, and the two refused ones once more, alone
            for number, session in enumerate(sessions):
                if number not in (3, 6):
                    assert [message.text for message in await session.messages()] == ["one", "answer"]

    asyncio.run(append_batch())


def test_a_list_takes_one_round_trip_and_leaves_no_settings(postgres, round_trips):
    """A single statement needs no BEGIN; the owner is set for it only, and no setting stays on the connection."""
    url = f"{postgres}?pool_size=1"
    with recollect.open(url, owner="ann") as ann:
        for number in range(5):
            ann.session(f"s{number}", exist_ok=False, title=f"t{number}", channel="web")
        ann.session("bare", exist_ok=False)
        for order in ("activity", "created", "title"):
            # By title, untitled sessions are a second stage, so it takes BEGIN with the first one, and COMMIT.
            with round_trips(2 if order == "title" else 1):
                page = ann.list_sessions(3, order=order)
            assert len(page) == 3
            # Untitled sessions have an index, which takes two statements.
            with round_trips(4 if order == "title" else 1):
                assert len(ann.list_sessions(3, order=order, oldest_first=True)) == 3
            assert {session.id for session in page} <= {"s0", "s1", "s2", "s3", "s4", "bare"}
        assert [session.id for session in ann.list_sessions(9, order="title")][-1] == "bare"
        # A filter with an index takes two statements, the matches and their rows, and COMMIT; the first one alone if
        # nothing matches.
        for arguments, expected in (
            ({"channel": "nothing"}, 2),
            ({"channel": "web"}, 3),
            ({"channel": "web", "order": "title"}, 3),
            ({"id_prefix": "s", "oldest_first": True}, 3),
            ({"id_prefix": "s", "metadata": {"n": 1}, "external_id": "nothing"}, 2),
        ):
            with round_trips(expected):
                assert len(ann.list_sessions(3, **arguments)) == (0 if "nothing" in arguments.values() else 3)
        ann.session("s3").update(pinned=True)
        with round_trips(1):
            assert [session.id for session in ann.list_sessions(2, pinned_first=True)] == ["s3", "bare"]
        with round_trips(4):  # the pinned sessions take two statements, the others one; then COMMIT
            assert [session.id for session in ann.list_sessions(2, pinned_first=True, order="created")] == [
                "s3",
                "bare",
            ]
        engine = ann._engine
        with engine._server._connection(float("inf")) as pipeline:  # pyright: ignore[reportAttributeAccessIssue]
            for name in ("recollect.owner", "enable_sort", "plan_cache_mode"):
                statement = PreparedStatement(
                    f"setting_{name[-5:]}", f"SELECT coalesce(current_setting('{name}', true), '')"
                )
                pipeline.send(statement, [])
            assert pipeline.receive(end=True) == [[("",)], [("on",)], [("auto",)]]


@pytest.mark.parametrize("titled_count", [0, 2, 5])
@pytest.mark.parametrize("untitled_count", [0, 2, 5])
def test_a_list_by_title_ends_with_untitled_sessions(store, titled_count, untitled_count):
    for number in range(titled_count):
        store.session(f"t{number}", exist_ok=False, title=f"t{number}")
    for number in range(untitled_count):
        store.session(f"u{number}", exist_ok=False)
    expected = [
        *(f"t{number}" for number in range(titled_count)),
        *(f"u{number}" for number in reversed(range(untitled_count))),
    ]
    for size in (1, 2, 3, 20):
        ids, after = [], None
        while True:
            page = store.list_sessions(size, order="title", after=after)
            ids += [session.id for session in page]
            after = page.next
            if after is None:
                break
        assert ids == expected


def test_the_hits_of_a_page_are_read_in_one_statement(store, round_trips):
    session = store.session("a")
    for number in range(15):
        session.append([user_message(f"heron {number}"), tool_call(f"c{number}"), tool_result(f"c{number}")])
    fork = session.fork(id="fork")
    fork.append([tool_call("late"), user_message("heron in a fork"), tool_result("late")])
    store.maintenance.index()
    for limit in (1, 15):
        # The backlog and its COMMIT, because looking for it is an operation of its own; then the mark of the index,
        # titles, count of the word, hits, messages, COMMIT.
        with round_trips(8):
            assert len(store.search("heron", limit)) == limit
    with round_trips(8):  # tool names instead of titles, which have no role
        page = store.search("role:tool of", 15)
    assert [hit.tool for hit in page] == ["f"] * 15
    with round_trips(7):  # a word that no message has is not searched for
        assert len(store.search("nowhere", 15)) == 0
    store.delete_session("a")
    assert {hit.session for hit in store.search("heron", 20)} == {"fork"}
    assert [hit.tool for hit in store.search("role:tool of", 20)] == ["f"] * 16


def test_opening_a_session_reads_in_one_round_trip(store, postgres, round_trips):
    store.session("a", title="T")
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("SELECT set_config('recollect.owner', %s, false)", (store._scope().owner,))
        commits = "SELECT token, at FROM recollect.commits ORDER BY token"
        before = other.execute(commits).fetchall()
        other.execute("BEGIN")
        other.execute("SELECT id FROM recollect.sessions FOR UPDATE")  # opening waits for no lock
        for open_session in (store.session, store.get_session, lambda name: store.session(name, create=False)):
            with round_trips(1):
                assert open_session("a").title == "T"
        other.execute("ROLLBACK")
        assert other.execute(commits).fetchall() == before


def test_opening_a_session_with_a_live_turn_only_reads(store, postgres, round_trips):
    turn = store.session("a").turn("q")
    with psycopg.connect(postgres, autocommit=True) as other:
        commits = "SELECT token, at FROM recollect.commits ORDER BY token"
        before = other.execute(commits).fetchall()
        with round_trips(5):  # the fast path, the session, its branches, the turn, and COMMIT
            assert store.session("a").message_count == 1
        assert other.execute(commits).fetchall() == before
    turn.complete()
