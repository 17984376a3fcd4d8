"""Search: hits, their order, snippets and pages; a search never raises for its query text."""

from __future__ import annotations

import string
from typing import Any

import pytest

from recollect.errors import InvalidValue, SessionNotFound
from recollect.model.search import Hit
from recollect.storage.search.analysis import fold
from recollect.store import Session, Store
from recollect_conformance.database import DatabaseUnderTest
from recollect_conformance.examples import assistant, tool_call_message, tool_result_message, user


def search(store: Store, query: str, **filters: Any) -> list[Hit]:
    """Return all hits, read in small pages, and check the invariants of each hit."""
    page = store.search(query, 3, **filters)
    hits = list(page)
    while page.next is not None:
        assert len(page) == 3
        page = store.search(query, 3, after=page.next, **filters)
        hits += page
    assert hits == store.search(query, 1000, **filters)
    assert len({(hit.session, hit.message) for hit in hits}) == len(hits)
    for hit in hits:
        _check_hit(store, hit)
    return hits


def _check_hit(store: Store, hit: Hit) -> None:
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


def find_names(store: Store, query: str, **filters: Any) -> list[str]:
    """Return a name per hit, in order: the message id, with the session unless it is `a`, or "title of" a session."""
    names: list[str] = []
    for hit in search(store, query, **filters):
        if hit.message is None:
            names.append(f"title of {hit.session}")
        else:
            names.append(hit.message if hit.session == "a" else f"{hit.session}:{hit.message}")
    return names


def find_name_set(store: Store, query: str, **filters: Any) -> set[str]:
    """Return the names of the hits as a set."""
    return set(find_names(store, query, **filters))


def session_with(store: Store, *texts: str, id: str = "a", **fields: Any) -> Session:
    """Open a session with messages of these texts."""
    session = store.session(id, **fields)
    session.append([user(text) for text in texts])
    return session


def message_at(text: str, time: str, **fields: Any) -> dict[str, Any]:
    """Return a message with a creation time."""
    return {"role": "user", "content": text, "created_at": time, **fields}


def marked_texts(hit: Hit) -> list[str]:
    """Return the marked texts of a hit."""
    return [hit.text[low:high] for low, high in hit.marks]


