"""`recollect db`: maintenance of the database."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, store_access
from recollect.cli.exit_codes import PROBLEMS
from recollect.cli.group import LazyGroup
from recollect.cli.json_output import print_json, to_plain
from recollect.cli.options import confirm
from recollect.cli.output import Cell, Column, ProgressBar, glyph, is_terminal, paint, print_note, print_table, sanitize
from recollect.cli.store_access import HIDDEN_OWNERS, OwnerResults, owner_label, run_for_owners
from recollect.cli.times import format_minute
from recollect.errors import NotSupported
from recollect.model import humanize
from recollect.model.humanize import escape_unprintable, pluralize
from recollect.model.reports import Findings

_BAR_WIDTH = 30  # characters, so that the table fits into 80 columns

if TYPE_CHECKING:
    from recollect.store import Store


@click.group(cls=LazyGroup)
def db() -> None:
    """Maintain the database."""


@db.command()
@options.as_json
def path(as_json: bool) -> None:
    """Print the location of the database.

    The database is not created.
    """
    location = store_access.database_location()
    if as_json:
        print_json({"path": location, "exists": not store_access.database_missing()})
    else:
        click.echo(sanitize(location))


@db.command()
@options.as_json
def migrate(as_json: bool) -> None:
    """Migrate the database to the current schema.

    Every command does this when it opens an older database; for SQLite, a backup of the old file is kept. This command
    does nothing else.
    """
    version = store_access.engine_provider().schema_version()
    store_access.open_store().close()
    location = store_access.database_location()
    if as_json:
        print_json({"path": location, "schema": version})
    else:
        print_note(f"{location} is up to date (schema {version}).")


@db.command()
@click.option("--quick", is_flag=True, help="Run only the fast checks.")
@click.option("--repair", is_flag=True, help="Repair everything that can be derived from the messages.")
@options.as_json
@click.pass_context
def check(context: click.Context, quick: bool, repair: bool, as_json: bool) -> None:
    """Check the database for damage.

    Checks the file, checksums, references, indexes, counters, the search index and tool calls without a result, for
    every owner. The exit status is 5 if a problem was found and not repaired, or if an owner could not be read.
    """
    store_access.require_database("check")
    with ProgressBar("Checking") as progress:
        owner_results = _check_owners(deep=not quick, repair=repair, progress=progress)
    owner_findings = [
        (owner, finding) for owner, findings in owner_results.results.items() for finding in findings.findings
    ]
    problems = [finding for findings in owner_results.results.values() for finding in findings.problems]
    checks = next(iter(owner_results.results.values())).checks
    if as_json:
        summary = {"ok": owner_results.complete and not problems, **owner_results.to_dict(), "checks": list(checks)}
        items = [{**to_plain(finding), "owner": owner} for owner, finding in owner_findings]
        print_json({"path": store_access.database_location(), **summary, "findings": items})
    else:
        for owner, finding in owner_findings:
            click.echo(_format_finding(finding, owner if owner_results.shared else None))
        summary = f"{pluralize(len(problems), 'problem')} found" if problems else "no problems found"
        caveat = "" if owner_results.complete else " in the data that could be read"
        print_note(
            f"{store_access.database_location()}: {summary}{caveat}. "
            f"Checked: {', '.join(checks)}.{owner_results.describe()}"
        )
        owner_results.print_missing()
    if problems or not owner_results.complete:
        context.exit(PROBLEMS)


def _check_owners(*, deep: bool, repair: bool, progress: ProgressBar) -> OwnerResults[Findings]:
    """Check the data of each owner, and once the file and the data without an owner."""
    known_findings: set[tuple[str, str]] = set()

    def check_owner(store: Store) -> Findings:
        first = not known_findings
        findings = store.maintenance.check(deep=deep, repair=repair, file=first, progress=progress)
        new = [
            finding
            for finding in findings.findings
            if finding.session is not None or (finding.kind, finding.message) not in known_findings
        ]
        known_findings.update((finding.kind, finding.message) for finding in findings.findings)
        known_findings.add(("", ""))
        return Findings(checks=findings.checks, findings=tuple(new))

    return run_for_owners(check_owner)


def _format_finding(finding: Any, owner: str | None) -> str:
    """Return the finding and the advice as one line, with the owner if there are several."""
    level = "repaired" if finding.repaired else finding.level
    color = {"problem": "red", "repaired": "green"}.get(level, "yellow")
    advice = finding.advice.replace("store.maintenance.check(repair=True)", "`recollect db check --repair`")
    owner_prefix = "" if owner is None else f"owner {owner_label(owner)}: "
    return f"{paint(level, fg=color, bold=True)}: {owner_prefix}{sanitize(f'{finding.message} {advice}')}"


@db.command()
@click.argument("file", type=click.Path(dir_okay=False))
@options.yes("Overwrite an existing file.")
@options.as_json
def backup(file: str, yes: bool, as_json: bool) -> None:
    """Back up the database to a file, even while it is in use.

    The backup is complete, consistent and checked. `db restore` restores it.
    """
    exists = os.path.lexists(file)
    if exists:
        confirm(f"{file} already exists. Overwrite it?", f"overwrite {file}", yes=yes)
    store_access.require_database("copy")
    with store_access.open_for_reading() as store, ProgressBar("Copying") as progress:
        target = store.maintenance.backup(file, overwrite=exists, progress=progress)
    size = os.stat(target).st_size
    if as_json:
        print_json({"path": target, "bytes": size})
    else:
        print_note(f"Wrote {humanize.format_size(size)} to {target}.")


@db.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--no-verify", is_flag=True, help="Accept pages with a missing or wrong checksum (copies made by other tools)."
)
@options.dry_run
@options.yes()
@options.as_json
def restore(file: str, no_verify: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Restore the database from a backup.

    The current database is kept next to it under another name, which is printed. --dry-run checks the backup and prints
    a summary of its contents.
    """
    if store_access.engine_provider().files is None:
        raise NotSupported(what="Restoring a backup")
    import recollect  # noqa: PLC0415

    library: Any = recollect
    database, target = store_access.database_location(), store_access.database_target()
    if dry_run:
        _report_backup(library.check_backup(file, target, verify=not no_verify), file, database, as_json=as_json)
        return
    if not store_access.database_missing():
        confirm(
            f"Restore {file} to {database}? The current database is kept next to it.", f"replace {database}", yes=yes
        )
    previous = library.restore(file, target, verify=not no_verify)
    if as_json:
        print_json({"path": database, "backup": file, "kept": previous, "dry_run": False})
    else:
        print_note(
            f"Restored {database} from {file}." + (f" The previous database is in {previous}." if previous else "")
        )
        if previous:
            print_note(f"To undo: recollect db restore {shlex.quote(previous)}")


