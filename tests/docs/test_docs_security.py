"""The statements of SECURITY.md are held by tests that exist."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`", TEXT)


def test_every_statement_of_the_trust_model_names_a_test():
    section = TEXT.partition("A test holds each statement:")[2].partition("What remains:")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(NAMED) > 10


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_it_is_there(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
