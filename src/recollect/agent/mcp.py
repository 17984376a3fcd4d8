"""MCP servers for a model: started when a talk first needs them, kept while the agent lasts, mourned in words.

This file, provider.py and pydantic_messages.py are the only ones that know Pydantic AI. Importing it costs a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, TextIO

from fastmcp.client.transports import StdioTransport
from pydantic_ai.exceptions import AgentRunError, ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset

from recollect.agent.approvals import Approvals, Call
from recollect.agent.events import Event, Notice
from recollect.config import expanded
from recollect.config.servers import McpServer

Tell = Callable[[Event], None]
_LAST = 300
_ANSWERS = 20.0
_PASSED = (ModelRetry, ToolFailed, CallDeferred, ApprovalRequired, AgentRunError, UserError)
"""What the library itself understands."""


class Servers:
    """The servers of an agent."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = [_Connection(server) for server in servers if server.enabled]

    async def toolsets(self, tell: Tell, approvals: Approvals) -> list[Any]:
        """Give the tools of every server that runs; one that does not is told, once, and left out."""
        found = await asyncio.gather(*(server.toolset(tell, approvals) for server in self._servers))
        return [toolset for toolset in found if toolset is not None]

    async def close(self) -> None:
        """End what was started."""
        await asyncio.gather(*(server.close() for server in self._servers))


class _Connection:
    """One server. A task of its own holds it: what it opens must be closed by the task that opened it."""

    def __init__(self, server: McpServer) -> None:
        self.name = server.name
        self.server = server
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._toolset: AbstractToolset[Any] | None = None
        self._client: Any = None
        self._starting = asyncio.Lock()
        self._given_up = self.broken = False

    async def toolset(self, tell: Tell, approvals: Approvals) -> AbstractToolset[Any] | None:
        async with self._starting:
            if self.broken:
                await self.close()
            if self._toolset is None and not self._given_up:
                reason = await self._start()
                if reason is not None:
                    self._given_up = True
                    told = f"The MCP server {self.name!r} could not be started: {reason}"
                    tell(Notice(text=f"{told} The talk goes on without its tools.", level="warning"))
        return None if self._toolset is None else _Careful(self._toolset, self, tell, approvals)

    async def _start(self) -> str | None:
        """Start it; give the reason where that fails."""
        self._stop, self.broken = asyncio.Event(), False
        ready: asyncio.Future[AbstractToolset[Any]] = asyncio.get_running_loop().create_future()
        # What a server prints beside the protocol would be printed into the talk.
        with tempfile.TemporaryFile("a+", encoding="utf-8", errors="replace") as said:
            self._task = asyncio.create_task(self._hold(ready, os.dup(said.fileno())))
            try:
                self._toolset = await asyncio.wait_for(asyncio.shield(ready), self.server.timeout)
            except TimeoutError:
                reason = f"it did not answer within {self.server.timeout:g} seconds."
            except Exception as error:  # noqa: BLE001  whatever is wrong with it, the talk goes on
                reason = f"{_line(str(error) or type(error).__name__)}."
            else:
                return None
            await self.close()
            return reason + _last_words(said)

    async def _hold(self, ready: asyncio.Future[AbstractToolset[Any]], said: int) -> None:
        with open(said, "a", encoding="utf-8") as log:  # noqa: ASYNC230  a descriptor, and nothing is read or written here
            try:
                toolset = _made(self.server, log)
                self._client = toolset.client
                async with toolset:
                    ready.set_result(toolset.prefixed(self.prefix))
                    await self._stop.wait()
            except Exception as error:  # noqa: BLE001  handed to who waits; one that ends badly has ended
                if not ready.done():
                    ready.set_exception(error)

    @property
    def prefix(self) -> str:
        """What the names of its tools begin with, before an underscore."""
        return self.name.replace("-", "_")

    async def ask(self) -> None:
        """Ask it something that every server answers."""
        if self._client is not None:
            await self._client.list_tools()

    async def close(self) -> None:
        self._stop.set()
        self._toolset = None
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), 5)
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=5)


def _made(server: McpServer, said: TextIO) -> MCPToolset[Any]:
    options: dict[str, Any] = {"id": server.name, "tool_error_behavior": "failed", "init_timeout": server.timeout}
    if server.url is not None:
        return MCPToolset(server.url, headers=dict(server.headers) or None, **options)
    program, *arguments = server.command
    folder = None if server.folder is None else expanded(server.folder)
    started = StdioTransport(program, arguments, env=dict(server.env), cwd=folder, keep_alive=False, log_file=said)
    return MCPToolset(started, **options)


def _last_words(said: IO[str]) -> str:
    said.seek(0)
    lines = [line for line in said.read().splitlines() if line.strip()]
    return f" It said: {_line(lines[-1])}." if lines else ""


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")[:_LAST]


@dataclass
class _Careful(WrapperToolset[Any]):
    """Tools of a server that may die: the model is told that a call failed, and the talk goes on.

    A tool runs only after it was approved.
    """

    connection: _Connection
    tell: Tell
    approvals: Approvals

    async def get_tools(self, ctx: Any) -> dict[str, Any]:
        try:
            return await super().get_tools(ctx)
        except _PASSED:
            raise
        except Exception as error:  # noqa: BLE001  a server may fail in any way
            self._lost(error)
            return {}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        call = Call(
            server=self.connection.server,
            tool=name.removeprefix(f"{self.connection.prefix}_"),
            definition=[tool.tool_def.description, tool.tool_def.parameters_json_schema],
            arguments=tool_args,
            call_id=ctx.tool_call_id or "",
        )
        refusal = await self.approvals.refusal(call)
        if refusal is not None:
            raise ToolFailed(refusal)
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except (ToolFailed, ModelRetry) as error:
            await self._ask()  # a server that has died fails in the same way as a tool
            if self.connection.broken:  # trying again would only use up the tries of the run
                raise ToolFailed(str(error)) from error
            raise
        except _PASSED:
            raise
        except Exception as error:
            self._lost(error)
            raise ToolFailed(f"The MCP server {self.connection.name!r} failed: {_line(str(error))}") from error

    async def _ask(self) -> None:
        try:
            await asyncio.wait_for(self.connection.ask(), _ANSWERS)
        except Exception as error:  # noqa: BLE001  a server may fail in any way
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        if not self.connection.broken:
            self.connection.broken = True
            reason = _line(str(error) or type(error).__name__)
            text = (
                f"The MCP server {self.connection.name!r} failed: {reason}. It is started again with the next answer."
            )
            self.tell(Notice(text=text, level="warning"))
