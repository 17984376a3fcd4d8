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

    `lasting` is False for data that is gone with its store: then there is one store, and it stays open. `thorough` is
    False for a run that is made often: then large data is smaller.
    """

    def __init__(self, connect: Connect, *, lasting: bool = True, thorough: bool = True) -> None:
        self.thorough = thorough
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

    def verify(self, *, bodies_twice: bool = True) -> None:
        """Check that what is stored adds up, and that it is all there when the data is opened again.

        `bodies_twice=False` has what is in the sessions read once, after that; their lists are compared all the same.
        """
        before = self._contents_now(bodies=bodies_twice and self._lasting)
        reopened = self.reopen()
        after = contents(reopened)
        assert reopened.check(deep=False).problems == ()
        if "sessions" not in before:
            whole = after.pop("sessions")
            infos = {info.id: info for info in before.pop("infos")}
            assert {id: session["info"] for id, session in whole.items()} == {id: infos[id] for id in whole}
        assert after == before

    def _contents_now(self, *, bodies: bool) -> dict[str, Any]:
        """Read everything, through a store that the test has used where one is open: it must know of all there is."""
        for store, owner in zip(self._stores, self._owners, strict=True):
            if not owner:
                with contextlib.suppress(StoreClosed):
                    return contents(store, bodies=bodies)
        return contents(self.open(), bodies=bodies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def contents(store: Store, *, bodies: bool = True) -> dict[str, Any]:
    """Read everything in a store, and check what must always be true of it; without bodies, the lists alone."""
    living = listed(store, archived=None, delegates=True)
    assert len({session.id for session in living}) == len(living)
    found: dict[str, Any] = {
        "order": [session.id for session in living],
        "created": [session.id for session in listed(store, order="created", archived=None, delegates=True)],
        "trash": [session.info for session in listed(store, deleted=True, archived=None, delegates=True)],
        "last": _last(store),
    }
    if not bodies:
        found["infos"] = [session.info for session in living]
    else:
        # Of hundreds, which a test of lists makes all alike, every so many-th tells as much as each.
        found["sessions"] = {session.id: _whole(session) for session in living[:: 1 + len(living) // _MANY]}
    return found


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
    calls = session.tool_calls()
    for call in calls:
        assert call.message in known
        if call.status != "canceled" or call.result_message is not None:  # a turn that was given up has no result
            assert (call.result_message in known) == (call.status not in ("pending", "running"))
    return {
        "info": session.info,
        "messages": messages,
        "branches": branches,
        "turns": session.turns(),
        "calls": calls,
        "view": session.messages(active=True),
        "compactions": session.compactions(),
        "snapshots": session.snapshots(),
    }
