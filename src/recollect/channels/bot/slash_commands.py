"""Slash commands of bots: the commands of the agent that make sense in a chat, plus /stop, /help and /start."""

from __future__ import annotations

from recollect.agent import commands
from recollect.agent.commands import COMMANDS, CommandOutcome
from recollect.agent.conversation import Conversation

COMMAND_NAMES = ("new", "clear", "history", "resume", "rename", "search", "fork", "compact", "status")
STOP, HELP, START = "stop", "help", "start"
GREETING = (
    "Hello. Send me a message, and I will answer. This conversation is saved. Send `/help` to see what else I can do."
)


def list_commands() -> list[tuple[str, str, str]]:
    """Return the commands to register with a platform: name, arguments, help text."""
    entries = [(name, COMMANDS[name].arguments, _help_text(name)) for name in COMMAND_NAMES]
    return [*entries, (STOP, "", "stop the answer in progress"), (HELP, "", "show this list")]


def _help_text(name: str) -> str:
    """Return the help text of a command in a chat, which always keeps its session."""
    texts = {
        "new": "start a new conversation; the old one is kept",
        "resume": "continue an earlier conversation of this chat, or list them",
        "fork": "continue in a fork, from here or from a message; the original is kept",
        "search": "search this conversation",
        "status": "show the conversation, the model and the size",
    }
    return texts.get(name, COMMANDS[name].help)


def parse_command(text: str) -> tuple[str, str] | None:
    """Return the name and the argument of a command; None if a text is not a command."""
    if not commands.is_command(text):
        return None
    name, _, argument = text.strip().removeprefix("/").partition(" ")
    return name.lower(), argument.strip()


async def run_command(conversation: Conversation, name: str, argument: str) -> CommandOutcome:
    """Run a command and return its outcome. A user error is an outcome with `failed` set."""
    if name == START:
        return CommandOutcome(text=GREETING)
    if name == HELP:
        rows = [f"`/{name} {arguments}`".replace(" `", "`") + f": {help}" for name, arguments, help in list_commands()]
        return CommandOutcome(text="\n".join(rows))
    if name == STOP:
        return CommandOutcome(text="There is no answer to stop.", failed=True)
    if name not in COMMAND_NAMES:
        return CommandOutcome(text=f"Unknown command `/{name}`. Send `/help` to see all commands.", failed=True)
    return await commands.run(conversation, f"/{name} {argument}".rstrip())
