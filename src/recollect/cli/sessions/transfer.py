"""`sessions export`: conversations to a file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, store_access
from recollect.cli.group import StoreCommand
from recollect.cli.options import confirm
from recollect.cli.output import ProgressBar, is_terminal, print_note, sanitize_lines
from recollect.cli.sessions import lookup, originals
from recollect.model import humanize

if TYPE_CHECKING:
    from recollect.store import Store


@click.command(cls=StoreCommand)
@click.argument("ids", metavar="[ID]...", type=lookup.SessionParam(), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Export every conversation that is not in the trash.")
@click.option(
    "--format",
    type=click.Choice(["md", "json", "jsonl", "html", "native"]),
    help="Output format. Default: the extension of the output file, or md.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write to this file instead of standard output; native also to a folder or a .zip file.",
)
@click.option("--redact", is_flag=True, help="Mask keys, tokens and passwords in the export.")
@options.yes("Overwrite an existing file.")
def export(
    ids: tuple[str, ...], everything: bool, format: str | None, output: str | None, redact: bool, yes: bool
) -> None:
    """Export conversations to a file.

    md and html are for reading; html is one self-contained page. json and jsonl contain everything, and `recollect
    import` reads them. native is the original of an imported conversation, byte for byte. The file is readable by you
    only, and appears when it is complete.
    """
    if bool(ids) == everything:
        raise click.UsageError("Pass the conversations to export, or --all.")
    if output == "":
        raise click.UsageError("-o must be a file name, got ''. Omit -o to write to standard output.")
    if format == "native" and redact:
        raise click.UsageError(
            "--redact cannot be used with --format native, which writes the original bytes. Use --format jsonl."
        )
    if format == "native" and everything:
        raise click.UsageError("--all cannot be used with --format native: name conversations that were imported.")
    path = None if output in (None, "-") else output
    if path is not None and format != "native" and os.path.isdir(path):
        raise click.UsageError(f"-o must be a file name, got the folder {path!r}.")
    with store_access.open_for_reading() as store:
        session_ids = None if everything else [session.id for session in lookup.find_sessions(store, ids)]
        if format == "native":
            size = originals.export(store, session_ids or [], path, _output_stream, yes=yes)
        else:
            size = _export(store, session_ids, format, path, redact=redact, yes=yes)
    if path is not None:
        print_note(f"Wrote {humanize.format_size(size)} to {path}.")


def _export(
    store: Store, ids: list[str] | None, format: str | None, path: str | None, *, redact: bool, yes: bool
) -> int:
    """Write conversations in a format of Recollect, and return the number of bytes."""
    from recollect import export as exporter  # noqa: PLC0415

    format_name = format or (path and exporter.format_of(path)) or "md"
    if path is not None and os.path.lexists(path):
        confirm(f"{path} already exists. Overwrite it?", f"overwrite {path}", yes=yes)
    with ProgressBar("Exporting") as progress:
        progress_callback = progress if path else None  # a bar would mix with the export on the terminal
        return exporter.write(
            store, ids, format_name, path or _output_stream(), redact=redact, progress=progress_callback
        )


def _output_stream() -> Any:
    """Return the output of an export without a file: bytes to a pipe, sanitized text to a terminal."""
    return _TerminalWriter() if is_terminal() else getattr(sys.stdout, "buffer", sys.stdout)


class _TerminalWriter:
    """Prints text to the terminal without control characters."""

    encoding = "utf-8"

    def write(self, text: str) -> None:
        """Print a piece of the export."""
        click.echo("\n".join(sanitize_lines(text)), nl=False)
