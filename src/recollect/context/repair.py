"""Mending the view of a conversation that is sent to a provider, so that the provider takes it.

A history that is sound goes through untouched, and finding that out is one quick pass. Otherwise it is mended in steps:
each message by itself (cleaning.py), calls and results (answering.py), roles (joining.py). Every step says what it did.
The stored messages are not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.context.pairs import is_call, is_reasoning, is_result
from recollect.context.rules import ANY, RULES, Rules
from recollect.model.message import Message
from recollect.model.part import DataPart, Part, ReasoningPart, TextPart, ToolResultPart
from recollect.model.repair import Repair

# Formats in which a block that we have no words for is in its place wherever it stands.
_KEPT = ("openai-responses", "ai-sdk", "ai-sdk-ui")


def mended(messages: Sequence[Message], format: str) -> tuple[Sequence[Message], list[Repair]]:
    """Give what a provider takes, and what was mended for it. Recollect's own form is not mended."""
    rules = RULES.get(format)
    if rules is None or is_sound(messages, rules):
        return messages, []
    return mend(messages, rules)


def problems(messages: Sequence[Message], format: str | None = None) -> list[Repair]:
    """List what is wrong with a conversation: for one provider, or whichever it is sent to."""
    return mend(messages, ANY if format is None else RULES.get(format, ANY))[1]


def mend(messages: Sequence[Message], rules: Rules) -> tuple[list[Message], list[Repair]]:
    """Take every step, whether it is needed or not."""
    from recollect.context import answering, cleaning, joining  # noqa: PLC0415  most histories are sound

    repairs: list[Repair] = []
    view = cleaning.clean(messages, rules, repairs)
    if rules.own_outputs:
        from recollect.context import consent  # noqa: PLC0415  only for one provider

        view = consent.leave_out(view, repairs)
    view = answering.answer(view, rules, repairs)
    view = cleaning.conclude(view, rules, repairs)
    if rules.alternates:
        view = joining.join(view, rules, repairs)
    if rules.user_first:
        view = joining.begin(view, repairs)
    if rules.no_blanks:
        view = cleaning.end(view, rules, repairs)
    return view, repairs


def is_sound(messages: Sequence[Message], rules: Rules) -> bool:
    """Say whether nothing needs to be mended, in one pass over the messages. In doubt the answer is no."""
    look = _Look(rules)
    alternates, apart, waiting = rules.alternates, rules.results_apart, look.waiting
    for message in messages:
        if message.state != "completed":
            return False
        parts, role, native = message.parts, message.role, message.native
        part = parts[0] if len(parts) == 1 and (native is None or not _lists_calls(native)) else None
        # A text, or a single result: nearly all messages are one of these, and need no further look.
        if type(part) is TextPart and role != "tool" and not (waiting and apart):
            if part.text and not part.text.isspace():
                if not alternates or look.follows(role, message):
                    continue
                return False
        elif type(part) is ToolResultPart and role == "tool":
            if part.call_id in waiting and look.follows(role, message):
                waiting.remove(part.call_id)
                continue
            return False
        if not look.further(message):
            return False
    return look.ended(messages)


def _is_about_consent(part: DataPart) -> bool:
    """Whether a provider asks here whether it may call a tool, or is told so."""
    return type(part.native) is dict and str(part.native.get("type")).startswith("mcp_approval")


def _lists_calls(native: dict[str, Any]) -> bool:
    """Whether calls were kept as they came, because one of them could not be read."""
    fields = native.get("fields")
    return bool(fields) and "tool_calls" in fields


class _Look:
    """What is known while a list of messages is looked through."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.waiting: set[str] = set()
        self.seen: set[str] = set()
        self.last: str | None = None
        self.gathers = False
        self.calls: list[str] = []
        self.called = False
        self.said = False

    def follows(self, role: str, message: Message) -> bool:
        """Take the role of the next message; whether it may come after the one before."""
        if not self.rules.alternates:
            return True
        if role == "system":
            if message.format == self.rules.format and self.last is not None:
                self.last = role  # one of another format is not written at all
            return True
        if role == "tool":
            # Results of another format are gathered into one message when they are written.
            gathers = message.format != self.rules.format and message.role == "tool"
            if self.last == "user" and not (gathers and self.gathers):
                return False
            self.gathers, self.last = gathers, "user"
            return True
        if role == self.last or (self.last is None and role != "user"):
            return False
        self.last, self.gathers = role, False
        return True

    def further(self, message: Message) -> bool:
        """Look at the parts of a message that is more than a text."""
        if message.native is not None and _lists_calls(message.native):
            return False
        if self.rules.unique == "message":
            self.seen = set()
        self.calls, self.called, self.said = [], False, False
        for part in message.parts:
            if is_call(part):
                if message.role != "assistant" or not self._takes(part, message):
                    return False
                self.calls.append(part.call_id)
                self.called = True
            elif is_result(part):
                if not self._answers(part.call_id, message):
                    return False
            elif not self._passes(part, message):
                return False
        return self._whole(message)

    def _passes(self, part: Part, message: Message) -> bool:
        """Look at one part that is neither a call nor a result."""
        if type(part) is TextPart:
            blank = not part.text or part.text.isspace()
            self.said = self.said or not blank
            return not (blank and self.rules.no_blanks)
        if type(part) is ReasoningPart:
            return message.role == "assistant"
        self.said = True
        if message.format != self.rules.format:
            return False
        if type(part) is not DataPart:
            return True
        asks = self.rules.own_outputs and _is_about_consent(part)
        return self.rules.format in _KEPT and not is_reasoning(part) and not asks

    def _answers(self, call_id: str, message: Message) -> bool:
        """Take a result; whether it is where it belongs."""
        if message.role == "assistant" and not self.rules.results_apart and call_id in self.calls:
            self.calls.remove(call_id)  # beside its call, as it is in this format
            return True
        if self.said or message.role == "assistant" or call_id not in self.waiting:
            return False
        self.waiting.remove(call_id)
        return True

    def _whole(self, message: Message) -> bool:
        parts, calls, said = message.parts, self.calls, self.said
        results = bool(parts) and is_result(parts[0])
        if (said or calls) and self.waiting and self.rules.results_apart:
            return False
        if not (said or self.called or results) or type(parts[-1]) is ReasoningPart:
            return False
        self.waiting |= set(calls)
        if said and results and message.format != self.rules.format:
            return False
        if message.role == "tool" and not results:
            return False
        return self.follows("tool" if results and not said else message.role, message)

    def _takes(self, part: Any, message: Message) -> bool:
        """Whether the id of a call, and its arguments, will do."""
        rules, call_id = self.rules, part.call_id
        if not call_id or call_id in self.seen or call_id in self.waiting:
            return False
        if rules.call_id is not None and not rules.call_id.fullmatch(call_id):
            return False
        if rules.objects and message.format == rules.format and type(part.arguments) is not dict:
            return False
        if rules.own_outputs and type(part.native) is dict and part.native.get("type") == "computer_call":
            return False  # only a picture answers it, which needs a closer look
        self.seen.add(call_id)
        return True

    def ended(self, messages: Sequence[Message]) -> bool:
        """Look at the end."""
        if self.waiting:
            return False
        if not self.rules.no_blanks or self.last != "assistant":
            return True
        spoken = next(message for message in reversed(messages) if message.role != "system")
        last = spoken.parts[-1]
        return type(last) is not TextPart or not last.text[-1].isspace()
