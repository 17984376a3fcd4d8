"""Invalid arguments: every argument of every method with every invalid value works or raises a RecollectError."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import itertools
import pathlib
import types
import uuid
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest

from recollect import formats
from recollect.errors import InvalidValue, KeyReused, RecollectError, TurnExists
from recollect.model.message import DataPart, Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Records, Session, Store, Stream, Turn
from recollect.store.maintenance import StoreMaintenance
from recollect.store.session_groups import (
    SessionBranches,
    SessionCompactions,
    SessionPresence,
    SessionSnapshots,
    SessionTurns,
)
from recollect.store.tools import SessionTools, StoreTools
from recollect_conformance.examples import nested_list, texts, tool_call_message, user

INVALID_VALUES = (None, 5, b"x", [], {}, pathlib.Path("odd"), object(), 1.5, "\ud800", 2**70, "odd", True, -1, "\0")
_VALID_ARGUMENTS: dict[str, Any] = {
    "query": "x", "name": "a", "key": "k", "value": 1, "messages": user("x"), "message": user("x"),
    "call_id": "t", "surface": "cli", "kind": "title", "content": "c", "to": "1.1", "branch": 1, "text": "x",
    "sessions": ["a"], "ids": ["1.1"], "metadata": {"a": 1}, "ranges": [(0, None)],
}  # fmt: skip
_MESSAGE_METHODS = frozenset({
    "message", "turns.resume", "mark_message", "replace_message", "message_versions",
})  # fmt: skip
_EXCLUDED_METHODS = frozenset({"close"})

GROUPS: dict[type, dict[str, type]] = {
    Store: {"maintenance": StoreMaintenance, "tools": StoreTools},
    Session: {
        "branches": SessionBranches, "turns": SessionTurns, "compactions": SessionCompactions,
        "snapshots": SessionSnapshots, "presence": SessionPresence, "tools": SessionTools,
    },
}  # fmt: skip
"""The groups of methods of a store and of a session, by the names of their properties. Both also have Records."""


class StringEnum(str, enum.Enum):  # noqa: UP042  str() of a member is its name, not its value
    """Define members that are strings, as programs do for models and states."""

    ID = "cli:word"
    MODEL = "some-model"
    STATUS = "completed"
    ROLE = "user"


class IntegerMember(enum.IntEnum):
    """Define a member that is an integer, as programs do for levels."""

    ONE = 1


@dataclasses.dataclass
class SimplePair:
    """Two values."""

    first: Any
    second: Any


class IntegerEnum(enum.Enum):
    """Define a member that is not a string and not JSON."""

    HIGH = 3


class RaisingObject:
    """An object of an SDK whose fields cannot be read."""

    def model_dump(self, **_options: Any) -> dict[str, Any]:
        """Raise an error, as a model with a broken serializer does."""
        raise ZeroDivisionError


def circular_list() -> list[Any]:
    """Return a list that contains itself."""
    circular: list[Any] = []
    circular.append(circular)
    return circular


NOT_JSON: tuple[Any, ...] = (
    b"x", bytearray(b"x"), memoryview(b"x"), {1}, frozenset({1}), datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC),
    datetime.timedelta(1), decimal.Decimal("1.5"), uuid.UUID(int=1), IntegerEnum.HIGH, 1j, object(), range(2),
    float("nan"), float("inf"), -float("inf"), {1: 2}, {None: 1}, {b"k": 1}, nested_list(600), nested_list(100_000),
    circular_list(), 10**5_000, -(10**5_000), RaisingObject(), Exception("x"), len, pathlib.Path("x"),
)  # fmt: skip
JSON_RULE = r"(\['.*'\]|\[\d+\])* must be JSON data, got .+\. JSON data is str, int, finite float, bool, None, lists, "
"""The end of the error for every value that JSON cannot represent, after the name of the argument."""


JsonArguments = dict[str, tuple[str, Callable[[], Any]]]
"""For each argument, its name in errors and a call that passes a value in it."""


def json_arguments(session: Session, invalid: Any) -> JsonArguments:
    """Return, for every argument that takes JSON, its name in errors and a call that passes a value in it."""
    store, nested = session.store, {"x": [invalid]}
    return {
        **_message_arguments(session, invalid),
        **_draft_arguments(session, invalid),
        "result": ("output", lambda: session.tools.record_result("t", nested)),
        "metadata of a result": ("metadata", lambda: session.tools.record_result("t", "x", metadata=nested)),
        "error of a saved turn": ("error", lambda: session.save_turn("q", status="failed", error=nested)),
        "error of a turn": ("error", _in_turn(session, lambda turn: turn.fail(nested))),
        "error of an interrupted turn": ("error", _in_turn(session, lambda turn: turn.interrupt(nested))),
        "snapshot": ("content", lambda: session.snapshots.add("memory", nested)),
        "metadata of a session": ("metadata", lambda: session.update(metadata=nested)),
        "metadata of a new session": ("metadata", lambda: store.session("new", exist_ok=False, metadata=nested)),
        "metadata of an opened session": ("metadata", lambda: store.session("new", metadata=nested)),
        "metadata of a fork": ("metadata", lambda: session.fork(id="new", metadata=nested)),
        "record": ("value", lambda: store.records.put("k", "x", nested)),
        "record of a session": ("value", lambda: session.records.put("k", "x", nested)),
    }


def _message_arguments(session: Session, invalid: Any) -> JsonArguments:
    """Return the calls that pass a value in a message."""
    nested = {"x": [invalid]}
    block = {"role": "user", "content": [{"type": "text", "text": "x", "extra": invalid}]}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "n", "name": "f", "input": nested}]}
    return {
        "message": ("message", lambda: session.append(block)),
        "second message": (r"messages\[1\]: message", lambda: session.append([user("x"), block])),
        "message of a format": ("message", lambda: session.append(block, format="anthropic")),
        "call": ("message", lambda: session.append(call)),
        "parts": ("message", lambda: session.append({"role": "user", "parts": [{"kind": "data", "data": nested}]})),
        "question": ("message", lambda: session.save_turn(block)),
        "response": ("message", lambda: session.save_turn("q", call)),
        "question of a turn": ("message", lambda: session.turn(block)),
        "step of a turn": ("message", _in_turn(session, lambda turn: turn.add(call))),
        "answer of a stream": ("message", _in_turn(session, lambda turn: turn.stream().close(call))),
        "parsed message": ("message", lambda: formats.parse(block, "anthropic")),
    }


def _draft_arguments(session: Session, invalid: Any) -> JsonArguments:
    """Return the calls that pass a value in a draft."""
    nested = {"x": [invalid]}

    def draft(**fields: Any) -> tuple[str, Callable[[], Any]]:
        return "message", lambda: session.append(Draft(role="assistant", **fields))

    def part(kind: Any, **fields: Any) -> tuple[str, Callable[[], Any]]:
        return draft(parts=(kind(**fields),))

    return {
        "metadata of a draft": draft(metadata=nested),
        "native of a draft": draft(native=nested),
        "error of a draft": draft(error=invalid),
        "data of a part": part(DataPart, data=nested),
        "data of a part, bare": part(DataPart, data=invalid),
        "metadata of a part": part(TextPart, text="x", metadata=nested),
        "native of a part": part(TextPart, text="x", native=invalid),
        "arguments": part(ToolCallPart, call_id="c", tool="t", arguments=nested),
        "data of a result": part(ToolResultPart, call_id="t", data=invalid),
        "content of a result": part(ToolResultPart, call_id="t", content=(DataPart(data=invalid),)),
        "rendered draft": ("message", lambda: formats.render([Draft(role="user", native=nested)], "openai")),
        "marks of a message": ("metadata", lambda: session.mark_message(1, nested)),
        "new content": ("message", lambda: session.replace_message(1, Draft(role="user", metadata=nested))),
    }


def _in_turn(session: Session, act: Callable[[Turn], Any]) -> Callable[[], Any]:
    """Return a function that acts in a turn and then cancels it."""

    def run() -> None:
        turn = session.turn("q", take_over=True)
        try:
            act(turn)
        finally:
            turn.cancel()

    return run


def methods(kind: type) -> list[str]:
    """Return the names of the methods of a class and of its groups that take arguments, such as `branches.switch`."""
    names: list[str] = []
    for group, cls in {"": kind, **GROUPS.get(kind, {})}.items():
        functions = inspect.getmembers(cls, inspect.isfunction)
        names += [
            f"{group}.{name}".removeprefix(".")
            for name, call in functions
            if name[0] != "_" and name not in _EXCLUDED_METHODS and _parameters(call)
        ]
    return names


def find_method(kind: type, name: str) -> Callable[..., Any]:
    """Return a method of a class, or of a group by its dotted name."""
    group, _, method = name.rpartition(".")
    return getattr(GROUPS[kind][group] if group else kind, method)


def _parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.kind in kinds and parameter.name != "self"
    ]


def invalid_calls(kind: type, name: str, session: str, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yield the arguments of calls in which one argument is invalid and the others are valid."""
    parameters = _parameters(find_method(kind, name))
    valid = {**_VALID_ARGUMENTS, "session": session, "path": str(folder / "copy.db")}
    valid["id"] = "1.1" if kind is Session and name in _MESSAGE_METHODS else session
    required = {each.name: valid[each.name] for each in parameters if each.default is each.empty}
    if name == "turn":
        required["take_over"] = True  # otherwise the call could wait for another holder forever
    for parameter, invalid in itertools.product(parameters, INVALID_VALUES):
        if name == "maintenance.backup" and isinstance(invalid, str | pathlib.Path):
            continue  # would create a file in the working directory
        if (name, parameter.name) == ("turn", "take_over"):
            continue
        yield {**required, parameter.name: invalid}


