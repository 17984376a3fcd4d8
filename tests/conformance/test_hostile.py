"""Hostile values in every argument of every public method: they raise a RecollectError, and nothing is half-written."""

from __future__ import annotations

import inspect
import itertools
import re
from operator import attrgetter

import pytest

import recollect
from recollect.model.session import SETTABLE
from recollect.store import Session, Store, Stream, Turn
from recollect_conformance import arguments
from recollect_conformance.examples import texts, tool_call_message, user


def fail(*_arguments, **_options):
    raise ZeroDivisionError("raised by the value")


def raising(*names):
    return type("Raising", (), dict.fromkeys(names, fail))()


def nested(kind, levels=10_000):
    value = kind()
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


Text = type("Text", (str,), {"__eq__": fail, "__hash__": str.__hash__, "__len__": fail, "__str__": fail})
Table = type("Table", (dict,), {"items": fail, "__iter__": fail, "keys": fail, "values": fail})
Number = type("Number", (int,), {"__le__": fail, "__ge__": fail, "__lt__": fail, "__index__": fail})
HOSTILE_VALUES = (
    nested(list), nested(dict), 10**5000, -(10**5000), 10**400, "\ud83d\ude00", "x" * 1_000_000, float("nan"), float("inf"),
    b"x", {1}, 1j, raising("__repr__", "__str__"), raising("__eq__", "__hash__"), raising("__bool__"),
    raising("__len__", "__iter__"), raising("__getattr__"), raising("__fspath__"), raising("model_dump"),
    raising("__index__", "__int__", "__float__"), Text("x"), Table(a=1), Number(5),
    [raising("__repr__", "__eq__", "__hash__", "__bool__")], {"role": "user", "content": nested(list)},
    {"role": Text("user"), "content": 10**5000},
)  # fmt: skip
CALLBACKS = {"progress", "summarize", "counter"}  # exceptions of these functions reach their caller
METHODS = [(kind, name) for kind in (Store, Session, Turn, Stream) for name in arguments.methods(kind)]
PARTS = (
    recollect.Draft, recollect.TextPart, recollect.ReasoningPart, recollect.ToolCallPart, recollect.ToolResultPart,
    recollect.AttachmentPart, recollect.DataPart,
)  # fmt: skip


@pytest.fixture(scope="module", params=["sync", "asyncio", "trio"])
def store(request):
    from recollect_conformance.blocking import BlockingAdapter

    if request.param == "sync":
        with recollect.open(":memory:") as new_store:
            yield new_store
    else:
        with BlockingAdapter(request.param) as adapter:
            new_store = adapter.open(recollect.open_async(":memory:"))
            yield new_store
            new_store.close()


def argument_names(kind, name):
    """Return the names of the arguments of a method, including the fields that it sets."""
    parameters = inspect.signature(arguments.find_method(kind, name)).parameters.values()
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    fields = [*SETTABLE, "parent"] if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) else []
    return [argument for argument in [*names, *fields] if argument != "self" and argument not in CALLBACKS]


def call_with(function, **keywords):
    """Call a function. An error that is not a RecollectError fails the test with its traceback."""
    try:
        result = function(**keywords)
        if inspect.isgenerator(result):
            list(result)
        elif hasattr(result, "close") and not hasattr(result, "stream"):
            result.close()
    except recollect.RecollectError as error:
        if len(str(error)) > 3_000 or "please report it" in str(error):
            raise AssertionError from error


def create_target(store, kind):
    """Return an object of a kind: a store or session with two messages, an open turn, or an open stream."""
    session = store.session("a")
    if kind in (Store, Session):
        if not session.message_count:
            session.append([user("x"), tool_call_message("t")])
        return store if kind is Store else session
    turn = session.turn("q", take_over=True)
    return turn if kind is Turn else turn.stream()


@pytest.mark.parametrize(("kind", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_hostile_arguments_of_a_method(store, tmp_path, kind, name):
    valid_arguments = {**arguments._VALID_ARGUMENTS, "session": "a", "path": str(tmp_path / "copy.db"), "id": "a"}
    if kind is Session and name in arguments._MESSAGE_METHODS:
        valid_arguments["id"] = "1.1"
    required_names = [
        parameter.name
        for parameter in arguments._parameters(arguments.find_method(kind, name))
        if parameter.default is parameter.empty
    ]
    base_arguments = {argument: valid_arguments[argument] for argument in required_names} | (
        {"take_over": True} if name == "turn" else {}
    )
    for number, (argument, hostile) in enumerate(itertools.product(argument_names(kind, name), HOSTILE_VALUES)):
        if (argument == "path" and isinstance(hostile, str)) or (name == "turn" and argument in ("wait", "take_over")):
            continue  # it would create a file in the current folder, or wait forever
        new_id = {"id": f"{name}{number}"} if name == "session" and argument != "id" else {}
        call_with(attrgetter(name)(create_target(store, kind)), **{**base_arguments, **new_id, argument: hostile})
    assert store.maintenance.check().problems == ()
    store.session("whole").append(user("still here"))
    assert texts(store.session("whole"))[-1] == "still here"


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_hostile_fields_of_a_value(store, kind):
    fields = {"role": "user"} if kind is recollect.Draft else dict.fromkeys({"text", "call_id", "tool"}, "t")
    fields = {name: value for name, value in fields.items() if name in kind.__struct_fields__}
    session = store.session("values")
    for name, hostile in itertools.product(kind.__struct_fields__, HOSTILE_VALUES):
        try:
            value = kind(**{**fields, name: hostile})
        except recollect.InvalidValue:
            assert (kind, name) == (recollect.Draft, "created_at")  # the only field that is checked at construction
            continue
        draft = value if kind is recollect.Draft else recollect.Draft(role="user", parts=(value,))  # pyright: ignore[reportArgumentType]
        call_with(session.append, messages=draft)
    assert len(session.messages()) == session.refresh().message_count


@pytest.mark.parametrize("name", ["open", "restore", "check_backup"])
def test_hostile_arguments_of_a_function(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    call = getattr(recollect, name)
    base_arguments = {"path_or_url": ":memory:"} if name == "open" else {"backup": "none.db", "path": "target.db"}
    for argument, hostile in itertools.product(inspect.signature(call).parameters, HOSTILE_VALUES):
        call_with(call, **{**base_arguments, argument: hostile})


def test_invalid_values_of_wait(store):
    session = store.session("waits")
    for wait in (10**400, -1, float("nan"), "5"):
        with pytest.raises(recollect.InvalidValue, match=re.escape("wait must be a non-negative number of seconds")):
            session.turn("q", wait=wait)
    assert session.messages() == []


def test_a_received_value_is_shortened_in_the_error(store):
    for value, text in (
        (10**5000, "an integer of more than 120 digits"),
        ("y" * 5_000, "5,000 characters"),
        (nested(list), "type list"),
    ):
        with pytest.raises(recollect.RecollectError, match=text) as error:
            store.session("a").update(title="x", expected=value)
        assert len(str(error.value)) < 400
