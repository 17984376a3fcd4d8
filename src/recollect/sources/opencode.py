"""opencode: its database `opencode.db`, the folder of JSON files that came before it, and `opencode export`.

All three hold the same sessions, messages and parts. A session is one path: the field `parentID` of an answer names the
question of its turn, not the message before it. The database also has a second form of messages, `session_message`,
which is read if a session has no messages of the first form.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recollect.errors import UnreadableFile
from recollect.model import json
from recollect.model.message import Draft
from recollect.sources.documents import (
    DocumentSource,
    first_question,
    json_bytes,
    json_head,
    order_tree,
    plain_data,
    read_element,
)
from recollect.sources.files import FileTree
from recollect.sources.json_fields import (
    as_dict,
    as_list,
    as_text,
    column_text,
    from_milliseconds,
    message_events,
    pick,
    session_id,
    title_text,
)
from recollect.sources.opencode_messages import StoredMessage, from_second_form, read_draft, summary_text
from recollect.sources.source import (
    ActiveFound,
    CompactionFound,
    Environment,
    Note,
    Original,
    Select,
    SessionFound,
    SourceEvent,
    Transcript,
    select_all,
)
from recollect.sources.sqlite_copy import DatabaseCopy, TableColumns, is_database, open_copy, read_tables, side_files

_NAME = "opencode"
_MAX_FILE_BYTES = 256 << 20  # of a message, a part or an exported session, which are in memory as a whole
_MESSAGE_TABLES = frozenset({"message", "session_message"})
_SECRET_TABLES = frozenset({"session_share"})
"""Tables of a session that are not part of the conversation: the password of a shared link."""
_DEFAULT_TITLE = re.compile(r"(?:New session|Child session) - \d{4}-\d\d-\d\dT")
_EXPORT = re.compile(rb'\{\s*"info"\s*:\s*\{')
_SESSION_FILE = re.compile(r"(?P<root>(?:.*/)?)session/(?P<folder>[^/]+)/[^/]+\.json")
_IN_STORAGE = re.compile(r"(?:^|/)(?:message|part)/")
_SESSION_FACTS = ("version", "slug", "agent", "cost", "path", "metadata", "permission", "revert", "summary")
_SESSION_FIELD = re.compile(rb'"(?:projectID|directory|version|parentID)"\s*:')


class _StoredSession(NamedTuple):
    """A session in the form of the JSON files, from any of the three places."""

    info: dict[str, Any]
    messages: list[StoredMessage]
    project: dict[str, Any]
    version: str | None = None


class OpencodeSource(DocumentSource):
    """Reads the data of opencode."""

    name = _NAME
    label = "opencode"

    def discover(self, environment: Environment) -> Sequence[Path]:
        """Return the folders of JSON files, then the databases, which hold newer versions of the same sessions."""
        folder = environment.data_home / _NAME
        databases = {folder / "opencode.db", *folder.glob("opencode-*.db")}  # one per channel of its releases
        database_name = environment.variables.get("OPENCODE_DB")
        if database_name and database_name != ":memory:":
            databases.add(folder / Path(database_name).expanduser())
        return (folder / "storage", folder / "project", *sorted(databases))

    def detect(self, tree: FileTree, names: Iterable[str]) -> Iterator[Transcript]:
        """Return the sessions in files, then databases, which hold newer versions of the same sessions."""
        names = list(names)
        yield from _detect_files(tree, names)
        for name in names:
            if is_database(tree, name) and _has_sessions(read_tables(tree, name)):
                yield Transcript(_NAME, name, "document", side_files(tree, name))

    def read(self, tree: FileTree, transcript: Transcript, select: Select = select_all) -> Iterator[SourceEvent]:
        """Read a database, a session in files, or an exported session."""
        if is_database(tree, transcript.name):
            with open_copy(tree, transcript.name) as database:
                yield from _read_database(database, transcript.name, select)
        elif _EXPORT.match(json_head(tree, transcript.name)):
            yield from _read_export(tree, transcript.name)
        else:
            yield from _read_files(tree, transcript)


# Sessions


def _read_session(content: _StoredSession, session: str, place: str) -> Iterator[SourceEvent]:
    """Yield the events of a session."""
    results = [read_draft(message) for message in content.messages]
    yield _session_found(content, session, [result.draft for result in results if result.draft is not None])
    previous: str | None = None
    keys: list[str] = []
    parents: dict[str, str | None] = {}
    for draft, unknown in results:
        yield from [Note("unknown", place, text) for text in unknown]
        if draft is not None and draft.key is not None:
            if draft.key not in parents:
                parents[draft.key] = previous
                previous = draft.key
            else:
                yield Note("malformed", place, "Two messages have the same id.")
            yield from message_events(session, draft, parents[draft.key], place)
        keys.append(previous or "")
    yield from _compactions(content.messages, keys, session)
    active = _active_key(content, keys)
    if active:
        yield ActiveFound(session, active)


def _session_found(content: _StoredSession, session: str, drafts: list[Draft]) -> SessionFound:
    info = content.info
    title = title_text(info.get("title"))
    if title is not None and _DEFAULT_TITLE.match(title):
        title = None
    model = as_dict(info.get("model"))
    answers = [message.info for message in content.messages if message.info.get("role") == "assistant"]
    last = answers[-1] if answers else {}
    last_model = as_dict(last.get("model"))
    parent = as_text(info.get("parentID"))
    times = as_dict(info.get("time"))
    metadata = pick(info, *_SESSION_FACTS)
    if as_dict(info.get("share")):
        metadata["share_url"] = as_text(info["share"].get("url"))
    project = pick(content.project, "id", "worktree", "name", "vcs")
    if project:
        metadata["project"] = project
    return SessionFound(
        session,
        title=title or first_question(drafts),
        title_rank=2 if title else 1,
        created_at=from_milliseconds(times.get("created")),
        updated_at=from_milliseconds(times.get("updated")),
        working_dir=column_text(info.get("directory")),
        model=column_text(last.get("modelID") or last_model.get("modelID") or model.get("id") or model.get("modelID")),
        provider=column_text(last.get("providerID") or last_model.get("providerID") or model.get("providerID")),
        archived=True if from_milliseconds(times.get("archived")) else None,
        parent=session_id(_NAME, parent) if parent else None,
        metadata=metadata or None,
        version=content.version,
    )


def _compactions(messages: Sequence[StoredMessage], keys: Sequence[str], session: str) -> Iterator[SourceEvent]:
    """Yield the compactions: a question with a part `compaction`, answered by a message that is the summary.

    The messages from `tail_start_id` remain visible for the model, so that only those before it are summarized.
    """
    requests = {
        message.id: part
        for message in messages
        for part in message.parts
        if part.get("type") == "compaction" and message.info.get("role") == "user"
    }
    index_of = {message.id: index for index, message in enumerate(messages)}
    for index, message in enumerate(messages):
        info = message.info
        summary = summary_text(message)
        request = requests.get(as_text(info.get("parentID")) or "")
        if message.compaction is not None:  # of the second form, which is not a message
            if index and keys[index - 1]:
                yield CompactionFound(session, keys[index - 1], message.compaction, message.created_at)
            continue
        if info.get("role") != "assistant" or info.get("summary") is not True or not summary or info.get("error"):
            continue
        tail = index_of.get(as_text((request or {}).get("tail_start_id")) or "", len(messages))
        last = keys[index] if tail >= index else keys[tail - 1] if tail else ""
        if last:
            yield CompactionFound(session, last, summary, message.created_at)


def _active_key(content: _StoredSession, keys: Sequence[str]) -> str | None:
    """Return the key of the last message; of the one before a revert, if the session is reverted."""
    revert = as_text(as_dict(content.info.get("revert")).get("messageID"))
    for index, message in enumerate(content.messages):
        if revert is not None and message.id == revert:
            return keys[index - 1] if index else None
    return keys[-1] if keys else None


# The database


def _has_sessions(tables: Mapping[str, TableColumns]) -> bool:
    """Return whether tables are those of opencode, of any version."""
    columns = tables["session"].columns if "session" in tables else ()
    return {"id", "project_id"} <= set(columns) and not _MESSAGE_TABLES.isdisjoint(tables)


def _read_database(database: DatabaseCopy, place: str, select: Select) -> Iterator[SourceEvent]:
    """Yield the events of the sessions of a database that have changed, parents before their sub-agents."""
    parents: dict[str, str | None] = {}
    digests: dict[str, Any] = {}
    for row in database.rows("session", order="time_created,id"):
        tool_id = as_text(row.get("id"))
        if tool_id is not None:
            parents[tool_id] = as_text(row.get("parent_id"))
            digests[tool_id] = hashlib.sha256(json_bytes(row))
        else:
            yield Note("malformed", place, "A session has no id.")
    for table, key in _session_tables(database):
        for tool_id, summary in database.summaries(table, key):
            if tool_id in digests:
                digests[tool_id].update(f"{table}\0{summary}\0".encode("utf-8", "surrogatepass"))
    versions = {session_id(_NAME, tool_id): digest.hexdigest() for tool_id, digest in digests.items()}
    selection = select(versions)
    for node in order_tree(parents):
        session = session_id(_NAME, node.id)
        if session in selection:
            yield from _read_rows(database, node.id, session, versions[session], place)


def _read_rows(database: DatabaseCopy, tool_id: str, session: str, version: str, place: str) -> Iterator[SourceEvent]:
    """Yield the events of a session of a database."""
    row = next(database.rows("session", "id", tool_id), {})
    project = next(database.rows("project", "id", row.get("project_id")), {})
    notes: list[Note] = []
    messages = _database_messages(database, tool_id, place, notes)
    content = _StoredSession(_session_info(row), messages, project, version)
    yield from _read_session(content, session, place)
    yield from notes
    yield from _database_originals(database, tool_id, session)


def _session_tables(database: DatabaseCopy) -> Iterator[tuple[str, str]]:
    """Yield the tables that name sessions, also unknown ones, and the column that does. Not the sessions themselves."""
    for table in sorted(database.tables.keys() - _SECRET_TABLES - {"session"}):
        columns = database.tables[table].columns
        key = "session_id" if "session_id" in columns else "aggregate_id"
        if key in columns:
            yield table, key


def _session_info(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table `session` in the form of the JSON files."""
    info = {**row, "parentID": row.get("parent_id"), "projectID": row.get("project_id")}
    for name in ("model", "revert", "permission", "metadata", "summary_diffs"):
        info[name] = _decode(row.get(name))
    names = {"created": "time_created", "updated": "time_updated", "archived": "time_archived"}
    info["time"] = {name: row.get(column) for name, column in names.items()}
    info["share"] = {"url": row["share_url"]} if row.get("share_url") else None
    info["summary"] = pick(row, "summary_additions", "summary_deletions", "summary_files")
    return info


