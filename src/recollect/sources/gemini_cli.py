"""Gemini CLI: a file of lines per conversation, and the documents of older versions and of saved chats.

A line is a message, a newer version of a message with the same id, an update of the conversation (`$set`), which may
replace all messages, or a rewind (`$rewindTo`), after which the conversation continues before a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from recollect.errors import UnreadableFile
from recollect.model.json import decode, encode_standard
from recollect.model.message import Draft, ToolResultPart
from recollect.sources.files import FileTree
from recollect.sources.gemini_parts import (
    ANSWERS,
    REMARKS,
    SNAPSHOT,
    SNAPSHOT_ANSWER,
    calls_of,
    holds_only_results,
    is_context,
    question_of,
    read_answer,
    read_question,
    read_remark,
    record_kind,
    responses_of,
    results_of_calls,
    text_of,
)
from recollect.sources.json_fields import (
    dict_in,
    field_in,
    kind_name,
    list_in,
    message_events,
    message_key,
    session_id,
    short_hash,
    text_in,
    time_in,
    title_of,
)
from recollect.sources.source import (
    ActiveFound,
    CompactionFound,
    Environment,
    MessageFound,
    Note,
    Original,
    ReadFromStart,
    Select,
    SessionFound,
    SourceEvent,
    Transcript,
    select_all,
)

NAME = "gemini-cli"
_STATE_ENTRIES = 64  # messages in the state of a reader; rewinding further reads the file from its beginning
_MAX_CALLS = 100  # of one message, in the state of a reader
_MAX_LINE = 32 << 20  # bytes of a line of another file, as for the lines that an import reads
_MAX_EARLIER_FILES = 30  # of a conversation, each of which reads those before it by recursion
_MAX_ROOT = 4_096  # bytes of the file that names the folder of a project
_ROOT_FILE = ".project_root"
_HISTORY = re.compile(rb'\s*(?:\{\s*"history"\s*:\s*)?\[\s*\{[^{}\[\]]{0,200}"(?:role|parts)"')
_SESSION_FILE = re.compile(r"(.*/)?(session-.*)-([0-9a-zA-Z]{8})\.jsonl?")
_FULL_FIELDS = frozenset({"tokens", "model", "toolCalls", "thoughts", "displayContent"})
"""Fields of the first version of a message. When it resumes a conversation, Gemini CLI writes a list of the known
messages with only their content and the present time, which must not replace them.
"""
_FIELDS = frozenset(
    {
        "sessionId", "projectHash", "startTime", "lastUpdated", "kind", "directories", "summary", "messages", "history",
        "memoryScratchpad", "meta", "start_time",
    }
)  # fmt: skip


class GeminiSource:
    """Gemini CLI."""

    name = NAME
    label = "Gemini CLI"
    copies_past = False

    def discover(self, environment: Environment) -> Sequence[Path]:
        """Return the folder with the conversations of all projects."""
        return [environment.path("GEMINI_CLI_HOME", environment.home) / ".gemini" / "tmp"]

    def detect(self, tree: FileTree, names: Iterable[str]) -> Iterator[Transcript]:
        """Return the conversations, by the fields of their beginning."""
        earlier: dict[str, list[str]] = {}
        all_names = sorted(names)
        known_names = frozenset(all_names)
        for name in all_names:
            if not name.endswith((".json", ".jsonl")):
                continue
            head = tree.head(name)
            if name.endswith(".jsonl"):
                if _is_session(_first_value(head.partition(b"\n")[0])):
                    yield Transcript(NAME, name, "lines", _neighbor_files(name, known_names, earlier))
            elif _is_document(head):
                yield Transcript(NAME, name, "document", _neighbor_files(name, known_names, earlier))

    def read(
        self,
        tree: FileTree,
        transcript: Transcript,
        select: Select = select_all,  # noqa: ARG002  part of the interface
    ) -> Iterator[SourceEvent]:
        """Read the document of a conversation, or a saved chat."""
        data = tree.read(transcript.name)
        try:
            document = decode(data)
        except (ValueError, RecursionError):
            yield Note("malformed", transcript.name, "The document is not JSON.")
            return
        reader = GeminiReader(tree, transcript)
        yield from reader.read_document({"history": document} if type(document) is list else document)
        if reader.session is not None:
            yield Original(reader.session, transcript.name.rpartition("/")[2], data)
        yield from reader.finish()

    def read_lines(self, tree: FileTree, transcript: Transcript, state: dict[str, Any] | None) -> GeminiReader:
        """Return the reader of a conversation."""
        return GeminiReader(tree, transcript, state)


def _first_value(head: bytes) -> Any:
    try:
        return decode(head)
    except (ValueError, RecursionError):
        return None


def _is_session(value: Any) -> bool:
    """Return whether an object is the meta data of a conversation. The tools that descend from this one name others."""
    has_id = text_in(value, "sessionId") is not None and "uuid" not in value
    return has_id and ("projectHash" in value or ("startTime" in value and "lastUpdated" in value))


def _is_document(head: bytes) -> bool:
    if _HISTORY.match(head):
        return True
    is_object = head.lstrip()[:1] == b"{"
    names = (b'"sessionId"', b'"lastUpdated"', b'"messages"')
    return is_object and b'"uuid"' not in head and (b'"projectHash"' in head or all(name in head for name in names))


def _neighbor_files(name: str, names: frozenset[str], earlier: dict[str, list[str]]) -> tuple[str, ...]:
    """Return the other files of a conversation: earlier ones with its id, and the one that names its project's folder.

    A conversation that was resumed may continue in new files. Their names then end with the same part of the id.
    """
    files: list[str] = []
    match = _SESSION_FILE.fullmatch(name)
    if match:
        same_id = earlier.setdefault(f"{match[1]}{match[3]}", [])
        files += same_id[-_MAX_EARLIER_FILES:]
        same_id.append(name)
    root = f"{name.partition('chats/')[0]}{_ROOT_FILE}"
    return (*files, root) if root in names else tuple(files)


class _Entry(msgspec.Struct, array_like=True):
    """A record of the conversation: its id, its message, and the messages before and after it."""

    id: str
    key: str | None
    """None if the record repeats the results of tools, which became a message before."""
    parent: str | None
    last: str | None
    """The key of its last message, which the next record follows: its results, or `key`."""
    is_remark: bool = False
    """It is for the screen, so that lists of all messages lack it."""


class _GeminiProgress(msgspec.Struct, omit_defaults=True):
    """What a reader knows after a line, which is its state."""

    session: str | None = None
    has_title: bool = False
    has_branches: bool = False
    before_empty: str | None = None
    """The last message before all were removed: a store has no name for a conversation that is empty again."""
    model: str | None = None
    records: int = 0
    entries: list[_Entry] = []
    is_cut: bool = False
    """The state does not hold all entries."""
    caller: str | None = None
    """The key of the last message with calls."""
    calls: dict[str, str | None] = {}
    """The tools of its calls by id; None for a call that has a result."""
    is_joined: bool = False
    """The file has a message of its own, or no earlier file."""


class GeminiReader:
    """Reads a conversation line by line."""

    def __init__(self, tree: FileTree, transcript: Transcript, state: dict[str, Any] | None = None) -> None:
        self._tree, self._transcript = tree, transcript
        self._place = transcript.name
        try:
            self._progress = _GeminiProgress() if state is None else msgspec.convert(state, _GeminiProgress)
        except msgspec.ValidationError as error:
            raise ReadFromStart from error
        self._index = {entry.id: number for number, entry in enumerate(self._progress.entries)}
        self._has_news = False  # otherwise a later file of the conversation may have continued it

    @property
    def session(self) -> str | None:
        """The session id; None before the first line."""
        return self._progress.session

    def state(self) -> dict[str, Any]:
        """Return the progress, with a bounded number of messages."""
        progress = msgspec.structs.replace(self._progress)
        if len(progress.entries) > _STATE_ENTRIES:
            progress.entries, progress.is_cut = progress.entries[-_STATE_ENTRIES:], True
        progress.calls = dict(list(progress.calls.items())[-_MAX_CALLS:])
        return msgspec.to_builtins(progress)

    def read_line(self, number: int, line: Any) -> list[SourceEvent]:
        """Return the events of a line."""
        self._place = f"{self._transcript.name}:{number}"
        self._has_news = True
        return list(self._read(line))

    def read_document(self, document: Any) -> list[SourceEvent]:
        """Return the events of a whole document."""
        self._has_news = True
        return list(self._read_fields(document) if type(document) is dict else self._refuse())

    def finish(self) -> list[SourceEvent]:
        """Return the active message if there are branches."""
        session, last = self._progress.session, self._last or self._progress.before_empty
        if session is None or last is None or not self._progress.has_branches or not self._has_news:
            return []
        return [ActiveFound(session, last)]

    @property
    def _last(self) -> str | None:
        return self._progress.entries[-1].last if self._progress.entries else None

    def _refuse(self) -> Iterator[SourceEvent]:
        yield Note("malformed", self._place, "A line is not an object.")

    def _read(self, line: Any) -> Iterator[SourceEvent]:
        if type(line) is not dict:
            yield from self._refuse()
        elif "$rewindTo" in line:
            yield from self._start()
            yield from self._rewind(line["$rewindTo"])
        elif text_in(line, "id") is not None:
            yield from self._start()
            yield from self._read_record(line)
        elif "$set" in line:
            yield from self._start()
            yield from self._read_fields(dict_in(line, "$set"))
        elif "sessionId" in line:
            yield from self._read_fields(line)
        else:
            yield from self._start()
            yield Note("unknown", self._place, "record")

    def _start(self, first: Any = None) -> Iterator[SourceEvent]:
        """Begin a conversation that names no id: the name of its file, and for a saved chat its first message."""
        if self._progress.session is None:
            stem = self._transcript.name.rpartition("/")[2].partition(".json")[0]
            suffix = "" if first is None else f"-{short_hash(encode_standard(first))[:8]}"
            self._progress.session = session_id(NAME, f"{stem}{suffix}")
            yield SessionFound(self._progress.session, provider="google")

    def _read_fields(self, fields: dict[str, Any]) -> Iterator[SourceEvent]:
        """Read fields of the conversation, which may contain all messages."""
        messages = list_in(fields, "messages") or list_in(fields, "history")
        tool_id = text_in(fields, "sessionId")
        is_first = self._progress.session is None
        if is_first and tool_id is not None:
            self._progress.session = session_id(NAME, tool_id)
        yield from self._start(messages[0] if messages else None)
        for name in sorted(fields.keys() - _FIELDS):
            yield Note("unknown", self._place, f"field {kind_name(name)}")
        self._progress.model = text_in(dict_in(fields, "meta"), "model") or self._progress.model
        yield self._session_event(fields, is_first=is_first)
        if messages:
            yield from self._replace_messages(messages)

    def _session_event(self, fields: dict[str, Any], *, is_first: bool) -> SessionFound:
        assert self._progress.session is not None
        kind, project = field_in(fields, "kind"), field_in(fields, "projectHash")
        facts = {name: value for name, value in (("kind", kind), ("project_hash", project)) if value is not None}
        title = title_of(text_in(fields, "summary") or "")
        folders = [text for text in list_in(fields, "directories") if type(text) is str and text.strip()]
        return SessionFound(
            self._progress.session,
            title=title,
            title_rank=2 if title else 0,
            created_at=time_in(fields, "startTime", "start_time"),
            updated_at=time_in(fields, "lastUpdated"),
            working_dir=(self._project_root() if is_first else None)
            or field_in({"folder": (folders or [None])[0]}, "folder"),
            provider="google" if is_first else None,
            parent=self._parent() if kind == "subagent" else None,
            metadata=facts or None,
        )

    def _project_root(self) -> str | None:
        """Return the folder of the project, which a file next to the conversations names."""
        for name in self._transcript.files:
            if name.endswith(_ROOT_FILE):
                try:
                    text = self._tree.read(name, _MAX_ROOT).decode("utf-8", "replace").strip()
                except UnreadableFile:
                    return None
                return field_in({"root": text}, "root")
        return None

    def _parent(self) -> str | None:
        """Return the conversation of a sub-agent's caller: its id is the folder of the file."""
        folder, _, _ = self._transcript.name.rpartition("/")
        chats, _, parent = folder.rpartition("/")
        is_below = chats == "chats" or chats.endswith("/chats")
        parent = session_id(NAME, parent) if is_below and parent else None
        return None if parent == self._progress.session else parent

    def _rewind(self, target: Any) -> Iterator[SourceEvent]:
        """Continue before a message; before all if it is missing, as Gemini CLI does."""
        index = self._index.get(target) if type(target) is str else None
        if index is None and self._progress.is_cut:
            raise ReadFromStart
        if index is None:
            yield Note("missing", self._place, "A rewind names a message that is missing.")
        self._cut(index or 0)

    def _cut(self, length: int) -> None:
        """Keep the first entries. What follows is another branch."""
        progress = self._progress
        if length < len(progress.entries):
            progress.has_branches = True
            progress.before_empty = self._last
        del progress.entries[length:]
        self._index = {entry.id: number for number, entry in enumerate(progress.entries)}

    def _replace_messages(self, messages: list[Any]) -> Iterator[SourceEvent]:
        """Read a list of all messages. Known ones stay where they are; a summary in front of them is a compaction."""
        progress = self._progress
        if progress.entries and progress.is_cut:
            raise ReadFromStart
        records = [record if type(record) is dict else {} for record in messages]
        records = [record if self._id_of(record) else {**record, "id": str(i)} for i, record in enumerate(records, 1)]
        for record in records:
            yield from self._join(record)  # before the first one that is not context
        positions = [number for record in records if (number := self._index.get(record["id"])) is not None]
        if progress.entries and not all(is_context(record) for record in records):  # the beginning of a resumption
            summary = next((each for each in records if text_of(each).lstrip().startswith(SNAPSHOT)), None)
            if summary is not None and summary["id"] not in self._index:
                yield from self._read_compaction(summary, min(positions, default=len(progress.entries)))
                records = [each for each in records if not self._belongs_to_summary(each, summary)]
            elif not positions:
                self._cut(0)
            elif any(not entry.is_remark for entry in progress.entries[max(positions) + 1 :]):
                self._cut(max(positions) + 1)
        for record in records:
            if record["id"] not in self._index or _FULL_FIELDS & record.keys():
                yield from self._read_record(record)

    def _id_of(self, record: dict[str, Any]) -> str | None:
        return text_in(record, "id")

    def _belongs_to_summary(self, record: dict[str, Any], summary: dict[str, Any]) -> bool:
        """Return whether a new message was added with the summary: itself, its answer, or the context again."""
        if record is summary:
            return True
        return record["id"] not in self._index and (is_context(record) or text_of(record) == SNAPSHOT_ANSWER)

    def _read_compaction(self, summary: dict[str, Any], start: int) -> Iterator[SourceEvent]:
        """Emit a compaction of the messages before the first one that was kept."""
        progress = self._progress
        last = next((entry.last for entry in reversed(progress.entries[:start]) if entry.last is not None), None)
        if last is None or progress.session is None:
            return
        yield CompactionFound(progress.session, last, text_of(summary), time_in(summary, "timestamp"))

    def _read_record(self, record: dict[str, Any]) -> Iterator[SourceEvent]:
        """Read a message, or its new version."""
        progress = self._progress
        progress.records += 1
        identity = self._id_of(record) or str(progress.records)
        kind = record_kind(record)
        results = responses_of(record) if kind == "user" else []
        if results:
            yield from self._read_results(record, identity, results)
            if holds_only_results(record):
                return
        if identity not in self._index:
            yield from self._join(record)
        number = self._index.get(identity)
        if number is not None:
            entry = progress.entries[number]
            if entry.key is None or entry.id != identity:
                return
        else:
            entry = _Entry(identity, message_key(identity), self._last, None)
            entry.last = entry.key
            self._append(entry)
        yield from self._read_message(record, kind, entry)

    def _append(self, entry: _Entry) -> None:
        self._index[entry.id] = len(self._progress.entries)
        self._progress.entries.append(entry)

    def _read_message(self, record: dict[str, Any], kind: Any, entry: _Entry) -> Iterator[SourceEvent]:
        time = time_in(record, "timestamp", "ts")
        assert entry.key is not None
        if type(kind) is str and kind in ANSWERS:
            draft = read_answer(record, entry.key, self._progress.model)
            yield from self._emit(draft.replace(key=entry.key, created_at=time), entry.parent)
            yield from self._read_calls(record, draft, entry)
            return
        if kind == "user":
            draft = read_question(record)
            yield from self._read_title(draft)
        else:
            draft = read_remark(record)
            entry.is_remark = True
            if type(kind) is not str or kind not in REMARKS:
                yield Note("unknown", self._place, f"message {kind_name(kind)}")
        yield from self._emit(draft.replace(key=entry.key, created_at=time), entry.parent)

    def _read_title(self, draft: Draft) -> Iterator[SourceEvent]:
        title = title_of(question_of(draft) or "")
        if title is not None and not self._progress.has_title and self._progress.session is not None:
            self._progress.has_title = True
            yield SessionFound(self._progress.session, title=title, title_rank=1)

    def _read_calls(self, record: dict[str, Any], draft: Draft, entry: _Entry) -> Iterator[SourceEvent]:
        """Emit the results that a message of the model holds, and remember its calls."""
        progress = self._progress
        calls = calls_of(draft)
        if not calls:
            return
        results = results_of_calls(record, draft)
        if progress.caller != entry.key:
            progress.caller, progress.calls = entry.key, {}
        for call, tool in calls.items():
            progress.calls.setdefault(call, tool)
        if results:
            times = [
                part.metadata["completed_at"] for part in results if part.metadata and "completed_at" in part.metadata
            ]
            yield from self._emit_results(entry, results, max(times, default=time_in(record, "timestamp")))

    def _emit_results(self, entry: _Entry, results: list[ToolResultPart], time: int | None) -> Iterator[SourceEvent]:
        assert entry.key is not None
        key = message_key(f"{entry.key}:results")
        entry.last = key
        self._progress.calls.update(dict.fromkeys([part.call_id for part in results]))
        yield from self._emit(Draft(role="tool", parts=tuple(results), key=key, created_at=time), entry.key)

    def _read_results(
        self, record: dict[str, Any], identity: str, results: list[ToolResultPart]
    ) -> Iterator[SourceEvent]:
        """Emit the results in a record of the user, unless the record with their calls held them."""
        progress = self._progress
        results = [self._find_call(part) for part in results]
        new = [part for part in results if progress.calls.get(part.call_id, "") is not None]
        number = None if progress.caller is None else self._number_of_key(progress.caller)
        is_known = identity in self._index
        if new and number is not None and any(part.call_id in progress.calls for part in new):
            yield from self._emit_results(progress.entries[number], results, time_in(record, "timestamp"))
            new = []
        if is_known:
            return
        parent = self._last
        entry = _Entry(identity, None, parent, parent)
        if new:
            entry.last = message_key(f"{identity}:results")
            draft = Draft(role="tool", parts=tuple(results), key=entry.last, created_at=time_in(record, "timestamp"))
            yield from self._emit(draft, parent)
        if holds_only_results(record):
            self._append(entry)

    def _find_call(self, part: ToolResultPart) -> ToolResultPart:
        """Return a result without an id with that of the first open call of its tool."""
        if part.call_id != part.tool:
            return part
        call_id = next((call for call, tool in self._progress.calls.items() if tool == part.tool), part.call_id)
        return msgspec.structs.replace(part, call_id=call_id)

    def _number_of_key(self, key: str) -> int | None:
        entries = self._progress.entries
        return next((number for number in range(len(entries) - 1, -1, -1) if entries[number].key == key), None)

    def _emit(self, draft: Draft, parent: str | None) -> list[SourceEvent]:
        assert self._progress.session is not None
        return message_events(self._progress.session, draft, parent, self._place)

    def _join(self, record: dict[str, Any]) -> Iterator[SourceEvent]:
        """Emit the messages of the earlier files first if this one continues them, before its first own message."""
        progress = self._progress
        if progress.is_joined or is_context(record):
            return
        progress.is_joined = True
        earlier = self._read_earlier()
        yield from earlier.events()
        if earlier.reader is None or not earlier.reader.progress.entries:
            return
        earlier_progress = earlier.reader.progress
        progress.entries, progress.caller, progress.calls = (
            earlier_progress.entries, earlier_progress.caller, earlier_progress.calls,
        )  # fmt: skip
        progress.has_title |= earlier_progress.has_title
        progress.has_branches |= earlier_progress.has_branches
        self._index = {entry.id: number for number, entry in enumerate(progress.entries)}

    def _read_earlier(self) -> _EarlierFile:
        names = [name for name in self._transcript.files if not name.endswith(_ROOT_FILE)]
        return _EarlierFile(self._tree, names, self._progress.session)

    @property
    def progress(self) -> _GeminiProgress:
        """What the reader knows of the conversation, which a reader of a later file adopts."""
        return self._progress


