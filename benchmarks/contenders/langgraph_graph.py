"""LangGraph: a graph of one node whose state is the list of messages, kept by its checkpointer."""

from __future__ import annotations

import contextlib
import json

from contenders.contender import Contender, said


def written(message):
    """Write a message as the graph takes it."""
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


def read(message):
    """Say what a message of LangChain says."""
    if message.type == "human":
        return said("user", message.content)
    if message.type == "tool":
        return said("tool", message.content, (), message.tool_call_id)
    return said("assistant", message.content, [(call["id"], call["name"], call["args"]) for call in message.tool_calls])


class SqliteGraph(Contender):
    """SqliteSaver, and AsyncSqliteSaver where tasks run at once. One invocation is one turn.

    The answers come from one node in one step. An agent with tools would take a step, and a checkpoint, for each.
    """

    durability = "WAL, synchronous at SQLite's default, FULL; durability='async', done when invoke() returns"
    tasks = "AsyncSqliteSaver, one connection"
    batch = 100_000
    sizes = False

    async def open(self, place):
        self.place = place
        self.answers = {}
        self.stack = contextlib.AsyncExitStack()
        self.graph = self.compiled(self.checkpointer(place))
        self.beside = None

    def checkpointer(self, place):
        from langgraph.checkpoint.sqlite import SqliteSaver

        return self.stack.enter_context(SqliteSaver.from_conn_string(place))

    async def checkpointer_together(self):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        return await self.stack.enter_async_context(AsyncSqliteSaver.from_conn_string(self.place))

    def compiled(self, saver):
        from langchain_core.runnables import RunnableConfig
        from langgraph.graph import END, START, MessagesState, StateGraph

        def answer(_, config: RunnableConfig):
            return {"messages": self.answers.pop(config["configurable"]["thread_id"])}

        # The postponed annotation can not be looked up where it is defined inside a function.
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
        self.answers[session] = [written(message) for message in turn[1:]]
        self.graph.invoke({"messages": [written(turn[0])]}, self.config(session))

    async def append_together(self, session, turn):
        if self.beside is None:
            self.beside = self.compiled(await self.checkpointer_together())
        self.answers[session] = [written(message) for message in turn[1:]]
        await self.beside.ainvoke({"messages": [written(turn[0])]}, self.config(session))

    async def fill(self, session, turns):
        messages = [written(message) for turn in turns for message in turn]
        self.graph.update_state(self.config(session), {"messages": messages}, as_node="model")

    async def load(self, session):
        return self.graph.get_state(self.config(session)).values["messages"]

    def said(self, loaded):
        return [read(message) for message in loaded]


class PostgresGraph(SqliteGraph):
    """PostgresSaver, and AsyncPostgresSaver with a pool."""

    durability = "fsync and synchronous_commit on; durability='async', done when invoke() returns"
    tasks = "AsyncPostgresSaver, a pool of 16 connections"

    def checkpointer(self, place):
        from langgraph.checkpoint.postgres import PostgresSaver

        saver = self.stack.enter_context(PostgresSaver.from_conn_string(place))
        saver.setup()
        return saver

    async def checkpointer_together(self):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool = AsyncConnectionPool(self.place, max_size=16, kwargs=settings, open=False)
        return AsyncPostgresSaver(await self.stack.enter_async_context(pool))
