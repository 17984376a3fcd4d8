"""docs/reference/export.md documents every function, argument, record, field and replacement of secrets."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

import pytest
from docs_pages import ARROW, find_blocks, find_identifiers, find_section, read_page, run_example

from recollect import export
from recollect.export import records, redaction
from recollect.export.importer import ON_CONFLICT

PAGE = "docs/reference/export.md"
RECORDS = {str(record.__struct_config__.tag): record for record in get_args(records.AnyRecord)}


def test_the_examples_run_in_order_as_one_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "example"}
    count = sum(run_example(PAGE, block, namespace) for block in find_blocks(PAGE))
    namespace["store"].close()
    assert count == read_page(PAGE).count(ARROW) > 4


@pytest.mark.parametrize("name", ["write", "chunks", "chunks_async", "read", "read_async", "format_of"])
def test_every_function_is_documented_with_its_arguments(name):
    section = find_section(PAGE, f"export.{name}")
    documented_arguments = section.title.partition("(")[2].removesuffix(")").split(", ")
    arguments = [
        str(parameter.replace(annotation=inspect.Parameter.empty)).replace("'", '"')
        for parameter in inspect.signature(getattr(export, name)).parameters.values()
    ]
    assert [text for text in documented_arguments if text != "*"] == arguments


def test_every_public_name_is_documented():
    assert [
        name
        for name in export.__all__
        if name not in find_identifiers(read_page(PAGE)) and f"export.{name}(" not in read_page(PAGE)
    ] == []
    assert [policy for policy in ON_CONFLICT if f'"{policy}"' not in read_page(PAGE)] == []


@pytest.mark.parametrize("cls", [export.Report, export.Refused, export.BadLine])
def test_every_field_of_a_report_is_documented(cls):
    identifiers = find_identifiers(find_section(PAGE, "The report").text)
    assert set(cls.__struct_fields__) <= identifiers
    assert {name for name in vars(cls) if not name.startswith("_")} <= identifiers


def test_every_record_is_documented_with_its_fields():
    assert set(RECORDS) == records.TYPES
    for tag, record in RECORDS.items():
        assert set(record.__struct_fields__) - {"session"} <= find_identifiers(find_section(PAGE, tag).text), tag


def test_every_kind_of_masked_secret_is_documented():
    kinds = {rule.name for rule in redaction._RULES} | {"secret"}
    documented_kinds = set(re.findall(r"`([a-z\-]+)`", find_section(PAGE, "Masking secrets").text))
    assert kinds <= documented_kinds
