"""Messages and their parts, drafts, tool calls, and the repairs of a history.

A Draft is a message that is not stored yet. A Message reads like a struct (`message.role`) and like a mapping
(`message["role"]`), so that code written for dicts continues to work. A part is one typed piece of a message. Every
part may carry `native`, the provider-specific remainder, which is stored only if the common fields alone cannot
restore the provider's block, and `metadata`, which belongs to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NewType,
    Protocol,
    Self,
    TypedDict,
    Unpack,
)

import msgspec

from recollect.errors import InvalidValue, format_value
from recollect.model.json import UNSET, decode, encode_standard, fields_of, to_json_data
from recollect.model.times import TimeLike, parse_time
from recollect.model.value import LATEST_TIME, TimeProperty, Value, from_datetime, to_datetime

INJECTION_KEY = "injected"
"""The key in the metadata of a part that marks context which a tool added to a message, such as "environment".

Its value names the kind of context. Models receive the part, but it is neither a title
nor, by default, a search result.
"""

CallStatus = Literal["pending", "running", "success", "error", "cancelled"]
ResultStatus = Literal["success", "error", "cancelled"]
"""The outcome of a tool call."""

FormerCallStatus = Literal[CallStatus, "canceled"]
"""The status of a tool call in exports of earlier versions, which spelled `cancelled` with one l."""


class BasePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind"):
    """The fields that every part has."""

    native: Any = None
    metadata: dict[str, Any] | None = None


class TextPart(BasePart, frozen=True, kw_only=True, tag="text", gc=False):
    """Text of a person or an agent.

    - `text`: the text.
    """

    text: str


class ReasoningPart(BasePart, frozen=True, kw_only=True, tag="reasoning", gc=False):
    """Reasoning of a model before its answer.

    - `text`: the reasoning, which may be empty.
    """

    text: str = ""


class ToolCallPart(BasePart, frozen=True, kw_only=True, tag="tool_call", gc=False):
    """A model's request to run a tool.

    It has the arguments in their original form: `arguments` or `arguments_text`.

    - `call_id`: the provider's id of the call.
    - `tool`: name of the tool.
    - `arguments`: the arguments as a JSON value.
    - `arguments_text`: the arguments as JSON text, which may be truncated or malformed.

    The property `part.input` is the arguments as a value, or the text if it is not JSON.
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
    """An image, a document or another file: its bytes as base64, its URL, or its text.

    All fields are optional. A large payload is stored once, even if it is sent many times.

    - `mime_type`, `name`: text.
    - `size`: size in bytes.
    - `url`: an address, or a `data:` URL that contains the bytes.
    - `data`: the bytes as base64, instead of `url`.
    - `text`: the text, instead of `url`.
    """

    mime_type: str | None = None
    size: int | None = None
    name: str | None = None
    url: str | None = None
    data: str | None = None
    text: str | None = None


class DataPart(BasePart, frozen=True, kw_only=True, tag="data", gc=False):
    """Structured data, or a provider's block that the common fields do not cover.

    - `data`: any JSON value; the provider's block is in `native`.
    """

    data: Any = UNSET


Content = TextPart | AttachmentPart | DataPart


class ToolResultPart(BasePart, frozen=True, kw_only=True, tag="tool_result", gc=False):
    """The output of a tool: text, structured data, or pieces of content.

    It has one of `text`, `data` and `content`.

    - `call_id`: the provider's id of the call.
    - `tool`: name of the tool, or `None`.
    - `status`: `"success"`, `"error"` or `"cancelled"`.
    - `text`: the result as text.
    - `data`: the result as a JSON value.
    - `content`: the result as a tuple of text, attachment and data parts.
    - `error_code`, `error_message`: text, or `None`.

    The property `part.output` is the result as text in every case.
    """

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
"""A part of a message. Every part has two optional fields: `native`, the provider-specific remainder of the block, and
`metadata`, a dict of your own. Parts have no `to_dict()`."""


BuiltInFormat = Literal[
    "anthropic",
    "openai",
    "openai-responses",
    "ai-sdk",
    "ai-sdk-ui",
    "pydantic-ai",
    "langchain",
    "ag-ui",
    "gemini",
    "bedrock",
    "ollama",
    "mistral",
    "recollect",
]
RegisteredFormat = NewType("RegisteredFormat", str)
"""The name of a format that another distribution registers. A type checker cannot know these names, so a program
converts them: RegisteredFormat("cohere"). A misspelled name of a built-in format stays an error."""

Format = BuiltInFormat | RegisteredFormat
"""The name of a message format; see [Formats]."""

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_MAX_REASON_LENGTH = 400  # characters of msgspec's message, which contains the received value
UnfinishedState = Literal["pending", "streaming", "interrupted", "error"]
MessageState = Literal["pending", "streaming", "completed", "interrupted", "error"]