def _decode(value: Any) -> Any:
    """Return the value of JSON text in a column; None for anything else."""
    if type(value) is not str:
        return None
    try:
        return plain_data(json.decode(value))[0]
    except (ValueError, RecursionError):
        return None


def _database_messages(database: DatabaseCopy, tool_id: str, place: str, notes: list[Note]) -> list[StoredMessage]:
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in database.rows("part", "session_id", tool_id, "id"):
        part = _decode(row.get("data"))
        if type(part) is dict:
            parts.setdefault(str(row.get("message_id")), []).append({**part, "id": row.get("id")})
        else:
            notes.append(Note("malformed", place, "A part of a message is not a JSON object."))
    messages: list[StoredMessage] = []
    for row in database.rows("message", "session_id", tool_id, "time_created,id"):
        info = _decode(row.get("data"))
        if type(info) is dict:
            created_at = from_milliseconds(row.get("time_created"))
            messages.append(StoredMessage(str(row.get("id")), info, parts.get(str(row.get("id")), []), created_at))
        else:
            notes.append(Note("malformed", place, "A message is not a JSON object."))
    if messages or parts:
        return messages
    return _second_form(database, tool_id, place, notes)


def _second_form(database: DatabaseCopy, tool_id: str, place: str, notes: list[Note]) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    for row in database.rows("session_message", "session_id", tool_id, "seq,id"):
        data = _decode(row.get("data"))
        if type(data) is not dict:
            notes.append(Note("malformed", place, "A message is not a JSON object."))
            continue
        kind = as_text(row.get("type")) or as_text(data.get("type")) or ""
        message = from_second_form(str(row.get("id")), kind, data, from_milliseconds(row.get("time_created")))
        if isinstance(message, str):
            notes.append(Note("unknown", place, message))
        elif message is not None:
            messages.append(message)
    return messages


