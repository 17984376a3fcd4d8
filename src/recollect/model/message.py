"""Messages and their parts, drafts, tool calls, and the repairs of a history.

A Draft is a message that is not stored yet. A Message reads like a struct (`message.role`) and like a mapping
(`message["role"]`), so that code written for dicts continues to work. A part is one typed piece of a message. Every
part may carry `native`, the provider-specific remainder, which is stored only if the common fields alone cannot
restore the provider's block, and `metadata`, which belongs to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NewType, Protocol, Self, TypedDict, Unpack

import msgspec

from recollect.errors import InvalidValue
from recollect.model.json import UNSET, decode, encode_standard, fields_of, to_json_data
from recollect.model.value import Value

CallStatus = Literal["pending", "running", "success", "error", "canceled"]
ResultStatus = Literal["success", "error", "canceled"]


class BasePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind"):
    """The fields that every part has."""

    native: Any = None
    metadata: dict[str, Any] | None = None


class TextPart(BasePart, frozen=True, kw_only=True, tag="text", gc=False):
    """Text of a person or an agent."""

    text: str


class ReasoningPart(BasePart, frozen=True, kw_only=True, tag="reasoning", gc=False):
    """Reasoning of a model before its answer."""

    text: str = ""


class ToolCallPart(BasePart, frozen=True, kw_only=True, tag="tool_call", gc=False):
    """A model's request to run a tool.

    The arguments keep the form in which they were received: a value (`arguments`) or JSON text (`arguments_text`, which
    may be truncated or malformed).
    """

    call_id: str
    tool: str
    arguments: Any = UNSET
    arguments_text: str | None = None

    @property
    def input(self) -> Any:
        """The arguments as a value; the text itself if it is not JSON."""
        if self.arguments_text is None:
            return None if self.arguments is UNSET else self.arguments
        try:
            return decode(self.arguments_text)
        except (ValueError, RecursionError):
            return self.arguments_text


class AttachmentPart(BasePart, frozen=True, kw_only=True, tag="attachment", gc=False):
    """An image, a document or another file: its bytes as base64, its URL, or its text."""

    mime_type: str | None = None
    size: int | None = None
    name: str | None = None
    url: str | None = None
    data: str | None = None
    text: str | None = None


class DataPart(BasePart, frozen=True, kw_only=True, tag="data", gc=False):
    """Structured data, or a provider's block that the common fields do not cover."""

    data: Any = UNSET


Content = TextPart | AttachmentPart | DataPart


class ToolResultPart(BasePart, frozen=True, kw_only=True, tag="tool_result", gc=False):
    """The output of a tool: text, structured data, or pieces of content."""

    call_id: str
    tool: str | None = None
    status: ResultStatus = "success"
    text: str | None = None
    data: Any = UNSET
    content: tuple[Content, ...] | None = None
    error_code: str | None = None
    error_message: str | None = None

    @property
    def output(self) -> str:
        """The result as text, in any of its forms."""
        if self.text is not None:
            return self.text
        if self.content is not None:
            return "\n".join([piece.text for piece in self.content if not isinstance(piece, DataPart) and piece.text])
        if self.data is not UNSET:
            return encode_standard(self.data)
        return self.error_message or ""


Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | AttachmentPart | DataPart


BuiltInFormat = Literal["anthropic", "openai", "openai-responses", "ai-sdk", "ai-sdk-ui", "recollect"]
RegisteredFormat = NewType("RegisteredFormat", str)
"""The name of a format that another distribution registers. A type checker cannot know these names, so a program
converts them: RegisteredFormat("cohere"). A misspelled name of a built-in format stays an error."""

Format = BuiltInFormat | RegisteredFormat
Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_MAX_REASON_LENGTH = 400  # characters of msgspec's message, which contains the received value
UnfinishedState = Literal["pending", "streaming", "interrupted", "error"]
MessageState = Literal["pending", "streaming", "completed", "interrupted", "error"]


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message before it is stored."""

    role: Role
    parts: tuple[Part, ...] = ()
    format: str | None = None
    native: dict[str, Any] | None = None
    model: str | None = None
    tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    state: MessageState = "completed"
    error: Any = None
    metadata: dict[str, Any] | None = None
    created_at: Count | None = None
    key: str | None = None
    """The caller's key, unique on a path: an append of a message whose key is on the path stores nothing."""

    def replace(self, **fields: Unpack[DraftFields]) -> Self:
        """Return a copy with other values of some fields. append() validates them."""
        return msgspec.structs.replace(self, **fields)


class DraftFields(TypedDict, total=False):
    """The fields of a draft, for Draft.replace()."""

    role: Role
    parts: tuple[Part, ...]
    format: str | None
    native: dict[str, Any] | None
    model: str | None
    tokens: int | None
    input_tokens: int | None
    output_tokens: int | None
    state: MessageState
    error: Any
    metadata: dict[str, Any] | None
    created_at: int | None
    key: str | None


