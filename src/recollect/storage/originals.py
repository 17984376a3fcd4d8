"""The records of imported sessions: how far their transcripts were read, their original bytes, and their tombstones.

They are records with reserved kinds, so they are copied, checked and erased like all records of a session. Content that
is erased from a message must not stay readable in the original bytes, so these are erased with it. The id of an
erased session is not kept: its tombstone has a hash of it.
"""

from __future__ import annotations

import hashlib

from recollect.model import json
from recollect.storage import messages, records
from recollect.storage.operation import Scope, Steps, fetch_all

IMPORT_KIND = "recollect.import"
"""The kind of the session records that describe how far a transcript was imported; each with JSON text."""
ORIGINAL_KIND = "recollect.original"
"""The kind of the session records that hold the original bytes of a transcript."""
FILE_KIND = "recollect.import-file"
"""The kind of the store records that tell whether a file has changed since its import."""
LINK_KIND = "recollect.import-link"
"""The kind of the store records that name the parent of a sub-agent, by its session id, until both are stored."""
TOMBSTONE_KIND = "recollect.tombstone"
"""The kind of the store records that keep an erased conversation from being imported again."""
ERASED_KEY = "erased"
"""The key of the import record of a session whose original bytes were erased."""


def tombstone_key(session: str) -> str:
    """Return the key of the tombstone of a session id."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()


def bury(scope: Scope, session: int, id: str) -> Steps[None]:
    """Write the tombstone of an imported session before it is erased, and forget the files that it came from."""
    for link in (yield from records.list_own(scope, LINK_KIND)):
        if id in (link.key.decode(), json.decode(link.value or "null")):
            yield from records.delete_own(scope, LINK_KIND, link.key.decode())
    rows = yield from records.list_own(scope, IMPORT_KIND, session=session)
    if not rows:
        return
    yield from records.put_own(scope, TOMBSTONE_KIND, tombstone_key(id), "{}")
    for row in rows:
        state = json.decode(row.value or "null")
        if isinstance(state, dict):
            for key in state.get("files", ()):
                yield from records.delete_own(scope, FILE_KIND, key)


def drop_originals(scope: Scope, tree: int) -> Steps[None]:
    """Erase the original bytes of the sessions of a tree, because they may hold content that is being erased."""
    for row in (yield from fetch_all(messages.SESSIONS_OF_TREE, tree=tree)):
        if (yield from records.delete_kind(scope, ORIGINAL_KIND, session=row.session)):
            yield from records.put_own(scope, IMPORT_KIND, ERASED_KEY, "true", session=row.session)


def are_erased(scope: Scope, session: int) -> Steps[bool]:
    """Return whether the original bytes of a session were erased, so that no import may write them again."""
    return (yield from records.get_own(scope, IMPORT_KIND, ERASED_KEY, session=session)) is not None
