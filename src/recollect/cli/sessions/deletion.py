"""`sessions delete`, `restore`, `erase` and `prune`: the trash, erasure and retention limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, store_access
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_json, to_plain
from recollect.cli.options import NumberParam, SizeParam, confirm
from recollect.cli.output import print_note
from recollect.cli.sessions import lookup
from recollect.cli.times import DurationParam, format_minute
from recollect.model.humanize import format_size, pluralize, quote_for_shell
from recollect.model.value import format_iso

if TYPE_CHECKING:
    from recollect.store import Session, Store


@click.command(cls=StoreCommand)
@click.argument("ids", metavar="ID...", type=lookup.SessionParam(), nargs=-1, required=True)
@options.dry_run
@options.yes("Accepted for compatibility; delete never prompts.")
@options.as_json
def delete(ids: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool) -> None:  # noqa: ARG001
    """Move conversations to the trash.

    `sessions restore` restores them completely. The trash is never emptied automatically.
    """
    with store_access.open_for_writing() as store:
        sessions = lookup.find_sessions(store, ids)
        for session in [] if dry_run else sessions:
            store.delete_session(session.id)
    if as_json:
        print_json({"deleted": [session.id for session in sessions], "dry_run": dry_run})
        return
    for session in sessions:
        print_note(f"{'Would move' if dry_run else 'Moved'} {lookup.session_label(session)} to the trash.")
    words = [quote_for_shell(session.id) for session in sessions]
    if not dry_run and None not in words:  # an id with NUL cannot be typed
        dashes = "-- " if any(session.id.startswith("-") for session in sessions) else ""
        print_note(f"To undo: recollect sessions restore {dashes}{' '.join(filter(None, words))}")


@click.command(cls=StoreCommand)
@click.argument("ids", metavar="ID...", type=lookup.SessionParam(trash=True), nargs=-1, required=True)
@options.as_json
def restore(ids: tuple[str, ...], as_json: bool) -> None:
    """Restore conversations from the trash.

    `sessions list --trash` lists them.
    """
    with store_access.open_for_writing() as store:
        sessions = [store.restore_session(session.id) for session in lookup.find_in_trash(store, ids)]
    if as_json:
        print_json({"sessions": [session.to_dict() for session in sessions]})
        return
    for session in sessions:
        print_note(f"Restored {lookup.session_label(session)}.")


@click.command(cls=StoreCommand)
@click.argument("ids", metavar="ID...", type=lookup.SessionParam(trash=True), nargs=-1, required=True)
@click.option(
    "--forks",
    type=click.Choice(["refuse", "keep", "erase"]),
    default="refuse",
    show_default=True,
    help="What to do if forks share the messages: refuse, keep the forks, or erase them too.",
)
@options.dry_run
@options.yes()
@options.as_json
def erase(ids: tuple[str, ...], forks: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Erase conversations permanently.

    Looks for each conversation in the list first, then in the trash. Its text is overwritten in the file. This cannot
    be undone, so it asks for confirmation; without a terminal, it needs --yes.
    """
    with store_access.open_for_writing() as store:
        # A fork is newer than its origin. Erased first, it no longer blocks the origin.
        sessions = sorted(lookup.find_anywhere(store, ids), key=lambda session: session.created_at, reverse=True)
        if not as_json:
            for session, messages in zip(sessions, store.shown_counts(sessions), strict=True):
                print_note(f"{lookup.session_label(session)}, {pluralize(messages, 'message')}")
        erased_ids = [session.id for session in sessions]
        if not dry_run:
            action = f"{pluralize(len(sessions), 'conversation')} permanently"
            confirm(f"Erase {action}? This cannot be undone.", f"erase {action}", yes=yes)
            erased_ids = [id for session in sessions for id in _erase_session(store, session, forks)]
    if as_json:
        print_json({"erased": erased_ids, "dry_run": dry_run})
    else:
        print_note(f"{'Would erase' if dry_run else 'Erased'} {pluralize(len(erased_ids), 'conversation')}.")


def _erase_session(store: Store, session: Session, forks: str) -> list[str]:
    """Erase exactly this session: an active one and one in the trash can have the same id."""
    return store.erase_session(session.id, forks=forks, deleted=session.deleted_at is not None)


_NO_LIMITS = (
    "Pass a limit: --older-than, --keep, --max-size, --max-messages, --tool-output-over or --trash; or set [retention] "
    "in the configuration."
)


