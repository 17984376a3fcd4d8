"""What each provider refuses in a history, as data. Only what differs between them is here."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple


class Rules(NamedTuple):
    """What a provider asks of the messages that it is sent."""

    format: str | None
    alternates: bool = False
    """No two messages of one role in a row: a person's and the tools' count as one."""
    user_first: bool = False
    """The first message is a person's."""
    no_blanks: bool = False
    """No text that is empty or white space, and no white space at the very end."""
    results_apart: bool = True
    """Results are not in the message that made the calls, and come directly after it."""
    objects: bool = False
    """The arguments of a call are an object."""
    unique: Literal["message", "history"] = "history"
    """Where a call id may be there only once."""
    call_id: re.Pattern[str] | None = None
    """What a call id looks like; None where any text will do that is not empty."""
    own_outputs: bool = False
    """A call is answered by an output of its own type; a picture or a person's consent can not be made up."""
    reasoning_alone: bool = False
    """Reasoning may be a message of its own, if the agent's words or calls follow in the next one."""


RULES: dict[str, Rules] = {
    "anthropic": Rules(
        "anthropic",
        alternates=True,
        user_first=True,
        no_blanks=True,
        objects=True,
        call_id=re.compile(r"[a-zA-Z0-9_-]+"),
    ),
    "openai": Rules("openai", unique="message", call_id=re.compile(r".{1,40}", re.DOTALL)),
    "openai-responses": Rules(
        "openai-responses",
        results_apart=False,
        call_id=re.compile(r".{1,64}", re.DOTALL),
        own_outputs=True,
        reasoning_alone=True,
    ),
    "ai-sdk": Rules("ai-sdk"),
    "ai-sdk-ui": Rules("ai-sdk-ui", results_apart=False),
}

ANY = Rules(None, unique="message", results_apart=False)
"""What no provider takes, whichever it is."""
