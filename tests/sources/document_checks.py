"""What holds for the events of every document, and mutations of a document that must not break it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from recollect.errors import UnreadableFile
from recollect.model import session_ids, validation
from recollect.model.json import escape_surrogates
from recollect.model.message import check_draft
from recollect.sources import source
from recollect.sources.files import open_tree
from recollect.sources.registry import get_source

FIXTURES = Path(__file__).parent / "fixtures"
HOSTILE = [
    None, True, -1, 0, 1e300, 10**400, float("nan"), "", "x", "\x00\ud800", "99999999999999999999", [], [None, 3, ["x"], {}], {},
    {"id": 3, "type": "text", "text": {}}, [[[[]]]],
]  # fmt: skip


def read_all(name, path) -> list[Any]:
    """Return the events of all transcripts of a source below a path, which are also checked."""
    reader, tree = get_source(name), open_tree(path)
    events = []
    for transcript in reader.detect(tree, list(tree.names())):
        assert transcript.source == name
        new_events = list(reader.read(tree, transcript))
        check_events(new_events)
        events += new_events
    return events


def check_events(events):
    """Check what the writer relies on."""
    keys: dict[str, set[str]] = {}
    present = None
    for event in events:
        if isinstance(event, source.Note):
            assert event.text
            assert len(event.text) < 500
            continue
        if isinstance(event, source.SessionFound):
            check_session(event)
            keys.setdefault(event.session, set())
        assert event.session in keys, "the fields of a session come first"
        if event.session != present:
            assert isinstance(event, source.SessionFound), "the events of a session are together"
            present = event.session
        check_event(event, keys[event.session])


def check_event(event, keys):
    if isinstance(event, source.MessageFound):
        assert check_draft(event.draft) == event.draft
        validation.check_message_key(event.draft.key)
        assert event.parent is None or event.parent in keys
        assert event.parent != event.draft.key
        keys.add(event.draft.key)
    elif isinstance(event, (source.ActiveFound, source.CompactionFound)):
        assert event.last in keys
    elif isinstance(event, source.Original):
        assert isinstance(event.data, bytes)
        assert not event.name.startswith("/")


def check_session(event):
    session_ids.check_new_id(event.session)
    for text in (event.title, event.working_dir, event.model, event.provider, event.system_prompt):
        assert text is None or (type(text) is str and text and escape_surrogates(text) == text)
    for at in (event.created_at, event.updated_at):
        validation.check_milliseconds("at", at)
    for flag in (event.archived, event.pinned):
        assert flag in (None, True, False)
    json.dumps(event.metadata)
    if event.parent is not None:
        session_ids.check_new_id(event.parent)


def places(value, path=()):
    """Return the paths to all values inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutations(document, step=1):
    """Yield copies of a document with one value replaced by each hostile value, or removed; every step-th one."""
    count = 0
    for path in list(places(document)):
        for value in [*HOSTILE, ...]:
            count += 1
            if count % step:
                continue
            mutant = copy.deepcopy(document)
            parent = mutant
            for key in path[:-1]:
                parent = parent[key]
            if value is not ...:
                parent[path[-1]] = value
            else:
                del parent[path[-1]]
            yield mutant


def read_mutated(name, path, data):
    """Read a file with this data. Only one error is allowed, which the import reports."""
    path.write_bytes(data)
    try:
        return read_all(name, path)
    except UnreadableFile:
        return []


def check_mutations(name, document, path, *, step=1):
    """Read mutations of a document, and beginnings of it."""
    for mutant in mutations(document, step):
        read_mutated(name, path, json.dumps(mutant).encode())
    data = json.dumps(document).encode()
    for end in range(0, len(data), max(1, len(data) // 60)):
        read_mutated(name, path, data[:end])


def of_kind(events, kind, session=None) -> list[Any]:
    return [event for event in events if isinstance(event, kind) and session in (None, event.session)]


def drafts_by_key(events, session=None) -> dict[str, Any]:
    return {event.draft.key: event.draft for event in of_kind(events, source.MessageFound, session)}


def parents_by_key(events, session=None):
    return {event.draft.key: event.parent for event in of_kind(events, source.MessageFound, session)}


def path_to(events, key, session=None):
    """Return the drafts from the first message to this one."""
    drafts, parents = drafts_by_key(events, session), parents_by_key(events, session)
    path = []
    while key is not None:
        path.append(drafts[key])
        key = parents[key]
    return path[::-1]
