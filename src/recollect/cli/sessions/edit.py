"""`sessions rename`, `pin`, `unpin`, `label`, `unlabel`, `archive`, `unarchive` and `fork`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from recollect.cli import options, store_access
from recollect.cli.group import StoreCommand
from recollect.cli.json_output import print_json, to_plain
from recollect.cli.output import is_terminal, print_note
from recollect.cli.sessions import lookup
from recollect.model.humanize import escape_unprintable, pluralize

if TYPE_CHECKING:
    from recollect.store import Session

_ids_argument = click.argument("ids", metavar="ID...", type=lookup.SessionParam(), nargs=-1, required=True)
_labels_argument = click.argument("labels", metavar="LABEL...", nargs=-1, required=True)


@click.command(cls=StoreCommand)
@click.argument("id", type=lookup.SessionParam())
@click.argument("title")
@options.as_json
def rename(id: str, title: str, as_json: bool) -> None:
    """Change the title of a conversation.

    An empty title removes it.
    """
    with store_access.open_for_writing() as store:
        session = store.find_session(id).update(title=title.strip() or None)
    if as_json:
        print_json({"sessions": [session.to_dict()]})
    else:
        print_note(
            f"Renamed {escape_unprintable(session.id)} to {session.title!r}."
            if session.title
            else f"Removed the title of {escape_unprintable(session.id)}."
        )


@click.command(cls=StoreCommand)
@_ids_argument
@options.as_json
def pin(ids: tuple[str, ...], as_json: bool) -> None:
    """Pin conversations.

    Lists mark pinned conversations, and prune never deletes them.
    """
    _update(ids, "is pinned", as_json=as_json, pinned=True)


@click.command(cls=StoreCommand)
@_ids_argument
@options.as_json
def unpin(ids: tuple[str, ...], as_json: bool) -> None:
    """Unpin conversations."""
    _update(ids, "is no longer pinned", as_json=as_json, pinned=False)


@click.command(cls=StoreCommand)
@click.argument("id", type=lookup.SessionParam())
@_labels_argument
@options.as_json
def label(id: str, labels: tuple[str, ...], as_json: bool) -> None:
    """Add labels to a conversation.

    `sessions list --label` lists the conversations with a label. Labels that a conversation has already are kept.
    """
    with store_access.open_for_writing() as store:
        session = store.find_session(id).update(add_labels=[*labels])
    _print_labels(session, as_json=as_json)


@click.command(cls=StoreCommand)
@click.argument("id", type=lookup.SessionParam())
@_labels_argument
@options.as_json
def unlabel(id: str, labels: tuple[str, ...], as_json: bool) -> None:
    """Remove labels from a conversation."""
    with store_access.open_for_writing() as store:
        session = store.find_session(id).update(remove_labels=[*labels])
    _print_labels(session, as_json=as_json)


def _print_labels(session: Session, *, as_json: bool) -> None:
    if as_json:
        print_json({"sessions": [to_plain(session)]})
        return
    state = f"has the labels {', '.join(session.labels)}" if session.labels else "has no labels"
    print_note(f"{lookup.session_label(session)} {state}.")


@click.command(cls=StoreCommand)
@_ids_argument
@options.as_json
def archive(ids: tuple[str, ...], as_json: bool) -> None:
    """Archive conversations.

    Lists leave out archived conversations; `sessions list --archived` shows them.
    """
    _update(ids, "is archived", as_json=as_json, archived=True)


@click.command(cls=StoreCommand)
@_ids_argument
@options.as_json
def unarchive(ids: tuple[str, ...], as_json: bool) -> None:
    """Unarchive conversations."""
    _update(ids, "is no longer archived", as_json=as_json, archived=False)


def _update(ids: tuple[str, ...], state: str, *, as_json: bool, **fields: Any) -> None:
    with store_access.open_for_writing() as store:
        sessions = [session.update(**fields) for session in lookup.find_sessions(store, ids)]
    if as_json:
        print_json({"sessions": [to_plain(session) for session in sessions]})
        return
    for session in sessions:
        print_note(f"{lookup.session_label(session)} {state}.")


@click.command(cls=StoreCommand)
@click.argument("id", type=lookup.SessionParam())
@click.option("--at", metavar="MESSAGE", help="Last message to share, such as 1.4. Default: the latest.")
@click.option("--title", help="Title of the fork. Default: the title of the original.")
@click.option("--as", "new", metavar="NEW_ID", help="Id of the fork. Default: a generated id.")
@options.as_json
def fork(id: str, at: str | None, title: str | None, new: str | None, as_json: bool) -> None:
    """Fork a conversation.

    The fork is a new conversation that shares the messages of the original. Nothing is copied, and the original is not
    changed. Prints the id of the fork.
    """
    with store_access.open_for_writing() as store:
        origin = store.find_session(id)
        # A number is a position on the active path; positions have at most 10 digits.
        message = int(at) if at is not None and at.isdecimal() and len(at) < 11 else at  # noqa: PLR2004
        new_session = origin.fork(message, id=new, **({} if title is None else {"title": title}))
        [messages] = store.shown_counts([new_session])
    if as_json:
        print_json({"sessions": [new_session.to_dict()]})
        return
    click.echo(escape_unprintable(new_session.id))
    if is_terminal():
        print_note(f"The fork shares {pluralize(messages, 'message')} with {lookup.session_label(origin)}.")
