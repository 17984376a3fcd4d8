"""The settings: name, environment variable, option, type and default, and how values are parsed and masked."""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

from recollect.config import DATABASE, OWNER, expand_home
from recollect.errors import InvalidValue

SettingKind = Literal["path", "url", "text", "address", "secret", "number", "flag", "duration", "texts", "secrets"]
MAX_NUMBER = 1 << 53  # every JSON reader reads integers up to here exactly
LOG_LEVELS = ("debug", "info", "warning", "error")


class Setting(NamedTuple):
    """A setting: its name in the file, its environment variable, and its command-line option."""

    name: str
    kind: SettingKind
    variable: str
    help: str
    example: str
    default: Any = None
    option: str | None = None
    maximum: int = MAX_NUMBER
    choices: tuple[str, ...] = ()


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("db.path", "path", DATABASE, "The database file.", '"~/conversations.db"', option="--db"),
        Setting(
            "db.url", "url", DATABASE, "The database as a URL.",
            '"postgresql://app@db.example.com/conversations"', option="--db",
        ),
        Setting(
            "db.owner", "text", OWNER, "The owner of the conversations, if several people share a database.", '"ann"',
            option="--owner",
        ),
        Setting(
            "model.name", "text", "RECOLLECT_MODEL", "The model, with its provider.",
            '"anthropic:some-model"',
        ),
        Setting(
            "model.base_url", "address", "RECOLLECT_BASE_URL", "Base URL of the provider's API.", '"http://localhost:11434/v1"'
        ),
        Setting("model.api_key", "secret", "RECOLLECT_API_KEY", "API key of the provider.", '"..."'),
        Setting(
            "model.context_window", "number", "RECOLLECT_CONTEXT_WINDOW",
            "Number of tokens that the model accepts.", "200_000",
        ),
        Setting(
            "retention.max_age", "duration", "RECOLLECT_MAX_AGE",
            "Conversations that are inactive and unchanged for longer are moved to the trash. Unset: never.", '"365d"',
        ),
        Setting(
            "retention.max_messages", "number", "RECOLLECT_MAX_MESSAGES",
            "Maximum number of messages per conversation; older ones are marked as deleted. Unset: no limit.", "10_000",
        ),
        Setting("server.host", "text", "RECOLLECT_HOST", "The address to listen on.", '"127.0.0.1"', "127.0.0.1"),
        Setting("server.port", "number", "RECOLLECT_PORT", "The port to listen on.", "8765", 8765, maximum=65_535),
        Setting(
            "server.token", "secret", "RECOLLECT_TOKEN",
            "Access token, of 32 characters or more. Generated on first start if unset.", '"..."',
        ),
        Setting(
            "server.hosts", "texts", "RECOLLECT_HOSTS",
            "Additional host names that the server accepts, for use behind a proxy.",
            '["chat.example.org"]', (),
        ),
        Setting(
            "server.owners", "secrets", "RECOLLECT_OWNERS",
            "Access token of each owner, for several people on PostgreSQL.",
            '{ alice = "...", bob = "..." }',
        ),
        Setting(
            "server.log_level", "text", "RECOLLECT_LOG_LEVEL",
            "Minimum severity of the messages that the server logs to standard error.", '"warning"', "info",
            choices=LOG_LEVELS,
        ),
        Setting(
            "sync.enabled", "flag", "RECOLLECT_SYNC",
            "Whether `recollect serve` imports new conversations of other tools as their files grow.", "true",
            default=False,
        ),
        Setting(
            "sync.sources", "texts", "RECOLLECT_SYNC_SOURCES",
            "Tools whose conversations are imported continuously. Unset: all that Recollect can read.",
            '["claude-code", "codex"]', (),
        ),
        Setting(
            "sync.paths", "texts", "RECOLLECT_SYNC_PATHS",
            "Further files and folders with conversations of these tools, as absolute paths.", '["~/transcripts"]', (),
        ),
        Setting(
            "channels.terminal.markdown", "flag", "RECOLLECT_MARKDOWN",
            "Whether the terminal renders Markdown or shows its source.", "false", default=True,
        ),
        Setting("channels.discord.token", "secret", "RECOLLECT_DISCORD_TOKEN", "Token of the bot.", '"..."'),
        Setting(
            "channels.discord.allow", "texts", "RECOLLECT_DISCORD_ALLOW", "Ids of the users who may use the bot.",
            '["1234"]', (),
        ),
        Setting(
            "channels.discord.guilds", "texts", "RECOLLECT_DISCORD_GUILDS",
            "Ids of the servers in which everyone may use the bot.", '["1234"]', (),
        ),
        Setting(
            "channels.discord.roles", "texts", "RECOLLECT_DISCORD_ROLES",
            "Ids of the roles that may use the bot, each in its server.", '["1234"]', (),
        ),
        Setting(
            "channels.discord.base_url", "address", "RECOLLECT_DISCORD_BASE_URL",
            "Base URL of the Discord API, if it is behind a proxy.", '"http://localhost:3000/api/v10"',
        ),
        Setting(
            "channels.discord.max_file_size", "number", "RECOLLECT_DISCORD_MAX_FILE_SIZE",
            "Maximum size of a received file in bytes.", "5_000_000", 20_000_000,
        ),
        Setting(
            "channels.discord.search_everything", "flag", "RECOLLECT_DISCORD_SEARCH_EVERYTHING",
            "Whether searches cover all conversations, or only the current one.", "true",
            default=False,
        ),
        Setting(
            "channels.discord.inherit", "flag", "RECOLLECT_DISCORD_INHERIT",
            "Whether a new thread starts with the history of its channel.", "true", default=False,
        ),
        Setting(
            "channels.discord.catch_up", "duration", "RECOLLECT_DISCORD_CATCH_UP",
            "Maximum age of messages that the bot answers after it was offline. Unset: one day.", '"7d"',
        ),
        Setting("channels.telegram.token", "secret", "RECOLLECT_TELEGRAM_TOKEN", "Token of the bot.", '"..."'),
        Setting(
            "channels.telegram.allow", "texts", "RECOLLECT_TELEGRAM_ALLOW", "Ids of the users who may use the bot.",
            '["1234"]', (),
        ),
        Setting(
            "channels.telegram.chats", "texts", "RECOLLECT_TELEGRAM_CHATS",
            "Ids of the groups in which everyone may use the bot.", '["-100123"]', (),
        ),
        Setting(
            "channels.telegram.base_url", "address", "RECOLLECT_TELEGRAM_BASE_URL",
            "Base URL of the Bot API server.", '"http://localhost:8081"', "https://api.telegram.org",
        ),
        Setting(
            "channels.telegram.max_file_size", "number", "RECOLLECT_TELEGRAM_MAX_FILE_SIZE",
            "Maximum size of a received file in bytes.", "5_000_000", 20_000_000,
        ),
        Setting(
            "channels.telegram.search_everything", "flag", "RECOLLECT_TELEGRAM_SEARCH_EVERYTHING",
            "Whether searches cover all conversations, or only the current one.", "true",
            default=False,
        ),
        Setting(
            "channels.telegram.inherit", "flag", "RECOLLECT_TELEGRAM_INHERIT",
            "Whether a new topic starts with the history of its group.", "true", default=False,
        ),
    )
}  # fmt: skip


