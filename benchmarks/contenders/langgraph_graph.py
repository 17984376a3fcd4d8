"""LangGraph: a graph of one node whose state is the list of messages, kept by its checkpointer."""

from __future__ import annotations

from contenders.contender import Contender


def written(message):
    """Write a message as the graph takes it."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    if message["role"] == "user":
        return HumanMessage(message["content"])
    if message["role"] == "tool":
        return ToolMessage(message["content"], tool_call_id=message["tool_call_id"])
    import json

    calls = [
        {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
        for call in message.get("tool_calls") or []
    ]
    return AIMessage(message["content"] or "", tool_calls=calls)


class SqliteGraph(Contender):
    """SqliteSaver. One invocation is one turn."""

    durability = "WAL, synchronous at its default, FULL"
    threads = True

    async def open(self, place):
        self.stack, self.saver = self.checkpointer(place)
        self.graph = self.compiled()

    def checkpointer(self, place):
        from langgraph.checkpoint.sqlite import SqliteSaver

        stack = SqliteSaver.from_conn_string(place)
        return stack, stack.__enter__()

    def compiled(self):
        from langgraph.graph import END, START, MessagesState, StateGraph

        def answer(_):
            return {"messages": self.answers.pop()}

        self.answers = []
        graph = StateGraph(MessagesState)
        graph.add_node("model", answer)
        graph.add_edge(START, "model")
        graph.add_edge("model", END)
        return graph.compile(checkpointer=self.saver)

    async def close(self):
        self.stack.__exit__(None, None, None)

    def config(self, session):
        return {"configurable": {"thread_id": session}}

    async def append(self, session, turn):
        self.answers.append([written(message) for message in turn[1:]])
        self.graph.invoke({"messages": [written(turn[0])]}, self.config(session))

    async def fill(self, session, turns):
        messages = [written(message) for turn in turns for message in turn]
        self.graph.update_state(self.config(session), {"messages": messages}, as_node="model")

    async def load(self, session):
        return len(self.graph.get_state(self.config(session)).values["messages"])


class PostgresGraph(SqliteGraph):
    """PostgresSaver."""

    durability = "fsync and synchronous_commit on"

    def checkpointer(self, place):
        from langgraph.checkpoint.postgres import PostgresSaver

        stack = PostgresSaver.from_conn_string(place)
        saver = stack.__enter__()
        saver.setup()
        return stack, saver
