"""The original data of imported sessions, as their tools wrote it."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.errors import NotFound, format_value
from recollect.export.pipeline import run_operation, scope_of
from recollect.model import json
from recollect.storage import entry_logs, imports
from recollect.storage.originals import ENTRIES_KEY, ERASED_KEY, HOLDER_KEY
from recollect.store import Store
from recollect.sync.chunks import MissingBlob, chunk_prefix, decode_chunk

_PAGE_CHUNKS = 8  # of up to a megabyte each
_LINES = "lines:"
_DOCUMENT = "document:"


def read_originals(store: Store, session: str) -> list[tuple[str, bytes]]:
    """Return the original files of a session: each name and its bytes.

    Raise NotFound if the session was not imported, or if its original was erased.
    """
    return [(name, b"".join(chunks)) for name, chunks in iter_originals(store, session)]


def iter_originals(store: Store, session: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the name of each original file of a session and its bytes in pieces."""
    states = run_operation(store, imports.read_states(scope_of(store), session))
    if not states:
        store.session(session, create=False)  # raises the reason if it does not exist
        raise NotFound(f"Session {format_value(session)} was not imported, so it has no original. Export it as jsonl.")
    if ERASED_KEY in states:
        raise NotFound(
            f"The original of session {format_value(session)} was erased, because content of its messages was erased. "
            f"Export it as jsonl."
        )
    log = run_operation(store, entry_logs.read_state(scope_of(store), session))
    holders = [json.decode(text) for key, text in states.items() if key.startswith(HOLDER_KEY)]
    if holders and log is None and not any(key.startswith((_LINES, _DOCUMENT)) for key in states):
        raise NotFound(
            f"The original of session {format_value(session)} is part of the one of {format_value(holders[0])}. "
            f"Export that session."
        )
    if log is not None and not any(key.startswith(_LINES) for key in states):  # else, a file has these lines
        yield f"{_base_name(log.name[-1])}.jsonl", _read_chunks(store, session, ENTRIES_KEY)
    for key, text in states.items():
        state = json.decode(text)
        if key.startswith(_LINES):
            yield _base_name(state["path"]), _read_chunks(store, session, key)
            for name in state.get("sidecars", ()):
                yield name, _read_chunks(store, session, f"{key}/{name}")
        elif key.startswith(_DOCUMENT):
            for name in state["names"]:
                yield name, _read_chunks(store, session, f"{key}/{name}")


def _base_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2].rpartition("!")[2]


def _read_chunks(store: Store, session: str, name: str) -> Iterator[bytes]:
    prefix = after = chunk_prefix(name)
    while rows := run_operation(store, imports.read_chunks(scope_of(store), session, prefix, after, _PAGE_CHUNKS)):
        for key, chunk in rows:
            after = key
            try:
                yield decode_chunk(chunk, lambda blob: run_operation(store, imports.read_blob(scope_of(store), blob)))
            except MissingBlob:
                raise NotFound(
                    f"The original of session {format_value(session)} is not complete: an attachment was erased. "
                    f"Export it as jsonl."
                ) from None
