"""Agents: conversations with a model, recorded in a store as they happen.

    agent.py          Agent: a model, its tools and instructions, over a store; also from the configuration
    conversation.py   one conversation in one session: ask, stream, stop
    recorder.py       writes a turn in the background, and holds messages in memory while the store fails
    presence.py       the windows and processes that have the session open
    approvals.py      approval of the tools of MCP servers
    commands.py       the slash commands that every channel shares
    models.py         model names; provider.py: models of Pydantic AI; demo.py: the built-in model
    tools.py, recall.py, titles.py, events.py

Nothing here knows a terminal, a web page or a bot.
Only provider.py, pydantic_messages.py and mcp.py import Pydantic AI.
"""

from __future__ import annotations

from recollect.agent.agent import Agent, agent_from_config
from recollect.agent.approvals import Approval, Approver
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
from recollect.config.mcp_servers import McpServer

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
    "agent_from_config",
]
