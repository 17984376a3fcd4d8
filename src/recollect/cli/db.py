"""`recollect db`: the database itself."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli import options, place
from recollect.cli.amount import bytes_, many
from recollect.cli.document import plain, print_json
from recollect.cli.ending import PROBLEMS
from recollect.cli.group import Group
from recollect.cli.progress import Progress
from recollect.cli.screen import complain, glyph, is_terminal, paint, remark, safe
from recollect.cli.table import Cell, Column, print_table

_BAR = 30


@click.group(cls=Group)
def db() -> None:
    """Look after the database itself."""


@db.command()
@options.as_json
def path(as_json: bool) -> None:
    """Print where the database is.

    It is not created.
    """
    found = place.where()
    if as_json:
        print_json({"path": found, "exists": not place.missing()})
    else:
        click.echo(safe(found))


@db.command()
@options.as_json
def migrate(as_json: bool) -> None:
    """Bring the database up to date.

    Every command does so when it opens an older one, and keeps a copy of it first. This one does nothing else.
    """
    from recollect.sql import migrations  # noqa: PLC0415

    version = migrations("sqlite")[-1][0]
    with place.opened() as store:
        found = store.path
    if as_json:
        print_json({"path": found, "schema": version})
    else:
        remark(f"{found} is up to date (schema {version}).")


@db.command()
@options.as_json
@click.pass_context
def check(context: click.Context, as_json: bool) -> None:
    """Look for damage, and say what was found.

    The file itself, checksums, references, indexes, counters, the search index, and tool calls without a result. Exit
    status 5 where something was found.
    """
    with place.reading() as opened, Progress("Checking") as progress:
        store: Any = opened
        found = store.check(progress)
    if as_json:
        print_json({"path": place.where(), "findings": [plain(finding) for finding in found]})
    for finding in () if as_json else found:
        click.echo(safe(str(finding)))
    if found:
        complain(f"{many(len(found), 'problem')} found in {place.where()}.")
        context.exit(PROBLEMS)
    if not as_json:
        remark(f"{place.where()} is sound.")


@db.command()
@click.argument("file", type=click.Path(dir_okay=False))
@options.yes("Write over a file that is there.")
@options.as_json
def backup(file: str, yes: bool, as_json: bool) -> None:
    """Copy the database to a file, also while it is in use.

    The copy is whole and as of one moment. `db restore` brings it back.
    """
    import os  # noqa: PLC0415

    from recollect.cli.asking import must_agree  # noqa: PLC0415

    if os.path.lexists(file):
        must_agree(f"{file} is there already. Write over it?", yes=yes)
        os.unlink(file)
    with place.reading() as opened, Progress("Copying") as progress:
        store: Any = opened
        store.backup(file, progress)
    _written(file, as_json=as_json)


def _written(file: str, *, as_json: bool) -> None:
    import os  # noqa: PLC0415

    size = os.stat(file).st_size
    if as_json:
        print_json({"path": os.path.abspath(file), "bytes": size})
    else:
        remark(f"{bytes_(size)} written to {file}")


@db.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@options.dry_run
@options.yes()
@options.as_json
def restore(file: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Bring a backup back.

    The present database is kept beside it, under another name that is printed.
    """
    from recollect.cli.asking import must_agree  # noqa: PLC0415

    there = place.where()
    if dry_run:
        if as_json:
            print_json({"path": there, "backup": file, "kept": None, "dry_run": True})
        else:
            remark(f"{file} would take the place of {there}, which would be kept beside it.")
        return
    if not place.missing():
        must_agree(f"Put {file} in the place of {there}? The present one is kept beside it.", yes=yes)
    import recollect  # noqa: PLC0415

    library: Any = recollect
    kept = library.restore(file, there)
    if as_json:
        print_json({"path": there, "backup": file, "kept": kept, "dry_run": False})
    else:
        remark(f"{there} is restored from {file}." + (f" What was there before is in {kept}" if kept else ""))


@db.command()
@options.as_json
def stats(as_json: bool) -> None:
    """Show where the bytes are.

    On a pipe each line has, between tabs: what it is, and bytes.
    """
    with place.reading() as opened:
        store: Any = opened
        space = plain(store.space())
    if as_json:
        print_json({"path": place.where(), **space})
        return
    total = space.get("total") or sum(space.values()) or 1
    shape = [
        Column("", style={"bold": True}),
        Column("SIZE", ">"),
        Column("SHARE", ">"),
        Column("", style={"fg": "cyan"}),
    ]
    rows: list[list[Cell]] = []
    for name, size in space.items():
        label = Cell(name.replace("_", " "), name)
        cells = [label, Cell(bytes_(size), str(size)), Cell(f"{size / total:.0%}")]
        rows.append([*cells, Cell(glyph("bar") * round(size / total * _BAR))] if is_terminal() else cells[:2])
    if is_terminal():
        click.echo(paint(safe(place.where()), dim=True))
    print_table(shape, rows)


@db.command()
@options.as_json
def optimize(as_json: bool) -> None:
    """Make the database smaller and quicker.

    Free space goes back to the disk, the log is emptied, and statistics for the planner are brought up to date.
    """
    import os  # noqa: PLC0415

    with place.opened() as opened, Progress("Optimizing"):
        store: Any = opened
        before = os.path.getsize(store.path)
        store.optimize()
    after = os.path.getsize(place.where())
    if as_json:
        print_json({"path": place.where(), "before": before, "after": after})
    else:
        remark(f"{bytes_(before)} before, {bytes_(after)} now.")
