"""`recollect import`: conversations from files of other tools, of Recollect, and of providers."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import click
import msgspec

from recollect.cli import options, store_access
from recollect.cli.exit_codes import PROBLEMS
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_json, to_plain
from recollect.cli.output import (
    Cell,
    Column,
    ProgressBar,
    display_width,
    is_terminal,
    print_error,
    print_note,
    print_table,
    sanitize,
    terminal_columns,
    truncate,
)
from recollect.errors import NotConfirmed, StoreError
from recollect.model import humanize
from recollect.model.humanize import pluralize
from recollect.sources import registry

if TYPE_CHECKING:
    from recollect.sources.files import FileTree
    from recollect.store import Store
    from recollect.sync.importer import ChangedFile, FileImport, FoundFiles
    from recollect.sync.places import Place
    from recollect.sync.report import ImportNote, ImportReport

OWN = "recollect"
"""The name of the source of Recollect's own exports."""
_MAX_BAD_LINES = 10  # errors that are printed per file; in a file of another kind, every line is one
_MAX_TEXTS = 3  # different notes of one kind and tool that are printed; --json has all
_NOTHING = "{} has no conversation that can be imported. `recollect import --help` lists the sources."
_STDIN_FOLDER = "recollect-stdin-"
_STDIN_NAME = "standard-input"  # of the temporary file that holds it, with an extension, by which sources look first
_COLUMNS = (
    Column("SOURCE"), Column("TRANSCRIPTS", ">"), Column("SIZE", ">"), Column("TO READ", ">"),
    Column("PLACE", min_width=20, drop=1),
)  # fmt: skip
_NOTE_TITLES = {
    "unknown": "Kept, but not understood:",
    "malformed": "Kept, but malformed:",
    "skipped": "Skipped:",
    "missing": "Missing:",
}


class _OwnExport(NamedTuple):
    """A file for the import of Recollect's exports and of plain messages."""

    name: str
    tree: FileTree | None
    """The tree that contains it; None for standard input."""

    def open(self) -> IO[Any]:
        return sys.stdin.buffer if self.tree is None else self.tree.open(self.name)

    @property
    def label(self) -> str:
        """The path that is printed."""
        if self.tree is None:
            return "-"
        return _display_path(self.tree.path if self.tree.path.name == self.name else self.tree.path / self.name)


class _Imports(NamedTuple):
    """What one call of the command imports."""

    files: list[ChangedFile]
    exports: list[_OwnExport]
    unusable: list[str]
    """Named files that nothing recognizes."""
    missing: list[Place]
    """Places of tools that do not exist on this machine."""

    @property
    def has_something(self) -> bool:
        """Whether there is anything to import or to report."""
        return bool(self.files or self.exports or self.unusable)


@click.command("import", cls=StoreCommand)
@click.argument("paths", metavar="[PATH]...", type=click.Path(exists=True, allow_dash=True), nargs=-1)
@click.option(
    "--source", "sources", type=click.Choice([*registry.NAMES, OWN]), multiple=True,
    help="Only conversations of this tool; repeat it for several. recollect: exports of Recollect.",
)  # fmt: skip
@options.since
@click.option(
    "--project", type=click.Path(file_okay=False), metavar="FOLDER",
    help="Only conversations that took place in this folder or below it.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Read unchanged files too, and import conversations that were deleted.")
