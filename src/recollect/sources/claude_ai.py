"""Claude.ai: the export that its settings offer, as one or several zip archives, a folder, or single files of it.

`conversations.json` holds an array of conversations with their messages in `chat_messages`. Newer exports name the
parent of each message, so that edited questions and repeated answers are branches. A message of the assistant holds all
steps of an answer, with the results of its tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from recollect import formats
from recollect.errors import InvalidValue
from recollect.model.message import (
    AttachmentPart,
    Content,
    DataPart,
    Draft,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.sources.documents import (
    ExportSource,
    first_question,
    json_head,
    media_type,
    order_tree,
    output_of,
)
from recollect.sources.files import FileTree
from recollect.sources.json_fields import (
    as_count,
    as_dict,
    as_flag,
    as_list,
    as_text,
    column_text,
    from_iso,
    message_events,
    message_key,
    pick,
    title_text,
)
from recollect.sources.source import (
    ActiveFound,
    Note,
    Select,
    SessionFound,
    SourceEvent,
    Transcript,
    select_all,
)

_NAME = "claude-ai"
_ROOT = "00000000-0000-4000-8000-000000000000"
"""The parent of the first message, which is not a message."""
_MESSAGES = re.compile(rb'"chat_messages"\s*:\s*\[')
_ROLES: dict[Any, Role] = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_API_FIELDS = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input"),
}
"""The fields of a block that the Messages API accepts. The export adds others, such as times."""
_KNOWN_TYPES = frozenset({*_API_FIELDS, "tool_result"})
_BLOCK_FACTS = (
    "citations", "start_timestamp", "stop_timestamp", "summaries", "cut_off", "truncated", "flags", "message",
    "integration_name", "context", "display_content", "structured_content", "approval_key", "meta",
)  # fmt: skip
_TIMES = {"start_timestamp": "started_at", "stop_timestamp": "completed_at"}


class ClaudeAiSource(ExportSource):
    """Reads exports of Claude.ai."""

    name = _NAME
    label = "Claude.ai"

    def detect(self, tree: FileTree, names: Iterable[str]) -> Iterator[Transcript]:
        """Return the files that begin like an array of conversations, or like a single one."""
        for name in names:
            head = json_head(tree, name)
            if _MESSAGES.search(head) and b'"uuid"' in head:
                yield Transcript(_NAME, name, "document")

    def find_id(self, conversation: dict[str, Any]) -> str | None:
        """Return the id of a conversation; None for an entry that is not one."""
        has_messages = type(conversation.get("chat_messages")) is list
        return as_text(conversation.get("uuid")) if has_messages else None

    def read(
        self,
        tree: FileTree,
        transcript: Transcript,
        select: Select = select_all,  # noqa: ARG002  part of the interface
    ) -> Iterator[SourceEvent]:
        """Read the conversations of a file, one at a time."""
        return self.read_entries(tree, transcript.name, _read_conversation)


def _read_conversation(conversation: dict[str, Any], session: str, place: str) -> Iterator[SourceEvent]:
    """Yield the events of a conversation, parents before children."""
    rows, problem = _rows_by_id(conversation["chat_messages"])
    reader = _MessageReader(place)
    drafts = {tool_id: reader.read(tool_id, row) for tool_id, row in rows.items()}
    yield _session_found(conversation, session, list(drafts.values()))
    if problem is not None:
        yield Note("malformed", place, problem)
    yield from reader.notes
    for node in order_tree(_parents(rows)):
        parent = drafts[node.parent].key if node.parent is not None else None
        yield from message_events(session, drafts[node.id], parent, place)
    leaf = as_text(conversation.get("current_leaf_message_uuid"))
    last = leaf if leaf in drafts else next(reversed(drafts), None)
    if last is not None and (key := drafts[last].key) is not None:
        yield ActiveFound(session, key)


def _rows_by_id(messages: list[Any]) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the messages by id, and what is wrong with some of them. A message without an id gets its number."""
    rows: dict[str, dict[str, Any]] = {}
    problem: str | None = None
    for index, row in enumerate(messages):
        if type(row) is not dict:
            problem = "A message is not an object."
            continue
        tool_id = as_text(row.get("uuid")) or f"message-{index}"
        if tool_id in rows:
            problem = "Two messages have the same id."
            tool_id = f"{tool_id}:{index}"
        rows[tool_id] = row
    return rows, problem


def _parents(rows: Mapping[str, dict[str, Any]]) -> dict[str, str | None]:
    """Return the parent of each message: as the export names it, or the message before it if it names none."""
    is_tree = any(as_text(row.get("parent_message_uuid")) for row in rows.values())
    parents: dict[str, str | None] = {}
    previous: str | None = None
    for tool_id, row in rows.items():
        parent = as_text(row.get("parent_message_uuid"))
        parents[tool_id] = previous if parent is None else parent
        if parent == _ROOT or (is_tree and parent is not None and parent not in rows):
            parents[tool_id] = None
        previous = tool_id
    return parents


