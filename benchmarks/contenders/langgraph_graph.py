"""LangGraph: a graph of one node whose state is the list of messages, stored by its checkpointer."""

from __future__ import annotations

import contextlib
import json

from contenders.contender import Contender, comparable_message


def to_langchain(message):
    """Convert a message to a LangChain message."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    if message["role"] == "user":
        return HumanMessage(message["content"])
    if message["role"] == "tool":
        return ToolMessage(message["content"], tool_call_id=message["tool_call_id"])
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
        for call in message.get("tool_calls") or []
    ]
    return AIMessage(message["content"] or "", tool_calls=calls)


def from_langchain(message):
    """Return a LangChain message as a comparable message."""
    if message.type == "human":
        return comparable_message("user", message.content)
    if message.type == "tool":
        return comparable_message("tool", message.content, (), message.tool_call_id)
    return comparable_message(
        "assistant", message.content, [(call["id"], call["name"], call["args"]) for call in message.tool_calls]
    )


class SqliteGraph(Contender):
    """SqliteSaver, and AsyncSqliteSaver for concurrent tasks. One invocation is one turn.

    One node returns all answers of a turn in one step. An agent with tools would use one step and one checkpoint for
    each.
    """

    durability = "WAL, synchronous=FULL (SQLite's default); durability='async', done when invoke() returns"
    tasks = "AsyncSqliteSaver, one connection"
    batch = 100_000
    sizes = False

    async def open(self, location):
        self.location = location
        self.answers = {}
        self.stack = contextlib.AsyncExitStack()
        self.graph = self.compile_graph(self.checkpointer(location))
        self.async_graph = None

    def checkpointer(self, location):
        from langgraph.checkpoint.sqlite import SqliteSaver

        return self.stack.enter_context(SqliteSaver.from_conn_string(location))

    async def async_checkpointer(self):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        return await self.stack.enter_async_context(AsyncSqliteSaver.from_conn_string(self.location))

    def compile_graph(self, saver):
        from langchain_core.runnables import RunnableConfig
        from langgraph.graph import END, START, MessagesState, StateGraph

        def answer(_, config: RunnableConfig):
            return {"messages": self.answers.pop(config["configurable"]["thread_id"])}

        # LangGraph cannot resolve a postponed annotation of a function that is defined inside another function.
        answer.__annotations__["config"] = RunnableConfig
        graph = StateGraph(MessagesState)
        graph.add_node("model", answer)
        graph.add_edge(START, "model")
        graph.add_edge("model", END)
        return graph.compile(checkpointer=saver)

    async def close(self):
        await self.stack.aclose()

    def config(self, session):
        return {"configurable": {"thread_id": session}}

    async def append(self, session, turn):
        self.answers[session] = [to_langchain(message) for message in turn[1:]]
        self.graph.invoke({"messages": [to_langchain(turn[0])]}, self.config(session))

    async def append_concurrently(self, session, turn):
        if self.async_graph is None:
            self.async_graph = self.compile_graph(await self.async_checkpointer())
        self.answers[session] = [to_langchain(message) for message in turn[1:]]
        await self.async_graph.ainvoke({"messages": [to_langchain(turn[0])]}, self.config(session))

    async def fill(self, session, turns):
        messages = [to_langchain(message) for turn in turns for message in turn]
        self.graph.update_state(self.config(session), {"messages": messages}, as_node="model")

    async def load(self, session):
        return self.graph.get_state(self.config(session)).values["messages"]

    def comparable(self, messages):
        return [from_langchain(message) for message in messages]


class PostgresGraph(SqliteGraph):
    """PostgresSaver, and AsyncPostgresSaver with a pool."""

    durability = "fsync and synchronous_commit on; durability='async', done when invoke() returns"
    tasks = "AsyncPostgresSaver, a pool of 16 connections"

    def checkpointer(self, location):
        from langgraph.checkpoint.postgres import PostgresSaver

        saver = self.stack.enter_context(PostgresSaver.from_conn_string(location))
        saver.setup()
        return saver

    async def async_checkpointer(self):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool = AsyncConnectionPool(self.location, max_size=16, kwargs=settings, open=False)
        return AsyncPostgresSaver(await self.stack.enter_async_context(pool))
