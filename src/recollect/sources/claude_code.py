"""Claude Code: one file of lines for each conversation, below `projects/` of its configuration folder.

A line is a JSON object. Lines with a `uuid` form a tree through `parentUuid`; only those of type `user` and `assistant`
are messages, and one response of the model is written as several lines with the same `message.id`. A sub-agent has a
file of its own or, in old versions, lines with `isSidechain` in the file of its conversation.

The key of a message is the uuid of its first line. In a copy made by `fork_session()` of the Agent SDK, which writes
new uuids, it is the uuid of the copied line. claude_code_content.py reads the content of messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from recollect.errors import UnreadableFile
from recollect.model.json import decode
from recollect.model.message import Draft
from recollect.sources import claude_code_content as content
from recollect.sources.claude_code_content import as_dict, as_id, as_text, digest, parse_time
from recollect.sources.claude_code_index import (
    ClaudeCodeConversation,
    ClaudeCodeResponse,
    ClaudeCodeState,
    LinePlace,
    UuidIndex,
    digest_content,
)
from recollect.sources.files import FileTree
from recollect.sources.source import (
    ActiveFound,
    CompactionFound,
    Environment,
    ForkFound,
    LineReader,
    MessageFound,
    Note,
    ReadFromStart,
    Select,
    SessionFound,
    SourceEvent,
    Transcript,
    select_all,
)

NAME = "claude-code"
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_AGENT_FILE = re.compile(r"agent-(.+)")
_HEAD_LINES = 40  # a file begins with up to a dozen lines of settings and titles
_MAX_LINE = 32 << 20  # bytes; the writer does not parse longer lines either
_MAX_SIDECAR = 1 << 20  # bytes of a .meta.json file; real ones have some hundred
_MAX_OUTPUT = 4 << 20  # bytes of a full output. It is a part of its message, which is read as a whole.
_MAX_OPEN_CALLS = 8  # calls of early versions without a result; these ran one tool at a time
_MAX_TOOL_NAME = 100  # characters; providers allow 64
_MAX_SUMMARIES = 8  # titles whose last message has not come; an old file begins with one to five of them
_CHAIN_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})
_OLD_TOOL_TYPES = frozenset({"tool_use", "tool_result"})
"""Lines of early versions for a call of a tool and its result, which are blocks of messages today."""
_OTHER_TYPES = frozenset({
    "agent-color", "agent-name", "agent-setting", "agent_metadata", "ai-title", "api-request", "api-request-blob",
    "api-request-shape", "atis-latch", "attribution-snapshot", "bridge-session", "content-replacement", "cost-state",
    "custom-title", "file-history-delta", "file-history-snapshot", "frame-link", "last-prompt",
    "marble-origami-commit", "marble-origami-snapshot", "mode", "permission-mode", "pr-link", "queue-operation",
    "relocated", "result", "speculation-accept", "started", "summary", "tag", "task-summary", "tools-used",
    "worktree-state",
})  # fmt: skip
"""Lines outside the tree. Some have fields of the session; the others are only kept."""
_RAW_MARKERS = (b'"sessionId"', b'"type"', b'"uuid"', b'"isSidechain"')
_MISSING = object()


class ClaudeCodeSource:
    """The transcripts of Claude Code and of the Claude Agent SDK."""

    name = NAME
    label = "Claude Code"
    copies_past = True
    """Until 2.1.300, `--fork-session` wrote the past of a fork into its file with the same ids and no pointer."""

    def discover(self, environment: Environment) -> Sequence[Path]:
        """Return the folders of projects: of CLAUDE_CONFIG_DIR, or the usual one and the one of version 1.0.30."""
        if environment.variables.get("CLAUDE_CONFIG_DIR"):
            return [environment.path("CLAUDE_CONFIG_DIR", environment.home) / "projects"]
        return [environment.home / ".claude" / "projects", environment.config_home / "claude" / "projects"]

    def detect(self, tree: FileTree, names: Iterable[str]) -> Iterator[Transcript]:
        """Return the files whose first lines are those of Claude Code."""
        names = list(names)
        outputs: dict[str, list[str]] = {}
        for name in names:
            folder, _, path = name.rpartition(f"/{content.OUTPUT_FOLDER}/")
            if folder and "/" not in path:
                outputs.setdefault(folder, []).append(name)
        for name in names:
            if name.endswith(".meta.json") or f"/{content.OUTPUT_FOLDER}/" in name:
                continue
            head = tree.head(name)
            if is_transcript(head):
                sidecar = _sidecar(name)
                files = [sidecar] if sidecar and has_file(tree, sidecar) else []
                yield Transcript(NAME, name, "lines", (*files, *outputs.get(name.removesuffix(".jsonl"), ())))
            elif is_prompt_history(head):
                yield Transcript(NAME, name, "document")

    def read(
        self,
        tree: FileTree,  # noqa: ARG002  part of the interface
        transcript: Transcript,
        select: Select = select_all,  # noqa: ARG002
    ) -> Iterator[SourceEvent]:
        """Report the only document, the history of prompts."""
        yield Note("skipped", transcript.name, "The history of prompts has no conversations; transcripts hold them.")

    def read_lines(self, tree: FileTree, transcript: Transcript, state: dict[str, Any] | None) -> LineReader:
        """Return the reader of a transcript."""
        return ClaudeCodeReader(tree, transcript.name, state)


def is_transcript(head: bytes) -> bool:
    """Return whether a file that begins so is a transcript."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    lines = head.split(b"\n")[:_HEAD_LINES]
    parsed = False
    for raw in lines:
        if not raw.lstrip().startswith(b"{"):
            if raw.strip():
                return False
            continue
        try:
            line = decode(raw)
        except (ValueError, RecursionError):
            continue
        parsed = True
        if _is_own_line(line):
            return True
    return not parsed and all(marker in head for marker in _RAW_MARKERS)  # the first line is longer than the head


