"""docs/reference/command-line.md documents every command, argument, option and environment variable."""

from __future__ import annotations

import re

import click
import pytest
from docs_pages import ROOT, find_blocks, find_section, read_page

from recollect.cli import recollect
from recollect.config import toml_file
from recollect.config.settings import SETTINGS
from recollect.errors import InvalidValue
from recollect.server.access_token import validate_tokens

PAGE = "docs/reference/command-line.md"


def walk_commands(command, path="recollect"):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk_commands(command.get_command(context, name), f"{path} {name}")


COMMANDS = dict(walk_commands(recollect))


def find_command_section(path, command):
    """Return the section of a command. Its title is the command with its arguments."""
    arguments = [parameter.human_readable_name for parameter in command.params if isinstance(parameter, click.Argument)]
    return find_section(PAGE, " ".join([path, *arguments]))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_is_documented_with_its_arguments_and_options(path):
    section = find_command_section(path, COMMANDS[path])
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option) and (path == "recollect" or parameter.expose_value):
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{option}`" in section.text, f"{path} {option}"


def test_every_documented_command_exists():
    titles = re.findall(r"^#+ (recollect\b.*)$", read_page(PAGE), re.MULTILINE)
    assert set(titles) == {find_command_section(path, command).title for path, command in COMMANDS.items()}


def test_every_environment_variable_is_documented():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    variables_in_source = set(re.findall(r"(?<!_)RECOLLECT_[A-Z_]+", source))
    settings = {setting.variable for setting in SETTINGS.values()}
    assert settings < variables_in_source
    assert variables_in_source - settings == {"RECOLLECT_CONFIG", "RECOLLECT_DEBUG"}
    text = find_section(PAGE, "Environment").text
    assert [name for name in variables_in_source - settings if f"| `{name}` |" not in text] == []


def test_every_setting_is_documented_with_its_variable_default_and_description():
    rows = find_section("docs/reference/configuration.md", "Settings").text
    for setting in SETTINGS.values():
        (row,) = re.findall(rf"^\| `{re.escape(setting.name)}` \| `{setting.variable}` \|.*$", rows, re.MULTILINE)
        assert setting.help.split(".")[0] in row
        if setting.default:
            assert f"`{str(setting.default).lower()}`" in row
    assert len(re.findall(r"^\| `[a-z_.]+` \|", rows, re.MULTILINE)) == len(SETTINGS)


def test_the_example_configuration_files_are_valid():
    (team,) = find_blocks("docs/how-to/team.md", "toml")
    owners = {setting.name: value for setting, value, _ in toml_file.parse_settings("config.toml", team.text)}[
        "server.owners"
    ]
    assert set(owners) == {"alice", "bob"}
    for token in owners.values():  # the placeholder is not a valid token, so that nobody copies it into use
        with pytest.raises(InvalidValue, match="config token"):
            validate_tokens({"alice": token})
    (sync,) = find_blocks("docs/how-to/import.md", "toml")
    assert len(list(toml_file.parse_settings("config.toml", sync.text))) == 3
    example, servers = find_blocks("docs/reference/configuration.md", "toml")
    toml_file.parse_settings("config.toml", servers.text)
    assert [server.name for server in toml_file.parse_servers(servers.text)] == ["files", "docs"]
    names = {setting.name for setting, _, _ in toml_file.parse_settings("config.toml", example.text)}
    assert names == {"db.path", "model.name", "retention.max_age"}


def test_every_exit_status_is_documented():
    from recollect.cli import exit_codes

    rows = find_section(PAGE, "Names, output and exit statuses").text
    names = ("OK", "ERROR", "USAGE", "NOT_FOUND", "REFUSAL", "PROBLEMS", "INTERRUPTED", "CLOSED_PIPE")
    statuses = {str(getattr(exit_codes, name)) for name in names}
    assert set(re.findall(r"^\| (\d+) \|", rows, re.MULTILINE)) == statuses


def test_every_variable_of_the_scripts_is_documented():
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "scripts").iterdir())
    assert [name for name in set(re.findall(r"RECOLLECT_[A-Z]+", scripts)) if name not in read_page(PAGE)] == []
