"""The stores that the benchmark compares, each through its own public interface.

Each contender stores a turn with the call that the store provides for it, loads a conversation as the store's own
values, and states how durable a stored turn is. Unsupported methods return None. Each contender runs in a separate
process (measure.py).
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
    """Create a contender by its name."""
    module, _, kind = NAMES[name].partition(":")
    return getattr(importlib.import_module(f"contenders.{module}"), kind)()
