"""The messages for a model: the active messages, fitted to a token budget and repaired. No store access.

    render.py              renders a history in a provider's format
    streaming_renderer.py  renders it from rows while they are read
    tail.py                renders its last messages only
    window.py              fits it to a token budget; counts tokens with a tokenizer
    rules.py               the conditions of the provider rules, for validation and repair
    validate.py            whether a history needs repair, in one quick pass
    repair.py              makes a history acceptable; approvals.py: approval requests and screenshots
    tool_pairs.py          matches tool results to tool calls
    compaction.py          which messages a summary replaces, and when compaction is due
    drafts.py              parses messages and arguments of the caller into drafts

A module is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.history import compaction, drafts, render, repair, streaming_renderer, tail, window

__all__ = ["compaction", "drafts", "render", "repair", "streaming_renderer", "tail", "window"]


if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts every name

    def __getattr__(name: str) -> Any:
        """Import a module of this package on first use; after that, Python finds it without this function."""
        if name in __all__:
            return __import__(f"recollect.history.{name}", fromlist=[name])
        raise AttributeError(f"module 'recollect.history' has no attribute {name!r}")