class _EarlierFile:
    """The last of the earlier files of a conversation that was resumed in a new one. It continues those before it."""

    def __init__(self, tree: FileTree, names: Sequence[str], session: str | None) -> None:
        self._tree, self._session = tree, session
        self._name = names[-1] if names else ""
        kind = "lines" if self._name.endswith(".jsonl") else "document"
        transcript = Transcript(NAME, self._name, kind, tuple(names[:-1]))
        self.reader = GeminiReader(tree, transcript) if names else None

    def events(self) -> Iterator[SourceEvent]:
        """Yield the messages of the file. Afterwards, the reader is None if the file has another conversation."""
        if self.reader is None:
            return
        try:
            for event in self._read(self.reader):
                if isinstance(event, MessageFound) and event.session == self._session:
                    yield event
        except UnreadableFile:
            self.reader = None
        if self.reader is not None and self.reader.session != self._session:
            self.reader = None

    def _read(self, reader: GeminiReader) -> Iterator[SourceEvent]:
        if not self._name.endswith(".jsonl"):
            yield from reader.read_document(_first_value(self._tree.read(self._name)))
            return
        with closing(self._tree.open(self._name)) as file:
            while raw := file.readline(_MAX_LINE):
                yield from reader.read_line(0, _first_value(raw))


SOURCE = GeminiSource()