def _report_backup(report: Any, file: str, database: str, *, as_json: bool) -> None:
    """Print the contents of a backup that can be restored."""
    if as_json:
        contents = {name: value for name, value in to_plain(report).items() if name != "path"}
        print_json({"path": database, "backup": file, "kept": None, "dry_run": True, "holds": contents})
        return
    activity = "" if report.active_at_ms is None else f", last active {format_minute(report.active_at_ms)}"
    messages = pluralize(report.messages, "stored message")
    summary = (
        f"{pluralize(report.sessions, 'conversation')}, {messages}, {humanize.format_size(report.bytes)}{activity}"
    )
    previous = "" if store_access.database_missing() else ", which would be kept next to it"
    print_note(f"{file} is valid: {summary}. It would replace {database}{previous}.")


@db.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--owner", "owners", multiple=True, metavar="OWNER", help="Copy only this owner's conversations; can be repeated."
)
@options.as_json
@click.pass_context
def copy(context: click.Context, source: str, target: str, owners: tuple[str, ...], as_json: bool) -> None:
    """Copy a database to another location and compare the two.

    FROM and TO are paths or URLs. TO must be empty, or hold a part of the same copy, which is then continued. FROM is
    only read, for every owner. The exit status is 5 if the two differ, or if owners of FROM may have been missed.
    """
    import recollect  # noqa: PLC0415

    library: Any = recollect
    owner = store_access.owner_option()  # `recollect --owner ann db copy`
    explicit_owners = owners or (None if owner is None else (owner,))
    with ProgressBar("Copying") as progress:
        report = library.copy(source, target, owners=explicit_owners, progress=progress)
    if as_json:
        print_json({"complete": report.complete, **to_plain(report)})
    else:
        _report_copy(report, explicit=explicit_owners is not None)
    if not report.complete:
        context.exit(PROBLEMS)