class TestArguments:
    """Every method with invalid arguments."""

    def test_keys_of_any_length(self, store: Store):
        session = store.session("a")
        long_key = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))  # 60 KB that an index cannot compress
        for key in (long_key, long_key[:-1], long_key[:1_000], "k" * 512):
            first = session.append(user("x"), key=key)
            second = session.append(user("x"), key=key)
            assert (second.ids, second.repeated, first.repeated) == (first.ids, True, False)
            with pytest.raises(KeyReused):
                session.append(user("y"), key=key)
        with session.turn("q", key=long_key + "?"):
            pass
        with pytest.raises(TurnExists):
            session.turn("q", key=long_key + "?")

    def test_values_that_are_not_json_are_refused_in_the_same_words_in_every_json_argument(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        before = session.messages()
        for invalid in NOT_JSON:
            for argument, (name, act) in json_arguments(session, invalid).items():
                with pytest.raises(InvalidValue, match=f"^{name}{JSON_RULE}"):
                    pytest.fail(f"{argument} took {type(invalid)}: {act()!r}")
        after = session.messages()
        assert after[: len(before)] == before
        # The calls that add to a turn open one, and those that close a stream begin an answer.
        assert {(message.text, len(message.parts)) for message in after[len(before) :]} == {("q", 1), ("", 0)}
        assert {turn.status for turn in session.turns.list()} == {"cancelled"}
        assert (store.records.get("k", "x"), session.records.get("k", "x"), store.get_session("new")) == (None,) * 3
        assert session.refresh().metadata is None
        assert session.snapshots.list() == []

    def test_values_with_a_json_encoding_are_accepted_in_every_json_argument(self, store: Store):
        session = store.session("a")
        pair, name = SimplePair(1, (2,)), StringEnum.ID
        value = {name: (pair, IntegerMember.ONE, types.MappingProxyType({"x": name})), "n": 2**70, "s": "\ud800"}
        plain = {"cli:word": [{"first": 1, "second": [2]}, 1, {"x": "cli:word"}], "n": 2**70, "s": "\ud800"}
        session.append(tool_call_message("t"))
        assert session.tools.record_result("t", value, metadata=value).tool_results[0].data == plain
        session.append(
            Draft(role="user", parts=(DataPart(data=value, metadata=value),), metadata=value, native=value, error=value)
        )
        message = session.messages(last=1)[0]
        part = message.parts[0]
        assert isinstance(part, DataPart)
        assert (part.data, part.metadata, message.metadata, message.native, message.error) == (plain,) * 5
        session.append({"role": "user", "parts": [{"kind": "data", "data": value}]})
        session.append({"role": "user", "content": [{"type": "odd", "value": value}]}, format="anthropic")
        assert session.history("anthropic", repair=False)[-1]["content"][0]["value"] == plain
        session.save_turn("q", status="failed", error=value)
        assert session.turns.list()[-1].error == plain
        assert session.snapshots.add("memory", value).content == plain
        session.update(metadata=value)
        record = session.records.put("k", "x", value)
        assert (session.refresh().metadata, record.value, session.records.get("k", "x")) == (plain, plain, record)

    def test_adjacent_surrogates_are_returned_unchanged(self, store: Store):
        pair = "\ud83d\ude00"
        session = store.session("a", metadata={pair: [pair]})
        session.append(tool_call_message("t"))
        session.tools.record_result("t", {pair: "\ud83d\uffff\ude00"}, metadata={"x": pair})
        session.append(user(pair))
        session.append(Draft(role="user", parts=(TextPart(text=pair * 40_000),), native={pair: pair}, error=pair))
        with session.turn(pair) as turn, turn.stream() as stream:
            stream.write("\ud83d")
            stream.write("\ude00")
        store.records.put("k", "x", pair)
        result, message, large, call, answer = session.messages()[1:]
        assert result.tool_results[0].data == {pair: "\ud83d\uffff\ude00"}
        assert result.tool_results[0].metadata == {"x": pair}
        assert (message.text, call.text, answer.text) == (pair, pair, pair)
        assert (large.text, large.native, large.error) == (pair * 40_000, {pair: pair}, pair)
        record = store.records.get("k", "x")
        assert record is not None
        assert (session.refresh().metadata, record.value) == ({pair: [pair]}, pair)
        assert session.history("openai")[-1]["content"] == pair
        assert store.maintenance.index() == len(session.messages())
        with pytest.raises(InvalidValue, match="surrogate"):
            session.update(title=pair)
        with pytest.raises(InvalidValue):
            store.session(pair, exist_ok=False)

    def test_string_enums(self, store: Store):
        session = store.session(StringEnum.ID)
        session.update(model=StringEnum.MODEL, status=StringEnum.STATUS, title=StringEnum.MODEL)  # pyright: ignore[reportArgumentType]
        info = store.get_session("cli:word")
        assert info is not None
        assert (info.id, info.model, info.status, info.title) == (
            "cli:word",
            "some-model",
            "completed",
            "some-model",
        )
        assert [entry.id for entry in store.list_sessions(model=StringEnum.MODEL)] == ["cli:word"]
        session.append({"role": "user", "content": StringEnum.MODEL}, key=StringEnum.ID)
        assert session.append(user("some-model"), key="cli:word").repeated
        assert len(store.search(StringEnum.MODEL, session=StringEnum.ID, role=StringEnum.ROLE)) == 1

    def test_an_invalid_message_id_is_named_in_the_error(self, store: Store):
        for invalid, text in ((-1, "-1 is"), (True, "True is"), (10**5_000, "an integer of more than 120 digits is")):
            with pytest.raises(InvalidValue, match=text):
                store.session("a").message(invalid)

    def check_call(self, call: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Make a call. Only a RecollectError may be raised."""
        try:
            result = call(**arguments)
            if inspect.isgenerator(result):
                list(result)
            elif hasattr(result, "close"):
                result.close()  # a watch
        except RecollectError as error:
            if "please report it" in str(error):  # the database refused a value that validation should have refused
                raise AssertionError(arguments) from error

    @pytest.mark.parametrize("name", methods(Store))
    def test_invalid_arguments_of_a_store(self, store: Store, tmp_path: pathlib.Path, name: str):
        for number, arguments in enumerate(invalid_calls(Store, name, "a", tmp_path)):
            if number % len(INVALID_VALUES) == 0:
                store.session("a")
            self.check_call(attrgetter(name)(store), arguments)
        store.session("whole").append(user("still here"))
        assert texts(store.session("whole")) == ["still here"]

    @pytest.mark.parametrize("name", methods(Session))
    def test_invalid_arguments_of_a_session(self, store: Store, tmp_path: pathlib.Path, name: str):
        session = store.session("a")
        session.append([user("x"), tool_call_message("t")])
        for arguments in invalid_calls(Session, name, "a", tmp_path):
            self.check_call(attrgetter(name)(session), arguments)
        assert [message.text for message in store.session("a").messages(deleted=True)][:1] in (["x"], [])

    @pytest.mark.parametrize("name", methods(Turn))
    def test_invalid_arguments_of_a_turn(self, store: Store, tmp_path: pathlib.Path, name: str):
        session = store.session("a")
        turn = session.turn("q")
        for arguments in invalid_calls(Turn, name, "a", tmp_path):
            if turn.info is not None:
                turn = session.turn("q")
            self.check_call(getattr(turn, name), arguments)
        assert texts(session)[0] == "q"

    @pytest.mark.parametrize("name", methods(Records))
    def test_invalid_arguments_of_records(self, store: Store, tmp_path: pathlib.Path, name: str):
        for records in (store.records, store.session("a").records):
            records.put("whole", "key", "still here")
            for arguments in invalid_calls(Records, name, "a", tmp_path):
                self.check_call(getattr(records, name), arguments)
            assert [record.value for record in records.list("whole")] == ["still here"]

    @pytest.mark.parametrize("name", methods(Stream))
    def test_invalid_arguments_of_a_stream(self, store: Store, tmp_path: pathlib.Path, name: str):
        turn = store.session("a").turn("q")
        for arguments in invalid_calls(Stream, name, "a", tmp_path):
            self.check_call(getattr(turn.stream(), name), arguments)
        turn.complete()
