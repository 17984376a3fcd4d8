"""compare_trees.py accepts moves, merges, renames and new docstrings, and refuses everything else."""

from __future__ import annotations

import ast
import pathlib
import random
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import compare_trees  # noqa: E402
import tree_tokens  # noqa: E402

FIGURE = '''
"""Figures."""
import os
from pack import errors

_LIMIT = 10  # pieces

def whole(value, least=0):
    """Say whether it is whole."""
    found = value - least
    for each in range(found):
        if each > _LIMIT and found < 5:
            raise errors.Wrong(f"{value} is a figure; got {each}")
    return os.path.join(str(found), "x")
'''
ERRORS = '''
class Wrong(Exception):
    """Wrong."""

class Keeper:
    __slots__ = ("kept",)

    def __init__(self, kept):
        self.kept = kept

    def told(self, loud):
        return getattr(self, "kept") if loud else None
'''
USER = """
from pack import figure
from pack.errors import Keeper

def use(value):
    keeper = Keeper(value)
    first, second = figure.whole(value, least=2), keeper.kept
    return first, second, keeper.told(loud=True)
"""
OLD = {"__init__": "", "figure": FIGURE, "errors": ERRORS, "user": USER}
MERGED = {
    "__init__": "",
    "errors": ERRORS,
    "validation": FIGURE.replace('"""Figures."""', '"""Checks."""').replace("import os", "from os import path")
    .replace("os.path.join", "path.join") + USER.replace("from pack import figure\n", "").replace("figure.whole", "whole"),
}  # fmt: skip


def side(modules: dict[str, str]) -> tree_tokens.Side:
    return tree_tokens.Side(
        {"pack" if name == "__init__" else f"pack.{name}": (text, name == "__init__") for name, text in modules.items()}
    )


def compare(new: dict[str, str], old: dict[str, str] = OLD, maps: compare_trees.Maps | None = None):
    return compare_trees.compare(side(old), side(new), maps)


def changed(**replaced: tuple[str, str]) -> dict[str, str]:
    """Replace a piece of some modules, which must be there."""
    modules = dict(OLD)
    for name, (before, after) in replaced.items():
        assert before in modules[name]
        modules[name] = modules[name].replace(before, after)
    return modules


def test_the_same_tree_is_equal():
    report = compare(OLD)
    assert report.ok()
    assert not any(each.has_renames for each in report.results)


def test_a_move_to_another_module():
    new = {name: text for name, text in OLD.items() if name != "figure"}
    new["numbers"] = FIGURE
    new["user"] = USER.replace("import figure", "import numbers").replace("figure.whole", "numbers.whole")
    assert compare(new).ok()


def test_a_merge_of_modules():
    report = compare(MERGED)
    assert report.ok()
    assert report.globals == {
        "pack.figure.whole": "pack.validation.whole", "pack.figure._LIMIT": "pack.validation._LIMIT", "pack.user.use": "pack.validation.use",
    }  # fmt: skip


def test_equal_definitions_of_merged_modules_become_one():
    log = 'import logging\n_log = logging.getLogger("pack")\n'
    old = {"__init__": "", "a": log + "def a():\n    _log.info('a')\n", "b": log + "def b():\n    _log.info('b')\n"}
    new = {"__init__": "", "c": log + "def a():\n    _log.info('a')\ndef b():\n    _log.info('b')\n"}
    report = compare(new, old)
    assert report.ok()
    assert len(report.merges) == 1


def test_renames_of_a_local_a_global_a_parameter_and_an_attribute():
    new = dict(OLD)
    new["figure"] = FIGURE.replace("found", "count").replace("whole", "check").replace("_LIMIT", "_MAXIMUM")
    new["figure"] = new["figure"].replace("least", "minimum")
    new["errors"] = ERRORS.replace("kept", "value").replace("told", "read").replace("Wrong", "InvalidValue")
    new["figure"] = new["figure"].replace("Wrong", "InvalidValue")
    new["user"] = USER.replace("figure.whole", "figure.check").replace("least", "minimum").replace("kept", "value")
    new["user"] = new["user"].replace("told", "read")
    report = compare(new)
    assert report.ok(), [each.reason for each in report.different()]
    assert report.globals["pack.figure.whole"] == "pack.figure.check"
    assert report.uses["attribute"]["told"] == {"read": 2}
    assert report.uses["keyword"]["least"] == {"minimum": 1}


