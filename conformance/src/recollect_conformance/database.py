"""The database under test: opens stores on it, reopens them, and compares their contents."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from recollect.errors import StoreClosed
from recollect.store import Session, Store
from recollect_conformance.examples import check_counts

Connect = Callable[[str], Store]
_SAMPLED_SESSIONS = 50  # sessions. About this many are read completely; a sample of equal sessions is enough.


class DatabaseUnderTest:
    """Opens stores on one database, for any owner, and closes them all at the end.

    `persistent` is False for a database that exists only while its store is open: there is one store then, and it is
    never reopened. `thorough` is False for frequent runs: tests with large data use less of it.
    """

    def __init__(self, connect: Connect, *, persistent: bool = True, thorough: bool = True) -> None:
        self.thorough = thorough
        self._connect = connect
        self._persistent = persistent
        self._stores: list[Store] = []
        self._owners: list[str] = []

    def open(self, owner: str = "") -> Store:
        """Open one more store on the database, as another window or program would."""
        if self._stores and not self._persistent:
            return self._stores[0]
        self._stores.append(self._connect(owner))
        self._owners.append(owner)
        return self._stores[-1]

    def reopen(self) -> Store:
        """Close every store and open a new one."""
        if self._persistent:
            self.close()
        return self.open()

    def close(self) -> None:
        """Close every store."""
        self._owners.clear()
        while self._stores:
            self._stores.pop().close()

    def verify(self, *, bodies_twice: bool = True) -> None:
        """Check the stored data, reopen the database, and compare everything before and after.

        With `bodies_twice=False`, the contents of sessions are read only after reopening; lists are always compared.
        """
        before = self._read_open_contents(bodies=bodies_twice and self._persistent)
        new_store = self.reopen()
        after = read_contents(new_store)
        assert new_store.maintenance.check(deep=False).problems == ()
        if "sessions" not in before:
            sessions = after.pop("sessions")
            infos = {info.id: info for info in before.pop("infos")}
            assert {id: session["info"] for id, session in sessions.items()} == {id: infos[id] for id in sessions}
        assert after == before

    def _read_open_contents(self, *, bodies: bool) -> dict[str, Any]:
        """Read everything, if possible through a store that the test used: it must see all committed data."""
        for store, owner in zip(self._stores, self._owners, strict=True):
            if not owner:
                with contextlib.suppress(StoreClosed):
                    return read_contents(store, bodies=bodies)
        return read_contents(self.open(), bodies=bodies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def read_contents(store: Store, *, bodies: bool = True) -> dict[str, Any]:
    """Read everything in a store and check its invariants. Without `bodies`, only the lists of sessions."""
    sessions = list_all_sessions(store, archived=None, delegates=True)
    assert len({session.id for session in sessions}) == len(sessions)
    contents: dict[str, Any] = {
        "order": [session.id for session in sessions],
        "created": [session.id for session in list_all_sessions(store, order="created", archived=None, delegates=True)],
        "trash": [session.info for session in list_all_sessions(store, deleted=True, archived=None, delegates=True)],
    }
    if not bodies:
        contents["infos"] = [session.info for session in sessions]
    else:
        contents["sessions"] = {
            session.id: _read_session(session) for session in sessions[:: 1 + len(sessions) // _SAMPLED_SESSIONS]
        }
    return contents


def list_all_sessions(store: Store, **filters: Any) -> list[Session]:
    """Return all sessions of a list, read page by page."""
    page = store.list_sessions(100, **filters)
    sessions = list(page)
    while page.next is not None:
        page = store.list_sessions(100, after=page.next, **filters)
        sessions += page
    return sessions


def _read_session(session: Session) -> dict[str, Any]:
    check_counts(session)
    messages = session.messages(deleted=True)
    positions = [message.position for message in messages]
    assert positions == sorted(set(positions))
    branches = session.branches.list()
    assert [branch.id for branch in branches if branch.current] == [session.branch]
    message_ids = {message.id for message in messages}
    calls = session.tools.list()
    for call in calls:
        assert call.message in message_ids
        if call.status != "cancelled" or call.result_message is not None:  # a call of an abandoned turn has no result
            assert (call.result_message in message_ids) == (call.status not in ("pending", "running"))
    return {
        "info": session.info,
        "messages": messages,
        "versions": {item.id: session.message_versions(item.id) for item in messages if item.edited_at is not None},
        "branches": branches,
        "turns": session.turns.list(),
        "calls": calls,
        "view": session.messages(active=True),
        "compactions": session.compactions.list(),
        "snapshots": session.snapshots.list(),
    }
