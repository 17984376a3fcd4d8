"""Arguments of the wrong type, for every argument of every method: each works or is an error of ours, never another."""

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

from recollect.errors import AlreadySaid, InvalidValue, KeyReused, RecollectError
from recollect.model.message import Draft
from recollect.model.part import DataPart, TextPart, ToolCallPart, ToolResultPart
from recollect.store import Session, Store, Stream, Turn
from recollect.testing.talk import asks, texts, user

ODD = (None, 5, b"x", [], {}, pathlib.Path("odd"), object(), 1.5, "\ud800", 2**70, "odd", True, -1, "\0")
_FITTING: dict[str, Any] = {
    "query": "x", "name": "a", "key": "k", "value": 1, "messages": user("x"), "said": "x", "message": user("x"),
    "call_id": "t", "surface": "cli", "kind": "title", "content": "c", "to": "1.1", "branch": 1, "text": "x",
    "sessions": ["a"],
}  # fmt: skip
_OF_MESSAGES = frozenset(
    {"message", "response", "pin_message", "unpin_message", "delete_message", "restore_message", "resume_turn"}
)
_LEFT_OUT = frozenset({"close", "run", "follow", "scope", "saw"})
"""What ends everything, what takes operations and rows, and so is no matter of a user's."""


class Word(str, enum.Enum):  # noqa: UP042  whose str() is its name, and not its text
    """Texts by name, as programs have their models and states."""

    ID = "cli:word"
    MODEL = "some-model"
    STATUS = "completed"
    ROLE = "user"


class Level(enum.Enum):
    """Names that are no texts."""

    HIGH = 3


NOT_JSON: tuple[Any, ...] = (
    b"x", bytearray(b"x"), memoryview(b"x"), {1}, frozenset({1}), datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC),
    datetime.timedelta(1), decimal.Decimal("1.5"), uuid.UUID(int=1), Level.HIGH, 1j, object(), range(2), float("nan"),
)  # fmt: skip


def places(session: Session, odd: Any) -> dict[str, Callable[[], Any]]:
    """Name every place that takes JSON, with a call that puts a value there."""
    store, held = session.store, {"x": [odd]}

    def part(kind: Any, **fields: Any) -> Callable[[], Any]:
        return lambda: session.append(Draft(role="assistant", parts=(kind(**fields),)))

    return {
        "message": lambda: session.append({"role": "user", "content": [{"type": "text", "text": "x", "extra": odd}]}),
        "response": lambda: session.append({"role": "assistant", "parts": [{"kind": "data", "data": held}]}),
        "metadata of a draft": lambda: session.append(Draft(role="user", metadata=held)),
        "native of a draft": lambda: session.append(Draft(role="user", native=held)),
        "error of a draft": lambda: session.append(Draft(role="user", error=odd)),
        "data of a part": part(DataPart, data=held),
        "data of a part, bare": part(DataPart, data=odd),
        "metadata of a part": part(TextPart, text="x", metadata=held),
        "native of a part": part(TextPart, text="x", native=odd),
        "arguments": part(ToolCallPart, call_id="c", tool="t", arguments=held),
        "data of a result": part(ToolResultPart, call_id="t", data=odd),
        "content of a result": part(ToolResultPart, call_id="t", content=(DataPart(data=odd),)),
        "result": lambda: session.record_tool_result("t", held),
        "metadata of a result": lambda: session.record_tool_result("t", "x", metadata=held),
        "error of a turn": lambda: session.save_turn("q", status="failed", error=odd),
        "snapshot": lambda: session.snapshot("memory", held),
        "metadata of a session": lambda: session.update(metadata=held),
        "metadata of a new session": lambda: store.create_session("new", metadata=held),
        "setting": lambda: store.set_setting("k", odd),
    }


def methods(kind: type) -> list[str]:
    """Name the methods of a class that take arguments."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return [name for name, call in found if name[0] != "_" and name not in _LEFT_OUT and _given(call)]


def _given(call: Callable[..., Any]) -> list[inspect.Parameter]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each for each in inspect.signature(call).parameters.values() if each.kind in named and each.name != "self"]


def odd_calls(kind: type, name: str, session: str, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Give the arguments of calls, in each of which one is odd and the others fit."""
    given = _given(getattr(kind, name))
    fitting = {**_FITTING, "session": session, "path": str(folder / "copy.db")}
    fitting["id"] = "1.1" if kind is Session and name in _OF_MESSAGES else session
    needed = {each.name: fitting[each.name] for each in given if each.default is each.empty}
    if name == "turn":
        needed["take_over"] = True  # who waits for another may wait without end
    for each, odd in itertools.product(given, ODD):
        if name == "backup" and isinstance(odd, str | pathlib.Path):
            continue  # a file where the tests run
        if (name, each.name) == ("turn", "take_over"):
            continue
        yield {**needed, each.name: odd}