@click.option(
    "--on-conflict", type=click.Choice(["skip", "new", "error"]), default="skip", show_default=True,
    help="If a conversation of an export of Recollect differs from the stored one: skip it, import it under a new id, "
    "or stop.",
)  # fmt: skip
@click.option("--format", help="Message format of a plain list of messages, such as openai, if it cannot be detected.")
@options.dry_run
@options.yes("Do not ask before reading the files that were found.")
@options.as_json
@click.pass_context
def import_(context: click.Context, paths: tuple[str, ...], yes: bool, as_json: bool, **settings: Any) -> None:
    """Import conversations of other tools.

    Without a PATH, looks where each tool keeps its conversations on this machine. A PATH is a file, a folder or a zip
    archive; - is standard input. Formats are detected by content. Exports of Recollect and plain lists of messages can
    be imported, too. Files are never changed, and a second import reads only new messages.
    """
    from recollect.sync.importer import FileImport, ImportOptions  # noqa: PLC0415

    dry_run: bool = settings["dry_run"]
    with (
        ExitStack() as resources,
        store_access.open_for_reading() if dry_run else store_access.open_for_writing() as store,
        ProgressBar("Importing") as progress,
    ):
        project = settings["project"] and Path(os.path.abspath(settings["project"]))
        run = FileImport(store, ImportOptions(
            sources=_tools(settings["sources"]), since=settings["since"], project=project, again=settings["again"],
            dry_run=dry_run, progress=lambda _, done, total: progress(done, total),
            index_progress=lambda done: progress(done, label="Updating the search index:"),
        ))  # fmt: skip
        imports = _find(run, paths, settings, resources)
        findings = list(run.findings)
        if not as_json:
            _print_found(findings, imports)
        if not paths and not (yes or dry_run or as_json):
            _confirm(imports.files)
        with _explain_interruption(dry_run=dry_run):
            run.read_all(imports.files)
            report = run.finish()
        own_reports = {item.label: _import_export(store, item, settings, progress) for item in imports.exports}
    if as_json:
        _print_json(findings, report, own_reports)
    else:
        _print_report(report, imports, has_paths=bool(paths))
    for label, own_report in own_reports.items():
        _print_own_report(label, own_report, dry_run=dry_run, as_json=as_json)
    for problem in imports.unusable:
        print_error(problem)
    own_problems = any(each.bad_count or each.conflicts for each in own_reports.values())
    if report.has_failures or own_problems or imports.unusable:
        context.exit(PROBLEMS)


def _tools(names: Sequence[str]) -> tuple[str, ...]:
    """Return the sources without Recollect itself; all of them if none was selected."""
    return tuple(dict.fromkeys(name for name in names if name != OWN)) if names else registry.NAMES


@contextmanager
def _explain_interruption(*, dry_run: bool) -> Generator[None]:
    """Print what Ctrl-C or a full disk leaves."""
    try:
        yield
    except (KeyboardInterrupt, StoreError):
        if not dry_run:
            print_note("\nWhat was read so far is stored. The same command continues the import.")
        raise


def _save_standard_input(resources: ExitStack) -> Path | None:
    """Write standard input to a temporary file, and return its path; None for an export, which is streamed."""
    from recollect import export as exporter  # noqa: PLC0415
    from recollect.sync.line_files import MAX_LINE_BYTES  # noqa: PLC0415

    stream = cast("io.BufferedReader", sys.stdin.buffer)
    if exporter.is_export(stream.peek()):
        return None
    folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix=_STDIN_FOLDER)))
    line = stream.readline(MAX_LINE_BYTES)
    try:
        msgspec.json.decode(line)
        path = folder / f"{_STDIN_NAME}.jsonl"
    except msgspec.DecodeError:
        path = folder / f"{_STDIN_NAME}.json"
    with path.open("xb") as file:
        file.write(line)
        shutil.copyfileobj(stream, file)
    return path


def _find(run: FileImport, paths: Sequence[str], settings: dict[str, Any], resources: ExitStack) -> _Imports:
    """Look for transcripts and exports in the named files, or for transcripts where the tools keep them."""
    if not paths:
        return _discover(run)
    imports = _Imports([], [], [], [])
    for name in paths:
        path = _save_standard_input(resources) if name == "-" else Path(name)
        if path is None:
            imports.exports.append(_OwnExport("-", None))
            continue
        tree = run.open(path)
        if tree is None:
            continue
        if _is_export(tree):  # which no other source needs to look at
            run.other_files.append((tree, tree.path.name))
            continue
        imports.files.extend(run.find_all(tree, run.options.sources, by_content=True))
    if settings["sources"] and OWN not in settings["sources"]:
        return imports
    own = [*_own_exports(run.other_files, imports.unusable)]
    filters = [name for name in ("since", "project") if settings[name] is not None]
    if filters and own:
        labels = ", ".join(item.label for item in own[:3])
        reason = f"--{filters[0]} does not apply to an export of Recollect. Import it without the option."
        imports.unusable.append(f"{labels}{' and others' if len(own) > 3 else ''}: {reason}")  # noqa: PLR2004
        return imports
    imports.exports.extend(own)
    return imports


