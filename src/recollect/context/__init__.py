"""What is sent to a model: the history view, fitted to a budget and mended. Pure functions over values; no store.

    history.py     the view in a provider's form; sheet.py: written while it is read
    window.py      fitting it to a budget; counting.py: with a real tokenizer
    repair.py      making it acceptable: rules.py (who refuses what), soundness.py (is anything wrong),
                   cleaning.py, answering.py, joining.py, outputs.py, consent.py
    pairs.py       which result belongs to which call
    compaction.py  what a summary replaces, and when that is due
    drafts.py      what a caller hands over

A module is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.context import compaction, counting, drafts, history, repair, sheet, window

__all__ = ["compaction", "counting", "drafts", "history", "repair", "sheet", "window"]


if not TYPE_CHECKING:  # to a type checker that sees it, every name of the module exists

    def __getattr__(name: str) -> Any:
        """Load a module of this room; from then on it is found without this."""
        if name in __all__:
            return __import__(f"recollect.context.{name}", fromlist=[name])
        raise AttributeError(f"module 'recollect.context' has no attribute {name!r}")