def is_prompt_history(head: bytes) -> bool:
    """Return whether a file that begins so is `history.jsonl`, which has only the prompts of all conversations."""
    try:
        line = as_dict(decode(head.partition(b"\n")[0]))
    except (ValueError, RecursionError):
        return False
    return type(line.get("display")) is str and {"pastedContents", "project", "timestamp"} <= line.keys()


def _is_own_line(line: Any) -> bool:
    """Return whether a line has the fields that only Claude Code writes together."""
    if type(line) is not dict or type(line.get("type")) is not str:
        return False
    kind, session = line["type"], line.get("sessionId")
    if kind in _CHAIN_TYPES and type(line.get("uuid")) is str and type(session) is str:
        message = as_dict(line.get("message"))
        return "parts" not in message and ("isSidechain" in line or "content" in message)
    if kind == "summary":
        return type(line.get("summary")) is str and "leafUuid" in line
    if kind == "file-history-snapshot":
        return "snapshot" in line
    return kind in _OTHER_TYPES and type(session) is str and kind not in ("result", "started", "mode")


def _sidecar(name: str) -> str | None:
    """Return the name of the file that describes a sub-agent."""
    path = PurePosixPath(name)
    return str(path.with_suffix(".meta.json")) if _AGENT_FILE.fullmatch(path.stem) else None


def has_file(tree: FileTree, name: str) -> bool:
    """Return whether a tree has a file: not one behind a link, or next to a single file that the user named."""
    path = tree.local_path(name)
    if path is not None and path.resolve() != tree.path.resolve() / name:
        return False
    try:
        tree.stamp(name)
    except UnreadableFile:
        return False
    return True


class _Line(NamedTuple):
    """A line of the tree with its place."""

    number: int
    fields: dict[str, Any]
    uuid: str | None
    key: str
    conversation: ClaudeCodeConversation
    parent: str | None
    time: int | None


