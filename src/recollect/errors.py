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
    │   ├── InvalidConfig
    │   └── UnreadableFile
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

The first paragraph of an error's docstring is its message: the rule and the received value, then the next step, with
the fields of the error in braces. The second paragraph is its description in the reference. A field that holds several
items is a tuple. A driver's error never reaches the caller: the engine wraps it and keeps it as the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "AmbiguousFormat",
    "AmbiguousName",
    "ApprovalNotFound",
    "BotError",
    "BotRejected",
    "BranchNotFound",
    "CompactionConflict",
    "CompactionNotFound",
    "Conflict",
    "CopyConflict",
    "Corrupted",
    "DeliveryFailed",
    "DiskFull",
    "FileExists",
    "ImportConflict",
    "IndexDamaged",
    "InvalidConfig",
    "InvalidValue",
    "KeyReused",
    "LimitReached",
    "MessageNotFound",
    "ModelError",
    "ModelNotConfigured",
    "NetworkFileSystem",
    "NotADatabase",
    "NotConfirmed",
    "NotFound",
    "NotSupported",
    "RateLimited",
    "RecollectError",
    "SchemaTooNew",
    "SessionBusy",
    "SessionExists",
    "SessionHasForks",
    "SessionInTrash",
    "SessionNotFound",
    "SessionTakenOver",
    "StaleRecord",
    "StaleRevision",
    "StoreClosed",
    "StoreError",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "ToolCallAnswered",
    "ToolCallNotFound",
    "TurnClosed",
    "TurnExists",
    "TurnNotFound",
    "UnknownFormat",
    "UnreadableFile",
]


