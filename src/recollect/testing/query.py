"""What is typed into a search, and filters: which messages each finds."""

from __future__ import annotations

import pytest

from recollect.store import Store
from recollect.testing.search import at, found, said, search, some
from recollect.testing.talk import answers, asks, assistant, user

NOON = 1_741_348_800_000  # 2025-03-07T12:00:00Z

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
        said(store, "x", id="a:delegate:helper", title="x", parent="a")
        assert found(store, "x") == ["1.1"]
        assert some(store, "x", delegates=True) == {"1.1", "a:delegate:helper:1.1", "title of a:delegate:helper"}
        assert found(store, "x", session="a:delegate:helper") == ["a:delegate:helper:1.1"]
        assert [hit.parent for hit in search(store, "x", session="a:delegate:helper")] == ["a"]

    def test_a_fork_is_found_where_its_origin_is_left_out(self, store: Store):
        session = said(store, "x", "x", channel="discord", archived=True)
        session.fork(at=1, id="f", channel="cli", archived=False).append(user("x"))
        assert some(store, "x", archived=False) == some(store, "x channel:cli") == {"f:1.1", "f:2.2"}
        assert some(store, "x", archived=True) == some(store, "x -channel:cli") == {"1.1", "1.2"}
