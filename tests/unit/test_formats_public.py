"""formats.parse() and formats.render(): the conversion that append() and history() do, without a store."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from formats_table import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st

import recollect
from recollect import formats
from recollect.errors import AmbiguousFormat, InvalidValue, UnknownFormat
from recollect.model.message import DataPart, Draft, DraftFields, Message, TextPart
from recollect.storage.messages import encode_draft
from recollect_conformance.examples import (
    ANTHROPIC_MESSAGES,
    ANTHROPIC_RESPONSE,
    OPENAI_MESSAGES,
    OPENAI_RESPONSE,
    RESPONSES_ITEMS,
    RESPONSES_RESPONSE,
)

CASES = [
    pytest.param(name, messages, id=f"{name}: {feature}")
    for name, table in EXAMPLES.items()
    for feature, messages in table.items()
]
RESPONSES: dict[str, dict[str, Any]] = {
    "anthropic": ANTHROPIC_RESPONSE, "openai": OPENAI_RESPONSE, "openai-responses": RESPONSES_RESPONSE,
}  # fmt: skip
STORE_FIELDS = {"id", "branch", "position", "created_at", "completed_at", "tokens", "state"}


@pytest.fixture
def session():
    with recollect.open(":memory:") as store:
        yield store.session("a")


def without_store_fields(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in message.items() if name not in STORE_FIELDS} for message in messages]


def assert_round_trip(session: recollect.Session, name: Any, messages: list[dict[str, Any]]) -> None:
    """Parse and append messages, and compare the history with the rendered drafts and the input."""
    original = copy.deepcopy(messages)
    drafts = formats.parse(messages, name)
    rendered = formats.render(drafts, name)
    assert messages == original
    session.append(drafts)
    history = session.history(name, repair=False)
    direct = session.store.session()
    direct.append(messages, format=name)
    assert [m.to_dict()["parts"] for m in direct.messages()] == [m.to_dict()["parts"] for m in session.messages()]
    assert formats.render(session.messages(), name) == history
    if name == "recollect":
        assert without_store_fields(history) == without_store_fields(rendered) == original
        assert formats.parse(rendered, name) == drafts
    else:
        assert history == rendered == original


@pytest.mark.parametrize(("name", "messages"), CASES)
def test_parsed_messages_are_stored_and_rendered_unchanged(session, name, messages):
    assert_round_trip(session, name, messages)


@pytest.mark.parametrize(("name", "messages"), CASES)
def test_parsed_drafts_are_those_that_append_stores(name, messages):
    drafts, appended_drafts = formats.parse(messages, name), formats.read(messages, name)
    assert drafts == appended_drafts
    again = formats.read(drafts)
    assert [encode_draft(draft, 0).columns for draft in again] == [
        encode_draft(draft, 0).columns for draft in appended_drafts
    ]


@given(st.lists(st.sampled_from([case.values for case in CASES]), max_size=6), st.sampled_from(formats.FORMATS))
def test_drafts_are_rendered_in_every_format_as_in_a_new_session(cases, target):
    with recollect.open(":memory:") as store:
        session = store.session("a")
        drafts = [draft for name, messages in cases for draft in formats.parse(messages, name)]
        if drafts:
            session.append(drafts)
        history, rendered = session.history(target, repair=False), formats.render(drafts, target)
        if target == "recollect":
            assert without_store_fields(history) == without_store_fields(rendered)
        else:
            assert history == rendered
        assert formats.render(session.messages(), target) == history
        middle = len(drafts) // 2
        rendered = formats.render([*session.messages()[:middle], *drafts[middle:]], target)
        if target != "recollect":
            assert rendered == history


@pytest.mark.parametrize(("name", "messages"), CASES)
def test_metadata_is_stored_with_a_message_of_any_format(session, name, messages):
    drafts = formats.parse(messages, name)
    session.append([draft.replace(metadata={"uuid": f"u{index}"}) for index, draft in enumerate(drafts)])
    assert [message.metadata for message in session.messages()] == [{"uuid": f"u{n}"} for n in range(len(drafts))]
    if name != "recollect":
        assert session.history(name, repair=False) == messages


@pytest.mark.parametrize("name", RESPONSES)
def test_a_whole_response_keeps_its_fields(session, name):
    (draft,) = formats.parse(RESPONSES[name])
    session.append(draft.replace(metadata={"run": 1}))
    message = session.messages()[0]
    assert (message.metadata, formats.response(message)) == ({"run": 1}, RESPONSES[name])
    assert formats.render(draft, name) == formats.render(message, name) == session.history(name, repair=False)


def test_each_item_becomes_a_message_of_its_own_if_it_is_parsed_alone(session):
    assert len(formats.parse(RESPONSES_ITEMS)) < len(RESPONSES_ITEMS)
    drafts = [draft for item in RESPONSES_ITEMS for draft in formats.parse(item, "openai-responses")]
    appended = session.append(drafts)
    assert appended.count == len(RESPONSES_ITEMS)
    assert session.history("openai-responses", repair=False) == RESPONSES_ITEMS


def test_data_of_any_shape_is_stored_as_a_data_part(session):
    envelope = {"__enc__": 1, "v": "gAAA", "kid": None}
    with pytest.raises(AmbiguousFormat):
        session.append({"type": "handoff", "to": "b"})
    session.append([{"role": "user", "parts": [{"kind": "data", "data": envelope}], "metadata": {"n": 1}}])
    session.append(Draft(role="user", parts=(DataPart(data=envelope),)))
    data = [part.data for message in session.messages() for part in message.parts if isinstance(part, DataPart)]
    assert data == [envelope, envelope]
    assert session.history("anthropic") == []
    assert session.history("recollect", last=1)[0]["parts"] == [{"kind": "data", "data": envelope}]


class TestCopies:
    """Drafts and rendered dicts share no data with their source."""

    @pytest.mark.parametrize(("name", "messages"), CASES)
    def test_a_change_of_the_source_or_of_the_result_changes_nothing_else(self, name, messages):
        source = copy.deepcopy(messages)
        drafts = formats.parse(source, name)
        before = copy.deepcopy(drafts)
        scramble(source)
        assert drafts == before
        for target in formats.FORMATS:
            scramble(formats.render(drafts, target))
            assert drafts == before


def scramble(value: Any) -> None:
    """Change every dict and list in a value."""
    for item in list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()):
        scramble(item)
    if isinstance(value, dict):
        value["scrambled"] = True
    elif isinstance(value, list):
        value.append("scrambled")


class TestArguments:
    """What parse() and render() take."""

    def test_the_format_is_detected(self):
        assert formats.parse(ANTHROPIC_MESSAGES[1]) == formats.parse(ANTHROPIC_MESSAGES[1], "anthropic")
        assert formats.parse(OPENAI_MESSAGES[0])[0].role == "system"

    def test_iterables_drafts_and_messages(self, session):
        draft = Draft(role="user", parts=(TextPart(text="x"),))
        assert formats.parse(iter([draft, {"role": "user", "content": "x"}])) == [draft, draft]
        assert formats.parse([]) == []
        assert formats.render([], "openai") == []
        assert formats.render((item for item in (draft, draft)), "openai") == [{"role": "user", "content": "x"}] * 2
        session.append(draft.replace(metadata={"a": 1}))
        (again,) = formats.parse(session.messages())
        assert (again.metadata, again.parts) == ({"a": 1}, draft.parts)

    def test_objects_of_an_sdk(self):
        types: Any = pytest.importorskip("anthropic.types")
        assert formats.parse(types.Message.model_validate(ANTHROPIC_RESPONSE)) == formats.parse(ANTHROPIC_RESPONSE)

    @pytest.mark.parametrize("invalid", [{"role": "user", "content": "x"}, "x", None, 5, [None], ["x"], [{}]])
    def test_only_messages_and_drafts_are_rendered(self, invalid):
        with pytest.raises(InvalidValue):
            formats.render(invalid, "openai")

    @pytest.mark.parametrize("format", ["nobody", None, 5, b"openai", ["openai"]])
    def test_an_unknown_format_is_refused(self, format):
        with pytest.raises(UnknownFormat):
            formats.render([], format)
        if format is not None:
            with pytest.raises(UnknownFormat):
                formats.parse({"role": "user", "content": "x"}, format)

    def test_invalid_messages_are_refused_as_in_append(self, session):
        for invalid in (
            "x",
            5,
            None,
            {},
            {"content": "x"},
            {"role": "robot", "content": "x"},
            [{"role": "user", "content": "x"}, 5],
        ):
            with pytest.raises(InvalidValue) as parsed:
                formats.parse(invalid)
            with pytest.raises(InvalidValue) as appended:
                session.append(invalid)
            assert str(parsed.value) == str(appended.value)

    def test_invalid_drafts_are_refused(self):
        with pytest.raises(InvalidValue, match="before the year 10000"):
            Draft(role="user", created_at=253_402_300_800_000)
        wrong = [
            {"role": "robot"},
            {"tokens": -1},
            {"metadata": 5},
            {"native": [b"x"]},
        ]
        for fields in wrong:
            draft = Draft(role="user").replace(**fields)
            for call in (
                lambda draft=draft: formats.parse(draft),
                lambda draft=draft: formats.render(draft, "recollect"),
            ):
                with pytest.raises(InvalidValue):
                    call()


class TestReplace:
    """Draft.replace() returns a draft with other fields."""

    def test_other_fields_stay(self):
        draft = Draft(role="user", parts=(TextPart(text="x"),), model="m")
        changed = draft.replace(metadata={"a": 1}, created_at=5)
        assert changed == Draft(role="user", parts=(TextPart(text="x"),), model="m", metadata={"a": 1}, created_at=5)
        assert draft.metadata is None
        assert draft.replace() == draft

    def test_its_type_names_every_field(self):
        assert tuple(DraftFields.__annotations__) == Draft.__struct_fields__

    def test_an_unknown_field_is_refused(self):
        with pytest.raises(TypeError):
            Draft(role="user").replace(metdata={})  # pyright: ignore[reportCallIssue]


def test_a_created_at_before_1970_is_refused():
    for text in ("1969-12-31T23:59:59Z", "0001-01-01", "0001-01-01T00:00:00+23:59", "x"):
        with pytest.raises(InvalidValue, match="created_at must be ISO 8601 since 1970"):
            formats.parse({"role": "user", "content": "x", "created_at": text})
    (draft,) = formats.parse({"role": "user", "content": "x", "created_at": "9999-12-31T23:59:59.999Z"})
    assert formats.render(draft, "recollect")[0]["created_at"] == "9999-12-31T23:59:59.999Z"
    message = Message(1, 1, "user", (), created_at_ms=draft.created_at_ms or 0)
    assert msgspec.structs.replace(message, position=2).to_dict()["created_at"] == "9999-12-31T23:59:59.999Z"
