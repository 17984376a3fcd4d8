"""Which conversations are meant: by id, by title, or by the beginning of an id; and completing them in a shell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import place
from recollect.cli.screen import safe
from recollect.errors import AmbiguousName, Conflict, SessionNotFound
from recollect.model.title import folded

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from recollect.store import Session, Store

_OFFERED = 200
_PAGE = 1_000
_NAMED = 5


class Name(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """The name of a conversation; `trash` says that it is completed from the trash."""

    name = "id"

    def __init__(self, *, trash: bool = False) -> None:
        self.trash = trash

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Offer ids and titles that begin with what was typed; trouble with the store offers nothing."""
        try:
            with ctx.scope(cleanup=False), place.reading() as store:
                return _offers(store.list_sessions(_OFFERED, deleted=self.trash, archived=None), incomplete)
        except Exception:  # noqa: BLE001  a shell in the middle of a line is no place for an error
            return []


def _offers(sessions: Sequence[Session], typed: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415  loaded only while completing

    ids = [session for session in sessions if session.id.startswith(typed)]
    found = [CompletionItem(session.id, help=safe(session.title or "")) for session in ids]
    wanted = typed.casefold()
    titled = [session for session in sessions if typed and (session.title or "").casefold().startswith(wanted)]
    return found + [CompletionItem(safe(session.title or ""), help=session.id) for session in titled]


def find(store: Store, names: Sequence[str]) -> list[Session]:
    """Find every conversation that is named, each once, before anything is done to one of them."""
    return _once(store.find_session(name) for name in names)


def find_in_trash(store: Store, names: Sequence[str]) -> list[Session]:
    """Find them in the trash."""
    return _once(_in_trash(store, name) for name in names)


def find_anywhere(store: Store, names: Sequence[str]) -> list[Session]:
    """Find them among the living, or else in the trash."""
    return _once(_anywhere(store, name) for name in names)


def _once(found: Iterator[Session]) -> list[Session]:
    return list({(session.id, session.deleted_at): session for session in found}.values())


def _anywhere(store: Store, name: str) -> Session:
    try:
        return store.find_session(name)
    except SessionNotFound as error:
        with contextlib.suppress(SessionNotFound):
            return _not_shadowed(store, _in_trash(store, name))
        raise error from None


def _not_shadowed(store: Store, found: Session) -> Session:
    """Refuse one in the trash whose id is in use again: what is done by its id would be done to the living one."""
    if store.get_session(found.id) is None:
        return found
    raise Conflict(f"{title(found)} is in the trash, and a living conversation has its id. Delete that one first.")


def _in_trash(store: Store, name: str) -> Session:
    """Find a conversation in the trash as the store finds a living one, in the same order."""
    trash = list(_trash(store))
    for fits in (
        [session for session in trash if session.id == name][:1],  # of several, the one that was put there last
        [session for session in trash if session.title == name],
        [session for session in trash if name and session.id.startswith(name)],
        [session for session in trash if folded(name) and folded(session.title or "") == folded(name)],
    ):
        if len(fits) > 1:
            named = fits[:_NAMED]
            matches = tuple(f"{session.id} ({session.title})" if session.title else session.id for session in named)
            ids = tuple(session.id for session in named)
            raise AmbiguousName(name=name, count=len(fits), matches=matches, sessions=ids)
        if fits:
            return _reachable(fits[0], trash)
    told = f"There is no conversation {name!r} in the trash. `recollect sessions list --trash` shows what is there."
    raise SessionNotFound(told, session=name)


def _reachable(found: Session, trash: list[Session]) -> Session:
    """Give a conversation in the trash if its id leads to it: of several with one id it leads to the last put there."""
    if next(session for session in trash if session.id == found.id) is found:
        return found
    raise Conflict(
        f"Several conversations in the trash have the id {found.id!r}, and {title(found)} is not the one that was put "
        f"there last. Restore or erase that one first."
    )


def _trash(store: Store) -> Iterator[Session]:
    after: str | None = None
    while True:
        page = store.list_sessions(_PAGE, after=after, deleted=True, archived=None, delegates=True)
        yield from page
        if page.next is None:
            return
        after = page.next


def title(session: Any) -> str:
    """Give what a person calls a conversation: its title, or its id."""
    return f'"{safe(session.title)}" ({session.id})' if session.title else str(session.id)
