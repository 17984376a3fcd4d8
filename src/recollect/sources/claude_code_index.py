"""What a reader of Claude Code's transcripts remembers: conversations, responses, and the place of each line.

In memory, every line that was read has an entry of about 100 bytes. The state that is stored between two reads has only
the latest entries: a line that refers to an older one raises ReadFromStart.
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import msgspec

from recollect.model.message import Draft, Part, TextPart
from recollect.sources.claude_code_content import (
    FORMAT,
    AnswerLine,
    as_dict,
    as_id,
    as_list,
    as_text,
    as_title,
    digest,
    read_blocks,
    with_time,
)
from recollect.sources.source import ReadFromStart, SessionFound

_VERSION = 1  # of the state; a state of another version is not read
_RECENT_LINES = 96  # 40 bytes each in the state. A turn with a dozen tool calls writes about 50 lines.
_RECENT_PARENTS = 32  # of messages that a compaction may preserve; it preserves about ten
_RESPONSES = 3  # of a conversation: the one that is being written, and those whose results may still come
_STATE_RESPONSES = 8  # 300 bytes each; with _RESPONSES, those of two or three conversations
_STATE_CONVERSATIONS = 8  # 300 bytes each; about as many sub-agents run at once
_STATE_BLOCKS = 4_096  # bytes of the content of an unfinished response
_MAX_FOLLOWERS = 512  # messages that follow one response directly; models call up to about 50 tools at once
_STATE_FOLLOWERS = 40  # 50 bytes each in the state
_MAX_LINES = 256  # of a response: each line stores it again. Real ones have up to about 60.
_MAX_SIZE = 8 << 20  # bytes of a response that is still extended
_NO_KEY = ""
_DIGEST_BITS = 20  # of the content of a line, in one integer with its number: 32 bytes each
_DIGEST_MASK = (1 << _DIGEST_BITS) - 1  # the bits of the digest

State = Literal["completed", "interrupted", "error"]


class LinePlace(NamedTuple):
    """The place of a line: its conversation, and the message that its children follow (None: they are first)."""

    conversation: int
    key: str | None


class ClaudeCodeConversation:
    """The session of a file, or of a sub-agent whose lines are in the same file."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.started = False
        """Whether a message was found: a file without messages is not a session."""
        self.has_news = False
        self.changes: dict[str, Any] = {}
        """Fields that were not returned yet."""
        self.fields: dict[str, Any] = {}
        """The last value of the fields that may be found again."""
        self.tip: str | None = None
        self.updated_at: int | None = None
        self.boundary: tuple[str | None, int | None] | None = None
        """The last summarized message and the time of a compaction whose summary is the next line."""

    def _change(self, name: str, value: Any) -> None:
        if value is not None and self.fields.get(name) != value:
            self.fields[name] = self.changes[name] = value

    def see(self, line: dict[str, Any], time: int | None) -> None:
        """Read the fields that every line of the tree has."""
        self.has_news = True
        if time is not None:
            if "created_at" not in self.fields:
                self._change("created_at", time)
            self.updated_at = time if self.updated_at is None else max(self.updated_at, time)
        if "working_dir" not in self.fields:
            self._change("working_dir", as_text(line.get("cwd")))
        branch = line.get("gitBranch")
        self.set_metadata("git_branch", None if branch == "HEAD" else as_text(branch))
        self.set_metadata("version", as_text(line.get("version")))

    def describe_agent(self, details: dict[str, Any], agent: str | None) -> None:
        """Set the fields of a sub-agent."""
        self.set_metadata("agent_id", agent)
        self.set_metadata("agent_type", as_text(details.get("agentType")))
        self.set_metadata("tool_call_id", as_id(details.get("toolUseId")))
        self.set_title(details.get("description"), 2)

    def set_title(self, title: Any, rank: int) -> None:
        """Set a title, unless there is a better one."""
        text = as_title(title)
        previous_rank = self.fields.get("title_rank", 0)
        if text is None or rank < previous_rank or (rank == previous_rank == 1):
            return
        if (text, rank) != (self.fields.get("title"), previous_rank):
            self.fields.update(title=text, title_rank=rank)
            self.changes.update(title=text, title_rank=rank)

    def set_label(self, label: Any) -> None:
        """Set the label; an empty one removes it."""
        text = as_text(label)
        if type(label) is str and self.fields.get("label") != text:
            self.fields["label"] = text
            self.changes["labels"] = () if text is None else (text,)

    def set_model(self, model: str) -> None:
        """Set the model of the latest response."""
        self._change("model", model)
        self._change("provider", "anthropic")

    def set_metadata(self, name: str, value: Any) -> None:
        """Set a fact without a field of its own."""
        if value is not None and self.fields.get(name) != value:
            self.fields[name] = value
            self.changes.setdefault("metadata", {})[name] = value

    def set_system_prompt(self, texts: Any) -> None:
        """Set the system prompt, of which only a digest is remembered."""
        prompt = "\n\n".join([text for text in as_list(texts) if type(text) is str])
        prompt = prompt.replace("\0", "").encode("utf-8", "replace").decode().strip()
        if prompt and self.fields.get("prompt_digest") != digest(prompt):
            self.fields["prompt_digest"] = digest(prompt)
            self.changes["system_prompt"] = prompt

    def take_changes(self) -> SessionFound:
        """Return the fields that changed."""
        changes, self.changes = self.changes, {}
        if "labels" in changes:
            changes["labels"] = tuple(changes["labels"])  # a list, if it was in a stored state
        return SessionFound(self.id, **changes)


