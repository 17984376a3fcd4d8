"""`sessions export` and `sessions import`: conversations to a file and back."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from recollect.cli import options, store_access
from recollect.cli.exit_codes import PROBLEMS
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_json, to_plain
from recollect.cli.options import confirm
from recollect.cli.output import ProgressBar, is_terminal, print_error, print_note, sanitize_lines
from recollect.cli.sessions import lookup
from recollect.model import humanize
from recollect.model.humanize import pluralize

_MAX_BAD_LINES = 10  # errors that are printed per file; in a file of another kind, every line is one


@click.command(cls=StoreCommand)
@click.argument("ids", metavar="[ID]...", type=lookup.SessionParam(), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Export every conversation that is not in the trash.")
@click.option(
    "--format",
    type=click.Choice(["md", "json", "jsonl", "html"]),
    help="Output format. Default: the extension of the output file, or md.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write to this file instead of standard output.",
)
@click.option("--redact", is_flag=True, help="Mask keys, tokens and passwords in the export.")
@options.yes("Overwrite an existing file.")
def export(
    ids: tuple[str, ...], everything: bool, format: str | None, output: str | None, redact: bool, yes: bool
) -> None:
    """Export conversations to a file.

    md and html are for reading; html is one self-contained page. json and jsonl contain everything, and `sessions
    import` reads them. The file is readable by you only, and appears when it is complete.
    """
    if bool(ids) == everything:
        raise click.UsageError("Pass the conversations to export, or --all.")
    if output == "":
        raise click.UsageError("-o must be a file name, got ''. Omit -o to write to standard output.")
    from recollect import export as exporter  # noqa: PLC0415

    path = None if output in (None, "-") else output
    format_name = format or (path and exporter.format_of(path)) or "md"
    with store_access.open_for_reading() as store:
        session_ids = None if everything else [session.id for session in lookup.find_sessions(store, ids)]
        if path is not None and os.path.lexists(path):
            confirm(f"{path} already exists. Overwrite it?", f"overwrite {path}", yes=yes)
        with ProgressBar("Exporting") as progress:
            progress_callback = progress if path else None  # a bar would mix with the export on the terminal
            size = exporter.write(
                store, session_ids, format_name, path or _output_stream(), redact=redact, progress=progress_callback
            )
    if path is not None:
        print_note(f"Wrote {humanize.format_size(size)} to {path}.")


def _output_stream() -> Any:
    """Return the output of an export without a file: bytes to a pipe, sanitized text to a terminal."""
    return _TerminalWriter() if is_terminal() else getattr(sys.stdout, "buffer", sys.stdout)


class _TerminalWriter:
    """Prints text to the terminal without control characters."""

    encoding = "utf-8"

    def write(self, text: str) -> None:
        """Print a piece of the export."""
        click.echo("\n".join(sanitize_lines(text)), nl=False)


@click.command("import", cls=StoreCommand)
@click.argument(
    "files",
    metavar="FILE...",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    nargs=-1,
    required=True,
)
@click.option(
    "--on-conflict",
    type=click.Choice(["skip", "new", "error"]),
    default="skip",
    show_default=True,
    help="What to do if a conversation differs from the stored one: skip it, import it under a new id, or stop.",
)
@click.option("--format", help="Message format of a plain list of messages, such as openai, if it cannot be detected.")
@options.dry_run
@options.as_json
@click.pass_context
def import_(
    context: click.Context, files: tuple[str, ...], on_conflict: str, format: str | None, dry_run: bool, as_json: bool
) -> None:
    """Import conversations from a file.

    Reads JSON or JSONL; - is standard input. Messages that are already stored are not imported again; newer messages of
    a stored conversation are added. A line that cannot be read is reported with its number, the other lines are
    imported, and the exit status is 5.
    """
    from recollect import export as exporter  # noqa: PLC0415

    reports: dict[str, Any] = {}
    with (
        store_access.open_for_reading() if dry_run else store_access.open_for_writing() as store,
        ProgressBar("Importing") as progress,
    ):
        for name in files:
            source = getattr(sys.stdin, "buffer", sys.stdin) if name == "-" else name
            reports[name] = exporter.read(
                store, source, on_conflict=on_conflict, format=format, progress=progress, dry_run=dry_run
            )
    if as_json:
        entries = [{"file": name, **to_plain(report)} for name, report in reports.items()]
        print_json({"files": entries, "dry_run": dry_run})
    for name, report in reports.items():
        _report_import(name, report, dry_run=dry_run, as_json=as_json)
    if any(report.bad_count or report.conflicts for report in reports.values()):
        context.exit(PROBLEMS)


def _report_import(name: str, report: Any, *, dry_run: bool, as_json: bool) -> None:
    """Print the result of importing a file."""
    for bad in report.bad[:_MAX_BAD_LINES]:
        print_error(f"{name}, line {bad.line}: {bad.reason}")
    if report.bad_count > _MAX_BAD_LINES:
        print_error(f"{name}: {pluralize(report.bad_count - _MAX_BAD_LINES, 'more line')} cannot be read. See --json.")
    if report.bad_count and not any((report.created, report.updated, report.unchanged, report.conflicts)):
        print_error(f"{name} has no conversation that can be imported. Use a JSON file that `sessions export` wrote.")
    for conflict in report.conflicts:
        outcome = (
            f"{'Would be imported' if dry_run else 'Imported'} as {conflict.new_id}."
            if conflict.new_id
            else f"{'Would be skipped' if dry_run else 'Skipped'}; use --on-conflict new to import it under a new id."
        )
        print_error(f"{name}: {conflict.id}: {conflict.reason} {outcome}")
    if not as_json:
        print_note(
            f"{'Would import' if dry_run else 'Imported'} {pluralize(report.messages, 'stored message')} from {name}: "
            f"{pluralize(len(report.created), 'new conversation')}, "
            f"{len(report.updated):,} updated, {len(report.unchanged):,} unchanged."
        )
