"""ChatGPT: the export that its settings offer, as a zip archive, a folder, or single files of it.

`conversations.json`, or the numbered files that replaced it in 2026, hold an array of conversations. Each is a tree of
nodes, `mapping`, most of which have a message. A call of a tool is a message of the assistant to a recipient, and the
next message of the role `tool` is its result. Files that a conversation refers to are in the same archive, under names
that begin with their id.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.errors import UnreadableFile
from recollect.model.message import (
    AttachmentPart,
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
    document_elements,
    first_question,
    json_bytes,
    json_head,
    latency,
    mark_injected,
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
    from_seconds,
    message_events,
    message_key,
    pick,
    title_text,
)
from recollect.sources.source import (
    ActiveFound,
    Note,
    Original,
    Select,
    SessionFound,
    SourceEvent,
    Transcript,
    select_all,
)

_NAME = "chatgpt"
_MAX_ASSET_BYTES = 64 << 20  # a file becomes one attachment, which is in memory as base64
_FEEDBACK = "message_feedback.json"
_MAPPING = re.compile(rb'"mapping"\s*:\s*\{')
_NODE = re.compile(rb'"(?:children|current_node|parent)"\s*:')
_ASSET_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_ROLES: dict[Any, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
_CONVERSATION_FACTS = (
    "gizmo_id", "gizmo_type", "conversation_template_id", "conversation_origin", "is_study_mode", "is_do_not_remember",
    "memory_scope", "workspace_id", "branching_from_conversation_id", "context_scopes",
)  # fmt: skip
_MESSAGE_FACTS = ("recipient", "channel", "status", "end_turn", "weight")
_METADATA_FACTS = (
    "citations", "content_references", "search_result_groups", "finish_details", "finished_duration_sec", "request_id",
    "turn_exchange_id", "gizmo_id", "voice_mode_message", "is_error", "reasoning_status", "reasoning_title", "canvas",
    "parent_id", "timestamp_", "command", "args", "invoked_plugin", "image_gen_title", "selected_sources",
)  # fmt: skip
_USUAL_FACTS = {"recipient": "all", "status": "finished_successfully", "weight": 1.0}
_CONTEXT_TYPES = {"user_editable_context": "instructions", "model_editable_context": "memory"}
_FAILED_TYPES = frozenset({"system_error"})


class _Call(NamedTuple):
    """A tool call on the path to a message that has no result there yet."""

    call_id: str
    tool: str


class ChatgptSource(ExportSource):
    """Reads exports of ChatGPT."""

    name = _NAME
    label = "ChatGPT"

    def detect(self, tree: FileTree, names: Iterable[str]) -> Iterator[Transcript]:
        """Return the files that begin like an array of conversations, or like a single one."""
        names = list(names)
        available = set(names)
        for name in names:
            head = json_head(tree, name)
            if _MAPPING.search(head) and _NODE.search(head):
                feedback = f"{name.rpartition('/')[0]}/{_FEEDBACK}".lstrip("/")
                yield Transcript(_NAME, name, "document", (feedback,) if feedback in available else ())

    def find_id(self, conversation: dict[str, Any]) -> str | None:
        """Return the id of a conversation; None for an entry that is not one."""
        has_messages = type(conversation.get("mapping")) is dict
        tool_id = as_text(conversation.get("id")) or as_text(conversation.get("conversation_id"))
        return tool_id if has_messages else None

    def read(
        self,
        tree: FileTree,
        transcript: Transcript,
        select: Select = select_all,  # noqa: ARG002  part of the interface
    ) -> Iterator[SourceEvent]:
        """Read the conversations of a file, one at a time."""
        assets = _Assets(tree, transcript.name)
        feedback = _Feedback(tree, transcript.files)
        yield from feedback.notes
        yield from self.read_entries(
            tree,
            transcript.name,
            lambda conversation, session, place: _ConversationReader(
                conversation, session, place, assets, feedback
            ).read(),
        )


class _Feedback:
    """The ratings of messages, by the id of the message."""

    def __init__(self, tree: FileTree, names: Iterable[str]) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.notes: list[Note] = []
        for name in names:
            try:
                for element in document_elements(tree, name):
                    if isinstance(element, Note):
                        self.notes.append(element)
                    elif row_id := as_text(as_dict(element.value).get("id")):
                        self.rows[row_id] = element.value
            except UnreadableFile as error:
                self.notes.append(Note("missing", name, str(error)))


class _Assets:
    """The files of an archive to which messages refer, by the id with which their names begin."""

    def __init__(self, tree: FileTree, name: str) -> None:
        self._tree = tree
        self._folder = f"{name.rpartition('/')[0]}/".lstrip("/")
        self._index: dict[str, str] | None = None

    def find(self, pointer: str) -> str | None:
        """Return the name of the file for a pointer, such as `file-service://file-4xQ` or `sediment://file_0000`."""
        if self._index is None:
            self._index = self._read_names()
        name = (pointer.partition("://")[2] or pointer).partition("#")[0]
        return self._index.get(name) or self._index.get(_asset_id(pointer))

    def _read_names(self) -> dict[str, str]:
        index: dict[str, str] = {}
        for name in self._tree.names():
            base = name.rpartition("/")[2]
            match = _ASSET_ID.match(base)
            if name.startswith(self._folder) and match is not None:
                index.setdefault(match[0], name)
                index.setdefault(base.partition(".")[0], name)
        return index

    def read(self, name: str) -> bytes:
        """Read a file. Raise UnreadableFile if it is too large for an attachment."""
        return self._tree.read(name, _MAX_ASSET_BYTES)


def _asset_id(pointer: str) -> str:
    """Return the id in a pointer, such as `file-4xQ` in `file-service://file-4xQ`; "" if it has none."""
    match = _ASSET_ID.match(pointer.partition("://")[2] or pointer)
    return match[0] if match else ""


class _ConversationReader:
    """Reads one conversation."""

    def __init__(
        self, conversation: dict[str, Any], session: str, place: str, assets: _Assets, feedback: _Feedback
    ) -> None:
        self.conversation = conversation
        self.session = session
        self.place = place
        self.rows: list[dict[str, Any]] = []
        self._assets = assets
        self._feedback = feedback
        self._nodes = as_dict(conversation.get("mapping"))
        self._keys: dict[str, str | None] = {}  # of each node: the key of its message, or of the last one before it
        self._calls: dict[str, _Call | None] = {}
        self._files: dict[str, dict[str, Any]] = {}  # of the present message, by id
        self._notes: list[Note] = []

    def read(self) -> Iterator[SourceEvent]:
        """Yield the events of the conversation, parents before children."""
        messages: list[tuple[Draft, str | None]] = []
        for node_id, parent in order_tree(*_links(self._nodes)):
            parent_key = self._keys.get(parent or "")
            self._keys[node_id] = parent_key
            self._calls[node_id] = self._calls.get(parent or "")
            message = as_dict(as_dict(self._nodes.get(node_id)).get("message"))
            draft = self._read_message(node_id, message) if message else None
            if draft is not None:
                messages.append((draft, parent_key))
                self._keys[node_id] = draft.key
        yield self._session_found([draft for draft, _ in messages])
        yield from self._notes
        for draft, parent_key in messages:
            yield from message_events(self.session, draft, parent_key, self.place)
        active = self._keys.get(as_text(self.conversation.get("current_node")) or "")
        if active is not None:
            yield ActiveFound(self.session, active)
        if self.rows:
            yield Original(self.session, _FEEDBACK, json_bytes(self.rows))

    def _session_found(self, drafts: list[Draft]) -> SessionFound:
        conversation = self.conversation
        title = title_text(conversation.get("title"))
        models = [draft.model for draft in drafts if draft.model]
        return SessionFound(
            self.session,
            title=title or first_question(drafts),
            title_rank=2 if title else 1,
            created_at=from_seconds(conversation.get("create_time")),
            updated_at=from_seconds(conversation.get("update_time")),
            model=column_text(conversation.get("default_model_slug")) or (models[-1] if models else None),
            provider="openai",
            archived=as_flag(conversation.get("is_archived")),
            pinned=True if conversation.get("is_starred") is True or conversation.get("pinned_time") else None,
            metadata=pick(conversation, *_CONVERSATION_FACTS) or None,
        )

    def _read_message(self, node_id: str, message: dict[str, Any]) -> Draft | None:
        author, content, metadata = (as_dict(message.get(name)) for name in ("author", "content", "metadata"))
        role = _ROLES.get(as_text(author.get("role")))
        if role is None:
            self._notes.append(Note("unknown", self.place, "A message has an unknown role."))
            role = "user"
        files = [as_dict(item) for item in as_list(metadata.get("attachments"))]
        self._files = {file_id: item for item in files if (file_id := as_text(item.get("id")))}
        call = self._call_of(node_id, role, message)
        if call is not None:
            parts: list[Part] = [call]
        elif role == "tool":
            parts = self._read_result(node_id, as_text(author.get("name")), message)
        else:
            parts = self._read_content(content)
            parts += self._read_files(content)
        if role == "system" and not parts:
            parts = _instructions(metadata)
            if not parts:
                return None  # the empty message with which most conversations begin
        if role != "assistant":
            parts = _mark(parts, metadata, content)
        model = column_text(metadata.get("model_slug"))
        return Draft(
            role=role,
            parts=tuple(parts),
            model=model if role == "assistant" else None,
            state="interrupted" if role == "assistant" and _is_interrupted(message) else "completed",
            metadata=self._facts(message, metadata) or None,
            created_at=from_seconds(message.get("create_time")),
            key=message_key(node_id),
        )

    def _facts(self, message: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        facts = {
            name: value for name, value in pick(message, *_MESSAGE_FACTS).items() if value != _USUAL_FACTS.get(name)
        }
        if message.get("weight") == 0:  # marks a message that is not shown; pick() omits 0
            facts["weight"] = 0
        facts |= pick(metadata, *_METADATA_FACTS)
        name = as_text(as_dict(message.get("author")).get("name"))
        if name is not None:
            facts["author"] = name
        row = self._feedback.rows.get(as_text(message.get("id")) or "")
        if row is not None:
            self.rows.append(row)
            facts["feedback"] = pick(row, "rating", "content", "create_time", "tags")
        return facts

    def _call_of(self, node_id: str, role: Role, message: dict[str, Any]) -> ToolCallPart | None:
        """Return the tool call that a message of the assistant is; its recipient is the tool."""
        recipient = as_text(message.get("recipient")) or "all"
        content = as_dict(message.get("content"))
        if role != "assistant" or recipient == "all" or "thoughts" in content:
            return None
        text = _call_text(content)
        if text is None:
            return None
        call_id = message_key(node_id)
        self._calls[node_id] = _Call(call_id, recipient)
        metadata = _facts_of(content, "language", "response_format_name")
        if text.lstrip()[:1] == "{":
            return ToolCallPart(call_id=call_id, tool=recipient, arguments_text=text, metadata=metadata or None)
        name = "code" if content.get("content_type") == "code" else "text"
        return ToolCallPart(call_id=call_id, tool=recipient, arguments={name: text}, metadata=metadata or None)

    def _read_result(self, node_id: str, tool: str | None, message: dict[str, Any]) -> list[Part]:
        """Return the result of the call before it. A message that answers no call is context from a tool."""
        content, metadata = as_dict(message.get("content")), as_dict(message.get("metadata"))
        run = as_dict(metadata.get("aggregate_result"))
        parts = self._read_content(content)
        parts += self._read_run_images(run)
        parts += self._read_files(content)
        call = self._calls[node_id]
        if call is None:
            return mark_injected(parts, "tool_output")
        self._calls[node_id] = None
        has_failed = _has_failed(content, metadata, run)
        times = {"started_at": from_seconds(run.get("start_time")), "completed_at": from_seconds(run.get("end_time"))}
        facts = {name: time for name, time in times.items() if time is not None} | latency(times)
        facts |= pick(run, "status", "run_id")
        result = ToolResultPart(
            call_id=call.call_id,
            tool=tool or call.tool,
            status="error" if has_failed else "success",
            metadata=facts or None,
            **output_of(parts),
        )
        return [result]

    def _read_run_images(self, run: dict[str, Any]) -> list[Part]:
        """Return the pictures that a run of code drew."""
        messages = [as_dict(item) for item in as_list(run.get("messages"))]
        return [
            self._attachment(pointer, {"content_type": "image_asset_pointer"})
            for item in messages
            if item.get("message_type") == "image" and (pointer := as_text(item.get("image_url")))
        ]

    def _read_content(self, content: dict[str, Any]) -> list[Part]:
        """Return the parts of a content of any type."""
        kind = as_text(content.get("content_type"))
        if kind == "thoughts":
            return [_reasoning_part(as_dict(item)) for item in as_list(content.get("thoughts"))]
        if kind == "reasoning_recap":
            recap = as_text(content.get("content"))
            return [ReasoningPart(text=recap, metadata={"recap": True})] if recap else []
        if kind == "computer_output" and type(content.get("screenshot")) is dict:
            return self._read_pieces([content["screenshot"]])
        if kind in _CONTEXT_TYPES:
            names = ("user_profile", "user_instructions", "model_set_context")
            return [TextPart(text=text) for name in names if (text := as_text(content.get(name)))]
        if type(content.get("parts")) is list:
            return self._read_pieces(content["parts"])
        text = _plain_text(content)
        if text is not None:
            metadata = _facts_of(content, "language", "url", "domain", "title", "name")
            return [TextPart(text=text, metadata=metadata or None)]
        if not pick(content, *content.keys() - {"content_type", "language", "response_format_name"}):
            return []
        self._notes.append(Note("unknown", self.place, f"content_type {(kind or 'none')[:80]}"))
        return [DataPart(data=content)]

    def _read_pieces(self, pieces: Sequence[Any]) -> list[Part]:
        parts: list[Part] = []
        for piece in pieces:
            if type(piece) is str:
                if piece:
                    parts.append(TextPart(text=piece))
            elif type(piece) is dict:
                parts += self._read_piece(piece)
            elif piece is not None:
                self._notes.append(Note("unknown", self.place, "A part of a message is neither text nor an object."))
                parts.append(DataPart(data=piece))
        return parts

    def _read_piece(self, piece: dict[str, Any]) -> list[Part]:
        """Return the parts of an object among the parts of a message: a file, or a transcription of speech."""
        text = as_text(piece.get("text"))
        if piece.get("content_type") == "audio_transcription" and text is not None:
            return [TextPart(text=text, metadata={"transcription": pick(piece, "direction") or True})]
        nested = [piece.get("audio_asset_pointer"), *as_list(piece.get("frames_asset_pointers"))]
        parts: list[Part] = []
        if pointer := as_text(piece.get("asset_pointer")):
            parts.append(self._attachment(pointer, piece))
        for item in nested:
            pointer = item if type(item) is str else as_text(as_dict(item).get("asset_pointer"))
            if pointer:
                parts.append(self._attachment(pointer, as_dict(item)))
        if parts:
            return parts
        if text is not None:
            return [TextPart(text=text)]
        self._notes.append(Note("unknown", self.place, "A part of a message has an unknown type."))
        return [DataPart(data=piece)]

    def _read_files(self, content: dict[str, Any]) -> list[Part]:
        """Return the files of a message that its content does not show."""
        pointers = [as_text(as_dict(piece).get("asset_pointer")) for piece in as_list(content.get("parts"))]
        visible_ids = {_asset_id(pointer) for pointer in pointers if pointer}
        return [self._attachment(file_id, item) for file_id, item in self._files.items() if file_id not in visible_ids]

    def _attachment(self, pointer: str, fields: Mapping[str, Any]) -> AttachmentPart:
        """Return a file with its bytes, if the archive has it."""
        fields = {**self._files.get(_asset_id(pointer), {}), **fields}
        name = as_text(fields.get("name"))
        mime_type = as_text(fields.get("mime_type")) or as_text(fields.get("mimeType"))
        kind = as_text(fields.get("content_type")) or ""
        facts = pick(fields, "width", "height", "format") | pick(as_dict(fields.get("metadata")), "dalle", "generation")
        facts["asset_pointer"] = pointer
        asset_name = self._assets.find(pointer)
        data: bytes | None = None
        if asset_name is not None:
            try:
                data = self._assets.read(asset_name)
            except UnreadableFile as error:
                self._notes.append(Note("missing", asset_name, str(error)))
        else:
            self._notes.append(Note("missing", self.place, "A file of a message is not in the export."))
        file_name = name or (asset_name.rpartition("/")[2] if asset_name else None)
        fallback = "image/*" if kind.startswith("image") else "audio/*" if kind.startswith("audio") else None
        return AttachmentPart(
            mime_type=mime_type or media_type(file_name, data) or fallback,
            size=len(data) if data is not None else as_count(fields.get("size_bytes", fields.get("size"))),
            name=file_name,
            data=base64.b64encode(data).decode() if data is not None else None,
            metadata=facts,
        )


def _links(nodes: dict[str, Any]) -> tuple[dict[str, str | None], dict[str, list[str]]]:
    """Return the parent and the children of each node. A node without a parent follows the node that lists it."""
    children: dict[str, list[str]] = {}
    listing: dict[str, str] = {}
    for node_id, node in nodes.items():
        children[node_id] = [child for child in as_list(as_dict(node).get("children")) if type(child) is str]
        for child in children[node_id]:
            listing.setdefault(child, node_id)
    parents: dict[str, str | None] = {}
    for node_id, node in nodes.items():
        parent = as_text(as_dict(node).get("parent"))
        parents[node_id] = parent if parent in nodes else listing.get(node_id)
    return parents, children


def _facts_of(content: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the named fields of a content that state something; its language is often "unknown"."""
    return {name: value for name, value in pick(content, *names).items() if value != "unknown"}


