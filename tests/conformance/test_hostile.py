"""Hostile values in every argument of every public method: what they raise is ours, and nothing is half-written."""

from __future__ import annotations

import inspect
import itertools
import re

import pytest

import recollect
from recollect.model.session import SETTABLE
from recollect.store import Session, Store, Stream, Turn
from recollect.testing import arguments
from recollect.testing.talk import asks, texts, user


def boom(*_arguments, **_options):
    raise ZeroDivisionError("by itself")


def raising(*names):
    return type("Raising", (), dict.fromkeys(names, boom))()


def nested(kind, levels=10_000):
    value = kind()
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


Text = type("Text", (str,), {"__eq__": boom, "__hash__": str.__hash__, "__len__": boom, "__str__": boom})
Table = type("Table", (dict,), {"items": boom, "__iter__": boom, "keys": boom, "values": boom})
Number = type("Number", (int,), {"__le__": boom, "__ge__": boom, "__lt__": boom, "__index__": boom})
HOSTILE = (
    nested(list), nested(dict), 10**5000, -(10**5000), 10**400, "\ud83d\ude00", "x" * 1_000_000, float("nan"), float("inf"),
    b"x", {1}, 1j, raising("__repr__", "__str__"), raising("__eq__", "__hash__"), raising("__bool__"),
    raising("__len__", "__iter__"), raising("__getattr__"), raising("__fspath__"), raising("model_dump"),
    raising("__index__", "__int__", "__float__"), Text("x"), Table(a=1), Number(5),
    [raising("__repr__", "__eq__", "__hash__", "__bool__")], {"role": "user", "content": nested(list)},
    {"role": Text("user"), "content": 10**5000},
)  # fmt: skip
FUNCTIONS = {"progress", "summarize", "counter"}  # what these raise is their caller's
METHODS = [(kind, name) for kind in (Store, Session, Turn, Stream) for name in arguments.methods(kind)]
PARTS = (
    recollect.Draft, recollect.TextPart, recollect.ReasoningPart, recollect.ToolCallPart, recollect.ToolResultPart,
    recollect.AttachmentPart, recollect.DataPart,
)  # fmt: skip


@pytest.fixture(scope="module", params=["sync", "async"])
def store(request):
    from recollect.testing.portal import Portal

    if request.param == "sync":
        with recollect.open(":memory:") as opened:
            yield opened
    else:
        with Portal() as portal:
            opened = portal.opened(recollect.open_async(":memory:"))
            yield opened
            opened.close()


def taken(kind, name):
    """Name the arguments of a method, with the fields that it sets."""
    given = inspect.signature(getattr(kind, name)).parameters.values()
    named = [each.name for each in given if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    fields = [*SETTABLE, "parent"] if any(each.kind is each.VAR_KEYWORD for each in given) else []
    return [each for each in [*named, *fields] if each != "self" and each not in FUNCTIONS]


def tried(call, **given):
    """Call it; an error that is not ours fails the test with its traceback."""
    try:
        found = call(**given)
        if inspect.isgenerator(found):
            list(found)
        elif hasattr(found, "close") and not hasattr(found, "stream"):
            found.close()
    except recollect.RecollectError as error:
        if len(str(error)) > 3_000 or "please report it" in str(error):
            raise AssertionError from error


def ready(store, kind):
    """Give what has the methods of a kind: a session with two messages, an open turn, an open answer."""
    session = store.session("a")
    if kind in (Store, Session):
        if not session.message_count:
            session.append([user("x"), asks("t")])
        return store if kind is Store else session
    turn = session.turn("q", take_over=True)
    return turn if kind is Turn else turn.stream()


@pytest.mark.parametrize(("kind", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_a_method(store, tmp_path, kind, name):
    fitting = {**arguments._FITTING, "session": "a", "path": str(tmp_path / "copy.db"), "id": "a"}
    if kind is Session and name in arguments._OF_MESSAGES:
        fitting["id"] = "1.1"
    needed = [each.name for each in arguments._given(getattr(kind, name)) if each.default is each.empty]
    usual = {each: fitting[each] for each in needed} | ({"take_over": True} if name == "turn" else {})
    for number, (argument, hostile) in enumerate(itertools.product(taken(kind, name), HOSTILE)):
        if (argument == "path" and isinstance(hostile, str)) or (name == "turn" and argument in ("wait", "take_over")):
            continue  # a file where the tests run, or a wait without end
        new = {"id": f"{name}{number}"} if name in ("session", "create_session") and argument != "id" else {}
        tried(getattr(ready(store, kind), name), **{**usual, **new, argument: hostile})
    assert store.check().problems == ()
    store.session("whole").append(user("still here"))
    assert texts(store.session("whole"))[-1] == "still here"


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_a_value(store, kind):
    given = {"role": "user"} if kind is recollect.Draft else dict.fromkeys({"text", "call_id", "tool"}, "t")
    given = {name: value for name, value in given.items() if name in kind.__struct_fields__}
    session = store.session("values")
    for name, hostile in itertools.product(kind.__struct_fields__, HOSTILE):
        made = kind(**{**given, name: hostile})
        tried(session.append, messages=made if kind is recollect.Draft else recollect.Draft(role="user", parts=(made,)))
    assert len(session.messages()) == session.refresh().message_count


@pytest.mark.parametrize("name", ["open", "restore", "check_backup"])
def test_a_function(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    call = getattr(recollect, name)
    usual = {"path_or_url": ":memory:"} if name == "open" else {"backup": "none.db", "path": "target.db"}
    for argument, hostile in itertools.product(inspect.signature(call).parameters, HOSTILE):
        tried(call, **{**usual, argument: hostile})


def test_wait_is_checked_like_every_number(store):
    session = store.session("waits")
    for wait in (10**400, -1, float("nan"), "5"):
        with pytest.raises(recollect.InvalidValue, match=re.escape("wait is a number of seconds")):
            session.turn("q", wait=wait)
    assert session.messages() == []


def test_a_received_value_is_shown_short(store):
    for odd, told in (
        (10**5000, "an integer of that size"),
        ("y" * 5_000, "5,000 characters"),
        (nested(list), "type list"),
    ):
        with pytest.raises(recollect.RecollectError, match=told) as caught:
            store.session("a").update(title="x", expected=odd)
        assert len(str(caught.value)) < 400