def _session_found(conversation: dict[str, Any], session: str, drafts: list[Draft]) -> SessionFound:
    title = title_text(conversation.get("name"))
    metadata = pick(conversation, "summary", "settings", "platform", "project_uuid", "is_temporary")
    project = pick(as_dict(conversation.get("project")), "uuid", "name")
    if project:
        metadata["project"] = project
    return SessionFound(
        session,
        title=title or first_question(drafts),
        title_rank=2 if title else 1,
        created_at=from_iso(conversation.get("created_at")),
        updated_at=from_iso(conversation.get("updated_at")),
        model=column_text(conversation.get("model")),
        provider="anthropic",
        archived=as_flag(conversation.get("is_archived")),
        pinned=as_flag(conversation.get("is_starred")),
        metadata=metadata or None,
    )


class _MessageReader:
    """Reads the messages of one conversation."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.notes: list[Note] = []

    def read(self, tool_id: str, row: dict[str, Any]) -> Draft:
        """Return a message as a draft."""
        key = message_key(tool_id)
        role = _ROLES.get(as_text(row.get("sender")))
        if role is None:
            self.notes.append(Note("unknown", self.place, "A message has an unknown sender."))
            role = "user"
        blocks = [block for block in as_list(row.get("content")) if type(block) is dict]
        if len(blocks) < len(as_list(row.get("content"))):
            self.notes.append(Note("malformed", self.place, "A block of a message is not an object."))
        text = as_text(row.get("text"))
        is_known = any(as_text(block.get("type")) in _KNOWN_TYPES and _has_content(block) for block in blocks)
        if text is not None and not is_known and all(block.get("text") != text for block in blocks):
            blocks.insert(0, {"type": "text", "text": text})  # older exports have no blocks
        files = self._read_files(row)
        draft = None if files or role != "assistant" else _read_api_message(blocks)
        if draft is None:
            draft = Draft(role=role, parts=(*_Steps(key, self._note_unknown).read(blocks), *files))
        metadata = pick(row, "index", "truncated", "stop_reason", "metadata", "feedback", "chat_feedback")
        updated_at = from_iso(row.get("updated_at"))
        created_at = from_iso(row.get("created_at"))
        if updated_at is not None and updated_at != created_at:
            metadata["updated_at"] = updated_at
        return draft.replace(key=key, created_at=created_at, metadata=metadata or None)

    def _note_unknown(self, kind: str) -> None:
        self.notes.append(Note("unknown", self.place, f"block {kind[:80]}"))

    def _read_files(self, row: dict[str, Any]) -> list[Part]:
        """Return the attachments, whose text the export contains, and the files, of which it has only the names."""
        parts: list[Part] = []
        for item in as_list(row.get("attachments")):
            fields = as_dict(item)
            name = as_text(fields.get("file_name"))
            text = fields.get("extracted_content")
            parts.append(
                AttachmentPart(
                    mime_type=media_type(name, None) or "text/plain",
                    name=name,
                    size=as_count(fields.get("file_size")),
                    text=text if type(text) is str else None,
                    metadata=pick(fields, "id", "file_type") or None,
                )
            )
        for field in ("files", "files_v2"):
            for item in as_list(row.get(field)) if field == "files" or not row.get("files") else ():
                fields = as_dict(item)
                name = as_text(fields.get("file_name"))
                self.notes.append(Note("missing", self.place, "A file of a message is not in the export."))
                facts = pick(fields, "file_uuid", "file_kind", "created_at")
                parts.append(AttachmentPart(mime_type=media_type(name, None), name=name, metadata=facts or None))
        return parts


def _read_api_message(blocks: Sequence[dict[str, Any]]) -> Draft | None:
    """Return a message in Anthropic's format; None if it has blocks that the Messages API refuses in an answer."""
    content: list[dict[str, Any]] = []
    for block in blocks:
        fields = _API_FIELDS.get(as_text(block.get("type")) or "")
        if fields is None:
            return None
        content.append({name: block[name] for name in fields if block.get(name) is not None})
    if not any(block["type"] != "text" for block in content):
        return None  # only text: equal in every format
    try:
        drafts = formats.parse([{"role": "assistant", "content": content}], "anthropic")
    except InvalidValue:
        return None
    if (
        len(drafts) != 1
        or len(drafts[0].parts) != len(blocks)
        or any(type(part) is DataPart for part in drafts[0].parts)
    ):
        return None
    parts = [_with_facts(part, block) for part, block in zip(drafts[0].parts, blocks, strict=True)]
    return drafts[0].replace(parts=tuple(parts))


