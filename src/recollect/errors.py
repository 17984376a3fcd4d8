"""Every error that Recollect raises, as one tree.

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
    │   │   └── SessionTaken
    │   ├── SessionHasForks
    │   ├── StaleRevision
    │   ├── AmbiguousName
    │   ├── KeyReused
    │   ├── AlreadySaid
    │   ├── FileExists
    │   ├── TurnClosed
    │   ├── ToolCallAnswered
    │   └── CompactedMeanwhile
    ├── InvalidValue
    │   ├── UnknownFormat
    │   ├── FormatUnclear
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
    └── BotRefused

The docstring of an error is its message: a sentence that says what happened and what to do, with the error's
own fields in braces; a field that names several things is a tuple. A driver's error never reaches the caller; the
engine wraps it and keeps it as the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RecollectError(Exception):
    """Something went wrong in Recollect."""

    def __init__(self, message: str | None = None, /, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self.fields = fields
        super().__init__(message if message is not None else self.sentence(fields))

    @classmethod
    def sentence(cls, fields: dict[str, Any]) -> str:
        """Fill the fields into the docstring, on one line."""
        return _filled(" ".join((cls.__doc__ or cls.__name__).split()), fields)

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross a process boundary (multiprocessing, pytest-xdist) with the fields intact."""
        return (_rebuild, (type(self), str(self), self.fields))


def _rebuild(kind: type[RecollectError], message: str, fields: dict[str, Any]) -> RecollectError:
    return kind(message, **fields)


_LONGEST = 1_000  # characters of a path or a reason in a sentence
_FEW = 5  # items of a list that a sentence shows
_PLAIN = (str, int, float, bool, bytes, type(None))
_SHOWN = 200  # characters of a received value that a sentence shows


def displayed(value: Any) -> str:
    """Return a received value as a sentence shows it: short, and without calling code that could fail.

    The repr() of a deep list, of an integer with thousands of digits or of somebody's object raises errors of its own.
    """
    kind = type(value)
    if kind is str:
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}... ({len(value):,} characters)"
    if kind is int:
        return str(value) if value.bit_length() <= 4 * _SHOWN // 2 else "an integer of that size"
    if value is None or kind is bool or kind is float:
        return repr(value)
    if kind is bytes:
        return repr(value) if len(value) <= _SHOWN else f"{len(value):,} bytes"
    if kind in (list, tuple) and len(value) <= _FEW and all(type(each) in _PLAIN for each in value):
        text = ", ".join(map(displayed, value))
        return f"[{text}]" if kind is list else f"({text})"
    return f"an object of type {kind.__name__}"


