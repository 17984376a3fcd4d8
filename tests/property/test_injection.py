"""SQL and the syntax of the search index in every text argument: the text is stored and returned unchanged."""

from __future__ import annotations

import pytest

import recollect
from recollect.errors import RecollectError

HOSTILE = (
    "'; DROP TABLE messages; --",
    "' OR '1'='1",
    '" OR 1=1 --',
    "x') ; DELETE FROM sessions WHERE ('1'='1",
    "%", "_%_", "\\", "?1", ":owner", "@owner", "$1", "{owner}", "%s%(owner)s",
    "NULL", "* OR *", 'text : "a" OR b', "NEAR(a b, 9)", "^a", "{a b} : c", '"', "(((", "a AND", "- -", "''", "`",
    "/* x */ --", "\u2019; DROP TABLE messages; --", "SELECT load_extension('x')",
)  # fmt: skip


@pytest.fixture
def store():
    """Open a store with a session, and check at the end that no test changed it."""
    with recollect.open(":memory:") as store:
        store.session("cli:protected", title="protected").append({"role": "user", "content": "protected words"})
        yield store
        assert [message.text for message in store.session("cli:protected").messages()] == ["protected words"]
        assert store.session("cli:protected").title == "protected"
        assert store.maintenance.check().problems == ()


def call_or_none(action):
    """Call a function, and return None if it raises an error of the library."""
    try:
        return action()
    except RecollectError:
        return None


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_returned_unchanged(store, text):
    session = store.session(
        title=text, task=text, model=text, provider=text, working_dir=text, metadata={text: text}, system_prompt=text
    )
    call = {"type": "tool_use", "id": text, "name": text, "input": {text: text}}
    result = {"type": "tool_result", "tool_use_id": text, "content": text}
    session.append({"role": "user", "content": text}, key=text)
    assert session.append({"role": "user", "content": text}, key=text).repeated
    session.append([{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}], "anthropic")
    session.snapshots.add("summary", text)
    store.records.put(text, text, text)
    session.records.put(text, text, text.encode())
    session.compact(before=session.messages()[1].id, summary=text)
    copy = store.get_session(session.id)
    assert (copy.title, copy.task, copy.model, copy.metadata) == (text, text, text, {text: text})
    assert copy.messages()[0].text == text
    assert [call.tool for call in copy.tools.list()] == [text]
    assert copy.snapshots.list()[0].content == text
    assert copy.compactions.latest().summary == text
    assert store.records.get(text, text).value == text
    assert [record.key for record in store.records.list(text, prefix=text[:1])] == [text]
    assert session.records.get(text, text).value == text.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_ids_and_filters_match_only_equal_text(store, text):
    session = call_or_none(lambda: store.session(text))
    assert session is None or [session.id for session in store.list_sessions()] == [text, "cli:protected"]
    results = [
        call_or_none(lambda: store.get_session(f"no {text}")),
        call_or_none(lambda: store.find_session(f"no {text}")),
        *(
            session
            for name in ("channel", "status", "model")
            for session in call_or_none(lambda name=name: store.list_sessions(**{name: text})) or []
        ),
    ]
    assert "cli:protected" not in [result.id for result in results if result is not None]
    with pytest.raises(RecollectError):
        store.delete_session(f"no {text}")
    call_or_none(lambda: store.erase_session(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_query_is_searched_as_words(store, text):
    hits = call_or_none(lambda: store.search(text)) or []
    assert all(hit.session != "cli:protected" for hit in hits)
    for field in ("role", "tool", "model", "session", "title"):
        call_or_none(lambda field=field: store.search(f"{field}:{text} protected"))
        call_or_none(lambda field=field: store.search(f'{field}:"{text}'))
    store.session("cli:here").append({"role": "user", "content": f"before {text} behind"})
    assert "cli:here" in {hit.session for hit in store.search("behind")}
