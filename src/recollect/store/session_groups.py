# Generated from store_async/session_groups.py. Change that file, then run: python tools/generate_sync_store.py
"""Groups of the methods of a session: branches, turns, compactions, snapshots and presence."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from recollect import storage
from recollect.model import session_ids, validation
from recollect.model.compaction import Compaction
from recollect.model.session import ArriveResult, Branch, Presence, Snapshot, SnapshotKind
from recollect.model.turn import DEFAULT_LEASE, TurnInfo
from recollect.storage.operation import Operation
from recollect.store.turn import Turn
from recollect.store.waiting import open_if_sync

if TYPE_CHECKING:
    from recollect.storage.paths import MessageId
    from recollect.store.session import Session


class SessionBranches:
    """The branches of a session. rewind() and append(after=...) create them."""

    def __init__(self, session: Session) -> None:
        self._session, self._store = session, session.store

    def list(self) -> builtins.list[Branch]:
        """Return the branches of the session, oldest first: a list of [Branch].

        The list omits inactive branches without messages.
        """
        return self._store._run(storage.branches.list_branches(self._store._scope(), self._session.id))

    def switch(self, branch: int | Branch, *, expected: int | None = None) -> Session:
        """Make another branch the active one and return the session.

        `branch` is its number or a [Branch]. Raise `BranchNotFound` if the session does not have it. `expected` as in
        `rewind()`.
        """
        number = branch.id if isinstance(branch, Branch) else branch
        self._session._set_info(
            self._store._run(storage.branches.switch(self._store._scope(), self._session.id, number, expected))
        )
        return self._session

    def shown_counts(self) -> dict[int, int]:
        """Return how many messages each branch shows to people, by branch number.

        They are counted as in [store.shown_counts()]. The path that a branch shares with its parent is not counted.
        """
        return self._store._run(storage.messages.count_shown_by_branch(self._store._scope(), self._session.id))


class SessionTurns:
    """The turns of a session, each from a user's message to the end of the answer."""

    def __init__(self, session: Session) -> None:
        self._session, self._store = session, session.store

    def list(self, *, after: int = 0, until: int | None = None) -> builtins.list[TurnInfo]:
        """Return the turns of the active path, oldest first: a list of [TurnInfo].

        `after` and `until` are positions: only turns that begin after `after`, and at or before `until`, are returned.
        """
        return self._store._run(storage.turns.list_turns(self._store._scope(), self._session.id, after, until))

    def resume(self, id: MessageId, *, lease: float = DEFAULT_LEASE) -> Turn:
        """Resume a turn that this process or another one opened, and return a [Turn].

        Adding a step to a turn that was completed, failed or cancelled raises `TurnClosed`.

        - `id`: the id of the turn, which is the id of its first message.
        - `lease`: as in `turn()`.

        A turn that is open stays open, and the result is another handle for it, also if a process that still runs has
        opened it: so several workers can take the steps of one turn in succession, such as one request each. The
        process that added the latest step holds the turn. If only one of them may continue, let them claim it with a
        [record][records] first.

        A turn that was interrupted, by a crash or by `turn.interrupt()`, is reopened: its status is `open` again, it
        has a new lease, and its tool calls change from `cancelled` back to `pending`. Only the last turn of the active
        branch can be reopened, and only if no other process took it over. Any other interrupted turn raises
        `TurnClosed`. If you add nothing to a reopened turn, the end of its `with` block marks it as interrupted again.

        After a crash, continue the loop: answer the calls that have no result, then call the model again.

        ```python
        crashed = store.session("cli:crashed")
        turn = crashed.turn("What is in a.txt?")
        call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.txt"}}
        turn.add({"role": "assistant", "content": [call]})
        turn.interrupt()                                                  # simulates a crash

        last = crashed.turns.list()[-1]
        if last.status == "interrupted":
            with crashed.turns.resume(last.id) as turn:
                for call in [call for call in crashed.tools.list() if call.status == "pending"]:
                    result = {"type": "tool_result", "tool_use_id": call.call_id, "content": "hello"}
                    turn.add({"role": "user", "content": [result]})
                # The next message is the model's answer to crashed.history("anthropic").
                turn.add({"role": "assistant", "content": "It contains: hello."})
        crashed.turns.list()[-1].status                                        # -> 'completed'
        [call.status for call in crashed.tools.list()]                    # -> ['success']
        ```
        """
        validation.check_lease(lease)

        def resume() -> Operation[storage.turns.TurnWrite]:
            return storage.turns.resume_turn(self._store._scope(), self._session.id, id, lease=int(lease * 1000))

        return open_if_sync(Turn(self._session, resume, lease, 0.0))