class ClaudeCodeReader:
    """Reads one transcript. See LineReader."""

    def __init__(
        self,
        tree: FileTree,
        name: str,
        state: dict[str, Any] | None,
        *,
        session: str | None = None,
        parent: str | None = None,
    ) -> None:
        """Read from the beginning, or on from a state.

        A caller that knows the id of the session, and that of the conversation which started it, passes both.
        """
        self._tree, self._name = tree, name
        self._is_continued = state is not None
        self._events: list[SourceEvent] = []
        path = tree.local_path(name)
        self._parts = path.parts if path is not None else PurePosixPath(name).parts
        self._stem = PurePosixPath(self._parts[-1]).name.removesuffix(".zst").removesuffix(".jsonl")
        agent = _AGENT_FILE.fullmatch(self._stem)
        self._agent = None if agent is None else as_id(agent[1])
        if state is None:
            self._state, self._index = ClaudeCodeState(), UuidIndex()
            if session is None:
                self._identify_by_name()
            else:
                self._open_file(session, parent)
        else:
            self._state, self._index = ClaudeCodeState.restore(state)

    @property
    def session(self) -> str | None:
        """The session id of the conversation to which the file belongs; None before its first message.

        Claude Code leaves files with nothing but settings behind, which are not conversations.
        """
        has_messages = any(conversation.started for conversation in self._state.conversations)
        return self._state.session if has_messages else None

    def state(self) -> dict[str, Any]:
        """Return what a reader needs to read on."""
        return self._state.store(self._index)

    def read_line(self, number: int, line: Any) -> Iterable[SourceEvent]:
        """Return the events of a line."""
        self._events = []
        if type(line) is not dict:
            self._note("malformed", number, "A line is not a JSON object.")
            return self._events
        kind = line["type"] if type(line.get("type")) is str else ""
        if kind in _OLD_TOOL_TYPES:
            line = self._convert_tool_line(number, line)
            kind = line["type"]
        self._identify(line, kind in _CHAIN_TYPES)
        if kind in _CHAIN_TYPES:
            self._read_tree_line(number, line, kind)
        elif kind in _OTHER_TYPES:
            self._read_setting(line, kind)
        else:
            self._note("unknown", number, f"A line has the unknown type {content.quote(kind)}.")
            self._read_unknown(number, line)
        for conversation in self._state.conversations:
            if conversation.started and conversation.changes:
                self._events.append(conversation.take_changes())
        return self._events

    def finish(self) -> Iterable[SourceEvent]:
        """Return the times and the tips of the conversations that got lines."""
        events: list[SourceEvent] = []
        for conversation in self._state.conversations:
            if not conversation.started or not conversation.has_news:
                continue
            conversation.has_news = False
            if conversation.updated_at is not None:
                events.append(SessionFound(conversation.id, updated_at=conversation.updated_at))
            if conversation.tip is not None:
                events.append(ActiveFound(conversation.id, conversation.tip))
        return events

    def _note(self, kind: Any, number: int, text: str) -> None:
        self._events.append(Note(kind, f"{self._name}:{number}", text))

    # The sessions of the file

    def _identify_by_name(self) -> None:
        """Set the session if the name of the file tells it."""
        if self._agent is None:
            if _UUID.fullmatch(self._stem):
                self._open_file(f"{NAME}:{self._stem}", None)
            return
        if "subagents" in self._parts[:-1]:
            index = len(self._parts) - 1 - self._parts[::-1].index("subagents")
            owner = as_id(self._parts[index - 1]) if index else None
            if owner is not None:
                self._open_file(f"{NAME}:{owner}:agent:{self._agent}", f"{NAME}:{owner}")

    def _identify(self, line: dict[str, Any], in_tree: bool) -> None:
        """Set the session if it is not known and this line tells it."""
        if self._state.session is not None:
            return
        owner = as_id(line.get("sessionId")) or as_id(line.get("session_id"))
        if owner is None and not in_tree:
            return
        agent = self._agent
        if agent is None and line.get("isSidechain") is True:
            agent = as_id(line.get("agentId"))  # a file of a sub-agent that was renamed
        self._agent = agent
        if agent is None:
            self._open_file(f"{NAME}:{owner or as_id(self._stem) or 'transcript'}", None)
        elif owner is None or owner == f"agent-{agent}":
            self._open_file(f"{NAME}:agent-{agent}", None)
        else:
            self._open_file(f"{NAME}:{owner}:agent:{agent}", f"{NAME}:{owner}")

    def _open_file(self, session: str, parent: str | None) -> None:
        self._state.session = session
        conversation = self._open_conversation(session, parent)
        if self._agent is not None:
            self._state.whole_file = True
            sidecar = _sidecar(self._name)
            details = _read_sidecar(self._tree, sidecar) if sidecar and has_file(self._tree, sidecar) else {}
            conversation.describe_agent(details, self._agent)

    def _open_conversation(self, session: str, parent: str | None) -> ClaudeCodeConversation:
        conversation = ClaudeCodeConversation(session)
        if parent is not None:
            conversation.changes["parent"] = parent
        self._state.conversations.append(conversation)
        return conversation

    # Lines of the tree

    def _read_tree_line(self, number: int, fields: dict[str, Any], kind: str) -> None:
        """Read a line with a place in the tree."""
        if self._repeats(number, fields):
            return
        line = self._locate(number, fields, is_message=kind in ("user", "assistant"))
        line.conversation.see(fields, line.time)
        self._match_summary(line)
        if kind == "assistant":
            self._read_answer(line)
        elif kind == "user":
            self._read_user(line)
        elif kind == "attachment":
            self._read_attachment(line)
        elif kind == "system" and fields.get("subtype") == "compact_boundary":
            self._read_boundary(line)
        elif kind == "system" and fields.get("subtype") == "local_command":
            self._read_command_output(line)
        else:
            self._skip(line)

    def _convert_tool_line(self, number: int, line: dict[str, Any]) -> dict[str, Any]:
        """Return the line of a call or a result of an early version as that of a message with one block.

        A result without the id of its call belongs to the latest open call of its tool.
        """
        own_id, name = as_id(line.get("uuid")) or f"line-{number}", as_text(line.get("name"), _MAX_TOOL_NAME) or ""
        call = next((id for key in ("tool_use_id", "toolUseID", "id") if (id := as_id(line.get(key)))), None)
        calls = self._state.open_calls
        if line["type"] == "tool_use":
            calls.append((call or own_id, name))
            del calls[:-_MAX_OPEN_CALLS]
            return content.call_line(line, call or own_id, name)
        matches = [open_call for open_call in calls if call == open_call[0] or (call is None and name == open_call[1])]
        if matches:
            calls.remove(matches[-1])
        elif call is None:
            if self._is_continued:
                raise ReadFromStart
            self._note("missing", number, "The call of a result is not in the file.")
        return content.result_line(line, call or (matches[-1][0] if matches else own_id))

    def _repeats(self, number: int, fields: dict[str, Any]) -> bool:
        """Return whether a line repeats an earlier one. One with the same id and other content is another message."""
        uuid = as_id(fields.get("uuid"))
        if uuid is None or self._index.find(uuid) is None:
            return False
        if self._is_continued:
            raise ReadFromStart  # the state has no digests
        is_equal = self._index.digest_of(uuid) == digest_content(fields)
        self._note("skipped" if is_equal else "malformed", number, "A line repeats the id of an earlier line.")
        return is_equal

    def _read_unknown(self, number: int, line: dict[str, Any]) -> None:
        """Remember the place of a line of unknown type: it may have children."""
        uuid = as_id(line.get("uuid"))
        if uuid is not None and self._state.session is not None and self._index.find(uuid) is None:
            self._skip(self._locate(number, line, is_message=False))

    def _locate(self, number: int, fields: dict[str, Any], *, is_message: bool) -> _Line:
        """Return a line with its conversation and the key of the message that it follows."""
        uuid = as_id(fields.get("uuid"))
        origin = as_dict(fields.get("forkedFrom"))
        number_key = f"line-{digest(self._state.session or '')}-{number}"
        key = number_key if uuid is None else as_id(origin.get("messageUuid")) or uuid
        if self._index.find(key) is not None:
            key = number_key
        if uuid is not None and self._index.find(uuid) is not None:
            uuid = None  # the id names the earlier line
        link = fields.get("parentUuid", _MISSING)
        place = None
        if link is not None and link is not _MISSING:
            parent_uuid = as_id(link)
            place = None if parent_uuid is None else self._index.find(parent_uuid)
            if place is None:
                if self._is_continued:
                    raise ReadFromStart
                self._note("missing", number, "The parent of a line is not in the file.")
        conversation = self._conversation_of(fields, place, key)
        is_root = link is None or link is _MISSING
        if self._is_continued and is_message and uuid is not None and is_root and conversation.tip is not None:
            raise ReadFromStart  # the line may repeat an earlier one
        if place is not None and self._state.conversations[place.conversation] is conversation:
            parent = place.key
        else:  # without a link, or with one to another conversation, it follows the last message
            parent = None if link is None else conversation.tip
        time = parse_time(fields.get("timestamp"))
        time = conversation.updated_at if time is None else time  # the line was written after the one before
        return _Line(number, fields, uuid, key, conversation, parent, time)

    def _conversation_of(self, fields: dict[str, Any], place: LinePlace | None, key: str) -> ClaudeCodeConversation:
        """Return the conversation of a line: that of the file, or of a sub-agent whose lines are in the same file."""
        state = self._state
        session = state.session
        assert session is not None
        if state.whole_file is None:  # a file that begins with lines of a sub-agent has only those
            state.whole_file = fields.get("isSidechain") is True and as_id(fields.get("agentId")) is None
        main = state.conversations[0]
        if fields.get("isSidechain") is not True or state.whole_file:
            return main
        agent = as_id(fields.get("agentId"))
        if agent is None and place is not None and place.conversation:
            return state.conversations[place.conversation]
        agent = agent or key
        id = f"{session}:agent:{agent}"
        for conversation in state.conversations:
            if conversation.id == id:
                return conversation
        if self._is_continued and (state.truncated or agent == key):
            raise ReadFromStart
        conversation = self._open_conversation(id, session)
        conversation.describe_agent({}, agent)
        return conversation

    def _skip(self, line: _Line) -> None:
        """Remember that children of this line follow the message before it."""
        self._register(line, line.parent)

    def _register(self, line: _Line, key: str | None) -> None:
        if line.uuid is not None:
            place = LinePlace(self._state.conversations.index(line.conversation), key)
            self._index.add(line.uuid, place, digest_content(line.fields))
            if key == line.key != line.uuid:
                self._index.add(line.key, place)

    def _emit(self, line: _Line, draft: Draft, parent: str | None) -> None:
        """Return a message, after the conversation if it is the first one."""
        conversation = line.conversation
        if not conversation.started:
            conversation.started = True
            self._events.append(conversation.take_changes())
            if not self._state.whole_file and conversation is self._state.conversations[0]:
                fork = _find_fork(self._tree, self._name, conversation.id)
                self._events += [] if fork is None else [ForkFound(conversation.id, *fork)]
        elif conversation.changes:
            self._events.append(conversation.take_changes())
        self._events.append(MessageFound(conversation.id, draft, parent))
        assert draft.key is not None
        self._index.set_parent(draft.key, parent)

    # Messages

    def _read_user(self, line: _Line) -> None:
        fields = line.fields
        if fields.get("isCompactSummary") is True and self._read_summary(line):
            return
        if fields.get("interruptedMessageId") is not None:
            self._interrupt(line)
        message = content.read_user(fields)
        if message is None:
            self._note("malformed", line.number, "A message has no content that can be read.")
            self._skip(line)
            return
        self._add_user(line, message)

    def _add_user(self, line: _Line, message: content.UserContent, *, joins_results: bool = False) -> None:
        """Add a message of the user, or results of tools: those of one response follow each other."""
        conversation = line.conversation
        parent = line.parent
        response = self._state.find_response(conversation, parent)
        if response is not None:
            if message.answers or joins_results:
                parent = response.add_follower(line.key, message.answers, parent)
            else:
                parent = response.tail
        draft = message.draft.replace(key=line.key, created_at=line.time)
        for output in message.outputs:
            text = self._read_output(output)
            if text is None:
                self._note("missing", line.number, "The file with the full output of a tool cannot be read.")
            else:
                draft = content.with_output(draft, output, text)
        if message.question:
            conversation.set_title(message.question, 1)
        self._emit(line, draft, parent)
        self._register(line, line.key)
        conversation.tip = line.key

    def _read_output(self, output: content.SeparateOutput) -> str | None:
        """Return the full output of a tool; None if the tree has no such file, or if it is too large or no text."""
        path = PurePosixPath(self._name)
        folders = path.parts[:-1]
        if "subagents" in folders:  # <project>/<session>/subagents/…
            folders = folders[: max(folders.index("subagents") - 1, 0)]
        name = "/".join((*folders, output.path))
        try:
            if has_file(self._tree, name):
                return self._tree.read(name, _MAX_OUTPUT).decode()
        except (UnreadableFile, UnicodeDecodeError):
            pass
        return None

    def _read_command_output(self, line: _Line) -> None:
        """Read the output of a command of the user. Until version 2.1, it was a line of type user."""
        message = content.read_command_output(line.fields)
        if message is None:
            self._skip(line)
        else:
            self._add_user(line, message)

    def _read_attachment(self, line: _Line) -> None:
        """Read a prompt that the user typed while the model worked, or a file that the user named."""
        attachment = as_dict(line.fields.get("attachment"))
        if attachment.get("type") == "prompt_snapshot" and line.conversation.started:
            line.conversation.set_system_prompt(attachment.get("systemPrompt"))
        message = content.read_attachment(attachment)
        if message is None:
            self._skip(line)
        else:
            self._add_user(line, message, joins_results=True)

    def _read_answer(self, line: _Line) -> None:
        """Read a line of a response: the first one, or one that continues it."""
        message = as_dict(line.fields.get("message"))
        answer = content.read_answer(line.fields, line.uuid or line.key)
        if answer is None:
            self._note("malformed", line.number, "A message has no content that can be read.")
            self._skip(line)
            return
        conversation = line.conversation
        id = as_id(message.get("id"))
        response = self._state.find_continued(conversation, id, line.parent)
        if response is None:
            previous = self._state.find_response(conversation, line.parent)
            parent = line.parent if previous is None else previous.tail
            response = ClaudeCodeResponse(self._state.conversations.index(conversation), id, line.key, parent)
            self._state.add_response(response)
        elif response.lines is None:
            raise ReadFromStart
        response.add_line(answer, line.time)
        if response.model is not None:
            conversation.set_model(response.model)
        self._emit(line, response.to_draft(), response.parent)
        self._register(line, response.key)
        if response.line_count == 1 or conversation.tip in (response.key, *response.followers):
            conversation.tip = response.tail  # a late line of an earlier response does not end the conversation

    def _interrupt(self, line: _Line) -> None:
        """Mark the response that the user interrupted."""
        uuid = as_id(line.fields.get("interruptedMessageId"))
        place = None if uuid is None else self._index.find(uuid)
        if place is None:
            if uuid is not None and self._is_continued:
                raise ReadFromStart
            return
        response = self._state.find_response(self._state.conversations[place.conversation], place.key)
        if response is None or response.key != place.key or line.conversation is not self._state.owner(response):
            return
        if response.lines is None:
            raise ReadFromStart
        if response.state == "completed":
            response.state = "interrupted"
            self._emit(line, response.to_draft(), response.parent)

    # Compactions

    def _read_boundary(self, line: _Line) -> None:
        """Read the line between the messages before a compaction and its summary."""
        conversation = line.conversation
        logical = as_id(line.fields.get("logicalParentUuid"))
        parent = conversation.tip
        if logical is not None and (place := self._find_or_restart(logical, conversation)) is not None:
            parent = place.key
        elif line.parent is not None:
            parent = line.parent
        last = parent
        head = content.first_preserved(as_dict(line.fields.get("compactMetadata")))
        if head is not None and (place := self._find_or_restart(head, conversation)) is not None and place.key:
            last = self._index.parent_of(place.key) or parent
        conversation.boundary = (last, line.time)
        self._register(line, parent)

    def _find_or_restart(self, uuid: str, conversation: ClaudeCodeConversation) -> LinePlace | None:
        """Return the place of a line of this conversation; None if the file has none."""
        place = self._index.find(uuid)
        if place is None and self._is_continued:
            raise ReadFromStart
        if place is None or self._state.conversations[place.conversation] is not conversation:
            return None
        return place

    def _read_summary(self, line: _Line) -> bool:
        """Read the summary of a compaction. Return False if there is nothing that it summarizes."""
        conversation = line.conversation
        parent = conversation.tip if line.parent is None else line.parent
        last, time = conversation.boundary or (parent, line.time)
        summary = content.plain_text(as_dict(line.fields.get("message")).get("content"))
        conversation.boundary = None
        if last is None or not summary.strip():
            return False
        self._events.append(CompactionFound(conversation.id, last, summary, time or line.time))
        self._register(line, parent)
        return True

    # Lines outside the tree

    def _read_setting(self, line: dict[str, Any], kind: str) -> None:
        """Read a title, a label or another field of the session."""
        if kind == "summary":
            self._read_title_of_leaf(line)
            return
        if self._state.session is None:
            return
        main = self._state.conversations[0]
        match kind:
            case "custom-title":
                main.set_title(line.get("customTitle"), 3)
            case "ai-title":
                main.set_title(line.get("aiTitle"), 2)
            case "tag":
                main.set_label(line.get("tag"))
            case "agent_metadata" if self._agent is not None:  # the file that describes a sub-agent, as an entry
                main.describe_agent(line, self._agent)
            case "agent-name":
                main.set_metadata("agent_name", as_text(line.get("agentName")))
            case "pr-link":
                main.set_metadata("pull_request", as_text(line.get("prUrl")))
            case "worktree-state":
                main.set_metadata("worktree", as_text(as_dict(line.get("worktreeSession")).get("worktreePath")))
            case _:
                return

    def _read_title_of_leaf(self, line: dict[str, Any]) -> None:
        """Read a title that names the last message of its conversation, which may be in another file."""
        title, leaf = as_text(line.get("summary")), as_id(line.get("leafUuid"))
        if title is None or leaf is None:
            return
        place = self._index.find(leaf)
        if place is not None:
            self._state.conversations[place.conversation].set_title(title, 2)
        elif self._is_continued:
            raise ReadFromStart
        else:
            summaries = self._state.summaries
            summaries[leaf] = title
            if len(summaries) > _MAX_SUMMARIES:
                del summaries[next(iter(summaries))]

    def _match_summary(self, line: _Line) -> None:
        if line.uuid is not None and line.uuid in self._state.summaries:
            line.conversation.set_title(self._state.summaries.pop(line.uuid), 2)


