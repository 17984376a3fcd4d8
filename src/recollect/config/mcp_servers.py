"""MCP servers in the settings file: one table `[mcp.NAME]` each, with a command to start or a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from recollect.errors import InvalidConfig

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_SECRET = re.compile(r"(?i)key|token|secret|pass")
_MASK = "********"
_MAX_TIMEOUT = 3600  # seconds; a longer time for one tool call is a mistake in the unit
SERVER_KEYS = ("command", "url", "env", "headers", "folder", "timeout", "enabled", "approve")


class McpServer(NamedTuple):
    """An MCP server: a command to start, or a URL."""

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    folder: str | None = None
    timeout: float = 30
    enabled: bool = True
    approve: tuple[str, ...] | str = ()
    """The tools that run without approval, by their names on the server, or "all"."""

    @property
    def summary(self) -> str:
        """The command or URL as it may be displayed, with environment, headers and keys masked."""
        from recollect.config.settings import mask_url  # noqa: PLC0415

        text = " ".join(_mask_command(self.command)) if self.command else mask_url(self.url or "")
        text += "".join(f" {name}={_MASK}" for name in (*self.env, *self.headers))
        return text if self.enabled else f"{text} (not enabled)"


def _mask_command(command: tuple[str, ...]) -> list[str]:
    """Mask the value of an option such as --token, after `=` or in the next word."""
    words: list[str] = []
    hide = False
    for word in command:
        name, equals, _ = word.partition("=")
        is_secret = bool(_SECRET.search(name)) and name.startswith("-")
        if hide and not word.startswith("-"):
            words.append(_MASK)
        else:
            words.append(f"{name}={_MASK}" if is_secret and equals else word)
        hide = is_secret and not equals
    return words


def parse_server_tables(tables: Any) -> list[McpServer]:
    """Return the servers of a parsed file. Raise InvalidConfig, with the setting as `name`, for the first problem."""
    if not isinstance(tables, dict):
        raise InvalidConfig(
            "mcp must be a table. Write [mcp.NAME] on a separate line, and its keys below it.", name="mcp"
        )
    return [_parse_server(name, table) for name, table in tables.items()]


def _parse_server(name: str, table: Any) -> McpServer:
    table_name = f"mcp.{name}"
    if not isinstance(table, dict):
        raise InvalidConfig(
            f"{table_name} must be a table. Write [{table_name}] on a separate line, and its keys below it.",
            name=table_name,
        )
    if not _NAME.match(name):
        raise InvalidConfig(
            f"the name of a server must have at most 32 letters, digits, - and _, got {name!r}.", name=table_name
        )
    for key, raw in table.items():
        if key not in SERVER_KEYS:
            raise InvalidConfig(
                f"unknown setting {table_name}.{key}. The settings of a server are: {', '.join(SERVER_KEYS)}.",
                name=f"{table_name}.{key}",
            )
        expected = _type_problem(key, raw)
        if expected is not None:
            raise InvalidConfig(f"{table_name}.{key} must be {expected}.", name=f"{table_name}.{key}")
    if ("command" in table) == ("url" in table):
        raise InvalidConfig(f"[{table_name}] must have either a command or a url.", name=table_name)
    for key, required in (("env", "command"), ("folder", "command"), ("headers", "url")):
        if key in table and required not in table:
            raise InvalidConfig(f"{table_name}.{key} requires a {required}.", name=f"{table_name}.{key}")
    lists = {key: tuple(table[key]) for key in ("command", "approve") if isinstance(table.get(key), list)}
    fields: dict[str, Any] = {**table, **lists}
    return McpServer(name, **fields)


def _type_problem(key: str, raw: Any) -> str | None:
    """Return the type that a key must have, or None if the value has it."""
    match key:
        case "command":
            valid = isinstance(raw, list) and bool(raw) and all(isinstance(word, str) and word for word in raw)
            expected = 'a list of strings, such as ["some-server", "--read-only"]'
        case "approve":
            valid = raw == "all" or (isinstance(raw, list) and all(isinstance(word, str) and word for word in raw))
            expected = 'a list of tool names, such as ["search"], or "all"'
        case "env" | "headers":
            valid = isinstance(raw, dict) and all(isinstance(value, str) for value in raw.values())
            expected = 'a table of strings, such as { NAME = "value" }'
        case "timeout":
            valid = isinstance(raw, int | float) and not isinstance(raw, bool) and 0 < raw <= _MAX_TIMEOUT
            expected = f"a number of seconds between 0 and {_MAX_TIMEOUT}"
        case "enabled":
            valid, expected = isinstance(raw, bool), "true or false"
        case "url":
            valid = isinstance(raw, str) and raw.startswith(("http://", "https://"))
            expected = "a URL in quotes that begins with http:// or https://"
        case _:
            valid, expected = isinstance(raw, str) and bool(raw.strip()), "a path in quotes"
    return None if valid else expected
