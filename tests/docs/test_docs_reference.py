"""docs/reference/api is generated, and documents every public name, argument and field."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re
import sys

import msgspec
import pytest
from docs_pages import find_identifiers, find_section, read_page, split_sections

import recollect
from public_methods import GROUPS
from recollect import types
from recollect.model.message import BasePart
from recollect.model.session import SETTABLE, SessionField

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = "docs/reference/api"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / FOLDER).glob("*.md"))
MODULES = ("recollect", "recollect.errors", "recollect.types", "recollect.formats")
PAIRS = {
    "store": (recollect.Store, recollect.AsyncStore),
    "session": (recollect.Session, recollect.AsyncSession),
    "turn": (recollect.Turn, recollect.AsyncTurn),
    "stream": (types.Stream, types.AsyncStream),
    "records": (types.Records, types.AsyncRecords),
    "watch": (types.Watch, types.AsyncWatch),
    **{
        f"{owner.__name__.lower()}.{noun}": (cls, getattr(types, f"Async{cls.__name__}"))
        for owner, groups in GROUPS.items()
        for noun, cls in groups.items()
    },
}
VALUES = [
    section.title
    for page in ("values", "reports")
    for section in split_sections(f"{FOLDER}/{page}.md")
    if section.level == 2
]
CONVERSIONS = {"to_dict", "from_dict", "to_json", "from_json"}


@pytest.fixture(scope="module")
def generator():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("reference")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def find_member(title):
    """Return the section of a method, attribute or function, without its fenced code."""
    page = next(page for page in PAGES if any(section.title == title for section in split_sections(page)))
    section = find_section(page, title)
    return section._replace(text=re.sub(r"^```.*?^```$", "", section.text, flags=re.MULTILINE | re.DOTALL))


def list_public_names(cls):
    """Return the public names of a class, without the fields of a session, which SessionInfo documents."""
    names = {
        name
        for name, value in inspect.getmembers(cls)
        if not name.startswith("_") and not isinstance(value, SessionField)
    }
    attributes = re.findall(r"^\s+self\.([a-z]\w*)\b.* = ", inspect.getsource(cls.__init__), re.MULTILINE)
    return names | set(attributes)


def test_every_page_is_what_the_generator_writes(generator):
    assert [path.removeprefix(f"{FOLDER}/") for path in PAGES] == sorted(
        ["README.md", *(page.file for page in generator.PAGES)]
    )
    assert read_page(f"{FOLDER}/README.md") == generator.index_text()
    for page in generator.PAGES:
        assert read_page(f"{FOLDER}/{page.file}") == generator.page_text(page)


def test_a_page_that_is_out_of_date_is_reported(generator, tmp_path, monkeypatch):
    (tmp_path / FOLDER).mkdir(parents=True)
    for page in PAGES:
        (tmp_path / page).write_text(read_page(page), encoding="utf-8")
    generator.targets()  # reads the docs before ROOT changes
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    generator.main()
    (tmp_path / FOLDER / "store.md").write_text("# Store\n")
    (tmp_path / FOLDER / "old.md").write_text("# Old\n")
    with pytest.raises(SystemExit, match=r"Out of date in docs/reference/api: store\.md, old\.md\. Run"):
        generator.main()
    monkeypatch.setattr(sys, "argv", ["reference.py"])
    generator.main()
    assert (tmp_path / FOLDER / "store.md").read_text(encoding="utf-8") == read_page(f"{FOLDER}/store.md")
    assert not (tmp_path / FOLDER / "old.md").exists()


def test_an_unknown_reference_is_refused(generator):
    assert generator.link_definitions("See [Page] and [`x`] and `[code]`.", "values.md") == "[Page]: #page\n"
    assert generator.link_definitions("See [the list][store.list_sessions()].", "values.md") == (
        "[store.list_sessions()]: store.md#storelist_sessions\n"
    )
    with pytest.raises(SystemExit, match=r"values\.md: \[Pages\] names no public name"):
        generator.link_definitions("See [Pages].", "values.md")


def test_a_signature_has_types_and_defaults_and_only_public_names(generator):
    def method(self, id, *, kind="x", **fields):
        pass

    method.__annotations__ = {
        "id": "storage.paths.MessageId", "kind": "str", "fields": "Any", "return": "builtins.list[Page[Hit]]",
    }  # fmt: skip
    text = '```py\nf(id: MessageId, *, kind: str = "x", **fields: Any) -> list[Page[Hit]]\n```\n\n'
    assert generator.format_signature("f", method) == text
    with pytest.raises(SystemExit, match=r"type Scope of .* is not public"):
        generator.format_annotation("Scope | None", recollect.Store)


@pytest.mark.parametrize(
    ("noun", "name"), [(noun, name) for noun, (cls, _) in PAIRS.items() for name in sorted(list_public_names(cls))]
)
def test_every_member_is_documented_with_its_arguments(noun, name):
    if (noun, name) == ("session", "id"):  # a field
        return
    value = inspect.getattr_static(PAIRS[noun][0], name, None)
    if not inspect.isfunction(value):
        assert find_member(f"{noun}.{name}").text.strip()
        return
    parameters = [item for item in inspect.signature(value).parameters if item != "self"]
    documented_names = find_identifiers(find_member(f"{noun}.{name}()").text)
    assert [item for item in parameters if item not in documented_names] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("recollect", name) for name in ("open", "open_async", "copy", "restore", "check_backup")),
        *(("recollect.formats", name) for name in ("parse", "render", "response")),
    ],
)
def test_every_function_is_documented_with_its_arguments(module, name):
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    documented_names = find_identifiers(find_member(f"{module}.{name}()").text)
    assert [item for item in parameters if item not in documented_names] == []


@pytest.mark.parametrize("noun", PAIRS)
def test_the_async_class_has_the_same_names_and_arguments(noun):
    sync_class, async_class = PAIRS[noun]
    assert list_public_names(async_class) == list_public_names(sync_class)
    for name in list_public_names(sync_class):
        method, async_method = (inspect.getattr_static(cls, name, None) for cls in (sync_class, async_class))
        if inspect.isfunction(method):
            assert list(inspect.signature(method).parameters) == list(inspect.signature(async_method).parameters)


def test_every_public_name_is_documented_and_can_be_imported_from_the_module_that_the_page_names():
    text = "\n".join(read_page(page) for page in PAGES)
    imports = re.findall(r"^`from (recollect[.\w]*) import ([\w, ]+)`", text, re.MULTILINE)
    names = {(module, name) for module, line in imports for name in line.split(", ")}
    names |= set(re.findall(r"^## (recollect(?:\.formats)?)\.(\w+)\(\)$", text, re.MULTILINE))
    assert [name for name in names if name[1] not in importlib.import_module(name[0]).__all__] == []
    documented_names = {name for _, name in names}
    for module in MODULES:
        content = importlib.import_module(module)
        assert [
            name
            for name in content.__all__
            if name not in documented_names and not inspect.ismodule(getattr(content, name))
        ] == []


def test_every_field_of_a_session_is_an_attribute_and_is_documented():
    attributes = {name for name, value in inspect.getmembers(recollect.Session) if isinstance(value, SessionField)}
    assert attributes | {"id"} == set(types.SessionInfo.__struct_encode_fields__)
    assert "SessionInfo" in VALUES


def test_every_settable_field_is_documented_under_update():
    documented_names = find_identifiers(find_member("session.update()").text)
    assert [name for name in SETTABLE if name not in documented_names] == []


@pytest.mark.parametrize("title", VALUES)
def test_every_value_is_documented_with_its_fields_and_properties(title):
    cls = getattr(types if hasattr(types, title) else recollect, title)
    section = find_section(next(page for page in PAGES if title in page_titles(page)), title)
    fields = getattr(cls, "__struct_fields__", getattr(cls, "_fields", ()))
    inherited_names = {
        name for base in (BasePart, list, tuple, msgspec.Struct) if issubclass(cls, base) for name in dir(base)
    }
    if title == "SummaryMessage":  # a Message without fields of its own
        inherited_names |= set(dir(recollect.Message))
    names = {*fields, *(name for name in dir(cls) if not name.startswith("_"))} - CONVERSIONS - inherited_names
    # The integers of times, such as created_at_ms, are documented once for all values. Methods have a signature.
    documented_names = set(re.findall(r"\w+", section.text))
    assert [name for name in names if not name.endswith("_at_ms") and name not in documented_names] == []


def page_titles(page):
    return [section.title for section in split_sections(page)]


def test_the_common_members_of_values_parts_and_pages_are_documented():
    assert find_identifiers(find_section("docs/reference/library.md", "Values and times").text) >= CONVERSIONS
    part = find_section(f"{FOLDER}/types.md", "Part")
    assert set(BasePart.__struct_fields__) <= find_identifiers(part.text)
    assert {"next", "index_error"} <= find_identifiers(find_section(f"{FOLDER}/values.md", "Page").text)
    assert "repairs" in find_identifiers(find_section(f"{FOLDER}/values.md", "History").text)