class SessionCompactions:
    """The compactions of a session, which compact() creates. An undone one stays in the list."""

    def __init__(self, session: Session) -> None:
        self._session, self._store = session, session.store

    def list(self) -> builtins.list[Compaction]:
        """Return all compactions of the active path, oldest first, including undone ones: a list of [Compaction]."""
        return self._store._run(storage.views.list_compactions(self._store._scope(), self._session.id))

    def latest(self) -> Compaction | None:
        """Return the latest compaction in effect, or `None`."""
        return next((item for item in reversed(self.list()) if item.undone_at_ms is None), None)

    def undo(self, round: int | None = None) -> Compaction:
        """Undo the latest compaction in effect on the active path, or the one with the number `round`, and return it.

        The history then contains the replaced messages again, or the summary of an earlier round. Undoing the same
        round twice has no effect. Raise `CompactionNotFound` if the path has no such compaction.
        """
        result = self._store._run(storage.views.undo_compaction(self._store._scope(), self._session.id, round))
        self._session._set_info(result.session)
        return result.compaction


class SessionSnapshots:
    """Titles, summaries and memories derived from a session, each up to one of its messages."""

    def __init__(self, session: Session) -> None:
        self._session, self._store = session, session.store

    def add(
        self, kind: SnapshotKind, content: Any, *, at: MessageId | None = None, tokens: int | None = None
    ) -> Snapshot:
        """Store a title, summary or memory derived from the session and return a [Snapshot].

        It replaces the snapshot of the same kind and message.

        - `kind`: `"title"`, `"summary"` or `"memory"`.
        - `content`: any JSON value.
        - `at`: the last message that it covers; `None` is the last message of the path.
        - `tokens`: its number of tokens; `None` estimates it.
        """
        snapshot = self._store._run(
            storage.views.store_snapshot(self._store._scope(), self._session.id, kind, content, at=at, tokens=tokens)
        )
        self._session.refresh()
        return snapshot

    def list(self, kind: SnapshotKind | None = None) -> builtins.list[Snapshot]:
        """Return the snapshots of the session, of one `kind` or all, oldest first."""
        return self._store._run(storage.views.list_snapshots(self._store._scope(), self._session.id, kind))


class SessionPresence:
    """The terminals, windows and programs that have a session open. Leases, not presences, prevent concurrent turns."""

    def __init__(self, session: Session) -> None:
        self._session, self._store = session, session.store

    def arrive(self, surface: str, *, id: str | None = None, take_over: bool = False) -> ArriveResult:
        """Register your presence in this session.

        Return an [ArriveResult] with the id of your presence and the other presences. Call it once when a conversation
        begins; it does not slow down messages and turns.

        - `surface`: `"terminal"`, `"web"`, `"discord"`, or any other name.
        - `id`: the id of an earlier presence to reuse; `None` creates a new one.
        - `take_over`: whether to remove the others. Their open turn is ended, as with `turn(..., take_over=True)`, and
          their `stay()` returns `False`.

        A presence is not a lock: [leases] prevent concurrent turns, with or without presences. If a process holds an
        open turn and has no presence, the others include it with the surface `"program"`.
        """
        scope = self._store._scope()
        presence_id = session_ids.new_id(scope.now) if id is None else id
        return self._store._run(
            storage.presence.arrive(scope, self._session.id, presence_id, surface, take_over=take_over)
        )

    def stay(self, id: str) -> bool:
        """Renew the presence with this `id`.

        Return `True`, or `False` if another participant took the session over and removed it. A presence of a process
        on this machine lasts as long as the process; any other expires 15 minutes after its last renewal.
        """
        return self._store._run(storage.presence.stay(self._store._scope(), id))

    def leave(self, id: str) -> None:
        """Remove the presence with this `id`."""
        self._store._run(storage.presence.leave(self._store._scope(), id))

    def list(self) -> builtins.list[Presence]:
        """Return the current presences, oldest first: a list of [Presence].

        The list does not include processes that have ended.

        ```python
        mine = session.presence.arrive("terminal")
        [presence.surface for presence in session.presence.list()]    # -> ['terminal']
        theirs = session.presence.arrive("web", take_over=True)
        [presence.surface for presence in theirs.others]        # -> ['terminal']
        session.presence.stay(mine.id)                                   # -> False
        session.presence.leave(theirs.id)
        ```
        """
        return self._store._run(storage.presence.present(self._store._scope(), self._session.id))
