"""Writing a group to the tree that it was placed in, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable

from recollect.export import batches
from recollect.export.flow import Flow, ask
from recollect.export.group import Group
from recollect.export.placement import Placement, Target
from recollect.export.report import Report
from recollect.export.spool import Payloads
from recollect.op import Scope
from recollect.ops import arrivals
from recollect.ops.transfer import blobs_of


class Landing:
    """One placement, as it is written."""

    def __init__(self, scope: Scope, group: Group, placement: Placement, payloads: Payloads) -> None:
        self.scope = scope
        self.group = group
        self.placement = placement
        self.payloads = payloads
        self.opened = arrivals.Opened(0, {}, {})
        self.failed: str | None = None

    def begin(self) -> Flow[None]:
        """Make the sessions and branches."""
        placement, group = self.placement, self.group
        coming = [
            arrivals.Arrival(
                target.id, target.key, target.mode, group.sessions[name].columns, group.sessions[name].head,
                placement.name(group.sessions[name].record.parent),
            )
            for name, target in placement.targets.items()
        ]  # fmt: skip
        owners = {number: self._owner(number) for number in sorted(placement.paths)}
        paths = [group.path(number, None if owner is None else owner.id) for number, owner in owners.items()]
        self.opened = yield from ask(arrivals.begin(self.scope, placement.tree, coming, paths))

    def _owner(self, number: int) -> Target | None:
        """Say what the session that a branch belongs to becomes here; None where it is not brought in."""
        session = self.group.branches[number].session
        return None if session is None else self.placement.targets.get(session)

    def write(self, report: Report, progress: Callable[[int], None] | None) -> Flow[None]:
        """Write everything that is said in them. If somebody else writes there meanwhile, that stays, and it ends."""
        keys = self.opened.branches
        for found in batches.gathered(self.group, keys, self.placement.wants, self.payloads.size):
            owner = self._owner(found.number)
            batch = found.batch(
                keys[found.number],
                None if owner is None else self.opened.sessions[owner.id],
                self._payloads(found),
                renew=owner is not None and owner.mode == "renew",
            )
            try:
                report.messages += yield from ask(arrivals.add(self.scope, self.opened.tree, batch))
            except arrivals.Diverged as error:
                self.failed = f"{error} It was written to during the import."
                return
            if progress is not None:
                progress(report.messages)
        for name, target in self.placement.targets.items():
            snapshots = [] if target.mode == "keep" else batches.snapshots(self.group, name, keys)
            if snapshots:
                yield from ask(arrivals.keep_snapshots(self.opened.sessions[target.id], snapshots))

    def _payloads(self, found: batches.Gathered) -> dict[str, bytes]:
        payloads = dict(found.inside)
        for row in found.messages:
            for name in blobs_of(row):
                if name in self.payloads and name not in payloads:
                    payloads[name] = self.payloads[name]
        return payloads
