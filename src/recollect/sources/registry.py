"""The sources by name, in the order in which they look at a file."""

from __future__ import annotations

from importlib import import_module

from recollect.sources.source import ConversationSource

_MODULES = {
    "claude-code": "claude_code",
    "codex": "codex",
    "gemini-cli": "gemini_cli",
    "opencode": "opencode",
    "chatgpt": "chatgpt",
    "claude-ai": "claude_ai",
}
NAMES = tuple(_MODULES)


def get_source(name: str) -> ConversationSource:
    """Return the source with this name, imported on first use. Raise KeyError for an unknown name."""
    return import_module(f"recollect.sources.{_MODULES[name]}").SOURCE
