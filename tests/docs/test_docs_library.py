"""docs/reference/library.md documents every public name, argument, type, field and error."""

from __future__ import annotations

import inspect
import re

import pytest
from docs_pages import find_identifiers, find_section, read_page, split_sections

import recollect
from recollect import errors
from recollect.history.render import History
from recollect.model.message import BasePart
from recollect.model.search import Page
from recollect.model.session import SETTABLE, SessionField
from recollect.model.session import SessionInfo as SessionValue
from recollect.model.turn import TurnInfo as TurnValue
from recollect.storage.appends import Appended

PAGE = "docs/reference/library.md"
PAIRS = {
    "store": (recollect.Store, recollect.AsyncStore),
    "session": (recollect.Session, recollect.AsyncSession),
    "turn": (recollect.Turn, recollect.AsyncTurn),
    "stream": (recollect.Stream, recollect.AsyncStream),
    "records": (recollect.Records, recollect.AsyncRecords),
}
HANDLES = [(noun, cls) for noun, pair in PAIRS.items() for cls in pair]
PARTS = [
    recollect.TextPart, recollect.ReasoningPart, recollect.ToolCallPart, recollect.ToolResultPart,
    recollect.AttachmentPart, recollect.DataPart,
]  # fmt: skip
VALUES = {
    "Message": recollect.Message, "Draft": recollect.Draft, "Branch": recollect.Branch, "ToolCall": recollect.ToolCall,
    "Hit": recollect.Hit, "Record": recollect.Record,
    "PruneReport": recollect.PruneReport, "PrunedSession": recollect.PrunedSession, "Findings": recollect.Findings,
    "Finding": recollect.Finding, "Space": recollect.Space, "OptimizeReport": recollect.OptimizeReport,
    "Backup": recollect.Backup,
    "Stats": recollect.Stats, "Tally": recollect.Tally, "ToolStats": recollect.ToolStats, "Turn value": TurnValue, "Appended": Appended, **{part.__name__: part for part in PARTS},
}  # fmt: skip
CONVERSIONS = {"to_dict", "from_dict", "to_json", "from_json"}


def list_public_names(cls):
    """Return the public names of a class, without the fields of a session, which are in a table."""
    return sorted(
        name
        for name, value in inspect.getmembers(cls)
        if not name.startswith("_") and not isinstance(value, SessionField)
    )


def list_instance_attributes(cls):
    """Return the public attributes that __init__ sets."""
    return set(re.findall(r"^\s+self\.([a-z]\w*)\b.* = ", inspect.getsource(cls.__init__), re.MULTILINE))


def find_member_section(noun, name):
    return find_section(PAGE, f"{noun}.{name}")


METHODS = [
    pytest.param(noun, name, inspect.getattr_static(cls, name), id=f"{cls.__name__}.{name}")
    for noun, cls in HANDLES
    for name in list_public_names(cls)
    if (noun, name) != ("session", "id")  # in the table of attributes
]


@pytest.mark.parametrize(("noun", "name", "value"), METHODS)
def test_every_method_is_documented_with_its_arguments_and_defaults(noun, name, value):
    section = find_member_section(noun, name)
    if isinstance(value, property):
        return
    documented_arguments = section.title.partition("(")[2].removesuffix(")").split(", ")
    parameters = [item for item in inspect.signature(value).parameters.values() if item.name != "self"]
    assert [text for text in documented_arguments if text not in ("*", "")] == [
        format_parameter(item) for item in parameters
    ]
    assert [item.name for item in parameters if item.name not in find_identifiers(section.text)] == []


def format_parameter(parameter):
    """Return a parameter as the section titles write it, such as `wait=0.0` or `**fields`."""
    text = str(parameter.replace(annotation=inspect.Parameter.empty))
    return text.replace("'", '"')


DOCUMENTED_TYPES = {  # type aliases of the signatures that the page spells out
    "storage.search.FilterValues": "str | Sequence[str]",
    "storage.listing.Order": "str",
    "CheckProgress": "Callable[[int, int], object]",
    "Counter | str": "str | Callable[[Message], int]",
    "Summarize": "Callable[[list[Message]], str]",
    "StoreLocation": "str | os.PathLike[str]",
    **dict.fromkeys(("EndStatus", "ResultStatus", "SnapshotKind", "ChunkKind", "Period", "Relation"), "str"),
}
FUNCTIONS = [
    *((f"recollect.{name}", getattr(recollect, name)) for name in ("open", "copy", "restore")),
    ("recollect.formats.parse", recollect.formats.parse),
    ("recollect.formats.render", recollect.formats.render),
    *(
        (f"{noun}.{name}", value)
        for noun, (cls, _) in PAIRS.items()
        for name in list_public_names(cls)
        if inspect.isfunction(value := inspect.getattr_static(cls, name))
    ),
]


def format_type(annotation):
    for alias, text in DOCUMENTED_TYPES.items():
        annotation = annotation.replace(alias, text)
    return annotation


def find_wrong_types(text, types):
    """Return the listed arguments of a section whose type is missing or is not the one of the signature."""
    items = re.findall(r"^- ((?:`\w+`(?:, )?)+)(?: \(`([^`]+)`\))?:", text, re.MULTILINE)
    arguments = [(name, type_) for names, type_ in items for name in re.findall(r"`(\w+)`", names)]
    return [name for name, type_ in arguments if name != "fields" and type_ != types.get(name)]


