"""The streaming renderer: renders a history from rows as they are read, without building Message objects.

It serves histories that need neither repair nor translation: nearly every history in the format in which it was
stored. From the first message that needs either, it only collects the rest, and the messages are rendered at the end.
Without repair, it serves only formats in which no message depends on another one.
"""

from __future__ import annotations

from recollect import formats
from recollect.formats.registry import renders_each_apart
from recollect.formats.remainder import MALFORMED
from recollect.history.render import History, render_history
from recollect.history.validate import ProviderValidator
from recollect.model.message import Message, MessageColumns


class StreamingRenderer:
    """The history of the messages taken so far. After end(), it is complete."""

    def __init__(self, format: str, *, repair: bool = True) -> None:
        self.history = History()
        self.complete = False
        self._format = format
        self._repair = repair
        self._validator = ProviderValidator(formats.load_rules(format)) if repair else None
        self._put_message = formats.put_function(format)
        self._is_streaming = True
        self._pages: list[tuple[int, MessageColumns]] = []

    def take(self, branch: int, messages: MessageColumns) -> None:
        """Render the next messages of a branch, unless repair or translation is needed."""
        self._pages.append((branch, messages))
        self._is_streaming = self._is_streaming and self._stream(messages)

    def _stream(self, messages: MessageColumns) -> bool:
        """Render messages. Return False if one of them needs repair or translation."""
        put, history = self._put_message, self.history
        accepts = None if self._validator is None else self._validator.accepts
        try:
            for role, source_format, parts, native, state in zip(*messages[1:], strict=True):
                if accepts is not None and not accepts(role, source_format, parts, native, state):
                    return False
                if not put(history, role, source_format, parts, native):
                    return False
        except MALFORMED:  # a remainder that no format has produced; repair drops it
            return False
        return True

    def end(self) -> None:
        """Complete the history."""
        if not self._is_streaming or not (self._validator is None or self._validator.is_complete()):
            self.history = render_history(self._messages(), self._format, repair=self._repair)
        self.complete = True

    def _messages(self) -> list[Message]:
        """Return the messages with the fields that provider formats read."""
        return [
            Message(branch, position, role, parts, created_at_ms=0, format=source_format, native=native, state=state)
            for branch, page in self._pages
            for position, role, source_format, parts, native, state in zip(*page, strict=True)
        ]


def make_renderer(format: str, *, repair: bool) -> StreamingRenderer | None:
    """Return a renderer for a format; None if it has no provider rules, or if without repair messages are joined."""
    serves = formats.is_provider(format) if repair else renders_each_apart(format)
    return StreamingRenderer(format, repair=repair) if serves else None
