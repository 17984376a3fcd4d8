"""The slash commands, once for every surface. Each does its work on a conversation and gives an outcome to show.

A surface parses nothing: it hands over the line, shows the outcome's Markdown, and does what its `action` says.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import msgspec

from recollect.agent import session_commands as on_session
from recollect.agent.conversation import Conversation
from recollect.errors import InvalidValue, MessageNotFound, RecollectError, SessionInTrash, SessionNotFound, told

Action = Literal["quit", "pick", "moved", "edit"]
_IN_A_TALK: dict[type[RecollectError], str] = {
    SessionInTrash: "`{session}` is in the trash. `recollect sessions restore {session}` brings it back whole.",
    SessionNotFound: "There is no conversation {session!r}. `/search WORDS` finds one by what was said in it.",
    MessageNotFound: "There is no message {message!r} in this conversation. `/history` shows the ids.",
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did: Markdown to show, and what the surface does next.

    `quit` leaves; `pick` lets the person choose a session; `moved` says that the talk goes on in another session or at
    another place, so that a surface draws it anew; `edit` also puts `data` into the input, to be said differently.
    """

    text: str = ""
    action: Action | None = None
    data: Any = None
    failed: bool = False


class Command(NamedTuple):
    """A command: its name, what it takes, what it does, in words and in fact."""

    name: str
    arguments: str
    help: str
    run: Callable[[Conversation, str], Awaitable[Outcome]]

    @property
    def usage(self) -> str:
        """How it is written."""
        return f"/{self.name} {self.arguments}".rstrip()


def is_command(line: str) -> bool:
    """Say whether a line is a command: one line that begins with a slash and a letter, and is no path."""
    word = line.strip().split(maxsplit=1)[0] if line.strip() else ""
    return word[:1] == "/" and word[1:2].isalpha() and "/" not in word[1:] and "\n" not in line.strip()


async def run(talk: Conversation, line: str) -> Outcome:
    """Run a command line such as `/rename A better title`. A mistake is an outcome too, never an exception."""
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        close = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f" Did you mean `/{close[0]}`?" if close else ""
        return Outcome(text=f"There is no command `/{name}`.{hint} `/help` lists them.", failed=True)
    if talk.busy and command.name not in _WHILE_BUSY:
        return Outcome(text="An answer is in progress. Stop it first, or wait.", failed=True)
    try:
        return await command.run(talk, argument.strip())
    except InvalidValue as error:
        return Outcome(text=f"{error} Write it as `{command.usage}`.", failed=True)
    except RecollectError as error:
        return Outcome(text=told(error, _IN_A_TALK), failed=True)


def _shown(work: Callable[[Conversation, str], Awaitable[str]]) -> Callable[[Conversation, str], Awaitable[Outcome]]:
    async def run(talk: Conversation, argument: str) -> Outcome:
        return Outcome(text=await work(talk, argument))

    return run


def _moved(work: Callable[[Conversation, str], Awaitable[str]]) -> Callable[[Conversation, str], Awaitable[Outcome]]:
    async def run(talk: Conversation, argument: str) -> Outcome:
        return Outcome(text=await work(talk, argument), action="moved")

    return run


async def _resume(talk: Conversation, name: str) -> Outcome:
    if not name and not talk.stays:
        return Outcome(action="pick")
    return Outcome(text=await on_session.resume(talk, name), action="moved")


async def _rewind(talk: Conversation, to: str) -> Outcome:
    text, said = await on_session.rewind(talk, to)
    return Outcome(text=text, action="moved" if said is None else "edit", data=said)


async def _quit(_: Conversation, __: str) -> Outcome:
    return Outcome(action="quit")


async def _help(_: Conversation, __: str) -> Outcome:
    rows = "\n".join(f"| `{command.usage}` | {command.help} |" for command in COMMANDS.values())
    return Outcome(text=f"| command | what it does |\n|---|---|\n{rows}")


_ALL = (
    Command("new", "[TITLE]", "begin a new conversation", _moved(on_session.new)),
    Command("clear", "", "start this session afresh; the old talk is kept", _moved(on_session.clear)),
    Command("history", "[N]", "show the last messages", _shown(on_session.history)),
    Command("resume", "[SESSION]", "go on with another conversation: id, title or prefix; none: choose", _resume),
    Command("rename", "TITLE", "give this conversation a title", _shown(on_session.rename)),
    Command("fork", "[MESSAGE]", "go on in a copy, from here or from a message", _moved(on_session.fork)),
    Command("rewind", "[N or MESSAGE]", "go back some turns, or to a message; what followed is kept", _rewind),
    Command("compact", "", "put a summary in the place of what is old", _shown(on_session.compact)),
    Command("search", "WORDS", "search everything that was ever said", _shown(on_session.search)),
    Command("pin", "", "pin this conversation, or unpin it", _shown(on_session.pin)),
    Command("archive", "", "archive this conversation, or take it back", _shown(on_session.archive)),
    Command("delete", "", "put this conversation in the trash and begin a new one", _moved(on_session.delete)),
    Command("export", "[FORMAT] [FILE]", "write this conversation to a file: md, json, jsonl or html",
            _shown(on_session.export)),
    Command("model", "[NAME]", "show the model, or talk to another one", _shown(on_session.model)),
    Command("approve", "DECISION", "answer whether a tool may run: once, session, always or deny",
            _shown(on_session.approve)),
    Command("approvals", "[revoke N or all]", "list the tools that are allowed, or ask for them again",
            _shown(on_session.approvals)),
    Command("status", "", "show the session, the model, the size and the store", _shown(on_session.status)),
    Command("help", "", "show this list", _help),
    Command("quit", "", "leave; the conversation is kept", _quit),
)  # fmt: skip
COMMANDS: dict[str, Command] = {command.name: command for command in _ALL}
_WHILE_BUSY = ("help", "status", "history", "search", "quit", "rename", "pin", "approve", "approvals")
