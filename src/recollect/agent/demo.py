"""The built-in model `demo`: offline, instant, and not a language model.

It matches a handful of phrases, answers from the conversation itself, streams word by word and calls real tools, so
that everything around a model can be tried and tested without a key or a network.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

from recollect.agent.events import Event, ReasoningDelta, Responded, TextDelta, ToolFinished, ToolStarted
from recollect.agent.models import DEMO, ModelInput
from recollect.agent.recall import is_recalled
from recollect.agent.titles import message_text, title_of
from recollect.agent.tools import Tool, call_tool
from recollect.model.humanize import pluralize, truncate
from recollect.model.message import (
    Draft,
    Message,
    Part,
    ReasoningPart,
    ResultStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from recollect.model.tokens import estimate_tokens

RequestedCalls = list[tuple[str, dict[str, Any]]]
AnyMessage = Draft | Message
_MAX_QUOTE = 200  # characters of a quoted message: a demo answer stays short


class DemoReply(NamedTuple):
    """The text of an answer and the tools to call before it; `after` builds the answer from their results."""

    text: str = ""
    reasoning: str = ""
    calls: RequestedCalls = []  # noqa: RUF012  a default that is never mutated
    after: Callable[[list[str]], str] = "\n".join


class PhraseMatch(NamedTuple):
    """The input of a phrase handler: the message text, the match in it, the earlier messages, and the tool names."""

    text: str
    match: re.Match[str]
    before: Sequence[AnyMessage]
    tools: Sequence[str]


ABOUT = (
    "I am Recollect's built-in **demo model**. I run offline and I am not a language model: I know a handful of "
    "phrases, and I show how a conversation is stored."
)
HELP = f"""{ABOUT}

You can try:

- `What time is it?` or `What is 12 * 34?`: I call a tool
- `My name is Ada`, and later `What is my name?`
- `What did I say first?`, `How many messages are there?`, `Summarize`, `Repeat that`
- `Search for coats`: I search all your conversations
- `Show me some code`, `Think about it`, `Tell me a long story` (stop me with Ctrl-C)
- `call NAME {{"argument": 1}}`: I call any tool of this agent

For a real model, run for example `recollect chat -m anthropic:MODEL`."""

CODE = '''Here is a little Python, with a table below it.

```python
def fibonacci(count: int) -> list[int]:
    """Return the first numbers of the sequence."""
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:count]
```

| n | value |
|---|---|
| 1 | 0 |
| 10 | 34 |

1. The first two numbers are fixed.
2. Each other number is the sum of the two before it.

> I am a demo model: this answer is always the same.'''

_STORY = (
    "Chapter {number}. The archivist opened drawer {number} and found a letter that nobody had lost. "
    "She read it twice, wrote its number on a card, and put the card where the next reader would look for it."
)


_SPEAKER = re.compile(r"\A\[[^\[\]\n]{1,64}\] ")
"""The author's name, which bots put before a message in chats with several people."""


def compose_reply(messages: ModelInput, tools: Sequence[str]) -> DemoReply:
    """Return the reply to the last user message."""
    last = max((number for number, message in enumerate(messages) if message.role == "user"), default=-1)
    text = _SPEAKER.sub("", message_text(messages[last]).strip()) if last >= 0 else ""
    before = [message for message in messages[:last] if not is_recalled(message)]
    for pattern, compose in _PHRASES:
        match = pattern.search(text)
        if match:
            reply = compose(PhraseMatch(text, match, before, tools))
            if reply is not None:
                return reply
    return DemoReply(_fallback(text))


def _fallback(text: str) -> str:
    if not text:
        return f"{ABOUT} Your message has no text that I can read."
    return f"{ABOUT}\n\nYou said: {_quote(text)}\n\nSay `help` to see what I can do."


def _quote(text: str) -> str:
    line = " ".join(text.split())
    excerpt = truncate(line, _MAX_QUOTE)
    return f"\u201c{excerpt}\u201d"


def _user_texts(before: Sequence[AnyMessage]) -> list[str]:
    return [message_text(message) for message in before if message.role == "user" and message_text(message)]


