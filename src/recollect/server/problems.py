"""Errors as problem+json (RFC 9457). `code` is stable and meant for programs, `detail` for people."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from recollect import errors
from recollect.model import json
from recollect.server.path_segments import encode_path_segment

PROBLEM_TYPE = "application/problem+json"
_JSON_TYPES = (str, int, float, list, tuple)  # a tuple is a list in JSON

_STATUS: tuple[tuple[type[errors.RecollectError], int], ...] = (
    (errors.StaleRevision, 412),
    (errors.StaleRecord, 412),
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

# The library's messages name its methods. These name HTTP requests instead. `{at}` is the session's path.
_DETAILS: dict[type[errors.RecollectError], str] = {
    errors.SessionNotFound: "There is no session {session!r}. GET /sessions lists all sessions, PUT {at} creates it.",
    errors.SessionInTrash: "Session {session!r} is in the trash. POST {at}/restore restores it.",
    errors.MessageNotFound: (
        "Session {session!r} has no message {message!r} on its active path. GET {at}/messages lists the ids, GET "
        "{at}/branches the other branches."
    ),
    errors.BranchNotFound: "Session {session!r} has no branch {branch!r}. GET {at}/branches lists its branches.",
    errors.TurnNotFound: "Session {session!r} has no turn {turn!r}. GET {at}/turns lists its turns.",
    errors.ToolCallNotFound: (
        "Session {session!r} has no tool call {call_id!r} on its active path. Append the assistant message that made "
        "the call before its result; GET {at}/tool-calls lists the calls."
    ),
    errors.ApprovalNotFound: (
        "No tool call waits for this approval in session {session!r}: it was already answered, or its turn has ended. "
        "GET {at}/approval shows the pending one."
    ),
    errors.CompactionNotFound: (
        "Session {session!r} has no compaction {round} to undo on its active path. GET {at}/compactions lists its "
        "compactions."
    ),
    errors.SessionExists: "Session {session!r} already exists. Open it with PUT {at}, or use another id.",
    errors.SessionBusy: (
        "Another turn is open on this branch of session {session!r} (held by {holder}, until {until} unless it "
        "writes again). Retry later, continue in a fork (POST {at}/fork), or end it with `take_over`."
    ),
    errors.SessionTakenOver: (
        "Session {session!r} was taken over by another window ({holder}). Take it back with `take_over`, or "
        "continue in a fork (POST {at}/fork)."
    ),
    errors.SessionHasForks: (
        "Session {session!r} has forks that share its messages: {forks}. Set `forks` to `keep` to leave them the "
        "shared messages, or to `erase` to erase them too."
    ),
    errors.StaleRevision: (
        "Session {session!r} is at revision {revision}, not {expected}: it was changed in the meantime. Nothing was "
        "written. Read it again and repeat the change if it still applies."
    ),
    errors.StaleRecord: (
        "Record {key!r} of kind {kind!r} is at revision {revision}, not {expected} (0: it does not exist). Nothing was "
        "written. Read it again and repeat the change if it still applies."
    ),
    errors.TurnExists: (
        "The key {key!r} was already used in session {session!r} and opened turn {turn}. Nothing was written. "
        "GET {at}/messages returns the answer."
    ),
    errors.TurnClosed: (
        "Turn {turn} of session {session!r} is {status} and accepts no more steps. Its messages are kept. Open a "
        "new turn, or append the message with POST {at}/messages."
    ),
    errors.CompactionConflict: (
        "Session {session!r} was compacted, or a compaction was undone, while this summary was created. Nothing was "
        "written. Send it again if it still applies."
    ),
    errors.StoreClosed: "The server is stopping. Acknowledged writes are on disk. Retry when it runs again.",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error: a stable code for programs, and a sentence with the next step for people."""

    status: int
    code: str
    title: str
    detail: str
    type: str = "about:blank"
    fields: dict[str, Any] | None = None

    def body(self) -> bytes:
        """Return the problem as JSON. Lone surrogates in its texts are escaped."""
        return json.encode_standard(msgspec.to_builtins(self)).encode()


def status_of(error: errors.RecollectError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


# Codes are public and outlive the class names. An error that is renamed keeps its old code here.
_STABLE_CODES: dict[type[errors.RecollectError], str] = {
    errors.AmbiguousFormat: "format-unclear",
    errors.BotRejected: "bot-refused",
    errors.CompactionConflict: "compacted-meanwhile",
    errors.ImportConflict: "stale",
    errors.SessionTakenOver: "session-taken",
    errors.TurnExists: "turn-exists",
}


def code_of(error: errors.RecollectError) -> str:
    """Return the problem code of an error: the class name in kebab case, unless _STABLE_CODES has an older one."""
    return _STABLE_CODES.get(type(error)) or re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()


def make_problem(status: int, code: str, detail: str, fields: dict[str, Any] | None = None) -> Problem:
    """Return a problem. Its title is its code in words."""
    title = code.replace("-", " ").capitalize()
    return Problem(status=status, code=code, title=title, detail=detail, fields=fields)


def problem_of(error: errors.RecollectError) -> Problem:
    """Return the problem that describes an error."""
    fields = {name: value for name, value in error.fields.items() if isinstance(value, _JSON_TYPES)}
    return make_problem(status_of(error), code_of(error), _detail_of(error), fields or None)


def _detail_of(error: errors.RecollectError) -> str:
    """Return the detail of an error, with HTTP requests instead of the library's methods."""
    session = error.fields.get("session")
    at = f"/sessions/{encode_path_segment(json.escape_surrogates(session))}" if isinstance(session, str) else ""
    return errors.format_error(error, _DETAILS, at=at)
