"""What can be set: the name of each setting in the file, its variable, its option, its type and its default."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from recollect.config import DATABASE, OWNER

Kind = Literal["path", "url", "text", "address", "secret", "number", "flag", "duration", "texts", "secrets"]
MOST = 1 << 53
LOG_LEVELS = ("debug", "info", "warning", "error")


class Setting(NamedTuple):
    """One thing that can be set: its name in the file, its variable, and the option that sets it for one command."""

    name: str
    kind: Kind
    variable: str
    help: str
    example: str
    default: Any = None
    option: str | None = None
    most: int = MOST
    choices: tuple[str, ...] = ()


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("db.path", "path", DATABASE, "The database file.", '"~/conversations.db"', option="--db"),
        Setting(
            "db.url", "url", DATABASE, "The database as a URL.",
            '"postgresql://app@db.example.com/talks"', option="--db",
        ),
        Setting(
            "db.owner", "text", OWNER, "Whose conversations they are, where several people share a database.", '"ann"',
            option="--owner",
        ),
        Setting(
            "model.name", "text", "RECOLLECT_MODEL", "The model to talk to, with its provider.",
            '"anthropic:some-model"',
        ),
        Setting(
            "model.base_url", "address", "RECOLLECT_BASE_URL", "Where the model is reached.", '"http://localhost:11434/v1"'
        ),
        Setting("model.api_key", "secret", "RECOLLECT_API_KEY", "The key for the provider.", '"..."'),
        Setting(
            "model.context_window", "number", "RECOLLECT_CONTEXT_WINDOW", "How many tokens the model takes.", "200_000"
        ),
        Setting(
            "retention.max_age", "duration", "RECOLLECT_MAX_AGE",
            "Conversations without activity or change for longer go to the trash. Not set: never.", '"365d"',
        ),
        Setting(
            "retention.max_messages", "number", "RECOLLECT_MAX_MESSAGES",
            "The most messages that a conversation keeps; older ones are deleted. Not set: all.", "10_000",
        ),
        Setting("server.host", "text", "RECOLLECT_HOST", "The address to listen on.", '"127.0.0.1"', "127.0.0.1"),
        Setting("server.port", "number", "RECOLLECT_PORT", "The port to listen on.", "8765", 8765, most=65_535),
        Setting(
            "server.token", "secret", "RECOLLECT_TOKEN",
            "Access token, of 32 characters or more. Generated on first start if unset.", '"..."',
        ),
        Setting(
            "server.hosts", "texts", "RECOLLECT_HOSTS", "Other names that the server is reached by, through a proxy.",
            '["chat.example.org"]', (),
        ),
        Setting(
            "server.owners", "secrets", "RECOLLECT_OWNERS", "Whose token each is, for several people on PostgreSQL.",
            '{ alice = "...", bob = "..." }',
        ),
        Setting(
            "server.log_level", "text", "RECOLLECT_LOG_LEVEL",
            "The least severe messages that the server logs on standard error.", '"warning"', "info",
            choices=LOG_LEVELS,
        ),
        Setting(
            "channels.terminal.markdown", "flag", "RECOLLECT_MARKDOWN",
            "Whether Markdown is laid out in a terminal, or shown as it was written.", "false", default=True,
        ),
        Setting("channels.discord.token", "secret", "RECOLLECT_DISCORD_TOKEN", "The token of the bot.", '"..."'),
        Setting(
            "channels.discord.allow", "texts", "RECOLLECT_DISCORD_ALLOW", "The ids of the users who may talk to it.",
            '["1234"]', (),
        ),
        Setting(
            "channels.discord.guilds", "texts", "RECOLLECT_DISCORD_GUILDS",
            "The ids of the servers in which everybody may talk to it.", '["1234"]', (),
        ),
        Setting(
            "channels.discord.roles", "texts", "RECOLLECT_DISCORD_ROLES",
            "The ids of the roles that may talk to it, in the servers that they belong to.", '["1234"]', (),
        ),
        Setting(
            "channels.discord.base_url", "address", "RECOLLECT_DISCORD_BASE_URL",
            "The API, where it is not Discord's own: a proxy that is in front of it.", '"http://localhost:3000/api/v10"',
        ),
        Setting(
            "channels.discord.max_file_size", "number", "RECOLLECT_DISCORD_MAX_FILE_SIZE",
            "The most bytes that a file may have which somebody sends.", "5_000_000", 20_000_000,
        ),
        Setting(
            "channels.discord.search_everything", "flag", "RECOLLECT_DISCORD_SEARCH_EVERYTHING",
            "Whether searches find what was said elsewhere, or only what was said in the same place.", "true",
            default=False,
        ),
        Setting(
            "channels.discord.inherit", "flag", "RECOLLECT_DISCORD_INHERIT",
            "Whether a new thread begins with the history of its channel.", "true", default=False,
        ),
        Setting(
            "channels.discord.catch_up", "duration", "RECOLLECT_DISCORD_CATCH_UP",
            "How old a message may be that came while the bot was away, to be answered still. Not set: a day.", '"7d"',
        ),
        Setting("channels.telegram.token", "secret", "RECOLLECT_TELEGRAM_TOKEN", "The token of the bot.", '"..."'),
        Setting(
            "channels.telegram.allow", "texts", "RECOLLECT_TELEGRAM_ALLOW", "The ids of the users who may talk to it.",
            '["1234"]', (),
        ),
        Setting(
            "channels.telegram.chats", "texts", "RECOLLECT_TELEGRAM_CHATS",
            "The ids of the groups in which everybody may talk to it.", '["-100123"]', (),
        ),
        Setting(
            "channels.telegram.base_url", "address", "RECOLLECT_TELEGRAM_BASE_URL",
            "The Bot API server, where it is not Telegram's own.", '"http://localhost:8081"', "https://api.telegram.org",
        ),
        Setting(
            "channels.telegram.max_file_size", "number", "RECOLLECT_TELEGRAM_MAX_FILE_SIZE",
            "The most bytes that a file may have which somebody sends.", "5_000_000", 20_000_000,
        ),
        Setting(
            "channels.telegram.search_everything", "flag", "RECOLLECT_TELEGRAM_SEARCH_EVERYTHING",
            "Whether searches find what was said elsewhere, or only what was said in the same chat.", "true",
            default=False,
        ),
        Setting(
            "channels.telegram.inherit", "flag", "RECOLLECT_TELEGRAM_INHERIT",
            "Whether a new topic begins with the history of its group.", "true", default=False,
        ),
    )
}  # fmt: skip
