"""Search: what is found, by which words and filters, what the hits look like, and that nothing typed is an error."""

from __future__ import annotations

import string
from typing import Any

import pytest

from recollect.errors import InvalidValue, SessionNotFound
from recollect.model.hit import Hit
from recollect.ops.search.words import fold
from recollect.store import Session, Store
from recollect.testing.place import Place
from recollect.testing.talk import answers, asks, assistant, user

DAY = 86_400_000
NOON = 1_741_348_800_000  # 2025-03-07T12:00:00Z


def search(store: Store, query: str, **filters: Any) -> list[Hit]:
    """Read all hits, a few at a time, and check what is true of every hit."""
    page = store.search(query, 3, **filters)
    hits = list(page)
    while page.next is not None:
        assert len(page) == 3
        page = store.search(query, 3, after=page.next, **filters)
        hits += page
    assert hits == store.search(query, 1000, **filters)
    assert len({(hit.session, hit.message) for hit in hits}) == len(hits)
    for hit in hits:
        _sound(store, hit)
    return hits


def _sound(store: Store, hit: Hit) -> None:
    at = 0
    for low, high in hit.marks:
        assert at <= low < high <= len(hit.text)
        at = high
    assert hit.text == "".join(hit.snippet.split("<mark>")).replace("</mark>", "")
    assert "\n" not in hit.text
    assert hit.to_dict()["snippet"] == hit.snippet
    assert (hit.kind == "title") == (hit.message is None)
    if hit.message is not None and hit.deleted_at is None:
        session = store.get_session(hit.session)
        assert session is not None
        message = session.message(hit.message)
        assert (message.role, message.created_at, message.deleted_at) == (hit.role, hit.created_at, None)


def found(store: Store, query: str, **filters: Any) -> list[str]:
    """Name what is found, in order: a message by its text's first word, a title by the session."""
    names: list[str] = []
    for hit in search(store, query, **filters):
        if hit.message is None:
            names.append(f"title of {hit.session}")
        else:
            names.append(hit.message if hit.session == "a" else f"{hit.session}:{hit.message}")
    return names


def some(store: Store, query: str, **filters: Any) -> set[str]:
    """Name what is found, in whatever order."""
    return set(found(store, query, **filters))


def said(store: Store, *texts: str, id: str = "a", **fields: Any) -> Session:
    """Open a session in which this was said."""
    session = store.session(id, **fields)
    session.append([user(text) for text in texts])
    return session


def at(text: str, moment: str, **rest: Any) -> dict[str, Any]:
    """Say something at a time."""
    return {"role": "user", "content": text, "created_at": moment, **rest}


def marked(hit: Hit) -> list[str]:
    """Give what is marked in a hit."""
    return [hit.text[low:high] for low, high in hit.marks]