class _Field:
    """A field of an error, as its sentence shows it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return displayed(self.value)

    def __str__(self) -> str:
        if type(self.value) is not str:
            return displayed(self.value)
        return self.value if len(self.value) <= _LONGEST else f"{self.value[:_LONGEST]}..."

    def __format__(self, spec: str, /) -> str:
        if type(self.value) is tuple:
            return ", ".join(format(_Field(each), spec) for each in self.value)
        return format(self.value, spec) if spec else str(self)


def _filled(text: str, fields: Mapping[str, Any]) -> str:
    return text.format(**{name: _Field(value) for name, value in fields.items()}) if fields else text


def told(error: RecollectError, sentences: Mapping[type[RecollectError], str], **more: Any) -> str:
    """Say what happened in the sentences of a surface: those of the errors name what a program calls, not a person.

    An error that was raised with words of its own keeps them. `more` is what the sentences name beside its fields.
    """
    kind = next((kind for kind in type(error).__mro__ if kind in sentences), None)
    if kind is None:
        return str(error)
    try:
        usual = type(error).sentence(error.fields)
    except KeyError:
        return str(error)  # words of its own do not need the fields of the docstring
    return _filled(sentences[kind], {**error.fields, **more}) if str(error) == usual else str(error)


class NotFound(RecollectError):
    """What was asked for is not in this store."""


class SessionNotFound(NotFound):
    """There is no session {session!r} in this store. store.list_sessions() shows what there is, and
    store.session({session!r}) creates it."""


class SessionInTrash(SessionNotFound):
    """Session {session!r} is in the trash. store.restore_session({session!r}) brings it back whole."""


class MessageNotFound(NotFound):
    """Session {session!r} has no message {message!r} on its active path. session.messages() shows the ids, and
    session.branches() the other paths."""


class BranchNotFound(NotFound):
    """Session {session!r} has no branch {branch!r}. session.branches() lists the ones it has."""


class TurnNotFound(NotFound):
    """Session {session!r} has no turn {turn!r}. session.turns() lists the ones it has."""


class ToolCallNotFound(NotFound):
    """Session {session!r} has no tool call {call_id!r} on its active path. Append the assistant message that made
    the call before its result; session.tool_calls() lists the calls that are known."""


class ApprovalNotFound(NotFound):
    """No tool call waits for this approval in session {session!r}. It was answered already, or its turn is over."""


class CompactionNotFound(NotFound):
    """Session {session!r} has no such compaction to undo on its active path (asked for: {round}). session.compactions()
    lists those it has."""


class Conflict(RecollectError):
    """The store is not in the state that this change needs."""


class SessionExists(Conflict):
    """There is a session {session!r} already. Open it with store.session({session!r}), or choose another id."""


class SessionBusy(Conflict):
    """Another turn is open on this branch of session {session!r} (held by {holder}, until {until} unless it writes
    again). Wait for it with turn(..., wait=seconds), work beside it on session.fork(), or end it with
    turn(..., take_over=True)."""


class SessionTaken(SessionBusy):
    """Session {session!r} was taken over by another window ({holder}). Take it back with take_over=True, arrive in it
    again, or go on in session.fork()."""


class SessionHasForks(Conflict):
    """Session {session!r} has forks that share its past: {forks}. Erase it with forks="keep" to leave them the
    shared past, or with forks="erase" to erase them too."""


class StaleRevision(Conflict):
    """Session {session!r} is at revision {revision}, not {expected}: someone changed it meanwhile. Read it again
    (session.refresh()) and repeat the change if it still applies. Nothing was written."""


class AmbiguousName(Conflict):
    """{name!r} fits {count} sessions: {matches}. Give more of the id, or the whole title."""


class KeyReused(Conflict):
    """The idempotency key {key!r} was used in session {session!r} for other content. Use a new key for new
    messages. Nothing was written."""


class AlreadySaid(Conflict):
    """This was said in session {session!r} before, under the key {key!r}: it opened turn {turn}. Nothing was written.
    session.messages() shows what was answered."""


class FileExists(Conflict):
    """There is a file {path} already, or a database that is in use. It was left as it is. Choose another name, or say
    overwrite=True to replace a file that nobody uses."""


class TurnClosed(Conflict):
    """Turn {turn} of session {session!r} is {status} and takes no more steps. What it stored is kept. Open a new
    turn, or add the message with session.append()."""


class ToolCallAnswered(Conflict):
    """Tool call {call_id!r} of session {session!r} has another result already. The first one is kept; a new call
    needs a new call id."""


class CompactedMeanwhile(Conflict):
    """Session {session!r} was compacted, or a compaction of it undone, while this summary was made. Nothing was
    written: call session.compact() again if it still applies."""


class InvalidValue(RecollectError, ValueError):
    """A value that Recollect can not store."""


class UnknownFormat(InvalidValue):
    """There is no message format {format!r}. The formats are: {known}."""


class FormatUnclear(InvalidValue):
    """This message could be of more than one format. Say which one with format=..., one of: {known}."""


class InvalidConfig(InvalidValue):
    """A setting can not be read. `recollect config` shows the settings and where each comes from, and
    `recollect config path` which file they are in."""


class StoreError(RecollectError):
    """The store can not do this now."""


class StoreClosed(StoreError):
    """This store is closed. Open it again with recollect.open(). Everything acknowledged before is on disk."""


class StoreLocked(StoreError):
    """Another process kept {path} locked for more than {seconds:g} seconds. Nothing was written: try again, or end the
    process that holds it."""


class StoreReadOnly(StoreError):
    """{path} can be read but not written. Check the permissions of the file and its folder and that the file system
    is not mounted read-only."""


class StoreUnavailable(StoreError):
    """{path} can not be opened or read: {reason}. Check that the folder exists, that you may write in it and that the
    disk works. Nothing acknowledged is lost."""


class DiskFull(StoreError):
    """The disk under {path} is full. Nothing of this change was written; free some space and try again. Everything
    stored before can still be read."""


class Corrupted(StoreError):
    """{path} is damaged: {reason}. Stop writing to it and restore a backup. Where another program wrote to the file,
    its pages lack their checksums: docs/format.md says how to accept them."""


class IndexDamaged(Corrupted):
    """The search index of {path} is damaged. Nothing is lost: it is made anew from the messages. Search again, or call
    reindex()."""


class NotADatabase(StoreError):
    """{path} is not a Recollect database: {reason}. Choose another path with RECOLLECT_DB or recollect.open(path). The
    file was left as it is."""


class SchemaTooNew(StoreError):
    """{path} was written by a newer Recollect (schema {found}; this one knows up to {known}). Upgrade with
    `pip install -U recollect`. The file was left as it is."""


class NetworkFileSystem(StoreError):
    """{path} is on a network file system ({kind}), where SQLite can not rely on locks and shared memory and a
    database can be corrupted. Put it on a local disk (RECOLLECT_DB=/path/on/this/machine), or use PostgreSQL."""


class NotSupported(StoreError):
    """{what} is not there for this kind of store. Use the tools that its database brings: on PostgreSQL, pg_dump and
    pg_restore for backups, VACUUM and pg_database_size() for space. `recollect db copy` makes a file of it.
    """


class LimitReached(StoreError):
    """{what} has reached its limit of {limit:,}. Go on in a new session, or in another store."""


class ModelError(RecollectError):
    """{model} could not answer: {reason}. What was said is kept; say it again, or choose another model."""


class ModelNotConfigured(ModelError):
    """{model} can not be asked: {reason}. The model 'demo' needs no key and no network."""


class BotRefused(RecollectError):
    """{platform} does not let the bot in: {reason}. Nothing that was said is lost."""
