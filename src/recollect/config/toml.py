"""The file: which settings are in it, and on which line. What is wrong in it is an error that names the line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from recollect.config.settings import SETTINGS, Setting
from recollect.config.values import told, typed
from recollect.errors import InvalidConfig

if TYPE_CHECKING:
    from recollect.config.servers import McpServer

_SERVERS = "mcp"


def read(path: str) -> str:
    """Read the file's text."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            return handle.read()
    except OSError as error:
        raise InvalidConfig(f"{path} can not be read: {error.strerror or error}.", path=path, line=None) from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text. Save it as UTF-8.", path=path, line=None) from error


def settings(path: str, text: str) -> list[tuple[Setting, Any, Any]]:
    """Give each setting that is in the file, with its value and what was written."""
    try:
        data = _parsed(text)
        known = list(_known({key: raw for key, raw in data.items() if key != _SERVERS}))
        _servers(data)
        _check_one_place(known)
    except _Wrong as wrong:
        line = wrong.line or lines(text).get(wrong.name) or 1
        raise InvalidConfig(f"{path}, line {line}: {wrong}", path=path, line=line) from wrong.__cause__
    return [(setting, typed(setting, raw, os.path.dirname(path)), raw) for setting, raw in known]


def servers(text: str) -> list[McpServer]:
    """Give the MCP servers of a file that settings() has read."""
    return _servers(_parsed(text))


def _servers(data: dict[str, Any]) -> list[McpServer]:
    from recollect.config import servers as tables  # noqa: PLC0415  most files name none

    try:
        return tables.read(data[_SERVERS]) if _SERVERS in data else []
    except tables.Wrong as error:
        raise _Wrong(str(error), error.name) from error


def _check_one_place(known: list[tuple[Setting, Any]]) -> None:
    if {"db.path", "db.url"} <= {setting.name for setting, _ in known}:
        raise _Wrong("[db] has a path and a url. Keep one of them.", "db.url")


class _Wrong(ValueError):
    """What is wrong in a file, and under which name; the line is found when the sentence is made."""

    def __init__(self, reason: str, name: str = "", line: int = 0) -> None:
        super().__init__(reason)
        self.name, self.line = name, line


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        digits = "".join(char for char in place.partition(",")[0] if char.isdecimal())
        line = int(digits) if digits else max(len(text.splitlines()), 1)
        raise _Wrong(f"this is not TOML ({reason[:1].lower()}{reason[1:]}).", line=line) from error
    except RecursionError as error:
        raise _Wrong("this is nested too deeply.", line=1) from error


def _known(data: dict[str, Any], above: str = "") -> Iterator[tuple[Setting, Any]]:
    """Go through a parsed file and give each setting with what was written; an unknown name is an error."""
    for key, raw in data.items():
        name = f"{above}{key}"
        if name in SETTINGS:
            try:
                typed(SETTINGS[name], raw, "")
            except ValueError as error:
                raise _Wrong(f"{name} is {error}; got {told(SETTINGS[name], raw)}.", name) from error
            yield SETTINGS[name], raw
        elif any(known.startswith(f"{name}.") for known in SETTINGS):
            if not isinstance(raw, dict):
                raise _Wrong(f"{name} is a table: write [{name}] on a line of its own, and its keys below it.", name)
            yield from _known(raw, f"{name}.")
        else:
            raise _Wrong(_unknown(name, is_table=isinstance(raw, dict)), name)


def _unknown(name: str, *, is_table: bool) -> str:
    """Say that a name is not known, and which one comes nearest."""
    import difflib  # noqa: PLC0415  only who made a mistake pays for it

    tables = {known.rpartition(".")[0] for known in SETTINGS} | {known.partition(".")[0] for known in SETTINGS}
    known = sorted(tables | {_SERVERS}) if is_table else list(SETTINGS)
    same = [] if is_table else [other for other in known if other.rpartition(".")[2] == name.rpartition(".")[2]]
    near = same or difflib.get_close_matches(name, known, 1, 0.6)
    what = f"there is no table [{name}]" if is_table else f"there is no setting {name}"
    if not near:
        return f"{what}. The {'tables' if is_table else 'settings'} are: {', '.join(known)}."
    meant = f"[{near[0]}]" if is_table else near[0]
    return f"{what}. Did you mean {meant}?"


def lines(text: str) -> dict[str, int]:
    """Find the line of each name in a file.

    tomllib keeps no lines. The file is parsed up to each of its lines in turn: a name belongs to the first line of the
    stretch that brings it. That is exact whatever the notation, and only errors and `recollect config` ask for it.
    """
    found: dict[str, int] = {}
    written = text.split("\n")
    begun = 0
    for number in range(1, len(written) + 1):
        try:
            data = tomllib.loads("\n".join(written[:number]).rstrip("\r"))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue  # inside a value that goes over several lines
        stretch = [
            at for at in range(begun, number) if written[at].strip() and not written[at].lstrip().startswith("#")
        ]
        begun = number
        for name in _names(data):
            found.setdefault(name, stretch[0] + 1 if stretch else number)
    return found


def _names(data: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in data.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _names(value, f"{above}{key}.")
