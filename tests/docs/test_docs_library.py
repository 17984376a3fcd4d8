"""docs/library.md names everything that a program can call, pass, get back or catch."""

from __future__ import annotations

import inspect
import re

import pytest
from docs_pages import names, read, section, sections

import recollect
from recollect import errors
from recollect.context.history import History
from recollect.model.fields import Field
from recollect.model.page import Page
from recollect.model.part import Envelope
from recollect.model.session import SETTABLE
from recollect.model.session import Session as SessionValue
from recollect.model.turn import Turn as TurnValue
from recollect.ops.appends import Appended

PAGE = "docs/library.md"
PAIRS = {
    "store": (recollect.Store, recollect.AsyncStore),
    "session": (recollect.Session, recollect.AsyncSession),
    "turn": (recollect.Turn, recollect.AsyncTurn),
    "stream": (recollect.Stream, recollect.AsyncStream),
}
HANDLES = [(noun, kind) for noun, pair in PAIRS.items() for kind in pair]
PARTS = [
    recollect.TextPart, recollect.ReasoningPart, recollect.ToolCallPart, recollect.ToolResultPart,
    recollect.AttachmentPart, recollect.DataPart,
]  # fmt: skip
VALUES = {
    "Message": recollect.Message, "Draft": recollect.Draft, "Branch": recollect.Branch, "ToolCall": recollect.ToolCall,
    "Hit": recollect.Hit,
    "PruneReport": recollect.PruneReport, "Pruned": recollect.Pruned, "Findings": recollect.Findings,
    "Finding": recollect.Finding, "Space": recollect.Space, "Optimized": recollect.Optimized,
    "Backup": recollect.Backup,
    "Stats": recollect.Stats, "Tally": recollect.Tally, "ToolStats": recollect.ToolStats, "Turn value": TurnValue, "Appended": Appended, **{kind.__name__: kind for kind in PARTS},
}  # fmt: skip
SHARED = {"to_dict", "from_dict", "to_json", "from_json"}


def public(kind):
    """Name what a class offers, without the fields of a session, which have a table of their own."""
    return sorted(
        name for name, value in inspect.getmembers(kind) if not name.startswith("_") and not isinstance(value, Field)
    )


def attributes(kind):
    """Name what an object of a class holds besides: what __init__ gives it under a public name."""
    return set(re.findall(r"^\s+self\.([a-z]\w*)\b.* = ", inspect.getsource(kind.__init__), re.MULTILINE))


def told(noun, name):
    return section(PAGE, f"{noun}.{name}")


METHODS = [
    pytest.param(noun, name, inspect.getattr_static(kind, name), id=f"{kind.__name__}.{name}")
    for noun, kind in HANDLES
    for name in public(kind)
    if (noun, name) != ("session", "id")  # in the table of attributes
]


@pytest.mark.parametrize(("noun", "name", "value"), METHODS)
def test_a_method_has_a_section_that_names_its_arguments_and_their_defaults(noun, name, value):
    found = told(noun, name)
    if isinstance(value, property):
        return
    shown = found.title.partition("(")[2].removesuffix(")").split(", ")
    given = [argument for argument in inspect.signature(value).parameters.values() if argument.name != "self"]
    assert [text for text in shown if text not in ("*", "")] == [written(argument) for argument in given]
    assert [argument.name for argument in given if argument.name not in names(found.text)] == []


def written(argument):
    """Write an argument as the titles do: wait=0.0, **fields."""
    text = str(argument.replace(annotation=inspect.Parameter.empty))
    return text.replace("'", '"')


@pytest.mark.parametrize(("noun", "kind"), HANDLES)
def test_what_a_handle_holds_has_a_section(noun, kind):
    for name in attributes(kind):
        assert told(noun, name)


@pytest.mark.parametrize("noun", PAIRS)
def test_the_async_half_has_the_same_names_and_arguments(noun):
    sync, awaited = PAIRS[noun]
    known = set(public(sync)) | attributes(sync)
    assert set(public(awaited)) | attributes(awaited) <= known | {"flow"}
    for name in public(sync):
        ours, theirs = inspect.getattr_static(sync, name), inspect.getattr_static(awaited, name)
        if inspect.isfunction(ours):
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


@pytest.mark.parametrize("name", ["open", "open_async", "restore"])
def test_opening_is_described_with_its_arguments(name):
    found = section(PAGE, f"recollect.{name}")
    for argument, parameter in inspect.signature(getattr(recollect, name)).parameters.items():
        assert argument in found.title
        assert name == "open_async" or argument in names(found.text), argument
        assert parameter.default is parameter.empty or f"{argument}=" in found.title


def test_every_public_name_is_mentioned():
    known = (
        names(read(PAGE)) | {found.title for found in sections(PAGE)} | {"open", "open_async", "restore"}
    )  # those have sections of their own
    missing = [name for name in recollect.__all__ if name not in known]
    assert missing == []


def test_every_field_of_a_session_is_in_the_table_of_attributes():
    known = names(section(PAGE, "Session").text)
    assert [name for name in SessionValue.__struct_fields__ if name not in known] == []
    handle = {name for name, value in inspect.getmembers(recollect.Session) if isinstance(value, Field)}
    assert handle | {"id"} == set(SessionValue.__struct_fields__)


def test_every_field_that_can_be_set_is_named_by_update():
    known = names(told("session", "update").text)
    assert [name for name in SETTABLE if name not in known] == []


@pytest.mark.parametrize("title", VALUES)
def test_a_value_has_a_section_that_names_its_fields_and_properties(title):
    kind, known = VALUES[title], names(section(PAGE, title).text)
    common = set(Envelope.__struct_fields__) if issubclass(kind, Envelope) else set()
    fields = set(kind.__struct_fields__) | {name for name in public(kind) if name not in SHARED}
    assert fields - common - known == set()


def test_what_all_values_and_all_parts_share_is_described():
    assert names(section(PAGE, "Values").text) >= SHARED
    assert set(Envelope.__struct_fields__) <= names(section(PAGE, "Parts").text)
    assert "next" in names(section(PAGE, "Page").text)
    assert hasattr(Page(), "next")
    assert "repairs" in names(section(PAGE, "History").text)
    assert hasattr(History(), "repairs")


def test_every_error_is_in_the_table_and_in_the_tree_as_it_is_drawn_in_the_module():
    found = section(PAGE, "Errors").text
    kinds = [
        kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.RecollectError)
    ]
    for kind in kinds[1:]:
        assert f"| `{kind.__name__}` |" in found
    drawn = [line for line in (errors.__doc__ or "").splitlines() if "─" in line]
    assert len(drawn) == len(kinds) - 1
    assert [line for line in found.splitlines() if "─" in line] == drawn


def test_every_format_is_in_the_table():
    from recollect.formats import FORMATS

    found = section(PAGE, "Formats").text
    assert [name for name in FORMATS if f'| `"{name}"` |' not in found] == []
