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
from recollect.model.part import DataPart, Part, ReasoningPart, TextPart
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
    follows, apart = look.follows if rules.alternates else None, rules.results_apart
    for message in messages:
        parts = message.parts
        if message.state != "completed":
            return False
        if len(parts) == 1 and type(parts[0]) is TextPart and message.native is None and not (look.waiting and apart):
            text, role = parts[0].text, message.role
            if text and not text.isspace() and role != "tool":
                if follows is not None and not follows(role, message):
                    return False
                continue
        if not look.further(message):
            return False
    return look.ended(messages)


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
        fields = (message.native or {}).get("fields")
        if fields and "tool_calls" in fields:
            return False
        if self.rules.unique == "message":
            self.seen = set()
        self.calls, self.called, self.said = [], False, False
        return all(self._passes(part, message) for part in message.parts) and self._whole(message)

    def _passes(self, part: Part, message: Message) -> bool:
        """Look at one part."""
        if type(part) is TextPart:
            blank = not part.text or part.text.isspace()
            self.said = self.said or not blank
            return not (blank and self.rules.no_blanks)
        if is_call(part):
            self.calls.append(part.call_id)
            self.called = True
            return message.role == "assistant" and self._takes(part, message)
        if is_result(part):
            return self._answers(part.call_id, message)
        if type(part) is ReasoningPart:
            return message.role == "assistant"
        self.said = True
        if message.format != self.rules.format:
            return False
        return type(part) is not DataPart or (self.rules.format in _KEPT and not is_reasoning(part))

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
