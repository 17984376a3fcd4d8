"""Errors as problem+json (RFC 9457), with codes that stay: a client may rely on `code`, a person reads `detail`."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec

from recollect import errors
from recollect.model import json

TYPE = "application/problem+json"
_TOLD = (str, int, float, list, tuple)  # a tuple is a list in JSON

_STATUS: tuple[tuple[type[errors.RecollectError], int], ...] = (
    (errors.StaleRevision, 412),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.InvalidValue, 400),
    (errors.NotSupported, 501),
    (errors.DiskFull, 507),
    (errors.LimitReached, 507),
    (errors.StoreError, 503),
    (errors.ModelNotConfigured, 409),
    (errors.ModelError, 502),
)

# The library's own sentences name its methods; here the same help is a request. `{at}` is the session's own path.
_WORDS: dict[type[errors.RecollectError], str] = {
    errors.SessionNotFound: "There is no session {session!r} here. GET /sessions lists them all, PUT {at} makes it.",
    errors.SessionInTrash: "Session {session!r} is in the trash. POST {at}/restore brings it back whole.",
    errors.MessageNotFound: (
        "Session {session!r} has no message {message!r} on its active path. GET {at}/messages shows the ids, and GET "
        "{at}/branches the other paths."
    ),
    errors.BranchNotFound: "Session {session!r} has no branch {branch!r}. GET {at}/branches lists the ones it has.",
    errors.TurnNotFound: "Session {session!r} has no turn {turn!r}. GET {at}/turns lists the ones it has.",
    errors.ToolCallNotFound: (
        "Session {session!r} has no tool call {call_id!r} on its active path. Append the assistant message that made "
        "the call before its result; GET {at}/tool-calls lists the calls that are known."
    ),
    errors.ApprovalNotFound: (
        "No tool call waits for this approval in session {session!r}: it was answered already, or its turn is over. "
        "GET {at}/approval shows the one that waits."
    ),
    errors.CompactionNotFound: (
        "Session {session!r} has no compaction {round} to undo on its active path. GET {at}/compactions lists those it "
        "has."
    ),
    errors.SessionExists: "There is a session {session!r} already. Open it with PUT {at}, or choose another id.",
    errors.SessionBusy: (
        "Another turn is open on this branch of session {session!r} (held by {holder}, until {until} unless it writes "
        "again). Ask again later, work beside it after POST {at}/fork, or end it with `take_over`."
    ),
    errors.SessionTaken: (
        "Session {session!r} was taken over by another window ({holder}). Take it back with `take_over`, or go on "
        "after POST {at}/fork."
    ),
    errors.SessionHasForks: (
        "Session {session!r} has forks that share its past: {forks}. Erase it with `forks` set to `keep` to leave them "
        "the shared past, or to `erase` to erase them too."
    ),
    errors.StaleRevision: (
        "Session {session!r} is at revision {revision}, not {expected}: someone changed it meanwhile. Read it again "
        "and repeat the change if it still applies. Nothing was written."
    ),
    errors.AlreadySaid: (
        "This was said in session {session!r} before, under the key {key!r}: it opened turn {turn}. Nothing was "
        "written. GET {at}/messages shows what was answered."
    ),
    errors.TurnClosed: (
        "Turn {turn} of session {session!r} is {status} and takes no more steps. What it stored is kept. Open a new "
        "turn, or add the message with POST {at}/messages."
    ),
    errors.CompactedMeanwhile: (
        "Session {session!r} was compacted, or a compaction of it undone, while this summary was made. Nothing was "
        "written: send it again if it still applies."
    ),
    errors.StoreClosed: "The server is stopping. Start it again: everything acknowledged is on disk.",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong: a code that stays, and a sentence that says what to do."""

    status: int
    code: str
    title: str
    detail: str
    type: str = "about:blank"
    fields: dict[str, Any] | None = None

    def body(self) -> bytes:
        """Write it as JSON; it may tell of a text with half of a surrogate pair in it."""
        return json.standard(msgspec.to_builtins(self)).encode()


def status_of(error: errors.RecollectError) -> int:
    """Say with which HTTP status an error is answered."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def code_of(error: errors.RecollectError) -> str:
    """Name an error for programs: SessionNotFound is session-not-found."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()


def coded(status: int, code: str, detail: str, fields: dict[str, Any] | None = None) -> Problem:
    """Make a problem; its title is its code in words."""
    title = code.replace("-", " ").capitalize()
    return Problem(status=status, code=code, title=title, detail=detail, fields=fields)


def problem(error: errors.RecollectError) -> Problem:
    """Say what a client is told about an error."""
    fields = {name: value for name, value in error.fields.items() if isinstance(value, _TOLD)}
    return coded(status_of(error), code_of(error), _detail(error), fields or None)


def _detail(error: errors.RecollectError) -> str:
    """Say it in requests where the library says it in methods."""
    session = error.fields.get("session")
    at = f"/sessions/{quote(session, safe='', errors='replace')}" if isinstance(session, str) else ""
    return errors.told(error, _WORDS, at=at)
