"""SQL and the syntax of the search index in every text that a caller hands over: it comes back as it went in."""

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
    """A store with a session that nothing here may change."""
    with recollect.open(":memory:") as store:
        store.session("cli:kept", title="kept").append({"role": "user", "content": "kept words"})
        yield store
        assert [message.text for message in store.session("cli:kept").messages()] == ["kept words"]
        assert store.session("cli:kept").title == "kept"
        assert store.check().problems == ()


def maybe(action):
    """Do something that may be refused, in our own words."""
    try:
        return action()
    except RecollectError:
        return None


@pytest.mark.parametrize("text", HOSTILE)
def test_text_comes_back_as_it_went_in(store, text):
    session = store.create_session(
        title=text, task=text, model=text, provider=text, working_dir=text, metadata={text: text}, system_prompt=text
    )
    call = {"type": "tool_use", "id": text, "name": text, "input": {text: text}}
    told = {"type": "tool_result", "tool_use_id": text, "content": text}
    session.append({"role": "user", "content": text}, key=text)
    assert session.append({"role": "user", "content": text}, key=text).repeated
    session.append([{"role": "assistant", "content": [call]}, {"role": "user", "content": [told]}], "anthropic")
    session.snapshot("summary", text)
    store.set_setting(text, text)
    session.compact(before=session.messages()[1].id, summary=text)
    found = store.get_session(session.id)
    assert (found.title, found.task, found.model, found.metadata) == (text, text, text, {text: text})
    assert found.messages()[0].text == text
    assert [call.tool for call in found.tool_calls()] == [text]
    assert found.snapshots()[0].content == text
    assert found.compaction().summary == text
    assert store.setting(text) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_filters_find_nothing_but_what_they_name(store, text):
    made = maybe(lambda: store.session(text))
    assert made is None or [session.id for session in store.list_sessions()] == [text, "cli:kept"]
    other = [
        maybe(lambda: store.get_session(f"no {text}")),
        maybe(lambda: store.find_session(f"no {text}")),
        *(
            maybe(lambda name=name: store.list_sessions(**{name: text})) or []
            for name in ("channel", "status", "model")
        ),
    ]
    assert not [found for found in other if found is not None and getattr(found, "id", None) == "cli:kept"]
    with pytest.raises(RecollectError):
        store.delete_session(f"no {text}")
    maybe(lambda: store.erase_session(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_search_is_words(store, text):
    hits = maybe(lambda: store.search(text)) or []
    assert all(hit.session != "cli:kept" for hit in hits)
    for field in ("role", "tool", "model", "session", "title"):
        maybe(lambda field=field: store.search(f"{field}:{text} kept"))
        maybe(lambda field=field: store.search(f'{field}:"{text}'))
    store.session("cli:here").append({"role": "user", "content": f"before {text} behind"})
    assert "cli:here" in {hit.session for hit in store.search("behind")}
