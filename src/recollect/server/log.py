"""The server's log on standard error: one line for each request, failed login and failure.

No line contains what people or models wrote, a token, a cookie or a query string: of other libraries only the message
template is logged, and of an exception only its class, with the stack (without the exception's text) at level debug.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Collection, Generator
from typing import Any, TextIO
from urllib.parse import unquote

from recollect.model.humanize import escape_unprintable

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LOGGER_NAME = "recollect.server"
REPEAT_INTERVAL = 10.0
"""Seconds in which a repeated failure is logged once: often enough to notice, too rare to fill a disk."""

_log = logging.getLogger(LOGGER_NAME)
_AUTHORITY = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*", re.ASCII | re.IGNORECASE)
_LONGEST_PATH = 300  # characters of a path in one log line; longer ones are cut
_LONGEST_WORD = 100  # characters of a method or an owner in one log line
_MAX_QUEUED_LINES = 10_000  # lines, about 1 MB. The queue fills only if standard error is not read.
_FLUSH_TIMEOUT = 2.0  # seconds to write the last lines at the end; a blocked terminal must not delay the exit
_DEBUG_PATHS = ("/static/", "/favicon.ico", "/api/v1/health", "/api/v1/ready")


class LineFormatter(logging.Formatter):
    """Write a record as a line: the time in UTC, the level, the message, the class of the exception."""

    def __init__(self, *, stacks: bool) -> None:
        super().__init__()
        self._stacks = stacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the stack below it if stacks are enabled."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        if record.name == "recollect" or record.name.startswith("recollect."):
            message = record.getMessage()
        else:  # arguments of other libraries may be content
            message = f"{record.name}: {str(record.msg).strip().partition(chr(10))[0]}"
        error = record.exc_info[1] if record.exc_info else None
        cause = "" if error is None else f" ({type(error).__name__})"
        line = f"{now}.{int(record.msecs):03d}Z {record.levelname.lower()} {escape_unprintable(message)}{cause}"
        return line if error is None or not self._stacks else f"{line}\n{_stack(error)}"


def _stack(error: BaseException) -> str:
    """Return the stack of an exception and of its causes, without their texts, which may be content."""
    lines: list[str] = []
    visited_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited_ids:
        visited_ids.add(id(cause))
        lines.append(f"  {type(cause).__module__}.{type(cause).__name__}")
        lines += [line.rstrip("\n") for line in traceback.format_tb(cause.__traceback__)]
        cause = cause.__cause__ or cause.__context__
    return "\n".join(lines)


class QueuedHandler(logging.Handler):
    """Write lines in a separate thread: a paused terminal must not stop the server.

    If the reader falls too far behind, lines are dropped, and the next written line states how many.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_QUEUED_LINES)
        self._dropped_count = 0
        self._thread = threading.Thread(target=self._write, name="recollect-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record as a line."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped_count += 1
        except Exception:  # noqa: BLE001  a line that cannot be made must not fail the request
            self.handleError(record)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped_count, self._dropped_count = self._dropped_count, 0
            note = (
                f"({dropped_count} lines were dropped because standard error was not read.)\n" if dropped_count else ""
            )
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(f"{note}{line}\n")
                self._stream.flush()

    def close(self) -> None:
        """Write the queued lines, for at most _FLUSH_TIMEOUT."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(_FLUSH_TIMEOUT)
        super().close()


@contextlib.contextmanager
def to_stderr(level: str) -> Generator[None]:
    """Log to standard error while the context is active, including warnings and errors of other libraries."""
    number = LEVELS[level]
    handler = QueuedHandler(sys.stderr)
    handler.setFormatter(LineFormatter(stacks=number <= logging.DEBUG))
    root, previous_levels = logging.getLogger(), (logging.getLogger().level, _log.level)
    root.addHandler(handler)
    root.setLevel(max(number, logging.WARNING))
    _log.setLevel(number)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(previous_levels[0])
        _log.setLevel(previous_levels[1])
        handler.close()


def loggable_path(scope: Any, secrets: Collection[str]) -> str:
    """Return a request's path for the log: as sent, without host, query, fragment and known tokens."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    text = _AUTHORITY.sub("", re.split(r"[?#]", raw.decode("latin-1"), maxsplit=1)[0], count=1)
    plain = unquote(text)
    if any(secret in text or secret in plain for secret in secrets):
        return "(a path that contains a token)"
    return escape_unprintable(text if len(text) <= _LONGEST_PATH else text[:_LONGEST_PATH] + "...")


class RequestEntry:
    """One request in the access log."""

    def __init__(self, scope: Any, client: str, secrets: Collection[str], *, owners: bool) -> None:
        self._scope = scope
        self._secrets = secrets
        self._owners = owners
        self._start = time.monotonic()
        self.client = client
        self.status: int | None = None

    @property
    def request_line(self) -> str:
        """The method and the path of the request."""
        return f"{self._scope['method'][:_LONGEST_WORD]} {loggable_path(self._scope, self._secrets)}"

    def write(self) -> None:
        """Log the request: at debug for successful health checks and static files, at info otherwise."""
        is_success = self.status is not None and self.status < 400  # noqa: PLR2004
        level = logging.DEBUG if is_success and self._scope["path"].startswith(_DEBUG_PATHS) else logging.INFO
        if not _log.isEnabledFor(level):
            return
        account = self._scope["state"].get("account")
        owner = f" {escape_unprintable(account.owner[:_LONGEST_WORD])}" if self._owners and account is not None else ""
        milliseconds = (time.monotonic() - self._start) * 1000
        _log.log(level, "%s%s %s %s %.1f ms", self.client, owner, self.request_line, self.status or "-", milliseconds)


class BoundedLog:
    """Log repeated events without filling the disk: each key once per interval, and a limited number of keys."""

    _MAX_KEYS = 50  # keys per interval. Failures have few kinds; more keys are an attack.

    def __init__(self) -> None:
        self._entries: OrderedDict[object, tuple[float, int]] = OrderedDict()

    def log_event(
        self, level: int, key: object, message: str, *args: object, error: BaseException | None = None
    ) -> None:
        """Log an event. Count it instead if the same key was logged less than an interval ago."""
        now = time.monotonic()
        while (
            self._entries
            and next(iter(self._entries.values()))[0] + REPEAT_INTERVAL <= now
            and key not in self._entries
        ):
            self._entries.popitem(last=False)
        last_time, suppressed_count = self._entries.get(key, (None, 0))
        if last_time is not None and last_time + REPEAT_INTERVAL > now:
            self._entries[key] = (last_time, suppressed_count + 1)
            return
        if last_time is None and len(self._entries) >= self._MAX_KEYS:
            return
        self._entries[key] = (now, 0)
        self._entries.move_to_end(key)
        if suppressed_count:
            message, args = f"{message} (and %d more since the last line)", (*args, suppressed_count)
        _log.log(level, message, *args, exc_info=error)

    def log_failure(self, request_line: str, status: int, error: BaseException) -> None:
        """Log a request that failed with a server error."""
        self.log_event(logging.ERROR, (status, type(error)), "%s failed with %d", request_line, status, error=error)
