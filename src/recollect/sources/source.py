"""The interface of a source, and the values that it reads.

A transcript is one unit of a source's data: a file of lines that grows, or a document that holds one or many whole
conversations. A source reads it as events, in the order of the data. An event names its conversation by the session id
that it gets in the store, such as `claude-code:1f0c…`, so that reading the same data again leads to the same sessions
and messages. What a reader does not understand it reports as a Note; the original bytes are kept in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from recollect.model.message import INJECTION_KEY, Draft
from recollect.sources.files import FileTree

__all__ = [
    "ENTRY_PREFIX",
    "INJECTION_KEY",
    "ActiveFound",
    "CompactionFound",
    "ConversationSource",
    "Environment",
    "ForkFound",
    "LineReader",
    "MessageFound",
    "Note",
    "Original",
    "ReadFromStart",
    "Select",
    "SessionFound",
    "SourceEvent",
    "Transcript",
    "select_all",
]  # fmt: skip


ENTRY_PREFIX = "entry-"
"""The beginning of the id of data that is kept as a session although it is not a conversation, behind the source."""


class Environment(NamedTuple):
    """The machine on which a source looks for the data of its tool."""

    home: Path
    variables: Mapping[str, str]
    platform: str
    """As sys.platform: "linux", "darwin" or "win32"."""

    def path(self, variable: str, default: Path) -> Path:
        """Return the folder that an environment variable names, or the default."""
        value = self.variables.get(variable)
        return Path(value).expanduser() if value else default

    @property
    def data_home(self) -> Path:
        """The folder of the XDG variable for data, also on macOS, where command-line tools use it too."""
        return self.path("XDG_DATA_HOME", self.home / ".local" / "share")

    @property
    def config_home(self) -> Path:
        """The folder of the XDG variable for configuration."""
        return self.path("XDG_CONFIG_HOME", self.home / ".config")


class Transcript(NamedTuple):
    """A unit of a source's data in a file tree."""

    source: str
    name: str
    """The name in the tree of its main file, which identifies it."""
    kind: Literal["lines", "document"]
    """A file of lines is read on from where it was read to before; a document is read as a whole."""
    files: tuple[str, ...] = ()
    """The names of its other files: the transcript has changed if one of them has."""


class SessionFound(NamedTuple):
    """A conversation of the transcript, or newly known fields of one. Fields that are None are unknown and not changed.

    It comes before the other events of the conversation.
    """

    session: str
    """The session id: the name of the source, a colon, and the id of the conversation in its tool."""
    title: str | None = None
    title_rank: int = 0
    """The quality of the title: a title that a person set (3), a tool's (2), the first question (1)."""
    created_at: int | None = None
    """Milliseconds since 1970, as everywhere in events."""
    updated_at: int | None = None
    working_dir: str | None = None
    model: str | None = None
    provider: str | None = None
    system_prompt: str | None = None
    archived: bool | None = None
    pinned: bool | None = None
    labels: tuple[str, ...] | None = None
    """All labels that the tool shows; an empty tuple removes those of an earlier event."""
    parent: str | None = None
    """The session id of the conversation that started this one as a sub-agent."""
    metadata: Mapping[str, Any] | None = None
    """Typed facts without a field of their own, such as {"git_branch": "main"}. Merged with those of earlier events."""
    version: str | None = None
    """A text that changes with the data of the conversation, as passed to `Select`. None if the source has none."""


class MessageFound(NamedTuple):
    """A message, or the new content of one that came before with the same key.

    `draft.key` is the id of the message in its tool; if the tool has none, it is derived from what never changes, such
    as the number of the line. `draft.created_at` is set if the tool knows it.
    """

    session: str
    draft: Draft
    parent: str | None
    """The key of the message that it follows; None for the first one."""


class ForkFound(NamedTuple):
    """The conversation shares the beginning of another one. It comes before the first message of the conversation.

    If the other conversation is not in the store, the transcript must be read without sharing: the reader therefore
    also yields the shared messages as MessageFound, and the writer skips those that the fork shares.
    """

    session: str
    origin: str
    last: str
    """The key of the last shared message."""