def _help(_: PhraseMatch) -> DemoReply:
    return DemoReply(HELP)


def _hello(phrase: PhraseMatch) -> DemoReply:
    name = _find_name(phrase.before)
    greeting = f"Hello{', ' + name if name else ''}!"
    return DemoReply(f"{greeting} {ABOUT} Say `help` to see what I can do.")


def _time(phrase: PhraseMatch) -> DemoReply | None:
    if "current_time" not in phrase.tools:
        return None
    return DemoReply(
        "Let me check the time.", calls=[("current_time", {})], after=lambda results: f"It is {results[0]}."
    )


def _sum(phrase: PhraseMatch) -> DemoReply | None:
    expression = phrase.match[0].strip().rstrip("=?").strip()
    if "calculate" not in phrase.tools or not re.search(r"\d", expression):
        return None

    def after(results: list[str]) -> str:
        return results[0] if ":" in results[0] else f"{expression} = **{results[0]}**"

    return DemoReply(calls=[("calculate", {"expression": expression})], after=after)


def _search(phrase: PhraseMatch) -> DemoReply | None:
    name, query = "search_conversations", phrase.match["query"].strip(" \"'?.!")
    if name not in phrase.tools or not query:
        return None
    return DemoReply(
        f"I am searching your conversations for {_quote(query)}.",
        calls=[(name, {"query": query})],
        after=lambda results: f"This is what I found:\n\n{results[0]}",
    )


def _call(phrase: PhraseMatch) -> DemoReply | None:
    tool = phrase.match["tool"]
    if tool not in phrase.tools:
        return None
    try:
        arguments = json.loads(phrase.match["arguments"] or "{}")
    except ValueError:
        return DemoReply('The arguments are not JSON. Write them as `call NAME {"argument": 1}`.')
    return DemoReply(calls=[(tool, arguments)], after=lambda results: f"`{tool}` returned: {results[0]}")


def _greet_name(phrase: PhraseMatch) -> DemoReply:
    return DemoReply(
        f"Nice to meet you, {phrase.match['name']}. Ask me for your name later: it is in this conversation now."
    )


_NAME = re.compile(r"\b(?:my name is|i am called|call me)\s+(?P<name>[A-Z\u00c0-\u024f][\w'-]*)", re.IGNORECASE)


def _find_name(before: Sequence[AnyMessage]) -> str | None:
    for text in reversed(_user_texts(before)):
        match = _NAME.search(text)
        if match:
            return match["name"]
    return None


def _ask_name(phrase: PhraseMatch) -> DemoReply:
    name = _find_name(phrase.before)
    if name is None:
        return DemoReply("You have not told me your name in this conversation. Say `My name is ...`.")
    return DemoReply(f"Your name is {name}. You told me in this conversation.")


def _count(phrase: PhraseMatch) -> DemoReply:
    user_count = len(_user_texts(phrase.before)) + 1
    total = len(phrase.before) + 1
    return DemoReply(f"I can see {total} messages of this conversation, {user_count} of them yours, this one included.")


def _first(phrase: PhraseMatch) -> DemoReply:
    texts = _user_texts(phrase.before)
    if not texts:
        return DemoReply("This is your first message in this conversation.")
    which = phrase.match["which"].lower()
    text = texts[0] if which == "first" else texts[-1]
    return DemoReply(f"{'First' if which == 'first' else 'Just before this'} you said: {_quote(text)}")


def _repeat(phrase: PhraseMatch) -> DemoReply:
    answers = [
        message_text(message) for message in phrase.before if message.role == "assistant" and message_text(message)
    ]
    return DemoReply(answers[-1] if answers else "I have not said anything yet that I could repeat.")


def _echo(phrase: PhraseMatch) -> DemoReply:
    return DemoReply(phrase.match["what"])


def _summarize(phrase: PhraseMatch) -> DemoReply:
    return DemoReply(summarize_questions(phrase.before))


