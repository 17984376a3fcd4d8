"""Validation: the rules of each provider as data, and one quick pass that decides whether a history needs repair.

If in doubt, it reports that repair is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from recollect.history import tool_pairs
from recollect.history.tool_pairs import is_reasoning
from recollect.model.message import (
    DataPart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    message_tuple,
)


class ProviderRules(NamedTuple):
    """The requirements of a provider on the messages of a request."""

    format: str | None
    alternates: bool = False
    """No two consecutive messages of one role; user and tool messages count as one role."""
    user_first: bool = False
    """The first message is a user message."""
    no_blanks: bool = False
    """No text is empty or whitespace, and the history does not end with whitespace."""
    results_apart: bool = True
    """Results are not in the message of their calls, and come directly after it."""
    objects: bool = False
    """The arguments of a call are a JSON object."""
    unique: Literal["message", "history"] = "history"
    """The scope in which a call id is unique."""
    call_id: re.Pattern[str] | None = None
    """The pattern of a call id; None if any non-empty text is accepted."""
    own_outputs: bool = False
    """A call is answered by an output of its own type; a screenshot or an approval cannot be synthesized."""
    reasoning_alone: bool = False
    """Reasoning may be a separate message, if text or calls of the assistant follow in the next one."""


RULES: dict[str, ProviderRules] = {
    "anthropic": ProviderRules(
        "anthropic",
        alternates=True,
        user_first=True,
        no_blanks=True,
        objects=True,
        call_id=re.compile(r"[a-zA-Z0-9_-]+"),
    ),
    "openai": ProviderRules("openai", unique="message", call_id=re.compile(r".{1,40}", re.DOTALL)),
    "openai-responses": ProviderRules(
        "openai-responses",
        results_apart=False,
        call_id=re.compile(r".{1,64}", re.DOTALL),
        own_outputs=True,
        reasoning_alone=True,
    ),
    "ai-sdk": ProviderRules("ai-sdk"),
    "ai-sdk-ui": ProviderRules("ai-sdk-ui", results_apart=False),
}

ANY_PROVIDER = ProviderRules(None, unique="message", results_apart=False)
"""The rules that every provider has."""


PartSequence = Sequence[Part]

# Formats in which an unknown block is valid at any position.
_FREELY_PLACED = ("openai-responses", "ai-sdk", "ai-sdk-ui")


def is_valid(messages: Sequence[Message], rules: ProviderRules) -> bool:
    """Return whether messages need no repair."""
    validator = ProviderValidator(rules)
    return all(validator.accepts(*message_tuple(message)) for message in messages) and validator.is_complete()


class ProviderValidator:
    """The state of one pass over a history, message by message."""

    def __init__(self, rules: ProviderRules) -> None:
        self.rules = rules
        self._format, self._alternates, self._results_apart = rules.format, rules.alternates, rules.results_apart
        self._open_calls: set[str] = set()
        self._own_outputs = rules.own_outputs
        self._call_types: dict[str, str] = {}  # by call id, of open calls that are not function calls
        self._call_ids: set[str] = set()
        self._last_role: str | None = None
        self._last_parts: PartSequence = ()
        self._gathers_results = False

    def accepts(
        self, role: str, source_format: str | None, parts: PartSequence, native: dict[str, Any] | None, state: str
    ) -> bool:
        """Validate the next message. Return whether the history up to it needs no repair, apart from open calls."""
        if native is not None and "tool_calls" in (native.get("fields") or ()):
            return False  # stored unparsed, because one of the calls is malformed
        if len(parts) == 1:
            # A single text or a single result, as nearly all messages are: decided here without further calls.
            part = parts[0]
            if type(part) is TextPart:
                text = part.text
                if text and not text.isspace() and role != "tool" and not (self._open_calls and self._results_apart):
                    return not self._alternates or self._follows(role, source_format, parts)
            elif type(part) is ToolResultPart and role == "tool":
                if part.call_id not in self._open_calls:
                    return False
                if (
                    self._own_outputs
                    and (part.native is not None or self._call_types)
                    and not self._output_matches(part, source_format)
                ):
                    return False
                self._open_calls.remove(part.call_id)
                return not self._alternates or self._follows(role, source_format, parts, gathers=True)
        return self._accepts_parts(role, source_format, parts, state)

    def is_complete(self) -> bool:
        """Validate the end of the history."""
        if self._open_calls:
            return False
        if not self.rules.no_blanks or self._last_role != "assistant":
            return True
        last = self._last_parts[-1]
        return type(last) is not TextPart or not last.text[-1].isspace()

    def _follows(self, role: str, source_format: str | None, parts: PartSequence, *, gathers: bool = False) -> bool:
        """Record the role of the next message, if roles alternate. Return whether it may follow the previous one."""
        last = self._last_role
        if role == "system":
            if source_format == self._format and last is not None:
                self._last_role = role  # a system message of another format is not rendered here
            return True
        self._last_parts = parts
        if role == "tool":
            # Rendering joins consecutive results of another format into one message.
            gathers = gathers and source_format != self._format
            if last == "user" and not (gathers and self._gathers_results):
                return False
            self._gathers_results, self._last_role = gathers, "user"
            return True
        if role == last or (last is None and role != "user"):
            return False
        self._last_role, self._gathers_results = role, False
        return True

    def _accepts_parts(self, role: str, source_format: str | None, parts: PartSequence, state: str) -> bool:
        """Validate the parts of a message that is more than a text."""
        if self.rules.unique == "message":
            self._call_ids = set()
        calls: list[str] = []
        has_calls = has_content = False
        for part in parts:
            if type(part) is ToolCallPart:
                if role != "assistant" or state != "completed" or not self._accepts_call(part, source_format):
                    return False
                calls.append(part.call_id)
                has_calls = True
            elif type(part) is ToolResultPart:
                if not self._accepts_result(part.call_id, role, calls, has_content=has_content):
                    return False
                if self._own_outputs and not self._output_matches(part, source_format):
                    return False
            elif not self._accepts_other(part, role, source_format):
                return False
            else:
                has_content = has_content or _has_content(part)
        return self._accepts_message(role, source_format, parts, calls, has_content=has_content, has_calls=has_calls)

    def _accepts_result(self, call_id: str, role: str, calls: list[str], *, has_content: bool) -> bool:
        """Record a result. Return whether it is in its place."""
        if role == "assistant" and not self._results_apart and call_id in calls:
            calls.remove(call_id)  # in the message of its call, where this format has results
            return True
        if has_content or role == "assistant" or call_id not in self._open_calls:
            return False
        self._open_calls.remove(call_id)
        return True

    def _accepts_other(self, part: Part, role: str, source_format: str | None) -> bool:
        """Validate a part that is neither a call nor a result."""
        if type(part) is TextPart:
            return not self.rules.no_blanks or _has_content(part)
        if type(part) is ReasoningPart:
            return role == "assistant"
        if source_format != self._format:
            return False
        if type(part) is not DataPart:
            return True
        is_approval = self.rules.own_outputs and _is_approval(part)
        return self._format in _FREELY_PLACED and not is_reasoning(part) and not is_approval

    def _accepts_message(
        self,
        role: str,
        source_format: str | None,
        parts: PartSequence,
        calls: list[str],
        *,
        has_content: bool,
        has_calls: bool,
    ) -> bool:
        """Validate a message after its parts. `calls` are those without a result so far."""
        has_results = bool(parts) and type(parts[0]) is ToolResultPart
        if (has_content or calls) and self._open_calls and self._results_apart:
            return False
        if not (has_content or has_calls or has_results) or type(parts[-1]) is ReasoningPart:
            return False
        self._open_calls.update(calls)
        if has_content and has_results and source_format != self._format:
            return False
        if role == "tool" and not has_results:
            return False
        if not self._alternates:
            return True
        return self._follows(
            "tool" if has_results and not has_content else role, source_format, parts, gathers=role == "tool"
        )

    def _accepts_call(self, part: ToolCallPart, source_format: str | None) -> bool:
        """Record a call. Return whether its id and its arguments are valid."""
        rules, call_id = self.rules, part.call_id
        if not call_id or call_id in self._call_ids or call_id in self._open_calls:
            return False
        if rules.call_id is not None and not rules.call_id.fullmatch(call_id):
            return False
        if rules.objects and source_format == rules.format and type(part.arguments) is not dict:
            return False
        if self._own_outputs and part.native is not None:
            kind = tool_pairs.call_type(part, own=source_format == self._format)
            if kind == "computer_call":
                return False  # only a screenshot answers it, which approvals.py checks
            if kind != tool_pairs.FUNCTION_CALL:
                self._call_types[call_id] = kind
        self._call_ids.add(call_id)
        return True

    def _output_matches(self, part: ToolResultPart, source_format: str | None) -> bool:
        """Return whether a result is an output of the type of its call."""
        return tool_pairs.output_matches(
            part, self._call_types.pop(part.call_id, tool_pairs.FUNCTION_CALL), own=source_format == self._format
        )


def _has_content(part: Part) -> bool:
    """Return whether a part that is neither a call nor a result is more than reasoning or whitespace."""
    if type(part) is TextPart:
        return bool(part.text) and not part.text.isspace()
    return type(part) is not ReasoningPart


def _is_approval(part: DataPart) -> bool:
    """Return whether a part is an approval request or response."""
    return type(part.native) is dict and str(part.native.get("type")).startswith("mcp_approval")
