"""The slash commands, shared by every channel. Each works on a conversation and returns an outcome to show.

A channel parses nothing: it passes the line, shows the Markdown of the outcome, and performs its `action`.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import msgspec

from recollect.agent import approvals
from recollect.agent.conversation import Conversation
from recollect.agent.titles import message_text, shorten_title
from recollect.agent.tools import search_text
from recollect.config import expand_home
from recollect.errors import (
    AmbiguousName,
    ApprovalNotFound,
    Conflict,
    InvalidValue,
    MessageNotFound,
    RecollectError,
    SessionInTrash,
    SessionNotFound,
    format_error,
)
from recollect.model import humanize
from recollect.model.message import Message
from recollect.model.title import file_name
from recollect.model.value import format_iso
from recollect.store_async import AsyncSession

_DEFAULT_MESSAGES = 10  # messages that /history shows without an argument: about one screen
_MAX_PAST_SESSIONS = 50  # earlier conversations that /resume lists in a chat; older ones need their id
_MAX_TEXT = 2_000  # characters of a message that /history shows: it is an overview, not an export
_MAX_DIGITS = 9  # digits of a number argument: more cannot be a count of messages
_BACKTICKS = re.compile("`+")
_SPEAKERS = {"user": "You", "assistant": "Agent", "tool": "Tool", "system": "System"}
_FORMATS = ("md", "json", "jsonl", "html")


def resume_hint(session: AsyncSession) -> str:
    """Return the shell command that opens a session again. A session whose id contains NUL is chosen from the list."""
    name = session.id
    if name == "cli:default":
        return "recollect chat --session"
    is_named = name.startswith("cli:")
    word = humanize.quote_for_shell(name.removeprefix("cli:") if is_named else name)
    if word is None:
        return "recollect chat -r"
    if word[0] == "-":  # after a space, it would be taken for an option
        return f"recollect chat {'--session' if is_named else '--resume'}={word}"
    return f"recollect chat {'--session' if is_named else '-r'} {word}"


def _inline_code(text: str) -> str:
    """Return an id as inline code of Markdown, on one line."""
    text = humanize.escape_unprintable(text)
    longest_run = max(map(len, _BACKTICKS.findall(text)), default=0)
    space = " " if text[:1] in "` " or text[-1:] in "` " else ""
    return f"{'`' * (longest_run + 1)}{space}{text}{space}{'`' * (longest_run + 1)}"


def _resume_line(session: Any) -> str:
    """Return the command that continues a session: with its title if a person cannot type its id."""
    return _inline_code(f"/resume {session.id if session.id.isprintable() or not session.title else session.title}")


def _display_name(session: Any) -> str:
    return f"**{session.title}**" if session.title else _inline_code(session.id)


async def start_new(conversation: Conversation, title: str) -> str:
    """Start a new conversation; inside the same session if the conversation keeps its session."""
    old = conversation.session
    if conversation.keeps_session:
        text = await clear_session(conversation, "")
        if title:
            await conversation.session.update(title=title)
        return text
    await conversation.move(await old.store.session(model=conversation.model.name, title=title or None))
    return (
        f"New conversation started. To return to the previous one: {_resume_line(old)}"
        if await keep_unless_empty(old)
        else "New conversation started."
    )


async def keep_unless_empty(session: AsyncSession) -> bool:
    """Erase a session if it is empty; return whether it still exists."""
    try:
        await session.refresh()
    except SessionNotFound:
        return False
    if not await is_empty(session):
        return True
    await session.store.erase_session(session.id)
    return False


async def is_empty(session: AsyncSession) -> bool:
    """Return whether a session has no messages, title, channel or pin.

    A session that was rewound to its start shows no messages but has them on another branch: it is not empty.
    """
    if session.message_count or session.title or session.channel or session.pinned_at:
        return False
    return len(await session.branches.list()) == 1


async def clear_session(conversation: Conversation, _: str) -> str:
    """Clear the conversation. A session with a channel keeps its id; its messages move to a session of their own."""
    session = conversation.session
    await session.refresh()
    if not session.message_count:
        return "There is nothing to clear: this conversation has no messages yet."
    if session.channel is None:
        return await start_new(conversation, "")
    past = await _split_off_past(session)
    await session.rewind(0)
    await session.update(title=None)
    await conversation.move(session)
    return f"{_inline_code(session.id)} is cleared. The earlier messages are kept: {_resume_line(past)}"


_PAST_KEY = "left"
"""Key in the metadata of a session that was split off: the session it was part of, and its last message there."""


async def _split_off_past(session: Any) -> Any:
    """Fork the messages so far into a session of their own."""
    last = await session.messages(1)
    origin = {"session": session.id, "message": last[0].id if last else None, "messages": session.message_count}
    return await session.fork(
        title=session.title
        or f"{humanize.escape_unprintable(session.id)} until {format_iso(session.info.active_at_ms)[:16]}",
        metadata={**(session.metadata or {}), _PAST_KEY: origin},
    )


async def _past_sessions(session: Any) -> list[Any]:
    """Return the sessions that were split off from a session, newest first."""
    sessions = await session.store.list_sessions(_MAX_PAST_SESSIONS, parent=session.id)
    return [past for past in sessions if (past.metadata or {}).get(_PAST_KEY, {}).get("session") == session.id]


async def _restore_past(conversation: Conversation, name: str) -> str:
    """Restore an earlier conversation of this session; the current messages are split off first."""
    session = await conversation.session.refresh()
    past = await _past_sessions(session)
    if not name:
        rows = [f"- {_resume_line(other)} {other.title} ({format_iso(other.info.active_at_ms)[:10]})" for other in past]
        return "\n".join(["Earlier conversations here:", *rows]) if rows else "There is no earlier conversation here."
    matches = [other for other in past if name in (other.id, other.title)] or [
        other for other in past if other.id.startswith(name)
    ]
    if len(matches) != 1:
        raise InvalidValue(
            f"{name!r} matches {len(matches)} earlier conversations here. Run `/resume` to list them and use an id."
        )
    match = matches[0]
    origin = match.metadata[_PAST_KEY]
    current = await _split_off_past(session) if session.message_count else None
    await session.rewind(origin["message"])
    await session.update(title=match.title)
    await conversation.move(session)
    if match.message_count == origin["messages"]:
        await session.store.erase_session(match.id)  # all of its messages are in this session again
        newer_text = ""
    else:
        newer_text = f" Newer messages of it are in {_inline_code(match.id)}."
    kept_text = "" if current is None else f" The messages until now are kept: {_resume_line(current)}"
    return f"Back in {_display_name(session)}, with {await _message_count_text(session)}.{newer_text}{kept_text}"


async def _message_count_text(session: Any) -> str:
    """Return how many messages a session has, without tool steps: "4 messages"."""
    [messages] = await session.store.shown_counts([session])
    return humanize.pluralize(messages, "message")


async def show_history(conversation: Conversation, count: str) -> str:
    """Show the last messages."""
    last = _DEFAULT_MESSAGES if not count else _parse_number(count)
    messages = await conversation.session.messages(last)
    return (
        "\n\n".join(line for message in messages if (line := format_message(message))) or "There are no messages yet."
    )


def format_message(message: Message) -> str:
    """Return a message as Markdown for a person."""
    state = "" if message.state == "completed" else f" _({message.state})_"
    author = (message.metadata or {}).get("author")
    speaker = str(author["name"]) if isinstance(author, dict) and author.get("name") else _SPEAKERS[message.role]
    heading = f"**{speaker}** `{message.id}`{state}"
    text = message_text(message)
    lines = [humanize.truncate(text, _MAX_TEXT)] if text else []
    lines += [f"calls `{call.tool}`" for call in message.tool_calls]
    lines += [f"`{part.tool or 'tool'}`: {shorten_title(part.output)}" for part in message.tool_results]
    return f"{heading}\n\n" + "\n\n".join(lines) if lines else ""


def _parse_number(text: str) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS or not int(text):
        raise InvalidValue(f"The number must be between 1 and {10**_MAX_DIGITS - 1}, got {text[:40]!r}.")
    return int(text)


async def resume_session(conversation: Conversation, name: str) -> str:
    """Continue another conversation."""
    store, old = conversation.session.store, conversation.session
    if conversation.keeps_session:
        return await _restore_past(conversation, name)
    session = await store.session((await store.find_session(name)).id, create=False)
    if session.id != old.id:
        await conversation.move(session)
        await keep_unless_empty(old)
    return f"Back in {_display_name(session)}, with {await _message_count_text(session)}."


async def rename_session(conversation: Conversation, title: str) -> str:
    """Set the title of the conversation."""
    if not title:
        raise InvalidValue("TITLE is missing.")
    await conversation.session.update(title=title)
    return f"This conversation is now called **{conversation.session.title}**."


async def fork_session(conversation: Conversation, at: str) -> str:
    """Fork the conversation and continue in the fork."""
    old = conversation.session
    if conversation.keeps_session:
        await old.refresh()
        past = await _split_off_past(old)
        if at:
            await old.rewind(at)
            await conversation.move(old)
        return f"You are now in a fork. The conversation before it is kept unchanged: {_resume_line(past)}"
    copy = await old.fork(at=at or None, title=f"{old.title} (fork)" if old.title else None)
    await conversation.move(copy)
    return f"You are now in a fork of {_display_name(old)}. To return to the original: {_resume_line(old)}"


async def rewind_session(conversation: Conversation, destination: str) -> tuple[str, str | None]:
    """Rewind by some turns (default 1) or to a message; return the reply and the question to edit, if there is one."""
    session, branch = conversation.session, conversation.session.branch
    if "." in destination:
        await session.rewind(destination)
        await conversation.move(session)
        return f"Rewound to message `{destination}`. The later messages are kept on branch {branch}.", None
    if destination and not destination.isdecimal():
        raise InvalidValue(
            f"The argument must be a number of turns or a message id such as 1.4, got {destination[:40]!r}. Run "
            "`/history` to see the ids."
        )
    count = _parse_number(destination) if destination else 1
    questions = [message for message in await session.messages() if message.role == "user" and message.parts]
    if not questions:
        raise MessageNotFound("There is nothing to rewind: this conversation has no messages of yours yet.")
    if len(questions) < count:
        raise MessageNotFound(f"N must be at most {len(questions)}, the number of turns so far, got {count}.")
    question = questions[-count]
    before = await session.messages(1, before=question.id)
    await session.rewind(before[0].id if before else 0)
    await conversation.move(session)
    reply = (
        f"Rewound to before message `{question.id}`. It and the later messages are kept on branch {branch}. Edit it "
        "below, or send another message."
    )
    return reply, message_text(question)


async def compact_session(conversation: Conversation, _: str) -> str:
    """Compact the older messages."""
    try:
        await conversation.compact()
    except InvalidValue as error:
        raise Conflict("There is nothing to compact yet: the newest turns are always sent in full.") from error
    return "Older messages are now summarized for the model. All of them are kept. You can undo this in the web app."


async def search_messages(conversation: Conversation, words: str) -> str:
    """Search all conversations, or only `search_session` if it is set."""
    if not words:
        raise InvalidValue("WORDS are missing.")
    return await search_text(conversation.session.store, words, limit=20, within=conversation.search_session)


async def toggle_pin(conversation: Conversation, _: str) -> str:
    """Pin the conversation, or unpin it."""
    pinned = conversation.session.pinned_at is None
    await conversation.session.update(pinned=pinned)
    return "This conversation is pinned." if pinned else "This conversation is no longer pinned."


async def toggle_archive(conversation: Conversation, _: str) -> str:
    """Archive the conversation, or unarchive it."""
    archived = conversation.session.archived_at is None
    await conversation.session.update(archived=archived)
    return (
        "This conversation is archived: lists no longer show it."
        if archived
        else "This conversation is no longer archived."
    )


async def delete_session(conversation: Conversation, _: str) -> str:
    """Move the conversation to the trash and start a new one."""
    old = conversation.session
    new_session = await old.store.session(model=conversation.model.name)
    await conversation.move(new_session)
    await old.store.delete_session(old.id)
    undo_text = f"To restore it, run {_inline_code(humanize.restore_command(old.id))}."
    return f"Moved {_display_name(old)} to the trash. {undo_text} New conversation started."


async def export_session(conversation: Conversation, argument: str) -> str:
    """Write the conversation to a file that only you can read. A file that exists is never overwritten."""
    format, name = _export_target(argument)
    default_name = file_name(conversation.session.title or "") or file_name(conversation.session.id) or "conversation"
    path = _absolute_path(name or f"{default_name}.{format}")
    try:
        await _write_export(conversation.session, format, path)
    except FileExistsError as error:
        raise Conflict(f"`{path}` already exists. Choose another name: `/export {format} FILE`") from error
    except OSError as error:
        raise InvalidValue(f"`{path}` cannot be written: {error.strerror or error}.") from error
    return f"Written to `{path}`."


def _export_target(argument: str) -> tuple[str, str]:
    """Return the format and the file that an export names; the file is "" if it names none."""
    word, _, file = argument.partition(" ")
    if not argument or word.lower() in _FORMATS:
        return word.lower() or "md", file.strip()
    from recollect.export import format_of  # noqa: PLC0415  the package export is imported on first use

    formats = ", ".join(_FORMATS)
    if format := format_of(argument):
        return format, argument
    if os.path.splitext(argument)[1]:
        raise InvalidValue(f"The format of {argument!r} is unknown. Use one of {formats}: `/export md {argument}`.")
    if os.path.basename(argument) == argument:
        raise InvalidValue(
            f"FORMAT must be one of {formats}, got {argument!r}. A file name needs an extension or a folder."
        )
    return "md", argument


def _absolute_path(name: str) -> str:
    return os.path.abspath(expand_home(name))


async def _write_export(session: Any, format: str, path: str) -> None:
    from recollect.export import chunks_async  # noqa: PLC0415  the package export is imported on first use

    def open_private(path: str, flags: int) -> int:
        return os.open(path, flags, 0o600)

    with await asyncio.to_thread(open, path, "xb", opener=open_private) as file:
        try:
            async for chunk in chunks_async(session.store, [session.id], format):
                await asyncio.to_thread(file.write, chunk)
        except BaseException:
            os.unlink(path)
            raise


async def choose_model(conversation: Conversation, name: str) -> str:
    """Show the model, or switch to another one."""
    if not name:
        return f"The model is `{conversation.model.name}`. To switch, run `/model NAME`."
    conversation.model = await asyncio.to_thread(conversation.agent.model, name)
    await conversation.session.update(model=conversation.model.name)
    return f"Switched to the model `{conversation.model.name}`. It continues this conversation."


async def answer_question(conversation: Conversation, decision: str) -> str:
    """Answer the pending approval of this conversation."""
    approval = await approvals.answer(conversation.session, decision.lower() or "once")
    tool = f"`{approval.tool}` of `{approval.server}`"
    return f"Denied {tool}." if decision.lower() == "deny" else f"Allowed {tool}: {decision.lower() or 'once'}."


async def manage_approvals(conversation: Conversation, argument: str) -> str:
    """List the stored approvals, or revoke one of them or all."""
    store = conversation.session.store
    grants = await approvals.grants(store)
    word, _, target = argument.partition(" ")
    if word == "revoke" and target.strip() == "all":
        count_text = humanize.pluralize(await approvals.revoke(store), "approval")
        return f"Revoked {count_text}. These tools need approval again."
    if word == "revoke":
        number = _parse_number(target.strip())
        if number > len(grants):
            raise InvalidValue(f"N must be at most {len(grants)}, the number of approvals, got {number}.")
        await approvals.revoke(store, grants[number - 1])
        return f"Revoked. `{grants[number - 1].tool}` of `{grants[number - 1].server}` needs approval again."
    if argument:
        raise InvalidValue(f"The action must be revoke, got {argument[:40]!r}.")
    rows = [f"{number}. {_describe_grant(grant)}" for number, grant in enumerate(grants, 1)]
    pending = await approvals.pending_approval(conversation.session)
    if pending is not None:
        rows.append(f"\nWaiting: {approvals.question_text(pending)} To allow it, run `/approve once`.")
    return (
        "\n".join(rows)
        or "No stored approvals. Tools of MCP servers need approval unless the configuration allows them."
    )


def _describe_grant(grant: approvals.Grant) -> str:
    scope = "always" if grant.session is None else f"in {_inline_code(grant.session)}"
    return f"`{grant.tool}` of `{grant.server}`, {scope}{f', for `{grant.who}`' if grant.who else ''}"


async def show_status(conversation: Conversation, _: str) -> str:
    """Show the conversation, the model, the size and the database."""
    session = await conversation.session.refresh()
    [messages] = await session.store.shown_counts([session])
    percent = round(100 * min(session.token_count / max(conversation.budget, 1), 1))
    rows = [
        ("conversation", _inline_code(session.id)),
        ("title", session.title or "none yet"),
        ("model", f"`{conversation.model.name}`"),
        ("messages", f"{messages:,}"),
        ("context", f"{session.token_count:,} / {conversation.budget:,} tokens ({percent}%)"),
        ("used", f"{session.input_tokens:,} tokens in, {session.output_tokens:,} tokens out"),
        ("branch", str(session.branch)),
        *(
            [] if conversation.keeps_session else [("database", f"`{session.store.path}`")]
        ),  # people in a chat must not see paths of the server
        ("resume", _inline_code(resume_hint(session))),
    ]
    if conversation.held_count:
        held_text = humanize.pluralize(conversation.held_count, "message")
        rows.append(("not stored", f"{held_text} in memory until the database works again"))
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


Action = Literal["quit", "pick", "moved", "edit"]
_ERROR_TEXTS: dict[type[RecollectError], str] = {
    SessionInTrash: "{session_code} is in the trash. To restore it, run {restore_command}.",
    SessionNotFound: "No conversation matches {session!r}. To find one by its messages, run `/search WORDS`.",
    AmbiguousName: "{name!r} matches {count} conversations: {matches}. Use a longer prefix of the id, or the full "
    "title.",
    ApprovalNotFound: "No tool call waits for approval in this conversation.",
    MessageNotFound: "No message {message!r} in this conversation. Run `/history` to see the message ids.",
}


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command: Markdown to show, and an action for the channel.

    `quit` leaves; `pick` lets the person choose a session; `moved` means that the conversation continues in another
    session or at another message, so the channel shows it again; `edit` also puts `data` into the input.
    """

    text: str = ""
    action: Action | None = None
    data: Any = None
    failed: bool = False