class TestSearch:
    """All kinds of content are found, with the fields of their hits."""

    def test_messages_of_users_and_assistants(self, store: Store):
        session = store.session("a", title="Some plans", channel="cli")
        session.append([user("Where is the harbour?"), assistant("The harbour is in the north.")])
        assert find_name_set(store, "harbour") == {"1.1", "1.2"}
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
        assert find_names(store, "south") == []

    def test_titles(self, store: Store):
        store.session("a", title="Trip to Oslo").append(user("the train to Oslo"))
        store.session("b", title="Oslo, again")
        store.session("c", title=None)
        hits = search(store, "oslo")
        assert [hit.kind for hit in hits] == ["title", "title", "text"]
        assert {hit.snippet for hit in hits[:2]} == {"Trip to <mark>Oslo</mark>", "<mark>Oslo</mark>, again"}
        assert find_names(store, "trip oslo") == ["title of a"]
        assert find_names(store, "trip again") == []
        assert find_names(store, "slo again") == ["title of b"]

    def test_tool_names_arguments_and_results(self, store: Store):
        session = store.session("a")
        call = {
            "type": "tool_use",
            "id": "t",
            "name": "read_file",
            "input": {"path": "notes/lighthouse.md", "deep": [{"x": "keeper"}]},
        }
        session.append(
            [user("look"), {"role": "assistant", "content": [call]}, tool_result_message("t", text="the lamp burns")]
        )
        for query, kind, message in (
            ("read_file", "tool_call", "1.2"),
            ("lighthouse", "tool_call", "1.2"),
            ("keeper", "tool_call", "1.2"),
            ("lamp", "tool_result", "1.3"),
        ):
            (hit,) = search(store, query)
            assert (hit.kind, hit.message, hit.tool) == (kind, message, "read_file"), query
            assert hit.marks
        assert find_name_set(store, "tool:read_file") == {"1.2", "1.3"}

    def test_reasoning_and_errors(self, store: Store):
        session = store.session("a")
        thinking = {"type": "thinking", "thinking": "perhaps a walrus", "signature": "x"}
        session.append({"role": "assistant", "content": [thinking, {"type": "text", "text": "hello"}]})
        session.append(tool_call_message("t"))
        session.tools.record_result("t", status="error", error_message="no such porpoise")
        (hit,) = search(store, "walrus")
        assert (hit.kind, hit.message) == ("reasoning", "1.1")
        (hit,) = search(store, "porpoise")
        assert (hit.kind, hit.message, hit.tool) == ("tool_result", "1.3", "read_file")

    def test_json_results_are_decoded_for_the_index(self, store: Store):
        session = store.session("a")
        session.append(
            [tool_call_message("t"), tool_result_message("t", text='{"line": "one\\ntwo", "n": [1, "caf\\u00e9"]}')]
        )
        assert find_names(store, "two") == find_names(store, "cafe") == find_names(store, "line") == ["1.2"]
        assert find_names(store, "ntwo") == find_names(store, "u00e9") == []

    def test_the_tool_of_a_result_long_after_its_call(self, store: Store):
        session = store.session("a")
        session.append([tool_call_message("t"), *(user(f"m{n}") for n in range(450))])
        assert find_names(store, "tool:read_file") == ["1.1"]
        session.append(tool_result_message("t", text="at last"))
        assert find_name_set(store, "tool:read_file") == {"1.1", "1.452"}

    def test_a_fork_of_a_fork_answers_a_call_of_the_first(self, store: Store):
        session = store.session("a")
        session.append([user("go"), tool_call_message("t1", "t2")])
        second = session.fork(id="b")
        second.append(tool_result_message("t1", text="first answer"))
        third = second.fork(id="c")
        third.append(tool_result_message("t2", text="second answer"))
        assert find_name_set(store, "tool:read_file answer") == {"b:2.3", "c:3.4"}
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
        assert find_names(store, "pelican") == find_names(store, "gull") == find_names(store, "cormorant") == ["1.1"]

    def test_the_order_of_hits(self, store: Store):
        session_with(
            store, "a walk by the sea", "the sea the sea the sea", "seaside " * 3, "the sea " + "and more " * 300
        )
        store.session("b", title="The sea")
        assert find_names(store, "sea") == ["title of b", "1.2", "1.1", "1.4", "1.3"]

    def test_a_rare_word_counts_more(self, store: Store):
        session_with(store, *["usual word"] * 20, "usual usual usual nothing", "one rarity", "usual word")
        assert find_names(store, "usual OR rarity")[0] == "1.22"

    def test_one_session(self, store: Store):
        session_with(store, "a fox", "a hen")
        session_with(store, "another fox", id="b")
        assert find_names(store, "fox", session="a") == find_names(store, "fox session:a") == ["1.1"]
        assert find_names(store, "-session:a fox") == find_names(store, "NOT session:a fox") == ["b:1.1"]
        assert find_names(store, "fox session:b", session="a") == []
        assert find_names(store, "fox session:b", session="b") == ["b:1.1"]
        assert find_names(store, "fox session:nobody") == []
        with pytest.raises(SessionNotFound):
            store.search("fox", session="nobody")

    def test_a_fork_with_its_shared_messages(self, store: Store):
        session = session_with(store, "fox one", "fox two", "fox three")
        fork = session.fork(at=2, id="f")
        fork.append(user("fox four"))
        assert find_name_set(store, "fox", session="f") == {"f:1.1", "f:1.2", "f:2.3"}
        assert find_name_set(store, "fox", session="a") == {"1.1", "1.2", "1.3"}
        assert find_name_set(store, "fox") == {"1.1", "1.2", "1.3", "f:2.3"}

    def test_other_branches_of_a_session(self, store: Store):
        session = session_with(store, "fox one", "fox two")
        session.rewind(1)
        session.append(user("fox three"))
        assert find_name_set(store, "fox") == find_name_set(store, "fox", session="a") == {"1.1", "1.2", "2.2"}

    def test_an_empty_query_finds_nothing(self, store: Store):
        session_with(store, "x")
        for query in ("", " \n\t", "()", '""', "*", "...", "\0"):
            assert find_names(store, query) == []
        assert find_names(store, "role:user") == ["1.1"]

    def test_invalid_arguments(self, store: Store):
        invalid: list[dict[str, Any]] = [
            {"limit": 0}, {"limit": 1001}, {"limit": "3"}, {"after": "x"}, {"after": "0_0_0_0_0_0_0_0"}, {"after": 5},
            {"after": "9_1_1_0_0__1_1_"}, {"after": "0_-1_1_0_0__1_1_"}, {"after": "\ud800"}, {"role": 5},
            {"tool": [5]}, {"since": "some day"}, {"until": 1 << 70}, {"since": True}, {"since": 1.5},
        ]  # fmt: skip
        for filters in invalid:
            with pytest.raises(InvalidValue):
                store.search("x", **filters)
        for query in (None, 5, b"x"):
            with pytest.raises(InvalidValue):
                store.search(query)  # type: ignore[arg-type]


