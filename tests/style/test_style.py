"""The writing standard: each check finds no more than the allow-list has, and finds what is planted."""

from __future__ import annotations

import pathlib

import pytest
import style_files
from style_checks import CHECKS
from style_files import File, Violation, all_files, judge, package_of, read_allowed
from style_words import banned, is_participle

ROOT = pathlib.Path(__file__).parents[2]
MODULE = "src/recollect/engine/x.py"


@pytest.mark.parametrize("name", CHECKS)
def test_no_more_and_no_fewer_than_allowed(name):
    problems = judge(name, list(CHECKS[name](all_files())), read_allowed().get(name, {}))
    assert not problems, "\n" + "\n".join(problems)


def test_the_allow_list_names_only_checks_and_no_zero():
    allowed = read_allowed()
    assert allowed.keys() <= CHECKS.keys()
    assert all(count > 0 for counts in allowed.values() for count in counts.values())


def find(name: str, text: str, path: str = MODULE) -> list[int]:
    """Return the lines in which a check finds something in one file."""
    return [each.line for each in CHECKS[name]([File(path, text)])]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x = 1  # one journey", MODULE),
        ("x = 1  # it can\n# not be", MODULE),
        ('"""Read it anew."""', MODULE),
        ("def read_talk(): pass", MODULE),
        ("class TalkRunner: pass", MODULE),
        ("TALKS = ()", MODULE),
        ('x = "This is no message id."', MODULE),
        ("-- name: talk_get\nSELECT 1", "src/recollect/sql/sqlite/queries/x.sql"),
        ("-- what was said\nSELECT 1", "src/recollect/sql/sqlite/queries/x.sql"),
        ("<p>The colour</p>", "src/recollect/server/page/templates/x.html"),
        ("/* it goes on */", "src/recollect/server/page/static/x.js"),
        ("/* a room */", "src/recollect/server/page/static/x.css"),
        ("The store folded the log.", "docs/x.md"),
        ("The WAL is folded here.", "docs/x.md"),
        ("It was mended\nby hand.", "README.md"),
    ],
)
def test_a_banned_word_is_found(text, path):
    assert find("words", text, path) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "journeyman",
        "There is no session.",
        "is no longer",
        "cannot",
        "aria-labelledby",
        "x IS NOT NULL",
        "stalker",
        "again",
        "Compare the folded titles.",
    ],
)
def test_other_words_are_not(text):
    assert find("words", text) == []


def test_an_excepted_line_is_not_found():
    assert find("words", "CHECK (status = 'canceled')", "src/recollect/sql/sqlite/migrations/x.sql") == []
    assert find("words", "status = 'canceled'", "src/recollect/x.py") == [1]
    assert find("words", "canceled = 1") == [1]


def test_every_banned_word_has_a_suggestion_and_every_exception_a_reason():
    assert all(len(each) == 2 and each[1] for each in banned()["words"])
    assert all(each["reason"] for each in banned()["exceptions"])


@pytest.mark.parametrize(
    "text",
    [
        "found = 1", "_told = 1", "x, said = 1, 2", "for kept in x: pass", "with x as held: pass", "def given(): pass",
        "def _made(): pass", "def f(taken): pass", "x = [1 for asked in x]", "x = (written := 1)", "class A:\n    def f(self): self.placed = 1",
        "try: pass\nexcept E as meant: pass", "told_of = 1", "lambda wanted: 1", "class A:\n    begun: int",
    ],
)  # fmt: skip
def test_a_participle_is_found(text):
    assert len(find("participles", text)) == 1


def test_nouns_states_and_uses_are_no_participles():
    assert (
        find("participles", "row = found\nclosed = x.told\nfeed = 1\ncreated_at = 2\nfound_hits = 3\nencoded = 4") == []
    )
    assert is_participle("_kept")
    assert not is_participle("speed")


@pytest.mark.parametrize(
    "line",
    [
        "Give the row.",
        "Whether it is.",
        "The row of it.",
        "Returns a row.",
        "What is left.",
        "return a row.",
        "Talk on.",
    ],
)
def test_a_docstring_in_another_mood_is_found(line):
    assert find("docstrings", f'def f():\n    """{line}"""\n') == [1]
    assert find("docstrings", f'class A:\n    async def f():\n        """{line}"""\n') == [2]


