"""Output on a terminal: tables of its width, color, questions, Markdown, and no stored escape sequences."""

from __future__ import annotations

import re

import pytest
from cli_messages import user_message

from recollect.cli.output import display_width

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def plain(screen: str) -> str:
    return ESCAPES.sub("", screen)


@pytest.fixture
def many_sessions(store):
    titles = ["Short", "A title that is much too long for any terminal " * 4, "日本語のタイトルはとても長い" * 5, None]
    for number, title in enumerate(titles):
        session = store.session(f"cli:{number}", title=title, model="a-model-with-a-long-name-20260101")
        session.append([user_message("x" * 5000)] * 3)
    store.session("telegram:group:-100123456789:thread:77", title="evil \x1b[31m \u202e \x07 \n title")
    store.session(title="Generated").update(pinned=True)
    return store


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140, 200])
def test_a_table_fits_the_terminal(terminal, many_sessions, columns):
    lines = plain(terminal("sessions", "list", columns=columns)).splitlines()
    assert len(lines) == 7
    assert [line for line in lines if display_width(line) > columns] == []
    assert "TITLE" in lines[0]
    assert "ACTIVE" in lines[0]
    assert sum("Short" in line for line in lines) == 1
    assert ("MODEL" in lines[0]) is (columns >= 80)


def test_columns_line_up_with_wide_characters(terminal, many_sessions):
    lines = plain(terminal("sessions", "list", columns=140)).splitlines()
    column = lines[0].index("MSGS") + 4
    assert [line for line in lines[1:] if display_width(line) > column and _two_columns_at(line, column) != "  "] == []


def _two_columns_at(line: str, column: int) -> str:
    """Return two columns of a line, starting at a column."""
    cells = "".join(char + "\0" * (display_width(char) - 1) for char in line if display_width(char))
    return cells[column : column + 2]


def test_a_generated_id_is_shortened_and_still_selects_the_session(terminal, many_sessions, call):
    (line,) = [line for line in plain(terminal("sessions", "list")).splitlines() if "Generated" in line]
    id = line.split()[1]
    assert len(id) == 13
    assert "Generated" in call("sessions", "show", id).stdout
    assert line.startswith("★")


def test_similar_ids_are_shortened_to_unique_prefixes():
    from recollect.cli.sessions.listing import _short_ids

    ids = [f"01a1e34e-891c-7{end}1c-bb16-39308ddce58d" for end in ("a", "b")] + [
        "01a1e34e-9000-7000-bb16-39308ddce58d",
        "cli:x",
    ]
    assert list(_short_ids(ids).values()) == ["01a1e34e-891c-7a", "01a1e34e-891c-7b", "01a1e34e-9000", "cli:x"]


def test_color_only_on_terminals_that_accept_it(terminal, many_sessions, call):
    assert "\x1b[" in terminal("sessions", "list")
    assert "\x1b" not in terminal("sessions", "list", NO_COLOR="1")
    assert "\x1b" not in terminal("sessions", "list", TERM="dumb")
    assert "\x1b" not in call("sessions", "list").stdout


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", "cli:evil"], ["show", "cli:evil", "--plain", "--full"], ["pin", "cli:evil"]]
)
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_stored_escape_sequences_do_not_reach_the_terminal(terminal, store, arguments, variables):
    escapes = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202e [x](javascript:\x1b[5m) `\x1b[6n` \x1bP+q\x1b\\"
    session = store.session("cli:evil", title=escapes, model=escapes)
    session.append(
        [
            user_message(escapes),
            {
                "role": "assistant",
                "content": f"# {escapes}\n\n```\n{escapes}\n```\n\n- {escapes}\n\n| a |\n|---|\n| {escapes} |",
            },
        ]
    )
    screen = plain(terminal("sessions", *arguments, **variables))
    assert not [char for char in screen if char not in "\n\r" and not char.isprintable()]


def test_markdown_is_rendered_unless_it_is_disabled(terminal, store):
    text = "# Heading\n\nSome **bold** words, and [a link](https://example.org/x).\n\n- one\n- two\n\n```python\nx = 1\n```"
    store.session("cli:a").append({"role": "assistant", "content": text})
    screen = terminal("sessions", "show", "cli:a")
    assert "**" not in screen
    assert "• one" in plain(screen)
    assert "https://example.org/x" in plain(screen)
    assert "\x1b]8" not in screen
    assert "  Heading\n" in plain(screen)
    for variables in ({"RECOLLECT_MARKDOWN": "no"}, {}):
        source = terminal("sessions", "show", "cli:a", *([] if variables else ["--plain"]), **variables)
        assert "**bold**" in source


def test_long_tool_output_is_shortened(terminal, call, store):
    session = store.session("cli:a")
    session.append(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "cat", "input": {"x": "y" * 500}}]}
    )
    session.tools.record_result("c", "\n".join(f"line {number} " + "z" * 300 for number in range(100)))
    screen = plain(terminal("sessions", "show", "cli:a"))
    assert "line 11 " in screen
    assert "line 12 " not in screen
    assert "88 more lines; use --full to show all" in screen
    assert [line for line in screen.splitlines() if display_width(line) > 80] == []
    for full_output in (
        plain(terminal("sessions", "show", "cli:a", "--full")),
        call("sessions", "show", "cli:a").stdout,
    ):
        assert "line 99 " in full_output
        assert "y" * 500 in full_output


class TestQuestions:
    def test_yes_erases(self, terminal, store):
        store.session("cli:a")
        assert "cannot be undone" in terminal("sessions", "erase", "cli:a", typed="y\n")
        assert store.get_session("cli:a") is None

    @pytest.mark.parametrize("typed", ["n\n", "\n"])
    def test_no_keeps_the_session(self, terminal, store, typed):
        store.session("cli:a")
        assert "Nothing was changed." in terminal("sessions", "erase", "cli:a", typed=typed, code=4)
        assert store.get_session("cli:a") is not None

    def test_the_yes_option_skips_the_question(self, terminal, store):
        store.session("cli:a")
        assert "[y/N]" not in terminal("sessions", "erase", "cli:a", "-y")
        assert store.get_session("cli:a") is None


def test_a_limited_list_mentions_the_all_option(terminal, many_sessions):
    assert "--all" in terminal("sessions", "list", "-n", "2")
    assert "--all" not in terminal("sessions", "list")