class TestSearch:
    """Everything that was said is found, with what is said about it."""

    def test_what_people_and_agents_said(self, store: Store):
        session = store.session("a", title="Some plans", channel="cli")
        session.append([user("Where is the harbour?"), assistant("The harbour is in the north.")])
        assert some(store, "harbour") == {"1.1", "1.2"}
        (hit,) = search(store, "north")
        assert (hit.session, hit.title, hit.kind, hit.message, hit.role) == (
            "a",
            "Some plans",
            "text",
            "1.2",
            "assistant",
        )
        assert (hit.channel, hit.tool, hit.archived_at, hit.deleted_at, hit.parent) == ("cli", None, None, None, None)
        assert hit.snippet == "The harbour is in the <mark>north</mark>."
        assert found(store, "south") == []

    def test_titles(self, store: Store):
        store.session("a", title="Trip to Oslo").append(user("the train to Oslo"))
        store.session("b", title="Oslo, again")
        store.session("c", title=None)
        hits = search(store, "oslo")
        assert [hit.kind for hit in hits] == ["title", "title", "text"]
        assert {hit.snippet for hit in hits[:2]} == {"Trip to <mark>Oslo</mark>", "<mark>Oslo</mark>, again"}
        assert found(store, "trip oslo") == ["title of a"]
        assert found(store, "trip again") == []
        assert found(store, "slo again") == ["title of b"]

    def test_tool_names_arguments_and_results(self, store: Store):
        session = store.session("a")
        call = {
            "type": "tool_use",
            "id": "t",
            "name": "read_file",
            "input": {"path": "notes/lighthouse.md", "deep": [{"x": "keeper"}]},
        }
        session.append([user("look"), {"role": "assistant", "content": [call]}, answers("t", text="the lamp burns")])
        for query, kind, message in (
            ("read_file", "tool_call", "1.2"),
            ("lighthouse", "tool_call", "1.2"),
            ("keeper", "tool_call", "1.2"),
            ("lamp", "tool_result", "1.3"),
        ):
            (hit,) = search(store, query)
            assert (hit.kind, hit.message, hit.tool) == (kind, message, "read_file"), query
            assert hit.marks
        assert some(store, "tool:read_file") == {"1.2", "1.3"}

    def test_reasoning_and_what_went_wrong(self, store: Store):
        session = store.session("a")
        thinking = {"type": "thinking", "thinking": "perhaps a walrus", "signature": "x"}
        session.append({"role": "assistant", "content": [thinking, {"type": "text", "text": "hello"}]})
        session.append(asks("t"))
        session.record_tool_result("t", status="error", error_message="no such porpoise")
        (hit,) = search(store, "walrus")
        assert (hit.kind, hit.message) == ("reasoning", "1.1")
        (hit,) = search(store, "porpoise")
        assert (hit.kind, hit.message, hit.tool) == ("tool_result", "1.3", "read_file")

    def test_results_that_are_json_are_read(self, store: Store):
        session = store.session("a")
        session.append([asks("t"), answers("t", text='{"line": "one\\ntwo", "n": [1, "caf\\u00e9"]}')])
        assert found(store, "two") == found(store, "cafe") == found(store, "line") == ["1.2"]
        assert found(store, "ntwo") == found(store, "u00e9") == []

    def test_the_tool_of_a_result_far_behind_its_call(self, store: Store):
        session = store.session("a")
        session.append([asks("t"), *(user(f"m{n}") for n in range(450))])
        assert found(store, "tool:read_file") == ["1.1"]
        session.append(answers("t", text="at last"))
        assert some(store, "tool:read_file") == {"1.1", "1.452"}

    def test_a_fork_of_a_fork_answers_a_call_of_the_first(self, store: Store):
        session = store.session("a")
        session.append([user("go"), asks("t1", "t2")])
        second = session.fork(id="b")
        second.append(answers("t1", text="first answer"))
        third = second.fork(id="c")
        third.append(answers("t2", text="second answer"))
        assert some(store, "tool:read_file answer") == {"b:2.3", "c:3.4"}
        assert [hit.tool for hit in search(store, "second answer")] == ["read_file"]

    def test_names_of_attachments_and_data(self, store: Store):
        parts = [
            {
                "kind": "attachment",
                "mime_type": "image/png",
                "name": "pelican.png",
                "url": "https://example.org/gull.png",
            },
            {"kind": "data", "data": {"bird": "cormorant"}},
        ]
        store.session("a").append({"role": "user", "parts": parts}, format="recollect")
        assert found(store, "pelican") == found(store, "gull") == found(store, "cormorant") == ["1.1"]

    def test_the_order_of_hits(self, store: Store):
        said(store, "a walk by the sea", "the sea the sea the sea", "seaside " * 3, "the sea " + "and more " * 300)
        store.session("b", title="The sea")
        assert found(store, "sea") == ["title of b", "1.2", "1.1", "1.4", "1.3"]

    def test_a_rare_word_counts_more(self, store: Store):
        said(store, *["usual word"] * 20, "usual usual usual nothing", "one rarity", "usual word")
        assert found(store, "usual OR rarity")[0] == "1.22"

    def test_one_session(self, store: Store):
        said(store, "a fox", "a hen")
        said(store, "another fox", id="b")
        assert found(store, "fox", session="a") == found(store, "fox session:a") == ["1.1"]
        assert found(store, "-session:a fox") == found(store, "NOT session:a fox") == ["b:1.1"]
        assert found(store, "fox session:b", session="a") == []
        assert found(store, "fox session:b", session="b") == ["b:1.1"]
        assert found(store, "fox session:nobody") == []
        with pytest.raises(SessionNotFound):
            store.search("fox", session="nobody")

    def test_a_fork_with_its_shared_past(self, store: Store):
        session = said(store, "fox one", "fox two", "fox three")
        fork = session.fork(at=2, id="f")
        fork.append(user("fox four"))
        assert some(store, "fox", session="f") == {"f:1.1", "f:1.2", "f:2.3"}
        assert some(store, "fox", session="a") == {"1.1", "1.2", "1.3"}
        assert some(store, "fox") == {"1.1", "1.2", "1.3", "f:2.3"}

    def test_other_branches_of_a_session(self, store: Store):
        session = said(store, "fox one", "fox two")
        session.rewind(1)
        session.append(user("fox three"))
        assert some(store, "fox") == some(store, "fox", session="a") == {"1.1", "1.2", "2.2"}

    def test_nothing_typed_finds_nothing(self, store: Store):
        said(store, "x")
        for query in ("", " \n\t", "()", '""', "*", "...", "\0"):
            assert found(store, query) == []
        assert found(store, "role:user") == ["1.1"]

    def test_arguments_that_can_not_be(self, store: Store):
        odd: list[dict[str, Any]] = [
            {"limit": 0}, {"limit": 1001}, {"limit": "3"}, {"after": "x"}, {"after": "0_0_0_0_0_0_0_0"}, {"after": 5},
            {"after": "9_1_1_0_0__1_1_"}, {"after": "0_-1_1_0_0__1_1_"}, {"after": "\ud800"}, {"role": 5},
            {"tool": [5]}, {"since": "some day"}, {"until": 1 << 70}, {"since": True}, {"since": 1.5},
        ]  # fmt: skip
        for filters in odd:
            with pytest.raises(InvalidValue):
                store.search("x", **filters)
        for query in (None, 5, b"x"):
            with pytest.raises(InvalidValue):
                store.search(query)  # type: ignore[arg-type]


