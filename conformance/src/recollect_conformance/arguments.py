"""Invalid arguments: every argument of every method with every invalid value works or raises a RecollectError."""

from __future__ import annotations

import datetime
import decimal
import enum
import inspect
import itertools
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recollect.errors import InvalidValue, KeyReused, RecollectError, TurnExists
from recollect.model.message import DataPart, Draft, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Session, Store, Stream, Turn
from recollect_conformance.examples import texts, tool_call_message, user

INVALID_VALUES = (None, 5, b"x", [], {}, pathlib.Path("odd"), object(), 1.5, "\ud800", 2**70, "odd", True, -1, "\0")
_VALID_ARGUMENTS: dict[str, Any] = {
    "query": "x", "name": "a", "key": "k", "value": 1, "messages": user("x"), "message": user("x"),
    "call_id": "t", "surface": "cli", "kind": "title", "content": "c", "to": "1.1", "branch": 1, "text": "x",
    "sessions": ["a"], "ids": ["1.1"], "metadata": {"a": 1},
}  # fmt: skip
_MESSAGE_METHODS = frozenset(
    {
        "message",
        "response",
        "pin_message",
        "unpin_message",
        "delete_message",
        "restore_message",
        "resume_turn",
        "mark_message",
        "replace_message",
        "message_versions",
    }
)
_EXCLUDED_METHODS = frozenset({"close", "run", "follow", "scope", "saw"})
"""Methods that close the store, and methods for operations and rows, which users do not call."""


class StringEnum(str, enum.Enum):  # noqa: UP042  str() of a member is its name, not its value
    """Define members that are strings, as programs do for models and states."""

    ID = "cli:word"
    MODEL = "some-model"
    STATUS = "completed"
    ROLE = "user"


class IntegerEnum(enum.Enum):
    """Define a member that is not a string and not JSON."""

    HIGH = 3


NOT_JSON: tuple[Any, ...] = (
    b"x", bytearray(b"x"), memoryview(b"x"), {1}, frozenset({1}), datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC),
    datetime.timedelta(1), decimal.Decimal("1.5"), uuid.UUID(int=1), IntegerEnum.HIGH, 1j, object(), range(2),
    float("nan"),
)  # fmt: skip


def json_arguments(session: Session, invalid: Any) -> dict[str, Callable[[], Any]]:
    """Return, for every argument that takes JSON, a call that passes a value in it."""
    store, nested = session.store, {"x": [invalid]}

    def part(kind: Any, **fields: Any) -> Callable[[], Any]:
        return lambda: session.append(Draft(role="assistant", parts=(kind(**fields),)))

    return {
        "message": lambda: session.append(
            {"role": "user", "content": [{"type": "text", "text": "x", "extra": invalid}]}
        ),
        "response": lambda: session.append({"role": "assistant", "parts": [{"kind": "data", "data": nested}]}),
        "metadata of a draft": lambda: session.append(Draft(role="user", metadata=nested)),
        "native of a draft": lambda: session.append(Draft(role="user", native=nested)),
        "error of a draft": lambda: session.append(Draft(role="user", error=invalid)),
        "data of a part": part(DataPart, data=nested),
        "data of a part, bare": part(DataPart, data=invalid),
        "metadata of a part": part(TextPart, text="x", metadata=nested),
        "native of a part": part(TextPart, text="x", native=invalid),
        "arguments": part(ToolCallPart, call_id="c", tool="t", arguments=nested),
        "data of a result": part(ToolResultPart, call_id="t", data=invalid),
        "content of a result": part(ToolResultPart, call_id="t", content=(DataPart(data=invalid),)),
        "result": lambda: session.record_tool_result("t", nested),
        "metadata of a result": lambda: session.record_tool_result("t", "x", metadata=nested),
        "error of a turn": lambda: session.save_turn("q", status="failed", error=invalid),
        "snapshot": lambda: session.snapshot("memory", nested),
        "metadata of a session": lambda: session.update(metadata=nested),
        "metadata of a new session": lambda: store.create_session("new", metadata=nested),
        "setting": lambda: store.set_setting("k", invalid),
        "marks of a message": lambda: session.mark_message(1, nested),
        "new content": lambda: session.replace_message(1, Draft(role="user", metadata=nested)),
    }


def methods(kind: type) -> list[str]:
    """Return the names of the methods of a class that take arguments."""
    functions = inspect.getmembers(kind, inspect.isfunction)
    return [name for name, call in functions if name[0] != "_" and name not in _EXCLUDED_METHODS and _parameters(call)]


