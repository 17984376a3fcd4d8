"""All errors that Recollect raises, in one tree.

    RecollectError
    ├── NotFound
    │   ├── SessionNotFound
    │   │   └── SessionInTrash
    │   ├── MessageNotFound
    │   ├── BranchNotFound
    │   ├── TurnNotFound
    │   ├── ToolCallNotFound
    │   ├── ApprovalNotFound
    │   └── CompactionNotFound
    ├── Conflict
    │   ├── SessionExists
    │   ├── SessionBusy
    │   │   └── SessionTakenOver
    │   ├── SessionHasForks
    │   ├── StaleRevision
    │   ├── StaleRecord
    │   ├── AmbiguousName
    │   ├── KeyReused
    │   ├── TurnExists
    │   ├── FileExists
    │   ├── TurnClosed
    │   ├── ToolCallAnswered
    │   ├── CompactionConflict
    │   ├── ImportConflict
    │   └── CopyConflict
    ├── InvalidValue
    │   ├── UnknownFormat
    │   ├── AmbiguousFormat
    │   └── InvalidConfig
    ├── StoreError
    │   ├── StoreClosed
    │   ├── StoreLocked
    │   ├── StoreReadOnly
    │   ├── StoreUnavailable
    │   ├── DiskFull
    │   ├── Corrupted
    │   │   └── IndexDamaged
    │   ├── NotADatabase
    │   ├── SchemaTooNew
    │   ├── NetworkFileSystem
    │   ├── NotSupported
    │   └── LimitReached
    ├── ModelError
    │   └── ModelNotConfigured
    ├── BotError
    │   ├── BotRejected
    │   ├── RateLimited
    │   └── DeliveryFailed
    └── NotConfirmed

The docstring of an error is its message: the rule and the received value, then the next step, with the fields of the
error in braces. A field that holds several items is a tuple. A driver's error never reaches the caller: the engine
wraps it and keeps it as the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RecollectError(Exception):
    """Recollect failed."""

    def __init__(self, message: str | None = None, /, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self.fields = fields
        super().__init__(message if message is not None else self.sentence(fields))

    @classmethod
    def sentence(cls, fields: dict[str, Any]) -> str:
        """Return the docstring on one line, with the fields filled in."""
        return _fill_fields(" ".join((cls.__doc__ or cls.__name__).split()), fields)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments for pickling, with the fields, for multiprocessing and pytest-xdist."""
        return (_rebuild, (type(self), str(self), self.fields))


def _rebuild(kind: type[RecollectError], message: str, fields: dict[str, Any]) -> RecollectError:
    return kind(message, **fields)


_MAX_FIELD_LENGTH = 1_000  # characters of a path or a reason in a message; longer ones fill a terminal
_MAX_ITEMS = 5  # items of a received list that a message shows; a longer list is shown as its type
_SCALAR_TYPES = (str, int, float, bool, bytes, type(None))
_MAX_VALUE_LENGTH = 200  # characters of a received value that a message shows, about two lines


def format_value(value: Any) -> str:
    """Return a received value as a message shows it: short, and without calling code that could fail.

    The repr() of a deep list, of an integer with thousands of digits or of a caller's object can raise errors.
    """
    kind = type(value)
    if kind is str:
        return (
            repr(value)
            if len(value) <= _MAX_VALUE_LENGTH
            else f"{value[:_MAX_VALUE_LENGTH]!r}... ({len(value):,} characters)"
        )
    if kind is int:  # 400 bits are 121 digits; str() of more than 4,300 digits raises ValueError
        return str(value) if value.bit_length() <= 4 * _MAX_VALUE_LENGTH // 2 else "an integer of more than 120 digits"
    if value is None or kind is bool or kind is float:
        return repr(value)
    if kind is bytes:
        return repr(value) if len(value) <= _MAX_VALUE_LENGTH else f"{len(value):,} bytes"
    if kind in (list, tuple) and len(value) <= _MAX_ITEMS and all(type(each) in _SCALAR_TYPES for each in value):
        text = ", ".join(map(format_value, value))
        return f"[{text}]" if kind is list else f"({text})"
    return f"an object of type {kind.__name__}"


