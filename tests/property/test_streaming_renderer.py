"""The streaming renderer against the renderer of messages: both must return the same history."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import formats
from recollect.history.render import render_history
from recollect.model.message import Draft, Message, TextPart, ToolCallPart, ToolResultPart
from recollect.storage import messages

PROVIDERS = formats.PROVIDERS
PIXEL = "data:image/png;base64," + "iVBORw0KGgo" * 8_000


def conversation(format, turns):
    """Build a conversation in a format, with a tool call and its result in every second turn."""
    drafts = []
    for number in range(turns):
        drafts.append(Draft(role="user", parts=(TextPart(text=f"question {number}"),)))
        if number % 2:
            call = ToolCallPart(call_id=f"call_{number}", tool="look", arguments={"at": number})
            drafts.append(Draft(role="assistant", parts=(TextPart(text="I look."), call)))
            drafts.append(Draft(role="tool", parts=(ToolResultPart(call_id=f"call_{number}", text="result"),)))
        drafts.append(Draft(role="assistant", parts=(TextPart(text=f"answer {number}"),)))
    history = [
        Message(branch=1, position=position, role=draft.role, parts=draft.parts, created_at_ms=0)
        for position, draft in enumerate(drafts, 1)
    ]
    return formats.write(history, format)


def render_messages(session, format):
    return render_history(session.messages(active=True), format)


def assert_same_history(session, format):
    """Check that both renderers return the same history and repairs."""
    history, expected = session.history(format), render_messages(session, format)
    assert history == expected
    assert history.repairs == expected.repairs
    return history


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr(messages, "LARGE_PAGE_SIZE", 3)
    with recollect.open(":memory:") as store:
        yield store.session("a")


@pytest.mark.parametrize("format", PROVIDERS)
def test_unchanged_items_are_rendered_without_message_objects(session, format, monkeypatch):
    items = conversation(format, 7)
    session.append(items, format=format)

    def refuse(*_):
        raise AssertionError("a message object was created")

    monkeypatch.setattr(formats, "write", refuse)
    history = session.history(format)
    assert history == items
    assert history.repairs == []


@pytest.mark.parametrize("format", PROVIDERS)
def test_unusual_messages_render_the_same(session, format):
    items = conversation(format, 6)
    session.append(items[:4], format=format)
    fork = session.fork()
    fork.append(items[4:], format=format)
    fork.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}, format="openai")
    fork.append(Draft(role="assistant", parts=(TextPart(text="cut o"),), format=format, state="interrupted"))
    fork.append(Draft(role="user", parts=(TextPart(text="\ud800"),), format=format))
    assert_same_history(fork, format)
    fork.delete_messages([fork.messages()[2]])
    fork.mark_message(fork.messages()[1], {"pinned": True})
    assert_same_history(fork, format)
    fork.compact(before=fork.messages()[6], summary="before")
    assert_same_history(fork, format)
    assert_same_history(session, format)


pieces = st.sampled_from(["", " ", "word", "end ", "\ud800"])
drafts = st.one_of(
    st.builds(
        Draft,
        role=st.sampled_from(["user", "assistant", "system", "tool"]),
        parts=st.lists(st.builds(TextPart, text=pieces), max_size=2).map(tuple),
        format=st.sampled_from([None, *PROVIDERS]),
        state=st.sampled_from(["completed", "interrupted"]),
    ),
    st.sampled_from(PROVIDERS).flatmap(lambda name: st.sampled_from(formats.read(conversation(name, 4), name))),
)


@pytest.mark.parametrize("format", PROVIDERS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(others=st.lists(drafts, min_size=1, max_size=8), count=st.integers(0, 12))
def test_both_renderers_return_the_same_history(format, others, count):
    with recollect.open(":memory:") as store:
        session = store.session("a")
        for draft in itertools.chain(formats.read(conversation(format, 4)[:count], format), others):
            session.append(draft)
        assert_same_history(session, format)


@pytest.fixture
def queries(session, monkeypatch):
    """Record the names of the queries that the store of the session sends."""
    names = []
    run = session.store._run

    def run_recorded(op):
        steps = op.steps

        def record(*arguments):
            inner_steps, rows = steps(*arguments), None
            try:
                while True:
                    statement = inner_steps.send(rows)
                    names.append(statement[0])
                    rows = yield statement
            except StopIteration as stop:
                return stop.value

        op.steps = record
        return run(op)

    monkeypatch.setattr(session.store, "_run", run_recorded)
    return names


CALL_WITHOUT_RESULT = Draft(role="assistant", parts=(ToolCallPart(call_id="open", tool="look", arguments={}),))


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_history_that_needs_a_repair_is_read_once(session, queries, format, is_first):
    drafts = formats.read(conversation(format, 7), format)
    opening = Draft(role="user", parts=(TextPart(text="Look."),))
    session.append([opening, CALL_WITHOUT_RESULT, *drafts] if is_first else [*drafts, CALL_WITHOUT_RESULT])
    queries.clear()
    history = session.history(format)
    assert "interrupted_call" in {repair.kind for repair in history.repairs}
    pages = session.message_count // messages.LARGE_PAGE_SIZE + 1
    assert queries.count("messages_tuples") == pages
    assert [name for name in queries if name.startswith("messages_") and name != "messages_tuples"] == [
        "messages_pinned"
    ]
    assert history == render_messages(session, format)
