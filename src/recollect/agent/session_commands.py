"""What the slash commands do with a session. Each gives Markdown that says what was done and how to undo it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from recollect.agent import approvals as asking
from recollect.agent.conversation import Conversation
from recollect.agent.titles import said, shortened
from recollect.agent.tools import found
from recollect.config import expanded
from recollect.errors import Conflict, InvalidValue, MessageNotFound, SessionNotFound
from recollect.model import amount
from recollect.model.message import Message
from recollect.model.title import file_name
from recollect.model.value import iso
from recollect.store_async import AsyncSession

_SHOWN = 10
_LISTED = 50
_LONGEST = 2_000
_DIGITS = 9
_SPEAKERS = {"user": "You", "assistant": "Agent", "tool": "Tool", "system": "System"}
_FORMATS = ("md", "json", "jsonl", "html")


def resume_hint(session: AsyncSession) -> str:
    """Say how a session is opened again from the shell."""
    name = session.id
    if name == "cli:default":
        return "recollect chat --session"
    if name.startswith("cli:"):
        return f"recollect chat --session {_quoted(name.removeprefix('cli:'))}"
    return f"recollect chat -r {_quoted(name)}"


def _quoted(word: str) -> str:
    plain = all(character.isalnum() or character in "-_.:/@+" for character in word)
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def _named(session: Any) -> str:
    return f"**{session.title}**" if session.title else f"`{session.id}`"


async def new(talk: Conversation, title: str) -> str:
    """Begin a new conversation; where the talk keeps its session, in it."""
    old = talk.session
    if talk.stays:
        told = await clear(talk, "")
        if title:
            await talk.session.update(title=title)
        return told
    await talk.move(await old.store.create_session(model=talk.model.name, title=title or None))
    return f"A new conversation begins. The old one: `/resume {old.id}`" if await kept(old) else "A new conversation."


async def kept(session: AsyncSession) -> bool:
    """Leave no empty session behind; say whether it is there."""
    try:
        await session.refresh()
    except SessionNotFound:
        return False
    if not await is_empty(session):
        return True
    await session.store.erase_session(session.id)
    return False


async def is_empty(session: AsyncSession) -> bool:
    """Whether nothing was said in a session and nobody named it.

    One that was rewound to its beginning shows no message, and has them on another branch.
    """
    if session.message_count or session.title or session.channel or session.pinned_at:
        return False
    return len(await session.branches()) == 1


async def clear(talk: Conversation, _: str) -> str:
    """Start afresh. A session with a name of its own keeps its name, and its past moves to a session of its own."""
    session = talk.session
    await session.refresh()
    if not session.message_count:
        return "There is nothing to clear: nothing was said yet."
    if session.channel is None:
        return await new(talk, "")
    past = await _set_aside(session)
    await session.rewind(0)
    await session.update(title=None)
    await talk.move(session)
    return f"`{session.id}` starts afresh. What was said before is kept: `/resume {past.id}`"


_LEFT = "left"
"""In the metadata of a session that was set aside: the session it was part of, and its last message there."""


async def _set_aside(session: Any) -> Any:
    """Keep what was said so far as a session of its own."""
    last = await session.messages(1)
    left = {"session": session.id, "message": last[0].id if last else None, "messages": session.message_count}
    return await session.fork(
        title=session.title or f"{session.id} until {iso(session.active_at)[:16]}",
        metadata={**(session.metadata or {}), _LEFT: left},
    )


async def _earlier(session: Any) -> list[Any]:
    """List what was set aside in a session, the newest first."""
    found = await session.store.list_sessions(_LISTED, parent=session.id)
    return [past for past in found if (past.metadata or {}).get(_LEFT, {}).get("session") == session.id]


async def _bring_back(talk: Conversation, name: str) -> str:
    """Go on with what was said earlier in a session that the talk keeps; what is there now is set aside."""
    session = await talk.session.refresh()
    past = await _earlier(session)
    if not name:
        rows = [f"- `/resume {other.id}` {other.title} ({iso(other.active_at)[:10]})" for other in past]
        return "\n".join(["Earlier conversations here:", *rows]) if rows else "There is no earlier conversation here."
    fitting = [other for other in past if name in (other.id, other.title)] or [
        other for other in past if other.id.startswith(name)
    ]
    if len(fitting) != 1:
        raise InvalidValue(f"{len(fitting)} earlier conversations here fit {name!r}; `/resume` lists them.")
    chosen = fitting[0]
    left = chosen.metadata[_LEFT]
    now = await _set_aside(session) if session.message_count else None
    await session.rewind(left["message"])
    await session.update(title=chosen.title)
    await talk.move(session)
    if chosen.message_count == left["messages"]:
        await session.store.erase_session(chosen.id)  # it has nothing that is not here again
        more = ""
    else:
        more = f" What was said there since is in `{chosen.id}`."
    kept = "" if now is None else f" What was said last is kept: `/resume {now.id}`"
    return f"Back in {_named(session)}, with {await _counted(session)}.{more}{kept}"


async def _counted(session: Any) -> str:
    """Return how many messages a session has, without tool steps: "4 messages"."""
    [messages] = await session.store.shown_counts([session])
    return amount.many(messages, "message")


async def history(talk: Conversation, count: str) -> str:
    """Show the last messages."""
    last = _SHOWN if not count else _number(count)
    messages = await talk.session.messages(last)
    return "\n\n".join(line for message in messages if (line := shown(message))) or "Nothing was said yet."


def shown(message: Message) -> str:
    """Write a message as Markdown for a person."""
    mark = "" if message.state == "completed" else f" _({message.state})_"
    author = (message.metadata or {}).get("author")
    speaker = str(author["name"]) if isinstance(author, dict) and author.get("name") else _SPEAKERS[message.role]
    head = f"**{speaker}** `{message.id}`{mark}"
    text = said(message)
    lines = [text if len(text) <= _LONGEST else text[:_LONGEST] + "\u2026"] if text else []
    lines += [f"`{call.tool}` is called" for call in message.tool_calls]
    lines += [f"`{part.tool or 'tool'}`: {shortened(part.output)}" for part in message.tool_results]
    return f"{head}\n\n" + "\n\n".join(lines) if lines else ""


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS or not int(text):
        raise InvalidValue(f"{text[:40]!r} is no number from 1 on that can be used here.")
    return int(text)


async def resume(talk: Conversation, name: str) -> str:
    """Go on with another conversation."""
    store, old = talk.session.store, talk.session
    if talk.stays:
        return await _bring_back(talk, name)
    session = await store.session((await store.find_session(name)).id, create=False)
    if session.id != old.id:
        await talk.move(session)
        await kept(old)
    return f"Back in {_named(session)}, with {await _counted(session)}."


async def rename(talk: Conversation, title: str) -> str:
    """Give the conversation a title."""
    if not title:
        raise InvalidValue("A title is missing.")
    await talk.session.update(title=title)
    return f"This conversation is called **{talk.session.title}** now."


async def fork(talk: Conversation, at: str) -> str:
    """Go on in a copy."""
    old = talk.session
    if talk.stays:
        await old.refresh()
        past = await _set_aside(old)
        if at:
            await old.rewind(at)
            await talk.move(old)
        return f"You go on in a fork from here. What was said is kept as it is: `/resume {past.id}`"
    copy = await old.fork(at=at or None, title=f"{old.title} (fork)" if old.title else None)
    await talk.move(copy)
    return f"You are in a fork of {_named(old)} now. The original: `/resume {old.id}`"


async def rewind(talk: Conversation, to: str) -> tuple[str, str | None]:
    """Go back some turns (one if not said) or to a message; give what the person had said there."""
    session, branch = talk.session, talk.session.branch
    back = f"What followed is kept on branch {branch}."
    if "." in to:
        await session.rewind(to)
        await talk.move(session)
        return f"Back at message `{to}`. {back}", None
    count = _number(to) if to else 1
    asked = [message for message in await session.messages() if message.role == "user" and message.parts]
    if len(asked) < count:
        raise MessageNotFound(f"There are only {len(asked)} turns to go back.")
    target = asked[-count]
    before = await session.messages(1, before=target.id)
    await session.rewind(before[0].id if before else 0)
    await talk.move(session)
    return f"Back to before `{target.id}`. {back} Say it differently, or say something else.", said(target)


async def compact(talk: Conversation, _: str) -> str:
    """Sum up what is old."""
    try:
        await talk.compact()
    except InvalidValue as error:
        raise Conflict("There is nothing old to sum up yet: the newest turns are always sent as they are.") from error
    return "What is old is summed up for the model now. All of it is kept, and can be read and undone."


async def search(talk: Conversation, words: str) -> str:
    """Search everything."""
    if not words:
        raise InvalidValue("Words to search for are missing.")
    return await found(talk.session.store, words, limit=20, within=talk.within)


async def pin(talk: Conversation, _: str) -> str:
    """Pin or unpin."""
    pinned = talk.session.pinned_at is None
    await talk.session.update(pinned=pinned)
    return "This conversation is pinned." if pinned else "This conversation is no longer pinned."


async def archive(talk: Conversation, _: str) -> str:
    """Archive or take back."""
    archived = talk.session.archived_at is None
    await talk.session.update(archived=archived)
    return (
        "This conversation is archived: lists leave it out." if archived else "This conversation is back in the lists."
    )


async def delete(talk: Conversation, _: str) -> str:
    """Put the conversation in the trash and begin a new one."""
    old = talk.session
    fresh = await old.store.create_session(model=talk.model.name)
    await talk.move(fresh)
    await old.store.delete_session(old.id)
    back = f"`recollect sessions restore {_quoted(old.id)}` brings it back."
    return f"{_named(old)} is in the trash. {back} A new conversation begins."


async def export(talk: Conversation, argument: str) -> str:
    """Write the conversation to a file that only you can read. A file that exists is never overwritten."""
    format, name = _export_target(argument)
    named = file_name(talk.session.title or "") or file_name(talk.session.id) or "conversation"
    path = _full(name or f"{named}.{format}")
    try:
        await _write(talk.session, format, path)
    except FileExistsError as error:
        raise Conflict(f"`{path}` exists already. Choose another name: `/export {format} FILE`") from error
    except OSError as error:
        raise InvalidValue(f"`{path}` cannot be written: {error.strerror or error}.") from error
    return f"Written to `{path}`."


def _export_target(argument: str) -> tuple[str, str]:
    """Return the format and the file that an export names; the file is "" if it names none."""
    word, _, rest = argument.partition(" ")
    if not argument or word.lower() in _FORMATS:
        return word.lower() or "md", rest.strip()
    from recollect.export import format_of  # noqa: PLC0415  the room of exports is loaded when it is used

    known = ", ".join(_FORMATS)
    if format := format_of(argument):
        return format, argument
    if os.path.splitext(argument)[1]:
        raise InvalidValue(f"The format of {argument!r} is not known. Name one of {known}: `/export md {argument}`.")
    if os.path.basename(argument) == argument:
        raise InvalidValue(f"{argument!r} is not a format: use {known}. A file needs an ending or a folder.")
    return "md", argument


def _full(name: str) -> str:
    return os.path.abspath(expanded(name))


async def _write(session: Any, format: str, path: str) -> None:
    from recollect.export import chunks_async  # noqa: PLC0415  the room of exports is loaded when it is used

    def create(path: str, flags: int) -> int:
        return os.open(path, flags, 0o600)

    with await asyncio.to_thread(open, path, "xb", opener=create) as file:
        try:
            async for chunk in chunks_async(session.store, [session.id], format):
                await asyncio.to_thread(file.write, chunk)
        except BaseException:
            os.unlink(path)
            raise


async def model(talk: Conversation, name: str) -> str:
    """Show the model, or talk to another one from now on."""
    if not name:
        return f"The model is `{talk.model.name}`. `/model NAME` talks to another one."
    talk.model = await asyncio.to_thread(talk.agent.model, name)
    await talk.session.update(model=talk.model.name)
    return f"The model is `{talk.model.name}` from now on. The conversation goes with it."


async def approve(talk: Conversation, decision: str) -> str:
    """Answer the question that waits in this conversation."""
    approval = await asking.answer(talk.session, decision.lower() or "once")
    tool = f"`{approval.tool}` of `{approval.server}`"
    return f"{tool} is not run." if decision.lower() == "deny" else f"{tool} is allowed: {decision.lower() or 'once'}."


async def approvals(talk: Conversation, argument: str) -> str:
    """List the tools that are allowed, or forget one decision or all."""
    store = talk.session.store
    grants = await asking.grants(store)
    word, _, which = argument.partition(" ")
    if word == "revoke" and which.strip() == "all":
        return f"{await asking.revoke(store)} approvals are revoked. The tools are asked for again."
    if word == "revoke":
        number = _number(which.strip())
        if number > len(grants):
            raise InvalidValue(f"There are {len(grants)} approvals, got {number}.")
        await asking.revoke(store, grants[number - 1])
        return f"`{grants[number - 1].tool}` of `{grants[number - 1].server}` is asked for again."
    if argument:
        raise InvalidValue(f"{argument[:40]!r} is not an action.")
    rows = [f"{number}. {_grant(grant)}" for number, grant in enumerate(grants, 1)]
    waits = await asking.waiting(talk.session)
    if waits is not None:
        rows.append(f"\nWaiting: {asking.question(waits)} `/approve once` allows it.")
    return "\n".join(rows) or "No tool is allowed beyond the configuration. Tools of MCP servers are asked for."


def _grant(grant: asking.Grant) -> str:
    where = "always" if grant.session is None else f"in `{grant.session}`"
    return f"`{grant.tool}` of `{grant.server}`, {where}{f', for `{grant.who}`' if grant.who else ''}"


async def status(talk: Conversation, _: str) -> str:
    """Show how things stand."""
    session = await talk.session.refresh()
    [messages] = await session.store.shown_counts([session])
    used = round(100 * min(session.token_count / max(talk.budget, 1), 1))
    rows = [
        ("session", f"`{session.id}`"),
        ("title", session.title or "none yet"),
        ("model", f"`{talk.model.name}`"),
        ("messages", f"{messages:,}"),
        ("tokens", f"{session.token_count:,} of {talk.budget:,} that are sent at most ({used} %)"),
        ("spent", f"{session.input_tokens:,} tokens in, {session.output_tokens:,} out"),
        ("branch", str(session.branch)),
        *([] if talk.stays else [("store", f"`{session.store.path}`")]),  # no business of people in a chat
        ("resume", f"`{resume_hint(session)}`"),
    ]
    if talk.held:
        rows.append(("held", f"{talk.held} messages wait for the store"))
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)