def _is_export(tree: FileTree) -> bool:
    """Return whether a tree is a single file, an export of Recollect."""
    from recollect import export as exporter  # noqa: PLC0415

    return (
        tree.path.is_file()
        and tree.local_path(tree.path.name) is not None
        and exporter.is_export(tree.head(tree.path.name))
    )


def _discover(run: FileImport) -> _Imports:
    from recollect.sync.places import find_places, this_machine  # noqa: PLC0415

    imports = _Imports([], [], [], [])
    places = find_places(this_machine(), run.options.sources)
    imports.missing.extend(place for place in places if not place.path.exists())
    imports.files.extend(run.find_in_places(places))
    run.other_files.clear()  # files that the tools keep for themselves
    return imports


def _own_exports(files: Iterable[tuple[FileTree, str]], unusable: list[str]) -> Iterator[_OwnExport]:
    """Yield the exports of Recollect, and files with plain messages, which must be named."""
    from recollect import export as exporter  # noqa: PLC0415
    from recollect.sources.files import FolderTree  # noqa: PLC0415

    for tree, name in files:
        head = tree.head(name)
        is_named = isinstance(tree, FolderTree) and tree.path.is_file()
        if exporter.is_export(head) or (is_named and exporter.is_json(head)):
            yield _OwnExport(name, tree)
        elif is_named:
            label = _OwnExport(name, tree).label
            unusable.append(_NOTHING.format(label))


def _confirm(files: Sequence[ChangedFile]) -> None:
    """Ask on a terminal before the files that were found are read."""
    if not files or not (sys.stdin.isatty() and is_terminal()):
        return
    size = humanize.format_size(sum(file.size for file in files))
    if not click.confirm(f"Import {pluralize(len(files), 'transcript')} ({size})?", default=True, err=True):
        raise NotConfirmed("Cancelled. Nothing was imported.")


def _import_export(store: Store, item: _OwnExport, settings: dict[str, Any], progress: ProgressBar) -> Any:
    from recollect import export as exporter  # noqa: PLC0415

    with item.open() as file:
        return exporter.read(
            store, file, on_conflict=settings["on_conflict"], format=settings["format"], progress=progress,
            dry_run=settings["dry_run"],
        )  # fmt: skip


def _print_found(findings: Sequence[FoundFiles], imports: _Imports) -> None:
    """Print the transcripts that were found, by source and place."""
    rows = [
        [
            Cell(registry.get_source(item.source).label, item.source),
            Cell(f"{item.transcripts:,}", str(item.transcripts)),
            Cell(humanize.format_size(item.size), str(item.size)), Cell(f"{item.changed:,}", str(item.changed)),
            Cell(_short_path(item.path), _display_path(item.path)),
        ]
        for item in findings
    ]  # fmt: skip
    if rows:
        print_table(_COLUMNS, rows)
    elif imports.missing:
        places = ", ".join(_short_path(place.path) for place in imports.missing)
        print_note(f"No conversations of other tools were found. Looked in {places}. Pass a path to import from it.")


