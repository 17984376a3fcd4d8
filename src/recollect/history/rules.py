"""The conditions of the provider rules, each stated once: repair establishes them, and validation tests them.

`is_own` means that a part belongs to a message in the provider's own format.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from recollect.formats.provider_rules import ProviderRules
from recollect.history.tool_pairs import is_call, is_reasoning, is_result
from recollect.model import json
from recollect.model.message import DataPart, Part, RepairKind, TextPart, ToolCallPart


def is_blank(text: str) -> bool:
    """Return whether a text is empty or whitespace."""
    return not text or text.isspace()


def ends_with_space(part: Part) -> bool:
    """Return whether a part is a text that ends with whitespace, which must not end a history without blanks."""
    return type(part) is TextPart and part.text[-1:].isspace()


def provider_role(role: str) -> str:
    """Return the role of a message in a request in which roles alternate."""
    return "user" if role == "tool" else role


def is_joined_by_writing(role: str, parts: Sequence[Part], *, is_own: bool) -> bool:
    """Return whether a message has only results of another format: writing joins consecutive ones itself."""
    return role == "tool" and not is_own and all(map(is_result, parts))


def carries_content(part: Part, *, is_own: bool) -> bool:
    """Return whether a part is certainly rendered, and is more than reasoning or whitespace."""
    if type(part) is TextPart:
        return not is_blank(part.text)
    return is_call(part) or is_result(part) or (is_own and not is_reasoning(part))


def has_unread_calls(native: dict[str, Any] | None, rules: ProviderRules, *, is_own: bool) -> bool:
    """Return whether a message has a list of tool calls that was not parsed, because one of them is malformed."""
    if native is None or rules.calls_field is None or not is_own:
        return False
    return rules.calls_field in (native.get("fields") or ())


def find_part_problem(
    part: Part, role: str, state: str, rules: ProviderRules, *, is_own: bool, answered_ids: Collection[str] = ()
) -> RepairKind | None:
    """Return the repair that a part alone needs, or None."""
    if type(part) is TextPart:
        return "blank_text" if rules.no_blanks and is_blank(part.text) else None
    if type(part) is ToolCallPart:
        if role != "assistant":
            return "misplaced_call"
        if state != "completed" and not _has_json_arguments(part) and part.call_id not in answered_ids:
            return "partial_call"
        return "arguments" if rules.objects and is_own and type(part.arguments) is not dict else None
    if is_own and rules.bare_fields is not None and type(part) is DataPart and _has_only(part, rules.bare_fields):
        return "unreadable_block"
    if is_own and rules.typed_blocks and type(part) is DataPart and _lacks_type(part.native):
        return "unreadable_block"
    if is_own and rules.parsed_blocks is not None:
        is_malformed = type(part) is DataPart and _block_type(part) in rules.parsed_blocks
        if is_malformed or (role != "assistant" and is_reasoning(part)):
            return "unreadable_block"
    return None


def _has_only(part: DataPart, fields: frozenset[str]) -> bool:
    """Return whether a block has no value besides those of some fields."""
    return type(part.native) is dict and all(value is None or name in fields for name, value in part.native.items())


def _lacks_type(block: Any) -> bool:
    return type(block) is dict and "type" not in block and block.keys() != {"id"}


def _block_type(part: DataPart) -> str | None:
    kind = part.native.get("type") if type(part.native) is dict else None
    return kind if type(kind) is str else None


def _has_json_arguments(part: ToolCallPart) -> bool:
    if part.arguments_text is None:
        return True
    try:
        json.decode(part.arguments_text)
    except (ValueError, RecursionError):
        return False
    return True


class UsedCallIds:
    """The call ids of a history, in the scope in which the provider requires them to be unique."""

    def __init__(self, rules: ProviderRules) -> None:
        self.ids: set[str] = set()
        self._is_per_message = rules.unique == "message"
        self._is_unique = rules.unique is not None
        self._matches = None if rules.call_id is None else rules.call_id.fullmatch

    def begin_message(self) -> None:
        """Begin the next message."""
        if self._is_per_message:
            self.ids = set()

    def accepts(self, call_id: str) -> bool:
        """Return whether the provider accepts this id for the next call."""
        if not call_id or (self._is_unique and call_id in self.ids):
            return False
        return self._matches is None or self._matches(call_id) is not None