class TestArguments:
    """What every method does with what it can not take."""

    def test_keys_of_any_length(self, store: Store):
        session = store.session("a")
        varied = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))  # 60 KB that no index would make smaller
        for key in (varied, varied[:-1], varied[:1_000], "k" * 512):
            first = session.append(user("x"), key=key)
            again = session.append(user("x"), key=key)
            assert (again.ids, again.repeated, first.repeated) == (first.ids, True, False)
            with pytest.raises(KeyReused):
                session.append(user("y"), key=key)
        with session.turn("q", key=varied + "?"):
            pass
        with pytest.raises(AlreadySaid):
            session.turn("q", key=varied + "?")

    def test_what_json_can_not_carry_is_refused_wherever_json_is_taken(self, store: Store):
        session = store.session("a")
        session.append(asks("t"))
        before = session.refresh().info
        for odd in NOT_JSON:
            for place, act in places(session, odd).items():
                with pytest.raises(InvalidValue):
                    pytest.fail(f"{place} took {odd!r}: {act()!r}")
        assert session.refresh().info == before
        assert (store.setting("k"), store.get_session("new")) == (None, None)

    def test_adjacent_surrogates_come_back_as_they_were(self, store: Store):
        pair = "\ud83d\ude00"
        session = store.session("a", metadata={pair: [pair]})
        session.append(asks("t"))
        session.record_tool_result("t", {pair: "\ud83d\uffff\ude00"}, metadata={"x": pair})
        session.append(user(pair))
        session.append(Draft(role="user", parts=(TextPart(text=pair * 40_000),), native={pair: pair}, error=pair))
        with session.turn(pair) as turn, turn.stream() as stream:
            stream.write("\ud83d")
            stream.write("\ude00")
        store.set_setting("k", pair)
        result, said, large, asked, streamed = session.messages()[1:]
        assert result.tool_results[0].data == {pair: "\ud83d\uffff\ude00"}
        assert result.tool_results[0].metadata == {"x": pair}
        assert (said.text, asked.text, streamed.text) == (pair, pair, pair)
        assert (large.text, large.native, large.error) == (pair * 40_000, {pair: pair}, pair)
        assert (session.refresh().metadata, store.setting("k")) == ({pair: [pair]}, pair)
        assert session.history("openai")[-1]["content"] == pair
        assert store.index() == len(session.messages())
        with pytest.raises(InvalidValue, match="surrogate"):
            session.update(title=pair)
        with pytest.raises(InvalidValue):
            store.create_session(pair)

    def test_texts_that_are_more_than_texts(self, store: Store):
        session = store.session(Word.ID)
        session.update(model=Word.MODEL, status=Word.STATUS, title=Word.MODEL)  # pyright: ignore[reportArgumentType]
        found = store.get_session("cli:word")
        assert found is not None
        assert (found.id, found.model, found.status, found.title) == (
            "cli:word",
            "some-model",
            "completed",
            "some-model",
        )
        assert [each.id for each in store.list_sessions(model=Word.MODEL)] == ["cli:word"]
        session.append({"role": "user", "content": Word.MODEL}, key=Word.ID)
        assert session.append(user("some-model"), key="cli:word").repeated
        assert len(store.search(Word.MODEL, session=Word.ID, role=Word.ROLE)) == 1

    def test_settings_have_short_keys(self, store: Store):
        varied = "".join(map(chr, range(0x4E00, 0x4E00 + 513)))
        store.set_setting(varied[:512], 1)
        assert store.setting(varied[:512]) == 1
        for call in (store.setting, lambda key: store.set_setting(key, 1)):
            with pytest.raises(InvalidValue, match="at most 512 characters; this one has 513"):
                call(varied)

    def test_what_is_no_message_is_named(self, store: Store):
        for odd, told in ((-1, "-1 is"), (True, "True is"), (10**5_000, "an integer of that size is")):
            with pytest.raises(InvalidValue, match=told):
                store.session("a").message(odd)

    def tried(self, call: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Call it; what it raises is ours."""
        try:
            found = call(**arguments)
            if inspect.isgenerator(found):
                list(found)
            elif hasattr(found, "close"):
                found.close()  # a watch
        except RecollectError as error:
            if "please report it" in str(error):  # the database refused what should not have come to it
                raise AssertionError(arguments) from error

    @pytest.mark.parametrize("name", methods(Store))
    def test_a_store(self, store: Store, tmp_path: pathlib.Path, name: str):
        for number, arguments in enumerate(odd_calls(Store, name, "a", tmp_path)):
            if number % len(ODD) == 0:
                store.session("a")
            self.tried(getattr(store, name), arguments)
        store.session("whole").append(user("still here"))
        assert texts(store.session("whole")) == ["still here"]

    @pytest.mark.parametrize("name", methods(Session))
    def test_a_session(self, store: Store, tmp_path: pathlib.Path, name: str):
        session = store.session("a")
        session.append([user("x"), asks("t")])
        for arguments in odd_calls(Session, name, "a", tmp_path):
            self.tried(getattr(session, name), arguments)
        assert texts(store.session("a"))[:1] in (["x"], [])

    @pytest.mark.parametrize("name", methods(Turn))
    def test_a_turn(self, store: Store, tmp_path: pathlib.Path, name: str):
        session = store.session("a")
        turn = session.turn("q")
        for arguments in odd_calls(Turn, name, "a", tmp_path):
            if turn.info is not None:
                turn = session.turn("q")
            self.tried(getattr(turn, name), arguments)
        assert texts(session)[0] == "q"

    @pytest.mark.parametrize("name", methods(Stream))
    def test_an_answer(self, store: Store, tmp_path: pathlib.Path, name: str):
        turn = store.session("a").turn("q")
        for arguments in odd_calls(Stream, name, "a", tmp_path):
            self.tried(getattr(turn.stream(), name), arguments)
        turn.complete()