@pytest.mark.parametrize(("title", "function"), FUNCTIONS, ids=[title for title, _ in FUNCTIONS])
def test_every_listed_argument_has_the_type_of_the_signature(title, function):
    types = {item.name: format_type(str(item.annotation)) for item in inspect.signature(function).parameters.values()}
    assert find_wrong_types(find_section(PAGE, title).text, types) == []


def test_a_missing_or_wrong_type_is_reported():
    text = "- `a` (`int`): one.\n- `b`, `c` (`str`): two.\n- `d`: three.\n"
    assert find_wrong_types(text, {"a": "int", "b": "str", "c": "int", "d": "bool"}) == ["c", "d"]


@pytest.mark.parametrize(("noun", "cls"), HANDLES)
def test_every_instance_attribute_is_documented(noun, cls):
    for name in list_instance_attributes(cls):
        assert find_member_section(noun, name)


@pytest.mark.parametrize("noun", PAIRS)
def test_the_async_class_has_the_same_names_and_arguments(noun):
    sync_class, async_class = PAIRS[noun]
    sync_names = set(list_public_names(sync_class)) | list_instance_attributes(sync_class)
    async_names = set(list_public_names(async_class)) | list_instance_attributes(async_class)
    assert async_names <= sync_names | {"handle"}
    for name in list_public_names(sync_class):
        method, async_method = inspect.getattr_static(sync_class, name), inspect.getattr_static(async_class, name)
        if inspect.isfunction(method):
            assert list(inspect.signature(method).parameters) == list(inspect.signature(async_method).parameters)


@pytest.mark.parametrize("name", ["open", "open_async", "copy", "restore"])
def test_every_function_is_documented_with_its_arguments(name):
    section = find_section(PAGE, f"recollect.{name}")
    for argument, parameter in inspect.signature(getattr(recollect, name)).parameters.items():
        assert argument in section.title
        assert name == "open_async" or argument in find_identifiers(section.text), argument
        assert parameter.default is parameter.empty or f"{argument}=" in section.title


@pytest.mark.parametrize("name", ["parse", "render"])
def test_the_functions_of_formats_are_documented_with_their_arguments(name):
    section = find_section(PAGE, f"recollect.formats.{name}")
    parameters = inspect.signature(getattr(recollect.formats, name)).parameters.values()
    assert section.title == f"recollect.formats.{name}({', '.join(map(format_parameter, parameters))})"


def test_every_public_name_is_documented():
    titles = {section.title for section in split_sections(PAGE)}
    functions = {
        title.removeprefix("recollect.").partition("(")[0] for title in titles if title.startswith("recollect.")
    }
    documented_names = find_identifiers(read_page(PAGE)) | titles | functions
    assert [name for name in recollect.__all__ if name not in documented_names] == []


def test_every_field_of_a_session_is_documented():
    documented_names = find_identifiers(find_section(PAGE, "Session").text)
    assert [name for name in SessionValue.__struct_fields__ if name not in documented_names] == []
    attributes = {name for name, value in inspect.getmembers(recollect.Session) if isinstance(value, SessionField)}
    assert attributes | {"id"} == set(SessionValue.__struct_fields__)


def test_every_settable_field_is_documented_under_update():
    documented_names = find_identifiers(find_member_section("session", "update").text)
    assert [name for name in SETTABLE if name not in documented_names] == []


@pytest.mark.parametrize("title", VALUES)
def test_every_value_is_documented_with_its_fields_and_properties(title):
    cls, documented_names = VALUES[title], find_identifiers(find_section(PAGE, title).text)
    inherited_fields = set(BasePart.__struct_fields__) if issubclass(cls, BasePart) else set()
    fields = set(cls.__struct_fields__) | {name for name in list_public_names(cls) if name not in CONVERSIONS}
    assert fields - inherited_fields - documented_names == set()


def test_the_common_members_of_values_parts_and_pages_are_documented():
    assert find_identifiers(find_section(PAGE, "Values").text) >= CONVERSIONS
    assert set(BasePart.__struct_fields__) <= find_identifiers(find_section(PAGE, "Parts").text)
    assert "next" in find_identifiers(find_section(PAGE, "Page").text)
    assert hasattr(Page(), "next")
    assert "repairs" in find_identifiers(find_section(PAGE, "History").text)
    assert hasattr(History(), "repairs")


def test_every_error_is_documented_and_the_tree_equals_the_docstring():
    text = find_section(PAGE, "Errors").text
    classes = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, errors.RecollectError)]
    for cls in classes[1:]:
        assert f"| `{cls.__name__}` |" in text
    tree = [line for line in (errors.__doc__ or "").splitlines() if "─" in line]
    assert len(tree) == len(classes) - 1
    assert [line for line in text.splitlines() if "─" in line] == tree


def test_every_format_is_documented():
    from recollect.formats import FORMATS

    text = find_section(PAGE, "Formats").text
    assert [name for name in FORMATS if f'| `"{name}"` |' not in text] == []
