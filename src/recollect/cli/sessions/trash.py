"""`sessions delete`, `restore`, `erase`: letting go, with a way back until the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recollect.cli import names, options, place
from recollect.cli.asking import must_agree
from recollect.cli.document import print_json
from recollect.cli.group import Command
from recollect.cli.screen import remark
from recollect.model.amount import many

if TYPE_CHECKING:
    from recollect.store import Session, Store


@click.command(cls=Command)
@click.argument("ids", metavar="ID...", type=names.Name(), nargs=-1, required=True)
@options.dry_run
@options.yes("Taken for the sake of scripts: it never asks, because it can be undone.")
@options.as_json
def delete(ids: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool) -> None:  # noqa: ARG001
    """Put conversations in the trash.

    `sessions restore` brings them back whole. Nothing leaves the trash by itself.
    """
    with place.writing() as store:
        found = names.find(store, ids)
        for session in [] if dry_run else found:
            store.delete_session(session.id)
    if as_json:
        print_json({"deleted": [session.id for session in found], "dry_run": dry_run})
        return
    for session in found:
        remark(f"{names.title(session)} {'would go' if dry_run else 'went'} to the trash.")
    if not dry_run:
        import shlex  # noqa: PLC0415

        remark(f"To undo: recollect sessions restore {shlex.join(session.id for session in found)}")


@click.command(cls=Command)
@click.argument("ids", metavar="ID...", type=names.Name(trash=True), nargs=-1, required=True)
@options.as_json
def restore(ids: tuple[str, ...], as_json: bool) -> None:
    """Take conversations out of the trash, whole.

    `sessions list --trash` shows what is there.
    """
    with place.writing() as store:
        found = [store.restore_session(session.id) for session in names.find_in_trash(store, ids)]
    if as_json:
        print_json({"sessions": [session.to_dict() for session in found]})
        return
    for session in found:
        remark(f"{names.title(session)} is back.")


@click.command(cls=Command)
@click.argument("ids", metavar="ID...", type=names.Name(trash=True), nargs=-1, required=True)
@click.option(
    "--forks",
    type=click.Choice(["refuse", "keep", "erase"]),
    default="refuse",
    show_default=True,
    help="What to do with forks that share the past: refuse, keep them with it, or erase them too.",
)
@options.dry_run
@options.yes()
@options.as_json
def erase(ids: tuple[str, ...], forks: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Erase conversations for good.

    Living ones, or else from the trash. Their text is overwritten in the file. This can not be undone, so it asks;
    where there is no terminal to ask on, it refuses without -y.
    """
    with place.writing() as store:
        # A fork is younger than its origin, and goes first: then the origin has no fork left that stands against it.
        found = sorted(names.find_anywhere(store, ids), key=lambda session: session.created_at, reverse=True)
        if not as_json:
            for session, messages in zip(found, store.shown_counts(found), strict=True):
                remark(f"{names.title(session)}, {many(messages, 'message')}")
        erased = [session.id for session in found]
        if not dry_run:
            must_agree(f"Erase {many(len(found), 'conversation')} for good? This can not be undone.", yes=yes)
            erased = [id for session in found for id in _erased(store, session, forks)]
    if as_json:
        print_json({"erased": erased, "dry_run": dry_run})
    else:
        remark(f"{many(len(erased), 'conversation')} {'would be' if dry_run else 'erased'}{' erased' * dry_run}.")


def _erased(store: Store, session: Session, forks: str) -> list[str]:
    """Erase the very session that was shown: a living one and one in the trash can have the same id."""
    return store.erase_session(session.id, forks=forks, deleted=session.deleted_at is not None)