def _parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter
        for parameter in inspect.signature(call).parameters.values()
        if parameter.kind in kinds and parameter.name != "self"
    ]


def invalid_calls(kind: type, name: str, session: str, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yield the arguments of calls in which one argument is invalid and the others are valid."""
    parameters = _parameters(getattr(kind, name))
    valid = {**_VALID_ARGUMENTS, "session": session, "path": str(folder / "copy.db")}
    valid["id"] = "1.1" if kind is Session and name in _MESSAGE_METHODS else session
    required = {each.name: valid[each.name] for each in parameters if each.default is each.empty}
    if name == "turn":
        required["take_over"] = True  # otherwise the call could wait for another holder forever
    for parameter, invalid in itertools.product(parameters, INVALID_VALUES):
        if name == "backup" and isinstance(invalid, str | pathlib.Path):
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

    def test_values_that_are_not_json_are_refused_in_every_json_argument(self, store: Store):
        session = store.session("a")
        session.append(tool_call_message("t"))
        before = session.refresh().info
        for invalid in NOT_JSON:
            for argument, act in json_arguments(session, invalid).items():
                with pytest.raises(InvalidValue):
                    pytest.fail(f"{argument} took {invalid!r}: {act()!r}")
        assert session.refresh().info == before
        assert (store.setting("k"), store.get_session("new")) == (None, None)

    def test_adjacent_surrogates_are_returned_unchanged(self, store: Store):
        pair = "\ud83d\ude00"
        session = store.session("a", metadata={pair: [pair]})
        session.append(tool_call_message("t"))
        session.record_tool_result("t", {pair: "\ud83d\uffff\ude00"}, metadata={"x": pair})
        session.append(user(pair))
        session.append(Draft(role="user", parts=(TextPart(text=pair * 40_000),), native={pair: pair}, error=pair))
        with session.turn(pair) as turn, turn.stream() as stream:
            stream.write("\ud83d")
            stream.write("\ude00")
        store.set_setting("k", pair)
        result, message, large, call, answer = session.messages()[1:]
        assert result.tool_results[0].data == {pair: "\ud83d\uffff\ude00"}
        assert result.tool_results[0].metadata == {"x": pair}
        assert (message.text, call.text, answer.text) == (pair, pair, pair)
        assert (large.text, large.native, large.error) == (pair * 40_000, {pair: pair}, pair)
        assert (session.refresh().metadata, store.setting("k")) == ({pair: [pair]}, pair)
        assert session.history("openai")[-1]["content"] == pair
        assert store.index() == len(session.messages())
        with pytest.raises(InvalidValue, match="surrogate"):
            session.update(title=pair)
        with pytest.raises(InvalidValue):
            store.create_session(pair)

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

    def test_setting_keys_have_at_most_512_characters(self, store: Store):
        long_key = "".join(map(chr, range(0x4E00, 0x4E00 + 513)))
        store.set_setting(long_key[:512], 1)
        assert store.setting(long_key[:512]) == 1
        for call in (store.setting, lambda key: store.set_setting(key, 1)):
            with pytest.raises(InvalidValue, match="at most 512 characters, got 513"):
                call(long_key)

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
            self.check_call(getattr(store, name), arguments)
        store.session("whole").append(user("still here"))
        assert texts(store.session("whole")) == ["still here"]

    @pytest.mark.parametrize("name", methods(Session))
    def test_invalid_arguments_of_a_session(self, store: Store, tmp_path: pathlib.Path, name: str):
        session = store.session("a")
        session.append([user("x"), tool_call_message("t")])
        for arguments in invalid_calls(Session, name, "a", tmp_path):
            self.check_call(getattr(session, name), arguments)
        assert texts(store.session("a"))[:1] in (["x"], [])

    @pytest.mark.parametrize("name", methods(Turn))
    def test_invalid_arguments_of_a_turn(self, store: Store, tmp_path: pathlib.Path, name: str):
        session = store.session("a")
        turn = session.turn("q")
        for arguments in invalid_calls(Turn, name, "a", tmp_path):
            if turn.info is not None:
                turn = session.turn("q")
            self.check_call(getattr(turn, name), arguments)
        assert texts(session)[0] == "q"

    @pytest.mark.parametrize("name", methods(Stream))
    def test_invalid_arguments_of_a_stream(self, store: Store, tmp_path: pathlib.Path, name: str):
        turn = store.session("a").turn("q")
        for arguments in invalid_calls(Stream, name, "a", tmp_path):
            self.check_call(getattr(turn.stream(), name), arguments)
        turn.complete()