class SlashCommand(NamedTuple):
    """A slash command: its name, its arguments, its help text, and the function that runs it."""

    name: str
    arguments: str
    help: str
    run: Callable[[Conversation, str], Awaitable[CommandOutcome]]

    @property
    def usage(self) -> str:
        """The command with its arguments, as a person types it."""
        return f"/{self.name} {self.arguments}".rstrip()


def is_command(line: str) -> bool:
    """Return whether a text is a command: one line that begins with a slash and a letter, and not a path."""
    word = line.strip().split(maxsplit=1)[0] if line.strip() else ""
    return word[:1] == "/" and word[1:2].isalpha() and "/" not in word[1:] and "\n" not in line.strip()


async def run(conversation: Conversation, line: str) -> CommandOutcome:
    """Run a command line such as `/rename A better title`. A RecollectError becomes an outcome with `failed` set."""
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        matches = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f" Did you mean `/{matches[0]}`?" if matches else ""
        return CommandOutcome(text=f"Unknown command `/{name}`.{hint} Run `/help` to see all commands.", failed=True)
    return await _run_command(conversation, command, argument.strip())


async def resume(conversation: Conversation, id: str) -> CommandOutcome:
    """Continue the session with an id, as `/resume` does. A line could not contain every id."""
    return await _run_command(conversation, COMMANDS["resume"], id)


