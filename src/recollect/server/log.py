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

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
NAME = "recollect.server"
INTERVAL = 10.0
"""Seconds in which a repeated failure is logged once."""

_log = logging.getLogger(NAME)
_AUTHORITY = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*", re.ASCII | re.IGNORECASE)
_LONGEST_PATH = 300
_LONGEST_WORD = 100
_WAITING = 10_000  # lines, about 1 MB. More than that wait only if standard error is not read.
_PATIENCE = 2.0  # seconds that the last lines may take at the end
_QUIET = ("/static/", "/favicon.ico", "/api/v1/health", "/api/v1/ready")


def escaped(text: str) -> str:
    """Return a text in which everything that is not printable is escaped, so that it stays one line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class LineFormatter(logging.Formatter):
    """Write a record as a line: the time in UTC, the level, the message, the class of the exception."""

    def __init__(self, *, stacks: bool) -> None:
        super().__init__()
        self._stacks = stacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the stack below it if stacks are wanted."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        if record.name == "recollect" or record.name.startswith("recollect."):
            message = record.getMessage()
        else:  # the arguments of others may be content
            message = f"{record.name}: {str(record.msg).strip().partition(chr(10))[0]}"
        error = record.exc_info[1] if record.exc_info else None
        cause = "" if error is None else f" ({type(error).__name__})"
        line = f"{now}.{int(record.msecs):03d}Z {record.levelname.lower()} {escaped(message)}{cause}"
        return line if error is None or not self._stacks else f"{line}\n{_stack(error)}"


def _stack(error: BaseException) -> str:
    """Return the stack of an exception and of its causes, without their texts, which may be content."""
    lines: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        lines.append(f"  {type(cause).__module__}.{type(cause).__name__}")
        lines += [line.rstrip("\n") for line in traceback.format_tb(cause.__traceback__)]
        cause = cause.__cause__ or cause.__context__
    return "\n".join(lines)


class QueuedHandler(logging.Handler):
    """Write lines in a thread of its own: a terminal that is paused must not stop the server.

    If the reader falls too far behind, lines are left out, and the next one that is written says how many.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(_WAITING)
        self._lost = 0
        self._thread = threading.Thread(target=self._write, name="recollect-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record as a line."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._lost += 1
        except Exception:  # noqa: BLE001  a line that cannot be made must not fail the request
            self.handleError(record)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            lost, self._lost = self._lost, 0
            note = f"({lost} lines were left out here: standard error was not read.)\n" if lost else ""
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(f"{note}{line}\n")
                self._stream.flush()

    def close(self) -> None:
        """Write what is queued, for a moment at most."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(_PATIENCE)
        super().close()


@contextlib.contextmanager
def to_stderr(level: str) -> Generator[None]:
    """Log on standard error while this is entered. Other libraries' warnings and errors are logged too."""
    number = LEVELS[level]
    handler = QueuedHandler(sys.stderr)
    handler.setFormatter(LineFormatter(stacks=number <= logging.DEBUG))
    root, before = logging.getLogger(), (logging.getLogger().level, _log.level)
    root.addHandler(handler)
    root.setLevel(max(number, logging.WARNING))
    _log.setLevel(number)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        _log.setLevel(before[1])
        handler.close()


def shown_path(scope: Any, secrets: Collection[str]) -> str:
    """Return a request's path as it may be logged: as it was sent, without host, query, fragment and known tokens."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    text = _AUTHORITY.sub("", re.split(r"[?#]", raw.decode("latin-1"), maxsplit=1)[0], count=1)
    plain = unquote(text)
    if any(secret in text or secret in plain for secret in secrets):
        return "(a path that contains a token)"
    return escaped(text if len(text) <= _LONGEST_PATH else text[:_LONGEST_PATH] + "...")


class RequestEntry:
    """What the access log says of one request."""

    def __init__(self, scope: Any, client: str, secrets: Collection[str], *, owners: bool) -> None:
        self._scope = scope
        self._secrets = secrets
        self._owners = owners
        self._begun = time.monotonic()
        self.client = client
        self.status: int | None = None

    @property
    def asked(self) -> str:
        """The method and the path."""
        return f"{self._scope['method'][:_LONGEST_WORD]} {shown_path(self._scope, self._secrets)}"

    def write(self) -> None:
        """Log the request: at debug if it is a check or a file of the page that succeeded, at info otherwise."""
        succeeded = self.status is not None and self.status < 400  # noqa: PLR2004
        level = logging.DEBUG if succeeded and self._scope["path"].startswith(_QUIET) else logging.INFO
        if not _log.isEnabledFor(level):
            return
        account = self._scope["state"].get("account")
        owner = f" {escaped(account.owner[:_LONGEST_WORD])}" if self._owners and account is not None else ""
        took = (time.monotonic() - self._begun) * 1000
        _log.log(level, "%s%s %s %s %.1f ms", self.client, owner, self.asked, self.status or "-", took)


class BoundedLog:
    """Log repeated events so that nobody can fill the disk with them: each key once per interval, few keys at all."""

    _KEYS = 50

    def __init__(self) -> None:
        self._said: OrderedDict[object, tuple[float, int]] = OrderedDict()

    def say(self, level: int, key: object, message: str, *args: object, error: BaseException | None = None) -> None:
        """Log an event, unless the same key was logged less than an interval ago; then it is counted."""
        now = time.monotonic()
        while self._said and next(iter(self._said.values()))[0] + INTERVAL <= now and key not in self._said:
            self._said.popitem(last=False)
        last, left_out = self._said.get(key, (None, 0))
        if last is not None and last + INTERVAL > now:
            self._said[key] = (last, left_out + 1)
            return
        if last is None and len(self._said) >= self._KEYS:
            return
        self._said[key] = (now, 0)
        self._said.move_to_end(key)
        if left_out:
            message, args = f"{message} (and %d more since the last line)", (*args, left_out)
        _log.log(level, message, *args, exc_info=error)

    def failed(self, asked: str, status: int, error: BaseException) -> None:
        """Log that a request failed on the server's side."""
        self.say(logging.ERROR, (status, type(error)), "%s failed with %d", asked, status, error=error)
