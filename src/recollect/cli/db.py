"""`recollect db`: the database itself."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, place
from recollect.cli.asking import must_agree
from recollect.cli.document import plain, print_json
from recollect.cli.ending import PROBLEMS
from recollect.cli.group import Group
from recollect.cli.moment import minute
from recollect.cli.owners import HIDDEN, Covered, cover, shown
from recollect.cli.progress import Progress
from recollect.cli.screen import glyph, is_terminal, paint, remark, safe
from recollect.cli.table import Cell, Column, print_table
from recollect.errors import NotSupported
from recollect.model import amount
from recollect.model.amount import many
from recollect.model.finding import Findings

_BAR = 30

if TYPE_CHECKING:
    from recollect.store import Store


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

    version = migrations(place.engine())[-1][0]
    place.opened().close()
    found = place.where()
    if as_json:
        print_json({"path": found, "schema": version})
    else:
        remark(f"{found} is up to date (schema {version}).")


@db.command()
@click.option("--quick", is_flag=True, help="Only what is quickly found.")
@click.option("--repair", is_flag=True, help="Put right what can be derived from the messages.")
@options.as_json
@click.pass_context
def check(context: click.Context, quick: bool, repair: bool, as_json: bool) -> None:
    """Look for damage, and say what was found.

    The file itself, checksums, references, indexes, counters, the search index, and tool calls without a result, of
    every owner. Exit status 5 where a problem was found and not repaired, or an owner could not be read.
    """
    place.must_exist("check")
    with Progress("Checking") as progress:
        covered = _checked(deep=not quick, repair=repair, progress=progress)
    found = [(owner, finding) for owner, findings in covered.results.items() for finding in findings.found]
    problems = [finding for findings in covered.results.values() for finding in findings.problems]
    checked = next(iter(covered.results.values())).checked
    if as_json:
        told = {"sound": covered.complete and not problems, **covered.to_dict(), "checked": list(checked)}
        items = [{**plain(finding), "owner": owner} for owner, finding in found]
        print_json({"path": place.where(), **told, "found": items})
    else:
        for owner, finding in found:
            click.echo(_told(finding, owner if covered.shared else None))
        told = f"has {many(len(problems), 'problem')}" if problems else "is sound"
        unknown = "" if covered.complete else " as far as it could be read"
        remark(f"{place.where()} {told}{unknown}. Looked at: {', '.join(checked)}.{covered.describe()}")
        covered.remark_missing()
    if problems or not covered.complete:
        context.exit(PROBLEMS)


def _checked(*, deep: bool, repair: bool, progress: Progress) -> Covered[Findings]:
    """Check what each owner has; the file itself, and what is in it of no owner, once."""
    seen: set[tuple[str, str]] = set()

    def check_owner(store: Store) -> Findings:
        first = not seen
        found = store.check(deep=deep, repair=repair, file=first, progress=progress)
        new = [each for each in found.found if each.session is not None or (each.kind, each.message) not in seen]
        seen.update((each.kind, each.message) for each in found.found)
        seen.add(("", ""))
        return Findings(checked=found.checked, found=tuple(new))

    return cover(check_owner)


def _told(finding: Any, owner: str | None) -> str:
    """Say what was found and what to do, in one line; with the owner where several have something here."""
    level = "repaired" if finding.repaired else finding.level
    colour = {"problem": "red", "repaired": "green"}.get(level, "yellow")
    advice = finding.advice.replace("store.check(repair=True)", "`recollect db check --repair`")
    whose = "" if owner is None else f"owner {shown(owner)}: "
    return f"{paint(level, fg=colour, bold=True)}: {whose}{safe(f'{finding.message} {advice}')}"


@db.command()
@click.argument("file", type=click.Path(dir_okay=False))
@options.yes("Write over a file that is there.")
@options.as_json
def backup(file: str, yes: bool, as_json: bool) -> None:
    """Copy the database to a file, also while it is in use.

    The copy is whole, as of one moment, and checked. `db restore` brings it back.
    """
    there = os.path.lexists(file)
    if there:
        must_agree(f"{file} is there already. Write over it?", yes=yes)
    place.must_exist("copy")
    with place.reading() as store, Progress("Copying") as progress:
        written = store.backup(file, overwrite=there, progress=progress)
    size = os.stat(written).st_size
    if as_json:
        print_json({"path": written, "bytes": size})
    else:
        remark(f"{amount.size(size)} written to {written}")


@db.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--no-verify", is_flag=True, help="Take pages whose checksum does not fit, as in a copy that another program made."
)
@options.dry_run
@options.yes()
@options.as_json
def restore(file: str, no_verify: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Bring a backup back.

    The present database is kept beside it, under another name that is printed. `--dry-run` looks the backup through,
    and says what it holds.
    """
    if place.engine() != "sqlite":
        raise NotSupported(what="Bringing back a backup")
    import recollect  # noqa: PLC0415

    library: Any = recollect
    there = place.where()
    if dry_run:
        _foretell(library.check_backup(file, there, verify=not no_verify), file, there, as_json=as_json)
        return
    if not place.missing():
        must_agree(f"Put {file} in the place of {there}? The present one is kept beside it.", yes=yes)
    kept = library.restore(file, there, verify=not no_verify)
    if as_json:
        print_json({"path": there, "backup": file, "kept": kept, "dry_run": False})
    else:
        remark(f"{there} is restored from {file}." + (f" What was there before is in {kept}" if kept else ""))
        if kept:
            remark(f"To undo: recollect db restore {shlex.quote(kept)}")