def _short_path(path: Path) -> str:
    """Return a path with ~ for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else _display_path(path)


def _display_path(path: Path) -> str:
    """Return a path, or - for standard input."""
    return "-" if path.stem == _STDIN_NAME and path.parent.name.startswith(_STDIN_FOLDER) else str(path)


def _print_report(report: ImportReport, imports: _Imports, *, has_paths: bool) -> None:
    """Print the counts and notes of an import."""
    if imports.files:
        counts = {name: report.count(name) for name in ("new", "updated", "unchanged")}
        messages = pluralize(report.new_messages, "new message")
        changed = sum(item.updated_messages for item in report.conversations)
        print_note(
            f"{'Would import' if report.dry_run else 'Imported'} {pluralize(counts['new'], 'new conversation')}, "
            f"{counts['updated']:,} updated, {counts['unchanged']:,} unchanged: {messages}"
            f"{f', {changed:,} changed' if changed else ''}."
        )
    if report.unchanged_files:
        print_note(f"Unchanged since the last import, not read: {pluralize(report.unchanged_files, 'transcript')}.")
    if report.filtered_files:
        print_note(f"Left out by --since or --project: {pluralize(report.filtered_files, 'transcript')}.")
    other_files = report.skipped_files - len(imports.exports) - len(imports.unusable)
    if has_paths and other_files > 0:
        print_note(f"Not transcripts, not read: {pluralize(other_files, 'file')}.")
    if has_paths and not (imports.has_something or report.unchanged_files or report.filtered_files or report.notes):
        print_note("No conversations were found. `recollect import --help` lists the sources.")
    if deleted := report.count("deleted"):
        print_note(
            f"Not imported, because you deleted them in Recollect: {pluralize(deleted, 'conversation')}. "
            f"--again imports them."
        )
    _print_notes(report.notes)


def _print_notes(notes: Sequence[ImportNote]) -> None:
    """Print the failures, and a line for the other notes of each kind and tool, the most frequent ones first."""
    groups: dict[str, dict[str, list[ImportNote]]] = {kind: {} for kind in _NOTE_TITLES}
    for note in notes:
        if note.kind == "failed":
            print_error(note.text if note.first in note.text else f"{note.first}: {note.text}")
        else:
            groups[note.kind].setdefault(note.source, []).append(note)
    for kind, title in _NOTE_TITLES.items():
        if groups[kind]:
            print_note(title)
        for group in groups[kind].values():
            click.echo(_format_notes(group), err=True)
    if any(len(group) > _MAX_TEXTS for by_source in groups.values() for group in by_source.values()):
        print_note("--json lists all of them, with the place of each.")


def _format_notes(notes: Sequence[ImportNote]) -> str:
    """Return the line of the notes of a kind and tool; on a terminal, it fits the width."""
    from recollect.sync.report import OTHER_TEXT  # noqa: PLC0415

    label = f"{registry.get_source(notes[0].source).label}: " if notes[0].source else ""
    notes = sorted(notes, key=lambda note: note.text == OTHER_TEXT)
    start, place = f"{sum(note.count for note in notes):>7,}  ", f"  {sanitize(notes[0].first)}"
    texts = [note.text.rstrip(".") for note in notes]
    more = f"; {len(notes) - _MAX_TEXTS} more" if len(notes) > _MAX_TEXTS else ""
    text = sanitize(f"{label}{'; '.join(texts[:_MAX_TEXTS])}{more}")
    if sys.stderr.isatty():
        columns = terminal_columns()
        place = truncate(place, columns // 3)
        text = truncate(text, columns - len(start) - display_width(place))
    return f"{start}{text}{place}"


def _print_json(findings: Sequence[FoundFiles], report: ImportReport, own_reports: dict[str, Any]) -> None:
    sources = [{**item._asdict(), "path": _display_path(item.path)} for item in findings]
    exports = [{"file": label, **to_plain(own_report)} for label, own_report in own_reports.items()]
    print_json({"sources": sources, **report.to_dict(), "exports": exports})


def _print_own_report(label: str, report: Any, *, dry_run: bool, as_json: bool) -> None:
    """Print the result of importing an export of Recollect."""
    is_useless = not any((report.created, report.updated, report.unchanged, report.conflicts))
    lines = report.bad[: 1 if is_useless else _MAX_BAD_LINES]
    for bad in lines:
        print_error(f"{label}, line {bad.line}: {bad.reason}")
    if report.bad_count > len(lines):
        print_error(f"{label}: {pluralize(report.bad_count - len(lines), 'more line')} cannot be read. See --json.")
    if report.bad_count and is_useless:
        print_error(_NOTHING.format(label))
        return
    for conflict in report.conflicts:
        outcome = (
            f"{'Would be imported' if dry_run else 'Imported'} as {conflict.new_id}."
            if conflict.new_id
            else f"{'Would be skipped' if dry_run else 'Skipped'}; use --on-conflict new to import it under a new id."
        )
        print_error(f"{label}: {conflict.id}: {conflict.reason} {outcome}")
    if not as_json:
        print_note(
            f"{'Would import' if dry_run else 'Imported'} {pluralize(report.messages, 'stored message')} from {label}: "
            f"{pluralize(len(report.created), 'new conversation')}, "
            f"{len(report.updated):,} updated, {len(report.unchanged):,} unchanged."
        )
