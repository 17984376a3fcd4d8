"""Where the data under test is: opens stores on it, opens them again, and compares what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from recollect.errors import StoreClosed
from recollect.store import Session, Store
from recollect.testing.talk import counted

Connect = Callable[[str], Store]
_MANY = 50


class Place:
    """Opens stores on the same data, for an owner, and closes them all at the end.

    `lasting` is False for data that is gone with its store: then there is one store, and it stays open.
    """

    def __init__(self, connect: Connect, *, lasting: bool = True) -> None:
        self._connect = connect
        self._lasting = lasting
        self._stores: list[Store] = []
        self._owners: list[str] = []

    def open(self, owner: str = "") -> Store:
        """Open one more store on the data, as another window or another program would."""
        if self._stores and not self._lasting:
            return self._stores[0]
        self._stores.append(self._connect(owner))
        self._owners.append(owner)
        return self._stores[-1]

    def reopen(self) -> Store:
        """Close every store, and open the data again."""
        if self._lasting:
            self.close()
        return self.open()

    def close(self) -> None:
        """Close every store."""
        self._owners.clear()
        while self._stores:
            self._stores.pop().close()

    def verify(self) -> None:
        """Check that what is stored adds up, and that it is all there when the data is opened again."""
        before = self._contents_now()
        reopened = self.reopen()
        after = contents(reopened)
        assert reopened.check(deep=False).problems == ()
        assert after == before

    def _contents_now(self) -> dict[str, Any]:
        """Read everything, through a store that the test has used where one is open: it must know of all there is."""
        for store, owner in zip(self._stores, self._owners, strict=True):
            if not owner:
                with contextlib.suppress(StoreClosed):
                    return contents(store)
        return contents(self.open())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def contents(store: Store) -> dict[str, Any]:
    """Read everything in a store, and check what must always be true of it."""
    living = listed(store, archived=None, delegates=True)
    assert len({session.id for session in living}) == len(living)
    return {
        "order": [session.id for session in living],
        "created": [session.id for session in listed(store, order="created", archived=None, delegates=True)],
        "trash": [session.info for session in listed(store, deleted=True, archived=None, delegates=True)],
        "last": _last(store),
        # Of hundreds, which a test of lists makes all alike, every so many-th tells as much as each.
        "sessions": {session.id: _whole(session) for session in living[:: 1 + len(living) // _MANY]},
    }


def listed(store: Store, **filters: Any) -> list[Session]:
    """Read a list of sessions to its end, a page at a time."""
    page = store.list_sessions(100, **filters)
    found = list(page)
    while page.next is not None:
        page = store.list_sessions(100, after=page.next, **filters)
        found += page
    return found


def _last(store: Store) -> str | None:
    last = store.last_session()
    return None if last is None else last.id


def _whole(session: Session) -> dict[str, Any]:
    counted(session)
    messages = session.messages(deleted=True)
    positions = [message.position for message in messages]
    assert positions == sorted(set(positions))
    branches = session.branches()
    assert [branch.id for branch in branches if branch.current] == [session.branch]
    known = {message.id for message in messages}
    for call in session.tool_calls():
        assert call.message in known
        assert (call.result_message in known) == (call.status not in ("pending", "running"))
    return {
        "info": session.info,
        "messages": messages,
        "branches": branches,
        "turns": session.turns(),
        "calls": session.tool_calls(),
        "view": session.messages(active=True),
        "compactions": session.compactions(),
        "snapshots": session.snapshots(),
    }
