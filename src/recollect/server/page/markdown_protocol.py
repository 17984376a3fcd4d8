"""Messages between the server and the Markdown worker process: a length of 8 bytes, then MessagePack."""

from __future__ import annotations

from typing import IO, NamedTuple

_LENGTH = 8  # bytes of a frame's length


class RenderedText(NamedTuple):
    """A text as HTML, and how much of it stays unchanged when the text grows."""

    blocks: list[str]
    """HTML by block, each one element."""
    references: bool = False
    """Whether the text defines link references, which may be used anywhere in it."""
    stable: int = 0
    """Blocks from the start that no further text can change."""
    stable_length: int = 0
    """Characters of the text that the stable blocks contain."""


class RenderRequest(NamedTuple):
    """A normalized text to render. With `growing`, the reply states which blocks are stable."""

    text: str
    growing: bool = False


class RenderReply(NamedTuple):
    """The rendered text, whether it is plain text because rendering failed, and the CPU time in seconds."""

    rendered: RenderedText
    is_fallback: bool = False
    cpu: float = 0.0


def write_frame(file: IO[bytes], body: bytes) -> None:
    """Write the body of a request or a reply."""
    file.write(len(body).to_bytes(_LENGTH, "big") + body)
    file.flush()


def read_frame(file: IO[bytes]) -> bytes:
    """Read the body of a request or a reply; empty if the other side has exited."""
    head = file.read(_LENGTH)
    size = int.from_bytes(head, "big") if len(head) == _LENGTH else 0
    body = file.read(size)
    return body if len(body) == size else b""
