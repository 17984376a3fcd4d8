"""The effective settings: values from the file, the environment and the options, with the source of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recollect.config import DATABASE, config_file, config_file_exists, default_database
from recollect.config.settings import SETTINGS, Setting, format_received, is_url, mask_value, parse_text
from recollect.errors import InvalidConfig

if TYPE_CHECKING:
    from recollect.config.mcp_servers import McpServer

Source = Literal["default", "file", "environment", "option"]


class SettingValue(NamedTuple):
    """The value of a setting, the raw value as written, and its origin: a variable, an option or a file."""

    setting: Setting
    value: Any
    raw: Any
    source: Source
    origin: str | None = None

    @property
    def display_value(self) -> Any:
        """The value as it may be displayed, with secrets and passwords masked."""
        return mask_value(self.setting, self.raw)


class Config:
    """The effective settings: `config["server.port"]` is a value, `config.values` holds all with their sources."""

    def __init__(self, file: str, text: str | None, values: dict[str, SettingValue]) -> None:
        self.file = file
        self.values = values
        self._text = text

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    @property
    def exists(self) -> bool:
        """True if the settings file exists."""
        return self._text is not None

    @property
    def database(self) -> str:
        """The path or URL of the database, as recollect.open() accepts it."""
        return self["db.url"] or self["db.path"]

    @property
    def servers(self) -> list[McpServer]:
        """The MCP servers of the file, including disabled ones."""
        if self._text is None:
            return []
        from recollect.config import toml_file  # noqa: PLC0415

        return toml_file.parse_servers(self._text)

    def lines(self) -> dict[str, int]:
        """Return the line number of each setting in the file."""
        from recollect.config import toml_file  # noqa: PLC0415

        return toml_file.line_numbers(self._text or "")


def load_config(options: Mapping[str, str | None] | None = None) -> Config:
    """Read the file, the environment and the options (`{"--db": "a.db"}`); later ones override earlier ones."""
    path = config_file()
    text = _read_text(path) if config_file_exists(path) else None
    values = {
        name: SettingValue(setting, setting.default, setting.default, "default") for name, setting in SETTINGS.items()
    }
    default = default_database()
    values["db.path"] = values["db.path"]._replace(value=default, raw=default)
    layers = [_from_file(path, text) if text is not None else (), _from_environment(), _from_options(options or {})]
    for layer in layers:
        for item in layer:
            if item.setting.name in ("db.path", "db.url"):
                _unset(values, "db.url" if item.setting.name == "db.path" else "db.path")
                if item.source != "file" and values["db.owner"].source == "file":
                    _unset(values, "db.owner")  # the owner in the file only applies to the database in the file
            values[item.setting.name] = item
    return Config(path, text, values)


def _unset(values: dict[str, SettingValue], name: str) -> None:
    values[name] = SettingValue(SETTINGS[name], None, None, "default")


def _read_text(path: str) -> str:
    from recollect.config import toml_file  # noqa: PLC0415

    return toml_file.read_text(path)


def _from_file(path: str, text: str) -> Iterator[SettingValue]:
    from recollect.config import toml_file  # noqa: PLC0415  costs 10 ms, not needed without a file

    for setting, value, raw in toml_file.parse_settings(path, text):
        yield SettingValue(setting, value, raw, "file", path)


def _from_environment() -> Iterator[SettingValue]:
    for setting in SETTINGS.values():
        text = os.environ.get(setting.variable)
        if text and (setting.variable != DATABASE or _matches_database_kind(setting, text)):
            yield _parse_value(setting, text, "environment", setting.variable)


def _from_options(options: Mapping[str, str | None]) -> Iterator[SettingValue]:
    for setting in SETTINGS.values():
        text = options.get(setting.option or "")
        if text == "" and setting.kind == "text":
            yield SettingValue(
                setting, None, None, "option", setting.option
            )  # an empty option selects the default owner
        elif text and setting.option and (setting.option != "--db" or _matches_database_kind(setting, text)):
            yield _parse_value(setting, text, "option", setting.option)


def _matches_database_kind(setting: Setting, text: str) -> bool:
    """Return whether a text is for this setting: RECOLLECT_DB and --db take a path or a URL."""
    return (setting.kind == "url") == is_url(text)


def _parse_value(setting: Setting, text: str, source: Source, origin: str) -> SettingValue:
    try:
        return SettingValue(setting, parse_text(setting, text), text, source, origin)
    except ValueError as error:
        raise InvalidConfig(
            f"{origin} must be {error}, got {format_received(setting, text)}.", path=None, line=None
        ) from error
