"""Codex CLI: one file of lines per conversation, plain or compressed, and the single documents of its first versions.

An item of the Responses API is a line, so that one response of the model is several lines: they become one message,
which is emitted when the response ends. Most events repeat items for the screen and are read only for what items lack:
the usage, the times and exit codes of commands, rolled back turns; and for content in files that contain no items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from recollect.model.json import decode, encode_standard
from recollect.model.message import Draft
from recollect.sources.codex_forks import TURN_ENDS, TURN_STARTS, UUID, BaseLines, CopiedLines, RolloutFile, decode_line
from recollect.sources.codex_items import (
    CALLS,
    ITEMS,
    OUTPUTS,
    command_facts,
    finish_result,
    is_context,
    is_model_output,
    items_of_event,
    normal_item,
    question_of,
    read_item,
    read_response,
    text_of_history,
)
from recollect.sources.codex_titles import PATTERNS, detect_titles, is_titles, read_titles
from recollect.sources.files import FileTree, FolderTree
from recollect.sources.json_fields import (
    count_in,
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
    ForkFound,
    Note,
    Original,
    ReadFromStart,
    Select,
    SessionFound,
    SourceEvent,
    Transcript,
    select_all,
)

NAME = "codex"
_STATE_ITEMS = 32_768  # characters of the items of an open response that the state of a reader holds
_STATE_TURNS, _STATE_CALLS, _STATE_KEYS = 64, 32, 200  # entries in the state of a reader
_CALLS = 256  # recent calls whose facts a reader remembers; Codex runs a few at a time
_HELD_CHARACTERS = 16_384  # of events that wait for a first item
_HEAD_LINES = 20  # lines; the first one names the format, except in loose files of other programs
_RECORDS = frozenset(
    {
        "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state", "session_state",
        "inter_agent_communication", "inter_agent_communication_metadata", "security_risk_score", "token_usage_record",
    }
)  # fmt: skip
_EVENTS = TURN_ENDS | TURN_STARTS | frozenset(
    {
        "account/rateLimits/updated", "agent_message", "agent_reasoning", "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "background_event", "codex/event/raw_item", "collab_agent_interaction_begin", "collab_agent_interaction_end",
        "collab_agent_spawn_begin", "collab_agent_spawn_end", "collab_close_begin", "collab_close_end",
        "collab_waiting_begin", "collab_waiting_end", "context_compacted", "deprecation_notice",
        "dynamic_tool_call_request", "dynamic_tool_call_response", "entered_review_mode", "error",
        "exec_approval_request", "exec_command_begin", "exec_command_end", "exited_review_mode", "guardian_assessment",
        "image_generation_begin", "image_generation_end", "item_completed", "item_started", "mcp_tool_call_begin",
        "mcp_tool_call_end", "patch_apply_begin", "patch_apply_end", "plan_update", "stream_error",
        "sub_agent_activity", "thread_goal_updated", "thread_name_updated", "thread_rolled_back",
        "thread_settings_applied", "token_count", "turn_diff", "undo_completed", "undo_started", "user_message",
        "view_image_tool_call", "warning", "web_search_begin", "web_search_end",
    }
)  # fmt: skip
_OTHER_FOLDER = {"sessions": "archived_sessions", "archived_sessions": "sessions"}
_META_FACTS = ("cli_version", "originator", "thread_source", "agent_nickname", "agent_role", "agent_path")
_SESSION_META = re.compile(rb'\s*\{[^{}]{0,200}"type"\s*:\s*"session_meta"\s*,')
_OLD_DOCUMENT = re.compile(rb'\s*\{\s*"session"\s*:\s*\{[^{}]{0,400}"(?:id|timestamp)"')
_ROLLOUT = re.compile(r"rollout-.*\.jsonl(?:\.zst)?", re.IGNORECASE)


class CodexSource:
    """Codex CLI, its editor extensions and its app."""

    name = NAME
    label = "Codex CLI"
    copies_past = False

    def __init__(self) -> None:
        self._rollouts: WeakKeyDictionary[FileTree, _RolloutNames] = WeakKeyDictionary()

    def discover(self, environment: Environment) -> Sequence[Path]:
        """Return the folders of conversations, then the files with their titles.

        The folder of Codex as a whole has worktrees, caches and logs.
        """
        folder = environment.path("CODEX_HOME", environment.home / ".codex")
        homes = dict.fromkeys((folder, environment.path("CODEX_SQLITE_HOME", folder)))  # of the databases
        titles = [path for home in homes for pattern in PATTERNS for path in sorted(home.glob(pattern))]
        return [folder / "sessions", folder / "archived_sessions", *titles]

    def detect(self, tree: FileTree, names: Iterable[str]) -> Iterator[Transcript]:
        """Return the rollouts, by their first lines, and then the files with titles."""
        others: list[str] = []
        for name in sorted(names):
            if is_titles(name):
                others.append(name)
            if not name.endswith((".jsonl", ".jsonl.zst", ".json")):
                continue
            head = tree.head(name)
            if is_prompt_history(head) or (name.endswith(".json") and _OLD_DOCUMENT.match(head) and b'"items"' in head):
                yield Transcript(NAME, name, "document")
            elif _is_rollout(head):
                yield Transcript(NAME, name, "lines")
        for name in others:
            transcript = detect_titles(tree, NAME, name)
            if transcript is not None:
                yield transcript

    def read(
        self,
        tree: FileTree,
        transcript: Transcript,
        select: Select = select_all,  # noqa: ARG002  part of the interface
    ) -> Iterator[SourceEvent]:
        """Read titles, or a document of the first versions: a session, and its items."""
        if is_titles(transcript.name):
            yield from read_titles(tree, transcript)
            return
        if is_prompt_history(tree.head(transcript.name)):
            yield Note("skipped", transcript.name, "The history of prompts has no conversations; rollouts hold them.")
            return
        data = tree.read(transcript.name)
        try:
            document = decode(data)
        except (ValueError, RecursionError):
            yield Note("malformed", transcript.name, "The document is not JSON.")
            return
        reader = CodexReader(self, tree, transcript)
        for event in reader.read_line(0, {"type": "session_meta", "payload": dict_in(document, "session")}):
            yield event
            if isinstance(event, SessionFound):
                yield Original(event.session, "rollout.json", data)
        for number, item in enumerate(list_in(document, "items"), 1):
            yield from reader.read_line(number, {"type": "response_item", "payload": item})
        yield from reader.finish()

    def read_lines(self, tree: FileTree, transcript: Transcript, state: dict[str, Any] | None) -> CodexReader:
        """Return the reader of a rollout."""
        return CodexReader(self, tree, transcript, state)

    def find_rollout(self, tree: FileTree, thread: str) -> RolloutFile | None:
        """Return the file of a conversation, or of a rollout of it, by the ids in the names of files.

        A conversation may continue an archived one, so that both folders are searched if the tree is one of them.
        """
        rollouts = self._rollouts.get(tree)
        if rollouts is None:
            other = _OTHER_FOLDER.get(tree.path.name)
            rollouts = _RolloutNames(
                _find_names(tree), None if other is None else FolderTree(tree.path.with_name(other))
            )
            self._rollouts[tree] = rollouts
        name = rollouts.names.get(thread.lower())
        if name is not None:
            return RolloutFile(tree, name)
        if rollouts.other_tree is not None and rollouts.other_names is None:
            rollouts.other_names = _find_names(rollouts.other_tree)
        name = (rollouts.other_names or {}).get(thread.lower())
        return None if name is None or rollouts.other_tree is None else RolloutFile(rollouts.other_tree, name)


class _RolloutNames:
    """The names of the rollouts of a tree, and of the other folder of conversations, by the ids in them."""

    def __init__(self, names: dict[str, str], other_tree: FileTree | None) -> None:
        self.names, self.other_tree = names, other_tree
        self.other_names: dict[str, str] | None = None


def _find_names(tree: FileTree) -> dict[str, str]:
    names: dict[str, str] = {}
    for name in tree.names():
        file_name = name.rpartition("/")[2]
        if _ROLLOUT.fullmatch(file_name):
            for each in reversed(UUID.findall(file_name)):
                names.setdefault(each.lower(), name)
    return names


def _is_rollout(head: bytes) -> bool:
    """Return whether a file begins with lines of Codex. Its first line may be longer than the beginning."""
    if _SESSION_META.match(head):
        return True
    for line in head.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]:
        value = decode_line(line)
        if type(value) is not dict:
            continue
        if text_in(value, "type") in _RECORDS and type(value.get("payload")) is dict and "timestamp" in value:
            return True
        if value.get("record_type") == "state" or _is_old_meta(value):
            return True
    return False


def is_prompt_history(head: bytes) -> bool:
    """Return whether a file that begins so is `history.jsonl`, which has only the prompts of all conversations."""
    return dict_in(decode_line(head.partition(b"\n")[0])).keys() == {"session_id", "ts", "text"}


def _is_old_meta(line: dict[str, Any]) -> bool:
    """Return whether a line is the first one of a version that wrote items without an envelope."""
    return "type" not in line and "payload" not in line and {"id", "timestamp", "instructions"} <= line.keys()


class _Response(msgspec.Struct, omit_defaults=True):
    """A response of the model whose lines may not all be read yet."""

    key: str
    parent: str | None
    items: list[dict[str, Any]] = []
    created_at: int | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    is_usage_first: bool = False
    """The usage came before the items, as in old versions, so the response ends with the next usage."""
    is_closed: bool = False
    is_changed: bool = False
    is_interrupted: bool = False
    is_dropped: bool = False
    """The items were too large for the state of the reader."""


class _CodexProgress(msgspec.Struct, omit_defaults=True):
    """What a reader knows after a line, which is its state."""

    session: str | None = None
    thread: str | None = None
    has_records: bool = False
    """Whether the file has more than meta data."""
    last: str | None = None
    """The key of the message that the next one follows."""
    items: int = 0
    model: str | None = None
    session_model: str | None = None
    """The model in the fields of the session. That of a fork is not known before its own first turn."""
    time: int | None = None
    has_title: bool = False
    copied_until: str | None = None
    """The key of the last message that was copied from another conversation, before it is read."""
    is_copy_open: bool = False
    """Whether the file may have ended inside the lines that were copied."""
    has_branches: bool = False
    before_empty: str | None = None
    """The last message before all turns were rolled back: a store cannot name a conversation that is empty again."""
    turns: list[str | None] = []
    """The message before each question, for turns that are rolled back."""
    is_cut: bool = False
    """The state does not hold all turns."""
    before_context: str | None = None
    """The message before the context that Codex added since; only if such context is the last message."""
    response: _Response | None = None
    total: list[int | None] | None = None
    usage: dict[str, Any] | None = None
    calls: dict[str, dict[str, Any]] = {}
    keys: list[str] = []
    content: Literal["", "items", "events"] = ""
    """Where the content of the file is: unknown, in items, or in events."""
    questions: list[tuple[dict[str, Any], int | None]] = []
    """Questions in events, with their times, while it is unknown where the content is."""


class CodexReader:
    """Reads a rollout line by line."""

    def __init__(
        self, source: CodexSource, tree: FileTree, transcript: Transcript, state: dict[str, Any] | None = None
    ) -> None:
        self._source, self._tree, self._transcript = source, tree, transcript
        self._place = transcript.name
        self._is_copy = False
        self._is_continued = state is not None
        self._line_time: int | None = None
        try:
            self._progress = _CodexProgress() if state is None else msgspec.convert(state, _CodexProgress)
        except msgspec.ValidationError as error:
            raise ReadFromStart from error
        self._keys = set(self._progress.keys)

    @property
    def session(self) -> str | None:
        """The session id; None before the first record of a turn: meta data alone is not a conversation."""
        return self._progress.session if self._progress.has_records else None

    @property
    def last(self) -> str | None:
        """The key of the last message; None before it."""
        return self._progress.last

    def state(self) -> dict[str, Any]:
        """Return the progress, with bounded lists."""
        progress = msgspec.structs.replace(self._progress)
        response = progress.response
        if response is not None and not _fits_state(response.items):
            progress.response = msgspec.structs.replace(response, items=[], is_dropped=True)
        if len(progress.turns) > _STATE_TURNS:
            progress.turns, progress.is_cut = progress.turns[-_STATE_TURNS:], True
        progress.calls = dict(list(progress.calls.items())[-_STATE_CALLS:])
        progress.keys = progress.keys[-_STATE_KEYS:]
        return msgspec.to_builtins(progress)

    def read_line(self, number: int, line: Any) -> list[SourceEvent]:
        """Return the events of a line."""
        self._place = f"{self._transcript.name}:{number}"
        return list(self._read(line))

    def finish(self) -> list[SourceEvent]:
        """Return a response that has not ended, the last fields, and the active message."""
        return list(self._finish())

    def _finish(self) -> Iterator[SourceEvent]:
        progress = self._progress
        if progress.session is None:
            return
        yield from self._flush()
        yield SessionFound(progress.session, updated_at=progress.time, archived=self._is_archived())
        last = progress.last or progress.before_empty
        if progress.has_branches and last is not None:
            yield ActiveFound(progress.session, last)

    def _is_archived(self) -> bool | None:
        """Return whether the file is in the folder of archived conversations; None if it is in neither folder."""
        path = self._tree.local_path(self._transcript.name)
        folders = PurePath(self._transcript.name if path is None else path).parts[:-1]
        nearest = next((name for name in reversed(folders) if name in _OTHER_FOLDER), None)
        return None if nearest is None else nearest == "archived_sessions"

    def _read(self, line: Any) -> Iterator[SourceEvent]:
        if type(line) is not dict:
            yield Note("malformed", self._place, "A line is not an object.")
            return
        if self._is_continued and self._progress.is_copy_open:
            raise ReadFromStart
        kind, payload = line.get("type"), line.get("payload")
        self._progress.has_records = self._progress.has_records or not (kind == "session_meta" or _is_old_meta(line))
        time = self._line_time = time_in(line, "timestamp", "created_at") or time_in(payload, "timestamp")
        if time is None:
            time = self._progress.time  # the line was written after the one before
        elif not self._is_copy:
            self._progress.time = max(time, self._progress.time or 0)
        if type(payload) is not dict or type(kind) is not str:
            yield from self._read_old_line(line, time)
            return
        yield from self._read_record(kind, payload, time)

    def _read_record(self, kind: str, payload: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        match kind:
            case "session_meta":
                yield from self._read_meta(payload, time)
            case "response_item":
                yield from self._read_item_line(payload, time)
            case "event_msg":
                yield from self._read_event(payload, time)
            case "turn_context":
                yield from self._read_turn(payload, time)
            case "compacted":
                yield from self._read_compaction(payload, time)
            case "token_usage_record":
                yield from self._start(time)
                yield from self._read_usage(payload.get("usage"), payload.get("thread_token_usage"))
            case _ if kind in _RECORDS:
                yield from self._start(time)
            case _:
                yield from self._start(time)
                yield Note("unknown", self._place, f"record {kind_name(kind)}")

    def _read_old_line(self, line: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        """Read a line without an envelope: the meta data, a state, or an item."""
        if _is_old_meta(line):
            yield from self._read_meta(line, time)
        elif text_in(line, "type") in ITEMS or ("type" not in line and type(line.get("role")) is str):
            if model := text_in(line, "model"):
                self._progress.model = model
            yield from self._read_item_line(line, time)
        elif "record_type" in line:
            yield from self._start(time)
        elif text_in(line, "type") in _EVENTS:
            yield from self._read_event(line, time)
        else:
            yield from self._start(time)
            yield Note("unknown", self._place, f"record {kind_name(line.get('type'))}")

    def _start(self, time: int | None) -> Iterator[SourceEvent]:
        """Begin the conversation of a file without meta data. Its id is in the name of the file."""
        if self._progress.session is None:
            ids = UUID.findall(self._transcript.name.rpartition("/")[2])
            stem = self._transcript.name.rpartition("/")[2].partition(".json")[0]
            self._set_session(ids[0].lower() if ids else stem or short_hash(self._transcript.name))
            assert self._progress.session is not None
            yield SessionFound(self._progress.session, created_at=time)

    def _set_session(self, thread: str) -> None:
        self._progress.thread, self._progress.session = thread, session_id(NAME, thread)

    def _read_meta(self, payload: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        """Read the meta data. Later ones of the conversation update it; those of another one were copied with it."""
        thread = text_in(payload, "id", "session_id")
        is_first = self._progress.session is None
        if is_first:
            if thread is None:
                yield from self._start(time)
            else:
                self._set_session(thread)
        session = self._progress.session
        assert session is not None
        if thread is not None and session_id(NAME, thread) != session:
            return
        yield _session_event(session, payload, time, is_first=is_first)
        if is_first and not self._is_copy:
            if type(payload.get("history_base")) is dict:
                yield from self._read_base(payload)
            elif text_in(payload, "forked_from_id", "parent_thread_id"):
                yield from self._find_fork(payload)

    def _read_base(self, payload: dict[str, Any]) -> Iterator[SourceEvent]:
        """Read the beginning of a conversation that another file holds."""
        session = self._progress.session
        assert session is not None
        base = dict_in(payload, "history_base")
        base_lines = BaseLines(self._find, self._tree, self._transcript.name)
        copy = self._make_copy()
        for line in base_lines.read(base):
            copy.read_line(0, line)
        copy.finish()
        if base_lines.thread is None:
            yield Note("missing", self._place, "The beginning of the conversation is in a file that was not found.")
            return
        thread = text_in(base, "thread_id")
        is_own = self._progress.thread in (thread, base_lines.thread)
        origin = self._progress.thread if is_own else text_in(payload, "forked_from_id") or base_lines.thread
        assert origin is not None
        self._progress.has_branches = is_own
        if not is_own and copy.last is not None:
            yield ForkFound(session, session_id(NAME, origin), copy.last)
        self._is_copy = True
        for line in base_lines.read(base):
            yield from self._read(line)
        yield from self._flush()
        self._is_copy = False
        self._progress.response = self._progress.usage = None

    def _find(self, thread: str) -> RolloutFile | None:
        return self._source.find_rollout(self._tree, thread)

    def _make_copy(self) -> CodexReader:
        """Return a reader of the same conversation that finds keys, for a second pass that emits the messages."""
        copy = CodexReader(self._source, self._tree, self._transcript)
        copy._is_copy = True
        copy._progress.session, copy._progress.thread = self._progress.session, self._progress.thread
        return copy

    def _find_fork(self, payload: dict[str, Any]) -> Iterator[SourceEvent]:
        """Emit a fork if this file begins with a copy of the lines of another conversation."""
        origin = text_in(payload, "forked_from_id", "parent_thread_id")
        session = self._progress.session
        assert origin is not None
        assert session is not None
        if session_id(NAME, origin) == session:
            return
        end = CopiedLines(self._find, self._tree, self._transcript.name, payload, origin)
        last = end.find_last(self._make_copy())
        self._progress.copied_until, self._progress.is_copy_open = last, end.is_open
        if last is not None:
            yield ForkFound(session, session_id(NAME, origin), last)

    def _read_turn(self, payload: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        yield from self._start(time)
        self._progress.usage = None
        progress = self._progress
        progress.model = field_in(payload, "model") or progress.model
        if progress.model != progress.session_model and not self._is_copy:
            progress.session_model = progress.model
            assert progress.session is not None
            yield SessionFound(progress.session, model=progress.model)

    def _read_compaction(self, payload: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        yield from self._start(time)
        yield from self._end_response()
        session, last = self._progress.session, self._progress.last
        assert session is not None
        if last is None:
            yield Note("skipped", self._place, "A compaction precedes all messages.")
            return
        summary = text_in(payload, "message")
        if summary is None:
            yield Note("missing", self._place, "Only the provider can read the summary of a compaction.")
            summary = text_of_history(list_in(payload, "replacement_history"))
        if summary:
            yield CompactionFound(session, last, summary, time)

    def _end_response(self) -> Iterator[SourceEvent]:
        """Emit the present response. Later lines do not belong to it."""
        yield from self._flush()
        self._progress.response = self._progress.usage = None

    def _read_item_line(self, payload: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        yield from self._start(time)
        self._progress.content, self._progress.questions = "items", []
        yield from self._read_item(payload, time)

    def _read_item(self, payload: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        progress = self._progress
        progress.items += 1
        item = normal_item(payload, progress.items, progress.calls)
        if item is None:
            yield Note("malformed", self._place, "An item has no type.")
            return
        kind = item["type"]
        if kind == "ghost_snapshot":
            return
        if kind not in ITEMS:
            yield Note("unknown", self._place, f"item {kind_name(kind)}")
        call_id = item.get("call_id")
        if kind in CALLS and type(call_id) is str:
            self._remember_call(call_id, {"tool": text_in(item, "name")})
        if is_model_output(item):
            yield from self._extend_response(item, time)
        else:
            yield from self._add_message(item, payload, time)

    def _extend_response(self, item: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        """Add an item to the present response, or begin one."""
        progress = self._progress
        response = progress.response
        if response is None or response.is_closed:
            yield from self._flush()
            response = _Response(self._make_key(item), progress.last, [], time, progress.model)
            if progress.usage is not None:
                response.usage, response.is_usage_first, progress.usage = progress.usage, True, None
            progress.response, progress.last, progress.before_context = response, response.key, None
        elif response.is_dropped:
            raise ReadFromStart
        response.items.append(item)
        response.is_changed = True

    def _add_message(self, item: dict[str, Any], payload: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        """Emit a message that the model did not write: of a person, of Codex, or the result of a tool."""
        progress = self._progress
        is_output = item["type"] in OUTPUTS
        response = progress.response
        yield from self._flush()
        if response is not None and not (is_output and response.is_usage_first):
            response.is_closed = True
        draft = read_item(item, payload)
        if draft is None:
            yield Note("malformed", self._place, f"item {kind_name(item['type'])}")
            return
        if is_output:
            call_id = item.get("call_id")
            facts = progress.calls.get(call_id, {}) if type(call_id) is str else {}
            draft = finish_result(draft, payload, facts, self._line_time)
        question = question_of(draft)
        if question is not None:
            yield from self._begin_question(question)
        parent = progress.last
        is_injected = draft.role in ("user", "system") and question is None and all(map(is_context, draft.parts))
        if not is_injected:
            progress.before_context = None
        elif progress.before_context is None:
            progress.before_context = parent
        progress.last = self._make_key(item)
        yield from self._message(draft.replace(key=progress.last, created_at=time), parent)

    def _begin_question(self, question: str) -> Iterator[SourceEvent]:
        progress = self._progress
        progress.response = progress.usage = None
        progress.turns.append(progress.last if progress.before_context is None else progress.before_context)
        title = title_of(question)
        is_own = not (self._is_copy or progress.is_copy_open) and progress.copied_until is None
        if title is not None and is_own and not progress.has_title:
            progress.has_title = True
            assert progress.session is not None
            yield SessionFound(progress.session, title=title, title_rank=1)

    def _message(self, draft: Draft, parent: str | None) -> list[SourceEvent]:
        assert self._progress.session is not None
        return message_events(self._progress.session, draft, parent, self._place)

    def _make_key(self, item: dict[str, Any]) -> str:
        """Return the key of a message: the id of its first item, or its number, and both if the id is not unique."""
        number = str(self._progress.items)
        key = message_key(text_in(item, "id") or number)
        if short_hash(key)[:12] in self._keys:
            key = message_key(f"{number}:{key}")
        self._progress.keys.append(short_hash(key)[:12])
        self._keys.add(self._progress.keys[-1])
        if key == self._progress.copied_until:
            self._progress.copied_until = None
        return key

    def _remember_call(self, call_id: str, facts: dict[str, Any]) -> None:
        calls = self._progress.calls
        calls[call_id] = {**calls.get(call_id, {}), **facts}
        while len(calls) > _CALLS:
            del calls[next(iter(calls))]

    def _flush(self) -> Iterator[SourceEvent]:
        """Emit the present response as far as it is known."""
        response = self._progress.response
        if response is None or not response.is_changed:
            return
        response.is_changed = False
        draft = read_response(response.items)
        if draft is None:
            yield Note("malformed", self._place, "A response contains an item that cannot be read.")
            readable = [item for item in response.items if read_response([item]) is not None]
            draft = read_response(readable) or Draft(role="assistant")
        usage = response.usage
        draft = draft.replace(
            key=response.key,
            created_at=response.created_at,
            model=response.model,
            input_tokens=count_in(usage, "input_tokens", "prompt_tokens", "prompt"),
            output_tokens=count_in(usage, "output_tokens", "completion_tokens", "completion"),
            tokens=count_in(usage, "output_tokens", "completion_tokens", "completion"),
            metadata=None if usage is None else {"usage": usage},
            state="interrupted" if response.is_interrupted else "completed",
        )
        yield from self._message(draft, response.parent)

    def _read_usage(self, usage: Any, total: Any) -> Iterator[SourceEvent]:
        """Add the usage to its response, once: Codex repeats it, which the unchanged total shows."""
        progress = self._progress
        counts = (count_in(usage, "input_tokens", "prompt"), count_in(usage, "output_tokens", "completion"))
        if not any(counts):
            return
        fingerprint = [count_in(total, name) for name in ("input_tokens", "output_tokens", "total_tokens")]
        has_total = any(count is not None for count in fingerprint)
        if has_total and fingerprint == progress.total:
            return
        if has_total:
            progress.total = fingerprint
        response = progress.response
        if response is not None and response.usage is None:
            if response.is_dropped:
                raise ReadFromStart
            response.usage, response.is_changed = usage, True
            yield from self._end_response()
        else:
            yield from self._end_response()
            progress.usage = usage if has_total else None

    def _read_event(self, event: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        yield from self._start(time)
        progress = self._progress
        kind = event.get("type")
        if type(kind) is not str or kind not in _EVENTS:
            yield Note("unknown", self._place, f"event {kind_name(kind)}")
            return
        self._read_facts(event)
        if progress.content != "items":
            yield from self._read_content(event, time)
        match kind:
            case "token_count":
                info = event.get("info")
                last = dict_in(info, "last_token_usage") or info
                yield from self._read_usage(last, dict_in(info, "total_token_usage"))
            case "turn.completed":
                yield from self._read_usage(event.get("usage"), None)
            case "thread_rolled_back":
                yield from self._roll_back(count_in(event, "num_turns") or 0)
            case "thread_name_updated":
                title = title_of(text_in(event, "thread_name") or "")
                assert progress.session is not None
                if title is not None and not self._is_copy:
                    yield SessionFound(progress.session, title=title, title_rank=3)
            case "turn_aborted":
                yield from self._interrupt()
            case _:
                pass
        if kind in TURN_ENDS | TURN_STARTS:
            progress.usage = None

    def _interrupt(self) -> Iterator[SourceEvent]:
        """Mark a response that a person interrupted before its end."""
        response = self._progress.response
        if response is None or response.usage is not None or response.is_closed:
            return
        if response.is_dropped:
            raise ReadFromStart
        response.is_interrupted = response.is_changed = True
        yield from self._end_response()

    def _read_facts(self, event: dict[str, Any]) -> None:
        """Remember the exit code and the times of a tool, which precede its output."""
        fields = dict_in(event, "item") if event.get("type") == "item_completed" else event
        call_id = text_in(event, "call_id", "callId") or text_in(fields, "id")
        if call_id in self._progress.calls:
            times = {name: event[name] for name in ("started_at_ms", "completed_at_ms") if name in event}
            self._remember_call(call_id, command_facts({**fields, **times}))

    def _roll_back(self, count: int) -> Iterator[SourceEvent]:
        """Continue before the last questions: what follows is another branch."""
        progress = self._progress
        yield from self._end_response()
        if not count or not progress.turns:
            return
        if count > len(progress.turns) and progress.is_cut:
            raise ReadFromStart
        index = max(len(progress.turns) - count, 0)
        progress.before_empty, progress.last = progress.last, progress.turns[index]
        del progress.turns[index:]
        progress.before_context, progress.has_branches = None, True

    def _read_content(self, event: dict[str, Any], time: int | None) -> Iterator[SourceEvent]:
        """Read the content of an event of a file without items: the model said something, and no item came before."""
        progress = self._progress
        progress.questions += [(item, time) for item in items_of_event(event)]
        is_question = event.get("type") == "user_message"
        if progress.content == "" and is_question and len(encode_standard(progress.questions)) < _HELD_CHARACTERS:
            return
        questions, progress.questions = progress.questions, []
        if questions:
            progress.content = "events"
        for item, item_time in questions:
            yield from self._read_item(item, item_time)


def _fits_state(items: list[dict[str, Any]]) -> bool:
    """Return whether the state of a reader can hold items: they are short, and JSON, which NaN is not."""
    text = encode_standard(items)
    try:
        return len(text) <= _STATE_ITEMS and msgspec.json.decode(text) == items
    except msgspec.DecodeError:
        return False


def _session_event(session: str, payload: dict[str, Any], time: int | None, *, is_first: bool) -> SessionFound:
    """Return the fields of the meta data of a conversation."""
    git = dict_in(payload, "git")
    source = payload.get("source")
    spawn = dict_in(source, "subagent", "thread_spawn")
    parent = text_in(payload, "parent_thread_id") or text_in(spawn, "parent_thread_id")
    parent = None if parent is None else session_id(NAME, parent)
    facts = {name: field_in(payload, name) for name in _META_FACTS}
    facts |= {
        "git_branch": field_in(git, "branch"),
        "git_commit": field_in(git, "commit_hash"),
        "git_repository": field_in(git, "repository_url"),
        "forked_from": field_in(payload, "forked_from_id"),
    }
    instructions = payload.get("base_instructions", payload.get("instructions"))
    text = text_in(instructions, "text") or text_in(payload, "base_instructions", "instructions")
    return SessionFound(
        session,
        created_at=(time_in(payload, "timestamp") or time) if is_first else None,
        working_dir=field_in(payload, "cwd"),
        provider=field_in(payload, "model_provider"),
        system_prompt=text if is_first else None,
        parent=None if parent == session else parent,
        metadata={name: value for name, value in facts.items() if value is not None} or None,
    )


SOURCE = CodexSource()
