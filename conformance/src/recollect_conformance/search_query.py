"""Search queries and filters: which messages each of them matches."""

from __future__ import annotations

import pytest

from recollect import Draft, TextPart
from recollect.store import Store
from recollect_conformance.examples import assistant, tool_call_message, tool_result_message, user
from recollect_conformance.search import find_name_set, find_names, message_at, search, session_with

NOON = 1_741_348_800_000  # milliseconds since 1970: 2025-03-07T12:00:00Z

_QUERIES = [
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
    """The query language."""

    @pytest.fixture(autouse=True)
    def example_messages(self, store: Store) -> None:
        session_with(
            store, "red sky at night", "blue sky in the morning", "red and blue make purple", "nights are dark"
        )

    def test_matches_of_queries(self, store: Store):
        for query, numbers in _QUERIES:
            assert find_name_set(store, query) == {f"1.{number}" for number in numbers}, query

    def test_code(self, store: Store):
        session_with(
            store, "self.getUserName(connect_timeout=30)", "std::vector<int> v", "--no-verify", "foo/bar.py:17", id="b"
        )
        for query, message in (
            ("getUserName", "1.1"), ("serNam", "1.1"), ("onnect_tim", "1.1"), ("connect_tim", "1.1"),
            ("timeout=30", "1.1"),
            ("self.getUser", "1.1"), ("std::vector", "1.2"), ("vector<int>", "1.2"), ("--no-verify", "1.3"),
            ("bar.py:17", "1.4"), ("foo/bar", "1.4"), ("foo/ba", "1.4"),
        ):  # fmt: skip
            assert find_names(store, query) == [f"b:{message}"], query
            assert all(hit.marks for hit in search(store, query)), query

    def test_words_in_one_message_but_not_in_one_part(self, store: Store):
        content = [{"type": "text", "text": "alpha"}, {"type": "text", "text": "omega"}]
        store.session("b").append({"role": "user", "content": content})
        assert find_names(store, "alpha omega") == ["b:1.1"]


class TestSearchWords:
    """Words in many languages, and special characters."""

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
    def test_text_is_found_by_queries(self, store: Store, text: str, queries: list[str]):
        session_with(store, text, "something else")
        store.session("b", title=text.replace("\0", " ").replace("\ud800", ""))
        for query in queries:
            hits = search(store, query)
            assert [hit.message for hit in hits] == [None, "1.1"], query
            assert all(hit.marks for hit in hits), query

    @pytest.mark.parametrize(
        ("text", "query"), [("北京", "京北"), ("ab", "b"), ("学习", "学生"), ("👍", "👎"), ("cat dog", "catdog")]
    )
    def test_text_is_not_found_by_query(self, store: Store, text: str, query: str):
        session_with(store, text)
        assert find_names(store, query) == []


class TestSearchFilters:
    """Filters as arguments and as operators of the query; both must match."""

    def test_role(self, store: Store):
        session = store.session("a")
        session.append(
            [
                user("x"),
                assistant("x"),
                {"role": "system", "content": "x"},
                tool_call_message("x"),
                tool_result_message("x", text="x"),
            ]
        )
        roles = {message.id: message.role for message in session.messages()}
        for role in ("user", "assistant", "system", "tool"):
            expected = {id for id, other in roles.items() if other == role}
            assert find_name_set(store, "x", role=role) == find_name_set(store, f"x role:{role}") == expected
            assert (
                find_name_set(store, f"x -role:{role}")
                == find_name_set(store, f"x NOT (role:{role})")
                == set(roles) - expected
            )
        assert find_name_set(store, "x", role=["user", "system"]) == find_name_set(store, "role:user x role:SYSTEM")
        assert find_name_set(store, "x role:user role:assistant", role="user") == find_name_set(store, "x", role="user")
        assert find_names(store, "x role:user", role="system") == []

    def test_tool(self, store: Store):
        session = store.session("a")
        session.append(
            [
                user("x y"),
                tool_call_message("x", tool="read"),
                tool_result_message("x", text="y"),
                tool_call_message("y", tool="Große Suche"),
            ]
        )
        assert find_name_set(store, "tool:read") == find_name_set(store, "", tool="read") == {"1.2", "1.3"}
        assert find_name_set(store, 'tool:"grosse suche"') == find_name_set(store, "y", tool="Große Suche") == {"1.4"}
        assert find_name_set(store, "y -tool:read") == {"1.1", "1.4"}
        assert find_name_set(store, "", tool=("read", "Große Suche")) == {"1.2", "1.3", "1.4"}
        assert find_names(store, "tool:rea") == find_names(store, "tool:\ud800") == []

    def test_channel_status_and_model(self, store: Store):
        session_with(store, "x", channel="discord", status="failed", model="big")
        session_with(store, "x", id="b", channel="cli", status="completed", model="small")
        session_with(store, "x", id="c", title="x")
        store.session("b").append({"role": "assistant", "content": "x", "model": "big"}, format="recollect")
        for name, value, expected in (
            ("channel", "discord", {"1.1"}), ("channel", "cli", {"b:1.1", "b:1.2"}), ("status", "failed", {"1.1"}),
            ("status", "active", {"c:1.1", "title of c"}), ("model", "big", {"1.1", "b:1.2"}),
            ("model", "small", {"b:1.1"}),
        ):  # fmt: skip
            assert (
                find_name_set(store, "x", **{name: value}) == find_name_set(store, f"{name}:{value} x") == expected
            ), (name, value)
            assert find_name_set(store, f"-{name}:{value} x") == find_name_set(store, "x") - expected, (name, value)
        assert find_name_set(store, "x", status=["failed", "completed"]) == {"1.1", "b:1.1", "b:1.2"}
        assert find_name_set(store, "x", session="a", channel="discord") == {"1.1"}
        for name in ("channel", "status", "model"):
            assert find_names(store, "x", session="a", **{name: "other"}) == []

    def test_since_and_until(self, store: Store):
        session = store.session("a", title="x")
        for time in (
            "2024-12-31T23:59:59.999Z",
            "2025-01-01T00:00:00Z",
            "2025-03-07T12:00:00Z",
            "2025-04-01T00:00:00Z",
        ):
            session.append(message_at("x", time), format="recollect")
        for query, numbers in (
            ("x after:2025", "234"), ("x before:2025", "1"), ("x after:2025-03-07", "34"), ("x before:2025-04", "123"),
            ("x after:2025 before:2025-04", "23"), ("x -before:2025", "234"), ("x -after:2025", "1"),
            ("x after:2025-03-07T12:00", "34"), ("x after:2025-03-07T12:00:00.001", "4"), ("x before:today", "1234"),
            ("x after:yesterday", ""), ("x after:7d", ""), ("x before:1d", "1234"), ("after:2025-04", "4"),
        ):  # fmt: skip
            assert find_name_set(store, query) == {f"1.{number}" for number in numbers}, query
        assert find_name_set(store, "x", since=NOON) == {"1.3", "1.4"}
        assert (
            find_name_set(store, "x", since="2025", until=NOON)
            == find_name_set(store, "x before:2026", since="2025", until=NOON)
            == {"1.2"}
        )
        assert find_names(store, "x", until=0) == find_names(store, "x", since=1 << 60) == []
        assert len(find_names(store, "x", since=0)) == len(find_names(store, "x", since=-1)) == 4
        assert find_names(store, "x after:nonsense") == []

    def test_archived_and_pinned(self, store: Store):
        session_with(store, "x", archived=True)
        session_with(store, "x", id="b", pinned=True, title="x")
        session_with(store, "x", id="c")
        everything = {"1.1", "b:1.1", "title of b", "c:1.1"}
        assert find_name_set(store, "x") == everything
        for query, filters, expected in (
            ("archived:yes", {"archived": True}, {"1.1"}), ("archived:no", {"archived": False}, everything - {"1.1"}),
            ("pinned:true", {"pinned": True}, {"b:1.1", "title of b"}),
            ("pinned:0", {"pinned": False}, {"1.1", "c:1.1"}),
        ):  # fmt: skip
            assert find_name_set(store, f"x {query}") == find_name_set(store, "x", **filters) == expected, query
            assert find_name_set(store, f"x -{query}") == everything - expected, query
        assert [hit.archived_at is not None for hit in search(store, "x", archived=True)] == [True]

    def test_context_that_a_tool_added(self, store: Store):
        reminder = TextPart(text="Remember the Café rules of heron_pond", metadata={"injected": "reminder"})
        session = store.session("a")
        session.append(Draft(role="user", parts=(TextPart(text="a red sky"), reminder)))
        session.append(Draft(role="user", parts=(reminder,)))
        session.append(user("a red heron"))
        assert find_names(store, "heron") == ["1.3"]
        assert find_name_set(store, "context:heron") == {"1.1", "1.2"}
        assert find_name_set(store, 'context:"RULES cafe"') == {"1.1", "1.2"}
        assert find_name_set(store, 'context:"rules sky"') == set()
        assert find_names(store, "red context:heron_pond") == ["1.1"]
        assert find_name_set(store, "red -context:heron") == {"1.3"}
        assert find_name_set(store, "context:sky context:rules") == {"1.1", "1.2"}
        assert find_names(store, "context:!! heron") == find_names(store, "context heron") == []
        hit = search(store, "context:heron")[0]
        assert [hit.text[start:end] for start, end in hit.marks] == ["heron"]
        session.replace_message(1, user("nothing"), erase=True)
        assert find_names(store, "context:heron") == ["1.2"]
        store.maintenance.reindex()
        assert find_names(store, "context:heron") == ["1.2"]

    def test_delegates(self, store: Store):
        session_with(store, "x")
        session_with(store, "x", id="a:delegate:helper", title="x", parent="a")
        assert find_names(store, "x") == ["1.1"]
        assert find_name_set(store, "x", delegates=True) == {
            "1.1",
            "a:delegate:helper:1.1",
            "title of a:delegate:helper",
        }
        assert find_names(store, "x", session="a:delegate:helper") == ["a:delegate:helper:1.1"]
        assert [hit.parent for hit in search(store, "x", session="a:delegate:helper")] == ["a"]

    def test_a_fork_is_found_if_its_origin_is_filtered_out(self, store: Store):
        session = session_with(store, "x", "x", channel="discord", archived=True)
        session.fork(at=1, id="f", channel="cli", archived=False).append(user("x"))
        assert find_name_set(store, "x", archived=False) == find_name_set(store, "x channel:cli") == {"f:1.1", "f:2.2"}
        assert find_name_set(store, "x", archived=True) == find_name_set(store, "x -channel:cli") == {"1.1", "1.2"}
