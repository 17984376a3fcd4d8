"""The effective settings: what the file, the environment and the options say together, and where each value is from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recollect.config import DATABASE, default_database, file, there
from recollect.config.settings import SETTINGS, Setting
from recollect.config.values import is_url, masked, spoken, told
from recollect.errors import InvalidConfig

if TYPE_CHECKING:
    from recollect.config.servers import McpServer

Source = Literal["default", "file", "environment", "option"]


class Found(NamedTuple):
    """The value of a setting, as it was written, and where: the name of a variable, an option or a file."""

    setting: Setting
    value: Any
    written: Any
    source: Source
    place: str | None = None

    @property
    def shown(self) -> Any:
        """The value as it may be shown: secrets and passwords are masked."""
        return masked(self.setting, self.written)


class Config:
    """The effective settings. `config["server.port"]` is a value, `config.found` says where each came from."""

    def __init__(self, file: str, text: str | None, found: dict[str, Found]) -> None:
        self.file = file
        self.found = found
        self._text = text

    def __getitem__(self, name: str) -> Any:
        return self.found[name].value

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._text is not None

    @property
    def database(self) -> str:
        """Where the store is, as recollect.open() takes it."""
        return self["db.url"] or self["db.path"]

    @property
    def servers(self) -> list[McpServer]:
        """The MCP servers of the file, those that are not enabled included."""
        if self._text is None:
            return []
        from recollect.config import toml  # noqa: PLC0415

        return toml.servers(self._text)

    def lines(self) -> dict[str, int]:
        """Say on which line of the file each setting is."""
        from recollect.config import toml  # noqa: PLC0415

        return toml.lines(self._text or "")


def load(options: Mapping[str, str | None] | None = None) -> Config:
    """Read the file, the environment and the options (`{"--db": "a.db"}`), each over the one before."""
    path = file()
    text = _read(path) if there(path) else None
    found = {name: Found(setting, setting.default, setting.default, "default") for name, setting in SETTINGS.items()}
    default = default_database()
    found["db.path"] = found["db.path"]._replace(value=default, written=default)
    layers = [_from_file(path, text) if text is not None else (), _from_environment(), _from_options(options or {})]
    for layer in layers:
        for item in layer:
            if item.setting.name in ("db.path", "db.url"):
                _unset(found, "db.url" if item.setting.name == "db.path" else "db.path")
                if item.source != "file" and found["db.owner"].source == "file":
                    _unset(found, "db.owner")  # it goes with the database of the file
            found[item.setting.name] = item
    return Config(path, text, found)


def _unset(found: dict[str, Found], name: str) -> None:
    found[name] = Found(SETTINGS[name], None, None, "default")


def _read(path: str) -> str:
    from recollect.config import toml  # noqa: PLC0415

    return toml.read(path)


def _from_file(path: str, text: str) -> Iterator[Found]:
    from recollect.config import toml  # noqa: PLC0415  10 ms that who has no file need not pay

    for setting, value, written in toml.settings(path, text):
        yield Found(setting, value, written, "file", path)


def _from_environment() -> Iterator[Found]:
    for setting in SETTINGS.values():
        text = os.environ.get(setting.variable)
        if text and (setting.variable != DATABASE or _names_database(setting, text)):
            yield _said(setting, text, "environment", setting.variable)


def _from_options(options: Mapping[str, str | None]) -> Iterator[Found]:
    for setting in SETTINGS.values():
        text = options.get(setting.option or "")
        if text == "" and setting.kind == "text":
            yield Found(setting, None, None, "option", setting.option)  # the one that is named by nothing
        elif text and setting.option and (setting.option != "--db" or _names_database(setting, text)):
            yield _said(setting, text, "option", setting.option)


def _names_database(setting: Setting, text: str) -> bool:
    """Say which of two settings is meant: RECOLLECT_DB and --db take a path or a URL."""
    return (setting.kind == "url") == is_url(text)


def _said(setting: Setting, text: str, source: Source, place: str) -> Found:
    try:
        return Found(setting, spoken(setting, text), text, source, place)
    except ValueError as error:
        raise InvalidConfig(f"{place} is {error}; got {told(setting, text)}.", path=None, line=None) from error
