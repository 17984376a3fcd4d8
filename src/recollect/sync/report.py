"""The report of an import: the conversations, the changes, and the data that no source understands."""

from __future__ import annotations

from collections import Counter

from recollect.model.value import Value
from recollect.sources.source import Note


class ImportedConversation(Value, frozen=True, kw_only=True, gc=False):
    """What an import did with one conversation.

    `outcome` is "new", "updated", "unchanged", "deleted" or "kept". A deleted one was deleted in Recollect before, and
    stays so. A kept one is new, and no conversation but another entry of an export.
    """

    session: str
    source: str
    outcome: str
    new_messages: int = 0
    updated_messages: int = 0
    title: str | None = None


class ImportNote(Value, frozen=True, kw_only=True, gc=False):
    """A note of an import: its kind, its text, how often it occurred, and where first.

    `kind` is "unknown" (kept, not understood), "malformed" (kept unchanged), "skipped", "missing" or "failed".
    """

    source: str
    kind: str
    text: str
    count: int
    first: str


class ImportReport(Value, frozen=True, kw_only=True, gc=False):
    """The result of an import."""

    conversations: tuple[ImportedConversation, ...] = ()
    """The conversations that are new, updated or deleted, and unchanged ones of changed files."""
    unchanged_files: int = 0
    """Files that have not changed since the last import, which are not read."""
    changed_files: int = 0
    skipped_files: int = 0
    """Files that no source recognizes."""
    filtered_files: int = 0
    """Transcripts that were not read because of the options `since` and `project`."""
    notes: tuple[ImportNote, ...] = ()
    indexed_messages: int = 0
    dry_run: bool = False

    def count(self, outcome: str) -> int:
        """Return the number of conversations with an outcome."""
        return sum(item.outcome == outcome for item in self.conversations)

    @property
    def has_news(self) -> bool:
        """Whether a conversation is new or was updated, or a file could not be read."""
        return bool(self.count("new") or self.count("updated") or self.has_failures)

    @property
    def has_failures(self) -> bool:
        """Whether a file could not be read."""
        return any(note.kind == "failed" for note in self.notes)

    @property
    def new_messages(self) -> int:
        """The number of new messages."""
        return sum(item.new_messages for item in self.conversations)


_MAX_TEXTS = 12  # per source and kind. A tool has a few unknown types; a damaged or hostile file has thousands.
OTHER_TEXT = "Further data of this kind."
"""The text of the notes that are counted together."""


class NoteCounter:
    """Counts the notes of an import by source, kind and text.

    Texts may contain names from the data, such as that of an unknown type, so the number of texts is limited: further
    ones are counted together. Failures are not, because each names its file.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._text_counts: Counter[tuple[str, str]] = Counter()
        self._places: dict[tuple[str, str, str], str] = {}

    def add(self, source: str, note: Note) -> None:
        """Count a note."""
        self.add_text(source, note.kind, note.text, note.place)

    def add_text(self, source: str, kind: str, text: str, place: str) -> None:
        """Count a note given by its fields."""
        key = (source, kind, text)
        if key not in self._counts and kind != "failed":
            self._text_counts[source, kind] += 1
            if self._text_counts[source, kind] > _MAX_TEXTS:
                key = (source, kind, OTHER_TEXT)
        self._counts[key] += 1
        self._places.setdefault(key, place)

    def notes(self) -> tuple[ImportNote, ...]:
        """Return the notes, the most frequent first."""
        return tuple(
            ImportNote(source=key[0], kind=key[1], text=key[2], count=count, first=self._places[key])
            for key, count in self._counts.most_common()
        )
