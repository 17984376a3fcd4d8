"""Where the sessions of a group go: into a new tree, or into the one that is there, if what is there agrees.

Nothing is written here. A session that is in the store is compared with the file, message by message: the file may
say the same, say less, or go on where the store ends. Anything else is a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recollect.errors import SessionExists, displayed
from recollect.export import batches, records
from recollect.export.flow import Flow, ask
from recollect.export.group import Given, Group
from recollect.export.report import Refused
from recollect.model import keys
from recollect.op import Scope
from recollect.ops import arrivals, comparison

_LONGEST = 500


class Target(NamedTuple):
    """What a session of the file becomes."""

    id: str
    key: int | None
    mode: arrivals.Mode


class Placement:
    """A tree to write to, and which sessions and branches go there."""

    def __init__(self, tree: int | None, known: Mapping[int, int] | None = None) -> None:
        self.tree = tree
        self.known = known or {}
        self.targets: dict[str, Target] = {}
        self.paths: set[int] = set()
        self.limits: dict[int, int | None] = {}

    def place(self, group: Group, session: str, target: Target) -> None:
        """Take a session in, with the branches that it needs."""
        self.targets[session] = target
        for number, limit in group.needed(session).items():
            self.paths.add(number)
            if target.mode != "keep":
                held = self.limits.get(number, 0)
                self.limits[number] = None if held is None or limit is None else max(held, limit)

    @property
    def writes(self) -> bool:
        """Whether anything is to be written."""
        return any(target.mode != "keep" for target in self.targets.values())

    def name(self, session: str | None) -> str | None:
        """Name a session as it is called in the store."""
        target = None if session is None else self.targets.get(session)
        return session if target is None else target.id

    def count(self, group: Group) -> int:
        """Say how many messages of a group would be new here."""
        places = (records.place(entry.record.id) for entry in group.entries() if _is_message(entry.record))
        return sum(self.wants(*place) and place[1] > self.known.get(place[0], 0) for place in places)

    def wants(self, number: int, position: int) -> bool:
        """Whether a place of the file goes here."""
        if number not in self.limits:
            return False
        limit = self.limits[number]
        return limit is None or position <= limit


def _is_message(record: object) -> bool:
    return isinstance(record, records.MessageRecord)


class Plan(NamedTuple):
    """What to do with a group."""

    placements: list[Placement]
    conflicts: list[Refused]


class _Verdict(NamedTuple):
    mode: arrivals.Mode
    conflict: str | None = None


def placed(scope: Scope, group: Group, on_conflict: str) -> Flow[Plan]:
    """Decide where each session of a group goes."""
    return (yield from _Placing(scope, group, on_conflict).run())


class _Placing:
    def __init__(self, scope: Scope, group: Group, on_conflict: str) -> None:
        self.scope = scope
        self.group = group
        self.on_conflict = on_conflict
        self.homes: dict[str, Placement] = {}
        self.trees: dict[int, Placement] = {}
        self.fresh: Placement | None = None
        self.conflicts: list[Refused] = []

    def run(self) -> Flow[Plan]:
        standing: dict[str, arrivals.Standing] = yield from ask(
            arrivals.standing(self.scope, list(self.group.sessions))
        )
        for id, given in self.group.sessions.items():
            if id not in standing:
                if keys.addressable(id):
                    self._new(given)
                else:
                    yield from self._renamed(given, "No URL can carry this id.")
                continue
            verdict = yield from _verdict(self.group, given, standing[id])
            if verdict.conflict is None:
                self._known(given, standing[id], id, verdict.mode)
            else:
                yield from self._conflict(given, verdict.conflict)
        found = [*self.trees.values(), *([] if self.fresh is None else [self.fresh])]
        return Plan(found, self.conflicts)

    def _known(self, given: Given, there: arrivals.Standing, id: str, mode: arrivals.Mode) -> None:
        known = {number: branch.last for number, branch in there.branches.items()}
        home = self.trees.setdefault(there.tree, Placement(there.tree, known))
        home.place(self.group, given.id, Target(id, there.key, mode))
        self.homes[given.id] = home

    def _new(self, given: Given, id: str | None = None) -> None:
        """Put a session beside the one it left, if there is room; else into a tree of its own, with the shared past."""
        home = self._origin(given)
        if home is None:
            self.fresh = self.fresh or Placement(None)
            home = self.fresh
        home.place(self.group, given.id, Target(id or given.id, None, "new"))
        self.homes[given.id] = home

    def _origin(self, given: Given) -> Placement | None:
        parent = self.group.branches[min(given.own)].parent
        owner = None if parent is None else self.group.branches[parent].session
        home = None if owner is None else self.homes.get(owner)
        return None if home is None or any(number in home.known for number in given.own) else home

    def _conflict(self, given: Given, reason: str) -> Flow[None]:
        if self.on_conflict == "error":
            raise SessionExists(
                f"Session {displayed(given.id)} in the file is not the one in the store: {reason} Import it with "
                'on_conflict="new" under a new id, or leave it out with on_conflict="skip".',
                session=given.id,
            )
        if self.on_conflict == "skip":
            self.conflicts.append(Refused(given.id, reason))
            return
        yield from self._renamed(given, reason)

    def _renamed(self, given: Given, reason: str) -> Flow[None]:
        """Import a session under a new id, which is the same each time the same content is imported."""
        id = f"{given.id[:_LONGEST]}-{self.group.digest(given.id)[:8]}"
        standing: dict[str, arrivals.Standing] = yield from ask(arrivals.standing(self.scope, [id]))
        if id not in standing:
            self._new(given, id)
        else:
            verdict = yield from _verdict(self.group, given, standing[id])
            if verdict.conflict is not None:
                self.conflicts.append(Refused(given.id, reason))
                return
            self._known(given, standing[id], id, verdict.mode)
        self.conflicts.append(Refused(given.id, reason, id))


def _verdict(group: Group, given: Given, there: arrivals.Standing) -> Flow[_Verdict]:
    """Compare a session of the file with the one in the store."""
    limits = group.needed(given.id)
    renew = given.record.revision > there.value.revision
    adds, more = False, _more(given, there)
    numbers = {branch.key: number for number, branch in there.branches.items()}
    for number in limits:
        branch, present = group.branches[number], there.branches.get(number)
        own = number in given.own
        if present is None:
            if not own:
                return _Verdict("keep", f"Branch {number} is not in the store.")
            adds = True
            continue
        parent = None if present.parent is None else numbers[present.parent]
        if (parent, present.fork_at) != (branch.parent, branch.fork_at) or (own and present.session != there.key):
            return _Verdict("keep", f"Branch {number} is another one in the store.")
        more = more or (own and present.last > branch.last)
    difference = yield from _difference(group, given, limits, there, renew=renew)
    if difference.differs is not None:
        return _Verdict("keep", f"Message {difference.differs} is another one in the store.")
    adds = adds or difference.adds
    if adds and more:
        return _Verdict("keep", "Both went on after they parted.")
    if more:  # what is in the store is the later one, whatever its revision counts
        return _Verdict("keep")
    return _Verdict("renew" if renew else "extend" if adds else "keep")


def _more(given: Given, there: arrivals.Standing) -> bool:
    """Whether the store has branches of the session that the file does not."""
    return any(
        branch.session == there.key and number not in given.own and branch.last > branch.fork_at
        for number, branch in there.branches.items()
    )


class _Difference(NamedTuple):
    adds: bool
    differs: str | None


def _difference(
    group: Group, given: Given, limits: dict[int, int | None], there: arrivals.Standing, *, renew: bool
) -> Flow[_Difference]:
    """Compare what the file has of a session with what is in the store, a batch at a time."""
    keys = {number: branch.key for number, branch in there.branches.items()}
    adds = False

    def wants(number: int, position: int) -> bool:
        limit = limits.get(number, 0)
        return limit is None or position <= limit

    for found in batches.gathered(group, keys, wants):
        if found.number not in keys:
            adds = True
            continue
        batch = found.batch(keys[found.number], there.key, {}, renew=renew)
        difference: comparison.Difference = yield from ask(comparison.compare(batch))
        if difference.differs is not None:
            return _Difference(adds, f"{found.number}.{difference.differs}")
        adds = adds or difference.adds
    snapshots = batches.snapshots(group, given.id, keys)
    if snapshots and not adds:
        adds = yield from ask(comparison.lacks_snapshots(there.key, snapshots))
    return _Difference(adds, None)
