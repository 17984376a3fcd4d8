"""The stores that are measured side by side, each through its own public interface.

Each contender keeps a turn with what it offers for that, loads a conversation as its own values, and says how durable a
turn is when it returns. What it does not offer is None. They run in processes of their own (measure.py).
"""

from __future__ import annotations

import importlib

NAMES = {
    "recollect": "recollect_store:Recollect",
    "recollect-turn": "recollect_store:RecollectTurn",
    "openai-agents": "openai_agents:SqliteSessions",
    "openai-agents-sqlalchemy": "openai_agents:SqlAlchemySessions",
    "langgraph": "langgraph_graph:SqliteGraph",
    "google-adk": "google_adk:DatabaseSessions",
    "agno": "agno_db:SqliteRuns",
    "llm": "llm_log:Log",
    "raw-apsw": "limits:RawApsw",
    "jsonl": "limits:JsonLines",
    "recollect-postgres": "recollect_store:RecollectPostgres",
    "openai-agents-postgres": "openai_agents:PostgresSessions",
    "langgraph-postgres": "langgraph_graph:PostgresGraph",
    "raw-psycopg": "limits:RawPsycopg",
    "raw-asyncpg-pool": "limits:RawAsyncpg",
}


def make(name: str):
    """Make a contender by its name."""
    module, _, kind = NAMES[name].partition(":")
    return getattr(importlib.import_module(f"contenders.{module}"), kind)()
