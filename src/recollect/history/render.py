"""Rendering of a history in a provider's format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect import formats
from recollect.model.message import Message, Repair


class History(list[Any]):
    """The messages of a model-visible history: a list of plain dicts.

    - `repairs`: a list of [Repair], in no particular order. It is empty if nothing was repaired.

    The dicts are typed as `Any`, so that a type checker accepts them where an SDK expects TypedDicts of its own.
    """

    repairs: list[Repair]

    def __init__(self, messages: Sequence[dict[str, Any]] = (), repairs: Sequence[Repair] = ()) -> None:
        super().__init__(messages)
        self.repairs = list(repairs)


def render_history(messages: Sequence[Message], format: str, *, repair: bool = True) -> History:
    """Render messages in a provider's format, repaired if the provider would refuse them."""
    format = formats.check_format(format)
    if not repair:
        return History(formats.write(messages, format))
    from recollect.history.repair import repair_history  # noqa: PLC0415  not needed to read or write messages

    view, repairs = repair_history(messages, format)
    return History(formats.write(view, format), repairs)
