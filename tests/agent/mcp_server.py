"""A real MCP server that speaks over standard input and output: a few tools, some of which misbehave."""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")


@server.tool()
def lend(book: str) -> str:
    """Lend a book."""
    return f"{book} is yours until {os.environ.get('UNTIL', 'tomorrow')}"


@server.tool()
def refuse() -> str:
    """Refuse."""
    raise ValueError("closed on Mondays")


@server.tool()
def collapse() -> str:
    """End the process."""
    os._exit(3)


sys.stderr.write("noise that must not reach the talk\n")
server.run("stdio")
