"""One conversation with a model, which records itself.

    models.py      which model a name means; provider.py: those of Pydantic AI; demo.py: the built-in one
    agent.py       Agent: a model, its tools and instructions, over a store
    configuration.py  the agent that the configuration describes
    conversation.py  one talk in one session: ask, stream, stop
    approvals.py   whether a tool of an MCP server may run, and who is asked
    recorder.py    what is written while it happens, and held while the store fails
    commands.py    the slash commands that every surface shares

Nothing here knows a terminal, a page or a bot, and only provider.py, pydantic_messages.py and mcp.py know Pydantic AI.
"""

from __future__ import annotations

from recollect.agent.agent import Agent
from recollect.agent.approvals import Approval, Approver
from recollect.agent.configuration import configured
from recollect.agent.conversation import Answer, Conversation
from recollect.agent.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Delegated,
    Event,
    Notice,
    ReasoningDelta,
    Responded,
    TextDelta,
    Titled,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from recollect.agent.models import Model
from recollect.config.servers import McpServer

__all__ = [
    "Agent",
    "Answer",
    "Approval",
    "ApprovalAnswered",
    "ApprovalRequested",
    "Approver",
    "Conversation",
    "Delegated",
    "Event",
    "McpServer",
    "Model",
    "Notice",
    "ReasoningDelta",
    "Responded",
    "TextDelta",
    "Titled",
    "ToolFinished",
    "ToolStarted",
    "TurnEnded",
    "TurnStarted",
    "configured",
]
