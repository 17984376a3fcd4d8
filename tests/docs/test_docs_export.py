"""docs/export.md is the contract of the files: every function, argument, record, field and mark is in it."""

from __future__ import annotations

import inspect
import re

import pytest
from docs_pages import ARROW, blocks, names, read, run, section

from recollect import export
from recollect.export import records, redaction
from recollect.export.intake import ON_CONFLICT

PAGE = "docs/export.md"
RECORDS = {str(kind.__struct_config__.tag): kind for kind in records.Record.__subclasses__()}


def test_the_examples_run_and_give_what_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "example"}
    compared = sum(run(PAGE, block, space) for block in blocks(PAGE))
    space["store"].close()
    assert compared == read(PAGE).count(ARROW) > 4


@pytest.mark.parametrize("name", ["write", "chunks", "chunks_async", "read", "read_async", "format_of"])
def test_a_function_has_a_section_with_its_arguments(name):
    found = section(PAGE, f"export.{name}")
    shown = found.title.partition("(")[2].removesuffix(")").split(", ")
    given = [
        str(argument.replace(annotation=inspect.Parameter.empty)).replace("'", '"')
        for argument in inspect.signature(getattr(export, name)).parameters.values()
    ]
    assert [text for text in shown if text != "*"] == given


def test_every_public_name_is_mentioned():
    assert [
        name for name in export.__all__ if name not in names(read(PAGE)) and f"export.{name}(" not in read(PAGE)
    ] == []
    assert [way for way in ON_CONFLICT if f'"{way}"' not in read(PAGE)] == []


@pytest.mark.parametrize("kind", [export.Report, export.Refused, export.BadLine])
def test_every_field_of_a_report_is_in_its_table(kind):
    known = names(section(PAGE, "The report").text)
    assert set(kind.__struct_fields__) <= known
    assert {name for name in vars(kind) if not name.startswith("_")} <= known


def test_every_record_has_a_section_with_every_field():
    assert set(RECORDS) == records.TYPES
    for tag, kind in RECORDS.items():
        assert set(kind.__struct_fields__) - {"session"} <= names(section(PAGE, tag).text), tag


def test_every_mark_is_listed():
    marks = {rule.name for rule in redaction._RULES} | {"secret"}
    listed = set(re.findall(r"`([a-z\-]+)`", section(PAGE, "Masking secrets").text))
    assert marks <= listed
