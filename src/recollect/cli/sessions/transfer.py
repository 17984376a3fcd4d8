"""`sessions export` and `import`: conversations to a file and back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterator
from typing import IO, Any

import click

from recollect.cli import names, options, place
from recollect.cli.amount import many
from recollect.cli.asking import must_agree
from recollect.cli.document import plain, print_json
from recollect.cli.ending import PROBLEMS
from recollect.cli.group import Command
from recollect.cli.progress import Progress
from recollect.cli.screen import complain, remark

_FORMATS = {"md": "md", "markdown": "md", "json": "json", "jsonl": "jsonl", "html": "html", "htm": "html"}


@click.command(cls=Command)
@click.argument("ids", metavar="ID...", type=names.Name(), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every conversation, archived ones and sub-agents' too.")
@click.option(
    "--format",
    type=click.Choice(["md", "json", "jsonl", "html"]),
    help="How to write them; what the name of the file says, or md.",
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
    import` reads them back.
    """
    if bool(ids) == everything:
        raise click.UsageError("Name the conversations to export, or say --all.")
    ending = os.path.splitext(output or "")[1].lower().lstrip(".")
    chosen = format or _FORMATS.get(ending, "md")
    with place.reading() as store:
        from recollect import export as exporter  # pyright: ignore  # noqa: PLC0415, PGH003

        wanted = [session.id for session in (_every(store) if everything else names.find(store, ids))]
        with _opened(output, yes=yes) as file:
            exporter.write(store, wanted, chosen, file, redact=redact)
    if output:
        remark(f"{many(len(wanted), 'conversation')} written to {output}")


def _every(store: Any) -> Iterator[Any]:
    after: str | None = None
    while True:
        page = store.list_sessions(1_000, after=after, order="created", archived=None, delegates=True)
        yield from page
        if page.next is None:
            return
        after = page.next


@contextlib.contextmanager
def _opened(output: str | None, *, yes: bool) -> Generator[IO[str]]:
    """Open the file to write, readable by its owner only; it gets its name when it is whole."""
    if output is None or output == "-":
        yield sys.stdout
        return
    if os.path.lexists(output):
        must_agree(f"{output} is there already. Write over it?", yes=yes)
    part = f"{output}.part"
    try:
        with open(
            os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8", newline="\n"
        ) as file:
            yield file
        os.replace(part, output)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


@click.command("import", cls=Command)
@click.argument(
    "files", metavar="FILE...", type=click.Path(exists=True, dir_okay=False, allow_dash=True), nargs=-1, required=True
)
@click.option(
    "--on-conflict",
    type=click.Choice(["skip", "replace", "copy"]),
    default="skip",
    show_default=True,
    help="Where a conversation with the same id and other content is there: leave it, replace it, or import a copy.",
)
@options.as_json
@click.pass_context
def import_(context: click.Context, files: tuple[str, ...], on_conflict: str, as_json: bool) -> None:
    """Read conversations from a file that was exported.

    JSON or JSONL; - is the input. What is there already is not imported twice. A line that can not be read is reported
    with its number, and the rest is imported; the exit status is then 5.
    """
    from recollect import export as exporter  # pyright: ignore  # noqa: PLC0415, PGH003

    reports: list[Any] = []
    with place.writing() as store, Progress("Importing"):
        for name in files:
            with click.open_file(name, encoding="utf-8", errors="surrogateescape") as file:
                reports.append(exporter.read(store, file, on_conflict=on_conflict))
    if as_json:
        print_json({"files": [{"file": name, **plain(report)} for name, report in zip(files, reports, strict=True)]})
    for name, report in zip(files, reports, strict=True):
        for problem in report.problems:
            complain(f"{name}: {problem}")
        if not as_json:
            remark(f"{name}: {many(report.sessions, 'conversation')} and {many(report.messages, 'message')} imported.")
    if any(report.problems for report in reports):
        context.exit(PROBLEMS)