def summarize_questions(messages: ModelInput) -> str:
    """Return a numbered list of the user's messages."""
    texts = _user_texts([message for message in messages if not is_recalled(message)])
    if not texts:
        return "There are no messages yet."
    return f"So far you have sent {pluralize(len(texts), 'message')}:\n\n" + "\n".join(
        f"{n}. {_quote(t)}" for n, t in enumerate(texts, 1)
    )


def _story(phrase: PhraseMatch) -> DemoReply:
    chapters = min(int(phrase.match["count"] or 12), 500) if "count" in phrase.match.re.groupindex else 12
    return DemoReply("\n\n".join(_STORY.format(number=number) for number in range(1, chapters + 1)))


def _numbers(phrase: PhraseMatch) -> DemoReply:
    return DemoReply(", ".join(str(number) for number in range(1, min(int(phrase.match["to"]), 2000) + 1)) + ".")


def _code(_: PhraseMatch) -> DemoReply:
    return DemoReply(CODE)


def _think(phrase: PhraseMatch) -> DemoReply:
    reasoning = (
        f"The user wants me to think. They wrote {_quote(phrase.text)} I am a demo, so this thought is always the same."
    )
    return DemoReply("I thought about it, and I am still a demo model.", reasoning=reasoning)


_PHRASES: list[tuple[re.Pattern[str], Callable[[PhraseMatch], DemoReply | None]]] = [
    (re.compile(r"\A\s*call\s+(?P<tool>[A-Za-z_]\w*)\s*(?P<arguments>\{.*\})?\s*\Z", re.DOTALL), _call),
    (re.compile(r"\A\s*(?:echo|say)[\s:]+(?P<what>.+)", re.IGNORECASE | re.DOTALL), _echo),
    (re.compile(r"\A\s*(?:help|what can you do)\b", re.IGNORECASE), _help),
    (re.compile(r"\bwhat(?:'s| is) my name\b|\bwho am i\b", re.IGNORECASE), _ask_name),
    (_NAME, _greet_name),
    (re.compile(r"\b(?:search|look)\s+(?:\w+\s+)?for\s+(?P<query>.+)", re.IGNORECASE), _search),
    (re.compile(r"\A\s*(?:search|find)\s+(?P<query>.+)\Z", re.IGNORECASE), _search),
    (re.compile(r"\bhow many messages\b", re.IGNORECASE), _count),
    (re.compile(r"\bwhat did i (?:say|ask)(?: you)? (?P<which>first|before|last)\b", re.IGNORECASE), _first),
    (re.compile(r"\bsummar(?:ize|ise|y)\b", re.IGNORECASE), _summarize),
    (re.compile(r"\A\s*repeat\b", re.IGNORECASE), _repeat),
    (re.compile(r"\bwhat(?:'s| is)? (?:the )?(?:time|date|day)\b|\btoday's date\b", re.IGNORECASE), _time),
    (re.compile(r"\bcount (?:up )?to (?P<to>\d{1,4})\b", re.IGNORECASE), _numbers),
    (re.compile(r"\b(?:(?P<count>\d{1,3}) chapters|long (?:story|answer|text))\b", re.IGNORECASE), _story),
    (re.compile(r"\b(?:some code|markdown|an example of code)\b", re.IGNORECASE), _code),
    (re.compile(r"\bthink\b", re.IGNORECASE), _think),
    (re.compile(r"(?:(?:sqrt|round|abs|min|max)\s*\(|[-(\d.])[\d\s.,()+\-*/%^\u00d7\u00f7]*[-+*/%^\u00d7\u00f7(]\s*[\d.()]"
                r"[\d\s.,()+\-*/%^\u00d7\u00f7]*"), _sum),
    (re.compile(r"\A\s*(?:hi|hello|hey|good (?:morning|evening|day))\b", re.IGNORECASE), _hello),
]  # fmt: skip


_WINDOW = 32_000  # tokens: small, so that compaction can be tried without a long conversation
_PACE = 0.012  # seconds per word: fast, but visibly streaming
_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")


