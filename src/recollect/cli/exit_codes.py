"""Exit codes of commands, and errors printed as one sentence."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence

import click

from recollect.cli.output import print_error, sanitize
from recollect.errors import (
    AmbiguousName,
    BranchNotFound,
    Conflict,
    MessageNotFound,
    NotConfirmed,
    NotFound,
    RecollectError,
    SessionExists,
    SessionHasForks,
    SessionInTrash,
    SessionNotFound,
    format_error,
)
from recollect.model.humanize import restore_command

OK, ERROR, USAGE, NOT_FOUND, REFUSAL, PROBLEMS, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 3, 4, 5, 130, 141
COMPLETE = "_RECOLLECT_COMPLETE"
DEBUG = "RECOLLECT_DEBUG"
_COMMAND_MESSAGES: dict[type[RecollectError], str] = {
    SessionInTrash: "{session!r} is in the trash. Run `{restore_command}` to restore it.",
    SessionNotFound: "No conversation matches {session!r}. Run `recollect sessions list` to see all conversations.",
    SessionHasForks: "{session!r} has forks that share its messages: {forks}. Pass --forks keep to keep the forks and "
    "their shared messages, or --forks erase to erase them too.",
    BranchNotFound: "{session!r} has no branch {branch}. Run `recollect sessions show` to see its branches.",
    MessageNotFound: "{session!r} has no message {message!r}. Run `recollect sessions show` to see its message ids.",
    SessionExists: "Conversation {session!r} already exists. Use another id.",
    AmbiguousName: "{name!r} matches {count} conversations: {matches}. Use a longer prefix of the id, or the full "
    "title.",
}


def run_command(command: click.Group, arguments: Sequence[str]) -> int:
    """Run a command and return its exit status. Errors are one sentence; RECOLLECT_DEBUG=1 adds the traceback."""
    _prepare_streams()
    try:
        status = _invoke(command, arguments)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001
        status = _report_error(error)
        _flush_or_drop()
    return status


def _invoke(command: click.Group, arguments: Sequence[str]) -> int:
    if os.environ.get(COMPLETE):
        from recollect.cli.completion import complete  # noqa: PLC0415

        return complete(command)
    with command.make_context("recollect", list(arguments)) as context:
        command.invoke(context)
    return OK


def _prepare_streams() -> None:
    """Replace characters that the output cannot encode, and closed streams.

    A closed stream becomes /dev/null. Otherwise the next opened file, perhaps the database, would get its descriptor.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


def _flush_or_drop() -> None:
    """Flush the output, or discard it: Python would print an error about a closed pipe at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_error(error: BaseException) -> int:
    """Print an error and return its exit status."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        return CLOSED_PIPE
    if os.environ.get(DEBUG) and not isinstance(error, click.ClickException):
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        print_error("Interrupted.")
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return _report_usage_error(error)
    print_error(command_error_message(error))
    return _exit_code(error)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, NotFound):
        return NOT_FOUND
    return REFUSAL if isinstance(error, (Conflict, NotConfirmed)) else ERROR


def _report_usage_error(error: click.ClickException) -> int:
    """Print the usage of the command and the error."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return USAGE
    if context is not None:
        click.echo(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n", err=True)
    click.echo(f"Error: {sanitize(error.format_message())}", err=True)
    return error.exit_code


def command_error_message(error: BaseException) -> str:
    """Return the error with the command that helps. The library's own texts name its methods instead."""
    if isinstance(error, RecollectError):
        session = error.fields.get("session")
        command = restore_command(session) if isinstance(session, str) else ""
        return format_error(error, _COMMAND_MESSAGES, restore_command=command)
    if isinstance(error, OSError):
        prefix = f"{error.filename}: " if error.filename else ""
        return f"{prefix}{error.strerror or error}."
    return (
        f"Internal error: {type(error).__name__}: {error}. Stored data is not affected. Please report this, with the "
        f"output of the same command with {DEBUG}=1."
    )
