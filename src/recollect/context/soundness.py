"""Finding out whether a history needs to be mended at all, in one quick pass. In doubt the answer is that it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.context import outputs
from recollect.context.pairs import is_reasoning
from recollect.context.rules import Rules
from recollect.model.line import line
from recollect.model.message import Message
from recollect.model.part import DataPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

Parts = Sequence[Part]

# Formats in which a block that we have no words for is in its place wherever it stands.
_KEPT = ("openai-responses", "ai-sdk", "ai-sdk-ui")


def is_sound(messages: Sequence[Message], rules: Rules) -> bool:
    """Say whether nothing in a list of messages needs to be mended."""
    look = Look(rules)
    return all(look.passes(*line(message)) for message in messages) and look.ended()


class Look:
    """What is known while a conversation is looked through, one message after another."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._own, self._alternates, self._apart = rules.format, rules.alternates, rules.results_apart
        self._waiting: set[str] = set()
        self._typed = rules.own_outputs
        self._kinds: dict[str, str] = {}  # of calls that are no calls of functions
        self._seen: set[str] = set()
        self._last: str | None = None
        self._spoken: Parts = ()
        self._gathers = False

    def passes(self, role: str, came: str | None, parts: Parts, native: dict[str, Any] | None, state: str) -> bool:
        """Look at the next message; whether nothing needs to be mended up to it, but for calls that still wait."""
        if native is not None and "tool_calls" in (native.get("fields") or ()):
            return False  # kept as they came, because one of them could not be read
        if len(parts) == 1:
            # A text, or a single result: nearly all messages are one of these, and need no further look.
            part = parts[0]
            if type(part) is TextPart:
                text = part.text
                if text and not text.isspace() and role != "tool" and not (self._waiting and self._apart):
                    return not self._alternates or self._follows(role, came, parts)
            elif type(part) is ToolResultPart and role == "tool":
                if part.call_id not in self._waiting:
                    return False
                if self._typed and (part.native is not None or self._kinds) and not self._fits(part, came):
                    return False
                self._waiting.remove(part.call_id)
                return not self._alternates or self._follows(role, came, parts, gathers=True)
        return self._further(role, came, parts, state)

    def ended(self) -> bool:
        """Look at the end."""
        if self._waiting:
            return False
        if not self.rules.no_blanks or self._last != "assistant":
            return True
        last = self._spoken[-1]
        return type(last) is not TextPart or not last.text[-1].isspace()

    def _follows(self, role: str, came: str | None, parts: Parts, *, gathers: bool = False) -> bool:
        """Take the role of the next message, where roles alternate; whether it may come after the one before."""
        last = self._last
        if role == "system":
            if came == self._own and last is not None:
                self._last = role  # one of another format is not written at all
            return True
        self._spoken = parts
        if role == "tool":
            # Results of another format are gathered into one message when they are written.
            gathers = gathers and came != self._own
            if last == "user" and not (gathers and self._gathers):
                return False
            self._gathers, self._last = gathers, "user"
            return True
        if role == last or (last is None and role != "user"):
            return False
        self._last, self._gathers = role, False
        return True

    def _further(self, role: str, came: str | None, parts: Parts, state: str) -> bool:
        """Look at the parts of a message that is more than a text."""
        if self.rules.unique == "message":
            self._seen = set()
        calls: list[str] = []
        called = said = False
        for part in parts:
            if type(part) is ToolCallPart:
                if role != "assistant" or state != "completed" or not self._takes(part, came):
                    return False
                calls.append(part.call_id)
                called = True
            elif type(part) is ToolResultPart:
                if not self._answers(part.call_id, role, calls, said=said):
                    return False
                if self._typed and not self._fits(part, came):
                    return False
            elif not self._allows(part, role, came):
                return False
            else:
                said = said or _says(part)
        return self._whole(role, came, parts, calls, said=said, called=called)

    def _answers(self, call_id: str, role: str, calls: list[str], *, said: bool) -> bool:
        """Take a result; whether it is where it belongs."""
        if role == "assistant" and not self._apart and call_id in calls:
            calls.remove(call_id)  # beside its call, as it is in this format
            return True
        if said or role == "assistant" or call_id not in self._waiting:
            return False
        self._waiting.remove(call_id)
        return True

    def _allows(self, part: Part, role: str, came: str | None) -> bool:
        """Look at one part that is neither a call nor a result."""
        if type(part) is TextPart:
            return not self.rules.no_blanks or _says(part)
        if type(part) is ReasoningPart:
            return role == "assistant"
        if came != self._own:
            return False
        if type(part) is not DataPart:
            return True
        asks = self.rules.own_outputs and _is_about_consent(part)
        return self._own in _KEPT and not is_reasoning(part) and not asks

    def _whole(self, role: str, came: str | None, parts: Parts, calls: list[str], *, said: bool, called: bool) -> bool:
        """Look at a message once its parts are known; `calls` are those that have no result yet."""
        results = bool(parts) and type(parts[0]) is ToolResultPart
        if (said or calls) and self._waiting and self._apart:
            return False
        if not (said or called or results) or type(parts[-1]) is ReasoningPart:
            return False
        self._waiting.update(calls)
        if said and results and came != self._own:
            return False
        if role == "tool" and not results:
            return False
        if not self._alternates:
            return True
        return self._follows("tool" if results and not said else role, came, parts, gathers=role == "tool")

    def _takes(self, part: ToolCallPart, came: str | None) -> bool:
        """Whether the id of a call, and its arguments, will do."""
        rules, call_id = self.rules, part.call_id
        if not call_id or call_id in self._seen or call_id in self._waiting:
            return False
        if rules.call_id is not None and not rules.call_id.fullmatch(call_id):
            return False
        if rules.objects and came == rules.format and type(part.arguments) is not dict:
            return False
        if self._typed and part.native is not None:
            kind = outputs.kind_of(part, own=came == self._own)
            if kind == "computer_call":
                return False  # only a picture answers it, which needs a closer look
            if kind != outputs.FUNCTION:
                self._kinds[call_id] = kind
        self._seen.add(call_id)
        return True

    def _fits(self, part: ToolResultPart, came: str | None) -> bool:
        """Whether a result is an output of the type of its call."""
        return outputs.fits(part, self._kinds.pop(part.call_id, outputs.FUNCTION), own=came == self._own)


def _says(part: Part) -> bool:
    """Whether a part that is neither a call nor a result is more than a thought or a blank."""
    if type(part) is TextPart:
        return bool(part.text) and not part.text.isspace()
    return type(part) is not ReasoningPart


def _is_about_consent(part: DataPart) -> bool:
    """Whether a provider asks here whether it may call a tool, or is told so."""
    return type(part.native) is dict and str(part.native.get("type")).startswith("mcp_approval")
