"""Help texts of all commands and options, usage errors, and lazy imports."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import click
import pytest

import recollect
from recollect.cli import recollect as command


def commands(click_command, path=()):
    yield path, click_command
    if isinstance(click_command, click.Group):
        context = click.Context(click_command)
        for name in click_command.list_commands(context):
            yield from commands(click_command.get_command(context, name), (*path, name))


COMMANDS: dict[tuple[str, ...], Any] = dict(commands(command))


def test_the_groups_contain_exactly_these_commands():
    groups = {
        (
            "sessions",
        ): "list show search rename pin unpin label unlabel archive unarchive delete restore erase fork export stats"
        " prune tools",
        ("db",): "path migrate check backup copy restore stats reindex optimize",
        ("config",): "path init token",
    }
    for group, names in groups.items():
        assert {path[-1] for path in COMMANDS if len(path) == 2 and path[:1] == group} == set(names.split())


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["list"], "Did you mean 'sessions list'?"),
        (["search", "coat"], "Did you mean 'sessions search'?"),
        (["restore", "x"], "Did you mean 'sessions restore' or 'db restore'?"),
        (["sesions", "list"], "Did you mean 'sessions'?"),
        (["db", "bakup"], "Did you mean 'backup'?"),
        (["qqqq"], "Commands: chat, serve,"),
    ],
)
def test_an_unknown_command_suggests_a_similar_one(arguments, suggestion, call):
    assert f"No such command {arguments[arguments[0] == 'db']!r}. {suggestion}" in call(*arguments, code=2).stderr


@pytest.mark.parametrize("command_path", COMMANDS, ids=" ".join)
def test_every_command_and_option_has_help(command_path, call):
    click_command = COMMANDS[command_path]
    assert click_command.help
    assert click_command.help.split("\n")[0].rstrip().endswith(".")
    for parameter in click_command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.help
    for option in ("--help", "-h"):
        result = call(*command_path, option)
        assert result.stdout.startswith("Usage: recollect")
        assert result.stderr == ""


@pytest.mark.parametrize(
    "path", [path for path, click_command in COMMANDS.items() if isinstance(click_command, click.Group)], ids=" ".join
)
def test_the_command_list_shows_the_first_line_of_each_help(path):
    group = COMMANDS[path]
    for name, (_, summary) in group.lazy.items():
        assert group.get_command(click.Context(group), name).help.split("\n")[0].strip() == summary  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids=" ".join)
def test_every_command_has_a_db_and_an_owner_option(path):
    for option in ("--db", "--owner"):
        assert [option in parameter.opts for parameter in COMMANDS[path].params].count(True) == 1


def test_destructive_commands_have_dry_run_and_yes_options():
    for path in (("sessions", "delete"), ("sessions", "erase"), ("sessions", "prune"), ("db", "restore")):
        options = {option for parameter in COMMANDS[path].params for option in parameter.opts}
        assert {"--dry-run", "-y", "--yes"} <= options, path


def test_commands_that_print_data_have_a_json_option():
    without = {("sessions", "export"), ("config", "path"), ("config", "init"), ("config", "token"), ("completion",)}
    without |= {("discord",), ("serve",), ("telegram",)}  # they run until they are stopped
    for path, click_command in COMMANDS.items():
        if not isinstance(click_command, click.Group) or path == ("config",):
            assert any("--json" in parameter.opts for parameter in click_command.params) is (path not in without), path


def test_the_version(run):
    assert recollect.__version__ in run("--version").stdout


def test_help_creates_no_database(call, path):
    call("--help")
    call("sessions", "list", "--help")
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["nonsense"], "sessions"),
        (["sesions"], "'sessions'"),
        (["sessions", "shwo"], "'show'"),
        (["sessions", "list", "--nonsense"], "--nonsense"),
        (["sessions", "show"], "ID"),
        (["sessions", "list", "--sort", "color"], "activity"),
        (["sessions", "list", "-n", "0"], "'0'"),
        (["sessions", "list", "-n", "-1"], "'-1'"),
        (["sessions", "list", "-n", "x"], "'x'"),
        (["sessions", "list", "-n", "9" * 5000], "integer"),
        (["sessions", "list", "--since", "whenever"], "2026-01-31"),
        (["sessions", "prune"], "--older-than"),
        (["sessions", "prune", "--older-than", "soon"], "90d"),
        (["sessions", "prune", "--max-size", "big"], "2GB"),
        (["sessions", "export"], "--all"),
        (["completion", "tcsh"], "bash"),
    ],
)
def test_a_usage_error_names_a_valid_value(call, arguments, hint):
    result = call(*arguments, code=2)
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert hint in result.stderr


def test_without_arguments_it_prints_the_commands(call):
    assert "sessions" in call(code=2).stderr


def test_the_installed_command_has_the_same_version():
    executable = os.path.join(os.path.dirname(sys.executable), "recollect")
    if not os.path.exists(executable):
        pytest.skip("the command is not installed next to this Python")
    result = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True)
    assert recollect.__version__ in result.stdout


@pytest.mark.parametrize(
    ("command_line", "modules"),
    [
        (
            "--version",
            ["asyncio", "rich", "tomllib", "difflib", "shutil", "recollect.cli.sessions", "recollect.cli.db"],
        ),
        ("--help", ["asyncio", "rich", "tomllib", "recollect.cli.sessions", "recollect.config.loader"]),
        ("sessions list", ["asyncio", "rich", "tomllib", "recollect.cli.sessions.show", "recollect.config.loader"]),
        ("db path", ["asyncio", "rich", "recollect.cli.sessions"]),
    ],
)
def test_a_command_imports_only_the_modules_it_uses(command_line, modules, environment):
    code = (
        "import sys\n"
        "from recollect.cli import recollect\n"
        "from recollect.cli.exit_codes import run_command\n"
        f"assert run_command(recollect, {command_line.split()!r}) == 0\n"
        f"assert [name for name in {modules!r} if name in sys.modules] == []"
    )
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
