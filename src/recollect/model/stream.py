"""The text of an answer as it arrives, gathered into parts, and when it is time to store it."""

from __future__ import annotations

from typing import Any, Literal

from recollect.errors import InvalidValue, displayed
from recollect.model.message import Draft, State
from recollect.model.part import Part, ReasoningPart, TextPart
from recollect.model.turn import failure

EVERY = 1.0
"""Seconds between two writes of an answer in progress."""

Kind = Literal["text", "reasoning"]
_PARTS: dict[str, Any] = {"text": TextPart, "reasoning": ReasoningPart}


class Gathering:
    """Chunks of text and reasoning, in the order they came."""

    def __init__(self, now: float) -> None:
        self._runs: list[tuple[Kind, list[str]]] = []
        self._stored = now
        self.dirty = False

    def add(self, text: str, kind: Kind, now: float) -> bool:
        """Take a chunk; say whether it is time to store."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"A chunk is a text; got {type(text).__name__}.")
        if type(kind) is not str or kind not in _PARTS:
            raise InvalidValue(f"A chunk is text or reasoning; got {displayed(kind)}.")
        if not self._runs or self._runs[-1][0] != kind:
            self._runs.append((kind, []))
        self._runs[-1][1].append(text)
        self.dirty = True
        return now - self._stored >= EVERY

    def stored(self, now: float) -> None:
        """Remember when it was last stored."""
        self._stored = now
        self.dirty = False

    def draft(self, state: State, error: Any = None) -> Draft:
        """Give what has been gathered as a message."""
        parts: tuple[Part, ...] = tuple(_PARTS[kind](text="".join(chunks)) for kind, chunks in self._runs)
        return Draft(role="assistant", parts=parts, state=state, error=error)

    def cut_off(self, error: BaseException) -> Draft:
        """Give what has been gathered when an error, or whoever cancelled, ended it."""
        if isinstance(error, Exception):
            return self.draft("error", failure(error))
        return self.draft("interrupted")