def _read_sidecar(tree: FileTree, name: str) -> dict[str, Any]:
    """Return what the tool noted about a sub-agent."""
    try:
        return as_dict(decode(tree.read(name, _MAX_SIDECAR)))
    except (UnreadableFile, ValueError, RecursionError):
        return {}


def _find_fork(tree: FileTree, name: str, session: str) -> tuple[str, str] | None:
    """Return the session whose beginning a file repeats, and the key of the last message that names it.

    `--fork-session` copies lines unchanged. Since 2.1.300, a copied answer names the session that asked for it
    (`requestSessionId`); `fork_session()` of the Agent SDK marks every copied line (`forkedFrom`). Copied lines come
    first, so a file without them is read only up to its first answer.
    """
    fork: tuple[str, str] | None = None
    keys: dict[str, str] = {}
    try:
        with closing(tree.open(name)) as file:
            while raw := file.readline(_MAX_LINE):
                if b'"assistant"' not in raw and b'"forkedFrom"' not in raw:
                    continue
                line = _decode_line(raw)
                pointer = _fork_pointer(line)
                if pointer is not None and pointer[0] != session and as_id(line.get("uuid")):
                    id = as_id(as_dict(line.get("message")).get("id"))
                    fork = pointer if id is None else (pointer[0], keys.setdefault(id, pointer[1]))
                elif line.get("type") == "assistant" and not content.is_synthetic(line):
                    break
    except UnreadableFile:
        return None
    return fork


def _decode_line(raw: bytes) -> Mapping[str, Any]:
    try:
        return as_dict(decode(raw))
    except (ValueError, RecursionError):
        return {}


def _fork_pointer(line: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the session from which a message was copied, and its key there."""
    if line.get("type") not in ("user", "assistant") or line.get("isCompactSummary") is True:
        return None
    origin = as_dict(line.get("forkedFrom"))
    session, key = as_id(origin.get("sessionId")), as_id(origin.get("messageUuid"))
    if session is None or key is None:
        session, key = as_id(line.get("requestSessionId")), as_id(line.get("uuid"))
    return None if session is None or key is None else (f"{NAME}:{session}", key)


SOURCE = ClaudeCodeSource()
