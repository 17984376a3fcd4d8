"""The settings file: parsing, the line of each setting, and errors that name the line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from recollect.config.settings import SETTINGS, Setting, format_received, parse_raw
from recollect.errors import InvalidConfig

if TYPE_CHECKING:
    from recollect.config.mcp_servers import McpServer

_SERVERS_TABLE = "mcp"


def read_text(path: str) -> str:
    """Return the text of the file. Raise InvalidConfig if it cannot be read or is not UTF-8."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            return handle.read()
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror or error}.", path=path, line=None) from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text. Save it as UTF-8.", path=path, line=None) from error


def parse_settings(path: str, text: str) -> list[tuple[Setting, Any, Any]]:
    """Return each setting in the file with its value and its raw value. Raise InvalidConfig for the first problem."""
    try:
        data = _parse_toml(text)
        settings = list(_known_settings({key: raw for key, raw in data.items() if key != _SERVERS_TABLE}))
        _servers_of(data)
        _check_one_database(settings)
    except _FileProblem as problem:
        line = problem.line or line_numbers(text).get(problem.name) or 1
        raise InvalidConfig(f"{path}, line {line}: {problem}", path=path, line=line) from problem.__cause__
    return [(setting, parse_raw(setting, raw, os.path.dirname(path)), raw) for setting, raw in settings]


def parse_servers(text: str) -> list[McpServer]:
    """Return the MCP servers of a file that parse_settings() accepted."""
    return _servers_of(_parse_toml(text))


def _servers_of(data: dict[str, Any]) -> list[McpServer]:
    from recollect.config import mcp_servers as tables  # noqa: PLC0415  most files have no servers

    try:
        return tables.parse_server_tables(data[_SERVERS_TABLE]) if _SERVERS_TABLE in data else []
    except InvalidConfig as error:
        raise _FileProblem(str(error), error.fields["name"]) from error


def _check_one_database(settings: list[tuple[Setting, Any]]) -> None:
    if {"db.path", "db.url"} <= {setting.name for setting, _ in settings}:
        raise _FileProblem("[db] must have either a path or a url, got both.", "db.url")


class _FileProblem(ValueError):
    """A problem in a file, with the name of the setting; the line is looked up when the message is built."""

    def __init__(self, reason: str, name: str = "", line: int = 0) -> None:
        super().__init__(reason)
        self.name, self.line = name, line


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, location = str(error).partition(" (at ")
        digits = "".join(char for char in location.partition(",")[0] if char.isdecimal())
        line = int(digits) if digits else max(len(text.splitlines()), 1)
        raise _FileProblem(f"invalid TOML ({reason[:1].lower()}{reason[1:]}).", line=line) from error
    except RecursionError as error:
        raise _FileProblem("the file is nested too deeply.", line=1) from error


def _known_settings(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[Setting, Any]]:
    """Yield each setting of a parsed file with its raw value. Raise for an unknown name or a wrong type."""
    for key, raw in data.items():
        name = f"{prefix}{key}"
        if name in SETTINGS:
            try:
                parse_raw(SETTINGS[name], raw, "")
            except ValueError as error:
                raise _FileProblem(
                    f"{name} must be {error}, got {format_received(SETTINGS[name], raw)}.", name
                ) from error
            yield SETTINGS[name], raw
        elif any(setting_name.startswith(f"{name}.") for setting_name in SETTINGS):
            if not isinstance(raw, dict):
                raise _FileProblem(
                    f"{name} must be a table. Write [{name}] on a separate line, and its keys below it.", name
                )
            yield from _known_settings(raw, f"{name}.")
        else:
            raise _FileProblem(_unknown_name_reason(name, is_table=isinstance(raw, dict)), name)


def _unknown_name_reason(name: str, *, is_table: bool) -> str:
    """Return the message for an unknown name, with the most similar known one."""
    import difflib  # noqa: PLC0415  only needed for an error

    tables = {other.rpartition(".")[0] for other in SETTINGS} | {other.partition(".")[0] for other in SETTINGS}
    candidates = sorted(tables | {_SERVERS_TABLE}) if is_table else list(SETTINGS)
    same_key = (
        [] if is_table else [other for other in candidates if other.rpartition(".")[2] == name.rpartition(".")[2]]
    )
    suggestions = same_key or difflib.get_close_matches(name, candidates, 1, 0.6)
    problem = f"unknown table [{name}]" if is_table else f"unknown setting {name}"
    if not suggestions:
        return f"{problem}. The {'tables' if is_table else 'settings'} are: {', '.join(candidates)}."
    suggestion = f"[{suggestions[0]}]" if is_table else suggestions[0]
    return f"{problem}. Did you mean {suggestion}?"


def line_numbers(text: str) -> dict[str, int]:
    """Return the line number of each name in a file.

    tomllib has no line numbers. The file is parsed up to each of its lines in turn, and a name belongs to the first
    line of the range that adds it. This is exact for every notation. Only errors and `recollect config` need it.
    """
    numbers: dict[str, int] = {}
    lines = text.split("\n")
    start = 0
    for number in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("\n".join(lines[:number]).rstrip("\r"))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue  # inside a value that spans several lines
        new_lines = [
            index
            for index in range(start, number)
            if lines[index].strip() and not lines[index].lstrip().startswith("#")
        ]
        start = number
        for name in _dotted_names(data):
            numbers.setdefault(name, new_lines[0] + 1 if new_lines else number)
    return numbers


def _dotted_names(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted_names(value, f"{prefix}{key}.")