class ClaudeCodeResponse:
    """A response of the model, and the messages that follow it directly.

    Tools may run in parallel, and each result names the line of its call as its parent. The results form one path: each
    follows the one before it. A second result of the same call begins another path.
    """

    def __init__(self, conversation: int, id: str | None, key: str, parent: str | None) -> None:
        self.conversation, self.id, self.key, self.parent = conversation, id, key, parent
        self.lines: list[Any] | None = []
        """The blocks that were read, each with the time of its line; None if the state did not hold them."""
        self.parts: list[Part] = []
        self.line_count = self.size = 0
        self.is_text = False
        self.model: str | None = None
        self.usage: dict[str, int] = {}
        self.stop_reason: str | None = None
        self.state: State = "completed"
        self.error: dict[str, Any] | None = None
        self.created_at: int | None = None
        self.followers: list[str] = []
        self.answered: list[str] = []

    @property
    def tail(self) -> str:
        """The key of the message that the next one follows."""
        return self.followers[-1] if self.followers else self.key

    @property
    def is_full(self) -> bool:
        """Whether further lines with the same id become another message."""
        return self.line_count >= _MAX_LINES or self.size > _MAX_SIZE

    def add_follower(self, key: str, answers: Sequence[str], parent: str | None) -> str | None:
        """Add a message that follows directly. Return the key of its parent."""
        if any(answer in self.answered for answer in answers):
            self.followers, self.answered = [], []
        else:
            parent = self.tail
        self.followers.append(key)
        self.answered += answers
        return parent

    def add_line(self, line: AnswerLine, time: int | None) -> None:
        """Add the blocks of a line. A block that is repeated replaces the earlier one."""
        assert self.lines is not None
        self.is_text = line.is_text and not self.lines
        if not self.line_count:
            self.created_at = time
        self.line_count += 1
        later = time if time != self.created_at else None
        for block, part in zip(line.blocks, with_time(line.parts, later), strict=True):
            index = self._index_of(block)
            if index is None:
                self.lines.append([block, later])
                self.parts.append(part)
            else:
                self.lines[index], self.parts[index] = [block, later], part
        self.size += _size(line.blocks)
        self.model = line.model or self.model
        self.stop_reason = line.stop_reason or self.stop_reason
        if line.usage.get("output_tokens", 0) >= self.usage.get("output_tokens", 0):
            self.usage = line.usage or self.usage
        if line.state != "completed":
            self.state, self.error = cast("State", line.state), line.error

    def _index_of(self, block: Any) -> int | None:
        assert self.lines is not None
        id = as_dict(block).get("id") if as_dict(block).get("type") == "tool_use" else None
        for index, (earlier, _) in enumerate(self.lines):
            if earlier == block or (id is not None and as_dict(earlier).get("id") == id):
                return index
        return None

    def to_draft(self) -> Draft:
        """Return the message with all blocks that were read."""
        parts = tuple(self.parts)
        metadata: dict[str, Any] = {}
        if self.usage:
            metadata["usage"] = self.usage
        if self.stop_reason is not None:
            metadata["stop_reason"] = self.stop_reason
        output = self.usage.get("output_tokens")
        counts = [count for name, count in self.usage.items() if name != "output_tokens"]
        is_single_text = len(parts) == 1 and type(parts[0]) is TextPart and parts[0].native is None
        return Draft(
            role="assistant",
            parts=parts,
            format=FORMAT,
            native={"content": "blocks"} if is_single_text and not self.is_text else None,
            model=self.model,
            tokens=output,
            input_tokens=sum(counts) if counts and sum(counts) < 1 << 53 else None,
            output_tokens=output,
            state=self.state,
            error=self.error,
            metadata=metadata or None,
            created_at=self.created_at,
            key=self.key,
        )