def test_a_map_names_what_became_what(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(
        '[modules]\n"pack.validation" = ["pack.figure"]\n[renames]\n"pack.figure.whole" = "check"\n'
        '[attributes]\n"pack.errors.Keeper.kept" = "value"\n'
    )
    new = {name: text for name, text in OLD.items() if name != "figure"}
    new["validation"] = FIGURE.replace("whole", "check")
    new["user"] = USER.replace("import figure", "import validation").replace("figure.whole", "validation.check")
    report = compare(new, maps=compare_trees.Maps.read([str(path)]))
    assert report.ok()
    assert report.globals["pack.figure.whole"] == "pack.validation.check"


def test_docstrings_comments_and_imports_do_not_count():
    new = changed(figure=('"""Say whether it is whole."""', '"""Check an integer."""\n    # Reason.'))
    assert compare(new).ok()
    report = compare(changed(figure=("import os\n", "import os\nimport json\n")))
    assert report.ok()
    assert report.notes == ["imported libraries: + json"]


def test_a_quoted_type_and_a_dotted_name_in_a_string_follow_the_rename():
    old = {
        "__init__": "",
        "a": 'from typing import cast\nclass Told: pass\ndef f(x): return cast("Told", x), "pack.a:Told"\n',
    }
    new = {"__init__": "", "b": old["a"].replace("Told", "Reply").replace("pack.a", "pack.b")}
    assert compare(new, old).ok()


def test_texts_need_the_option():
    report = compare(changed(figure=(" is a figure; got ", " must be small, got ")))
    assert not report.ok()
    assert report.ok(texts=True)
    assert [text for each in report.results for text in each.texts] == [(" is a figure; got ", " must be small, got ")]


def test_other_values_in_a_text_need_another_option():
    report = compare(changed(figure=('f"{value} is a figure; got {each}"', 'f"value must be small, got {each}"')))
    assert not report.ok(texts=True)
    assert report.ok(texts=True, text_values=True)
    assert not compare(changed(figure=("{each}", "{each:02}"))).ok(texts=True)


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("figure", "value - least", "value + least"),
        ("figure", "each > _LIMIT", "each >= _LIMIT"),
        ("figure", "_LIMIT = 10", "_LIMIT = 11"),
        ("figure", "found < 5", "found < 6"),
        ("figure", "value - least", "least - value"),
        ("figure", "found < 5", "each < 5"),
        ("figure", "least=0", "least=1"),
        ("figure", "    for each in range(found):\n", "    for each in range(value):\n"),
        ("figure", "os.path.join", "os.path.split"),
        ("figure", "errors.Wrong", "errors.Keeper"),
        ("figure", "errors.Wrong", "ValueError"),
        ("user", "    keeper = Keeper(value)\n", "    keeper = Keeper(value)\n    keeper = Keeper(value)\n"),
        ("user", "return first, second", "return second, first"),
        ("user", "keeper.kept", "keeper.value"),
        ("user", "loud=True", "quiet=True"),
        ("user", "loud=True", "loud=False"),
        ("user", "figure.whole(value", "figure._LIMIT(value"),
        ("errors", "        self.kept = kept\n", "        pass\n"),
        ("errors", '"kept")', '"told")'),
        ("errors", "class Wrong(Exception)", "class Wrong(ValueError)"),
        ("errors", "    def told", "    @staticmethod\n    def told"),
        ("errors", "    def told", "    async def told"),
    ],
)
def test_a_change_of_behavior_is_refused(module, before, after):
    report = compare(changed(**{module: (before, after)}))
    assert not report.ok(texts=True, text_values=True)
    assert [each.pair.old.module for each in report.different()][:1] == [f"pack.{module}"]


def test_a_local_that_hides_a_merged_function_is_refused():
    new = dict(MERGED)
    new["validation"] = new["validation"].replace("def use(value):\n", "def use(value):\n    whole = None\n")
    assert not compare(new).ok()
    new["validation"] = MERGED["validation"].replace("def use(value)", "def use(whole)").replace("(value", "(whole")
    assert not compare(new).ok()


def test_two_variables_that_become_one_are_refused_and_shown(tmp_path, capsys):
    for name, text in (("old", "def f(a, b):\n    return a - b\n"), ("new", "def f(a, a_):\n    return a - a\n")):
        (tmp_path / name / "pack").mkdir(parents=True)
        (tmp_path / name / "pack" / "x.py").write_text(text)
    assert compare_trees.main([str(tmp_path / "old"), str(tmp_path / "new"), "--package", "pack"]) == 1
    printed = capsys.readouterr().out
    assert "pack.x.f: variable b became a" in printed
    assert "+    return a - a" in printed