def _report_copy(report: Any, *, explicit: bool) -> None:
    for difference in report.differences:
        owner_text = f" of {difference.owner}" if difference.owner else ""
        state = "is missing in" if difference.missing else "differs in"
        click.echo(
            sanitize(f"{difference.kind} {escape_unprintable(difference.name)}{owner_text} {state} {report.target}")
        )
    counts = report.counts
    summary = f"{pluralize(counts['sessions'], 'conversation')}, {pluralize(counts['messages'], 'stored message')}"
    if report.differences:
        print_note(
            f"{pluralize(len(report.differences), 'difference')} between {report.source} and "
            f"{report.target}. If either changed during the copy, copy into an empty database while nothing writes."
        )
        return
    owner_text = (
        f" Owners: {', '.join(owner_label(owner) for owner in report.owners)}."
        if report.owners != ("",) or explicit
        else ""
    )
    if report.everyone:
        scope = "the data of these owners from" if explicit else "all data of"
        print_note(f"{report.target} has {scope} {report.source}: {summary}. Counts and hashes match.{owner_text}")
    else:
        print_note(f"Copied {summary} from {report.source} to {report.target}.{owner_text} Some data may be missing.")
        print_note(HIDDEN_OWNERS)


@db.command()
@options.as_json
def stats(as_json: bool) -> None:
    """Show what takes up space in the database.

    The categories are text, tool output, attachments, index, free space and other data. On a pipe, each line has
    tab-separated fields: category, bytes.
    """
    store_access.require_database("measure")
    with store_access.open_for_reading() as store:
        space = to_plain(store.maintenance.space())
    if as_json:
        print_json({"path": store_access.database_location(), **space})
        return
    parts = {name: size for name, size in space.items() if isinstance(size, int)}
    columns = [Column("", style={"bold": True}), Column("SIZE", ">"), Column("", ">"), Column("", style={"fg": "cyan"})]
    print_table(columns, [_space_row(name, size, parts["total"]) for name, size in parts.items()])
    if is_terminal():
        print_note(f"Database: {store_access.database_location()}")


def _space_row(name: str, size: int, total: int) -> list[Cell]:
    cells = [Cell(name.replace("_", " "), name), Cell(humanize.format_size(size), str(size))]
    if not is_terminal():
        return cells
    share = size / total if total and name not in ("total", "log") else 0
    return [*cells, Cell(f"{share:.0%}" if share else ""), Cell(glyph("bar") * round(share * _BAR_WIDTH))]


@db.command()
@options.as_json
@click.pass_context
def reindex(context: click.Context, as_json: bool) -> None:
    """Rebuild the search index.

    The index is updated automatically; rebuild it if `db check` reports a problem with it. Rebuilds the index of every
    owner.
    """
    store_access.require_database("index")
    with ProgressBar("Indexing"):
        owner_results = run_for_owners(lambda store: store.maintenance.reindex())
    count = sum(owner_results.results.values())
    if as_json:
        print_json({"path": store_access.database_location(), "messages": count, **owner_results.to_dict()})
    else:
        print_note(f"Indexed {pluralize(count, 'message')}.{owner_results.describe()}")
        owner_results.print_missing()
    if not owner_results.complete:
        context.exit(PROBLEMS)


@db.command()
@options.as_json
def optimize(as_json: bool) -> None:
    """Reclaim disk space and speed up queries.

    SQLite rewrites the file (VACUUM), returns free space to the disk and truncates the write-ahead log. This also
    completes an interrupted erase. Other writers wait meanwhile, about 10 seconds per gigabyte.
    """
    store_access.require_database("optimize")
    with store_access.open_store() as store, ProgressBar("Optimizing"):
        report = store.maintenance.optimize()
    if as_json:
        print_json({"path": store_access.database_location(), **to_plain(report)})
    else:
        print_note(f"Size before: {humanize.format_size(report.before)}, now: {humanize.format_size(report.after)}.")
