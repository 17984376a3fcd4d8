"""`recollect sessions`: conversations. Each module holds a few commands that belong together."""

from __future__ import annotations

import click

from recollect.cli.group import Group

_HERE = "recollect.cli.sessions"


@click.group(
    cls=Group,
    lazy={
        "list": (f"{_HERE}.listing:list_", "List conversations, the newest activity first."),
        "show": (f"{_HERE}.reading:show", "Print a conversation."),
        "search": (f"{_HERE}.searching:search", "Find what was said, in all conversations or in one."),
        "rename": (f"{_HERE}.marks:rename", "Give a conversation another title."),
        "pin": (f"{_HERE}.marks:pin", "Pin conversations."),
        "unpin": (f"{_HERE}.marks:unpin", "Unpin conversations."),
        "archive": (f"{_HERE}.marks:archive", "Put conversations out of sight, and keep them."),
        "unarchive": (f"{_HERE}.marks:unarchive", "Bring archived conversations back into the list."),
        "delete": (f"{_HERE}.trash:delete", "Put conversations in the trash."),
        "restore": (f"{_HERE}.trash:restore", "Take conversations out of the trash, whole."),
        "erase": (f"{_HERE}.trash:erase", "Erase conversations for good."),
        "fork": (f"{_HERE}.forking:fork", "Make a new conversation that shares the past of another."),
        "export": (f"{_HERE}.transfer:export", "Write conversations to a file."),
        "import": (f"{_HERE}.transfer:import_", "Read conversations from a file that was exported."),
        "stats": (f"{_HERE}.figures:stats", "Count conversations, messages and tokens."),
        "tools": (f"{_HERE}.figures:tools", "Count tool calls, failures and how long they took."),
        "prune": (f"{_HERE}.pruning:prune", "Let go of what is old, or too much."),
    },
)
def sessions() -> None:
    """Find, read, change, keep and let go of conversations.

    A conversation is named by its id, by its title, or by the beginning of its id where only one begins so.
    """