_FINDS = [
    ("red", "13"),
    ("RED", "13"),
    ("red sky", "1"),
    ("sky red", "1"),
    ("red AND sky", "1"),
    ("red OR sky", "123"),
    ("red or sky", ""),
    ("red NOT sky", "3"),
    ("red -sky", "3"),
    ("NOT sky", "34"),
    ("-sky -purple", "4"),
    ("NOT NOT sky", "12"),
    ("red OR blue -sky", "13"),
    ("(red OR blue) -sky", "3"),
    ("(red OR blue) (night OR morning)", "12"),
    ("-(red OR blue)", "4"),
    ("-(red blue)", "124"),
    ("red -(sky night)", "3"),
    ('"red sky"', "1"),
    ('"sky red"', ""),
    ('"red and blue"', "3"),
    ('"red blue"', ""),
    ('-"red sky" red', "3"),
    ('"sky at nig', ""),
    ('"sky at night', "1"),
    ('"sky at nig"*', "1"),
    ('"igh"', ""),
    ("nigh*", "14"),
    ("night", "14"),
    ('"night"', "1"),
    ("igh", "14"),
    ("ig", ""),
    ("mor*", "2"),
    ("*", ""),
    ("**", ""),
    ("red*blue", ""),
    ("red,sky", "1"),
    ("red.sky", "1"),
    ("red_sky_a", "1"),
    ("sky_at_ni", "1"),
    ("sky:at*", "1"),
    ("((red", "13"),
    ("red))", "13"),
    ("red) (sky", "1"),
    ("AND red", "13"),
    ("red AND", "13"),
    ("OR red OR", "13"),
    ("red NOT", "13"),
    ("red OR OR sky", "123"),
    ("and", "3"),
    ("--red", "13"),
    ("- red", "13"),
    ("role:user red", "13"),
    ("role:nobody", ""),
    ("red role:", ""),
]


