"""What can be set: the name of each setting in the file, its variable, its option, its type and its default."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from recollect.config import DATABASE

Kind = Literal["path", "url", "text", "address", "secret", "number", "flag", "duration", "texts", "secrets"]
MOST = 1 << 53


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


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("db.path", "path", DATABASE, "The database file.", '"~/conversations.db"', option="--db"),
        Setting("db.url", "url", DATABASE, "The database as a URL.", '"sqlite:////data/r.db"', option="--db"),
        Setting("model.name", "text", "RECOLLECT_MODEL", "The model to talk to, with its provider.", '"anthropic:x"'),
        Setting(
            "model.base_url", "address", "RECOLLECT_BASE_URL", "Where the model is reached.", '"http://localhost:11434/v1"'
        ),
        Setting("model.api_key", "secret", "RECOLLECT_API_KEY", "The key for the provider.", '"..."'),
        Setting(
            "model.context_window", "number", "RECOLLECT_CONTEXT_WINDOW", "How many tokens the model takes.", "200_000"
        ),
        Setting(
            "retention.max_age", "duration", "RECOLLECT_MAX_AGE",
            "Conversations without activity for longer go to the trash. Not set: never.", '"365d"',
        ),
        Setting(
            "retention.max_messages", "number", "RECOLLECT_MAX_MESSAGES",
            "The most messages that a conversation keeps; older ones are deleted. Not set: all.", "10_000",
        ),
        Setting("server.host", "text", "RECOLLECT_HOST", "The address to listen on.", '"127.0.0.1"', "127.0.0.1"),
        Setting("server.port", "number", "RECOLLECT_PORT", "The port to listen on.", "8765", 8765, most=65_535),
        Setting("server.token", "secret", "RECOLLECT_TOKEN", "What a client must know. Not set: made once.", '"..."'),
        Setting(
            "server.hosts", "texts", "RECOLLECT_HOSTS", "Other names that the server is reached by, through a proxy.",
            '["chat.example.org"]', (),
        ),
        Setting(
            "server.owners", "secrets", "RECOLLECT_OWNERS", "Whose token each is, for several people on PostgreSQL.",
            '{ alice = "...", bob = "..." }',
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
        Setting("channels.telegram.token", "secret", "RECOLLECT_TELEGRAM_TOKEN", "The token of the bot.", '"..."'),
        Setting(
            "channels.telegram.allow", "texts", "RECOLLECT_TELEGRAM_ALLOW", "The ids of the users who may talk to it.",
            '["1234"]', (),
        ),
    )
}  # fmt: skip
