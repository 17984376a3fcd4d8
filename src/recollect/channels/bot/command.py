"""The commands of a talk as every bot has them: those of agent/commands.py that suit a place."""

from __future__ import annotations

from recollect.agent import commands
from recollect.agent.commands import COMMANDS, Outcome
from recollect.agent.conversation import Conversation

NAMES = ("new", "clear", "history", "resume", "rename", "search", "fork", "compact", "status")
STOP, HELP, START = "stop", "help", "start"
GREETING = (
    "Hello. Say what you want to know, and I answer. Everything that is said here is kept, and I remember it. "
    "`/help` lists what else I can do."
)


def described() -> list[tuple[str, str, str]]:
    """List the commands that a platform is told of: the name, what it takes, and what it does."""
    found = [(name, COMMANDS[name].arguments, _help(name)) for name in NAMES]
    return [*found, (STOP, "", "stop the answer that is being written"), (HELP, "", "show this list")]


def _help(name: str) -> str:
    """Say what a command does in a place that keeps its session."""
    told = {
        "new": "begin a new conversation; the old one is kept",
        "resume": "bring an earlier conversation of this place back; none: list them",
        "fork": "go on from here, or from a message, and keep what was said as it is",
        "search": "search what was said here",
        "status": "show the conversation, the model and the size",
    }
    return told.get(name, COMMANDS[name].help)


def parsed(text: str) -> tuple[str, str] | None:
    """Read a command: its name and what was written after it; None where it is none."""
    if not commands.is_command(text):
        return None
    name, _, argument = text.strip().removeprefix("/").partition(" ")
    return name.lower(), argument.strip()


async def run(talk: Conversation, name: str, argument: str) -> Outcome:
    """Run a command, and give what is to be told. A mistake is an outcome too."""
    if name == START:
        return Outcome(text=GREETING)
    if name == HELP:
        rows = [f"`/{name} {takes}`".replace(" `", "`") + f": {does}" for name, takes, does in described()]
        return Outcome(text="\n".join(rows))
    if name == STOP:
        return Outcome(text="There is no answer to stop.", failed=True)
    if name not in NAMES:
        return Outcome(text=f"There is no command `/{name}` here. `/help` lists them.", failed=True)
    return await commands.run(talk, f"/{name} {argument}".rstrip())
