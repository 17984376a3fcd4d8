"""A repair: one thing that was mended in the view of a conversation, and where."""

from __future__ import annotations

from typing import Literal

from recollect.model.value import Value

RepairKind = Literal[
    "interrupted_call", "unanswered_call", "orphan_result", "duplicate_result", "moved_result", "misplaced_call",
    "partial_call", "output_type", "call_id", "arguments", "unreadable_block", "empty_message", "only_reasoning",
    "last_reasoning", "blank_text", "wrong_role", "same_role", "first_role", "last_space",
]  # fmt: skip


class Repair(Value, frozen=True, kw_only=True, gc=False):
    """What was mended: its kind, a sentence, the id of the message and of the call that it is about."""

    kind: RepairKind
    message: str
    sentence: str
    call_id: str | None = None