class CompactionFound(NamedTuple):
    """The tool replaced the messages up to one of them by a summary in what its model reads."""

    session: str
    last: str
    """The key of the last summarized message."""
    summary: str
    created_at: int | None
    first: str | None = None
    """The key of the first summarized message; None if all before `last` are summarized."""


class ActiveFound(NamedTuple):
    """The message at which the tool would continue the conversation. The last such event of a conversation counts."""

    session: str
    last: str


class Original(NamedTuple):
    """The original data of a conversation in a document. The original of a file of lines is kept without such an event.

    A conversation may have several, each with its own name: the parts of a folder, or the tables of a database.
    """

    session: str
    name: str
    """A relative path under which the data is written again, such as `conversation.json`."""
    data: bytes
    """The bytes of a file; JSON of a part of a document, or of rows, if the file holds other conversations too."""


class Note(NamedTuple):
    """Something that a report mentions: data that is kept but not understood, or that could not be read."""

    kind: Literal["unknown", "malformed", "skipped", "missing"]
    place: str
    """Where: a name in the tree, and a line number after a colon for a file of lines."""
    text: str
    """What, in one sentence or term. Equal texts are counted together, so it contains no ids."""


SourceEvent = SessionFound | MessageFound | ForkFound | CompactionFound | ActiveFound | Original | Note


Select = Callable[[Mapping[str, str]], Collection[str]]
"""Receives the versions of conversations of a document by session id, and returns the ids of those that must be read.

A document such as a database holds thousands of conversations, of which one has changed. A source that can tell
cheaply which ones asks before it reads them, and passes each version on in its SessionFound, so that the writer can
store it. Ids that it does not return are those of conversations whose last import had the same version.
"""


def select_all(versions: Mapping[str, str]) -> Collection[str]:
    """Return the ids of all conversations."""
    return versions.keys()


class LineReader(Protocol):
    """Reads a file of lines from the beginning, or on from a state that an earlier reader of the same file returned."""

    @property
    def session(self) -> str | None:
        """The session id of the conversation to which the file belongs; None while it is not known."""
        ...

    def read_line(self, number: int, line: Any) -> Iterable[SourceEvent]:
        """Return the events of a line, which is JSON data. `number` is that of the line in the file, from 1."""
        ...

    def finish(self) -> Iterable[SourceEvent]:
        """Return the events that remain at the present end of the file. The file may grow later."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what a reader needs to read on, as JSON data of a few kilobytes at most."""
        ...


class ReadFromStart(Exception):
    """Internal: a line refers to data before the state of the reader. `sync` then reads the whole file."""


class ConversationSource(Protocol):
    """A tool whose conversations Recollect reads. A module of a source defines a class with these members."""

    name: str
    """The beginning of session ids, and the name on the command line: lower case, with hyphens."""
    label: str
    """The name that people know, such as "Claude Code"."""
    copies_past: bool
    """Whether its tool writes the past of a fork into the new file again, with the same ids and no other pointer to the
    origin. The ids must be unique across conversations.
    """

    def discover(self, environment: Environment) -> Sequence[Path]:
        """Return the files and folders where the tool keeps its conversations, whether they exist or not."""
        ...

    def detect(self, tree: FileTree, names: Iterable[str]) -> Iterator[Transcript]:
        """Return the transcripts among files of a tree, recognized by their content; a name is only a hint.

        It reads at most the beginning of a file (`tree.head()`), except of a database.
        """
        ...

    def read(self, tree: FileTree, transcript: Transcript, select: Select = select_all) -> Iterator[SourceEvent]:
        """Read a document. A source that has no versions of conversations reads all of them."""
        ...

    def read_lines(self, tree: FileTree, transcript: Transcript, state: dict[str, Any] | None) -> LineReader:
        """Return the reader of a file of lines. `state` is None for a file that is read from its beginning."""
        ...
