"""`recollect config`: the settings, and where each comes from."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

import click

from recollect import config as configuration
from recollect.cli import options, place
from recollect.cli.document import print_json
from recollect.cli.ending import Refused
from recollect.cli.group import Group
from recollect.cli.screen import glyph, is_terminal, paint, remark, safe
from recollect.cli.table import Cell, Column, print_table

_SHAPE = (
    Column("SETTING", style={"bold": True}),
    Column("VALUE", least=16),
    Column("FROM", least=20, style={"fg": "cyan"}),
    Column("VARIABLE", drop=1, style={"dim": True}),
)


@click.group(cls=Group, invoke_without_command=True)
@options.as_json
@click.pass_context
def config(context: click.Context, as_json: bool) -> None:
    """Show the settings, and where each comes from.

    An option of a command counts more than the environment, and the environment more than the file. Secrets are masked.
    On a pipe each line has, between tabs: setting, value, where it is from, variable.
    """
    if context.invoked_subcommand is not None:
        return
    found = place.settings()
    lines = found.lines() if found.exists else {}
    rows = [_row(item, lines.get(name)) for name, item in found.found.items()]
    rows += [_server_row(server, found.file, lines.get(f"mcp.{server.name}")) for server in found.servers]
    if as_json:
        print_json({"file": found.file, "exists": found.exists, "settings": rows})
        return
    if is_terminal():
        told = found.file if found.exists else f"{found.file} (there is none; `recollect config init` writes one)"
        click.echo(paint(safe(told), dim=True))
    print_table(_SHAPE, [_cells(row) for row in rows])
    _warn(found.file, rows)


def _row(item: Any, line: int | None) -> dict[str, Any]:
    return {
        "name": item.setting.name,
        "value": item.shown,
        "source": item.source,
        "place": item.place,
        "line": line if item.source == "file" else None,
        "variable": item.setting.variable,
    }


def _server_row(server: Any, file: str, line: int | None) -> dict[str, Any]:
    return {
        "name": f"mcp.{server.name}", "value": server.shown, "source": "file", "place": file, "line": line,
        "variable": None,
    }  # fmt: skip


def _cells(row: dict[str, Any]) -> list[Cell]:
    value = row["value"]
    written = ", ".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value
    text = "" if value is None else str(written)
    come = {"file": f"{row['place']}:{row['line']}", "default": "default"}.get(row["source"]) or str(row["place"])
    plain = row["source"] == "default"
    shown = f"line {row['line']}" if row["source"] == "file" else come
    return [
        Cell(row["name"]),
        Cell(text or glyph("line"), text, {"dim": True} if plain else {}),
        Cell(shown, come, {"dim": True} if plain else None),
        Cell(row["variable"] or ""),
    ]


def _warn(file: str, rows: list[dict[str, Any]]) -> None:
    """Say that others can read the secrets in the file."""
    secret = any(row["source"] == "file" and "********" in str(row["value"]) for row in rows)
    if secret and sys.platform != "win32" and os.stat(file).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        remark(f"Others can read the secrets in {file}: chmod 600 is better.")


@config.command("path")
def path() -> None:
    """Print which file the settings are in, whether or not it is there."""
    click.echo(safe(configuration.file()))


@config.command()
def init() -> None:
    """Write a file with every setting in it, each commented out.

    Only you can read it. A file that is there is left as it is.
    """
    path = configuration.file()
    configuration.make_folder(os.path.dirname(path))
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise Refused(f"{path} is there already, and was left as it is.") from None
    with open(handle, "w", encoding="utf-8") as file:
        file.write(template())
    remark(f"{path} is written. Every setting in it is commented out.")


@config.command()
def token() -> None:
    """Print a new random token for server.token or server.owners.

    Nothing is stored: put the token where you need it.
    """
    from recollect.server.token import generate  # noqa: PLC0415

    click.echo(generate())


def template() -> str:
    """Write every setting as a comment, under its table."""
    from recollect.config.settings import SETTINGS  # noqa: PLC0415

    lines = ["# Settings of Recollect. An environment variable counts more than what is written here.", ""]
    table = ""
    for setting in SETTINGS.values():
        above, _, key = setting.name.rpartition(".")
        if above != table:
            lines += [f"[{above}]"] if not table else ["", f"[{above}]"]
            table = above
        lines += [f"# {setting.help} Variable: {setting.variable}", f"# {key} = {setting.example}"]
    lines += ["", "# MCP servers, with tools for the model, have a table each: [mcp.NAME], with a command or a url."]
    return "\n".join(lines) + "\n"