class TestSearchQuery:
    """What can be typed."""

    @pytest.fixture(autouse=True)
    def talk(self, store: Store) -> None:
        said(store, "red sky at night", "blue sky in the morning", "red and blue make purple", "nights are dark")

    def test_finds(self, store: Store):
        for query, numbers in _FINDS:
            assert some(store, query) == {f"1.{number}" for number in numbers}, query

    def test_code(self, store: Store):
        said(
            store, "self.getUserName(connect_timeout=30)", "std::vector<int> v", "--no-verify", "foo/bar.py:17", id="b"
        )
        for query, message in (
            ("getUserName", "1.1"), ("serNam", "1.1"), ("onnect_tim", "1.1"), ("connect_tim", "1.1"),
            ("timeout=30", "1.1"),
            ("self.getUser", "1.1"), ("std::vector", "1.2"), ("vector<int>", "1.2"), ("--no-verify", "1.3"),
            ("bar.py:17", "1.4"), ("foo/bar", "1.4"), ("foo/ba", "1.4"),
        ):  # fmt: skip
            assert found(store, query) == [f"b:{message}"], query
            assert all(hit.marks for hit in search(store, query)), query

    def test_words_in_one_message_but_not_in_one_part(self, store: Store):
        content = [{"type": "text", "text": "alpha"}, {"type": "text", "text": "omega"}]
        store.session("b").append({"role": "user", "content": content})
        assert found(store, "alpha omega") == ["b:1.1"]


class TestSearchWords:
    """Languages and signs."""

    @pytest.mark.parametrize(
        ("text", "queries"),
        [
            (
                "Ein Café in der Hauptstraße",
                ["cafe", "CAFÉ", "cafe\u0301", "hauptstrasse", "HAUPTSTRASSE", "strasse", "Straße"],
            ),
            ("smørrebrød, Łódź, Ærø, œuvre", ["smorrebrod", "lodz", "aero", "ÆRØ", "oeuvre"]),
            ("Ναυσικά και Οδυσσεύς", ["ναυσικα", "ΟΔΥΣΣΕΥΣ", "οδυσσευ*"]),
            ("Ёлка и съёмка", ["елка", "съемка", "ЁЛКА"]),
            ("İstanbul ve I\u011fd\u0131r", ["istanbul", "igdir"]),
            ("我们在北京学习机器学习", ["我", "北京", "学习", "机器学习", "北京学习", "京 我", '"机器"']),
            ("東京タワーに行きました。ｶﾞｷﾞｸﾞ", ["東", "タワー", "に行", "行きました", "ガギグ", "ｶﾞ"]),
            ("한국어를 배워요", ["한국어를", "한국어*", "국어를", "배워요"]),
            ("ภาษาไทยง่ายมาก", ["ภาษา", "ไทย", "ง่าย", "ม"]),
            ("привет мир", ["ПРИВЕТ", "рив", "мир"]),
            ("שָׁלוֹם עולם", ["שלום", "עולם"]),
            ("مَرْحَبًا بالعالم", ["مرحبا", "بالعالم"]),
            ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
            ("well done 👍🏽🤖!", ["👍", "🤖", "👍🏽", "done 👍", "👍🤖"]),
            ("20°C, ©2024 Foo® Bar™ a → b №5 ½", ["20", "c", "2024", "foo", "bar", "a → b", "a→b", "no5", "1/2"]),
            ("ﬁne \uff12\uff10\uff12\uff14 Ⅷ ㎏ \uff26\uff55\uff4c\uff4c", ["fine", "2024", "viii", "kg", "full"]),
            ("x\0y \ud800z", ["x", "y", "z", "x\0y"]),
            ("naïve\u200b\u00adco-op", ["naive", "co op", "co-op"]),
        ],
    )
    def test_found_by(self, store: Store, text: str, queries: list[str]):
        said(store, text, "something else")
        store.session("b", title=text.replace("\0", " ").replace("\ud800", ""))
        for query in queries:
            hits = search(store, query)
            assert [hit.message for hit in hits] == [None, "1.1"], query
            assert all(hit.marks for hit in hits), query

    @pytest.mark.parametrize(
        ("text", "query"), [("北京", "京北"), ("ab", "b"), ("学习", "学生"), ("👍", "👎"), ("cat dog", "catdog")]
    )
    def test_not_found_by(self, store: Store, text: str, query: str):
        said(store, text)
        assert found(store, query) == []


