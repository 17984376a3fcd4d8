"""On a terminal: tables that fit it, colour, questions, Markdown; and nothing stored that steers it."""

from __future__ import annotations

import re

import pytest
from cli_words import said

from recollect.cli.screen import width

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def plain(shown: str) -> str:
    return ESCAPES.sub("", shown)


@pytest.fixture
def many(store):
    titles = ["Short", "A title that is much too long for any terminal " * 4, "日本語のタイトルはとても長い" * 5, None]
    for number, title in enumerate(titles):
        session = store.session(f"cli:{number}", title=title, model="a-model-with-a-long-name-20260101")
        session.append([said("x" * 5000)] * 3)
    store.session("telegram:group:-100123456789:thread:77", title="evil \x1b[31m \u202e \x07 \n title")
    store.create_session(title="Made up").update(pinned=True)
    return store


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140, 200])
def test_a_table_fits_the_terminal(terminal, many, columns):
    lines = plain(terminal("sessions", "list", columns=columns)).splitlines()
    assert len(lines) == 7
    assert [line for line in lines if width(line) > columns] == []
    assert "TITLE" in lines[0]
    assert "ACTIVE" in lines[0]
    assert sum("Short" in line for line in lines) == 1
    assert ("MODEL" in lines[0]) is (columns >= 80)


def test_columns_line_up_whatever_the_letters(terminal, many):
    lines = plain(terminal("sessions", "list", columns=140)).splitlines()
    place = lines[0].index("MSGS") + 4
    assert [line for line in lines[1:] if width(line) > place and _at(line, place) != "  "] == []


def _at(line: str, place: int) -> str:
    """Give the two columns of a line that begin at a place."""
    shown = "".join(char + "\0" * (width(char) - 1) for char in line if width(char))
    return shown[place : place + 2]


def test_a_made_up_id_is_shortened_and_still_a_name(terminal, many, call):
    (line,) = [line for line in plain(terminal("sessions", "list")).splitlines() if "Made up" in line]
    id = line.split()[1]
    assert len(id) == 13
    assert "Made up" in call("sessions", "show", id).stdout
    assert line.startswith("★")


def test_ids_that_begin_alike_are_shown_as_far_as_they_differ():
    from recollect.cli.sessions.listing import _short_ids

    ids = [f"01a1e34e-891c-7{end}1c-bb16-39308ddce58d" for end in ("a", "b")] + [
        "01a1e34e-9000-7000-bb16-39308ddce58d",
        "cli:x",
    ]
    assert list(_short_ids(ids).values()) == ["01a1e34e-891c-7a", "01a1e34e-891c-7b", "01a1e34e-9000", "cli:x"]


def test_colour_is_for_terminals_that_want_it(terminal, many, call):
    assert "\x1b[" in terminal("sessions", "list")
    assert "\x1b" not in terminal("sessions", "list", NO_COLOR="1")
    assert "\x1b" not in terminal("sessions", "list", TERM="dumb")
    assert "\x1b" not in call("sessions", "list").stdout


@pytest.mark.parametrize(
    "words", [["list"], ["show", "cli:evil"], ["show", "cli:evil", "--plain", "--full"], ["pin", "cli:evil"]]
)
@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_only_our_own_colours_reach_the_terminal(terminal, store, words, colour):
    evil = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202e [x](javascript:\x1b[5m) `\x1b[6n` \x1bP+q\x1b\\"
    session = store.session("cli:evil", title=evil, model=evil)
    session.append(
        [
            said(evil),
            {"role": "assistant", "content": f"# {evil}\n\n```\n{evil}\n```\n\n- {evil}\n\n| a |\n|---|\n| {evil} |"},
        ]
    )
    shown = plain(terminal("sessions", *words, **colour))
    assert not [char for char in shown if char not in "\n\r" and not char.isprintable()]


def test_markdown_is_laid_out_unless_it_is_not_wanted(terminal, store):
    text = "# Heading\n\nSome **bold** words, and [a link](https://example.org/x).\n\n- one\n- two\n\n```python\nx = 1\n```"
    store.session("cli:a").append({"role": "assistant", "content": text})
    shown = terminal("sessions", "show", "cli:a")
    assert "**" not in shown
    assert "• one" in plain(shown)
    assert "https://example.org/x" in plain(shown)
    assert "\x1b]8" not in shown
    assert "  Heading\n" in plain(shown)
    for asked in ({"RECOLLECT_MARKDOWN": "no"}, {}):
        plainly = terminal("sessions", "show", "cli:a", *([] if asked else ["--plain"]), **asked)
        assert "**bold**" in plainly


def test_long_tool_output_is_shortened(terminal, call, store):
    session = store.session("cli:a")
    session.append(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "cat", "input": {"x": "y" * 500}}]}
    )
    session.record_tool_result("c", "\n".join(f"line {number} " + "z" * 300 for number in range(100)))
    shown = plain(terminal("sessions", "show", "cli:a"))
    assert "line 11 " in shown
    assert "line 12 " not in shown
    assert "88 more lines; --full prints them" in shown
    assert [line for line in shown.splitlines() if width(line) > 80] == []
    for whole in (plain(terminal("sessions", "show", "cli:a", "--full")), call("sessions", "show", "cli:a").stdout):
        assert "line 99 " in whole
        assert "y" * 500 in whole


class TestQuestions:
    def test_a_yes(self, terminal, store):
        store.session("cli:a")
        assert "can not be undone" in terminal("sessions", "erase", "cli:a", typed="y\n")
        assert store.get_session("cli:a") is None

    @pytest.mark.parametrize("typed", ["n\n", "\n"])
    def test_a_no(self, terminal, store, typed):
        store.session("cli:a")
        assert "Nothing was done." in terminal("sessions", "erase", "cli:a", typed=typed, code=4)
        assert store.get_session("cli:a") is not None

    def test_none_where_the_answer_was_given(self, terminal, store):
        store.session("cli:a")
        assert "[y/N]" not in terminal("sessions", "erase", "cli:a", "-y")
        assert store.get_session("cli:a") is None


def test_more_than_was_asked_for_is_said(terminal, many):
    assert "--all" in terminal("sessions", "list", "-n", "2")
    assert "--all" not in terminal("sessions", "list")
