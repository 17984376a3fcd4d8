"""Every statement of SECURITY.md names a test that exists."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED_TESTS = re.findall(r"`((?:tests|src|conformance)/[\w/]+\.py)::(\w+)`", TEXT)


def test_every_statement_of_the_trust_model_names_a_test():
    section = TEXT.partition("Each statement has a test:")[2].partition("The remaining risk")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(NAMED_TESTS) > 10


@pytest.mark.parametrize(("file", "name"), NAMED_TESTS)
def test_every_named_test_exists(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
