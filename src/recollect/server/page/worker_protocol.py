"""The messages between the server and the process that renders Markdown: a length in 8 bytes, then MessagePack."""

from __future__ import annotations

from typing import IO, NamedTuple

_LENGTH = 8


class Rendered(NamedTuple):
    """A text as HTML, and how much of it stays as it is when the text grows."""

    blocks: list[str]
    """HTML by block, each one element."""
    references: bool = False
    """Whether the text defines link references, which may be used anywhere in it."""
    settled: int = 0
    """Blocks from the start that no further text can change."""
    settled_at: int = 0
    """Characters that the settled blocks are made of."""


class Request(NamedTuple):
    """A normalized text to render; `growing` asks which of its blocks are settled."""

    text: str
    growing: bool = False


class Reply(NamedTuple):
    """The rendered text, whether rendering it was given up, and the CPU time that it took in seconds."""

    rendered: Rendered
    gave_up: bool = False
    cpu: float = 0.0


def write_frame(file: IO[bytes], body: bytes) -> None:
    """Write the body of a request or a reply."""
    file.write(len(body).to_bytes(_LENGTH, "big") + body)
    file.flush()


def read_frame(file: IO[bytes]) -> bytes:
    """Read the body of a request or a reply; empty when the other side is gone."""
    head = file.read(_LENGTH)
    size = int.from_bytes(head, "big") if len(head) == _LENGTH else 0
    body = file.read(size)
    return body if len(body) == size else b""