class DemoModel:
    """A model without a network. `pace` is the number of seconds per word."""

    name = DEMO

    def __init__(self, *, window: int | None = None, pace: float = _PACE) -> None:
        self.window = window or _WINDOW
        self._pace = pace
        self._calls = 0

    async def run(
        self,
        messages: ModelInput,
        *,
        instructions: str,
        tools: Sequence[Tool],
        toolsets: Sequence[Any] = (),  # noqa: ARG002  the demo model ignores provider toolsets
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer to the last user message."""
        functions = {tool.__name__: tool for tool in tools}
        input_tokens = estimate_tokens([TextPart(text=instructions)]) + sum(
            estimate_tokens(message.parts) for message in messages
        )
        reply = compose_reply(messages, list(functions))
        if reply.calls:
            results: list[str] = []
            async for event in self._with_tools(reply, functions, results, input_tokens):
                yield event
            reply = DemoReply(text=reply.after(results))
        parts: list[Part] = []
        async for event in self._stream(reply, parts):
            yield event
        yield Responded(message=self._draft(parts, input_tokens))

    async def _with_tools(
        self, reply: DemoReply, functions: dict[str, Tool], results: list[str], input_tokens: int
    ) -> AsyncGenerator[Event, None]:
        parts: list[Part] = []
        async for event in self._stream(reply, parts):
            yield event
        calls = [self._tool_call(tool, arguments) for tool, arguments in reply.calls]
        yield Responded(message=self._draft([*parts, *calls], input_tokens))
        for part in calls:
            yield ToolStarted(call_id=part.call_id, tool=part.tool, arguments=part.input)
            finished = await self._run_tool(part, functions)
            results.append(finished.output)
            yield finished

    def _tool_call(self, tool: str, arguments: dict[str, Any]) -> ToolCallPart:
        self._calls += 1
        return ToolCallPart(call_id=f"demo-{time.time_ns():x}-{self._calls}", tool=tool, arguments=arguments)

    async def _run_tool(self, part: ToolCallPart, functions: dict[str, Tool]) -> ToolFinished:
        started = time.monotonic()
        status: ResultStatus = "success"
        try:
            output = str(await call_tool(functions[part.tool], part.input))
        except Exception as error:  # noqa: BLE001  any error of a tool becomes an error result
            status, output = "error", f"{type(error).__name__}: {error}"
        return tool_finished_event(part, status, output, int((time.monotonic() - started) * 1000))

    async def _stream(self, reply: DemoReply, parts: list[Part]) -> AsyncGenerator[Event, None]:
        if reply.reasoning:
            parts.append(ReasoningPart(text=reply.reasoning))
            for word in _WORD.findall(reply.reasoning):
                await asyncio.sleep(self._pace)
                yield ReasoningDelta(text=word)
        if reply.text:
            parts.append(TextPart(text=reply.text))
            for word in _WORD.findall(reply.text):
                await asyncio.sleep(self._pace)
                yield TextDelta(text=word)

    def _draft(self, parts: Sequence[Part], input_tokens: int) -> Draft:
        return Draft(
            role="assistant",
            parts=tuple(parts),
            model=DEMO,
            input_tokens=input_tokens,
            output_tokens=estimate_tokens(parts),
        )

    async def write(self, task: str, messages: ModelInput) -> str:
        """Return a title made from the first question, or a summary of all of them."""
        if task == "title":
            return title_of(next((message for message in messages if message.role == "user"), None))
        return summarize_questions(messages)

    async def close(self) -> None:
        """Return at once: the demo model has no connections."""


def tool_finished_event(part: ToolCallPart, status: ResultStatus, output: str, latency_ms: int) -> ToolFinished:
    """Return the event of a finished tool call, with the tool message to store."""
    result = ToolResultPart(
        call_id=part.call_id,
        tool=part.tool,
        status=status,
        text=output,
        error_message=output if status == "error" else None,
        metadata={"latency_ms": latency_ms},
    )
    return ToolFinished(
        call_id=part.call_id,
        tool=part.tool,
        status=status,
        output=output,
        latency_ms=latency_ms,
        message=Draft(role="tool", parts=(result,)),
    )
