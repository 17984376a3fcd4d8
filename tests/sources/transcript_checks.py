"""What every reader of a file of lines must do with a fixture: the same result in one or two steps, and no crash."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import msgspec

from recollect.errors import UnreadableFile
from recollect.sources.files import FolderTree
from recollect.sources.source import (
    ActiveFound,
    CompactionFound,
    ForkFound,
    MessageFound,
    Note,
    Original,
    ReadFromStart,
    SessionFound,
)

STATE_BYTES = 65_536  # more than an open response, the largest piece of a state
ODD_VALUES = [
    None, True, 0, -1, 2**70, 1.5, 1e300, "", "x", "\ud800", "a\0b", [], {}, [None], [[]], {"type": "text"},
    "2025-99-99", ["text", 3, None, {}], {"text": None}, "id" * 2_000,
]  # fmt: skip


def transcripts(source, folder: Path):
    """Return the tree of a folder, and its transcripts by name."""
    tree = FolderTree(folder)
    return tree, {each.name: each for each in source.detect(tree, tree.names())}


def lines_of(tree, name):
    """Return the lines of a file as the writer passes them: JSON values, None for a malformed line."""
    with tree.open(name) as file:
        return [parse_line(raw) for raw in file]


def parse_line(raw: bytes):
    try:
        return json.loads(raw)
    except ValueError:
        return None


def read_events(source, tree, transcript, lines=None, cut=None):
    """Return the events of a transcript; with `cut`, by two readers, the second with the state of the first as JSON."""
    if transcript.kind == "document":
        return list(source.read(tree, transcript))
    lines = lines_of(tree, transcript.name) if lines is None else lines
    cut = len(lines) if cut is None else cut
    reader = source.read_lines(tree, transcript, None)
    events = feed(reader, lines[:cut], 1)
    if cut == len(lines):
        return events
    state = json.dumps(reader.state())
    assert len(state) < STATE_BYTES
    try:
        return events + feed(source.read_lines(tree, transcript, json.loads(state)), lines[cut:], cut + 1)
    except ReadFromStart:
        return read_events(source, tree, transcript, lines)


def feed(reader, lines, first):
    events = []
    for number, line in enumerate(lines, first):
        events += reader.read_line(number, line)
    return events + list(reader.finish())


def outcome(events):
    """Return what a store holds after the events."""
    sessions, messages, others, active = {}, {}, [], {}
    for event in events:
        match event:
            case SessionFound():
                fields = sessions.setdefault(event.session, {"metadata": {}})
                fields["metadata"] |= event.metadata or {}
                if event.title is not None and event.title_rank > fields.get("title_rank", 0):
                    fields |= {"title": event.title, "title_rank": event.title_rank}
                plain = event._asdict()
                for name in ("metadata", "title", "title_rank", "session"):
                    plain.pop(name)
                fields |= {name: value for name, value in plain.items() if value not in (None, ())}
            case MessageFound():
                messages[event.session, event.draft.key] = (event.parent, msgspec.to_builtins(event.draft))
            case ForkFound() | CompactionFound():
                if event not in others:
                    others.append(event)
            case ActiveFound():
                active[event.session] = event.last
            case _:
                pass
    return sessions, messages, others, active


def check_steps(source, tree, transcript):
    """Compare reading in one step with reading in two, for every line at which a file may end."""
    lines = lines_of(tree, transcript.name)
    expected = outcome(read_events(source, tree, transcript))
    for cut in range(len(lines)):
        assert outcome(read_events(source, tree, transcript, cut=cut)) == expected, cut


def check_events(events):
    """Check what holds for the events of any data: order, valid keys, known parents, no cycles."""
    sessions: set[str] = set()
    parents: dict[tuple[str, str], str | None] = {}
    for event in events:
        if isinstance(event, (Note, Original)):
            assert isinstance(event, Original) or (event.text and len(event.text) < 200)
            continue
        if isinstance(event, SessionFound):
            sessions.add(event.session)
            assert event.session.isprintable()
            json.dumps(event._asdict()).encode()
        assert event.session in sessions
        if isinstance(event, MessageFound):
            key = event.draft.key
            assert key is not None
            assert 0 < len(key.encode()) <= 1024
            assert event.parent is None or (event.session, event.parent) in parents
            parents[event.session, key] = event.parent
            msgspec.json.encode(event.draft) if "\\ud" not in repr(event.draft) else None
        elif isinstance(event, (CompactionFound, ActiveFound)):
            assert (event.session, event.last) in parents
    for session, first in list(parents):
        path_keys: set[str] = set()
        key: str | None = first
        while key is not None:
            assert key not in path_keys
            path_keys.add(key)
            key = parents[session, key]


def places(value, path=()):
    """Yield the path of each value in JSON data."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from places(item, (*path, name))


def damaged(value, path, odd, *, delete=False):
    """Return a copy of JSON data with another value at a path, or without it."""
    if not path:
        return odd
    result = copy.deepcopy(value)
    target = result
    for name in path[:-1]:
        target = target[name]
    if delete:
        del target[path[-1]]
    else:
        target[path[-1]] = odd
    return result


def check_damage(source, tree, transcript, seed=0):
    """Read a fixture with each value replaced by odd ones, deleted, repeated and moved."""
    chance = random.Random(seed)
    lines = lines_of(tree, transcript.name)
    for index, line in enumerate(lines):
        for path in places(line):
            for odd in chance.sample(ODD_VALUES, 3):
                changed = damaged(line, path, odd)
                check_events(read_events(source, tree, transcript, [*lines[:index], changed, *lines[index + 1 :]]))
            if path:
                changed = damaged(line, path, None, delete=True)
                check_events(read_events(source, tree, transcript, [*lines[:index], changed, *lines[index + 1 :]]))
    for _ in range(50):
        sample = chance.choices(lines, k=len(lines))
        events = read_events(source, tree, transcript, sample, cut=chance.randrange(len(sample)))
        check_events(events)
        assert outcome(events) == outcome(read_events(source, tree, transcript, sample))


def check_damaged_document(source, tmp_path, tree, transcript):
    """Read a document with each value replaced, truncated, and empty."""
    data = tree.read(transcript.name)
    value = json.loads(data)
    chance = random.Random(0)
    variants = [data[:length] for length in range(0, len(data), 37)]
    for path in places(value):
        variants += [json.dumps(damaged(value, path, odd)).encode() for odd in chance.sample(ODD_VALUES, 3)]
    name = transcript.name.rpartition("/")[2]
    for variant in variants:
        (tmp_path / name).write_bytes(variant)
        try:
            check_events(read_events(source, FolderTree(tmp_path), transcript._replace(name=name, files=())))
        except UnreadableFile:
            continue