async def _run_command(conversation: Conversation, command: SlashCommand, argument: str) -> CommandOutcome:
    if conversation.busy and command.name not in _ALLOWED_WHILE_BUSY:
        return CommandOutcome(text="An answer is in progress. Wait for it, or stop it first.", failed=True)
    try:
        return await command.run(conversation, argument)
    except InvalidValue as error:
        return CommandOutcome(text=f"{error} Usage: `{command.usage}`", failed=True)
    except RecollectError as error:
        return CommandOutcome(text=_format_error(error), failed=True)


def _format_error(error: RecollectError) -> str:
    session = error.fields.get("session")
    if not isinstance(session, str):
        return format_error(error, _ERROR_TEXTS)
    restore_command = _inline_code(humanize.restore_command(session))
    return format_error(error, _ERROR_TEXTS, session_code=_inline_code(session), restore_command=restore_command)


def _text_command(
    handler: Callable[[Conversation, str], Awaitable[str]],
) -> Callable[[Conversation, str], Awaitable[CommandOutcome]]:
    async def run(conversation: Conversation, argument: str) -> CommandOutcome:
        return CommandOutcome(text=await handler(conversation, argument))

    return run


def _moving_command(
    handler: Callable[[Conversation, str], Awaitable[str]],
) -> Callable[[Conversation, str], Awaitable[CommandOutcome]]:
    async def run(conversation: Conversation, argument: str) -> CommandOutcome:
        return CommandOutcome(text=await handler(conversation, argument), action="moved")

    return run


