"""Lookup of sessions by id, title or id prefix, and their completion in a shell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import store_access
from recollect.cli.output import sanitize
from recollect.errors import AmbiguousName, Conflict, SessionNotFound
from recollect.model.humanize import escape_unprintable
from recollect.model.title import title_sort_key

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from recollect.store import Session, Store

_MAX_COMPLETIONS = 200  # sessions, the latest ones: a shell shows hardly more, and it must answer at once
_PAGE = 1_000  # sessions per query; the maximum of the store
_MAX_MATCHES = 5  # matches that an error names


class SessionParam(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  click before 8.4 takes no argument
    """The id, title or id prefix of a conversation. With `trash`, completion offers the trash."""

    name = "id"

    def __init__(self, *, trash: bool = False) -> None:
        self.trash = trash

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return ids and titles that start with the typed text; nothing if the store fails."""
        try:
            with ctx.scope(cleanup=False), store_access.open_for_reading() as store:
                return _completions(
                    store.list_sessions(_MAX_COMPLETIONS, deleted=self.trash, archived=None), incomplete
                )
        except Exception:  # noqa: BLE001  an error would be printed into the line that the person types
            return []


def _completions(sessions: Sequence[Session], prefix: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415  loaded only while completing

    # An id with control characters cannot be typed, and a shell would print them.
    id_matches = [session for session in sessions if session.id.startswith(prefix) and session.id.isprintable()]
    items = [CompletionItem(session.id, help=sanitize(session.title or "")) for session in id_matches]
    lowercase_prefix = prefix.casefold()
    title_matches = [
        session for session in sessions if prefix and (session.title or "").casefold().startswith(lowercase_prefix)
    ]
    return items + [
        CompletionItem(sanitize(session.title or ""), help=escape_unprintable(session.id)) for session in title_matches
    ]


def find_sessions(store: Store, names: Sequence[str]) -> list[Session]:
    """Find every conversation, each once, before anything is changed."""
    return _unique(store.find_session(name) for name in names)


def find_in_trash(store: Store, names: Sequence[str]) -> list[Session]:
    """Find conversations in the trash."""
    return _unique(_find_in_trash(store, name) for name in names)


def find_anywhere(store: Store, names: Sequence[str]) -> list[Session]:
    """Find conversations that are not in the trash, or else in the trash."""
    return _unique(_find_anywhere(store, name) for name in names)


def _unique(sessions: Iterator[Session]) -> list[Session]:
    return list({(session.id, session.deleted_at): session for session in sessions}.values())


def _find_anywhere(store: Store, name: str) -> Session:
    try:
        return store.find_session(name)
    except SessionNotFound as error:
        with contextlib.suppress(SessionNotFound):
            return _check_not_shadowed(store, _find_in_trash(store, name))
        raise error from None


def _check_not_shadowed(store: Store, session: Session) -> Session:
    """Raise Conflict if the id is in use again: an operation by id would change the active session."""
    if store.get_session(session.id) is None:
        return session
    raise Conflict(
        f"{session_label(session)} is in the trash, but a conversation in the list has its id. Delete that one first."
    )


def _find_in_trash(store: Store, name: str) -> Session:
    """Find a session in the trash by the rules of store.find_session(), in the same order."""
    trash = list(_iter_trash(store))
    for candidates in (
        [session for session in trash if session.id == name][:1],  # of several, the one that was deleted last
        [session for session in trash if session.title == name],
        [session for session in trash if name and session.id.startswith(name)],
        [
            session
            for session in trash
            if title_sort_key(name) and title_sort_key(session.title or "") == title_sort_key(name)
        ],
    ):
        if len(candidates) > 1:
            listed_candidates = candidates[:_MAX_MATCHES]
            matches = tuple(escape_unprintable(_match_label(session)) for session in listed_candidates)
            ids = tuple(session.id for session in listed_candidates)
            raise AmbiguousName(name=name, count=len(candidates), matches=matches, sessions=ids)
        if candidates:
            return _check_reachable(candidates[0], trash)
    message = f"No conversation in the trash matches {name!r}. Run `recollect sessions list --trash` to see the trash."
    raise SessionNotFound(message, session=name)


def _match_label(session: Session) -> str:
    return f"{session.id} ({session.title})" if session.title else session.id


def _check_reachable(candidate: Session, trash: list[Session]) -> Session:
    """Return a session in the trash if its id identifies it: of several with one id, the one deleted last."""
    if next(session for session in trash if session.id == candidate.id) is candidate:
        return candidate
    raise Conflict(
        f"Several conversations in the trash have the id {candidate.id!r}, and {session_label(candidate)} is not the "
        f"latest. Restore or erase the latest one first."
    )


def _iter_trash(store: Store) -> Iterator[Session]:
    after: str | None = None
    while True:
        page = store.list_sessions(_PAGE, after=after, deleted=True, archived=None, delegates=True)
        yield from page
        if page.next is None:
            return
        after = page.next


def session_label(session: Any) -> str:
    """Return the title and the id of a session for output."""
    id = escape_unprintable(session.id)
    return f'"{sanitize(session.title)}" ({id})' if session.title else id