def _foretell(found: Any, file: str, there: str, *, as_json: bool) -> None:
    """Say what a backup holds, and that it can be brought back."""
    if as_json:
        holds = {name: value for name, value in plain(found).items() if name != "path"}
        print_json({"path": there, "backup": file, "kept": None, "dry_run": True, "holds": holds})
        return
    last = "" if found.active_at is None else f", last active {minute(found.active_at)}"
    figures = (
        f"{many(found.sessions, 'session')}, {many(found.messages, 'stored message')}, {amount.size(found.bytes)}{last}"
    )
    beside = "" if place.missing() else ", which would be kept beside it"
    remark(f"{file} is sound: {figures}. It would take the place of {there}{beside}.")


@db.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--owner", "owners", multiple=True, metavar="OWNER", help="Only what this owner has; may be repeated.")
@options.as_json
@click.pass_context
def copy(context: click.Context, source: str, target: str, owners: tuple[str, ...], as_json: bool) -> None:
    """Copy a whole store to another place, and compare the two.

    FROM and TO are paths or URLs. TO is empty, or holds a part of the same copy, which then goes on. FROM is only read,
    of every owner. Exit status 5 where something is not the same in both, or an owner of FROM may have been missed.
    """
    import recollect  # noqa: PLC0415

    library: Any = recollect
    before = place.named_owner()  # `recollect --owner ann db copy`
    named = owners or (None if before is None else (before,))
    with Progress("Copying") as progress:
        found = library.copy(source, target, owners=named, progress=progress)
    if as_json:
        print_json({"whole": found.whole, **plain(found)})
    else:
        _tell_copied(found, named=named is not None)
    if not found.whole:
        context.exit(PROBLEMS)


def _tell_copied(found: Any, *, named: bool) -> None:
    for each in found.differences:
        whose = f" of {each.owner}" if each.owner else ""
        told = "is missing in" if each.missing else "is not the same in"
        click.echo(safe(f"{each.kind} {each.name}{whose} {told} {found.target}"))
    counts = found.counts
    figures = f"{many(counts['sessions'], 'session')}, {many(counts['messages'], 'stored message')}"
    if found.differences:
        remark(
            f"{many(len(found.differences), 'difference')} between {found.source} and {found.target}. If someone wrote "
            "to one of them meanwhile, copy into an empty place while nobody does."
        )
        return
    whose = f" Owners: {', '.join(shown(owner) for owner in found.owners)}." if found.owners != ("",) or named else ""
    if found.everyone:
        what = "what these owners have in" if named else "everything that is in"
        remark(f"{found.target} has {what} {found.source}: {figures}. Counts and hashes agree.{whose}")
    else:
        remark(f"{figures} of {found.source} are in {found.target}.{whose} That may not be everything.")
        remark(HIDDEN)


@db.command()
@options.as_json
def stats(as_json: bool) -> None:
    """Show where the bytes are.

    Text, tool output, attachments, index, free, and the rest. On a pipe each line has, between tabs: what it is, and
    bytes.
    """
    place.must_exist("measure")
    with place.reading() as store:
        space = plain(store.space())
    if as_json:
        print_json({"path": place.where(), **space})
        return
    parts = {name: size for name, size in space.items() if isinstance(size, int)}
    shape = [Column("", style={"bold": True}), Column("SIZE", ">"), Column("", ">"), Column("", style={"fg": "cyan"})]
    print_table(shape, [_space_row(name, size, parts["total"]) for name, size in parts.items()])
    if is_terminal():
        remark(f"in {place.where()}")


def _space_row(name: str, size: int, total: int) -> list[Cell]:
    cells = [Cell(name.replace("_", " "), name), Cell(amount.size(size), str(size))]
    if not is_terminal():
        return cells
    share = size / total if total and name not in ("total", "log") else 0
    return [*cells, Cell(f"{share:.0%}" if share else ""), Cell(glyph("bar") * round(share * _BAR))]


@db.command()
@options.as_json
@click.pass_context
def reindex(context: click.Context, as_json: bool) -> None:
    """Make the search index anew.

    It is kept up to date by itself; this is for one that `db check` finds fault with. That of every owner is made.
    """
    place.must_exist("index")
    with Progress("Indexing"):
        covered = cover(lambda store: store.reindex())
    count = sum(covered.results.values())
    if as_json:
        print_json({"path": place.where(), "messages": count, **covered.to_dict()})
    else:
        remark(f"{many(count, 'message')} indexed.{covered.describe()}")
        covered.remark_missing()
    if not covered.complete:
        context.exit(PROBLEMS)


@db.command()
@options.as_json
def optimize(as_json: bool) -> None:
    """Make the database smaller and quicker.

    Free space goes back to the disk, SQLite rewrites the file (VACUUM), and the log is truncated. This also finishes an
    erasure that was cut off. Other writers wait meanwhile, about 10 seconds per gigabyte.
    """
    place.must_exist("optimize")
    with place.opened() as store, Progress("Optimizing"):
        found = store.optimize()
    if as_json:
        print_json({"path": place.where(), **plain(found)})
    else:
        remark(f"{amount.size(found.before)} before, {amount.size(found.after)} now.")
