"""A part: one piece of a message, in a typed envelope.

Every part may carry `native`, the provider's own block, kept only where our fields alone would not give the block
back equal, and `metadata`, which is the caller's.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from recollect.model.json import UNSET, decode, standard

CallStatus = Literal["pending", "running", "success", "error", "canceled"]
ResultStatus = Literal["success", "error", "canceled"]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind"):
    """What every part has."""

    native: Any = None
    metadata: dict[str, Any] | None = None


class TextPart(Envelope, frozen=True, kw_only=True, tag="text", gc=False):
    """Something said, by a person or an agent."""

    text: str


class ReasoningPart(Envelope, frozen=True, kw_only=True, tag="reasoning", gc=False):
    """What a model thought before it spoke."""

    text: str = ""


class ToolCallPart(Envelope, frozen=True, kw_only=True, tag="tool_call", gc=False):
    """A model asks for a tool.

    The arguments are kept in the form they came in: as a value (`arguments`) or as JSON text
    (`arguments_text`, which may be cut off or malformed).
    """

    call_id: str
    tool: str
    arguments: Any = UNSET
    arguments_text: str | None = None

    @property
    def input(self) -> Any:
        """The arguments as a value; the text itself where it is not JSON."""
        if self.arguments_text is None:
            return None if self.arguments is UNSET else self.arguments
        try:
            return decode(self.arguments_text)
        except (ValueError, RecursionError):
            return self.arguments_text


class AttachmentPart(Envelope, frozen=True, kw_only=True, tag="attachment", gc=False):
    """An image, a document or another file: its bytes as base64, where they are, or its text."""

    mime_type: str | None = None
    size: int | None = None
    name: str | None = None
    url: str | None = None
    data: str | None = None
    text: str | None = None


class DataPart(Envelope, frozen=True, kw_only=True, tag="data", gc=False):
    """Anything else: structured data, or a provider's block that Recollect has no words for."""

    data: Any = UNSET


Content = TextPart | AttachmentPart | DataPart


class ToolResultPart(Envelope, frozen=True, kw_only=True, tag="tool_result", gc=False):
    """What a tool answered: as text, as structured data, or as pieces of content."""

    call_id: str
    tool: str | None = None
    status: ResultStatus = "success"
    text: str | None = None
    data: Any = UNSET
    content: tuple[Content, ...] | None = None
    error_code: str | None = None
    error_message: str | None = None

    @property
    def output(self) -> str:
        """The result as text, whatever form it came in."""
        if self.text is not None:
            return self.text
        if self.content is not None:
            return "\n".join([piece.text for piece in self.content if not isinstance(piece, DataPart) and piece.text])
        if self.data is not UNSET:
            return standard(self.data)
        return self.error_message or ""


Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | AttachmentPart | DataPart
