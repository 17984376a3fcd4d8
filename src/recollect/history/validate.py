"""Validation: one quick pass that decides whether a history needs repair.

It tests the conditions in rules.py and the usual order of calls and results. If in doubt, it reports that repair is
needed; repair then leaves a valid history unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.formats.provider_rules import ProviderRules
from recollect.history import rules as conditions
from recollect.history import tool_pairs
from recollect.history.tool_pairs import is_reasoning
from recollect.model.message import Message, Part, TextPart, ToolCallPart, ToolResultPart

PartSequence = Sequence[Part]


def is_valid(messages: Sequence[Message], rules: ProviderRules) -> bool:
    """Return whether messages need no repair."""
    validator = ProviderValidator(rules)
    return (
        all(
            validator.accepts(message.role, message.format, message.parts, message.native, message.state)
            for message in messages
        )
        and validator.is_complete()
    )


class ProviderValidator:
    """The state of one pass over a history, message by message."""

    def __init__(self, rules: ProviderRules) -> None:
        self.rules = rules
        self._format, self._results_apart, self._own_outputs = rules.format, rules.results_apart, rules.own_outputs
        self._observes_roles = rules.alternates or rules.user_first or rules.no_trailing_space or rules.answered_results
        self._open_calls: set[str] = set()
        self._call_types: dict[str, str] = {}  # by call id, of open calls that are not function calls
        self._used_ids = conditions.UsedCallIds(rules)
        self._last_role: str | None = None
        self._last_parts: PartSequence = ()
        self._last_is_joined = False
        self._follows_results = False

    def accepts(
        self, role: str, source_format: str | None, parts: PartSequence, native: dict[str, Any] | None, state: str
    ) -> bool:
        """Validate the next message. Return whether the history up to it needs no repair, apart from open calls."""
        if role == "system" and self.rules.system_apart and source_format == self._format:
            return False
        if native is not None and conditions.has_unread_calls(native, self.rules, is_own=source_format == self._format):
            return False
        if len(parts) == 1:
            # A single text or a single result, as nearly all messages are: decided here without further calls.
            part = parts[0]
            if type(part) is TextPart:
                text = part.text
                if text and not text.isspace() and role != "tool" and not (self._open_calls and self._results_apart):
                    return not self._observes_roles or self._follows(role, parts, is_own=source_format == self._format)
            elif type(part) is ToolResultPart and role == "tool":
                is_own = source_format == self._format
                if part.call_id not in self._open_calls:
                    return False
                if (
                    self._own_outputs
                    and (part.native is not None or self._call_types)
                    and not self._output_matches(part, is_own=is_own)
                ):
                    return False
                self._open_calls.remove(part.call_id)
                return not self._observes_roles or self._follows(role, parts, is_own=is_own)
        return self._accepts_parts(role, parts, state, is_own=source_format == self._format)

    def is_complete(self) -> bool:
        """Validate the end of the history."""
        if self._open_calls:
            return False
        if not self.rules.no_trailing_space or self._last_role != "assistant":
            return True
        return not conditions.ends_with_space(self._last_parts[-1])

    def _follows(self, role: str, parts: PartSequence, *, is_own: bool) -> bool:
        """Record the role of the next message. Return whether it may follow the previous one."""
        last = self._last_role
        if role == "system":
            if is_own and last is not None:
                self._last_role = role  # a system message of another format is not rendered here
            return True
        if self.rules.answered_results and role == "user" and self._follows_results:
            return False
        self._follows_results = role == "tool"
        role_of_turn = conditions.provider_role(role)
        is_joined = conditions.is_joined_by_writing(role, parts, is_own=is_own)
        if role_of_turn == last and self.rules.alternates and not (is_joined and self._last_is_joined):
            return False
        if last is None and self.rules.user_first and role_of_turn != "user":
            return False
        self._last_role, self._last_parts, self._last_is_joined = role_of_turn, parts, is_joined
        return True

    def _accepts_parts(self, role: str, parts: PartSequence, state: str, *, is_own: bool) -> bool:
        """Validate a message that is more than a text."""
        self._used_ids.begin_message()
        calls: list[str] = []
        has_calls = has_content = False
        for part in parts:
            if type(part) is ToolResultPart:
                if not self._accepts_result(part, role, calls, has_content=has_content, is_own=is_own):
                    return False
            elif conditions.find_part_problem(part, role, state, self.rules, is_own=is_own) is not None:
                return False
            elif type(part) is ToolCallPart:
                if not self._accepts_call(part, is_own=is_own):
                    return False
                calls.append(part.call_id)
                has_calls = True
            elif conditions.carries_content(part, is_own=is_own):
                if self._own_outputs and tool_pairs.approval_type(part) is not None:
                    return False  # approvals.py looks for its counterpart
                has_content = True
            elif type(part) is not TextPart and not (role == "assistant" and is_reasoning(part)):
                return False  # whether it is rendered depends on the writer
        return self._accepts_message(role, parts, calls, has_content=has_content, has_calls=has_calls, is_own=is_own)

    def _accepts_result(
        self, part: ToolResultPart, role: str, calls: list[str], *, has_content: bool, is_own: bool
    ) -> bool:
        """Record a result. Return whether it is in its place, and answers its call."""
        call_id = part.call_id
        if role == "assistant" and not self._results_apart and call_id in calls:
            calls.remove(call_id)  # in the message of its call, where this format has results
        elif has_content or role == "assistant" or call_id not in self._open_calls:
            return False
        else:
            self._open_calls.remove(call_id)
        return not self._own_outputs or self._output_matches(part, is_own=is_own)

    def _accepts_message(
        self, role: str, parts: PartSequence, calls: list[str], *, has_content: bool, has_calls: bool, is_own: bool
    ) -> bool:
        """Validate a message after its parts. `calls` are those without a result so far."""
        has_results = bool(parts) and type(parts[0]) is ToolResultPart
        if (has_content or calls) and self._open_calls and self._results_apart:
            return False
        ends_with_reasoning = bool(parts) and is_reasoning(parts[-1])
        if ends_with_reasoning and not (self.rules.free_reasoning and is_own):
            return False
        if not (has_content or has_calls or has_results or ends_with_reasoning):
            return False
        self._open_calls.update(calls)
        if has_content and has_results and not is_own:
            return False
        if role == "tool" and not has_results:
            return False
        return not self._observes_roles or self._follows(role, parts, is_own=is_own)

    def _accepts_call(self, part: ToolCallPart, *, is_own: bool) -> bool:
        """Record a call. Return whether its id is valid, and a result can answer it."""
        call_id = part.call_id
        if call_id in self._open_calls or not self._used_ids.accepts(call_id):
            return False
        if self._own_outputs and part.native is not None:
            kind = tool_pairs.call_type(part, own=is_own)
            if kind == "computer_call":
                return False  # only a screenshot answers it, which approvals.py checks
            if kind != tool_pairs.FUNCTION_CALL:
                self._call_types[call_id] = kind
        self._used_ids.ids.add(call_id)
        return True

    def _output_matches(self, part: ToolResultPart, *, is_own: bool) -> bool:
        """Return whether a result is an output of the type of its call."""
        return tool_pairs.output_matches(part, self._call_types.pop(part.call_id, tool_pairs.FUNCTION_CALL), own=is_own)
