"""Sessions: their stored fields, the fields as attributes of a handle, branches, snapshots, presences and changes."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, overload

import msgspec

from recollect.model.value import TimeProperty, Value

SessionStatus = Literal["active", "completed", "failed"]
"""The status of a session. Recollect never changes it."""

SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "completed", "failed")
Relation = Literal["fork", "delegate"]
"""The relation of a session to its parent."""

RELATIONS: tuple[Relation, ...] = ("fork", "delegate")

DATA_SCHEMA_VERSION = 1  # the version of the JSON in stored messages, kept with each session


class SessionInfo(Value, frozen=True, gc=False):
    """The stored fields of a session. Counts are those of its active path.

    - `id`: its id.
    - `title`, `task`: text, or `None`.
    - `status`: `"active"`, `"completed"` or `"failed"`. Recollect never changes it; use `update()`.
    - `channel`, `channel_id`: its channel, and the chat on that channel; taken from the id unless set.
    - `external_id`: the id that another program uses for it.
    - `parent`, `relation`: id of the parent session, and `"fork"` or `"delegate"`, or `None`. If the parent is erased,
      `relation` stays.
    - `labels`: its labels, as a sorted tuple.
    - `provider`, `provider_config`, `model`: text that you set, or `None`.
    - `working_dir`, `color`: text, or `None`.
    - `system_prompt`: text, or `None`. A system prompt is stored only if you set it.
    - `metadata`: your own dict, or `None`.
    - `pinned_at`, `archived_at`, `deleted_at`: when it was pinned, archived or moved to the trash, or `None`.
    - `branch`: number of the active branch.
    - `revision`: a number that increases with every change.
    - `message_count`, `token_count`: messages and tokens of the active path, without deleted messages, with tool steps
      ([store.shown_counts()] omits those).
    - `delegate_count`: number of sessions of its sub-agents, without those in the trash.
    - `input_tokens`, `output_tokens`: tokens of the active path as reported by providers.
    - `data_schema_version`: version of the JSON of the parts, 1.
    - `created_at`, `updated_at`, `active_at`, `last_message_at`: times.
    """

    id: str
    created_at_ms: int
    updated_at_ms: int
    active_at_ms: int
    last_message_at_ms: int | None = None
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
    pinned_at_ms: int | None = None
    archived_at_ms: int | None = None
    deleted_at_ms: int | None = None
    labels: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None

    created_at = TimeProperty[datetime]()
    updated_at = TimeProperty[datetime]()
    active_at = TimeProperty[datetime]()
    last_message_at = TimeProperty[datetime | None]()
    pinned_at = TimeProperty[datetime | None]()
    archived_at = TimeProperty[datetime | None]()
    deleted_at = TimeProperty[datetime | None]()

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


class SessionEdits(SessionChanges, total=False):
    """The fields that session.append() sets with its messages: also single labels, while the others stay."""

    add_labels: Collection[str]
    remove_labels: Collection[str]


class SessionUpdates(SessionEdits, total=False):
    """The fields that session.update() sets: also the parent, which a fork has from its origin. None clears it."""

    parent: str | None
    relation: Relation | None


class NewSessionFields(SessionChanges, total=False):
    """The fields that store.session() sets on a session that it creates."""

    parent: str | None
    relation: Relation | None


# The fields that update() and session() can set, by type. `pinned` and `archived` are passed as bool and stored
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
    updated_at_ms: int
    active_at_ms: int
    last_message_at_ms: int | None


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
    """The session fields of a handle."""

    _info: SessionInfo
    _counts: SessionCounts | None

    @property
    def info(self) -> SessionInfo:
        """All fields of the session as one immutable value, a [SessionInfo]."""
        if self._counts is not None:
            self._info = msgspec.structs.replace(self._info, **self._counts._asdict())
            self._counts = None
        return self._info

    def _set_info(self, info: SessionInfo) -> None:
        self._info, self._counts = info, None

    def _set_counts(self, counts: SessionCounts) -> None:
        """Set the counts of the session after a write. They are merged with the other fields on the next read."""
        self._counts = counts

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
    pinned_at = SessionField[datetime | None]()
    archived_at = SessionField[datetime | None]()
    deleted_at = SessionField[datetime | None]()
    branch = SessionField[int]()
    revision = SessionField[int]()
    message_count = SessionField[int]()
    token_count = SessionField[int]()
    input_tokens = SessionField[int]()
    output_tokens = SessionField[int]()
    data_schema_version = SessionField[int]()
    delegate_count = SessionField[int]()
    created_at = SessionField[datetime]()
    updated_at = SessionField[datetime]()
    active_at = SessionField[datetime]()
    last_message_at = SessionField[datetime | None]()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, with times as ISO 8601."""
        return self.info.to_dict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.info.id == self.info.id

    def __hash__(self) -> int:
        return hash(self.info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.id!r} title={self.info.title!r} messages={self.info.message_count}>"


class Branch(Value, frozen=True, kw_only=True, gc=False):
    """A branch that leaves its parent after position `fork_at` (0: it has no shared messages).

    - `id`: number of the branch.
    - `parent`: number of the parent branch, or `None`.
    - `fork_at`: last position that it shares with the parent; 0 if it shares none.
    - `last`: newest position assigned on it.
    - `current`: whether it is the active branch.
    - `created_at`: time.
    """

    id: int
    parent: int | None = None
    fork_at: int = 0
    last: int = 0
    current: bool = False
    created_at_ms: int

    created_at = TimeProperty[datetime]()


SnapshotKind = Literal["title", "summary", "memory"]
"""The kind of a snapshot."""

SNAPSHOT_KINDS: tuple[SnapshotKind, ...] = ("title", "summary", "memory")


class Snapshot(Value, frozen=True, kw_only=True, gc=False):
    """A title, summary or memory, and the id of the last message it covers; None if the session had none yet.

    - `id`: number of the snapshot.
    - `kind`: `"title"`, `"summary"` or `"memory"`.
    - `content`: any JSON value.
    - `message`: id of the last message that it covers; `None` if the session had no message.
    - `tokens`: number of tokens.
    - `created_at`, `updated_at`: times.
    """

    id: int
    kind: SnapshotKind
    content: Any
    message: str | None
    tokens: int
    created_at_ms: int
    updated_at_ms: int

    created_at = TimeProperty[datetime]()
    updated_at = TimeProperty[datetime]()


class Presence(Value, frozen=True, kw_only=True, gc=False):
    """A terminal or window that has a session open: its surface (`terminal`, `web`, ...), process and start.

    - `id`: id of the presence.
    - `session`: id of the session.
    - `surface`: the client, such as `"terminal"`.
    - `holder`: the process.
    - `since_at`, `seen_at`: times of its registration and of its last renewal.
    """

    id: str
    session: str
    surface: str
    holder: str
    since_at_ms: int
    seen_at_ms: int

    since_at = TimeProperty[datetime]()
    seen_at = TimeProperty[datetime]()


class ArriveResult(NamedTuple):
    """The result of [session.presence.arrive()].

    - `id`: the id of your presence.
    - `others`: a list of the other presences, each a [Presence].
    """

    id: str
    others: list[Presence]


class Change(NamedTuple):
    """An item of a watch: a named tuple.

    - `session`: the id of the session that changed.
    - `revision`: its current revision; `None` for an erased session.
    """

    session: str
    revision: int | None
