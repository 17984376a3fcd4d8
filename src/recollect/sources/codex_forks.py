"""Codex conversations that continue others: the lines of other files, and the lines copied from them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple, Protocol

from recollect.errors import UnreadableFile
from recollect.model.json import decode
from recollect.sources.files import FileTree
from recollect.sources.json_fields import count_in, dict_in, read_time, text_in, time_in


class RolloutFile(NamedTuple):
    """The file of a conversation. It may be in another folder than the conversation that continues it."""

    tree: FileTree
    name: str


FindRollout = Callable[[str], RolloutFile | None]
"""Returns the file of a conversation by its id."""

TURN_STARTS = frozenset({"task_started", "turn_started"})
TURN_ENDS = frozenset({"task_complete", "turn_complete", "turn_aborted", "turn.completed"})
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_MAX_LINE = 32 << 20  # bytes of a line of another file, as for the lines that an import reads
_MAX_BASES = 50  # files that continue each other
_VERSION_WITH_TIME = 7  # the version of a UUID whose first 48 bits are a time
_TURN_LINE = re.compile(rb'"type"\s*:\s*"(?:turn_context|task_started|turn_started)"')


class LastMessage(Protocol):
    """A reader that knows its last message."""

    @property
    def last(self) -> str | None:
        """Return the key of the last message; None if there is none."""
        ...

    def read_line(self, number: int, line: Any) -> Iterable[Any]:
        """Read a line."""
        ...


class BaseLines:
    """The lines of other files with which a conversation begins, in their order."""

    def __init__(self, find: FindRollout, tree: FileTree, name: str) -> None:
        self._find, self._tree, self._name = find, tree, name
        self.thread: str | None = None
        """The id of the conversation of the nearest file; None if it was not found."""

    def read(self, base: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the lines of a base, after those of its own base."""
        files: list[tuple[RolloutFile, int | None]] = []
        visits = {RolloutFile(self._tree, self._name)}
        while len(files) < _MAX_BASES:
            thread = text_in(base, "thread_id")
            file = None if thread is None else self._find(thread)
            if file is None or file in visits:
                break
            visits.add(file)
            files.append((file, count_in(base, "end_ordinal_exclusive")))
            meta = dict_in(next(read_json_lines(*file), None), "payload")
            if self.thread is None:
                self.thread = text_in(meta, "id", "session_id") or thread
            base = dict_in(meta, "history_base")
        for file, end in reversed(files):
            for line in read_json_lines(*file):
                ordinal = count_in(line, "ordinal")
                if end is not None and ordinal is not None and ordinal >= end:
                    break
                if type(line) is dict and line.get("type") != "session_meta":
                    yield line


class CopiedLines:
    """The beginning of a file that Codex copied from another conversation, lines stamped again."""

    def __init__(self, find: FindRollout, tree: FileTree, name: str, meta: dict[str, Any], origin: str) -> None:
        self._find, self._tree, self._name, self._origin = find, tree, name, origin
        self._start = count_in(meta, "subagent_history_start_ordinal")
        self._created_at = _time_of_id(text_in(meta, "id")) or time_in(meta, "timestamp")
        self._turns: set[str] | None = None
        self.is_open = False
        """Whether the file may have ended inside the copied lines."""

    def find_last(self, copy: LastMessage) -> str | None:
        """Return the key of the last copied message; None if there is none."""
        has_copied_turn = False
        last: str | None = None
        for index, line in enumerate(read_json_lines(self._tree, self._name)):
            payload = dict_in(line, "payload")
            ordinal = count_in(line, "ordinal")
            if self._start is not None and ordinal is not None:
                if ordinal >= self._start:
                    return copy.last
            elif turn := _turn_of(line):
                if not self._is_copied(turn):
                    return (last or copy.last) if has_copied_turn else None
                has_copied_turn = True
            elif dict_in(line).get("type") == "turn_context" and not has_copied_turn:
                return None  # versions that wrote no ids of turns copied nothing
            if index:
                copy.read_line(index, line)
            if has_copied_turn and text_in(payload, "type") in TURN_ENDS:
                last = copy.last
        self.is_open = True
        return copy.last if has_copied_turn else None

    def _is_copied(self, turn: str) -> bool:
        """Return whether a turn is older than the conversation, by the time in its id, or is one of the origin."""
        time = _time_of_id(turn)
        if time is not None and self._created_at is not None:
            return time < self._created_at
        if self._turns is None:
            file = self._find(self._origin)
            is_other = file is not None and file != (self._tree, self._name)
            lines: Iterable[Any] = read_json_lines(*file, _TURN_LINE) if file is not None and is_other else ()
            self._turns = {each for line in lines if (each := _turn_of(line))}
        return turn in self._turns


def _turn_of(line: Any) -> str | None:
    """Return the turn that a line begins."""
    payload = dict_in(line, "payload")
    if dict_in(line).get("type") == "turn_context" or text_in(payload, "type") in TURN_STARTS:
        return text_in(payload, "turn_id")
    return None


def _time_of_id(value: str | None) -> int | None:
    """Return the time in a UUID of version 7."""
    if value is None or not UUID.fullmatch(value):
        return None
    parsed = uuid.UUID(value)
    return read_time(parsed.int >> 80) if parsed.version == _VERSION_WITH_TIME else None


def read_json_lines(tree: FileTree, name: str, only: re.Pattern[bytes] | None = None) -> Iterator[Any]:
    """Yield the JSON values of the lines of a file, also of one that ends too early. Malformed lines are skipped."""
    try:
        with closing(tree.open(name)) as file:
            while raw := file.readline(_MAX_LINE):
                if only is None or only.search(raw):
                    value = decode_line(raw)
                    if value is not None:
                        yield value
    except UnreadableFile:
        return


def decode_line(line: bytes) -> Any:
    """Return the JSON value of a line; None if it is malformed."""
    try:
        return decode(line) if line.strip() else None
    except (ValueError, RecursionError):
        return None
