"""The records of imported sessions: how far their transcripts were read, their original bytes, and their tombstones.

They are records with reserved kinds, so they are copied, checked and erased like all records of a session. Content that
is erased from a message must not stay readable in the original bytes, so these are erased with it. The id of an
erased session is not kept: its tombstone has a hash of it.
"""

from __future__ import annotations

import hashlib

from recollect.model import json
from recollect.storage import messages, records, sessions
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
LOG_KIND = "recollect.entry-log"
"""The kind of the records of logs: the session of each, by its key, and the state of the log of a session."""
ENTRIES_KEY = "entries"
"""The beginning of the keys of the original bytes of a log."""
ERASED_KEY = "erased"
"""The key of the import record of a session whose original bytes were erased."""
HOLDER_KEY = "holder:"
"""The beginning of the keys of import records that name other sessions whose originals have messages of a session."""


def tombstone_key(session: str) -> str:
    """Return the key of the tombstone of a session id."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()


def bury(scope: Scope, session: int, id: str) -> Steps[None]:
    """Write the tombstone of an imported session before it is erased, and forget the files that it came from."""
    for link in (yield from records.list_own(scope, LINK_KIND)):
        if id in (link.key.decode(), json.decode(link.value or "null")):
            yield from records.delete_own(scope, LINK_KIND, link.key.decode())
    for row in (yield from records.list_own(scope, LOG_KIND, session=session)):
        yield from records.delete_own(scope, LOG_KIND, json.decode(row.value or "null")["log"])
    rows = yield from records.list_own(scope, IMPORT_KIND, session=session)
    if not rows:
        return
    yield from records.put_own(scope, TOMBSTONE_KIND, tombstone_key(id), "{}")
    for row in rows:
        state = json.decode(row.value or "null")
        if isinstance(state, dict):
            for key in state.get("files", ()):
                yield from records.delete_own(scope, FILE_KIND, key)
        elif isinstance(state, str):
            yield from _drop_of_holder(scope, state)


def drop_originals(scope: Scope, tree: int) -> Steps[None]:
    """Erase the original bytes of the sessions of a tree, because they may hold content that is being erased."""
    for holder in (yield from _drop_of_tree(scope, tree)):
        yield from _drop_of_holder(scope, holder)


def _drop_of_tree(scope: Scope, tree: int) -> Steps[set[str]]:
    """Erase the original bytes of a tree, and return the ids of sessions that hold others of it.

    The states of the imports may quote messages, too: a reader remembers the last one and the title.
    """
    holders: set[str] = set()
    for row in (yield from fetch_all(messages.SESSIONS_OF_TREE, tree=tree)):
        states = yield from records.list_own(scope, IMPORT_KIND, session=row.session)
        if not states:
            continue
        yield from records.delete_kind(scope, ORIGINAL_KIND, session=row.session)
        yield from records.put_own(scope, IMPORT_KIND, ERASED_KEY, "true", session=row.session)
        for log in (yield from records.list_own(scope, LOG_KIND, session=row.session)):
            state = {**json.decode(log.value or "null"), "summary": None}  # which has texts of messages
            yield from records.put_own(scope, LOG_KIND, log.key.decode(), json.encode(state), session=row.session)
        for record in states:
            key, text = record.key.decode(), record.value or "null"
            if key.startswith(HOLDER_KEY):
                holders.add(json.decode(text))
            elif (redacted := without_content(text)) != text:
                yield from records.put_own(scope, IMPORT_KIND, key, redacted, session=row.session)
    return holders


def _drop_of_holder(scope: Scope, id: str) -> Steps[None]:
    """Erase the original bytes of a session with messages of another one: a tool may write both to one file."""
    row = (yield from sessions.find_live_row(scope, id)) or (yield from sessions.find_trashed_row(scope, id))
    if row is not None:
        yield from _drop_of_tree(scope, sessions.stored_from_row(row).tree)


def without_content(text: str) -> str:
    """Return the JSON text of an import record without what may be content of messages."""
    state = json.decode(text)
    if isinstance(state, dict):
        state.pop("reader", None)
        state.get("values", {}).pop("title", None)
    return json.encode(state)


def are_erased(scope: Scope, session: int) -> Steps[bool]:
    """Return whether the original bytes of a session were erased, so that no import may write them again."""
    return (yield from records.get_own(scope, IMPORT_KIND, ERASED_KEY, session=session)) is not None
