"""What the readers of documents share: the elements of a large JSON array, trees, drafts and originals.

A document of another tool may contain anything. Fields of uncertain type are read with json_fields.py.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from recollect.errors import InvalidValue, UnreadableFile
from recollect.model import json
from recollect.model.message import AttachmentPart, BasePart, DataPart, Draft, Part, TextPart
from recollect.sources.files import FileTree
from recollect.sources.json_fields import as_dict, as_text, session_id, title_text
from recollect.sources.source import (
    ENTRY_PREFIX,
    INJECTION_KEY,
    Environment,
    LineReader,
    Note,
    Original,
    SessionFound,
    SourceEvent,
    Transcript,
)

MAX_ELEMENT_BYTES = 256 << 20
"""The longest conversation of a document that is read. Text of a person's longest chats reaches some megabytes."""
MAX_NESTING = 200  # levels of a value in a message; a store accepts 500, and a message adds some of its own
_MAX_INTEGER_BITS = 4_096  # JSON of a store holds integers of 4,300 decimal digits
_MAX_QUESTION = 100  # characters of a question that becomes a title
_CHUNK_BYTES = 1 << 20  # large enough that the loop per chunk costs nothing, small next to a conversation

_MEDIA = frozenset([
    "png", "jpg", "jpeg", "gif", "webp", "bmp", "heic", "tif", "tiff", "svg", "ico", "wav", "mp3", "m4a", "ogg", "flac",
    "mp4", "mov", "webm", "pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "html", "htm", "css", "js", "py", "csv",
    "tsv", "dat", "bin", "exe", "zip", "tar", "7z", "woff", "woff2", "ttf",
])  # fmt: skip
"""The extensions of files that are never JSON documents: exports hold thousands of them."""
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_TOP_TOKEN = re.compile(rb'["{}\[\],]')
_INNER_TOKEN = re.compile(rb'["{}\[\]]')
_LINES_FILE = re.compile(r"\.(?:jsonl|ndjson)(?:\.zst|\.gz)?$", re.IGNORECASE)


class DocumentSource:
    """What the sources share whose data are documents."""

    copies_past = False

    def read_lines(self, tree: FileTree, transcript: Transcript, state: dict[str, Any] | None) -> LineReader:  # noqa: ARG002
        """Raise UnreadableFile: the source has no files of lines."""
        raise UnreadableFile(f"{transcript.name} must be read as a document, got a request to read lines. Use read().")


class ExportSource(DocumentSource):
    """What the sources share whose data are exports: files of conversations that their owner saves anywhere."""

    name: str

    def discover(self, environment: Environment) -> Sequence[Path]:  # noqa: ARG002  the same for every machine
        """Return no places: its owner chooses where an export is saved."""
        return ()

    def find_id(self, conversation: dict[str, Any]) -> str | None:
        """Return the id of a conversation; None for an entry that is not one."""
        raise NotImplementedError

    def read_entries(self, tree: FileTree, name: str, read: ReadConversation) -> Iterator[SourceEvent]:
        """Read the entries of a file, one at a time, each with its JSON text as its original.

        `read` receives a conversation, its session id and its place. Its first event is the SessionFound. An entry that
        is not a conversation becomes an archived session without messages, so that it is kept and can be exported.
        """
        counts: dict[str, int] = {}
        for element in document_elements(tree, name):
            if isinstance(element, Note):
                yield element
                continue
            if element.problem is not None:
                yield Note("malformed", name, element.problem)
            conversation = as_dict(element.value)
            tool_id = self.find_id(conversation)
            if tool_id is not None:
                events = iter(read(conversation, session_id(self.name, tool_id), name))
                event = next(events)
            else:
                events, event = iter(()), self._read_entry(element)
                yield Note("unknown", name, "An entry has no messages, such as the entry of a project.")
            assert isinstance(event, SessionFound)
            yield event
            yield Original(event.session, unique_name("conversation.json", event.session, counts), element.data)
            yield from events

    def _read_entry(self, element: Element) -> SessionFound:
        entry = as_dict(element.value)
        entry_id = (
            as_text(entry.get("id")) or as_text(entry.get("uuid")) or hashlib.sha256(element.data).hexdigest()[:32]
        )
        title = title_text(entry.get("title")) or title_text(entry.get("name"))
        session = session_id(self.name, f"{ENTRY_PREFIX}{entry_id}")
        return SessionFound(session, title=title, title_rank=2 if title else 0, archived=True)


