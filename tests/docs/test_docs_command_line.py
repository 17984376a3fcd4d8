"""docs/command-line.md names every command, argument, option and environment variable."""

from __future__ import annotations

import re

import click
import pytest
from docs_pages import ROOT, read, section

from recollect import config
from recollect.cli import recollect

PAGE = "docs/command-line.md"


def commands(command, path="recollect"):
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")


COMMANDS = dict(commands(recollect))


def told(path, command):
    """Find the section of a command; its title also names the arguments."""
    arguments = [parameter.human_readable_name for parameter in command.params if isinstance(parameter, click.Argument)]
    return section(PAGE, " ".join([path, *arguments]))


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_has_a_section_with_its_arguments_and_options(path):
    found = told(path, COMMANDS[path])
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{option}`" in found.text, f"{path} {option}"


def test_no_command_is_described_that_does_not_exist():
    titles = re.findall(r"^#+ (recollect\b.*)$", read(PAGE), re.MULTILINE)
    known = {told(path, command).title for path, command in COMMANDS.items()}
    assert set(titles) == known


def test_every_environment_variable_that_the_program_reads_is_described():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    read_by_it = set(re.findall(r"RECOLLECT_[A-Z]+", source)) | {config.DATABASE}
    assert read_by_it == {"RECOLLECT_DB"}
    variables = section(PAGE, "Environment").text
    assert [name for name in read_by_it if f"| `{name}` |" not in variables] == []


def test_every_variable_of_the_scripts_is_described():
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "scripts").iterdir())
    assert [name for name in set(re.findall(r"RECOLLECT_[A-Z]+", scripts)) if name not in read(PAGE)] == []
