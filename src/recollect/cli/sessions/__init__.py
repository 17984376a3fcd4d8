"""`recollect sessions`: conversations. Each module holds related commands."""

from __future__ import annotations

import click

from recollect.cli.group import LazyGroup

_HERE = "recollect.cli.sessions"


@click.group(
    cls=LazyGroup,
    lazy={
        "list": (f"{_HERE}.listing:list_", "List conversations, most recently active first."),
        "show": (f"{_HERE}.show:show", "Print a conversation."),
        "search": (f"{_HERE}.search:search", "Search messages in all conversations or in one."),
        "rename": (f"{_HERE}.edit:rename", "Change the title of a conversation."),
        "pin": (f"{_HERE}.edit:pin", "Pin conversations."),
        "unpin": (f"{_HERE}.edit:unpin", "Unpin conversations."),
        "label": (f"{_HERE}.edit:label", "Add labels to a conversation."),
        "unlabel": (f"{_HERE}.edit:unlabel", "Remove labels from a conversation."),
        "archive": (f"{_HERE}.edit:archive", "Archive conversations."),
        "unarchive": (f"{_HERE}.edit:unarchive", "Unarchive conversations."),
        "delete": (f"{_HERE}.deletion:delete", "Move conversations to the trash."),
        "restore": (f"{_HERE}.deletion:restore", "Restore conversations from the trash."),
        "erase": (f"{_HERE}.deletion:erase", "Erase conversations permanently."),
        "fork": (f"{_HERE}.edit:fork", "Fork a conversation."),
        "export": (f"{_HERE}.transfer:export", "Export conversations to a file."),
        "stats": (f"{_HERE}.statistics:stats", "Count conversations, messages and tokens."),
        "tools": (f"{_HERE}.statistics:tools", "Count tool calls and failures, and measure latency."),
        "prune": (f"{_HERE}.deletion:prune", "Delete old or excess conversations."),
    },
)
def sessions() -> None:
    """Manage conversations.

    Refer to a conversation by its id, its title, or a unique prefix of its id.
    """