class TestSearchFilters:
    """By argument and by operator; both must hold."""

    def test_role(self, store: Store):
        session = store.session("a")
        session.append(
            [user("x"), assistant("x"), {"role": "system", "content": "x"}, asks("x"), answers("x", text="x")]
        )
        roles = {message.id: message.role for message in session.messages()}
        for role in ("user", "assistant", "system", "tool"):
            expected = {id for id, other in roles.items() if other == role}
            assert some(store, "x", role=role) == some(store, f"x role:{role}") == expected
            assert some(store, f"x -role:{role}") == some(store, f"x NOT (role:{role})") == set(roles) - expected
        assert some(store, "x", role=["user", "system"]) == some(store, "role:user x role:SYSTEM")
        assert some(store, "x role:user role:assistant", role="user") == some(store, "x", role="user")
        assert found(store, "x role:user", role="system") == []

    def test_tool(self, store: Store):
        session = store.session("a")
        session.append([user("x y"), asks("x", tool="read"), answers("x", text="y"), asks("y", tool="Große Suche")])
        assert some(store, "tool:read") == some(store, "", tool="read") == {"1.2", "1.3"}
        assert some(store, 'tool:"grosse suche"') == some(store, "y", tool="Große Suche") == {"1.4"}
        assert some(store, "y -tool:read") == {"1.1", "1.4"}
        assert some(store, "", tool=("read", "Große Suche")) == {"1.2", "1.3", "1.4"}
        assert found(store, "tool:rea") == found(store, "tool:\ud800") == []

    def test_channel_status_and_model(self, store: Store):
        said(store, "x", channel="discord", status="failed", model="big")
        said(store, "x", id="b", channel="cli", status="completed", model="small")
        said(store, "x", id="c", title="x")
        store.session("b").append({"role": "assistant", "content": "x", "model": "big"}, format="recollect")
        for name, value, expected in (
            ("channel", "discord", {"1.1"}), ("channel", "cli", {"b:1.1", "b:1.2"}), ("status", "failed", {"1.1"}),
            ("status", "active", {"c:1.1", "title of c"}), ("model", "big", {"1.1", "b:1.2"}),
            ("model", "small", {"b:1.1"}),
        ):  # fmt: skip
            assert some(store, "x", **{name: value}) == some(store, f"{name}:{value} x") == expected, (name, value)
            assert some(store, f"-{name}:{value} x") == some(store, "x") - expected, (name, value)
        assert some(store, "x", status=["failed", "completed"]) == {"1.1", "b:1.1", "b:1.2"}
        assert some(store, "x", session="a", channel="discord") == {"1.1"}
        for name in ("channel", "status", "model"):
            assert found(store, "x", session="a", **{name: "other"}) == []

    def test_since_and_until(self, store: Store):
        session = store.session("a", title="x")
        for moment in (
            "2024-12-31T23:59:59.999Z",
            "2025-01-01T00:00:00Z",
            "2025-03-07T12:00:00Z",
            "2025-04-01T00:00:00Z",
        ):
            session.append(at("x", moment), format="recollect")
        for query, numbers in (
            ("x after:2025", "234"), ("x before:2025", "1"), ("x after:2025-03-07", "34"), ("x before:2025-04", "123"),
            ("x after:2025 before:2025-04", "23"), ("x -before:2025", "234"), ("x -after:2025", "1"),
            ("x after:2025-03-07T12:00", "34"), ("x after:2025-03-07T12:00:00.001", "4"), ("x before:today", "1234"),
            ("x after:yesterday", ""), ("x after:7d", ""), ("x before:1d", "1234"), ("after:2025-04", "4"),
        ):  # fmt: skip
            assert some(store, query) == {f"1.{number}" for number in numbers}, query
        assert some(store, "x", since=NOON) == {"1.3", "1.4"}
        assert (
            some(store, "x", since="2025", until=NOON)
            == some(store, "x before:2026", since="2025", until=NOON)
            == {"1.2"}
        )
        assert found(store, "x", until=0) == found(store, "x", since=1 << 60) == []
        assert len(found(store, "x", since=0)) == len(found(store, "x", since=-1)) == 4
        assert found(store, "x after:nonsense") == []

    def test_archived_and_pinned(self, store: Store):
        said(store, "x", archived=True)
        said(store, "x", id="b", pinned=True, title="x")
        said(store, "x", id="c")
        everything = {"1.1", "b:1.1", "title of b", "c:1.1"}
        assert some(store, "x") == everything
        for query, filters, expected in (
            ("archived:yes", {"archived": True}, {"1.1"}), ("archived:no", {"archived": False}, everything - {"1.1"}),
            ("pinned:true", {"pinned": True}, {"b:1.1", "title of b"}),
            ("pinned:0", {"pinned": False}, {"1.1", "c:1.1"}),
        ):  # fmt: skip
            assert some(store, f"x {query}") == some(store, "x", **filters) == expected, query
            assert some(store, f"x -{query}") == everything - expected, query
        assert [hit.archived_at is not None for hit in search(store, "x", archived=True)] == [True]

    def test_delegates(self, store: Store):
        said(store, "x")
        said(store, "x", id="a:delegate:helper", title="x")
        assert found(store, "x") == ["1.1"]
        assert some(store, "x", delegates=True) == {"1.1", "a:delegate:helper:1.1", "title of a:delegate:helper"}
        assert found(store, "x", session="a:delegate:helper") == ["a:delegate:helper:1.1"]
        assert [hit.parent for hit in search(store, "x", session="a:delegate:helper")] == ["a"]

    def test_a_fork_is_found_where_its_origin_is_left_out(self, store: Store):
        session = said(store, "x", "x", channel="discord", archived=True)
        session.fork(at=1, id="f", channel="cli", archived=False).append(user("x"))
        assert some(store, "x", archived=False) == some(store, "x channel:cli") == {"f:1.1", "f:2.2"}
        assert some(store, "x", archived=True) == some(store, "x -channel:cli") == {"1.1", "1.2"}


