"""A real MCP server over standard input and output, with a few tools. Some of them fail."""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")


@server.tool()
def lend(title: str) -> str:
    """Issue a novel to a reader."""
    return f"{title} is yours until {os.environ.get('UNTIL', 'tomorrow')}"


@server.tool()
def refuse() -> str:
    """Raise an error."""
    raise ValueError("The library is closed on Mondays.")


@server.tool()
def collapse() -> str:
    """End the process."""
    os._exit(3)


sys.stderr.write("noise that must not reach the conversation\n")
server.run("stdio")
