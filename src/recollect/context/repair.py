"""Mending the view of a conversation that is sent to a provider, so that the provider takes it.

A history that is sound goes through untouched (soundness.py finds that out). Otherwise it is mended in steps: each
message by itself (cleaning.py), calls and results (answering.py), roles (joining.py). Every step says what it did. The
stored messages are not changed.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from recollect import formats
from recollect.context import outputs
from recollect.context.rules import ANY, RULES, Rules
from recollect.context.soundness import is_sound
from recollect.model.message import Message
from recollect.model.repair import Repair


def mended(messages: Sequence[Message], format: str) -> tuple[Sequence[Message], list[Repair]]:
    """Give what a provider takes, and what was mended for it. Recollect's own form is not mended."""
    rules = RULES.get(format)
    if rules is None:
        return messages, []
    messages = _faithful(messages)
    return (messages, []) if is_sound(messages, rules) else mend(messages, rules)


def problems(messages: Sequence[Message], format: str | None = None) -> list[Repair]:
    """List what is wrong with a conversation: for one provider, or whichever it is sent to."""
    rules = ANY if format is None else RULES.get(format, ANY)
    return mend(_faithful(messages), rules)[1]


def _faithful(messages: Sequence[Message]) -> Sequence[Message]:
    """Leave out remainders that contradict what people are shown; nearly always there is none."""
    view = [formats.faithful(message) for message in messages]
    return messages if all(map(operator.is_, view, messages)) else view


def mend(messages: Sequence[Message], rules: Rules) -> tuple[list[Message], list[Repair]]:
    """Take every step, whether it is needed or not."""
    from recollect.context import answering, cleaning, joining  # noqa: PLC0415  most histories are sound

    repairs: list[Repair] = []
    view = cleaning.clean(messages, rules, repairs)
    if rules.own_outputs:
        from recollect.context import consent  # noqa: PLC0415  only for one provider

        view = outputs.retype(consent.leave_out(view, repairs), rules.format, repairs)
    view = answering.answer(view, rules, repairs)
    view = cleaning.conclude(view, rules, repairs)
    if rules.alternates:
        view = joining.join(view, rules, repairs)
    if rules.user_first:
        view = joining.begin(view, repairs)
    if rules.no_blanks:
        view = cleaning.end(view, rules, repairs)
    return view, repairs
