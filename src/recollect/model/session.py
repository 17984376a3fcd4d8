"""A session: one conversation, everything about it except what was said."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from recollect.model.value import Value

Status = Literal["active", "completed", "failed"]
STATUSES: tuple[Status, ...] = ("active", "completed", "failed")
Relation = Literal["fork", "delegate"]

DATA_SCHEMA_VERSION = 1


class Session(Value, frozen=True, gc=False):
    """What is known about a conversation. Counts are those of its active path."""

    id: str
    created_at: int
    updated_at: int
    active_at: int
    last_message_at: int | None = None
    channel: str | None = None
    channel_id: str | None = None
    title: str | None = None
    status: Status = "active"
    model: str | None = None
    branch: int = 1
    revision: int = 0
    message_count: int = 0
    token_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    data_schema_version: int = DATA_SCHEMA_VERSION
    delegate_count: int = 0
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
    metadata: dict[str, Any] | None = None


class SessionChanges(TypedDict, total=False):
    """The fields that session.update() and session.fork() set. None clears a text or the metadata."""

    external_id: str | None
    title: str | None
    task: str | None
    status: Status
    provider: str | None
    provider_config: str | None
    model: str | None
    working_dir: str | None
    system_prompt: str | None
    color: str | None
    channel: str | None
    channel_id: str | None
    metadata: dict[str, Any] | None
    pinned: bool
    archived: bool


class NewSessionFields(SessionChanges, total=False):
    """The fields that store.session() and store.create_session() set on a session that they create."""

    parent: str | None


# What update() and create() may set, and of which type. Pin and archive are given as true or false and kept as
# the time they were set.
TEXT_FIELDS = (
    "external_id", "title", "task", "status", "provider", "provider_config", "model", "working_dir",
    "system_prompt", "color", "channel", "channel_id",
)  # fmt: skip
FLAG_FIELDS = {"pinned": "pinned_at", "archived": "archived_at"}
SETTABLE = (*TEXT_FIELDS, "metadata", *FLAG_FIELDS)
