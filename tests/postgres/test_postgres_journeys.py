"""How many journeys to the server an operation takes, and that what is sent along with COMMIT does what it should."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

import recollect
from recollect.engine.postgres import transaction
from recollect.engine.postgres.book import Statement
from recollect.engine.postgres.link import Link


def said(text):
    return {"role": "user", "content": text}


def call(*names):
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name):
    return {"role": "tool", "tool_call_id": name, "content": f"of {name}"}


ANSWER = {"role": "assistant", "content": "answer"}
IMAGE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}],
}


@pytest.fixture
def journeys(monkeypatch):
    """Count how often something is waited for."""
    receive = Link.receive

    @contextlib.contextmanager
    def counted(expected):
        made = []

        def counting(link, *, end=False):
            made.append(end)
            return receive(link, end=end)

        with monkeypatch.context() as patch:
            patch.setattr(Link, "receive", counting)
            yield
        assert len(made) == expected

    return counted


@pytest.fixture(params=["", "ann"], ids=["alone", "owner"])
def store(request, postgres):
    with recollect.open(postgres, owner=request.param) as store:
        yield store
        assert store.check().problems == ()


@pytest.mark.parametrize(
    "turn",
    [
        [said("q")],
        [said("q"), ANSWER],
        [said("q"), call("a", "b"), result("b"), result("a"), ANSWER],
        [said("q"), call("a", "a"), result("a")],
        [said(f"m{number}") for number in range(100)],
        [said('\0\x10 "quoted" \\ {a,NULL} \U0001f600'), said(""), said("NULL")],
    ],
    ids=["one", "two", "calls", "a call that waits", "many", "hostile"],
)
@pytest.mark.parametrize("way", ["append", "save_turn"])
def test_writing_is_one_journey(store, journeys, turn, way):
    with recollect.open(":memory:") as model:
        made = []
        for place in (store, model):
            session = place.session("a")
            session.append(said("before"))
            with journeys(place is store):
                written = session.append(turn) if way == "append" else session.save_turn(turn[0], turn[1:])
            made.append(
                (
                    written,
                    [(item.id, item.role, item.turn, item.parts, item.tokens) for item in session.messages()],
                    [(each.message, each.part, each.status, each.result_message) for each in session.tool_calls()],
                    [(each.position, each.status, each.holder) for each in session.turns()],
                    (session.message_count, session.token_count, session.revision),
                )
            )
        assert made[0] == made[1]


def test_what_has_more_to_it_takes_more(store, journeys):
    session = store.session("a")
    session.append(call("a"))
    with journeys(4):  # the session, the path, the calls with this id; and the rest
        session.append(result("a"))
    with journeys(3):
        session.append(IMAGE)
    assert [each.status for each in session.tool_calls()] == ["success"]
    assert len(session.messages()) == 3


def test_what_is_large_goes_a_few_rows_at_a_time(store, journeys, monkeypatch):
    monkeypatch.setattr(transaction, "_LARGE", 5_000)
    session = store.session("a")
    with journeys(2):
        session.append([said("x" * 1_000)] * 6)
    with journeys(1):
        session.append([said("x" * 1_000)] * 4)
    assert [item.position for item in session.messages()] == list(range(1, 11))


def test_opening_and_reading_the_end_are_one_each(store, journeys):
    store.session("a").append([said(f"m{number}") for number in range(80)])
    with journeys(1):
        session = store.session("a")
    with journeys(1):
        assert [item.text for item in session.messages(last=50)] == [f"m{number}" for number in range(30, 80)]
    with journeys(1):
        assert len(session.messages(last=100)) == 80
    session.delete_message(79)
    with journeys(1):
        assert [item.position for item in session.messages(last=3)] == [77, 78, 80]


@pytest.mark.parametrize("owner", ["", "ann"])
def test_reading_the_end_is_planned_once(postgres, owner):
    """A server plans a statement anew for each of its first five runs, which takes as long as running it."""
    plans = Statement(
        "plans", "SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE name = 'messages_last'"
    )
    with recollect.open(f"{postgres}?pool_size=1", owner=owner) as store:
        session = store.session("a")
        session.append(said("x"))
        for _ in range(3):
            session.messages(last=50)
        with store._engine._server._connection(time.monotonic() + 10) as link:
            link.send(plans, [])
            assert link.receive(end=True) == [[(0, 3)]]


def test_the_end_of_a_fork(store, journeys):
    session = store.session("a")
    session.append([said(f"m{number}") for number in range(5)])
    fork = session.fork(at=3)
    assert [item.text for item in fork.messages(last=2)] == ["m1", "m2"]
    fork.append([said("f0"), said("f1")])
    with journeys(1):
        assert [item.id for item in fork.messages(last=2)] == ["2.4", "2.5"]
    assert [item.text for item in fork.messages(last=4)] == ["m1", "m2", "f0", "f1"]
    assert [item.text for item in fork.messages(last=99)] == ["m0", "m1", "m2", "f0", "f1"]
    session.rewind(2)
    assert [item.text for item in session.messages(last=1)] == ["m1"]


def test_a_new_session_and_an_empty_one(store, journeys):
    with journeys(1):
        session = store.session("a")
    assert session.messages(last=5) == []
    with pytest.raises(recollect.SessionNotFound):
        store.session("b", create=False)
    store.delete_session("a")
    with pytest.raises(recollect.SessionInTrash):
        store.session("a", create=False)
    with pytest.raises(recollect.SessionInTrash):
        session.messages(last=5)


def test_payloads_at_the_end(store):
    session = store.session("a")
    session.append([said("x"), IMAGE])
    assert "QUJD" * 2000 in str(session.messages(last=1)[0].parts)


def test_a_session_with_an_open_turn_is_opened(store, journeys):
    session = store.session("a")
    before = store.session("b").active_at
    with session.turn("q"):
        assert store.session("a").active_at > before


def test_a_turn_beside_an_open_one(store):
    session = store.session("a")
    with session.turn("open"), pytest.raises(recollect.SessionBusy):
        session.save_turn("q", ANSWER)
    assert [item.text for item in session.messages()] == ["open"]
    session.save_turn("q", ANSWER)
    session.rewind(1)
    with session.turn("open on another branch"):
        session.switch(1)
        assert session.save_turn("q", ANSWER).ids == ["1.4", "1.5"]


def test_a_session_that_is_not_there_any_more(store):
    session = store.session("a")
    session.append(said("first"))
    store.delete_session("a")
    for write in (lambda: session.append(said("x")), lambda: session.save_turn("q", ANSWER)):
        with pytest.raises(recollect.SessionInTrash):
            write()
    store.restore_session("a")
    assert session.append(said("second")).ids == ["1.2"]
    store.erase_session("a")
    with pytest.raises(recollect.SessionNotFound):
        session.append(said("x"))


def test_those_of_a_batch_that_are_refused_take_nobody_with_them(postgres, monkeypatch):
    """The others are committed by then, and are not run again."""
    runs = []
    write = transaction.write

    def counted(link, book, ops, *rest, **more):
        runs.append(len(ops))
        return write(link, book, ops, *rest, **more)

    async def story():
        async with recollect.open_async(postgres) as store:
            sessions = [await store.session(f"s{number}") for number in range(8)]
            await store.delete_session("s3")
            await store.delete_session("s6")
            monkeypatch.setattr(transaction, "write", counted)
            made = await asyncio.gather(
                *(session.append([said("one"), ANSWER]) for session in sessions), return_exceptions=True
            )
            assert [type(each).__name__ for each in made] == [
                "SessionInTrash" if number in (3, 6) else "Appended" for number in range(8)
            ]
            assert sum(runs) == 10  # each once, and the two that were refused once more, alone
            for number, session in enumerate(sessions):
                if number not in (3, 6):
                    assert [item.text for item in await session.messages()] == ["one", "answer"]

    asyncio.run(story())


def test_a_list_is_one_journey_and_leaves_nothing_behind(postgres, journeys):
    """One statement needs no BEGIN; the owner is named for it alone, and gone from the connection after it."""
    url = f"{postgres}?pool_size=1"
    with recollect.open(url, owner="ann") as ann:
        for number in range(5):
            ann.create_session(f"s{number}", title=f"t{number}", channel="web")
        ann.create_session("bare")
        for order in ("activity", "created", "title"):
            with journeys(1):
                page = ann.list_sessions(3, order=order)
            assert len(page) == 3
            assert {each.id for each in page} <= {"s0", "s1", "s2", "s3", "s4", "bare"}
        assert [each.id for each in ann.list_sessions(9, order="title")][-1] == "bare"
        for arguments in ({"channel": "nothing"}, {"channel": "web"}, {"channel": "web", "order": "title"}):
            with journeys(1):
                assert len(ann.list_sessions(3, **arguments)) == (0 if arguments["channel"] == "nothing" else 3)
        ann.session("s3").update(pinned=True)
        with journeys(1):
            assert [each.id for each in ann.list_sessions(2, pinned_first=True)] == ["s3", "bare"]
        with journeys(2):
            assert [each.id for each in ann.list_sessions(2, pinned_first=True, order="created")] == ["s3", "bare"]
        engine = ann._engine
        with engine._server._connection(float("inf")) as link:
            for name in ("recollect.owner", "enable_sort", "plan_cache_mode"):
                statement = Statement(f"look_{name[-5:]}", f"SELECT coalesce(current_setting('{name}', true), '')")
                link.send(statement, [])
            assert link.receive(end=True) == [[("",)], [("on",)], [("auto",)]]


@pytest.mark.parametrize("titled", [0, 2, 5])
@pytest.mark.parametrize("untitled", [0, 2, 5])
def test_a_list_in_two_stretches_that_ends_in_the_second(store, titled, untitled):
    for number in range(titled):
        store.create_session(f"t{number}", title=f"t{number}")
    for number in range(untitled):
        store.create_session(f"u{number}")
    expected = [*(f"t{number}" for number in range(titled)), *(f"u{number}" for number in reversed(range(untitled)))]
    for size in (1, 2, 3, 20):
        seen, after = [], None
        while True:
            page = store.list_sessions(size, order="title", after=after)
            seen += [each.id for each in page]
            after = page.next
            if after is None:
                break
        assert seen == expected


def test_the_hits_of_a_page_are_read_together(store, journeys):
    session = store.session("a")
    for number in range(15):
        session.append([said(f"heron {number}"), call(f"c{number}"), result(f"c{number}")])
    fork = session.fork(id="fork")
    fork.append([call("late"), said("heron in a fork"), result("late")])
    store.index()
    for limit in (1, 15):
        with journeys(7):  # what waits to be indexed, the mark, titles, a word's count, hits, their messages, the end
            assert len(store.search("heron", limit)) == limit
    with journeys(7):  # the tools of results instead of titles, which have no role
        page = store.search("role:tool of", 15)
    assert [hit.tool for hit in page] == ["f"] * 15
    with journeys(6):  # what has a word that is nowhere is not looked for
        assert len(store.search("nowhere", 15)) == 0
    store.delete_session("a")
    assert {hit.session for hit in store.search("heron", 20)} == {"fork"}
    assert [hit.tool for hit in store.search("role:tool of", 20)] == ["f"] * 16
