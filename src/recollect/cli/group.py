"""Command groups that load a command on first use, and the options that every command has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

DATABASE = "recollect.database"
OWNER = "recollect.owner"

_STORE_OPTIONS = {
    "--db": (DATABASE, "PATH_OR_URL", "Database to use instead of RECOLLECT_DB and the configuration."),
    "--owner": (
        OWNER,
        "OWNER",
        'Owner to use instead of RECOLLECT_OWNER and the configuration ("" is the default owner).',
    ),
}


def _missing_store_options(parameters: list[click.Parameter]) -> list[click.Option]:
    """Return --db and --owner, unless the command defines them. They work before and after it; the last one wins."""
    names = {name for parameter in parameters for name in parameter.opts}
    return [_store_option(option, *details) for option, details in _STORE_OPTIONS.items() if option not in names]


def _store_option(option: str, key: str, metavar: str, help: str) -> click.Option:
    def remember(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.meta[key] = value

    return click.Option([option], metavar=metavar, expose_value=False, callback=remember, help=help)


class StoreCommand(click.Command):
    """A command that takes --db and --owner."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _missing_store_options(self.params)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return -h and --help, even if the command runs without its group, which sets them."""
        return ["-h", "--help"]


class LazyGroup(click.Group):
    """A group that loads a command on first use.

    `lazy` maps the name of a command to its location ("module:name") and the first line of its help.
    """

    command_class = StoreCommand
    group_class = type

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}
        self.params += _missing_store_options(self.params)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands, in the order of the help."""
        return [*self.lazy, *(name for name in self.commands if name not in self.lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; return None if it does not exist."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            module, _, name = self.lazy[cmd_name][0].partition(":")
            self.add_command(getattr(import_module(module), name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the nearest one for a mistyped name."""
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        suggestions = self._nested_commands(ctx, name) or self._similar_commands(ctx, name)
        hint = (
            f" Did you mean {' or '.join(map(repr, suggestions))}?"
            if suggestions
            else f" Commands: {', '.join(self.list_commands(ctx))}."
        )
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def _nested_commands(self, ctx: click.Context, name: str) -> list[str]:
        """Find a command in nested groups: suggest "sessions list" for "list"."""
        groups = {group: self.get_command(ctx, group) for group in self.list_commands(ctx)}
        return [
            f"{group} {name}"
            for group, command in groups.items()
            if isinstance(command, LazyGroup) and name in command.list_commands(ctx)
        ]

    def _similar_commands(self, ctx: click.Context, name: str) -> list[str]:
        from difflib import get_close_matches  # noqa: PLC0415  needed only after a mistake

        return get_close_matches(name, self.list_commands(ctx), 1, 0.5)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help without loading them."""
        help_texts = {name: command.get_short_help_str(200) for name, command in self.commands.items()}
        help_texts |= {name: text for name, (_, text) in self.lazy.items()}
        if help_texts:
            with formatter.section("Commands"):
                formatter.write_dl([(name, help_texts[name]) for name in self.list_commands(ctx)])
