"""Groups of commands that load a command when it is asked for, and the options that every command has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

DATABASE = "recollect.database"
OWNER = "recollect.owner"

_NAMES = {
    "--db": (DATABASE, "PATH_OR_URL", "The database to use, instead of RECOLLECT_DB and the configuration."),
    "--owner": (OWNER, "OWNER", "Whose conversations, instead of RECOLLECT_OWNER and the configuration."),
}


def _everywhere(own: list[click.Parameter]) -> list[click.Option]:
    """Make the options that say which store: before the command or after it, the last one counts."""
    taken = {name for parameter in own for name in parameter.opts}
    return [_naming(option, *told) for option, told in _NAMES.items() if option not in taken]


def _naming(option: str, key: str, metavar: str, told: str) -> click.Option:
    def remember(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.meta[key] = value

    return click.Option([option], metavar=metavar, expose_value=False, callback=remember, help=told)


class Command(click.Command):
    """A command that takes --db and --owner."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _everywhere(self.params)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return -h and --help, also if the command is run without its group, whose settings say so."""
        return ["-h", "--help"]


class Group(click.Group):
    """A group that knows the names and the first lines of its commands, and loads one when it is used.

    `lazy` says for each name where the command is ("module:name") and what its help begins with.
    """

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}
        self.params += _everywhere(self.params)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands, in the order in which they are useful."""
        return [*self.lazy, *(name for name in self.commands if name not in self.lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command, or give None where there is none."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            module, _, name = self.lazy[cmd_name][0].partition(":")
            self.add_command(getattr(import_module(module), name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; a mistyped one is answered with the nearest."""
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = self._deeper(ctx, name) or self._alike(ctx, name)
        hint = (
            f" Did you mean {' or '.join(map(repr, near))}?"
            if near
            else f" There is: {', '.join(self.list_commands(ctx))}."
        )
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def _deeper(self, ctx: click.Context, name: str) -> list[str]:
        """Find a command in the groups of this one: "list" is "sessions list" to who forgot the group."""
        groups = {group: self.get_command(ctx, group) for group in self.list_commands(ctx)}
        return [
            f"{group} {name}"
            for group, held in groups.items()
            if isinstance(held, Group) and name in held.list_commands(ctx)
        ]

    def _alike(self, ctx: click.Context, name: str) -> list[str]:
        from difflib import get_close_matches  # noqa: PLC0415  only who made a mistake pays for it

        return get_close_matches(name, self.list_commands(ctx), 1, 0.5)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help without loading them."""
        known = {name: command.get_short_help_str(200) for name, command in self.commands.items()}
        known |= {name: told for name, (_, told) in self.lazy.items()}
        if known:
            with formatter.section("Commands"):
                formatter.write_dl([(name, known[name]) for name in self.list_commands(ctx)])