ReadConversation = Callable[[dict[str, Any], str, str], Iterable[SourceEvent]]


class DamagedArray(Exception):
    """Internal: the end of a JSON array is missing; callers of elements() report it."""


def elements(file: IO[bytes], limit: int = MAX_ELEMENT_BYTES) -> Iterator[bytes | None]:
    """Yield the JSON text of each element of an array, while reading the file in chunks; None for one that is too long.

    The elements are not decoded, so each may be malformed. Raise DamagedArray at the end if the array is truncated.
    """
    scanner = _ArrayScanner(limit)
    while chunk := file.read(_CHUNK_BYTES):
        yield from scanner.feed(chunk)
        if scanner.depth == 0:
            return
    if scanner.depth or scanner.buffer.strip():
        raise DamagedArray("The JSON array is truncated.")


class _ArrayScanner:
    """Finds the elements of an array in chunks of its text. It keeps at most one element."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.buffer = bytearray()
        self.start = 0  # of the present element
        self.position = 0
        self.depth = -1  # before the array begins
        self.in_string = False
        self.is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield the elements that end in a chunk."""
        self.buffer += chunk
        if self.depth < 0:
            self.start = self.position = self.buffer.find(b"[") + 1
            if not self.start:
                return
            self.depth = 1
        while self.depth > 0:
            if self.in_string and not self._skip_string():
                break
            token = (_TOP_TOKEN if self.depth == 1 else _INNER_TOKEN).search(self.buffer, self.position)
            if token is None:
                self.position = len(self.buffer)
                break
            self.position = token.end()
            element = self._take_element() if self._ends_element(token[0]) else b""
            del token  # it holds the text
            if element != b"":
                yield element
            del element
        if self.position - self.start > self.limit:
            self.is_too_long, self.start = True, self.position
        self._drop()

    def _skip_string(self) -> bool:
        """Move behind the end of a string. Return False if more text is needed."""
        match = _STRING.match(self.buffer, self.position)
        assert match is not None
        self.position = match.end()
        if not self.buffer.startswith(b'"', self.position):
            return False
        self.position += 1
        self.in_string = False
        return True

    def _ends_element(self, token: bytes) -> bool:
        """Follow a token. Return whether an element ends before it."""
        if token == b'"':
            self.in_string = True
        elif token in b"{[":
            self.depth += 1
        elif token == b"," or self.depth == 1:
            self.depth = 1 if token == b"," else 0
            return True
        else:
            self.depth -= 1
        return False

    def _take_element(self) -> bytes | None:
        """Return the text of the element that ends here; None if it is too long."""
        with memoryview(self.buffer) as view:
            element = None if self.is_too_long else bytes(view[self.start : self.position - 1]).strip()
        self.is_too_long, self.start = False, self.position
        if self.position > _CHUNK_BYTES:
            self._drop()  # a long element is in memory once while it is read
        return element

    def _drop(self) -> None:
        """Remove the text before the present element."""
        del self.buffer[: self.start]
        self.position -= self.start
        self.start = 0


class Element(NamedTuple):
    """One conversation of a document: its JSON text, and its value if it could be decoded."""

    data: bytes
    value: Any
    problem: str | None = None