_MAX_DIGITS = 19  # characters; int() of a very long text is slow, and no setting needs more
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_SECONDS = {
    "s": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86_400, "day": 86_400,
    "w": 604_800, "week": 604_800, "month": 2_592_000, "y": 31_536_000, "year": 31_536_000,
}  # fmt: skip
_BYTES = {
    "": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_EXPECTED: dict[SettingKind, str] = {
    "path": "a path in quotes",
    "url": 'a URL in quotes, such as "sqlite:////data/recollect.db"',
    "text": "a string in quotes",
    "address": "a URL in quotes",
    "secret": "a string in quotes",
    "number": "a positive integer",
    "flag": "true or false",
    "duration": 'a duration in quotes, such as "90d" or "12h"',
    "texts": 'a list of strings, such as ["one", "two"]',
    "secrets": 'a table of names and strings, such as { alice = "...", bob = "..." }',
}


def parse_raw(setting: Setting, raw: Any, folder: str) -> Any:
    """Convert a raw value to the type of its setting. Raise ValueError with a description of the expected value."""
    expected = _EXPECTED[setting.kind]
    if setting.kind == "flag":
        return _require(isinstance(raw, bool), raw, expected)
    if setting.kind == "number":
        if setting.maximum != MAX_NUMBER:
            expected = f"an integer between 1 and {setting.maximum}"
        return _require(
            isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= setting.maximum, raw, expected
        )
    if setting.kind == "texts":
        valid = isinstance(raw, list) and all(isinstance(item, str) and item for item in raw)
        return tuple(_require(valid, raw, expected))
    if setting.kind == "secrets":
        valid = isinstance(raw, dict) and bool(raw) and all(isinstance(item, str) and item for item in raw.values())
        return dict(_require(valid, raw, expected))
    _require(isinstance(raw, str) and bool(raw.strip()) and "\0" not in raw, raw, expected)
    if setting.choices:
        return _require(raw in setting.choices, raw, "one of " + ", ".join(f'"{choice}"' for choice in setting.choices))
    if setting.kind == "duration":
        return parse_positive_duration(raw)
    if setting.kind == "path":
        return _parse_path(raw, folder)
    return _parse_url(raw, folder) if setting.kind == "url" else raw


def _require(valid: bool, raw: Any, expected: str) -> Any:
    if not valid:
        raise ValueError(expected)
    return raw


def _parse_path(raw: str, folder: str) -> str:
    """Return a path; a relative one is relative to the folder of the settings file."""
    if is_url(raw):
        raise ValueError("a path and not a URL (use the setting url)")
    try:
        return raw if raw == ":memory:" else os.path.join(folder, expand_home(raw))
    except InvalidValue as error:
        raise ValueError("a path whose home folder is known") from error


def _parse_url(raw: str, folder: str) -> str:
    """Return a URL; sqlite:///file is relative to the folder of the settings file."""
    if not is_url(raw):
        raise ValueError("a URL and not a path (use the setting path)")
    rest = raw.removeprefix("sqlite:///")
    if not folder or rest == raw or not rest or rest.startswith(("/", "~", ":memory:")):
        return raw
    from urllib.parse import quote  # noqa: PLC0415  costs 4 ms, not needed for a path

    return f"sqlite:///{quote(os.path.join(folder, ''))}{rest}"


def is_url(text: str) -> bool:
    """Return whether a database is given as a URL rather than a path."""
    return "://" in text or text.startswith("sqlite:")


def parse_text(setting: Setting, text: str) -> Any:
    """Convert the text of a variable or an option to the type of its setting."""
    raw: Any = text
    if setting.kind in ("path", "url"):
        return text  # relative to the current folder; the engine resolves it
    if setting.kind == "number":
        raw = int(text) if text.strip().isdecimal() and len(text) < _MAX_DIGITS else text
    elif setting.kind == "flag":
        raw = text.lower() in _YES if text.lower() in (*_YES, *_NO) else text
    elif setting.kind == "texts":
        raw = [item.strip() for item in text.split(",") if item.strip()]
    elif setting.kind == "secrets":
        pairs = [item.partition("=") for item in text.split(",") if item.strip()]
        raw = {name.strip(): token.strip() for name, _, token in pairs}
    try:
        return parse_raw(setting, raw, "")
    except ValueError as error:
        raise ValueError(str(error).replace(" in quotes", "").replace('"', "")) from error


def parse_positive_duration(text: str) -> int:
    """Return a duration such as "90d", "1h30m" or "2 weeks" in milliseconds, at least 1."""
    total = parse_duration_text(text)
    if total is None:
        raise ValueError(_EXPECTED["duration"])
    if not 1 <= total <= MAX_NUMBER:
        raise ValueError('a duration of at least one millisecond, such as "90d"')
    return int(total)


def parse_duration_text(text: str) -> float | None:
    """Return a duration, which may be 0, in milliseconds; None if the text is not a duration."""
    pairs = _split_units(text)
    if not pairs or any(unit not in _SECONDS for _, unit in pairs):
        return None
    return sum(number * _SECONDS[unit] * 1000 for number, unit in pairs)


def parse_size(text: str) -> int:
    """Return a size such as "2GB", "500 MiB" or "4096" in bytes."""
    pairs = _split_units(text)
    if len(pairs) != 1 or pairs[0][1] not in _BYTES or not 1 <= pairs[0][0] * _BYTES[pairs[0][1]] <= MAX_NUMBER:
        raise ValueError('a size such as "2GB" or "500MiB"')
    return int(pairs[0][0] * _BYTES[pairs[0][1]])


def _split_units(text: str) -> list[tuple[float, str]]:
    """Split "1h30m" into numbers and units; return an empty list for any other text."""
    import re  # noqa: PLC0415

    plain = text.strip().lower().replace("_", "")
    pattern = re.compile(r"(\d{1,16}(?:\.\d{1,9})?)\s*([a-z]*)[\s,]*", re.ASCII)
    if pattern.sub("", plain):
        return []
    return [(float(number), _singular(unit)) for number, unit in pattern.findall(plain)]


def _singular(unit: str) -> str:
    return unit[:-1] if unit.endswith("s") and len(unit) > 3 else unit  # noqa: PLR2004  "days", but not "ms"


def format_received(setting: Setting, raw: Any) -> str:
    """Return a raw value for an error message; secrets are not repeated."""
    return "a different value" if setting.kind in ("secret", "secrets", "url", "address") else repr(raw)


def mask_value(setting: Setting, raw: Any) -> Any:
    """Return a value as it may be displayed, with secrets and passwords in URLs masked."""
    if setting.kind == "secrets" and raw is not None:
        return "********"
    if not isinstance(raw, str):
        return list(raw) if isinstance(raw, tuple) else raw
    if setting.kind == "secret":
        return "********"
    return mask_url(raw) if is_url(raw) else raw


def mask_url(url: str) -> str:
    """Mask the password in a URL, and keys in its query."""
    import re  # noqa: PLC0415

    scheme, separator, rest = url.partition("://")
    user, at, host_and_path = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    authority = f"{name}{':********' if colon else ''}{at}{host_and_path}"
    return (
        scheme + separator + re.sub(r"(?i)([?&][^=&]*(?:pass|key|token|secret)[^=&]*=)[^&]*", r"\1********", authority)
    )