class RecollectError(Exception):
    """Recollect failed."""

    def __init__(self, message: str | None = None, /, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self.fields = fields
        super().__init__(message if message is not None else self.sentence(fields))

    @classmethod
    def sentence(cls, fields: dict[str, Any]) -> str:
        """Return the first paragraph of the docstring on one line, with the fields filled in."""
        template = (cls.__doc__ or cls.__name__).partition("\n\n")[0]
        return _fill_fields(" ".join(template.split()), fields)

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
            # An id may contain line breaks and control characters; its repr() does not.
            return ", ".join(
                repr(each) if type(each) is str and not each.isprintable() else format(_Field(each), spec)
                for each in self.value
            )
        return format(self.value, spec) if spec else str(self)


def _fill_fields(text: str, fields: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> str:
    extra = extra or {}
    return text.format(**{name: _Field(value) for name, value in fields.items()}, **extra) if fields or extra else text


def format_error(error: RecollectError, sentences: Mapping[type[RecollectError], str], **extra: str) -> str:
    """Return the message of an error in the words of a user interface.

    Docstrings of errors name methods of the library; `sentences` holds templates that name requests or commands. An
    error that was raised with its own message keeps that message. `extra` holds further texts for the templates, such
    as commands. They are not shortened.
    """
    kind = next((kind for kind in type(error).__mro__ if kind in sentences), None)
    if kind is None:
        return str(error)
    try:
        default_text = type(error).sentence(error.fields)
    except KeyError:
        return str(error)  # raised with its own message, and without the fields that the docstring names
    return _fill_fields(sentences[kind], error.fields, extra) if str(error) == default_text else str(error)


class NotFound(RecollectError):
    """The requested item does not exist in this store.

    The base class of errors that are raised if a requested item does not exist.
    """


class SessionNotFound(NotFound):
    """No session {session!r} in this store. store.list_sessions() lists all sessions; store.session({session!r})
    creates this one.

    Raised if the session does not exist. Next step: list sessions with `store.list_sessions()`, or create it with
    `store.session(id)`.
    """


class SessionInTrash(SessionNotFound):
    """Session {session!r} is in the trash. Call store.restore_session({session!r}) to restore it.

    Raised if the session is in the trash. Next step: `store.restore_session(id)`.
    """


class MessageNotFound(NotFound):
    """Session {session!r} has no message {message!r} on its active path. session.messages() lists the message ids,
    session.branches.list() the other branches.

    Raised if the message is on neither the active path nor the branch that its id names. Next step: read the ids with
    `session.messages()`.
    """


class BranchNotFound(NotFound):
    """Session {session!r} has no branch {branch!r}. session.branches.list() lists its branches.

    Raised if the session does not have this branch. Next step: list them with `session.branches.list()`.
    """


class TurnNotFound(NotFound):
    """Session {session!r} has no turn {turn!r}. session.turns.list() lists its turns.

    Raised if the turn does not exist because its session was erased. Next step: open a new turn.
    """


class ToolCallNotFound(NotFound):
    """Session {session!r} has no tool call {call_id!r} on its active path. Append the assistant message with the call
    before its result. session.tools.list() lists the calls.

    Raised if a result refers to a call that is not on this path. Next step: append the message with the call first.
    """


class ApprovalNotFound(NotFound):
    """No tool call waits for this approval in session {session!r}. It was already answered, or its turn has
    ended.

    Raised if no tool call waits for this approval. Next step: none: it was answered already, or its turn has ended.
    """


class CompactionNotFound(NotFound):
    """Session {session!r} has no such compaction to undo on its active path (requested: {round}).
    session.compactions.list() lists its compactions.

    Raised if the active path has no compaction to undo. Next step: list them with `session.compactions.list()`.
    """


class Conflict(RecollectError):
    """The store is not in the state that this change requires.

    The base class of errors that are raised if the store is not in the state that the change requires.
    """


class SessionExists(Conflict):
    """Session {session!r} already exists. Open it with store.session({session!r}), or choose another id.

    Raised if the id is in use. Next step: open the session, or choose another id.
    """


class SessionBusy(Conflict):
    """Another turn is open on this branch of session {session!r}. {holder} holds it until {until}, or longer if it
    writes again. Wait for it with turn(..., wait=seconds), work in session.fork(), or end it with turn(...,
    take_over=True).

    Raised if another turn is open on this branch. Next step: wait, fork, or pass `take_over=True`.
    """


class SessionTakenOver(SessionBusy):
    """Session {session!r} was taken over by another window ({holder}). Take it back with
    take_over=True, register your presence again with session.presence.arrive(), or continue in session.fork().

    Raised if another window took over the session of an agent. Next step: pass `take_over=True`, arrive again, or fork.
    """


class SessionHasForks(Conflict):
    """Session {session!r} has forks that share its messages: {forks}. Erase it with forks="keep" to keep the shared
    messages for them, or with forks="erase" to erase the forks too.

    Raised if the session to erase has forks. Next step: pass `forks="keep"` or `forks="erase"`.
    """


class StaleRevision(Conflict):
    """Session {session!r} is at revision {revision}, expected {expected}: it was changed in the meantime. Nothing was
    written. Read it again with session.refresh() and repeat the change if it still applies.

    Raised if the session has changed meanwhile. Next step: `session.refresh()`, then repeat the change if it still
    applies.
    """


class StaleRecord(Conflict):
    """Record {key!r} of kind {kind!r} is at revision {revision}, expected {expected}; 0 means that it does not exist.
    Nothing was written. Read it again with records.get() and repeat the change if it still applies.

    Raised if a record does not have the expected revision. Next step: read it again, then repeat the change if it still
    applies.
    """


class AmbiguousName(Conflict):
    """{name!r} matches {count} sessions: {matches}. Use a longer prefix of the id, or the full title.

    Raised if a name or a message key matches several sessions. Next step: use a longer prefix of the id, or the whole
    title; for a key, `session.message(key=...)`.
    """


class KeyReused(Conflict):
    """Idempotency key {key!r} was already used in session {session!r} with different content. Nothing was written. Use
    a new key.

    Raised if an idempotency key or a message key was used with different content. Next step: use a new key for new
    messages.
    """


class TurnExists(Conflict):
    """Idempotency key {key!r} was already used in session {session!r}; it opened turn {turn}. Nothing was written.
    session.messages() shows the answer.

    Raised if a turn was already opened with this key. Next step: none: `error.turn` is the id of that turn.
    """


class FileExists(Conflict):
    """{path} already exists, or is a database in use. Nothing was changed. Choose another name, or pass overwrite=True
    to replace a file that is not in use.

    Raised if a backup would replace a file, or a database in use. Next step: choose another name, or pass
    `overwrite=True`.
    """


class TurnClosed(Conflict):
    """Turn {turn} of session {session!r} is {status} and accepts no more messages. Its messages remain stored. Open a
    new turn, or add the message with session.append().

    Raised if the turn has ended, or was taken over. Next step: open a new turn, or use `session.append()`.
    """


class ToolCallAnswered(Conflict):
    """Tool call {call_id!r} of session {session!r} already has a different result, which is kept. Use a new call id for
    a new call.

    Raised if the call has another result. Next step: none: the first result stays; a new call needs a new id.
    """


class CompactionConflict(Conflict):
    """Session {session!r} was compacted, or a compaction was undone, while this summary was written. Nothing was
    stored. Call session.compact() again if it still applies.

    Raised if the session was compacted while the summary was written. Next step: call `session.compact()` again if it
    still applies.
    """


class ImportConflict(Conflict):
    """The database changed while it was compared with the file. Import the file again; the imported messages stay.

    Raised if other programs kept changing the sessions that a file is imported into. Next step: import the file again;
    the imported messages stay.
    """


class CopyConflict(Conflict):
    """Another process writes to the target, or a second copy runs. Stop it, then copy again: the copy resumes.

    Raised if another process writes to the target of a copy. Next step: stop it, then copy again: the copy resumes.
    """


class InvalidValue(RecollectError, ValueError):
    """The value cannot be stored.

    Raised if a value is invalid; also a `ValueError`. Next step: the message names the rule.
    """


class UnknownFormat(InvalidValue):
    """Unknown message format {format!r}. Use one of: {known}.

    Raised if the format does not exist. Next step: use one of `error.known`.
    """


class AmbiguousFormat(InvalidValue):
    """The message matches more than one format. Pass format=..., one of: {known}.

    Raised if the format cannot be detected. Next step: pass `format=`.
    """


class InvalidConfig(InvalidValue):
    """A setting is invalid. Run `recollect config` to see all settings and their sources, and `recollect config path`
    for the settings file.

    Raised if the configuration file or a variable has an unknown key or an invalid value; see `error.path` and
    `error.line`. Next step: correct it; [configuration.md] lists the settings.
    """


class UnreadableFile(InvalidValue):
    """The file of an import cannot be read. Correct the file and import it again.

    A file is damaged, too large, or cannot be opened. The report of the import names it, and the other files are
    imported.
    """


class StoreError(RecollectError):
    """The store cannot do this now.

    The base class of errors that are raised if the store cannot do this now.
    """


class StoreClosed(StoreError):
    """The store is closed. Open it again with recollect.open(). All acknowledged writes are on disk.

    Raised if the store is closed, or is in memory and was forked. Next step: open it again.
    """


class StoreLocked(StoreError):
    """{path} was locked by another process for more than {seconds:g} seconds. Nothing was written. Try again, or stop
    the process that holds the lock.

    Raised if another process held the file locked for longer than `timeout`. Next step: retry, or end that process.
    """


class StoreReadOnly(StoreError):
    """{path} is read-only. Check the permissions of the file and its folder, and that the file system is not mounted
    read-only.

    Raised if the file is read-only, for example on a [read-only file system][durability.md#a-read-only-file-system].
    Next step: check the permissions of the file and its folder.
    """


class StoreUnavailable(StoreError):
    """{path} cannot be opened or read: {reason}. Check that the folder exists, that you have write permission and that
    the disk works. No acknowledged write is lost.

    Raised if the file cannot be opened or read, or was removed or replaced while it was open. Next step: check the
    folder, the permissions and the disk.
    """


class DiskFull(StoreError):
    """The disk of {path} is full. Nothing was written. Free some space and try again. Everything stored before is still
    readable.

    Raised if the disk is full. Next step: free some space and retry; meanwhile you can read, export and
    [delete][durability.md#a-full-disk].
    """


class Corrupted(StoreError):
    """{path} is damaged: {reason}. Stop writing to it and restore a backup. If another program wrote to the file, its
    pages have no checksums: docs/reference/file-format.md describes how to accept them.

    Raised if the file is damaged. Next step: restore a backup, or see [file-format.md][file-format.md#checksums].
    """


class IndexDamaged(Corrupted):
    """The search index of {path} is damaged. No message is lost: the index is rebuilt from the messages. Search again,
    or call store.maintenance.reindex().

    Raised if the search index is damaged and could not be rebuilt. Next step: call `store.maintenance.reindex()`.
    """


class NotADatabase(StoreError):
    """{path} is not a Recollect database: {reason}. The file was not changed. Choose another path with RECOLLECT_DB or
    recollect.open(path).

    Raised if the file is not a Recollect database. Next step: choose another path; the file is unchanged.
    """


class SchemaTooNew(StoreError):
    """{path} was written by a newer Recollect: its schema version is {found}, this one supports up to {known}. The file
    was not changed. Upgrade with `pip install -U recollect`.

    Raised if a newer version of Recollect wrote the file. Next step: upgrade; the file is unchanged.
    """


class NetworkFileSystem(StoreError):
    """{path} is on a network file system ({kind}), where SQLite cannot rely on locks and shared memory, and a database
    can be corrupted. Put it on a local disk (RECOLLECT_DB=/path/on/this/machine), or use PostgreSQL.

    Raised if the file is on a network file system. Next step: move it to a local disk.
    """


class NotSupported(StoreError):
    """{what} is not supported on this kind of database. On PostgreSQL, use pg_dump and pg_restore for backups, VACUUM
    and pg_database_size() for disk space. `recollect db copy` copies the database to a SQLite file.

    Raised if the engine does not support the operation. Next step: use the tools of the database.
    """


class LimitReached(StoreError):
    """{what} has reached its limit of {limit:,}. Continue in a new session, or in another store.

    Raised if a branch has 4,294,967,295 messages, or a store 2,147,483,647 branches. Next step: continue in a new
    session or store.
    """


class ModelError(RecollectError):
    """{model} failed: {reason}. The conversation is stored. Send the message again, or choose another model.

    Raised if the model of an [agent][agent.md] failed. Next step: send the message again, or choose another model.
    """


class ModelNotConfigured(ModelError):
    """{model} cannot be used: {reason}. The model 'demo' needs no key and no network.

    Raised if a model has no key, its library is not installed, or its name is unknown. Next step: the message names the
    missing part.
    """


class BotError(RecollectError):
    """A chat platform rejected a request of the bot, or cannot be reached.

    The base class of errors that are raised if a chat platform rejected a request of the bot, or cannot be reached.
    """


class BotRejected(BotError):
    """{platform} rejected the bot: {reason}. No message is lost.

    Raised if a platform rejects a bot: the token is unknown, or another program reads its messages. Next step: the
    message names the next step.
    """


class RateLimited(BotError):
    """The platform limits the rate of messages. Try again in {seconds:g} seconds.

    Raised if a platform asks a bot to send fewer messages. Next step: the bot tries again after `error.seconds`.
    """

    seconds: float


class DeliveryFailed(BotError):
    """The platform rejected a message: {reason}.

    Raised if a platform does not accept a message of a bot. Next step: the bot tries again if `error.retryable` is
    true.
    """

    reason: str
    retryable: bool
    """Whether a retry can succeed: yes after a lost connection, no for a deleted chat."""


class NotConfirmed(RecollectError):
    """The command was not run, because it was not confirmed. Pass --yes to run it.

    Raised if a command needs a confirmation, and got none. Next step: pass `--yes`.
    """