def test_a_reference_to_another_definition_of_the_same_shape_is_refused():
    text = "def one(x):\n    return x\ndef two(x):\n    return x\ndef use():\n    return one(1), two(2)\n"
    old = {"__init__": "", "a": text}
    assert not compare({"__init__": "", "a": text.replace("one(1), two(2)", "two(1), one(2)")}, old).ok()


def test_added_and_removed_definitions_are_refused():
    report = compare(changed(figure=("_LIMIT = 10", "_LIMIT = 10\ndef more():\n    return 3.5\n")))
    assert [each.qualified_name for each in report.additions] == ["pack.figure.more"]
    assert not report.ok()
    report = compare(changed(errors=('class Wrong(Exception):\n    """Wrong."""\n', "")))
    assert [each.qualified_name for each in report.removals] == ["pack.errors.Wrong"]
    assert not report.ok()


def git(folder, *arguments):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments], cwd=folder, check=True)


def test_revisions_and_the_working_tree_from_the_command_line(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "src" / "pack"
    folder.mkdir(parents=True)
    for name, text in OLD.items():
        (folder / f"{name}.py").write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "old")
    (folder / "figure.py").unlink()
    (folder / "user.py").unlink()
    (folder / "validation.py").write_text(MERGED["validation"])
    monkeypatch.chdir(tmp_path)
    assert compare_trees.main(["HEAD", "--package", "src/pack"]) == 0
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "new")
    assert compare_trees.main(["HEAD~", "HEAD", "--package", "src/pack"]) == 0
    (folder / "validation.py").write_text(MERGED["validation"].replace("value - least", "value * least"))
    capsys.readouterr()
    assert compare_trees.main(["HEAD~", "--package", "src/pack"]) == 1
    printed = capsys.readouterr().out
    assert "1 structurally different" in printed
    assert "-    found = value - least\n+    found = value * least" in printed


# --- the real package ---------------------------------------------------------------------------------------------


class Mutation(ast.NodeTransformer):
    """Change the first place of a kind that is met after some number of places."""

    def __init__(self, skipped: int) -> None:
        self.left = skipped
        self.done = ""

    def _turn(self) -> bool:
        self.left -= 1
        return self.left < 0 and not self.done

    def visit_Compare(self, node):
        if self._turn():
            self.done = f"comparison in line {node.lineno}"
            node.ops[0] = ast.Lt() if not isinstance(node.ops[0], ast.Lt) else ast.GtE()
        return self.generic_visit(node)

    def visit_Call(self, node):
        if len(node.args) > 1 and ast.dump(node.args[0]) != ast.dump(node.args[1]) and self._turn():
            self.done = f"arguments in line {node.lineno}"
            node.args[:2] = node.args[1::-1]
        return self.generic_visit(node)

    def visit_Return(self, node):
        if node.value is not None and self._turn():
            self.done = f"return in line {node.lineno}"
            return ast.Expr(node.value)
        return self.generic_visit(node)


def real(prefixes: tuple[str, ...]) -> dict[str, tuple[str, bool]]:
    found = {}
    for path in sorted((ROOT / "src/recollect").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        if name.startswith(prefixes):
            found[name] = (path.read_text(encoding="utf-8"), package)
    return found


def check_mutations(sources: dict[str, tuple[str, bool]], number: int) -> None:
    dice = random.Random(19)
    old = tree_tokens.Side(sources)
    assert compare_trees.compare(old, old).ok()
    mutated, done = dict(sources), {}
    for name in dice.sample(sorted(sources), len(sources)):
        text, package = sources[name]
        mutation = Mutation(dice.randrange(20))
        tree = mutation.visit(ast.parse(text))
        if mutation.done and len(done) < number:
            mutated[name] = (ast.unparse(ast.fix_missing_locations(tree)), package)
            done[name] = mutation.done
    assert done
    report = compare_trees.compare(old, tree_tokens.Side(mutated))
    different = {each.pair.old.module for each in report.results if each.reason or each.texts or each.other_values}
    different |= {each.module for each in report.removals}
    assert {name: what for name, what in done.items() if name not in different} == {}


def test_random_mutations_of_two_real_packages_are_found():
    check_mutations(real(("recollect.errors", "recollect.config", "recollect.model")), 20)


@pytest.mark.all
def test_random_mutations_of_the_whole_package_are_found():
    check_mutations(real(("recollect",)), 200)


@pytest.mark.all
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="is no checkout")
def test_the_head_is_equal_to_itself():
    packages = ["src/recollect"]
    head = tree_tokens.load("HEAD", packages, str(ROOT))
    assert compare_trees.compare(head, tree_tokens.load("HEAD", packages, str(ROOT))).ok()