async def _resume_command(conversation: Conversation, name: str) -> CommandOutcome:
    if not name and not conversation.keeps_session:
        return CommandOutcome(action="pick")
    return CommandOutcome(text=await resume_session(conversation, name), action="moved")


async def _rewind_command(conversation: Conversation, target: str) -> CommandOutcome:
    text, question = await rewind_session(conversation, target)
    return CommandOutcome(text=text, action="moved" if question is None else "edit", data=question)


async def _quit_command(_: Conversation, __: str) -> CommandOutcome:
    return CommandOutcome(action="quit")


async def _help_command(_: Conversation, __: str) -> CommandOutcome:
    rows = "\n".join(f"| `{command.usage}` | {command.help} |" for command in COMMANDS.values())
    return CommandOutcome(text=f"| command | description |\n|---|---|\n{rows}")


_COMMAND_LIST = (
    SlashCommand("new", "[TITLE]", "start a new conversation", _moving_command(start_new)),
    SlashCommand("clear", "", "start with an empty history; the old messages are kept", _moving_command(clear_session)),
    SlashCommand("history", "[N]", "show the last messages with their ids", _text_command(show_history)),
    SlashCommand("resume", "[SESSION]", "continue another conversation by id, title or prefix, or choose from a list",
            _resume_command),
    SlashCommand("rename", "TITLE", "rename this conversation", _text_command(rename_session)),
    SlashCommand("fork", "[MESSAGE]", "continue in a fork, from here or from a message", _moving_command(fork_session)),
    SlashCommand("rewind", "[N or MESSAGE]", "go back N turns (default 1) or to a message id; later messages are kept",
            _rewind_command),
    SlashCommand("compact", "", "replace older messages with a summary for the model", _text_command(compact_session)),
    SlashCommand("search", "WORDS", "search all conversations", _text_command(search_messages)),
    SlashCommand("pin", "", "pin this conversation, or unpin it", _text_command(toggle_pin)),
    SlashCommand("archive", "", "archive this conversation, or unarchive it", _text_command(toggle_archive)),
    SlashCommand("delete", "", "move this conversation to the trash and start a new one",
            _moving_command(delete_session)),
    SlashCommand("export", "[FORMAT] [FILE]", "write this conversation to a file: md, json, jsonl or html",
            _text_command(export_session)),
    SlashCommand("model", "[NAME]", "show the model, or switch to another one", _text_command(choose_model)),
    SlashCommand("approve", "DECISION", "answer a pending approval: once, session, always or deny",
            _text_command(answer_question)),
    SlashCommand("approvals", "[revoke N or all]", "list stored approvals, or revoke them",
            _text_command(manage_approvals)),
    SlashCommand("status", "", "show the conversation, the model, the size and the database",
            _text_command(show_status)),
    SlashCommand("help", "", "show this list", _help_command),
    SlashCommand("quit", "", "quit; the conversation is kept", _quit_command),
)  # fmt: skip
COMMANDS: dict[str, SlashCommand] = {command.name: command for command in _COMMAND_LIST}
_ALLOWED_WHILE_BUSY = ("help", "status", "history", "search", "quit", "rename", "pin", "approve", "approvals")