def check_draft(draft: Draft) -> Draft:
    """Return a draft that a caller built. Raise InvalidValue if a value has a wrong type or does not fit into JSON."""
    try:
        return msgspec.convert(to_json_data(_plain_draft(draft), "message"), Draft)
    except InvalidValue:
        raise
    except (TypeError, ValueError, RecursionError) as error:  # a lone surrogate in an enum is a UnicodeEncodeError
        raise InvalidValue(f"The message is invalid: {str(error)[:_MAX_REASON_LENGTH]}.") from error


def _plain_draft(draft: Draft) -> dict[str, Any]:
    """Return a draft as plain data. msgspec.to_builtins() would turn bytes into text, and a set into a list."""
    plain = fields_of(draft)
    plain["parts"] = _plain_parts(draft.parts)
    return plain


def _plain_parts(parts: Any) -> Any:
    if type(parts) is not tuple and type(parts) is not list:
        return parts
    pieces: list[Any] = []
    for part in parts:
        piece = fields_of(part) if isinstance(part, BasePart) else part
        if isinstance(part, ToolResultPart) and part.content is not None:
            piece["content"] = _plain_parts(part.content)
        pieces.append(piece)
    return pieces


def parts_to_dicts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return parts as JSON data; to_builtins() keeps tuples."""
    output: list[dict[str, Any]] = list(msgspec.to_builtins(parts))
    for part in output:
        if type(part.get("content")) is tuple:
            part["content"] = list(part["content"])
    return output


class Message(Value, frozen=True, gc=False):
    """A stored message. (branch, position) identifies it permanently; `id` writes it as "branch.position"."""

    branch: int
    position: int
    role: Role
    parts: tuple[Part, ...]
    created_at: int
    turn: int | None = None
    tokens: int = 0
    format: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    native: dict[str, Any] | None = None
    state: MessageState = "completed"
    completed_at: int | None = None
    deleted_at: int | None = None
    error: Any = None
    metadata: dict[str, Any] | None = None
    key: str | None = None
    edited_at: int | None = None

    @property
    def id(self) -> str:
        """The id of the message in its session and its forks, for links, cursors and fork(at=...)."""
        return f"{self.branch}.{self.position}"

    @property
    def pinned(self) -> bool:
        """True if the message is in every history regardless of age, set by {"pinned": true} in its metadata."""
        return self.metadata is not None and self.metadata.get("pinned") is True

    @property
    def text(self) -> str:
        """The text, without reasoning, tool calls and results."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """The reasoning of the model."""
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls of this message."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def tool_results(self) -> tuple[ToolResultPart, ...]:
        """The tool results of this message."""
        return tuple(part for part in self.parts if isinstance(part, ToolResultPart))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with the id, times as ISO 8601."""
        return {"id": self.id, **super().to_dict(), "parts": parts_to_dicts(self.parts)}

    def keys(self) -> tuple[str, ...]:
        """Return the field names, as a mapping does, so that dict(message) works."""
        return ("id", *self.__struct_fields__)

    def __getitem__(self, name: str) -> Any:
        if name == "id" or name in self.__struct_fields__:
            return getattr(self, name)
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default if there is no such field."""
        try:
            return self[name]
        except KeyError:
            return default


class SdkObject(Protocol):
    """An object of a provider's SDK: a pydantic model."""

    def model_dump(self, *args: Any, **options: Any) -> Any:
        """Return its fields as plain data."""
        ...


class DataclassObject(Protocol):
    """A message that is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


MessageLike = Mapping[str, Any] | Draft | Message | SdkObject | msgspec.Struct | DataclassObject
Messages = MessageLike | Iterable[MessageLike]
"""The types that append() accepts. A str is not among them, because it has no role."""


class MessageColumns(NamedTuple):
    """The fields of several messages that a history needs, oldest first, one sequence per field.

    A history reads each field once: a tuple per message would cost more than decoding a short text.
    """

    positions: Sequence[int]
    roles: Sequence[Role]
    formats: Sequence[str | None]
    parts: list[tuple[Part, ...]]
    natives: list[dict[str, Any] | None]
    states: list[MessageState]


class ToolCall(Value, frozen=True, kw_only=True, gc=False):
    """The state of one tool call: pending, running, then success, error or cancelled (stored as "canceled")."""

    message: str
    part: int
    call_id: str
    tool: str
    status: CallStatus
    result_message: str | None = None
    result_part: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    latency_ms: int | None = None


RepairKind = Literal[
    "interrupted_call", "unanswered_call", "orphan_result", "duplicate_result", "moved_result", "misplaced_call",
    "partial_call", "output_type", "call_id", "arguments", "unreadable_block", "empty_message", "only_reasoning",
    "last_reasoning", "blank_text", "wrong_role", "same_role", "first_role", "last_space", "split_pair",
]  # fmt: skip


class Repair(Value, frozen=True, kw_only=True, gc=False):
    """A correction that repair made in a history: its kind, the message and tool call, and a sentence for people.

    The kind `split_pair` reports a tool result whose call precedes history(last=...), which changes nothing.
    """

    kind: RepairKind
    message: str
    sentence: str
    call_id: str | None = None
