"""An MCP server that appends each call to the file that RECORD names, so that a test sees which calls really ran."""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("ledger")


@server.tool(description=os.environ.get("DESCRIPTION", "Pay a person."))
def pay(to: str, note: str = "") -> str:
    with open(os.environ["RECORD"], "a", encoding="utf-8") as record:
        record.write(f"pay {to}\n")
    return f"paid {to}"


@server.tool()
def look() -> str:
    """Look at the account."""
    with open(os.environ["RECORD"], "a", encoding="utf-8") as record:
        record.write("look\n")
    return "it is empty"


server.run("stdio")
