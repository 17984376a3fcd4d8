"""`recollect sessions`: what conversations there are, and what was said in one."""

from __future__ import annotations

import json

import click

import recollect
from recollect.model.message import Message
from recollect.model.value import iso


@click.group()
def sessions() -> None:
    """List conversations and read them."""


@sessions.command("list")
@click.option("-n", "--limit", default=20, show_default=True, help="How many, the newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(limit: int, as_json: bool) -> None:
    """List conversations, the newest first."""
    with recollect.open() as store:
        found = store.list_sessions(limit)
        if as_json:
            click.echo(json.dumps([session.to_dict() for session in found], indent=2))
            return
        if not found:
            click.echo(f"No conversations yet in {store.path}")
        for session in found:
            when = iso(session.active_at)[:16].replace("T", " ")
            click.echo(_safe(f"{when}  {session.message_count:>6}  {session.id}  {session.title or ''}".rstrip()))


@sessions.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the messages.")
def show(name: str, as_json: bool) -> None:
    """Print a conversation, named by its id, its title or the beginning of its id."""
    with recollect.open() as store:
        session = store.find_session(name)
        if as_json:
            messages = [message.to_dict() for message in session.iter_messages()]
            click.echo(json.dumps({**session.to_dict(), "messages": messages}, indent=2))
            return
        for message in session.iter_messages():
            click.echo(_shown(message))


def _shown(message: Message) -> str:
    """Write a message for a person: who, what, and which tools. Control characters are not passed to the terminal."""
    lines = [f"{message.role}  {message.id}  {iso(message.created_at)[:16].replace('T', ' ')}"]
    lines += [f"  {line}" for line in message.text.splitlines()]
    lines += [f"  > {call.tool} {json.dumps(call.input, ensure_ascii=False)}" for call in message.tool_calls]
    lines += [f"  < {line}" for result in message.tool_results for line in result.output.splitlines()]
    return "\n".join(_safe(line) for line in lines) + "\n"


def _safe(line: str) -> str:
    """Keep what a model or a stranger wrote from steering the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in line)