def _with_facts(part: Part, block: dict[str, Any]) -> Part:
    """Return a part with the fields of its block that have no field of their own."""
    facts = _facts(block)
    return msgspec.structs.replace(part, metadata=facts) if facts else part


def _facts(block: dict[str, Any]) -> dict[str, Any]:
    facts = pick(block, *_BLOCK_FACTS)
    for name, fact in _TIMES.items():
        time = from_iso(facts.pop(name, None))
        if time is not None:
            facts[fact] = time
    return facts


class _Steps:
    """Reads the blocks of a message, with the results of its tools after their calls."""

    def __init__(self, key: str, note_unknown: Any) -> None:
        self._key = key
        self._note_unknown = note_unknown
        self._open_calls: list[ToolCallPart] = []
        self._call_count = 0

    def read(self, blocks: Sequence[dict[str, Any]]) -> list[Part]:
        """Return the parts of the blocks."""
        parts: list[Part] = []
        for block in blocks:
            kind = as_text(block.get("type"))
            reader = _READERS.get(kind or "")
            part = reader(self, block) if reader is not None else None
            if part is None and (text := as_text(block.get("text"))) is not None:
                part = TextPart(text=text)
            elif part is None and _has_content(block):
                part = DataPart(data=block)
            if reader is None or type(part) is DataPart:
                self._note_unknown(kind or "without a type")
            if part is not None:
                parts.append(part if type(part) is DataPart else _with_facts(part, block))
        return parts

    def read_text(self, block: dict[str, Any]) -> Part | None:
        """Return a text; None if it is empty."""
        text = as_text(block.get("text"))
        return None if text is None else TextPart(text=text)

    def read_thinking(self, block: dict[str, Any]) -> Part | None:
        """Return reasoning. Its signature is kept in the provider's remainder."""
        text = as_text(block.get("thinking"))
        signature = as_text(block.get("signature"))
        if text is None and signature is None:
            return None
        return ReasoningPart(text=text or "", native={"signature": signature} if signature else None)

    def read_call(self, block: dict[str, Any]) -> Part | None:
        """Return a tool call. A call without an id gets one of its message and its number."""
        tool = as_text(block.get("name"))
        if tool is None:
            return None
        self._call_count += 1
        call_id = as_text(block.get("id")) or f"{self._key}:{self._call_count}"
        call = ToolCallPart(call_id=call_id, tool=tool, arguments=block.get("input"))
        self._open_calls.append(call)
        return call

    def read_result(self, block: dict[str, Any]) -> Part | None:
        """Return a result. One without an id answers the first open call of its tool."""
        call_id, tool = as_text(block.get("tool_use_id")), as_text(block.get("name"))
        call = next(
            (each for each in self._open_calls if call_id in (None, each.call_id) and tool in (None, each.tool)), None
        )
        if call is None and call_id is None:
            return None
        if call is not None:
            self._open_calls.remove(call)
        content = block.get("content")
        pieces = [TextPart(text=content)] if type(content) is str else [_read_piece(item) for item in as_list(content)]
        return ToolResultPart(
            call_id=call.call_id if call is not None else call_id or "",
            tool=tool,
            status="error" if block.get("is_error") is True else "success",
            **output_of(pieces),
        )


def _has_content(block: dict[str, Any]) -> bool:
    """Return whether a block is more than an empty text or empty reasoning."""
    kind = as_text(block.get("type"))
    return kind not in ("text", "thinking") or bool(pick(block, kind, "signature"))


_READERS: dict[str, Any] = {
    "text": _Steps.read_text,
    "thinking": _Steps.read_thinking,
    "tool_use": _Steps.read_call,
    "tool_result": _Steps.read_result,
}


def _read_piece(item: Any) -> Content:
    """Return a piece of the result of a tool: text, an image, or data."""
    fields = as_dict(item)
    text, kind = as_text(fields.get("text")), fields.get("type")
    source = as_dict(fields.get("source"))
    if kind == "text" and text is not None:
        return TextPart(text=text, metadata=pick(fields, "citations") or None)
    if kind == "image":
        data = as_text(source.get("data")) or as_text(fields.get("data"))
        if data is not None and data.isascii():
            mime_type = as_text(source.get("media_type")) or as_text(fields.get("media_type"))
            return AttachmentPart(mime_type=mime_type or "image/*", data=data)
        if url := as_text(source.get("url")):
            return AttachmentPart(mime_type="image/*", url=url)
    return DataPart(data=item)


SOURCE = ClaudeAiSource()