class TestSearchSnippets:
    """Snippets, with marks at the matches."""

    def test_marks_are_at_the_hits(self, store: Store):
        filler = "Lorem ipsum dolor sit amet, consectetur adipiscing elit. " * 20
        session_with(store, f"{filler}Ein Café in der\nHauptstraße {filler}", f"Straße {filler} Café", "CAFÉ" * 3)
        for hit in search(store, "cafe strasse"):
            assert 1 <= len(hit.text) <= 200
            assert hit.marks
            for word in marked_texts(hit):
                assert "cafe" in fold(word) or "strasse" in fold(word)
        first = search(store, '"der hauptstrasse"')[0]
        assert marked_texts(first) == ["der Hauptstraße"]
        assert first.text.startswith("…")
        assert first.text.endswith("…")

    @pytest.mark.parametrize("letter", ["e", "é", "北"])
    def test_the_end_of_a_large_output(self, store: Store, database: DatabaseUnderTest, letter: str):
        output = f"lin{letter} of a log " * (60_000 if database.thorough else 6_000) + "the needlé, the end"
        store.session("a").append([tool_call_message("t"), tool_result_message("t", text=output)])
        (hit,) = search(store, "needle")
        assert (marked_texts(hit), hit.kind, hit.message) == (["needlé"], "tool_result", "1.2")
        (hit,) = search(store, "log needle")
        assert {"log", "needlé"} <= set(marked_texts(hit))
        (hit,) = search(store, '"log the needle"')
        assert marked_texts(hit) == ["log the needlé"]

    def test_one_very_long_word(self, store: Store):
        session_with(store, "x" * 300_000 + " y", "y" + "z" * 300_000)
        (hit,) = search(store, '"y"')
        assert len(hit.text) <= 200
        assert marked_texts(hit) == ["y"]
        (hit,) = search(store, "yzz*")
        assert hit.marks

    def test_the_part_with_the_hit_is_shown(self, store: Store):
        content = [{"type": "text", "text": "first of all"}, {"type": "text", "text": "second thoughts"}]
        store.session("a").append({"role": "user", "content": content})
        assert [hit.snippet for hit in search(store, "thoughts")] == ["second <mark>thoughts</mark>"]
        assert [hit.snippet for hit in search(store, "role:user")] == ["first of all"]

    def test_control_characters_are_not_shown(self, store: Store):
        session_with(store, "a\x1b[31mred\x07\u202e b\r\n\tc\ud800")
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

_LONGEST_STORED = 10_000  # characters. Keeps this test short; other tests store larger texts.


class TestSearchHostile:
    """Unusual queries: none of them raises."""

    def test_no_query_raises(self, store: Store):
        session_with(store, "x", "x y", "'; DROP TABLE messages; --", title="x")
        for query in HOSTILE:
            assert isinstance(store.search(query), list), query[:50]
        assert find_name_set(store, "x") == {"title of a", "1.1", "1.2"}

    def test_hostile_texts_can_be_stored_and_found(self, store: Store):
        for number, query in enumerate(HOSTILE):
            text = query[:_LONGEST_STORED]
            store.session(f"s{number}").append(
                [user(text), tool_call_message("t", tool=query[:200]), tool_result_message("t", text=text)]
            )
        for number, query in enumerate(HOSTILE):
            text = query[:_LONGEST_STORED]
            store.search(query, role="user", tool=query)
            if text.isalnum():
                hits = store.search(text, role="user", session=f"s{number}")
                assert "1.1" in [hit.message for hit in hits], text[:50]


class TestSearchPages:
    """Pages contain all hits, each once and in order."""

    def test_pages_join_in_order(self, store: Store):
        for number in range(4):
            session_with(
                store, *(f"word {'and more ' * (n % 5)}" for n in range(9)), id=f"s{number}", title=f"word {number}"
            )
        all_hits = store.search("word", 1000)
        assert len(all_hits) == 40
        assert all_hits.next is None
        for limit in (1, 7, 39, 40):
            page = store.search("word", limit)
            hits = list(page)
            while page.next is not None:
                page = store.search("word", limit, after=page.next)
                assert page
                hits += page
            assert hits == all_hits

    def test_pages_while_messages_are_appended(self, store: Store):
        session = session_with(store, *(f"word {'and more ' * (n % 7)}" for n in range(30)), title="word")
        before = {hit.message for hit in store.search("word", 1000)}
        page = store.search("word", 4)
        messages = [hit.message for hit in page]
        for number in range(40):
            session.append([user("word " * 3 + str(number)), user("no hit")])
            session_with(store, f"word {number}", id=f"new{number}", title=f"word {number}")
            page = store.search("word", 4, after=page.next)
            messages += [hit.message for hit in page if hit.session == "a"]
            if page.next is None:
                break
        assert page.next is None
        assert len(messages) == len(set(messages))
        assert before <= set(messages)

    def test_pages_while_messages_are_erased_and_deleted(self, store: Store):
        session = session_with(store, *(f"word {'and more ' * (n % 7)}" for n in range(20)))
        session_with(store, *(["word"] * 20), id="b")
        page = store.search("word", 5)
        messages = [(hit.session, hit.message) for hit in page]
        session.delete_messages(["1.3"])
        store.erase_session("b")
        while page.next is not None:
            page = store.search("word", 5, after=page.next)
            messages += [(hit.session, hit.message) for hit in page]
        assert len(messages) == len(set(messages))
        assert {id for session, id in messages if session == "a"} >= {f"1.{n}" for n in range(1, 21)} - {"1.3"}