def _database_originals(database: DatabaseCopy, tool_id: str, session: str) -> Iterator[Original]:
    """Yield the rows of a session, per table. The first original, its own row, identifies it.

    The row of its project is not among them: opencode changes it at each start, and with it all its sessions.
    """
    for table, key in (("session", "id"), *_session_tables(database)):
        rows = list(database.rows(table, key, tool_id, "seq,position,time_created,id"))
        if rows:
            yield Original(session, f"{table}.json", json_bytes(rows))


# Files


def _detect_files(tree: FileTree, names: Sequence[str]) -> Iterator[Transcript]:
    layouts: dict[str, _Folder] = {}
    for name in names:
        match = _SESSION_FILE.fullmatch(name)
        if _IN_STORAGE.search(name) and match is None:
            continue  # a message or a part: thousands of files that need not be opened
        head = json_head(tree, name)
        if _EXPORT.match(head) and (b'"projectID"' in head or b'"directory"' in head):
            yield Transcript(_NAME, name, "document")
        if match is None or not _is_session(head) or match["folder"] in ("message", "part"):
            continue
        root = match["root"] + ("session/" if match["folder"] == "info" else "")
        if root not in layouts:
            layouts[root] = _Folder(tree, root, names)
        tool_id = as_text(as_dict(_decode_bytes(head)).get("id"))
        yield Transcript(_NAME, name, "document", layouts[root].files_of(tool_id or Path(name).stem))


