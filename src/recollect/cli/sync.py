"""`recollect sync`: new messages of other tools, once or as their files grow; and the same in the server."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import recollect
from recollect.cli import options, store_access
from recollect.cli.exit_codes import PROBLEMS, command_error_message
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_json
from recollect.cli.output import (
    ProgressBar,
    display_width,
    is_terminal,
    print_error,
    print_note,
    sanitize,
    terminal_columns,
    truncate,
)
from recollect.config import expand_home
from recollect.errors import InvalidValue, RecollectError
from recollect.model.humanize import pluralize
from recollect.sources import registry

if TYPE_CHECKING:
    from recollect.config.loader import Config
    from recollect.store import Store
    from recollect.sync.places import Place
    from recollect.sync.report import ImportedConversation, ImportReport
    from recollect.sync.watcher import FileWatcher

_MAX_LINES = 20  # conversations per import on a terminal; the first import has thousands
_log = logging.getLogger("recollect.server.sync")


@click.command(cls=StoreCommand)
@click.option("--watch", is_flag=True, help="Follow the files as they grow, until Ctrl-C.")
@click.option(
    "--source", "sources", type=click.Choice(registry.NAMES), multiple=True,
    help="Only this tool; repeat it for several. Default: sync.sources of the configuration, or all.",
)  # fmt: skip
@options.as_json
@click.pass_context
def sync(context: click.Context, watch: bool, sources: tuple[str, ...], as_json: bool) -> None:
    """Import new messages of other tools, once or continuously.

    Reads what changed since the last import in the places where the tools keep their conversations, and in sync.paths
    of the configuration. On a pipe, prints nothing if nothing is new.
    """
    places = configured_places(store_access.load_settings(), sources)
    with store_access.open_for_writing() as store:
        if watch:
            _watch(store, places, as_json=as_json)
            return
        with ProgressBar("Importing") as progress:
            report = _import_new(store, places, progress)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_report(report)
        if not report.has_news and is_terminal():
            present = [place for place in places if place.path.exists()]
            print_note("Nothing is new." if present else "No conversations of other tools were found.")
    if report.has_failures:
        context.exit(PROBLEMS)


def configured_places(config: Config, sources: Sequence[str] = ()) -> list[Place]:
    """Return the places of the selected sources, and those of the configuration."""
    from recollect.sync.places import check_sources, find_places, this_machine  # noqa: PLC0415

    paths = [Path(expand_home(path)) for path in config["sync.paths"]]
    for path in paths:
        if not path.is_absolute():
            raise InvalidValue(f"sync.paths must contain absolute paths, got {os.fspath(path)!r}.")
    return find_places(this_machine(), check_sources(sources or config["sync.sources"]), paths)


def _import_new(store: Store, places: Sequence[Place], progress: ProgressBar) -> ImportReport:
    from recollect.sync.importer import FileImport, ImportOptions  # noqa: PLC0415

    run = FileImport(store, ImportOptions(
        progress=lambda _, done, total: progress(done, total),
        index_progress=lambda done: progress(done, label="Updating the search index:"),
    ))  # fmt: skip
    run.read_all(run.find_in_places(places))
    return run.finish()


def _watch(store: Store, places: Sequence[Place], *, as_json: bool) -> None:
    """Import changes until a signal arrives. A second signal interrupts the import itself."""
    from recollect.sync.importer import ImportOptions  # noqa: PLC0415
    from recollect.sync.watcher import FileWatcher  # noqa: PLC0415

    print_report = _print_json_line if as_json else _print_report
    watcher = FileWatcher(
        store, places, ImportOptions(), print_report, lambda error: print_error(command_error_message(error))
    )
    if sys.stderr.isatty():
        present = [place for place in places if place.path.exists()]
        print_note(f"Watching {pluralize(len(present), 'place')} of {len(places)}. Press Ctrl-C to stop.")
    with _stop_on_signal(watcher):
        watcher.run()


@contextmanager
def _stop_on_signal(watcher: FileWatcher) -> Generator[None]:
    def stop(number: int, _: Any) -> None:
        signal.signal(number, signal.default_int_handler)
        watcher.stop()

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _print_report(report: ImportReport) -> None:
    """Print a line for each conversation that changed, and the files that could not be read."""
    changed = [item for item in report.conversations if item.outcome in ("new", "updated")]
    if is_terminal():
        _print_lines(changed)
    else:
        for item in changed:
            session, title = sanitize(item.session), sanitize(item.title or "")
            click.echo(f"{item.outcome}\t{session}\t{item.new_messages}\t{title}")
    for note in report.notes:
        if note.kind == "failed":
            print_error(note.text if note.first in note.text else f"{note.first}: {note.text}")
    sys.stdout.flush()


def _print_lines(changed: Sequence[ImportedConversation]) -> None:
    """Print lines that fit a terminal, at most _MAX_LINES of them, and the number of the others."""
    now = time.strftime("%H:%M:%S")
    for item in changed[:_MAX_LINES]:
        start = f"{now}  {sanitize(item.session)}  {pluralize(item.new_messages, 'new message')}"
        title = truncate(sanitize(item.title or ""), max(terminal_columns() - display_width(start) - 2, 0))
        click.echo(f"{start}  {title}".rstrip())
    others = changed[_MAX_LINES:]
    if others:
        count = sum(item.new_messages for item in others)
        click.echo(f"{now}  and {pluralize(len(others), 'more conversation')}, {pluralize(count, 'new message')}")


def _print_json_line(report: ImportReport) -> None:
    click.echo(json.dumps(report.to_dict(), ensure_ascii=True))
    sys.stdout.flush()


class BackgroundSync:
    """The sync of `recollect serve`: run() follows the files in a thread of its own until stop() is called."""

    def __init__(self, config: Config) -> None:
        if store_access.database_location() == ":memory:":
            raise InvalidValue("sync.enabled needs a database file or PostgreSQL, got :memory:.")
        owner = store_access.selected_owner()
        if config["server.owners"] and owner not in config["server.owners"]:
            raise InvalidValue(
                "sync.enabled imports the conversations of this machine for one owner, but the server has several. Set "
                "db.owner to the owner who gets them, or remove sync.enabled."
            )
        from recollect.sync.importer import ImportOptions  # noqa: PLC0415
        from recollect.sync.watcher import FileWatcher  # noqa: PLC0415

        self._places = configured_places(config)
        self._store = recollect.open(store_access.database_target(), owner=owner)
        self._watcher = FileWatcher(self._store, self._places, ImportOptions(), self._log_report, self._log_error)

    def run(self) -> None:
        """Import new messages until stop() is called."""
        names = ", ".join(dict.fromkeys(name for place in self._places for name in place.sources))
        _log.info("Sync follows the files of %s", names)
        try:
            self._watcher.run()
        except Exception as error:  # noqa: BLE001  the server continues without it
            _log.error("Sync stopped", exc_info=error)
        finally:
            self._store.close()

    def stop(self) -> None:
        """End run() after the file that it imports."""
        self._watcher.stop()

    def _log_report(self, report: ImportReport) -> None:
        changed = report.count("new") + report.count("updated")
        if changed:
            _log.info(
                "Sync imported %s of %s", pluralize(report.new_messages, "message"), pluralize(changed, "conversation")
            )
        failures = sum(note.count for note in report.notes if note.kind == "failed")
        if failures:
            _log.warning("Sync could not read %s; `recollect sync` names them", pluralize(failures, "file"))

    def _log_error(self, error: RecollectError) -> None:
        _log.error("Sync cannot write to the store; trying again", exc_info=error)