def document_elements(tree: FileTree, name: str) -> Iterator[Element | Note]:
    """Yield the elements of a file that holds a JSON array, a single object, or one object per line.

    A file that ends too early yields the elements before its end, and a Note.
    """
    is_started = False
    try:
        with closing(tree.open(name)) as file:
            start = file.peek(64)[:64].lstrip(b"\xef\xbb\xbf \t\r\n") if isinstance(file, io.BufferedReader) else b""
            for text in elements(file) if start.startswith(b"[") else _objects(file, name):
                if text is None:
                    yield Note("skipped", name, f"A conversation has more than {MAX_ELEMENT_BYTES:,} bytes.")
                elif text.strip():
                    yield read_element(text)
                is_started = True
    except DamagedArray as error:
        yield Note("malformed", name, str(error))
    except UnreadableFile as error:
        if not is_started:
            raise
        yield Note("malformed", name, f"The file cannot be read to its end: {error}")


def _objects(file: IO[bytes], name: str) -> Iterator[bytes | None]:
    """Yield the text of the object in a file, or that of each line if it holds one object per line."""
    line = file.readline(MAX_ELEMENT_BYTES + 1)
    if not _LINES_FILE.search(name) and _is_malformed(line):
        line += file.read(MAX_ELEMENT_BYTES + 1 - len(line))
    while line:
        is_too_long = len(line) > MAX_ELEMENT_BYTES
        yield None if is_too_long else line
        while is_too_long and line and not line.endswith(b"\n"):
            line = file.readline(_CHUNK_BYTES)
        line = file.readline(MAX_ELEMENT_BYTES + 1)


def _is_malformed(line: bytes) -> bool:
    """Return whether a line is not a whole JSON object: the file then holds one that continues in its next lines."""
    return not line.rstrip().endswith(b"}") or read_element(line).value is None


def read_element(text: bytes) -> Element:
    """Decode the JSON text of an element. The value is plain JSON data that a message can hold."""
    data = text.removeprefix(b"\xef\xbb\xbf").strip()
    problem: str | None = None
    try:
        try:
            value = json.decode(data)
        except UnicodeDecodeError:
            value = json.decode(data.decode("utf-8", "replace"))
            problem = "Bytes that are not UTF-8 were replaced."
    except (ValueError, RecursionError):
        return Element(data, None, "A conversation is not JSON.")
    value, is_changed = plain_data(value)
    return Element(data, value, "A value that a message cannot hold was replaced." if is_changed else problem)


def plain_data(value: Any) -> tuple[Any, bool]:
    """Return a decoded value as JSON data that a message can hold, and whether something was replaced for it."""
    try:
        return json.to_json_data(value), False
    except InvalidValue:
        return _replace_unusable(value, 0), True


def _replace_unusable(value: Any, depth: int) -> Any:
    """Replace numbers that JSON cannot represent and values that are nested too deeply by None."""
    if type(value) is float and not math.isfinite(value):
        return None
    if type(value) is int and value.bit_length() > _MAX_INTEGER_BITS:
        return None
    if type(value) is dict:
        if depth > MAX_NESTING:
            return None
        return {name: _replace_unusable(item, depth + 1) for name, item in value.items()}
    if type(value) is list:
        return None if depth > MAX_NESTING else [_replace_unusable(item, depth + 1) for item in value]
    return value


def first_question(drafts: Iterable[Draft]) -> str | None:
    """Return the first text of a person as a title, for a conversation without one."""
    for draft in drafts:
        for part in draft.parts if draft.role == "user" else ():
            if isinstance(part, TextPart) and not is_injected(part) and (title := title_text(part.text)):
                return title[:_MAX_QUESTION]
    return None


def is_injected(part: BasePart) -> bool:
    """Return whether a part is context that a tool added."""
    return part.metadata is not None and INJECTION_KEY in part.metadata


def mark_injected(parts: Iterable[Part], kind: str) -> list[Part]:
    """Return the parts, each marked as context of a kind."""
    return [msgspec.structs.replace(part, metadata={**(part.metadata or {}), INJECTION_KEY: kind}) for part in parts]