@click.command(cls=StoreCommand)
@click.option(
    "--older-than",
    type=DurationParam(),
    metavar="DURATION",
    help="Move conversations without activity or changes for this long to the trash, such as 90d.",
)
@click.option(
    "--keep",
    type=NumberParam(0),
    metavar="N",
    help="Move all but the N most recently active or changed conversations to the trash.",
)
@click.option(
    "--max-size",
    type=SizeParam(),
    metavar="SIZE",
    help="Move the oldest conversations to the trash until the others take at most this, such as 2GB.",
)
@click.option(
    "--max-messages",
    type=NumberParam(),
    metavar="N",
    help="Mark the oldest turns of conversations with more than N messages as deleted.",
)
@click.option(
    "--tool-output-over", type=SizeParam(), metavar="SIZE", help="Erase tool output larger than this; messages stay."
)
@click.option(
    "--trash",
    is_flag=True,
    help="Erase the conversations in the trash (with --older-than: only those trashed longer ago).",
)
@click.option("--erase", is_flag=True, help="Erase conversations instead of moving them to the trash.")
@options.dry_run
@options.yes()
@options.as_json
def prune(*, dry_run: bool, yes: bool, as_json: bool, trash: bool, erase: bool, **limit_options: int | None) -> None:
    """Delete old or excess conversations.

    Moves conversations to the trash, from which `sessions restore` restores them. Pinned conversations are never
    moved. Erased tool output cannot be restored. Without options, the limits of [retention] in the configuration apply.
    --dry-run prints the number, age and size.
    """
    limits = _limits(limit_options)
    if trash and limits.keys() - {"older_than"}:
        raise click.UsageError("--trash can only be combined with --older-than.")
    if not trash and not limits:
        limits = store_access.retention_limits(store_access.load_settings())
        if not limits:
            raise click.UsageError(_NO_LIMITS)
    arguments: dict[str, Any] = {**limits} if trash else {**limits, "erase": erase}
    report = _run_prune("empty_trash" if trash else "prune", {**arguments, "dry_run": True})
    if not dry_run and (report.count or report.outputs or report.trimmed):
        if not as_json:
            print_note(_format_report(report))
        confirm("Delete permanently?" if report.erased else "Prune?", "prune", yes=yes)
        report = _run_prune("empty_trash" if trash else "prune", arguments)
    if as_json:
        print_json(_report_to_json(report))
    else:
        print_note(_format_report(report))


def _run_prune(operation: str, arguments: dict[str, Any]) -> Any:
    # open_for_writing() would apply the configured retention first, and create a missing file.
    with store_access.open_for_reading() as store:
        return getattr(store.maintenance, operation)(**arguments)


def _report_to_json(report: Any) -> dict[str, Any]:
    facts = {name: getattr(report, name) for name in ("count", "messages", "bytes")}
    times = {"oldest_at": report.oldest_at_ms and format_iso(report.oldest_at_ms)}
    return {**to_plain(report), **facts, **times, "sessions": [to_plain(session) for session in report.sessions]}


def _limits(limit_options: dict[str, int | None]) -> dict[str, float]:
    """Return the limits as arguments of the store: sizes in bytes, durations in seconds."""
    limits: dict[str, float] = {name: value for name, value in limit_options.items() if value is not None}
    if "max_size" in limits:
        limits["max_bytes"] = limits.pop("max_size")
    if "older_than" in limits:
        limits["older_than"] /= 1000
    return limits


def _format_report(report: Any) -> str:
    """Return sentences with the number, age and size of the pruned conversations, or those of a dry run."""
    sentences: list[str] = []
    move, delete = ("Would move", "Would delete") if report.dry_run else ("Moved", "Deleted")
    if report.count:
        conversations = pluralize(report.count, "conversation")
        oldest = f"; oldest activity {format_minute(report.oldest_at_ms)}" if report.oldest_at_ms else ""
        facts = f"{pluralize(report.shown_messages, 'message')}, {format_size(report.bytes)}{oldest}"
        if report.erased:
            sentences.append(f"{delete} {conversations} permanently ({facts}).")
        else:
            sentences.append(f"{move} {conversations} to the trash ({facts}).")
    if report.trimmed:
        sentences.append(f"{delete} {pluralize(report.trimmed, 'stored message')} of long conversations.")
    if report.outputs:
        sentences.append(f"{delete} {pluralize(report.outputs, 'tool output')} ({format_size(report.output_bytes)}).")
    return " ".join(sentences) or "Nothing to prune."
