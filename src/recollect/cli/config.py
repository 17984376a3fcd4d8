"""`recollect config`: the settings and the source of each."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

import click

from recollect import config as configuration
from recollect.cli import options, store_access
from recollect.cli.group import LazyGroup
from recollect.cli.json_output import print_json
from recollect.cli.output import Cell, Column, glyph, is_terminal, paint, print_note, print_table, sanitize
from recollect.errors import FileExists

_COLUMNS = (
    Column("SETTING", style={"bold": True}),
    Column("VALUE", min_width=16),
    Column("SOURCE", min_width=20, style={"fg": "cyan"}),
    Column("VARIABLE", drop=1, style={"dim": True}),
)


@click.group(cls=LazyGroup, invoke_without_command=True)
@options.as_json
@click.pass_context
def config(context: click.Context, as_json: bool) -> None:
    """Show the settings and their sources.

    Options override environment variables, and these override the configuration file. Secrets are masked. On a pipe,
    each line has tab-separated fields: setting, value, source, variable.
    """
    if context.invoked_subcommand is not None:
        return
    settings = store_access.load_settings()
    lines = settings.lines() if settings.exists else {}
    rows = [_row(item, lines.get(name)) for name, item in settings.values.items()]
    rows += [_server_row(server, settings.file, lines.get(f"mcp.{server.name}")) for server in settings.servers]
    if as_json:
        print_json({"file": settings.file, "exists": settings.exists, "settings": rows})
        return
    if is_terminal():
        location = (
            settings.file
            if settings.exists
            else f"{settings.file} (does not exist; `recollect config init` creates it)"
        )
        click.echo(paint(sanitize(location), dim=True))
    print_table(_COLUMNS, [_cells(row) for row in rows])
    _warn_if_readable(settings.file, rows)


def _row(item: Any, line: int | None) -> dict[str, Any]:
    return {
        "name": item.setting.name,
        "value": item.display_value,
        "source": item.source,
        "place": item.origin,
        "line": line if item.source == "file" else None,
        "variable": item.setting.variable,
    }


def _server_row(server: Any, file: str, line: int | None) -> dict[str, Any]:
    return {
        "name": f"mcp.{server.name}", "value": server.summary, "source": "file", "place": file, "line": line,
        "variable": None,
    }  # fmt: skip


def _cells(row: dict[str, Any]) -> list[Cell]:
    value = row["value"]
    formatted = (
        ", ".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value
    )
    text = "" if value is None else str(formatted)
    source = {"file": f"{row['place']}:{row['line']}", "default": "default"}.get(row["source"]) or str(row["place"])
    is_default = row["source"] == "default"
    label = f"line {row['line']}" if row["source"] == "file" else source
    return [
        Cell(row["name"]),
        Cell(text or glyph("line"), text, {"dim": True} if is_default else {}),
        Cell(label, source, {"dim": True} if is_default else None),
        Cell(row["variable"] or ""),
    ]


def _warn_if_readable(file: str, rows: list[dict[str, Any]]) -> None:
    """Warn if other users can read the secrets in the file."""
    secret = any(row["source"] == "file" and "********" in str(row["value"]) for row in rows)
    if secret and sys.platform != "win32" and os.stat(file).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        print_note(f"Other users can read the secrets in {file}. Run chmod 600 on it.")


@config.command("path")
def path() -> None:
    """Print the path of the configuration file, even if it does not exist."""
    click.echo(sanitize(configuration.config_file()))


@config.command()
def init() -> None:
    """Create a configuration file with every setting commented out.

    Only you can read the file. An existing file is not changed.
    """
    path = configuration.config_file()
    configuration.make_folder(os.path.dirname(path))
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise FileExists(f"{path} already exists and was not changed.") from None
    with open(handle, "w", encoding="utf-8") as file:
        file.write(config_template())
    print_note(f"Created {path}. Every setting in it is commented out.")


@config.command()
def token() -> None:
    """Print a new random token for server.token or server.owners.

    The token is not stored: copy it to the configuration.
    """
    from recollect.server.access_token import generate_token  # noqa: PLC0415

    click.echo(generate_token())


def config_template() -> str:
    """Return a configuration file with every setting as a comment, under its table."""
    from recollect.config.settings import SETTINGS  # noqa: PLC0415

    lines = ["# Settings of Recollect. Environment variables override this file.", ""]
    table = ""
    for setting in SETTINGS.values():
        parent, _, key = setting.name.rpartition(".")
        if parent != table:
            lines += [f"[{parent}]"] if not table else ["", f"[{parent}]"]
            table = parent
        lines += [f"# {setting.help} Variable: {setting.variable}", f"# {key} = {setting.example}"]
    lines += ["", "# MCP servers offer tools to the model. Each has a table [mcp.NAME] with a command or a url."]
    return "\n".join(lines) + "\n"