def test_an_imperative_and_what_is_exempt_are_not():
    assert find("docstrings", 'def f():\n    """Return a row."""\n') == []
    assert (
        find("docstrings", 'class A:\n    """The row."""\n    @property\n    def f(self):\n        """The row."""\n')
        == []
    )
    assert find("docstrings", 'def test_x():\n    """The row."""\n\ndef g(): pass\n') == []


def test_a_class_name_that_is_used_twice_is_found():
    files = [
        File("src/recollect/a/x.py", "class Page: pass\nRows = list[int]"),
        File("src/recollect/b/y.py", "\nclass Page: pass"),
    ]
    found = list(CHECKS["classes"](files))
    assert [(each.path, each.line) for each in found] == [("src/recollect/a/x.py", 1), ("src/recollect/b/y.py", 2)]
    files.append(File("src/recollect/c/z.py", "Rows = dict[str, int]"))
    assert len(list(CHECKS["classes"](files))) == 4
    assert list(CHECKS["classes"]([File("src/recollect/a/x.py", "class Page: pass\nclass Row: pass\nN = 1")])) == []


@pytest.mark.parametrize(
    "text",
    [
        'f"{name} is a whole number from 0 on; got {value}."',
        'f"{name} is one of a, b, got {value}."',
        'f"{value!r} is no message id."',
        '"timeout is a number of seconds, got 5."',
        'f"{what} is not there for this kind of store."',
        'f"{name!r} fits {count} sessions."',
        '"This can not be stored."',
        '"The name is wrong. Give another one."',
        'f"limit lies between 1 and 9, got {value}."',
        '"limit must be positive"',
    ],
)
def test_an_error_that_describes_is_found(text):
    assert find("errors", f"raise ValueError({text})") == [1]


def test_the_docstrings_of_errors_are_read_too():
    text = 'class Missing(Exception):\n    """{name!r} fits {count} sessions."""\n'
    assert find("errors", text, "src/recollect/errors.py") == [2]
    raised = File(MODULE, 'raise Missing("it can not.")')
    assert len(list(CHECKS["errors"]([File("src/recollect/errors.py", text), raised]))) == 2


@pytest.mark.parametrize("base", ["Exception", "errors.RecollectError", "ValueError, Enum", "BaseException"])
def test_a_public_exception_outside_errors_is_found(base):
    assert find("exceptions", f"class Late({base}):\n    pass") == [1]
    assert find("exceptions", f"class _Late({base}):\n    pass") == []
    assert find("exceptions", f'class Late({base}):\n    """Late.\n\n    Internal: X handles it.\n    """') == []
    assert find("exceptions", f"class Late({base}):\n    pass", "src/recollect/errors.py") == []


def test_a_subclass_of_an_error_of_the_tree_is_found():
    tree = File("src/recollect/errors.py", "class Conflict(RecollectError): pass")
    assert len(list(CHECKS["exceptions"]([tree, File(MODULE, "class Late(errors.Conflict): pass")]))) == 1


@pytest.mark.parametrize(
    "text",
    ['f"{name} must be a non-negative integer or None, got {value}."', '"No session matches."', "name", "", '"key"'],
)
def test_an_error_that_instructs_is_not(text):
    assert find("errors", f"raise ValueError({text})") == []


def test_a_constant_without_a_comment_is_found():
    text = '_A = 1\nB: int = 64 * 1024\n_C = 2  # seconds\n# Bytes.\nD = 3\nE = 4\n"""Rows."""\nF = \'x\'\ng = 5\nH = True\n'
    assert find("constants", text) == [1, 2]


def test_a_long_file_and_a_long_function_are_found():
    assert find("sizes", "x = 1\n" * 801) == [1]
    assert find("sizes", "def f():\n" + "    x = 1\n" * 50) == [1]
    assert find("sizes", 'def f():\n    """Do\n    it.\n    """\n' + "    x = 1\n" * 49) == []
    assert find("sizes", "x = 1\n" * 800) == []


