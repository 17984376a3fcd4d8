"""A program that runs one prompt with Claude Code and prints the messages of the SDK as lines of JSON.

Its arguments are a database, a working directory, the prompt, and the id of a session to resume.
"""

import json
import sys

import anyio
from claude_agent_sdk import ClaudeAgentOptions, query

from recollect.integrations.claude_agent_sdk import RecollectSessionStore


async def main(url, folder, prompt, resume=None):
    """Run the prompt with a store, which gets every entry at once."""
    async with RecollectSessionStore.from_url(url) as store:
        options = ClaudeAgentOptions(
            session_store=store, session_store_flush="eager", resume=resume, cwd=folder, model="claude-sonnet-4-5",
            allowed_tools=["Bash", "Task", "Agent"], setting_sources=[], max_turns=20,
            stderr=lambda line: print(line, file=sys.stderr),
        )  # fmt: skip
        async for message in query(prompt=prompt, options=options):
            fields = {"type": type(message).__name__, "session": getattr(message, "session_id", None)}
            print(json.dumps({**fields, "text": str(message)[:500]}), flush=True)


anyio.run(main, *sys.argv[1:])
