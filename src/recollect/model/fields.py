"""The fields of a session as attributes of the handle that works on it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import msgspec

from recollect.model.session import Relation, Session, Status

T = TypeVar("T")

_COUNTED = (
    "revision", "message_count", "token_count", "input_tokens", "output_tokens", "updated_at", "active_at",
    "last_message_at",
)  # fmt: skip


class Field(Generic[T]):
    """Reads one field of the session that a handle last saw."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, handle: None, owner: type) -> Field[T]: ...
    @overload
    def __get__(self, handle: SessionFields, owner: type) -> T: ...
    def __get__(self, handle: SessionFields | None, owner: type) -> Field[T] | T:
        return self if handle is None else getattr(handle.info, self.name)


class SessionFields:
    """What a handle knows about its session. `info` holds all of it as one value; refresh() reads it again."""

    _info: Session
    _counts: tuple[Any, ...] | None

    @property
    def info(self) -> Session:
        """All that is known about the session, as it stood after the last thing done through this handle."""
        if self._counts is not None:
            self._info = msgspec.structs.replace(self._info, **dict(zip(_COUNTED, self._counts, strict=True)))
            self._counts = None
        return self._info

    @info.setter
    def info(self, info: Session) -> None:
        self._info, self._counts = info, None

    @property
    def id(self) -> str:
        """The session's id."""
        return self._info.id

    channel = Field[str | None]()
    channel_id = Field[str | None]()
    external_id = Field[str | None]()
    parent = Field[str | None]()
    relation = Field[Relation | None]()
    title = Field[str | None]()
    task = Field[str | None]()
    status = Field[Status]()
    provider = Field[str | None]()
    provider_config = Field[str | None]()
    model = Field[str | None]()
    working_dir = Field[str | None]()
    system_prompt = Field[str | None]()
    color = Field[str | None]()
    metadata = Field[dict[str, Any] | None]()
    pinned_at = Field[int | None]()
    archived_at = Field[int | None]()
    deleted_at = Field[int | None]()
    branch = Field[int]()
    revision = Field[int]()
    message_count = Field[int]()
    token_count = Field[int]()
    input_tokens = Field[int]()
    output_tokens = Field[int]()
    data_schema_version = Field[int]()
    delegate_count = Field[int]()
    created_at = Field[int]()
    updated_at = Field[int]()
    active_at = Field[int]()
    last_message_at = Field[int | None]()

    def saw(self, counts: tuple[Any, ...]) -> None:
        """Take over how the session stands after a write."""
        self._counts = counts

    def to_dict(self) -> dict[str, Any]:
        """Give what is known about the session as plain data, times as ISO 8601."""
        return self.info.to_dict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.info.id == self.info.id

    def __hash__(self) -> int:
        return hash(self.info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.id!r} title={self.info.title!r} messages={self.info.message_count}>"