if TYPE_CHECKING:

    class _DraftTime:
        """The type of Draft.created_at: every kind of time can be set, and a datetime is read."""

        def __get__(self, draft: Any, owner: Any) -> datetime | None: ...
        def __set__(self, draft: Any, value: TimeLike | None) -> None: ...


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message before it is stored, for programs that build messages from parts instead of dicts.

    Its fields are those of a `Message` that the caller may set: `role`, `parts`, `format`, `native`, `model`, `tokens`,
    `input_tokens`, `output_tokens`, `state`, `error`, `metadata`, `created_at`, `key`. It has no `to_dict()`.

    `created_at` accepts every kind of time ([TimeLike]) before the year 10000 and reads as a `datetime` in UTC; a
    fraction of a millisecond is cut off. `None` is the time at which the message is stored. The property
    `draft.created_at_ms` is the same time in milliseconds since 1970.

    [recollect.formats.parse()] returns the drafts of messages in any format.

    ```python
    session.append(recollect.Draft(
        role="user",
        parts=(
            recollect.TextPart(text="Look at this."),
            recollect.AttachmentPart(mime_type="image/png", name="cat.png", url="https://example.org/cat.png"),
        ),
        metadata={"from": "phone"},
    ))
    session.messages(last=1)[0].text    # -> 'Look at this.'
    ```
    """

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
    if TYPE_CHECKING:
        created_at: _DraftTime = _DraftTime()
    else:
        created_at: Any = None
        """An aware datetime in UTC, whatever kind of time it was set to; None: the time at which it is stored."""
    key: str | None = None

    def __post_init__(self) -> None:
        if self.created_at is not None:
            msgspec.structs.force_setattr(self, "created_at", _parse_created_at(self.created_at))

    @property
    def created_at_ms(self) -> int | None:
        """The time of creation in milliseconds since 1970."""
        return None if self.created_at is None else from_datetime(self.created_at)

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
    created_at: TimeLike | None
    key: str | None


def _parse_created_at(value: TimeLike) -> datetime:
    milliseconds = parse_time(value, "created_at")
    if milliseconds > LATEST_TIME:
        raise InvalidValue(
            f"created_at must be a time before the year 10000, got {format_value(value)}. An int is in milliseconds."
        )
    return to_datetime(milliseconds)


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
    plain["created_at"] = draft.created_at_ms
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


def respell_status(status: FormerCallStatus) -> CallStatus:
    """Return a status that an earlier version may have written in its current spelling."""
    return "cancelled" if status == "canceled" else status


def respell_parts(parts: Any) -> Any:
    """Return parts as JSON data in which the tool results have a status in its current spelling."""
    if not isinstance(parts, list | tuple):
        return parts
    pieces: Sequence[Any] = parts
    return [
        {**piece, "status": "cancelled"}
        if isinstance(piece, dict) and piece.get("kind") == "tool_result" and piece.get("status") == "canceled"
        else piece
        for piece in pieces
    ]


def parts_to_dicts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return parts as JSON data; to_builtins() keeps tuples."""
    output: list[dict[str, Any]] = list(msgspec.to_builtins(parts))
    for part in output:
        if type(part.get("content")) is tuple:
            part["content"] = list(part["content"])
    return output


