"""A server with a scripted model, which waits, fails and calls tools on demand.

The first word of a question selects the script; the rest are file names in the server's folder:

hold NAME...  stream the start of an answer, wait for each file, stream more after it, and the end after the last one
fail          fail until the file `fixed` exists
tool NAME     call a tool that waits for the file; it fails if the name starts with `bad`
brief         answer one word, for any length of the question

The demo model answers every other question. Writes to the store fail while the file `full` exists.
"""

import asyncio
import os
import sys

from recollect.agent import Agent
from recollect.agent.demo import DemoModel, tool_finished_event
from recollect.agent.events import ReasoningDelta, Responded, TextDelta, ToolStarted
from recollect.agent.titles import message_text
from recollect.errors import DiskFull
from recollect.model.message import Draft, ReasoningPart, TextPart, ToolCallPart
from recollect.server import serve

FOLDER = sys.argv[1]
START = "# A heading\n\nThe first paragraph is complete.\n\n- one\n- two\n\nThe open paragraph "
MORE = "continues.\n\nA paragraph after {}.\n\nAnd another.\n\nAnd one more.\n\nIt "
REST = "continues and ends here.\n\n```python\nprint('done')\n```\n"


async def wait_for_file(name):
    while not os.path.exists(os.path.join(FOLDER, name)):
        await asyncio.sleep(0.01)


class ScriptedModel(DemoModel):
    async def run(self, messages, *, instructions, tools, toolsets=()):
        last = next(message for message in reversed(messages) if message.role == "user")
        word, _, name = message_text(last).partition(" ")
        script = {"hold": self._hold, "fail": self._fail, "tool": self._tool, "brief": self._brief}.get(word)
        if script is None or (word == "fail" and os.path.exists(os.path.join(FOLDER, "fixed"))):
            async for event in super().run(messages, instructions=instructions, tools=tools):
                yield event
            return
        async for event in script(name):
            yield event

    async def _hold(self, name):
        yield ReasoningDelta(text="I think, ")
        yield ReasoningDelta(text="therefore I wait.")
        *names, last = name.split()
        pieces = [piece + " " for piece in START.split(" ")]
        for piece in pieces:
            yield TextDelta(text=piece)
        for earlier in names:
            await wait_for_file(earlier)
            pieces.append(MORE.format(earlier))
            yield TextDelta(text=pieces[-1])
        await wait_for_file(last)
        for piece in REST.split(" "):
            pieces.append(piece + " ")
            yield TextDelta(text=pieces[-1])
        text = "".join(pieces)
        parts = (ReasoningPart(text="I think, therefore I wait."), TextPart(text=text))
        yield Responded(message=Draft(role="assistant", parts=parts, model="demo", input_tokens=10, output_tokens=20))

    async def _fail(self, name):
        yield TextDelta(text="Half an ")
        raise ConnectionError("the provider hung up")

    async def _brief(self, name):
        yield TextDelta(text="Received.")
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="Received."),), model="demo"))

    async def _tool(self, name):
        call = ToolCallPart(call_id=f"call-{name}", tool="wait_for", arguments={"file": name, "query": "<b>markup</b>"})
        yield Responded(message=Draft(role="assistant", parts=(call,), model="demo"))
        yield ToolStarted(call_id=call.call_id, tool=call.tool, arguments=call.input)
        await wait_for_file(name)
        failed = name.startswith("bad")
        yield tool_finished_event(
            call, "error" if failed else "success", "<script>alert('output')</script>\n" * 400, 1234
        )
        yield TextDelta(text="The tool has answered.")
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="The tool has answered."),), model="demo"))


def agent(store):
    run_operation = store._run

    async def run(op):
        if op.writes and os.path.exists(os.path.join(FOLDER, "full")):
            raise DiskFull(path=store.path)
        return await run_operation(op)

    store._run = run
    return Agent(ScriptedModel(pace=0.001), store=store, name="web")


def main():
    listener = serve.listen("127.0.0.1", int(sys.argv[2]), exact=True)
    print(f"Recollect is at http://127.0.0.1:{listener.getsockname()[1]}/#token", flush=True)
    serve.run(listener, os.path.join(FOLDER, "sessions.db"), agent, {sys.argv[3]: ""}, log_level="error")


if __name__ == "__main__":
    main()
