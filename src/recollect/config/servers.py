"""MCP servers, one table of the file for each: `[mcp.NAME]`, with a command to start or a URL to reach."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_SECRET = re.compile(r"(?i)key|token|secret|pass")
_HIDDEN = "********"
_LONGEST = 3600
KEYS = ("command", "url", "env", "headers", "folder", "timeout", "enabled", "approve")


class McpServer(NamedTuple):
    """A server with tools for a model: a program that is started, or an address."""

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    folder: str | None = None
    timeout: float = 30
    enabled: bool = True
    approve: tuple[str, ...] | str = ()
    """The tools that run without being asked for, by their names on the server, or "all"."""

    @property
    def shown(self) -> str:
        """What it is, as it may be shown: without what its environment, headers and keys are."""
        from recollect.config.values import without_password  # noqa: PLC0415

        told = " ".join(_masked(self.command)) if self.command else without_password(self.url or "")
        told += "".join(f" {name}={_HIDDEN}" for name in (*self.env, *self.headers))
        return told if self.enabled else f"{told} (not enabled)"


def _masked(command: tuple[str, ...]) -> list[str]:
    """Hide what follows a word such as --token, or stands after it."""
    shown: list[str] = []
    hide = False
    for word in command:
        name, equals, _ = word.partition("=")
        secret = bool(_SECRET.search(name)) and name.startswith("-")
        if hide and not word.startswith("-"):
            shown.append(_HIDDEN)
        else:
            shown.append(f"{name}={_HIDDEN}" if secret and equals else word)
        hide = secret and not equals
    return shown


class Wrong(ValueError):
    """What is wrong with a server, and under which name."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(reason)
        self.name = name


def read(tables: Any) -> list[McpServer]:
    """Read the servers of a parsed file."""
    if not isinstance(tables, dict):
        raise Wrong("mcp is a table: write [mcp.NAME] on a line of its own, and its keys below it.", "mcp")
    return [_server(name, table) for name, table in tables.items()]


def _server(name: str, table: Any) -> McpServer:
    place = f"mcp.{name}"
    if not isinstance(table, dict):
        raise Wrong(f"{place} is a table: write [{place}] on a line of its own, and its keys below it.", place)
    if not _NAME.match(name):
        raise Wrong(f"{name!r} can not be the name of a server: letters, digits, - and _, at most 32 of them.", place)
    for key, raw in table.items():
        if key not in KEYS:
            raise Wrong(f"there is no setting {place}.{key}. A server has: {', '.join(KEYS)}.", f"{place}.{key}")
        wanted = _wanted(key, raw)
        if wanted is not None:
            raise Wrong(f"{place}.{key} is {wanted}.", f"{place}.{key}")
    if ("command" in table) == ("url" in table):
        raise Wrong(f"[{place}] needs a command or a url, and one of them only.", place)
    for key, needs in (("env", "command"), ("folder", "command"), ("headers", "url")):
        if key in table and needs not in table:
            raise Wrong(f"{place}.{key} goes with a {needs}.", f"{place}.{key}")
    lists = {key: tuple(table[key]) for key in ("command", "approve") if isinstance(table.get(key), list)}
    fields: dict[str, Any] = {**table, **lists}
    return McpServer(name, **fields)


def _wanted(key: str, raw: Any) -> str | None:
    """Say what a key takes, where it was given something else."""
    match key:
        case "command":
            good = isinstance(raw, list) and bool(raw) and all(isinstance(word, str) and word for word in raw)
            wanted = 'a list of texts, such as ["some-server", "--read-only"]'
        case "approve":
            good = raw == "all" or (isinstance(raw, list) and all(isinstance(word, str) and word for word in raw))
            wanted = 'a list of the names of tools, such as ["search"], or "all"'
        case "env" | "headers":
            good = isinstance(raw, dict) and all(isinstance(value, str) for value in raw.values())
            wanted = 'a table of texts, such as { NAME = "value" }'
        case "timeout":
            good = isinstance(raw, int | float) and not isinstance(raw, bool) and 0 < raw <= _LONGEST
            wanted = f"a number of seconds, up to {_LONGEST}"
        case "enabled":
            good, wanted = isinstance(raw, bool), "true or false"
        case "url":
            good = isinstance(raw, str) and raw.startswith(("http://", "https://"))
            wanted = "a URL in quotes that begins with http:// or https://"
        case _:
            good, wanted = isinstance(raw, str) and bool(raw.strip()), "a path in quotes"
    return None if good else wanted
