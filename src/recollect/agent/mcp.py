"""MCP servers of an agent: started before the first answer that needs them, stopped when the agent is closed.

Only this module, provider.py and pydantic_messages.py import Pydantic AI. Importing it takes about a second.
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

from recollect.agent.approvals import Approvals, McpCall
from recollect.agent.events import Event, Notice
from recollect.config import expand_home
from recollect.config.mcp_servers import McpServer
from recollect.model.humanize import clause

NoticeListener = Callable[[Event], None]
_MAX_LINE = 300  # characters of a server's error in a notice
_PING_TIMEOUT = 20.0  # seconds for the test request after a failed call; a busy server may be slow
_LIBRARY_ERRORS = (ModelRetry, ToolFailed, CallDeferred, ApprovalRequired, AgentRunError, UserError)
"""Exceptions that Pydantic AI handles itself."""


class McpServers:
    """The servers of an agent."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._servers = [_McpConnection(server) for server in servers if server.enabled]

    async def toolsets(self, emit: NoticeListener, approvals: Approvals) -> list[Any]:
        """Return the toolsets of all running servers. A server that cannot be started causes one Notice."""
        toolsets = await asyncio.gather(*(server.toolset(emit, approvals) for server in self._servers))
        return [toolset for toolset in toolsets if toolset is not None]

    async def close(self) -> None:
        """Stop all servers."""
        await asyncio.gather(*(server.close() for server in self._servers))


class _McpConnection:
    """One server. A task of its own holds it, because anyio requires the task that opens a connection to close it."""

    def __init__(self, server: McpServer) -> None:
        self.name = server.name
        self.server = server
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._toolset: AbstractToolset[Any] | None = None
        self._client: Any = None
        self._start_lock = asyncio.Lock()
        self._start_failed = self.broken = False

    async def toolset(self, emit: NoticeListener, approvals: Approvals) -> AbstractToolset[Any] | None:
        async with self._start_lock:
            if self.broken:
                await self.close()
            if self._toolset is None and not self._start_failed:
                reason = await self._start()
                if reason is not None:
                    self._start_failed = True
                    failure = f"The MCP server {self.name!r} could not be started: {reason}"
                    emit(Notice(text=f"{failure} The conversation continues without its tools.", level="warning"))
        return None if self._toolset is None else _GuardedToolset(self._toolset, self, emit, approvals)

    async def _start(self) -> str | None:
        """Start the server; return the reason if that fails."""
        self._stop, self.broken = asyncio.Event(), False
        ready: asyncio.Future[AbstractToolset[Any]] = asyncio.get_running_loop().create_future()
        # The server's stderr goes to a file: on the terminal, it would be printed over the conversation.
        with tempfile.TemporaryFile("a+", encoding="utf-8", errors="replace") as log:
            self._task = asyncio.create_task(self._run(ready, os.dup(log.fileno())))
            try:
                self._toolset = await asyncio.wait_for(asyncio.shield(ready), self.server.timeout)
            except TimeoutError:
                reason = f"it did not answer within {self.server.timeout:g} seconds."
            except Exception as error:  # noqa: BLE001  no error of a server ends the conversation
                reason = f"{clause(str(error) or type(error).__name__, _MAX_LINE)}."
            else:
                return None
            await self.close()
            return reason + _last_log_line(log)

    async def _run(self, ready: asyncio.Future[AbstractToolset[Any]], log_descriptor: int) -> None:
        """Open the connection, pass its toolset to `ready`, and close it after `_stop` is set."""
        with open(log_descriptor, "a", encoding="utf-8") as log:  # noqa: ASYNC230  a descriptor, and nothing is read or written here
            try:
                toolset = _build_toolset(self.server, log)
                self._client = toolset.client
                async with toolset:
                    ready.set_result(toolset.prefixed(self.prefix))
                    await self._stop.wait()
            except Exception as error:  # noqa: BLE001  passed to the waiter; after the start, an error only ends the server
                if not ready.done():
                    ready.set_exception(error)

    @property
    def prefix(self) -> str:
        """The prefix of the tool names, before an underscore."""
        return self.name.replace("-", "_")

    async def ping(self) -> None:
        """Send a request that every server answers. Raises if the server is dead."""
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


def _build_toolset(server: McpServer, log: TextIO) -> MCPToolset[Any]:
    options: dict[str, Any] = {"id": server.name, "tool_error_behavior": "failed", "init_timeout": server.timeout}
    if server.url is not None:
        return MCPToolset(server.url, headers=dict(server.headers) or None, **options)
    program, *arguments = server.command
    folder = None if server.folder is None else expand_home(server.folder)
    transport = StdioTransport(program, arguments, env=dict(server.env), cwd=folder, keep_alive=False, log_file=log)
    return MCPToolset(transport, **options)


def _last_log_line(log: IO[str]) -> str:
    log.seek(0)
    lines = [line for line in log.read().splitlines() if line.strip()]
    return f" Its last output: {clause(lines[-1], _MAX_LINE)}." if lines else ""


@dataclass
class _GuardedToolset(WrapperToolset[Any]):
    """The tools of one server. A tool runs only after approval; if the server dies, the call fails and nothing else."""

    connection: _McpConnection
    emit: NoticeListener
    approvals: Approvals

    async def get_tools(self, ctx: Any) -> dict[str, Any]:
        try:
            return await super().get_tools(ctx)
        except _LIBRARY_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  a server may fail in any way
            self._mark_broken(error)
            return {}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        call = McpCall(
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
            await self._ping()  # a dead server raises the same error as a failed tool
            if self.connection.broken:  # a retry would fail too, and use up the retries of the run
                raise ToolFailed(str(error)) from error
            raise
        except _LIBRARY_ERRORS:
            raise
        except Exception as error:
            self._mark_broken(error)
            raise ToolFailed(
                f"The MCP server {self.connection.name!r} failed: {clause(str(error), _MAX_LINE)}"
            ) from error

    async def _ping(self) -> None:
        try:
            await asyncio.wait_for(self.connection.ping(), _PING_TIMEOUT)
        except Exception as error:  # noqa: BLE001  a server may fail in any way
            self._mark_broken(error)

    def _mark_broken(self, error: Exception) -> None:
        if not self.connection.broken:
            self.connection.broken = True
            reason = clause(str(error) or type(error).__name__, _MAX_LINE)
            text = (
                f"The MCP server {self.connection.name!r} failed: {reason}. It will be restarted for the next answer."
            )
            self.emit(Notice(text=text, level="warning"))
