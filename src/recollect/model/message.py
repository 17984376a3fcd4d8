"""A message: who said what, at which place of which branch, and in which state it is.

A Draft is a message that has no place yet. A Message reads like a struct (`message.role`) and like a mapping
(`message["role"]`), so that code written for dicts goes on working.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from recollect.errors import InvalidValue
from recollect.model.json import exact, fields_of
from recollect.model.part import Envelope, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.model.value import Value

Format = Literal["anthropic", "openai", "openai-responses", "ai-sdk", "ai-sdk-ui", "recollect"]
Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_SHOWN = 400  # characters of what msgspec says, which has the received value in it
State = Literal["pending", "streaming", "completed", "interrupted", "error"]


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
    state: State = "completed"
    error: Any = None
    metadata: dict[str, Any] | None = None
    created_at: Count | None = None


def checked(draft: Draft) -> Draft:
    """Give a draft that somebody made by hand back if every value in it has its type and JSON can carry it."""
    try:
        return msgspec.convert(exact(_opened(draft)), Draft)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"This is not a message: {str(error)[:_SHOWN]}.") from error
    except InvalidValue:
        raise
    except (TypeError, ValueError, RecursionError) as error:  # a surrogate where a word belongs is a UnicodeEncodeError
        raise InvalidValue(f"This message has a value that can not be stored: {str(error)[:_SHOWN]}.") from error


def _opened(draft: Draft) -> dict[str, Any]:
    """Return a draft as plain data. msgspec.to_builtins() would turn bytes into text, and a set into a list."""
    plain = fields_of(draft)
    plain["parts"] = _pieces(draft.parts)
    return plain


def _pieces(parts: Any) -> Any:
    if type(parts) is not tuple and type(parts) is not list:
        return parts
    pieces: list[Any] = []
    for part in parts:
        piece = fields_of(part) if isinstance(part, Envelope) else part
        if isinstance(part, ToolResultPart) and part.content is not None:
            piece["content"] = _pieces(part.content)
        pieces.append(piece)
    return pieces


class Message(Value, frozen=True, gc=False):
    """A message in its place. (branch, position) is its permanent identity; the id writes it as "branch.position"."""

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
    state: State = "completed"
    completed_at: int | None = None
    deleted_at: int | None = None
    error: Any = None
    metadata: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        """The message's name in this session and its forks, for links, cursors and fork(at=...)."""
        return f"{self.branch}.{self.position}"

    @property
    def pinned(self) -> bool:
        """Whether it stays in every history, however old it is: {"pinned": true} in its metadata says so."""
        return self.metadata is not None and self.metadata.get("pinned") is True

    @property
    def text(self) -> str:
        """What was said, without reasoning, tool calls and results."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """What the model thought."""
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tools that this message asks for."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def tool_results(self) -> tuple[ToolResultPart, ...]:
        """The tool results that this message carries."""
        return tuple(part for part in self.parts if isinstance(part, ToolResultPart))

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can carry, with the id, times as ISO 8601."""
        return {"id": self.id, **super().to_dict()}

    def keys(self) -> tuple[str, ...]:
        """Name the fields, as a mapping does: dict(message) works."""
        return ("id", *self.__struct_fields__)

    def __getitem__(self, name: str) -> Any:
        if name == "id" or name in self.__struct_fields__:
            return getattr(self, name)
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Give a field, or the default where there is no such field."""
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


OneMessage = Mapping[str, Any] | Draft | Message | SdkObject | msgspec.Struct | DataclassObject
Messages = OneMessage | Iterable[OneMessage]
"""What can be appended. A str is none of these: it does not say who speaks."""
