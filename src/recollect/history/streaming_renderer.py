"""The streaming renderer: renders a history from rows as they are read, without building Message objects.

It serves histories that need neither repair nor translation: nearly every history in the format in which it was
stored. It rejects the rest, which render.py then renders.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect import formats
from recollect.formats.remainder import MALFORMED
from recollect.history.render import History
from recollect.history.validate import RULES, ProviderValidator
from recollect.model.message import MessageTuple


class StreamingRenderer:
    """The history rendered so far, and whether it is complete."""

    def __init__(self, format: str) -> None:
        self.history = History()
        self.complete = False
        self._validator = ProviderValidator(RULES[format])
        self._put_message = formats.put_function(format)

    def take(self, messages: Sequence[MessageTuple]) -> bool:
        """Render the next messages. Return False if one of them needs repair or conversion."""
        accepts, put, history = self._validator.accepts, self._put_message, self.history
        try:
            for role, source_format, parts, native, state in messages:
                if not accepts(role, source_format, parts, native, state) or not put(
                    history, role, source_format, parts, native
                ):
                    return False
        except MALFORMED:  # a remainder that no format has produced; render.py drops it
            return False
        return True

    def end(self) -> bool:
        """Validate the end of the history. Return whether it needs no repair."""
        self.complete = self._validator.is_complete()
        return self.complete


def make_renderer(format: str) -> StreamingRenderer | None:
    """Return a renderer for a provider's format; None for a format without provider rules."""
    return StreamingRenderer(format) if type(format) is str and format in RULES else None
