"""A group: the sessions of a file that share branches, with what is said in them kept aside until they are placed."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from recollect.errors import InvalidValue, displayed
from recollect.export import records, stored
from recollect.export.spool import Spool
from recollect.ops import arrivals


class Given:
    """A session of a file: its record, its columns, the numbers of its own branches."""

    def __init__(self, record: records.SessionRecord, line: int, columns: dict[str, Any]) -> None:
        self.record = record
        self.line = line
        self.own: list[int] = []
        self._columns = columns

    @property
    def id(self) -> str:
        """Its id in the file."""
        return self.record.id

    @property
    def columns(self) -> dict[str, Any]:
        """What is known about it. Without the branch it stands on it is not whole, and a whole one goes over it."""
        return self._columns if self.record.branch in self.own else {**self._columns, "revision": 0}

    @property
    def head(self) -> int:
        """The branch that it stands on; the newest that it has where the file does not have that one."""
        return self.record.branch if self.record.branch in self.own else max(self.own)


class Line:
    """A branch of a file, and the last position that the file has of it."""

    def __init__(self, record: records.BranchRecord) -> None:
        self.number = record.id
        self.parent = record.parent
        self.fork_at = record.fork_at
        self.session = None if record.shared else record.session
        self.created_at: int = records.moment(record.created_at)
        self.last = record.fork_at
        self.gaps: list[tuple[int, int]] = []

    def reach(self, position: int) -> None:
        """Note the next message, and what is missing before it."""
        if position > self.last + 1:
            self.gaps.append((self.last, position))
        self.last = position

    def has(self, position: int) -> bool:
        """Whether the file has a message of this branch."""
        if not self.fork_at < position <= self.last:
            return False
        index = bisect.bisect_right(self.gaps, (position, 0)) - 1
        return index < 0 or not self.gaps[index][0] < position < self.gaps[index][1]


class Entry(NamedTuple):
    """A record of a group, and its line."""

    line: int
    record: Any


class Group:
    """The sessions and branches of one tree. Records that do not fit are refused when they come."""

    def __init__(self, tree: int) -> None:
        self.tree = tree
        self.sessions: dict[str, Given] = {}
        self.branches: dict[int, Line] = {}
        self.spool = Spool()
        self.awaited: list[tuple[int, int]] = []
        """Lines that speak of a branch of a fork, which comes after its origin."""

    def add_session(self, record: records.SessionRecord, line: int, soonest: int) -> None:
        """Take a session."""
        if record.id in self.sessions:
            raise InvalidValue(f"Session {displayed(record.id)} comes twice.")
        self.sessions[record.id] = Given(record, line, stored.session_columns(record, soonest))

    def add_branch(self, record: records.BranchRecord) -> None:
        """Take a branch."""
        parent = None if record.parent is None else self.branches.get(record.parent)
        if record.id in self.branches:
            raise InvalidValue(f"Branch {record.id} comes twice.")
        if record.parent is not None and (parent is None or record.parent >= record.id):
            raise InvalidValue(f"Branch {record.id} leaves branch {record.parent}, which is not before it.")
        if record.fork_at and (parent is None or record.fork_at < parent.fork_at):
            raise InvalidValue(f"Branch {record.id} leaves its parent where that has nothing.")
        self.branches[record.id] = Line(record)
        if not record.shared:
            self.sessions[record.session].own.append(record.id)

    def add_message(self, name: str) -> None:
        """Take note of a message. One that has no branch, or that comes after one that follows it, is refused."""
        number, position = records.place(name)
        self.check_branch(number)
        branch = self.branches[number]
        if position <= branch.fork_at:
            raise InvalidValue(f"Branch {number} begins after position {branch.fork_at}.")
        if position <= branch.last:
            raise InvalidValue(f"Message {name} comes twice, or after one that follows it.")
        branch.reach(position)

    def has(self, number: int, position: int) -> bool:
        """Whether the file has a message."""
        return number in self.branches and self.branches[number].has(position)

    def check_message(self, name: str) -> None:
        """Refuse what speaks of a message that is not there."""
        if not self.has(*records.place(name)):
            raise InvalidValue(f"Message {name} is not in the file before it.")

    def check_branch(self, number: int) -> None:
        """Refuse what speaks of a branch that is not there."""
        if number not in self.branches:
            raise InvalidValue(f"Branch {number} is not in the file.")

    def entries(self) -> Iterator[Entry]:
        """Go through the records that were kept."""
        for piece in self.spool:
            yield Entry(piece.line, records.decode(piece.text))

    def digest(self, session: str) -> str:
        """Fingerprint what the file has of a session, so that importing it again finds what was made of it."""
        found = hashlib.sha256(records.encode(self.sessions[session].record))
        needed = self.needed(session)
        for entry in self.entries():
            if isinstance(entry.record, records.MessageRecord) and records.place(entry.record.id)[0] in needed:
                found.update(repr(entry.record).encode())
        return found.hexdigest()

    def needed(self, session: str) -> dict[int, int | None]:
        """Name the branches that a session needs, and up to where; None for all of a branch of its own."""
        limits: dict[int, int | None] = {}
        own = set(self.sessions[session].own)
        for number in sorted(self.branches, reverse=True):  # a child before its parent
            branch = self.branches[number]
            if number in own:
                limits[number] = None
            if number in limits and branch.parent is not None:
                held = limits.get(branch.parent, 0)
                limits[branch.parent] = None if held is None else max(held, branch.fork_at)
        return dict(sorted(limits.items()))

    def path(self, number: int, session: str | None) -> arrivals.Path:
        """Give a branch as it is made."""
        branch = self.branches[number]
        return arrivals.Path(number, branch.parent, branch.fork_at, session, branch.created_at)

    def close(self) -> None:
        """Let go of what was kept."""
        self.spool.close()