def _reasoning_part(item: dict[str, Any]) -> ReasoningPart:
    summary, text = as_text(item.get("summary")), as_text(item.get("content"))
    return ReasoningPart(text=text or summary or "", metadata={"summary": summary} if text and summary else None)


def _plain_text(content: dict[str, Any]) -> str | None:
    """Return the text of a content that has one in a field of its own."""
    for name in ("text", "result", "output_str", "content", "summary", "snippet"):
        text = as_text(content.get(name))
        if text is not None:
            return text
    return None


def _call_text(content: dict[str, Any]) -> str | None:
    """Return the text of a tool call; None if the content is something else."""
    pieces = content.get("parts")
    if type(pieces) is list:
        return "".join(pieces) if all(type(piece) is str for piece in pieces) else None
    return _plain_text(content) or ""


def _has_failed(content: dict[str, Any], metadata: dict[str, Any], run: dict[str, Any]) -> bool:
    status = as_text(run.get("status")) or ""
    return (
        as_text(content.get("content_type")) in _FAILED_TYPES
        or status.startswith(("failed", "error"))
        or metadata.get("is_error") is True
    )


def _is_interrupted(message: dict[str, Any]) -> bool:
    details = as_dict(as_dict(message.get("metadata")).get("finish_details"))
    return message.get("status") == "in_progress" or details.get("type") == "interrupted"


def _instructions(metadata: dict[str, Any]) -> list[Part]:
    """Return the custom instructions that an older export keeps in the metadata of an empty system message."""
    fields = as_dict(metadata.get("user_context_message_data"))
    texts = [as_text(fields.get(name)) for name in ("about_user_message", "about_model_message")]
    return mark_injected([TextPart(text=text) for text in texts if text], "instructions")


def _mark(parts: list[Part], metadata: dict[str, Any], content: dict[str, Any]) -> list[Part]:
    """Mark the parts of a message that ChatGPT added and does not show."""
    kind = _CONTEXT_TYPES.get(as_text(content.get("content_type")) or "")
    if kind is None and metadata.get("is_user_system_message") is True:
        kind = "instructions"
    if kind is None and metadata.get("is_visually_hidden_from_conversation") is True:
        kind = "hidden"
    if kind is None:
        return parts
    results = [part for part in parts if isinstance(part, ToolResultPart)]
    return parts if results else mark_injected(parts, kind)


SOURCE = ChatgptSource()
