"""Values: JSON in and out, times as ISO 8601, immutability."""

from __future__ import annotations

import datetime
import importlib
import json as standard
import pkgutil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recollect.model
from recollect.model.compaction import Compaction
from recollect.model.message import (
    AttachmentPart,
    DataPart,
    Draft,
    Message,
    ReasoningPart,
    Repair,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.record import Record
from recollect.model.reports import (
    Backup,
    CopyReport,
    Difference,
    Finding,
    Findings,
    OptimizeReport,
    Owners,
    PrunedSession,
    PruneReport,
    Space,
    Stats,
    Tally,
    ToolStats,
)
from recollect.model.search import Hit, Page
from recollect.model.session import TEXT_FIELDS, Branch, Presence, SessionInfo, Snapshot
from recollect.model.turn import TurnInfo, describe_error
from recollect.model.value import Value, format_iso, parse_iso

NOVEMBER_2025 = 1763287200123  # milliseconds: 2025-11-16T10:00:00.123Z, an ordinary time
PARTS = (
    TextPart(text="half \ud83d, whole \U0001f600, nothing \x00", metadata={"a": [1, None]}),
    ReasoningPart(text="hm", native={"signature": "x"}),
    ToolCallPart(call_id="c1", tool="read", arguments={"path": "README.md", "n": 2**70}),
    ToolCallPart(call_id="c2", tool="read", arguments_text='{"path": '),
    ToolResultPart(call_id="c1", text="ok"),
    ToolResultPart(call_id="c2", status="error", error_code="E1", error_message="cut off"),
    ToolResultPart(call_id="c3", content=(TextPart(text="a"), AttachmentPart(mime_type="image/png", data="AA=="))),
    ToolResultPart(call_id="c4", data={"rows": []}),
    AttachmentPart(mime_type="text/plain", size=3, name="a.txt", url="file:///a.txt"),
    DataPart(data=None),
    DataPart(native={"type": "new_block"}),
)
VALUES = [
    Branch(id=2, parent=1, fork_at=4, last=9, current=True, created_at_ms=NOVEMBER_2025),
    Compaction(
        id=1, branch=1, from_position=1, to_position=9, round=2, tokens_before=90, tokens_after=9, summary="so",
        created_at_ms=NOVEMBER_2025, undone_at_ms=NOVEMBER_2025 + 1,
    ),
    Message(
        branch=1, position=3, role="assistant", parts=PARTS, state="interrupted", turn=2, format="anthropic",
        native={"fields": {"x": 1}}, model="m", tokens=5, input_tokens=3, output_tokens=2, error={"name": "E"},
        metadata={"k": "v"}, created_at_ms=NOVEMBER_2025, completed_at_ms=NOVEMBER_2025 + 5, deleted_at_ms=NOVEMBER_2025 + 9,
        key="k", edited_at_ms=NOVEMBER_2025 + 7,
    ),
    SessionInfo(
        id="cli:x", parent="cli:p", relation="fork", **{**dict.fromkeys(TEXT_FIELDS, "x"), "status": "failed"},
        metadata={"big": 2**80}, pinned_at_ms=NOVEMBER_2025, archived_at_ms=NOVEMBER_2025, deleted_at_ms=NOVEMBER_2025, branch=2, revision=3,
        message_count=4, token_count=5, input_tokens=6, output_tokens=7, data_schema_version=1, created_at_ms=NOVEMBER_2025,
        updated_at_ms=NOVEMBER_2025, active_at_ms=NOVEMBER_2025, last_message_at_ms=NOVEMBER_2025,
    ),
    Finding(kind="counter", message="m", advice="a", level="notice", session="s", repaired=True),
    Findings(checks=("counters",), findings=(Finding(kind="k", message="m", advice="a"),)),
    OptimizeReport(before=9, after=4),
    Backup(path="/b.db", bytes=9, schema=5, sessions=1, messages=2, active_at_ms=NOVEMBER_2025),
    PrunedSession(id="a", title="T", active_at_ms=NOVEMBER_2025, messages=2, bytes=9, reason="size"),
    CopyReport(
        source="a.db", target="postgresql://b", owners=("", "ann"), everyone=True, counts={"sessions": 3},
        differences=(Difference(owner="", kind="session", name="cli:a", missing=True),),
    ),
    Difference(owner="ann", kind="payload", name="00ff", missing=False),
    PruneReport(
        dry_run=True, erased=True, sessions=(PrunedSession(id="a", active_at_ms=NOVEMBER_2025, messages=2, bytes=9, reason="age"),), outputs=1,
        output_bytes=2, trimmed=3,
    ),
    Space(total=9, text=1, tool_output=2, attachments=1, index=2, free=1, other=2, log=3, tables={"messages": 3}),
    Stats(sessions=1, messages=2, by_day=(Tally(name="2025-11-16", messages=2),)),
    Tally(name="m", sessions=1, messages=2, turns=3, failures=4, input_tokens=5, output_tokens=6),
    ToolStats(
        tool="t", period="2025-11", calls=5, failures=1, cancelled=1, unanswered=1, p50_ms=3, p95_ms=9
    ),
    Owners(names=("", "ann"), everyone=True),
    Presence(id="p", session="s", surface="web", holder="h:1:2:3", since_at_ms=1, seen_at_ms=2),
    Snapshot(id=1, kind="memory", content={"facts": ["x"]}, message="1.3", tokens=9, created_at_ms=NOVEMBER_2025, updated_at_ms=NOVEMBER_2025),
    Record(kind="k", key="\0", revision=2, value={"a": ["\ud83d"]}, created_at_ms=NOVEMBER_2025, updated_at_ms=NOVEMBER_2025, session="s"),
    Record(kind="k", key="k", revision=1, value=b"\0\xff", created_at_ms=1, updated_at_ms=2, session="s"),
    ToolCall(
        message="1.3", part=2, call_id="c1", tool="read", status="error", result_message="1.4", result_part=0,
        error_code="E", error_message="no", created_at_ms=NOVEMBER_2025, started_at_ms=NOVEMBER_2025, completed_at_ms=NOVEMBER_2025, latency_ms=12,
    ),
    TurnInfo(
        branch=1, position=2, status="failed", holder="h", lease_until_at_ms=NOVEMBER_2025, model="m", input_tokens=1,
        output_tokens=2, latency_ms=3, error={"name": "E", "message": "x"}, started_at_ms=NOVEMBER_2025, ended_at_ms=NOVEMBER_2025,
    ),
    Hit(
        session="a", title="T", kind="tool_result", text="so it is", marks=((0, 2),), score=1.5, created_at_ms=NOVEMBER_2025,
        message="1.3", role="tool", tool="read", channel="cli", archived_at_ms=NOVEMBER_2025, deleted_at_ms=NOVEMBER_2025, parent="b",
    ),
    Repair(kind="orphan_result", message="1.3", sentence="It is alone.", call_id="c1"),
]  # fmt: skip


def kinds() -> set[type]:
    """Find every value that recollect.model defines."""
    for module in pkgutil.iter_modules(recollect.model.__path__):
        importlib.import_module(f"recollect.model.{module.name}")
    return {kind for kind in Value.__subclasses__() if kind.__module__.startswith("recollect.model.")}


def minimal_value(kind: type[Value]) -> Value:
    """Make a value with its required fields only."""
    example = next(value for value in VALUES if type(value) is kind)
    required = {field.name: getattr(example, field.name) for field in msgspec.structs.fields(kind) if field.required}
    return kind(**required)


ALL_VALUES = [*VALUES, *(minimal_value(type(value)) for value in VALUES)]


def test_every_value_class_of_the_model_has_an_example():
    assert kinds() == {type(value) for value in VALUES}


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_field_is_set_in_the_examples(value):
    assert None not in {
        getattr(value, name)
        for name in value.__struct_fields__
        if name not in ("parts", "native", "metadata", "content", "counts", "error", "tables", "value")
    }


@pytest.mark.parametrize("value", ALL_VALUES, ids=lambda value: type(value).__name__)
def test_values_round_trip_through_json(value):
    text = value.to_json()
    assert type(value).from_json(text) == value
    assert type(value).from_json(text.decode()) == value


@pytest.mark.parametrize("value", ALL_VALUES, ids=lambda value: type(value).__name__)
def test_the_json_of_a_value_is_standard_json(value):
    plain = standard.loads(value.to_json())
    assert plain == standard.loads(standard.dumps(value.to_dict()))
    assert type(value).from_dict(plain) == value
    assert type(value).from_dict(value.to_dict()) == value


VALUES_WITH_TIMES = [value for value in VALUES if any(name.endswith("_at") for name in dir(value))]


@pytest.mark.parametrize("value", VALUES_WITH_TIMES, ids=lambda value: type(value).__name__)
def test_times_are_iso_8601_in_dicts(value):
    times = {name: text for name, text in value.to_dict().items() if name.endswith("_at") and name != "fork_at"}
    assert times or isinstance(value, Repair)
    for name, text in times.items():
        time = datetime.datetime.fromisoformat(text)
        assert text.endswith("Z")
        assert time.timestamp() * 1000 == pytest.approx(getattr(value, f"{name}_ms"), abs=0.5)
        assert time == getattr(value, name)


def test_fork_at_of_a_branch_is_a_position_and_not_a_time():
    plain = VALUES[0].to_dict()
    assert plain["fork_at"] == 4
    assert Branch.from_dict(plain) == VALUES[0]


@pytest.mark.parametrize("value", [*VALUES, *PARTS, Draft(role="user")], ids=lambda value: type(value).__name__)
def test_values_are_immutable(value):
    name = value.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(value, name, "other")


@pytest.mark.parametrize("value", [VALUES[0], VALUES[1], VALUES[5], VALUES[-1]], ids=lambda value: type(value).__name__)
def test_values_without_json_fields_are_hashable(value):
    assert len({value, type(value).from_json(value.to_json())}) == 1


@given(st.integers(min_value=-62135596800000, max_value=253402300799999))
def test_times_round_trip(at):
    assert parse_iso(format_iso(at)) == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2025-11-16T10:00:00.123Z", NOVEMBER_2025),
        ("2025-11-16T10:00:00.123", NOVEMBER_2025),
        ("2025-11-16T12:00:00.123+02:00", NOVEMBER_2025),
        ("2025-11-16T10:00:00.123999Z", NOVEMBER_2025),
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_iso_times_are_parsed(text, at):
    assert parse_iso(text) == at


def test_a_time_is_formatted_with_milliseconds_and_zone():
    assert format_iso(0) == "1970-01-01T00:00:00.000Z"
    assert format_iso(NOVEMBER_2025) == "2025-11-16T10:00:00.123Z"


@pytest.mark.parametrize("plain", [{}, {"id": 7}, {"id": "x", "created_at": "yesterday"}])
def test_an_invalid_dict_is_refused(plain):
    with pytest.raises(ValueError):
        SessionInfo.from_dict(plain)


def test_a_message_is_a_mapping():
    message = VALUES[2]
    plain = dict(message)
    assert plain["id"] == message.id == "1.3" == message["id"]
    assert set(plain) == {"id", *Message.__struct_encode_fields__}
    assert message["role"] == "assistant"
    assert message.get("role") == "assistant"
    assert message.get("nothing", 5) == 5
    for name in ("nothing", "text", "keys", "__class__"):
        with pytest.raises(KeyError):
            message[name]


def test_a_message_returns_its_parts_by_kind():
    message = VALUES[2]
    assert message.text == PARTS[0].text
    assert message.reasoning == "hm"
    assert [call.call_id for call in message.tool_calls] == ["c1", "c2"]
    assert [result.call_id for result in message.tool_results] == ["c1", "c2", "c3", "c4"]


def test_the_input_of_a_call_is_a_value_or_the_invalid_text():
    assert ToolCallPart(call_id="c", tool="t").input is None
    assert ToolCallPart(call_id="c", tool="t", arguments=None).input is None
    assert ToolCallPart(call_id="c", tool="t", arguments_text='{"a": 1}').input == {"a": 1}
    assert ToolCallPart(call_id="c", tool="t", arguments_text='{"a": ').input == '{"a": '
    assert ToolCallPart(call_id="c", tool="t", arguments_text="").input == ""
    assert ToolCallPart(call_id="c", tool="t", arguments_text=f'{{"a": {2**70}}}').input == {"a": 2**70}
    deep = "[" * 100_000
    assert ToolCallPart(call_id="c", tool="t", arguments_text=deep).input == deep


def test_the_output_of_a_result_is_text_for_every_kind_of_result():
    assert ToolResultPart(call_id="c", text="").output == ""
    assert (
        ToolResultPart(call_id="c", content=(TextPart(text="a"), DataPart(data=1), TextPart(text="b"))).output == "a\nb"
    )
    assert ToolResultPart(call_id="c", data={"a": 1}).output == '{"a":1}'
    assert ToolResultPart(call_id="c", data=None).output == "null"
    assert ToolResultPart(call_id="c", data={"a": 2**70}).output == f'{{"a":{2**70}}}'
    assert ToolResultPart(call_id="c", status="error", error_message="no").output == "no"
    assert ToolResultPart(call_id="c").output == ""


def test_a_part_omits_fields_with_default_values():
    assert msgspec.to_builtins(TextPart(text="a")) == {"kind": "text", "text": "a"}
    assert msgspec.to_builtins(DataPart(data=None)) == {"kind": "data", "data": None}


def test_a_page_is_a_list_with_a_cursor():
    page = Page([1, 2], "x")
    assert page == [1, 2]
    assert page.next == "x"
    assert Page().next is None


def test_an_error_is_described_by_name_and_message():
    assert describe_error(KeyError("x")) == {"name": "KeyError", "message": "'x'"}
