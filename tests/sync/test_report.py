"""The notes of a report."""

from __future__ import annotations

from recollect.sources.source import Note
from recollect.sync.report import NoteCounter


def test_equal_notes_are_counted_with_their_first_place():
    notes = NoteCounter()
    for place in ("a:1", "a:2"):
        notes.add("toy", Note("unknown", place, "record x"))
    notes.add("other", Note("unknown", "b:1", "record x"))
    assert [(note.source, note.count, note.first) for note in notes.notes()] == [("toy", 2, "a:1"), ("other", 1, "b:1")]


def test_names_from_the_data_do_not_flood_a_report():
    notes = NoteCounter()
    for number in range(1000):
        notes.add("toy", Note("unknown", f"a:{number}", f"block {number}"))
        notes.add("toy", Note("unknown", f"a:{number}", "block 3"))
        notes.add_text("toy", "failed", f"file {number} cannot be read", f"file {number}")
    unknown = [note for note in notes.notes() if note.kind == "unknown"]
    assert len(unknown) == 13
    assert sum(note.count for note in unknown) == 2000
    assert max(note.count for note in unknown if note.text == "block 3") == 1001
    assert sum(note.kind == "failed" for note in notes.notes()) == 1000