_RESPONSE_FIELDS = (
    "conversation", "id", "key", "parent", "line_count", "size", "is_text", "model", "usage", "stop_reason", "state",
    "error", "created_at", "followers", "answered",
)  # fmt: skip
_CONVERSATION_FIELDS = ("id", "started", "has_news", "changes", "fields", "tip", "updated_at", "boundary")


class UuidIndex:
    """The place of each line by its uuid. A collision of two of the digests in memory is as likely as one of uuids."""

    def __init__(self) -> None:
        self._entries: dict[int, int] = {}
        self._conversations = array("L")
        self._keys: list[str | None] = []
        self._recent: dict[str, LinePlace] = {}
        self._parents: dict[str, str | None] = {}

    def find(self, uuid: str) -> LinePlace | None:
        """Return the place of a line; None if it was not read."""
        entry = self._entries.get(_digest(uuid))
        if entry is None:
            return None
        number = entry >> _DIGEST_BITS
        if not number:  # a message whose key is its uuid, in the conversation of the file
            return LinePlace(0, uuid)
        return LinePlace(self._conversations[number - 1], self._keys[number - 1])

    def digest_of(self, uuid: str) -> int:
        """Return the digest of the content of a line that was read."""
        return self._entries.get(_digest(uuid), 0) & _DIGEST_MASK

    def add(self, uuid: str, place: LinePlace, content: int = 0) -> None:
        """Remember the place of a line and the digest of its content."""
        self._recent[uuid] = place
        if len(self._recent) > _RECENT_LINES:
            del self._recent[next(iter(self._recent))]
        if place == (0, uuid):
            self._entries[_digest(uuid)] = content
            return
        if not self._keys or self._keys[-1] != place.key or self._conversations[-1] != place.conversation:
            self._keys.append(place.key)
            self._conversations.append(place.conversation)
        self._entries[_digest(uuid)] = len(self._keys) << _DIGEST_BITS | content

    def parent_of(self, key: str) -> str | None:
        """Return the parent of a recent message; None if it has none or is older."""
        return self._parents.get(key)

    def set_parent(self, key: str, parent: str | None) -> None:
        """Remember the parent of a message."""
        if key not in self._parents:
            self._parents[key] = parent
            if len(self._parents) > _RECENT_PARENTS:
                del self._parents[next(iter(self._parents))]

    def store(self, conversations: Sequence[int]) -> dict[str, Any]:
        """Return the latest entries, of the conversations with these numbers."""
        numbers = {number: index for index, number in enumerate(conversations)}
        groups: list[list[Any]] = []
        for uuid, place in self._recent.items():
            if place.conversation not in numbers:
                continue
            head = [numbers[place.conversation], place.key]
            if not groups or groups[-1][:2] != head:
                groups.append([*head, []])
            groups[-1][2].append(_NO_KEY if uuid == place.key else uuid)
        parents: list[Any] = []
        previous: str | None = _NO_KEY
        for key, parent in self._parents.items():
            parents.append([key] if parent == previous else [key, parent])
            previous = key
        return {"lines": groups, "parents": parents}

    @classmethod
    def restore(cls, data: Any) -> UuidIndex:
        """Return an index with stored entries."""
        index = cls()
        for conversation, key, uuids in data["lines"]:
            for uuid in uuids:
                index.add(key if uuid == _NO_KEY else uuid, LinePlace(conversation, key))
        previous: str | None = None
        for key, *parent in data["parents"]:
            index.set_parent(key, parent[0] if parent else previous)
            previous = key
        return index


