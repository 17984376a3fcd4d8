"""`sessions rename`, `pin`, `unpin`, `archive`, `unarchive`: what a person says about a conversation."""

from __future__ import annotations

from typing import Any

import click

from recollect.cli import names, options, place
from recollect.cli.document import plain, print_json
from recollect.cli.group import Command
from recollect.cli.screen import remark

_conversations = click.argument("ids", metavar="ID...", type=names.Name(), nargs=-1, required=True)


@click.command(cls=Command)
@click.argument("id", type=names.Name())
@click.argument("title")
@options.as_json
def rename(id: str, title: str, as_json: bool) -> None:
    """Give a conversation another title."""
    with place.writing() as store:
        session = store.find_session(id).update(title=title.strip() or None)
    if as_json:
        print_json({"sessions": [session.to_dict()]})
    else:
        remark(f"{session.id} is now called {session.title!r}." if session.title else f"{session.id} has no title now.")


@click.command(cls=Command)
@_conversations
@options.as_json
def pin(ids: tuple[str, ...], as_json: bool) -> None:
    """Pin conversations.

    Pinned ones are marked in lists, and prune never takes them.
    """
    _update(ids, "is pinned", as_json=as_json, pinned=True)


@click.command(cls=Command)
@_conversations
@options.as_json
def unpin(ids: tuple[str, ...], as_json: bool) -> None:
    """Unpin conversations."""
    _update(ids, "is no longer pinned", as_json=as_json, pinned=False)


@click.command(cls=Command)
@_conversations
@options.as_json
def archive(ids: tuple[str, ...], as_json: bool) -> None:
    """Put conversations out of sight, and keep them.

    Lists leave them out; `sessions list --archived` shows them.
    """
    _update(ids, "is archived", as_json=as_json, archived=True)


@click.command(cls=Command)
@_conversations
@options.as_json
def unarchive(ids: tuple[str, ...], as_json: bool) -> None:
    """Bring archived conversations back into the list."""
    _update(ids, "is back in the list", as_json=as_json, archived=False)


def _update(ids: tuple[str, ...], told: str, *, as_json: bool, **fields: Any) -> None:
    with place.writing() as store:
        changed = [session.update(**fields) for session in names.find(store, ids)]
    if as_json:
        print_json({"sessions": [plain(session) for session in changed]})
        return
    for session in changed:
        remark(f"{names.title(session)} {told}.")
