"""docs/command-line.md names every command, argument, option and environment variable."""

from __future__ import annotations

import re

import click
import pytest
from docs_pages import ROOT, blocks, read, section

from recollect.cli import recollect
from recollect.config import toml
from recollect.config.settings import SETTINGS
from recollect.errors import InvalidValue
from recollect.server.token import checked

PAGE = "docs/command-line.md"


def commands(command, path="recollect"):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), f"{path} {name}")


COMMANDS = dict(commands(recollect))


def told(path, command):
    """Find the section of a command; its title also names the arguments."""
    arguments = [parameter.human_readable_name for parameter in command.params if isinstance(parameter, click.Argument)]
    return section(PAGE, " ".join([path, *arguments]))


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_has_a_section_with_its_arguments_and_options(path):
    found = told(path, COMMANDS[path])
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option) and (path == "recollect" or parameter.expose_value):
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{option}`" in found.text, f"{path} {option}"


def test_no_command_is_described_that_does_not_exist():
    titles = re.findall(r"^#+ (recollect\b.*)$", read(PAGE), re.MULTILINE)
    known = {told(path, command).title for path, command in COMMANDS.items()}
    assert set(titles) == known


def test_every_environment_variable_that_the_program_reads_is_described():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    read_by_it = set(re.findall(r"(?<!_)RECOLLECT_[A-Z_]+", source))
    settings = {setting.variable for setting in SETTINGS.values()}
    assert settings < read_by_it
    assert read_by_it - settings == {"RECOLLECT_CONFIG", "RECOLLECT_DEBUG"}
    variables = section(PAGE, "Environment").text
    told = [name for name in read_by_it - settings if f"| `{name}` |" not in variables]
    assert told == []


def test_every_setting_is_described_with_its_variable_its_default_and_what_it_is():
    rows = section("docs/configuration.md", "Settings").text
    for setting in SETTINGS.values():
        (row,) = re.findall(rf"^\| `{re.escape(setting.name)}` \| `{setting.variable}` \|.*$", rows, re.MULTILINE)
        assert setting.help.split(".")[0] in row
        if setting.default:
            assert f"`{str(setting.default).lower()}`" in row
    assert len(re.findall(r"^\| `[a-z_.]+` \|", rows, re.MULTILINE)) == len(SETTINGS)


def test_the_example_of_a_file_is_one():
    (team,) = blocks("docs/team.md", "toml")
    owners = {setting.name: value for setting, value, _ in toml.settings("config.toml", team.text)}["server.owners"]
    assert set(owners) == {"alice", "bob"}
    for token in owners.values():  # whoever copies the example has to put in a token of their own
        with pytest.raises(InvalidValue, match="config token"):
            checked({"alice": token})
    example, servers = blocks("docs/configuration.md", "toml")
    toml.settings("config.toml", servers.text)
    assert [server.name for server in toml.servers(servers.text)] == ["files", "docs"]
    names = {setting.name for setting, _, _ in toml.settings("config.toml", example.text)}
    assert names == {"db.path", "model.name", "retention.max_age"}


def test_every_exit_status_is_described():
    from recollect.cli import ending

    rows = section(PAGE, "Names, output and exit statuses").text
    names = ("OK", "ERROR", "USAGE", "NOT_FOUND", "REFUSED", "PROBLEMS", "INTERRUPTED", "CLOSED_PIPE")
    statuses = {str(getattr(ending, name)) for name in names}
    assert set(re.findall(r"^\| (\d+) \|", rows, re.MULTILINE)) == statuses


def test_every_variable_of_the_scripts_is_described():
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "scripts").iterdir())
    assert [name for name in set(re.findall(r"RECOLLECT_[A-Z]+", scripts)) if name not in read(PAGE)] == []
