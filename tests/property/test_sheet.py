"""A history that is written while it is read, against the same history made from messages."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import formats
from recollect.context.history import history
from recollect.model.message import Draft, Message
from recollect.model.part import TextPart, ToolCallPart, ToolResultPart
from recollect.ops import messages

PROVIDERS = ["anthropic", "openai", "openai-responses", "ai-sdk", "ai-sdk-ui"]
PIXEL = "data:image/png;base64," + "iVBORw0KGgo" * 8_000


def spoken(format, turns):
    """Make a conversation in a format, with a call and its result in every second turn."""
    drafts = []
    for number in range(turns):
        drafts.append(Draft(role="user", parts=(TextPart(text=f"question {number}"),)))
        if number % 2:
            call = ToolCallPart(call_id=f"call_{number}", tool="look", arguments={"at": number})
            drafts.append(Draft(role="assistant", parts=(TextPart(text="I look."), call)))
            drafts.append(Draft(role="tool", parts=(ToolResultPart(call_id=f"call_{number}", text="found"),)))
        drafts.append(Draft(role="assistant", parts=(TextPart(text=f"answer {number}"),)))
    placed = [
        Message(branch=1, position=place, role=draft.role, parts=draft.parts, created_at=0)
        for place, draft in enumerate(drafts, 1)
    ]
    return formats.write(placed, format)


def by_messages(session, format):
    return history(session.messages(active=True), format)


def same(session, format):
    """Whether both ways give the same, repairs included."""
    told, long = session.history(format), by_messages(session, format)
    assert told == long
    assert told.repairs == long.repairs
    return told


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr(messages, "WHOLE", 3)
    with recollect.open(":memory:") as store:
        yield store.session("a")


@pytest.mark.parametrize("format", PROVIDERS)
def test_no_message_is_made_of_what_goes_out_as_it_came(session, format, monkeypatch):
    given = spoken(format, 7)
    session.append(given, format=format)

    def refuse(*_):
        raise AssertionError("a message was made")

    monkeypatch.setattr(formats, "write", refuse)
    found = session.history(format)
    assert found == given
    assert found.repairs == []


@pytest.mark.parametrize("format", PROVIDERS)
def test_what_is_unusual_comes_out_the_same(session, format):
    given = spoken(format, 6)
    session.append(given[:4], format=format)
    fork = session.fork()
    fork.append(given[4:], format=format)
    fork.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}, format="openai")
    fork.append(Draft(role="assistant", parts=(TextPart(text="cut o"),), format=format, state="interrupted"))
    fork.append(Draft(role="user", parts=(TextPart(text="\ud800"),), format=format))
    same(fork, format)
    fork.delete_message(fork.messages()[2])
    fork.pin_message(fork.messages()[1])
    same(fork, format)
    fork.compact(before=fork.messages()[6], summary="before")
    same(fork, format)
    same(session, format)


pieces = st.sampled_from(["", " ", "word", "end ", "\ud800"])
drafts = st.one_of(
    st.builds(
        Draft,
        role=st.sampled_from(["user", "assistant", "system", "tool"]),
        parts=st.lists(st.builds(TextPart, text=pieces), max_size=2).map(tuple),
        format=st.sampled_from([None, *PROVIDERS]),
        state=st.sampled_from(["completed", "interrupted"]),
    ),
    st.sampled_from(PROVIDERS).flatmap(lambda name: st.sampled_from(formats.read(spoken(name, 4), name))),
)


@pytest.mark.parametrize("format", PROVIDERS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(talk=st.lists(drafts, min_size=1, max_size=8), cut=st.integers(0, 12))
def test_both_ways_give_the_same(format, talk, cut):
    with recollect.open(":memory:") as store:
        session = store.session("a")
        for draft in itertools.chain(formats.read(spoken(format, 4)[:cut], format), talk):
            session.append(draft)
        same(session, format)
