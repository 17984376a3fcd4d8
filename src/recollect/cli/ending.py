"""How a command ends: the exit statuses, and an error as one sentence."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence

import click

from recollect.cli.screen import complain, safe
from recollect.errors import (
    BranchNotFound,
    Conflict,
    MessageNotFound,
    NotFound,
    RecollectError,
    SessionExists,
    SessionHasForks,
    SessionInTrash,
    SessionNotFound,
    told,
)

OK, ERROR, USAGE, NOT_FOUND, REFUSED, PROBLEMS, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 3, 4, 5, 130, 141
COMPLETE = "_RECOLLECT_COMPLETE"
DEBUG = "RECOLLECT_DEBUG"
_IN_COMMANDS: dict[type[RecollectError], str] = {
    SessionInTrash: "{session!r} is in the trash. `recollect sessions restore {session}` brings it back whole.",
    SessionNotFound: "There is no conversation {session!r}. `recollect sessions list` shows what there is.",
    SessionHasForks: "{session!r} has forks that share its past: {forks}. Add --forks keep to leave them the shared "
    "past, or --forks erase to erase them too.",
    BranchNotFound: "{session!r} has no branch {branch}. `recollect sessions show` names the ones it has.",
    MessageNotFound: "{session!r} has no message {message!r}. `recollect sessions show` prints the ids.",
    SessionExists: "There is a conversation {session!r} already. Choose another id.",
}


class Refused(RecollectError):
    """This was not done, because nobody said yes."""


def run(command: click.Group, arguments: Sequence[str]) -> int:
    """Run a command and give its exit status. Nothing that goes wrong is a traceback, unless RECOLLECT_DEBUG asks."""
    _prepare_streams()
    try:
        status = _run(command, arguments)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001
        status = _status(error)
        _flush_or_drop()
    return status


def _run(command: click.Group, arguments: Sequence[str]) -> int:
    if os.environ.get(COMPLETE):
        from recollect.cli.completion import complete  # noqa: PLC0415

        return complete(command)
    with command.make_context("recollect", list(arguments)) as context:
        command.invoke(context)
    return OK


def _prepare_streams() -> None:
    """Let a terminal that has only ASCII show a question mark where it lacks a letter, instead of failing.

    A stream that is closed goes nowhere, and its number is taken, so that no file of ours gets it.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


def _flush_or_drop() -> None:
    """Write what is still to be written, or let it go nowhere: Python would complain about a closed pipe at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _status(error: BaseException) -> int:
    """Say what went wrong, and give the exit status for it."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        return CLOSED_PIPE
    if os.environ.get(DEBUG) and not isinstance(error, click.ClickException):
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        complain("Interrupted.")
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return _misused(error)
    complain(sentence(error))
    return _code(error)


def _code(error: BaseException) -> int:
    if isinstance(error, NotFound):
        return NOT_FOUND
    return REFUSED if isinstance(error, (Conflict, Refused)) else ERROR


def _misused(error: click.ClickException) -> int:
    """Show how a command is used, and what was wrong."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return USAGE
    if context is not None:
        click.echo(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n", err=True)
    click.echo(f"Error: {safe(error.format_message())}", err=True)
    return error.exit_code


def sentence(error: BaseException) -> str:
    """Say what happened and which command helps. The library's own sentences name its methods instead."""
    if isinstance(error, RecollectError):
        return told(error, _IN_COMMANDS)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}."
    return (
        f"This should not have happened: {type(error).__name__}: {error}. Nothing acknowledged is lost. Please report "
        f"it, with what the same command prints when {DEBUG}=1 is set."
    )