class TreeNode(NamedTuple):
    """A node of a tree, and the node that it follows; None for a root."""

    id: str
    parent: str | None


def order_tree(
    parents: Mapping[str, str | None], children: Mapping[str, Sequence[str]] | None = None
) -> list[TreeNode]:
    """Return the nodes with each parent before its children, siblings in the order of `children`, then of `parents`.

    A parent that does not exist counts as None, and a cycle is cut at its first node.
    """
    links = {node: parent if parent in parents else None for node, parent in parents.items()}
    _cut_cycles(links)
    following: dict[str | None, list[str]] = {}
    for node, parent in links.items():
        following.setdefault(parent, []).append(node)
    for parent, nodes in following.items():
        ranks = {node: index for index, node in enumerate((children or {}).get(parent or "", ()))}
        nodes.sort(key=lambda node, ranks=ranks: ranks.get(node, len(ranks)))
        nodes.reverse()
    stack = following.get(None, [])
    nodes_in_order: list[TreeNode] = []
    while stack:
        node = stack.pop()
        nodes_in_order.append(TreeNode(node, links[node]))
        stack.extend(following.get(node, ()))
    return nodes_in_order


def _cut_cycles(parents: dict[str, str | None]) -> None:
    """Make the first node of each cycle a root."""
    visits: set[str] = set()
    order = {node: index for index, node in enumerate(parents)}
    for start in order:
        path: list[str] = []
        on_path: set[str] = set()
        node: str | None = start
        while node is not None and node not in visits and node not in on_path:
            path.append(node)
            on_path.add(node)
            node = parents[node]
        if node is not None and node in on_path:
            cycle = path[path.index(node) :]
            parents[min(cycle, key=order.__getitem__)] = None
        visits.update(path)


def output_of(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the fields of a tool result that hold parts: one text, or pieces of content."""
    pieces = tuple([part for part in parts if isinstance(part, TextPart | AttachmentPart | DataPart)])
    if len(pieces) == 1 and isinstance(pieces[0], TextPart) and pieces[0].metadata is None:
        return {"text": pieces[0].text}
    return {"content": pieces} if pieces else {"text": ""}


def latency(times: Mapping[str, Any]) -> dict[str, int]:
    """Return the duration of a tool call as the fact that a store shows, if its start and its end are known."""
    start, end = times.get("started_at"), times.get("completed_at")
    return {"latency_ms": end - start} if type(start) is int and type(end) is int and end >= start else {}


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON text for an Original."""
    return json.encode_standard(value).encode()


def json_head(tree: FileTree, name: str) -> bytes:
    """Return the beginning of a file that may be a JSON document; b"" for other files. Media files are not opened."""
    extension = name.rpartition(".")[2].lower()
    if "." in name and extension in _MEDIA:
        return b""
    head = tree.head(name).removeprefix(b"\xef\xbb\xbf").lstrip()
    return head if head[:1] in (b"[", b"{") else b""


def unique_name(name: str, session: str, counts: dict[str, int]) -> str:
    """Return a name for an Original that no earlier one of the session has: a file may hold a conversation twice."""
    key = f"{session}/{name}"
    counts[key] = counts.get(key, 0) + 1
    if counts[key] == 1:
        return name
    stem, dot, extension = name.rpartition(".")
    return f"{stem}-{counts[key]}{dot}{extension}"


_SIGNATURES = (
    (b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"%PDF", "application/pdf"),
    (b"ID3", "audio/mpeg"), (b"OggS", "audio/ogg"),
)  # fmt: skip


def media_type(name: str | None, data: bytes | None) -> str | None:
    """Return the media type of a file by its first bytes, or by its name; None if both are unknown."""
    start = (data or b"")[:16]
    for signature, kind in _SIGNATURES:
        if start.startswith(signature):
            return kind
    if start[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(start[8:12])
    import mimetypes  # noqa: PLC0415  reads files of the system on first use

    return mimetypes.guess_type(name, strict=False)[0] if name else None
