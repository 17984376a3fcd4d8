"""A server whose model does what a test needs: it waits where it is told to, fails until it is mended, calls tools.

A question is one of these words, with more behind it: `hold` (streams a beginning, waits until the file of that name is there,
streams the rest; of several names, it waits for each, and says more after it), `fail` (fails until the file `mended` is there), `tool` (calls a tool that waits for its file), `brief` (answers one word, however long the
question is), and anything that the demo model knows. Nothing can be written while the file `full` is there.
"""

import asyncio
import os
import sys

from recollect.agent import Agent
from recollect.agent.demo import DemoModel, finished
from recollect.agent.events import ReasoningDelta, Responded, TextDelta, ToolStarted
from recollect.agent.titles import said
from recollect.errors import DiskFull
from recollect.model.message import Draft
from recollect.model.part import ReasoningPart, TextPart, ToolCallPart
from recollect.server import serve

FOLDER = sys.argv[1]
BEGINNING = "# A heading\n\nThe first paragraph is complete.\n\n- one\n- two\n\nThe open paragraph "
MORE = "went on.\n\nA paragraph after {}.\n\nAnd another.\n\nAnd one more.\n\nIt goes on "
REST = "goes on, and ends here.\n\n```python\nprint('done')\n```\n"


async def there(name):
    while not os.path.exists(os.path.join(FOLDER, name)):
        await asyncio.sleep(0.01)


class Scripted(DemoModel):
    async def run(self, spoken, *, instructions, tools, toolsets=()):
        last = next(message for message in reversed(spoken) if message.role == "user")
        word, _, name = said(last).partition(" ")
        script = {"hold": self._hold, "fail": self._fail, "tool": self._tool, "brief": self._brief}.get(word)
        if script is None or (word == "fail" and os.path.exists(os.path.join(FOLDER, "mended"))):
            async for event in super().run(spoken, instructions=instructions, tools=tools):
                yield event
            return
        async for event in script(name):
            yield event

    async def _hold(self, name):
        yield ReasoningDelta(text="I think, ")
        yield ReasoningDelta(text="therefore I wait.")
        *earlier, name = name.split()
        pieces = [piece + " " for piece in BEGINNING.split(" ")]
        for piece in pieces:
            yield TextDelta(text=piece)
        for one in earlier:
            await there(one)
            pieces.append(MORE.format(one))
            yield TextDelta(text=pieces[-1])
        await there(name)
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
        call = ToolCallPart(
            call_id=f"call-{name}", tool="wait_for", arguments={"file": name, "query": "<b>telling</b>"}
        )
        yield Responded(message=Draft(role="assistant", parts=(call,), model="demo"))
        yield ToolStarted(call_id=call.call_id, tool=call.tool, arguments=call.input)
        await there(name)
        failed = name.startswith("bad")
        yield finished(call, "error" if failed else "success", "<script>alert('output')</script>\n" * 400, 1234)
        yield TextDelta(text="The tool has answered.")
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="The tool has answered."),), model="demo"))


def agent(store):
    plain = store.run

    async def run(op):
        if op.writes and os.path.exists(os.path.join(FOLDER, "full")):
            raise DiskFull(path=store.path)
        return await plain(op)

    store.run = run
    return Agent(Scripted(pace=0.001), store=store, name="web")


def main():
    listener = serve.listen("127.0.0.1", int(sys.argv[2]), exact=True)
    print(f"Recollect is at http://127.0.0.1:{listener.getsockname()[1]}/#token", flush=True)
    serve.run(listener, os.path.join(FOLDER, "talk.db"), agent, {sys.argv[3]: ""}, log_level="error")


if __name__ == "__main__":
    main()
