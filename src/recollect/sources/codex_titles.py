"""Titles of Codex conversations, which are not in their rollouts: the index of names, and the databases of threads.

Codex changes these files at every turn of any conversation. They are therefore transcripts of their own, whose events
are only fields of conversations, and a change of them does not make every rollout a changed file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from recollect.sources.codex_forks import decode_line
from recollect.sources.files import FileTree
from recollect.sources.json_fields import session_id, text_in, title_of
from recollect.sources.source import Note, SessionFound, SourceEvent, Transcript
from recollect.sources.sqlite_copy import is_database, open_copy, side_files

_INDEX = "session_index.jsonl"
PATTERNS = (_INDEX, "state_*.sqlite", "thread_history_*.sqlite")
"""The names of these files, as patterns of glob()."""
_DATABASE = re.compile(r"(?:state|thread_history)_\d{1,4}\.sqlite")
_MAX_LINE_BYTES = 1 << 20  # of the index, whose lines have a title and an id; a longer line is damage


def detect_titles(tree: FileTree, source: str, name: str) -> Transcript | None:
    """Return the transcript of a file of titles; None for another file."""
    file_name = name.rpartition("/")[2]
    if file_name == _INDEX and b'"thread_name"' in tree.head(name):
        return Transcript(source, name, "document")
    if _DATABASE.fullmatch(file_name) and is_database(tree, name):
        return Transcript(source, name, "document", side_files(tree, name))
    return None


def is_titles(name: str) -> bool:
    """Return whether a transcript of Codex holds titles, by its name."""
    file_name = name.rpartition("/")[2]
    return file_name == _INDEX or _DATABASE.fullmatch(file_name) is not None


def read_titles(tree: FileTree, transcript: Transcript) -> Iterator[SourceEvent]:
    """Yield the fields of each conversation that a file of titles names."""
    if transcript.name.endswith(_INDEX):
        yield from _read_index(tree, transcript)
        return
    with open_copy(tree, transcript.name) as database:
        for row in database.rows("threads"):
            event = _event_of_row(transcript.source, row)
            if event is not None:
                yield event


def _read_index(tree: FileTree, transcript: Transcript) -> Iterator[SourceEvent]:
    """Yield the latest name of each conversation: Codex appends a line for each change."""
    titles: dict[str, str] = {}
    with closing(tree.open(transcript.name)) as file:
        while raw := file.readline(_MAX_LINE_BYTES):
            line = decode_line(raw)
            thread, title = text_in(line, "id"), title_of(text_in(line, "thread_name") or "")
            if thread is not None and title is not None:
                titles[thread] = title
            elif raw.strip() and raw.endswith(b"\n"):
                yield Note("malformed", transcript.name, "A line of the index has no id or no name.")
    for thread, title in titles.items():
        yield SessionFound(session_id(transcript.source, thread), title=title, title_rank=3)


def _event_of_row(source: str, row: Mapping[str, Any]) -> SessionFound | None:
    """Return the fields of a thread. Its `title` is the first question until there is a better one."""
    thread, name, title = text_in(row, "id"), text_in(row, "name"), text_in(row, "title")
    if thread is None:
        return None
    rank = 3 if name else 1 if title == row.get("first_user_message") else 2
    short = title_of(name or title or "")
    archived, pinned = (bool(row[each]) if type(row.get(each)) is int else None for each in ("archived", "is_pinned"))
    return SessionFound(
        session_id(source, thread), title=short, title_rank=rank if short else 0, archived=archived, pinned=pinned
    )
