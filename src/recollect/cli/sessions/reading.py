"""`sessions show`: one conversation, to be read."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from recollect.cli import names, options, place
from recollect.cli.amount import Number
from recollect.cli.document import print_with
from recollect.cli.group import Command
from recollect.cli.screen import is_terminal, remark
from recollect.errors import StoreError

if TYPE_CHECKING:
    from recollect.model.message import Message
    from recollect.store import Session, Store


@click.command(cls=Command)
@click.argument("id", type=names.Name())
@click.option("--last", type=Number(), metavar="N", help="Only the last N messages.")
@click.option("--branch", type=Number(), metavar="N", help="Another branch, and not the one it stands on.")
@click.option("--full", is_flag=True, help="Long tool output and reasoning to the end.")
@click.option("--plain", is_flag=True, help="Markdown as it was written.")
@options.as_json
def show(id: str, last: int | None, branch: int | None, full: bool, plain: bool, as_json: bool) -> None:
    """Print a conversation.

    Each message has its role, its id and its time; a tool call follows an arrow to the right, its result one to the
    left. On a terminal long tool output is shortened and Markdown is laid out. --json has every field of every message.
    """
    with place.reading() as store:
        session = _as_it_stands(store, id)
        branches = session.branches()
        if as_json:
            fields = {**session.to_dict(), "branches": [found.to_dict() for found in branches]}
            print_with(fields, "messages", _messages(session, last, branch))
            return
        from recollect.cli.conversation import Conversation  # noqa: PLC0415  JSON does not need it

        markdown = is_terminal() and not plain and place.settings()["channels.terminal.markdown"]
        [messages] = store.shown_counts([session])
        page = Conversation(
            session,
            branches,
            session.tool_calls(),
            messages=messages,
            full=full or not is_terminal(),
            markdown=markdown,
        )
        click.echo(page.head(branch))
        shown = 0
        for message in _messages(session, last, branch):
            click.echo(page.message(message))
            shown += 1
    if not shown:
        remark("It has no messages yet.")


def _as_it_stands(store: Store, name: str) -> Session:
    """Find a conversation. What a process that is gone left open is marked first, else its calls would run for ever."""
    session = store.find_session(name)
    if any(turn.status == "open" for turn in session.turns()):
        with contextlib.suppress(StoreError):  # a store that can not be written is read as it is
            store.recover(session.id)
    return session.refresh()


def _messages(session: Session, last: int | None, branch: int | None) -> Iterable[Message]:
    if branch is None:
        return session.iter_messages() if last is None else session.messages(last)
    found = session.iter_messages(branch=branch)
    return found if last is None else collections.deque(found, last)
