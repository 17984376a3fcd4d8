"""The view of a conversation that the next model call needs, in the provider's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect import formats
from recollect.errors import UnknownFormat
from recollect.model.message import Message
from recollect.model.repair import Repair


class History(list[Any]):
    """Messages as plain dicts, and beside them what was mended in this view to make it acceptable.

    The dicts are typed as Any, so that a type checker accepts them where an SDK expects TypedDicts of its own.
    """

    repairs: list[Repair]

    def __init__(self, messages: Sequence[dict[str, Any]] = (), repairs: Sequence[Repair] = ()) -> None:
        super().__init__(messages)
        self.repairs = list(repairs)


def history(messages: Sequence[Message], format: str, *, repair: bool = True) -> History:
    """Write messages in a provider's form, mended where the provider would refuse them."""
    if type(format) is not str:
        raise UnknownFormat(format=format, known=formats.FORMATS)
    if not repair:
        return History(formats.write(messages, format))
    from recollect.context.repair import mended  # noqa: PLC0415  only where a history is asked for

    view, repairs = mended(messages, format)
    return History(formats.write(view, format), repairs)