def _is_session(head: bytes) -> bool:
    return b'"time"' in head and b'"id"' in head and _SESSION_FIELD.search(head) is not None


def _decode_bytes(data: bytes) -> Any:
    try:
        return json.decode(data)
    except (ValueError, RecursionError):
        return None


class _Folder:
    """The message and part files of a storage folder, by session."""

    def __init__(self, tree: FileTree, root: str, names: Iterable[str]) -> None:
        self._tree = tree
        self._messages: dict[str, list[str]] = {}
        self._parts: dict[str, list[str]] = {}
        for name in names:
            if not name.startswith(root) or not name.endswith(".json"):
                continue
            kind, _, rest = name[len(root) :].partition("/")
            folders = rest.split("/")[:-1]
            if kind == "message" and folders:
                self._messages.setdefault(folders[0], []).append(name)
            elif kind == "part":  # part/<message>/, or part/<session>/<message>/ in the oldest versions
                self._parts.setdefault(folders[-1] if folders else self._message_of(name), []).append(name)

    def _message_of(self, name: str) -> str:
        match = re.search(rb'"messageID"\s*:\s*"([^"\\]+)"', self._tree.head(name))
        return match[1].decode("utf-8", "replace") if match else ""

    def files_of(self, tool_id: str) -> tuple[str, ...]:
        """Return the names of the files of a session: each message, followed by its parts."""
        files: list[str] = []
        for name in self._messages.get(tool_id, ()):
            files.append(name)
            stem = Path(name).stem
            ids = [stem] if stem in self._parts else re.findall(rb'"id"\s*:\s*"([^"\\]+)"', self._tree.head(name))
            for message_id in dict.fromkeys(each if isinstance(each, str) else each.decode() for each in ids):
                files += self._parts.get(message_id, ())
        return tuple(dict.fromkeys(files))


