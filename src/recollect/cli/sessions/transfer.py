"""`sessions export` and `import`: conversations to a file and back."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from recollect.cli import names, options, place
from recollect.cli.asking import must_agree
from recollect.cli.document import plain, print_json
from recollect.cli.ending import PROBLEMS
from recollect.cli.group import Command
from recollect.cli.progress import Progress
from recollect.cli.screen import complain, is_terminal, remark, safe_lines
from recollect.model import amount
from recollect.model.amount import many

_SHOWN = 10
"""Of lines that can not be read so many are told; a file of another kind has nothing else."""


@click.command(cls=Command)
@click.argument("ids", metavar="[ID]...", type=names.Name(), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every conversation that is not in the trash.")
@click.option(
    "--format",
    type=click.Choice(["md", "json", "jsonl", "html"]),
    help="How to write them; what the name of the file ends with, or md.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write there, and not to the output."
)
@click.option("--redact", is_flag=True, help="Mask keys, tokens and passwords in what is written.")
@options.yes("Write over a file that is there.")
def export(
    ids: tuple[str, ...], everything: bool, format: str | None, output: str | None, redact: bool, yes: bool
) -> None:
    """Write conversations to a file.

    md and html are for people: html is one page that needs nothing else. json and jsonl hold everything, and `sessions
    import` reads them back. The file is readable by you only, and gets its name when it is whole.
    """
    if bool(ids) == everything:
        raise click.UsageError("Name the conversations to export, or say --all.")
    if output == "":
        raise click.UsageError(
            "-o must be the name of a file, got ''. Name one, or leave -o out to write to the output."
        )
    from recollect import export as exporter  # noqa: PLC0415

    named = None if output in (None, "-") else output
    chosen = format or (named and exporter.format_of(named)) or "md"
    with place.reading() as store:
        wanted = None if everything else [session.id for session in names.find(store, ids)]
        if named is not None and os.path.lexists(named):
            must_agree(f"{named} is there already. Write over it?", yes=yes)
        with Progress("Exporting") as progress:
            told = progress if named else None  # beside the text itself it would be in the way
            size = exporter.write(store, wanted, chosen, named or _output(), redact=redact, progress=told)
    if named is not None:
        remark(f"{amount.size(size)} written to {named}")


def _output() -> Any:
    """Give where an export without a file goes: bytes to a pipe, harmless text to a terminal."""
    return _Terminal() if is_terminal() else getattr(sys.stdout, "buffer", sys.stdout)


class _Terminal:
    """Takes text and shows it with nothing in it that could steer the terminal."""

    encoding = "utf-8"

    def write(self, text: str) -> None:
        """Show a piece."""
        click.echo("\n".join(safe_lines(text)), nl=False)


@click.command("import", cls=Command)
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
    help="What to do with a conversation that contradicts the one here: leave it out, give it a new id, or stop.",
)
@click.option("--format", help="The format of the messages in a plain chat, where it is not clear, such as openai.")
@options.dry_run
@options.as_json
@click.pass_context
def import_(
    context: click.Context, files: tuple[str, ...], on_conflict: str, format: str | None, dry_run: bool, as_json: bool
) -> None:
    """Read conversations from a file that was exported.

    JSON or JSONL; - is the input. What is there already is not imported twice, and what goes on where it ends is added.
    A line that can not be read is reported with its number, and the rest is imported; the exit status is then 5.
    """
    from recollect import export as exporter  # noqa: PLC0415

    reports: dict[str, Any] = {}
    with place.reading() if dry_run else place.writing() as store, Progress("Importing") as progress:
        for name in files:
            source = getattr(sys.stdin, "buffer", sys.stdin) if name == "-" else name
            reports[name] = exporter.read(
                store, source, on_conflict=on_conflict, format=format, progress=progress, dry_run=dry_run
            )
    if as_json:
        found = [{"file": name, **plain(report)} for name, report in reports.items()]
        print_json({"files": found, "dry_run": dry_run})
    for name, report in reports.items():
        _tell(name, report, dry_run=dry_run, as_json=as_json)
    if any(report.bad_count or report.conflicts for report in reports.values()):
        context.exit(PROBLEMS)


def _tell(name: str, report: Any, *, dry_run: bool, as_json: bool) -> None:
    """Say what became of a file."""
    for bad in report.bad[:_SHOWN]:
        complain(f"{name}, line {bad.line}: {bad.reason}")
    if report.bad_count > _SHOWN:
        complain(f"{name}: {many(report.bad_count - _SHOWN, 'more line')} can not be read. --json lists them.")
    if report.bad_count and not any((report.created, report.updated, report.unchanged, report.conflicts)):
        complain(f"{name} has no conversation that can be imported. It must be JSON or JSON lines, as `export` writes.")
    for conflict in report.conflicts:
        became = (
            f"It {'would be' if dry_run else 'is now'} {conflict.new_id}."
            if conflict.new_id
            else f"It {'would be' if dry_run else 'was'} left out; --on-conflict new gives it a new id."
        )
        complain(f"{name}: {conflict.id}: {conflict.reason} {became}")
    if not as_json:
        remark(
            f"{name}: {many(report.messages, 'stored message')} {'would be ' * dry_run}imported; "
            f"{many(len(report.created), 'conversation')} new, "
            f"{len(report.updated):,} longer than before, {len(report.unchanged):,} known already."
        )