@pytest.mark.parametrize(
    "text",
    ["row[7]", "row[-1]", "branch_row[0]", "rows[0][3]", "rows[-1][0]", "message_rows[i][2]", "row[3:]", "row[:-4]"],
)
def test_a_column_that_is_read_by_number_is_found(text):
    assert find("rows", f"x = {text}", "src/recollect/storage/x.py") == [1]
    assert find("rows", f"x = {text}") == []


@pytest.mark.parametrize(
    "text", ["row.key", "rows[0]", "rows[-1].key", "rows[1:]", "row[name]", "row['title']", "arrow[1]"]
)
def test_a_column_that_is_read_by_name_is_not(text):
    assert find("rows", f"x = {text}", "src/recollect/storage/x.py") == []


def test_a_query_without_a_description_is_found():
    text = "-- Read a.\n-- name: a\nSELECT 1\n\n-- name: b\n-- Read b.\nSELECT 2\n\n-- name: c\nSELECT 3\n\n-- lock: d\n-- name: d\nSELECT 4\n"
    assert find("sql", text, "src/recollect/sql/sqlite/queries/x.sql") == [9, 13]


# --- the allow-list -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("src/recollect/errors.py", "src/recollect"),
        ("src/recollect/engine/sqlite/file.py", "src/recollect/engine"),
        ("src/recollect/channels/bot/desk.py", "src/recollect/channels/bot"),
        ("src/recollect/channels/surfaces.py", "src/recollect/channels"),
        ("src/recollect/server/api/x.py", "src/recollect/server/api"),
        ("src/recollect/server/page/static/x.js", "src/recollect/server/page"),
        ("src/recollect/server/page/templates/x.html", "src/recollect/server/page"),
        ("src/recollect/sql/sqlite/queries/x.sql", "src/recollect/sql"),
        ("conformance/src/recollect_conformance/turns.py", "conformance"),
        ("tests/cli/test_cli.py", "tests/cli"),
        ("tests/conftest.py", "tests"),
        ("tools/cluster/load.py", "tools"),
        ("benchmarks/record.py", "benchmarks"),
        ("docs/search.md", "docs/search.md"),
        ("README.md", "README.md"),
    ],
)
def test_the_package_of_a_file(path, package):
    assert package_of(path) == package


def test_the_allow_list_may_only_shrink():
    two = [Violation(MODULE, 1, "a"), Violation(MODULE, 2, "b")]
    assert judge("words", two, {"src/recollect/engine": 2}) == []
    assert [line for line in judge("words", two, {"src/recollect/engine": 1}) if f"{MODULE}:2: b" in line]
    assert "lower tests/style/allowed.toml to 2" in judge("words", two, {"src/recollect/engine": 3})[0]
    assert "lower tests/style/allowed.toml to 0" in judge("words", [], {"docs/x.md": 1})[0]
    assert judge("words", two, {})


def test_the_script_lowers_counts_and_raises_none(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    style_counts = pytest.importorskip("style_counts")
    target = tmp_path / "allowed.toml"
    monkeypatch.setattr(style_files, "ALLOWED", target)
    monkeypatch.setattr(style_counts, "ALLOWED", target)
    monkeypatch.setattr(style_counts, "CHECKS", {"words": CHECKS["words"]})
    monkeypatch.setattr(style_counts, "all_files", lambda: [File(MODULE, "anew = anew")])
    target.write_text('[words]\n"src/recollect/engine" = 5\n"docs/x.md" = 1\n')
    assert style_counts.main([]) == 0
    assert style_files.read_allowed() == {"words": {"src/recollect/engine": 2}}
    target.write_text('[words]\n"src/recollect/engine" = 1\n"src/recollect/gone" = 1\n')
    assert style_counts.main([]) == 1
    assert style_files.read_allowed()["words"]["src/recollect/engine"] == 1
    assert style_counts.main(["--moved"]) == 0
    assert style_files.read_allowed() == {"words": {"src/recollect/engine": 2}}
    capsys.readouterr()
    assert style_counts.main(["--list", "words", "src/recollect/engine"]) == 0
    assert capsys.readouterr().out.count(f"{MODULE}:1: 'anew'") == 2