class ClaudeCodeState:
    """The conversations and the latest responses of a file."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.whole_file: bool | None = None
        """Whether all lines belong to the session of the file, also those of sub-agents; None before the first one."""
        self.conversations: list[ClaudeCodeConversation] = []
        self.truncated = False
        """Whether the state lacks conversations of the file."""
        self.summaries: dict[str, str] = {}
        self.open_calls: list[tuple[str, str]] = []
        """The ids and tools of calls of early versions that have no result yet."""
        self._responses: list[ClaudeCodeResponse] = []
        self._has_gaps = False

    def owner(self, response: ClaudeCodeResponse) -> ClaudeCodeConversation:
        """Return the conversation of a response."""
        return self.conversations[response.conversation]

    def add_response(self, response: ClaudeCodeResponse) -> None:
        """Add a response, and forget the oldest one of its conversation."""
        self._responses.append(response)
        same = [other for other in self._responses if other.conversation == response.conversation]
        if len(same) > _RESPONSES:
            self._responses.remove(same[0])

    def find_response(self, conversation: ClaudeCodeConversation, key: str | None) -> ClaudeCodeResponse | None:
        """Return the response that is the message with this key, or that the message follows directly."""
        if key is None:
            return None
        for response in reversed(self._responses):
            if (key == response.key or key in response.followers) and self.owner(response) is conversation:
                return response if len(response.followers) < _MAX_FOLLOWERS else None
        if self._has_gaps:
            raise ReadFromStart
        return None

    def find_continued(
        self, conversation: ClaudeCodeConversation, id: str | None, parent: str | None
    ) -> ClaudeCodeResponse | None:
        """Return the response that a line with this message id continues."""
        if id is None:
            return None
        for response in reversed(self._responses):
            if response.id == id and self.owner(response) is conversation and not response.is_full:
                return response if parent in (response.key, response.parent, *response.followers) else None
        if self._has_gaps:
            raise ReadFromStart
        return None

    def store(self, index: UuidIndex) -> dict[str, Any]:
        """Return the state as JSON data."""
        count = len(self.conversations)
        numbers = [0] if count else []
        numbers += range(max(1, count - _STATE_CONVERSATIONS + 1), count)
        candidates = [response for response in self._responses if response.conversation in numbers]
        responses = [response for response in candidates if len(response.followers) <= _STATE_FOLLOWERS]
        responses = responses[-_STATE_RESPONSES:]
        return {
            "version": _VERSION,
            "session": self.session,
            "whole_file": self.whole_file,
            "truncated": self.truncated or len(numbers) < count,
            "has_gaps": self._has_gaps or len(responses) < len(candidates),
            "summaries": dict(self.summaries),
            "open_calls": list(self.open_calls),
            "conversations": [_fields_of(self.conversations[number], _CONVERSATION_FIELDS) for number in numbers],
            "responses": [self._store_response(response, numbers) for response in responses],
            "index": index.store(numbers),
        }

    def _store_response(self, response: ClaudeCodeResponse, numbers: Sequence[int]) -> dict[str, Any]:
        fields = _fields_of(response, _RESPONSE_FIELDS)
        fields["conversation"] = numbers.index(response.conversation)
        is_latest = response is self._responses[-1]
        fits = is_latest and response.lines is not None and _size(response.lines) <= _STATE_BLOCKS
        fields["lines"] = response.lines if fits else None
        return fields

    @classmethod
    def restore(cls, data: dict[str, Any]) -> tuple[ClaudeCodeState, UuidIndex]:
        """Return the state and the index. Raise ReadFromStart if another version stored them."""
        if data.get("version") != _VERSION:
            raise ReadFromStart
        try:
            return cls._restore(data), UuidIndex.restore(data["index"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReadFromStart from error

    @classmethod
    def _restore(cls, data: dict[str, Any]) -> ClaudeCodeState:
        state = cls()
        state.session, state.whole_file = data["session"], data["whole_file"]
        state.truncated, state._has_gaps = data["truncated"], data["has_gaps"]
        state.summaries = dict(data["summaries"])
        state.open_calls = [(call, name) for call, name in data["open_calls"]]
        for fields in data["conversations"]:
            conversation = ClaudeCodeConversation(fields["id"])
            _set_fields(conversation, fields, _CONVERSATION_FIELDS)
            state.conversations.append(conversation)
        for fields in data["responses"]:
            response = ClaudeCodeResponse(fields["conversation"], fields["id"], fields["key"], fields["parent"])
            _set_fields(response, fields, _RESPONSE_FIELDS)
            response.lines = fields["lines"]
            for block, time in response.lines or ():
                response.parts += with_time(read_blocks([block]), time)
            state._responses.append(response)
        return state


def _fields_of(value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of an object as JSON data that shares nothing with it."""
    return msgspec.json.decode(msgspec.json.encode({name: getattr(value, name) for name in names}))


def _set_fields(value: Any, fields: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        setattr(value, name, fields[name])


def _size(value: Any) -> int:
    """Return the bytes of JSON data; those of a large value if it has an integer or a text that msgspec refuses."""
    try:
        return len(msgspec.json.encode(value))
    except (ValueError, OverflowError, RecursionError):
        return _STATE_BLOCKS + 1


def digest_content(line: dict[str, Any]) -> int:
    """Return a digest of the content of a line of the tree, to recognize one that was written twice."""
    content = line.get("message", line.get("attachment", line.get("content")))
    try:
        return zlib.crc32(msgspec.json.encode(content)) & _DIGEST_MASK
    except (ValueError, OverflowError, RecursionError):
        return 0


def _digest(uuid: str) -> int:
    return int.from_bytes(hashlib.blake2b(uuid.encode(), digest_size=8).digest(), "big")
