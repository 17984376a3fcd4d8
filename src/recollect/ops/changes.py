"""What has changed since someone last looked: revisions compared with revisions."""

from __future__ import annotations

from recollect.model import keys
from recollect.model.change import Change
from recollect.op import Op, Row, Scope, Steps, rows

GONE = -1
"""The revision that an engine tells of a session that was erased."""


def revisions(scope: Scope, session: str | None) -> Op[list[Row]]:
    """Read the key, id and revision of every session of an owner, or of those with an id: in the trash or not."""
    return Op(_revisions, scope, session, writes=False)


def _revisions(scope: Scope, session: str | None) -> Steps[list[Row]]:
    if session is None:
        return (yield from rows("sessions_revisions", owner=scope.owner))
    if not keys.findable(session):
        return []
    return (yield from rows("session_revisions", owner=scope.owner, id=session))


class Known:
    """The revisions that a watch has seen. Holds the id and revision of every session that it watches."""

    def __init__(self, session: str | None) -> None:
        self._session = str.__str__(session) if isinstance(session, str) else session
        self._seen: dict[int, tuple[str, int]] = {}

    def all(self, found: list[Row]) -> list[Change]:
        """Take what there is now, and give what differs from what there was."""
        now: dict[int, tuple[str, int]] = {key: (id, revision) for key, id, revision in found}
        gone = [(key, id, GONE) for key, (id, _) in self._seen.items() if key not in now or now[key][0] != id]
        return self.some([*gone, *((key, id, revision) for key, (id, revision) in now.items())])

    def some(self, told: list[Row]) -> list[Change]:
        """Take news of some sessions, oldest first, and give the latest of each; what is known already is left out."""
        changes: dict[tuple[int, str], Change] = {}
        for key, id, revision in told:
            before = self._seen.get(key)
            if self._session not in (None, id) or (revision != GONE and before is not None and before[1] >= revision):
                continue
            if revision == GONE:
                if self._seen.pop(key, None) is not None or (key, id) in changes:
                    changes[key, id] = Change(id, None)
            else:
                self._seen[key] = (id, revision)
                changes[key, id] = Change(id, revision)
        return list(changes.values())

    def doubt(self) -> None:
        """Have everything told that there is when it is next looked at: it is of another database."""
        self._seen = {key: (id, GONE) for key, (id, _) in self._seen.items()}