class TestSearchSnippets:
    """A piece of the text, with marks at the hits."""

    def test_marks_are_at_the_hits(self, store: Store):
        filler = "Lorem ipsum dolor sit amet, consectetur adipiscing elit. " * 20
        said(store, f"{filler}Ein Café in der\nHauptstraße {filler}", f"Straße {filler} Café", "CAFÉ" * 3)
        for hit in search(store, "cafe strasse"):
            assert 1 <= len(hit.text) <= 200
            assert hit.marks
            for word in marked(hit):
                assert "cafe" in fold(word) or "strasse" in fold(word)
        first = search(store, '"der hauptstrasse"')[0]
        assert marked(first) == ["der Hauptstraße"]
        assert first.text.startswith("…")
        assert first.text.endswith("…")

    @pytest.mark.parametrize("letter", ["e", "é", "北"])
    def test_the_end_of_a_large_output(self, store: Store, place: Place, letter: str):
        output = f"lin{letter} of a log " * (60_000 if place.thorough else 6_000) + "the needlé, the end"
        store.session("a").append([asks("t"), answers("t", text=output)])
        (hit,) = search(store, "needle")
        assert (marked(hit), hit.kind, hit.message) == (["needlé"], "tool_result", "1.2")
        (hit,) = search(store, "log needle")
        assert {"log", "needlé"} <= set(marked(hit))
        (hit,) = search(store, '"log the needle"')
        assert marked(hit) == ["log the needlé"]

    def test_one_very_long_word(self, store: Store):
        said(store, "x" * 300_000 + " y", "y" + "z" * 300_000)
        (hit,) = search(store, '"y"')
        assert len(hit.text) <= 200
        assert marked(hit) == ["y"]
        (hit,) = search(store, "yzz*")
        assert hit.marks

    def test_the_part_with_the_hit_is_shown(self, store: Store):
        content = [{"type": "text", "text": "first of all"}, {"type": "text", "text": "second thoughts"}]
        store.session("a").append({"role": "user", "content": content})
        assert [hit.snippet for hit in search(store, "thoughts")] == ["second <mark>thoughts</mark>"]
        assert [hit.snippet for hit in search(store, "role:user")] == ["first of all"]

    def test_control_characters_are_not_shown(self, store: Store):
        said(store, "a\x1b[31mred\x07\u202e b\r\n\tc\ud800")
        (hit,) = search(store, "31mred")
        assert all(char.isprintable() for char in hit.text)
        assert hit.to_json()