def _read_files(tree: FileTree, transcript: Transcript) -> Iterator[SourceEvent]:
    """Read a session of a storage folder: its own file, then those of its messages and parts."""
    element = read_element(tree.read(transcript.name, _MAX_FILE_BYTES))
    info = as_dict(element.value)
    tool_id = as_text(info.get("id")) or Path(transcript.name).stem
    session = session_id(_NAME, tool_id)
    match = _SESSION_FILE.fullmatch(transcript.name)
    root = match["root"] if match is not None else ""
    originals = [Original(session, transcript.name[len(root) :], element.data)]
    notes: list[Note] = []
    if element.problem is not None:
        notes.append(Note("malformed", transcript.name, element.problem))
    messages: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for name in transcript.files:
        try:
            data = tree.read(name, _MAX_FILE_BYTES)
        except UnreadableFile as error:
            notes.append(Note("missing", name, str(error)))
            continue
        originals.append(Original(session, name[len(root) :], data))
        value = read_element(data)
        if type(value.value) is not dict:
            notes.append(Note("malformed", name, value.problem or "A file is not a JSON object."))
            continue
        _add_file(messages, name, value.value)
    content = [
        StoredMessage(key, message, parts, from_milliseconds(as_dict(message.get("time")).get("created")))
        for key, (message, parts) in messages.items()
    ]
    content.sort(key=lambda message: (message.created_at or 0, message.id))
    yield from _read_session(_StoredSession(info, content, {"id": info.get("projectID")}), session, transcript.name)
    yield from notes
    yield from originals


def _add_file(
    messages: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]], name: str, value: dict[str, Any]
) -> None:
    """Add the content of a file: a message, or a part of a message."""
    path = Path(name)
    if path.parent.name == "part" or "part" in path.parts[:-2] or as_text(value.get("messageID")):
        key = as_text(value.get("messageID")) or path.parent.name
        messages.setdefault(key, ({}, []))[1].append(value)
        return
    key = as_text(value.get("id")) or path.stem
    inner = [part for part in as_list(value.get("parts")) if type(part) is dict]  # the oldest versions
    messages[key] = (value, [*inner, *messages.get(key, ({}, []))[1]])


# An export


def _read_export(tree: FileTree, name: str) -> Iterator[SourceEvent]:
    """Read what `opencode export` writes: a session with its messages and their parts."""
    element = read_element(tree.read(name, _MAX_FILE_BYTES))
    if element.problem is not None:
        yield Note("malformed", name, element.problem)
    document = as_dict(element.value)
    info = as_dict(document.get("info"))
    tool_id = as_text(info.get("id"))
    if tool_id is None:
        yield Note("skipped", name, "An exported session has no id.")
        return
    messages: list[StoredMessage] = []
    for index, item in enumerate(as_list(document.get("messages"))):
        message = as_dict(as_dict(item).get("info"))
        if not message:
            yield Note("malformed", name, "A message is not an object with the field info.")
            continue
        parts = [part for part in as_list(item.get("parts")) if type(part) is dict]
        created_at = from_milliseconds(as_dict(message.get("time")).get("created"))
        message_id = as_text(message.get("id")) or f"message-{index}"
        messages.append(StoredMessage(message_id, message, parts, created_at))
    session = session_id(_NAME, tool_id)
    project = {"id": info.get("projectID")}
    yield from _read_session(_StoredSession(info, messages, project), session, name)
    yield Original(session, "export.json", element.data)


SOURCE = OpencodeSource()
