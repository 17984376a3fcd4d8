"""Sessions: their stored fields, the fields as attributes of a handle, branches, snapshots, presences and changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, overload

import msgspec

from recollect.model.value import Value

SessionStatus = Literal["active", "completed", "failed"]
SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "completed", "failed")
Relation = Literal["fork", "delegate"]
RELATIONS: tuple[Relation, ...] = ("fork", "delegate")

DATA_SCHEMA_VERSION = 1  # the version of the JSON in stored messages, kept with each session


class SessionInfo(Value, frozen=True, gc=False):
    """The stored fields of a session. Counts are those of its active path."""

    id: str
    created_at: int
    updated_at: int
    active_at: int
    last_message_at: int | None = None
    channel: str | None = None
    channel_id: str | None = None
    title: str | None = None
    status: SessionStatus = "active"
    model: str | None = None
    branch: int = 1
    revision: int = 0
    message_count: int = 0
    token_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    delegate_count: int = 0
    data_schema_version: int = DATA_SCHEMA_VERSION
    parent: str | None = None
    relation: Relation | None = None
    external_id: str | None = None
    task: str | None = None
    provider: str | None = None
    provider_config: str | None = None
    working_dir: str | None = None
    system_prompt: str | None = None
    color: str | None = None
    pinned_at: int | None = None
    archived_at: int | None = None
    deleted_at: int | None = None
    labels: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    metadata: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, times as ISO 8601."""
        return {**super().to_dict(), "labels": list(self.labels)}


class SessionChanges(TypedDict, total=False):
    """The fields that session.update() and session.fork() set. None clears a text, the labels or the metadata."""

    external_id: str | None
    title: str | None
    task: str | None
    status: SessionStatus
    provider: str | None
    provider_config: str | None
    model: str | None
    working_dir: str | None
    system_prompt: str | None
    color: str | None
    channel: str | None
    channel_id: str | None
    labels: Collection[str] | None
    metadata: dict[str, Any] | None
    pinned: bool
    archived: bool


class SessionUpdates(SessionChanges, total=False):
    """The fields that session.update() sets: also the parent, which a fork has from its origin. None clears it."""

    parent: str | None
    relation: Relation | None


class NewSessionFields(SessionUpdates, total=False):
    """The fields that store.session() and store.create_session() set on a session that they create."""


# The fields that update() and create_session() can set, by type. `pinned` and `archived` are passed as bool and stored
# as the time of the change.
TEXT_FIELDS = (
    "external_id", "title", "task", "status", "provider", "provider_config", "model", "working_dir",
    "system_prompt", "color", "channel", "channel_id",
)  # fmt: skip
FLAG_FIELDS = {"pinned": "pinned_at", "archived": "archived_at"}
SETTABLE = (*TEXT_FIELDS, "labels", "metadata", *FLAG_FIELDS)


T = TypeVar("T")


class SessionCounts(NamedTuple):
    """The fields of a session that a write of messages changes, as it returns them."""

    revision: int
    message_count: int
    token_count: int
    input_tokens: int
    output_tokens: int
    updated_at: int
    active_at: int
    last_message_at: int | None


class SessionField(Generic[T]):
    """Descriptor for one field of the session, as the handle last read it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, handle: None, owner: type) -> SessionField[T]: ...
    @overload
    def __get__(self, handle: SessionFields, owner: type) -> T: ...
    def __get__(self, handle: SessionFields | None, owner: type) -> SessionField[T] | T:
        return self if handle is None else getattr(handle.info, self.name)


class SessionFields:
    """The session fields of a handle. `info` holds all of them as one value; refresh() reads them again."""

    _info: SessionInfo
    _counts: SessionCounts | None

    @property
    def info(self) -> SessionInfo:
        """All fields of the session, as of the last operation of this handle."""
        if self._counts is not None:
            self._info = msgspec.structs.replace(self._info, **self._counts._asdict())
            self._counts = None
        return self._info

    @info.setter
    def info(self, info: SessionInfo) -> None:
        self._info, self._counts = info, None

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._info.id

    channel = SessionField[str | None]()
    channel_id = SessionField[str | None]()
    external_id = SessionField[str | None]()
    parent = SessionField[str | None]()
    relation = SessionField[Relation | None]()
    title = SessionField[str | None]()
    task = SessionField[str | None]()
    status = SessionField[SessionStatus]()
    provider = SessionField[str | None]()
    provider_config = SessionField[str | None]()
    model = SessionField[str | None]()
    working_dir = SessionField[str | None]()
    system_prompt = SessionField[str | None]()
    color = SessionField[str | None]()
    labels = SessionField[tuple[str, ...]]()
    metadata = SessionField[dict[str, Any] | None]()
    pinned_at = SessionField[int | None]()
    archived_at = SessionField[int | None]()
    deleted_at = SessionField[int | None]()
    branch = SessionField[int]()
    revision = SessionField[int]()
    message_count = SessionField[int]()
    token_count = SessionField[int]()
    input_tokens = SessionField[int]()
    output_tokens = SessionField[int]()
    data_schema_version = SessionField[int]()
    delegate_count = SessionField[int]()
    created_at = SessionField[int]()
    updated_at = SessionField[int]()
    active_at = SessionField[int]()
    last_message_at = SessionField[int | None]()

    def saw(self, counts: SessionCounts) -> None:
        """Set the counts of the session after a write."""
        self._counts = counts

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the session as plain data, times as ISO 8601."""
        return self.info.to_dict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.info.id == self.info.id

    def __hash__(self) -> int:
        return hash(self.info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.id!r} title={self.info.title!r} messages={self.info.message_count}>"


class Branch(Value, frozen=True, kw_only=True, gc=False):
    """A branch that leaves its parent after position `fork_at` (0: it has no shared messages).

    `last` is the newest position on it, `current` whether it is the head of the session.
    """

    id: int
    parent: int | None = None
    fork_at: int = 0
    last: int = 0
    current: bool = False
    created_at: int


SnapshotKind = Literal["title", "summary", "memory"]
SNAPSHOT_KINDS: tuple[SnapshotKind, ...] = ("title", "summary", "memory")


class Snapshot(Value, frozen=True, kw_only=True, gc=False):
    """A title, summary or memory, and the id of the last message it covers; None if the session had none yet."""

    id: int
    kind: SnapshotKind
    content: Any
    message: str | None
    tokens: int
    created_at: int
    updated_at: int


class Presence(Value, frozen=True, kw_only=True, gc=False):
    """A terminal or window that has a session open: its surface (`terminal`, `web`, ...), process and start."""

    id: str
    session: str
    surface: str
    holder: str
    since_at: int
    seen_at: int


class ArriveResult(NamedTuple):
    """The id of the caller's presence in a session, and the other presences."""

    id: str
    others: list[Presence]


class Change(NamedTuple):
    """A changed session and its new revision; None if it was erased."""

    session: str
    revision: int | None