class _Field:
    """The value of a field in a message template: `{field}` shows the value, `{field!r}` its short repr."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return format_value(self.value)

    def __str__(self) -> str:
        if type(self.value) is not str:
            return format_value(self.value)
        return self.value if len(self.value) <= _MAX_FIELD_LENGTH else f"{self.value[:_MAX_FIELD_LENGTH]}..."

    def __format__(self, spec: str, /) -> str:
        if type(self.value) is tuple:
            return ", ".join(format(_Field(each), spec) for each in self.value)
        return format(self.value, spec) if spec else str(self)


def _fill_fields(text: str, fields: Mapping[str, Any]) -> str:
    return text.format(**{name: _Field(value) for name, value in fields.items()}) if fields else text


def format_error(error: RecollectError, sentences: Mapping[type[RecollectError], str], **extra: Any) -> str:
    """Return the message of an error in the words of a user interface.

    Docstrings of errors name methods of the library; `sentences` holds templates that name requests or commands. An
    error that was raised with its own message keeps that message. `extra` holds further values for the templates.
    """
    kind = next((kind for kind in type(error).__mro__ if kind in sentences), None)
    if kind is None:
        return str(error)
    try:
        default_text = type(error).sentence(error.fields)
    except KeyError:
        return str(error)  # raised with its own message, and without the fields that the docstring names
    return _fill_fields(sentences[kind], {**error.fields, **extra}) if str(error) == default_text else str(error)


class NotFound(RecollectError):
    """The requested item does not exist in this store."""


class SessionNotFound(NotFound):
    """No session {session!r} in this store. store.list_sessions() lists all sessions; store.session({session!r})
    creates this one."""


class SessionInTrash(SessionNotFound):
    """Session {session!r} is in the trash. Call store.restore_session({session!r}) to restore it."""


class MessageNotFound(NotFound):
    """Session {session!r} has no message {message!r} on its active path. session.messages() lists the message ids,
    session.branches() the other branches."""


class BranchNotFound(NotFound):
    """Session {session!r} has no branch {branch!r}. session.branches() lists its branches."""


class TurnNotFound(NotFound):
    """Session {session!r} has no turn {turn!r}. session.turns() lists its turns."""


class ToolCallNotFound(NotFound):
    """Session {session!r} has no tool call {call_id!r} on its active path. Append the assistant message with the call
    before its result. session.tool_calls() lists the calls."""


class ApprovalNotFound(NotFound):
    """No tool call waits for this approval in session {session!r}. It was already answered, or its turn has
    ended."""


class CompactionNotFound(NotFound):
    """Session {session!r} has no such compaction to undo on its active path (requested: {round}). session.compactions()
    lists its compactions."""


class Conflict(RecollectError):
    """The store is not in the state that this change requires."""


class SessionExists(Conflict):
    """Session {session!r} already exists. Open it with store.session({session!r}), or choose another id."""


class SessionBusy(Conflict):
    """Another turn is open on this branch of session {session!r}. {holder} holds it until {until}, or longer if it
    writes again. Wait for it with turn(..., wait=seconds), work in session.fork(), or end it with turn(...,
    take_over=True)."""


class SessionTakenOver(SessionBusy):
    """Session {session!r} was taken over by another window ({holder}). Take it back with
    take_over=True, register your presence again with session.arrive(), or continue in session.fork()."""


class SessionHasForks(Conflict):
    """Session {session!r} has forks that share its messages: {forks}. Erase it with forks="keep" to keep the shared
    messages for them, or with forks="erase" to erase the forks too."""


class StaleRevision(Conflict):
    """Session {session!r} is at revision {revision}, expected {expected}: it was changed in the meantime. Nothing was
    written. Read it again with session.refresh() and repeat the change if it still applies."""


class StaleRecord(Conflict):
    """Record {key!r} of kind {kind!r} is at revision {revision}, expected {expected}; 0 means that it does not exist.
    Nothing was written. Read it again with records.get() and repeat the change if it still applies."""


class AmbiguousName(Conflict):
    """{name!r} matches {count} sessions: {matches}. Use a longer prefix of the id, or the full title."""


class KeyReused(Conflict):
    """Idempotency key {key!r} was already used in session {session!r} with different content. Nothing was written. Use
    a new key."""


class TurnExists(Conflict):
    """Idempotency key {key!r} was already used in session {session!r}; it opened turn {turn}. Nothing was written.
    session.messages() shows the answer."""


class FileExists(Conflict):
    """{path} already exists, or is a database in use. Nothing was changed. Choose another name, or pass overwrite=True
    to replace a file that is not in use."""


class TurnClosed(Conflict):
    """Turn {turn} of session {session!r} is {status} and accepts no more messages. Its messages remain stored. Open a
    new turn, or add the message with session.append()."""


class ToolCallAnswered(Conflict):
    """Tool call {call_id!r} of session {session!r} already has a different result, which is kept. Use a new call id for
    a new call."""


class CompactionConflict(Conflict):
    """Session {session!r} was compacted, or a compaction was undone, while this summary was written. Nothing was
    stored. Call session.compact() again if it still applies."""


class ImportConflict(Conflict):
    """The database changed while it was compared with the file. Import the file again; the imported messages stay."""


class CopyConflict(Conflict):
    """Another process writes to the target, or a second copy runs. Stop it, then copy again: the copy resumes."""


class InvalidValue(RecollectError, ValueError):
    """The value cannot be stored."""


class UnknownFormat(InvalidValue):
    """Unknown message format {format!r}. Use one of: {known}."""


class AmbiguousFormat(InvalidValue):
    """The message matches more than one format. Pass format=..., one of: {known}."""


class InvalidConfig(InvalidValue):
    """A setting is invalid. Run `recollect config` to see all settings and their sources, and `recollect config path`
    for the settings file."""


class StoreError(RecollectError):
    """The store cannot do this now."""


class StoreClosed(StoreError):
    """The store is closed. Open it again with recollect.open(). All acknowledged writes are on disk."""


class StoreLocked(StoreError):
    """{path} was locked by another process for more than {seconds:g} seconds. Nothing was written. Try again, or stop
    the process that holds the lock."""


class StoreReadOnly(StoreError):
    """{path} is read-only. Check the permissions of the file and its folder, and that the file system is not mounted
    read-only."""


class StoreUnavailable(StoreError):
    """{path} cannot be opened or read: {reason}. Check that the folder exists, that you have write permission and that
    the disk works. No acknowledged write is lost."""


class DiskFull(StoreError):
    """The disk of {path} is full. Nothing was written. Free some space and try again. Everything stored before is still
    readable."""


class Corrupted(StoreError):
    """{path} is damaged: {reason}. Stop writing to it and restore a backup. If another program wrote to the file, its
    pages have no checksums: docs/reference/file-format.md describes how to accept them."""


class IndexDamaged(Corrupted):
    """The search index of {path} is damaged. No message is lost: the index is rebuilt from the messages. Search again,
    or call reindex()."""


class NotADatabase(StoreError):
    """{path} is not a Recollect database: {reason}. The file was not changed. Choose another path with RECOLLECT_DB or
    recollect.open(path)."""


class SchemaTooNew(StoreError):
    """{path} was written by a newer Recollect: its schema version is {found}, this one supports up to {known}. The file
    was not changed. Upgrade with `pip install -U recollect`."""


class NetworkFileSystem(StoreError):
    """{path} is on a network file system ({kind}), where SQLite cannot rely on locks and shared memory, and a database
    can be corrupted. Put it on a local disk (RECOLLECT_DB=/path/on/this/machine), or use PostgreSQL."""


class NotSupported(StoreError):
    """{what} is not supported on this kind of database. On PostgreSQL, use pg_dump and pg_restore for backups, VACUUM
    and pg_database_size() for disk space. `recollect db copy` copies the database to a SQLite file."""


class LimitReached(StoreError):
    """{what} has reached its limit of {limit:,}. Continue in a new session, or in another store."""


class ModelError(RecollectError):
    """{model} failed: {reason}. The conversation is stored. Send the message again, or choose another model."""


class ModelNotConfigured(ModelError):
    """{model} cannot be used: {reason}. The model 'demo' needs no key and no network."""


class BotError(RecollectError):
    """A chat platform rejected a request of the bot, or cannot be reached."""


class BotRejected(BotError):
    """{platform} rejected the bot: {reason}. No message is lost."""


class RateLimited(BotError):
    """The platform limits the rate of messages. Try again in {seconds:g} seconds."""

    seconds: float


class DeliveryFailed(BotError):
    """The platform rejected a message: {reason}."""

    reason: str
    retryable: bool
    """Whether a retry can succeed: yes after a lost connection, no for a deleted chat."""


class NotConfirmed(RecollectError):
    """The command was not run, because it was not confirmed. Pass --yes to run it."""
