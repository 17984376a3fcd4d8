"""Every command and option explains itself, is loaded only when it is used, and a mistake is answered."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

import recollect
from recollect.cli import recollect as command


def commands(found, path=()):
    yield path, found
    if isinstance(found, click.Group):
        context = click.Context(found)
        for name in found.list_commands(context):
            yield from commands(found.get_command(context, name), (*path, name))


COMMANDS = dict(commands(command))


def test_every_command_of_the_product_is_there():
    groups = {
        (
            "sessions",
        ): "list show search rename pin unpin archive unarchive delete restore erase fork export import stats"
        " prune tools",
        ("db",): "path migrate check backup copy restore stats reindex optimize",
        ("config",): "path init token",
    }
    for group, names in groups.items():
        assert {path[-1] for path in COMMANDS if len(path) == 2 and path[:1] == group} == set(names.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list"], "Did you mean 'sessions list'?"),
        (["search", "coat"], "Did you mean 'sessions search'?"),
        (["restore", "x"], "Did you mean 'sessions restore' or 'db restore'?"),
        (["sesions", "list"], "Did you mean 'sessions'?"),
        (["db", "bakup"], "Did you mean 'backup'?"),
        (["qqqq"], "There is: chat, serve,"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_the_one_that_is_meant(words, told, call):
    assert f"No such command {words[words[0] == 'db']!r}. {told}" in call(*words, code=2).stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_and_option_has_help(words, call):
    found = COMMANDS[words]
    assert found.help
    assert found.help.split("\n")[0].rstrip().endswith(".")
    for parameter in found.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.help
    for option in ("--help", "-h"):
        shown = call(*words, option)
        assert shown.stdout.startswith("Usage: recollect")
        assert shown.stderr == ""


@pytest.mark.parametrize(
    "path", [path for path, found in COMMANDS.items() if isinstance(found, click.Group)], ids=" ".join
)
def test_the_list_of_commands_says_what_each_says_of_itself(path):
    group = COMMANDS[path]
    for name, (_, told) in group.lazy.items():
        assert group.get_command(click.Context(group), name).help.split("\n")[0].strip() == told


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids=" ".join)
def test_every_command_takes_a_database_and_an_owner(path):
    for option in ("--db", "--owner"):
        assert [option in parameter.opts for parameter in COMMANDS[path].params].count(True) == 1


def test_what_destroys_can_be_tried_and_needs_no_question():
    for path in (("sessions", "delete"), ("sessions", "erase"), ("sessions", "prune"), ("db", "restore")):
        options = {option for parameter in COMMANDS[path].params for option in parameter.opts}
        assert {"--dry-run", "-y", "--yes"} <= options, path


def test_what_prints_data_prints_json():
    without = {("sessions", "export"), ("config", "path"), ("config", "init"), ("config", "token"), ("completion",)}
    without |= {("discord",), ("serve",), ("telegram",)}  # what they say goes elsewhere
    for path, found in COMMANDS.items():
        if not isinstance(found, click.Group) or path == ("config",):
            assert any("--json" in parameter.opts for parameter in found.params) is (path not in without), path


def test_the_version(run):
    assert recollect.__version__ in run("--version").stdout


def test_help_makes_no_database(call, path):
    call("--help")
    call("sessions", "list", "--help")
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["nonsense"], "sessions"),
        (["sesions"], "'sessions'"),
        (["sessions", "shwo"], "'show'"),
        (["sessions", "list", "--nonsense"], "--nonsense"),
        (["sessions", "show"], "ID"),
        (["sessions", "list", "--sort", "colour"], "activity"),
        (["sessions", "list", "-n", "0"], "'0'"),
        (["sessions", "list", "-n", "-1"], "'-1'"),
        (["sessions", "list", "-n", "x"], "'x'"),
        (["sessions", "list", "-n", "9" * 5000], "number"),
        (["sessions", "list", "--since", "whenever"], "2026-01-31"),
        (["sessions", "prune"], "--older-than"),
        (["sessions", "prune", "--older-than", "soon"], "90d"),
        (["sessions", "prune", "--max-size", "big"], "2GB"),
        (["sessions", "export"], "--all"),
        (["completion", "tcsh"], "bash"),
    ],
)
def test_a_mistake_is_answered_with_what_is_right(call, words, hint):
    shown = call(*words, code=2)
    assert shown.stdout == ""
    assert "Error: " in shown.stderr
    assert hint in shown.stderr


def test_alone_it_shows_what_there_is(call):
    assert "sessions" in call(code=2).stderr


def test_the_installed_command_is_the_same():
    found = os.path.join(os.path.dirname(sys.executable), "recollect")
    if not os.path.exists(found):
        pytest.skip("the command is not installed beside this Python")
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    assert recollect.__version__ in shown.stdout


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (
            "--version",
            ["asyncio", "rich", "tomllib", "difflib", "shutil", "recollect.cli.sessions", "recollect.cli.db"],
        ),
        ("--help", ["asyncio", "rich", "tomllib", "recollect.cli.sessions", "recollect.config.effective"]),
        ("sessions list", ["asyncio", "rich", "tomllib", "recollect.cli.conversation", "recollect.config.effective"]),
        ("db path", ["asyncio", "rich", "recollect.cli.sessions"]),
    ],
)
def test_a_command_loads_only_what_it_uses(words, unused, environment):
    code = (
        "import sys\n"
        "from recollect.cli import recollect\n"
        "from recollect.cli.ending import run\n"
        f"assert run(recollect, {words.split()!r}) == 0\n"
        f"assert [name for name in {unused!r} if name in sys.modules] == []"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