class Message(Value, frozen=True, gc=False):
    """A stored message. (branch, position) identifies it permanently; `id` writes it as "branch.position".

    `message["role"]`, `message.get("role")`, `message.keys()` and `dict(message)` also work, for code written for
    dicts.

    - `id`: `"branch.position"`: its permanent id in the session and its forks, never reused.
    - `branch`, `position`: number of its branch, and its position on it, from 1.
    - `role`: `"system"`, `"user"`, `"assistant"` or `"tool"`.
    - `parts`: a tuple of [Part].
    - `state`: `"completed"`, `"pending"`, `"streaming"`, `"interrupted"` or `"error"`.
    - `turn`: position of the message that opened its turn, on the same branch; `None` outside a turn.
    - `format`: the format it was appended in; `None` if it is the same in all formats.
    - `native`: the provider-specific remainder: everything that the common fields do not hold, or `None`.
    - `model`: the model that wrote it, if known.
    - `tokens`: its size in tokens: your value, the provider's, or an estimate (1 token per 4 bytes).
    - `input_tokens`, `output_tokens`: as reported by the provider, or `None`.
    - `error`: any JSON value, or `None`.
    - `metadata`: your own dict, or `None`.
    - `created_at`, `completed_at`, `deleted_at`: times; `deleted_at` is `None` unless it is deleted.
    - `key`: the [key][Message keys] that the caller set, or `None`.
    - `edited_at`: when its content was last replaced, or `None`.

    Properties: `message.pinned` (whether every history includes it), `message.text`, `message.reasoning`,
    `message.tool_calls` (its `ToolCallPart`s) and `message.tool_results` (its `ToolResultPart`s).
    """

    branch: int
    position: int
    role: Role
    parts: tuple[Part, ...]
    created_at_ms: int
    turn: int | None = None
    tokens: int = 0
    format: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    native: dict[str, Any] | None = None
    state: MessageState = "completed"
    completed_at_ms: int | None = None
    deleted_at_ms: int | None = None
    error: Any = None
    metadata: dict[str, Any] | None = None
    key: str | None = None
    edited_at_ms: int | None = None

    created_at = TimeProperty[datetime]()
    completed_at = TimeProperty[datetime | None]()
    deleted_at = TimeProperty[datetime | None]()
    edited_at = TimeProperty[datetime | None]()

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
        return ("id", *self.__struct_encode_fields__)

    def __getitem__(self, name: str) -> Any:
        if name == "id" or name in self.__struct_encode_fields__:
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
"""The messages that `append()` accepts: a dict, an object of a provider's SDK, a whole response, a [Draft], a
[Message], or an iterable of these. A text is not among them, because it has no role."""


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
    """The state of one tool call: pending, running, then success, error or cancelled.

    It is a small row without the content of messages. `session.message(call.message).parts[call.part].input` is the
    arguments, and `session.message(call.result_message).parts[call.result_part].output` the result.

    - `message`, `part`: id of the message with the call, and index of the part in it.
    - `call_id`, `tool`: the provider's id of the call, and the tool's name.
    - `status`: `"pending"`, `"running"`, `"success"`, `"error"` or `"cancelled"`; see below.
    - `result_message`, `result_part`: id of the message with the result, and index of the part in it, or `None`.
    - `error_code`, `error_message`: text, or `None`.
    - `created_at`, `started_at`, `completed_at`: times, or `None`.
    - `latency_ms`: from its start (or its creation) to its result, or the caller's value.

    When a turn fails, or is interrupted, cancelled or taken over, its pending and running calls get the status
    `"cancelled"`, without a `result_message`. This includes older calls that the turn started. Their `error_code` is
    the status of the turn (`"interrupted"`, `"failed"` or `"cancelled"`), and `error_message` describes it. A result
    that arrives later is still linked to its call, and a call whose turn [continues][Leases] is pending or running
    again. A completed turn does not change its calls: a person or another program may answer them.
    """

    message: str
    part: int
    call_id: str
    tool: str
    status: CallStatus
    result_message: str | None = None
    result_part: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    created_at_ms: int
    started_at_ms: int | None = None
    completed_at_ms: int | None = None
    latency_ms: int | None = None

    created_at = TimeProperty[datetime]()
    started_at = TimeProperty[datetime | None]()
    completed_at = TimeProperty[datetime | None]()


RepairKind = Literal[
    "interrupted_call", "unanswered_call", "orphan_result", "duplicate_result", "moved_result", "misplaced_call",
    "partial_call", "output_type", "call_id", "arguments", "unreadable_block", "empty_message", "only_reasoning",
    "last_reasoning", "blank_text", "wrong_role", "same_role", "first_role", "last_space", "split_pair",
]  # fmt: skip


class Repair(Value, frozen=True, kw_only=True, gc=False):
    """A correction that repair made in a history: its kind, the message and tool call, and a sentence for people.

    The store does not change.

    - `kind`: the problem; see below.
    - `message`: id of the message.
    - `sentence`: a description of the change.
    - `call_id`: id of the tool call, or `None`.

    The kinds, each with the problem and the repair:

    - `interrupted_call`: a call without a result. Repair: adds a result that states the interruption.
    - `unanswered_call`: a computer call without a screenshot, or an MCP approval request without an answer
      (`openai-responses`). Repair: omitted.
    - `orphan_result`, `duplicate_result`: a result without its call, or a second one. Repair: omitted.
    - `moved_result`: a result that does not directly follow its call. Repair: moved.
    - `misplaced_call`, `partial_call`: a call outside an assistant message, or with truncated arguments. Repair:
      omitted.
    - `output_type`: an output of another type than its call (Responses API). Repair: converted to that type.
    - `call_id`: an id that is missing, duplicate or invalid for the provider. Repair: replaced in the call and its
      result.
    - `arguments`: arguments that are not an object, if the provider requires one. Repair: converted to an object.
    - `unreadable_block`: a malformed block, or a list of calls that is empty or malformed. Repair: omitted.
    - `empty_message`, `blank_text`: no content. Repair: omitted.
    - `only_reasoning`, `last_reasoning`: reasoning that nothing follows. Repair: omitted.
    - `wrong_role`: a tool message without a result, or a system message in the format `gemini`. Repair: becomes a user
      message; a system message is omitted.
    - `same_role`: consecutive messages of one role (`anthropic`, `bedrock`, `gemini`). Repair: merged, with all their
      content. Or a message of the user after results (`mistral`). Repair: adds an answer between them.
    - `first_role`: an assistant message comes first (`anthropic`, `bedrock`, `gemini`). Repair: adds a short message of
      the user before it.
    - `last_space`: white space at the very end (`anthropic`, `bedrock`). Repair: removed.
    - `split_pair`: with `last`: a tool result whose call is before the last dicts. Repair: none; pass a larger `last`.
    """

    kind: RepairKind
    message: str
    sentence: str
    call_id: str | None = None