HOSTILE = [
    *string.punctuation,
    string.punctuation,
    *(f"{char}x" for char in string.punctuation),
    *(f"x{char}y" for char in string.punctuation),
    *(f"{char}x{char}" for char in string.punctuation),
    "x' OR 1=1 --", "'; DROP TABLE messages; --", 'x" OR "y', "x NEAR y", "NEAR(x y, 5)", "{said calls}: x",
    "said : x",
    "- tags : x", "tags:a", "^x", "x ^y", "x + y", "search_index:x", "rowid:1", "rank:x", "x MATCH y",
    ":match", "?1", "%s",
    "x\0y", "\0", "\ud800", "\udfff\ud800", '"\ud800', "role:\ud800", "session:\ud800 x", "channel:\ud800 x",
    "model:\ud800 x", "-session:\ud800 x", "tool:\0", "before:\ud800", "\ufffe\uffff", "\U0010ffff", "\u202e",
    "x" * 100_000,
    "x " * 50_000, '"' + "x y " * 25_000 + '"',
    "x." * 50_000, "(" * 100_000, ")" * 100_000, "(x" * 30_000, "-" * 100_000,
    "- " * 50_000, '"' * 99_999, "NOT " * 25_000, "x OR " * 20_000, "AND", "OR", "NOT", "AND OR NOT", "-(",
    "-)", "-OR", "(-", "x -",
    "-" + "(" * 40 + "x" + ")" * 40, "role:", 'role:"', 'role:"user', "role:user" * 1_000, "after:99999",
    "after:0000",
    "before:9999-99-99", "after:9999y", "before:" + "9" * 5_000, "pinned:maybe", "archived:",
    "İ" * 1_000, "ﷺ" * 1_000,
    "e" + "\u0301" * 10_000, "北" * 10_000, "👨‍👩‍👧‍👦", "a\u0300\u0301*", "x*y*", "***", '"x"*"y"*', '""""x',
    "\\", "x\\", '\\"',
]  # fmt: skip

_STORED = 10_000  # larger texts are stored by tests of their own


class TestSearchHostile:
    """Nothing that is typed is an error."""

    def test_never_raises(self, store: Store):
        said(store, "x", "x y", "'; DROP TABLE messages; --", title="x")
        for query in HOSTILE:
            assert isinstance(store.search(query), list), query[:50]
        assert some(store, "x") == {"title of a", "1.1", "1.2"}

    def test_what_can_be_typed_can_be_stored_and_found(self, store: Store):
        for number, query in enumerate(HOSTILE):
            text = query[:_STORED]
            store.session(f"s{number}").append([user(text), asks("t", tool=query[:200]), answers("t", text=text)])
        for number, query in enumerate(HOSTILE):
            text = query[:_STORED]
            store.search(query, role="user", tool=query)
            if text.isalnum():
                found = store.search(text, role="user", session=f"s{number}")
                assert "1.1" in [hit.message for hit in found], text[:50]


class TestSearchPages:
    """Pages go through all hits, each once and in order."""

    def test_in_order(self, store: Store):
        for number in range(4):
            said(store, *(f"word {'and more ' * (n % 5)}" for n in range(9)), id=f"s{number}", title=f"word {number}")
        whole = store.search("word", 1000)
        assert len(whole) == 40
        assert whole.next is None
        for limit in (1, 7, 39, 40):
            page = store.search("word", limit)
            hits = list(page)
            while page.next is not None:
                page = store.search("word", limit, after=page.next)
                assert page
                hits += page
            assert hits == whole

    def test_while_messages_are_appended(self, store: Store):
        session = said(store, *(f"word {'and more ' * (n % 7)}" for n in range(30)), title="word")
        before = {hit.message for hit in store.search("word", 1000)}
        page = store.search("word", 4)
        seen = [hit.message for hit in page]
        for number in range(40):
            session.append([user("word " * 3 + str(number)), user("no hit")])
            said(store, f"word {number}", id=f"new{number}", title=f"word {number}")
            page = store.search("word", 4, after=page.next)
            seen += [hit.message for hit in page if hit.session == "a"]
            if page.next is None:
                break
        assert page.next is None
        assert len(seen) == len(set(seen))
        assert before <= set(seen)

    def test_while_messages_are_erased_and_deleted(self, store: Store):
        session = said(store, *(f"word {'and more ' * (n % 7)}" for n in range(20)))
        said(store, *(["word"] * 20), id="b")
        page = store.search("word", 5)
        seen = [(hit.session, hit.message) for hit in page]
        session.delete_message("1.3")
        store.erase_session("b")
        while page.next is not None:
            page = store.search("word", 5, after=page.next)
            seen += [(hit.session, hit.message) for hit in page]
        assert len(seen) == len(set(seen))
        assert {id for where, id in seen if where == "a"} >= {f"1.{n}" for n in range(1, 21)} - {"1.3"}
