"""What the demo model says: phrases that it knows, each with an answer made from the conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from recollect.agent.models import Spoken
from recollect.agent.recall import is_recalled
from recollect.agent.titles import said
from recollect.model.message import Draft, Message

Calls = list[tuple[str, dict[str, Any]]]
Spoke = Draft | Message
_QUOTED = 200


class Reply(NamedTuple):
    """What to say, and which tools to call first; `after` makes the answer from their results."""

    text: str = ""
    reasoning: str = ""
    calls: Calls = []  # noqa: RUF012  a default that nobody changes
    after: Callable[[list[str]], str] = "\n".join


class Heard(NamedTuple):
    """What a phrase is answered from: the words, the match in them, what came before, and the tools there are."""

    text: str
    match: re.Match[str]
    before: Sequence[Spoke]
    tools: Sequence[str]


ABOUT = (
    "I am Recollect's built-in **demo model**. I run offline and I am not a language model: I know a handful of "
    "phrases, and I show how a talk is kept."
)
HELP = f"""{ABOUT}

You can try:

- `What time is it?` or `What is 12 * 34?`: I call a tool
- `My name is Ada`, and later `What is my name?`
- `What did I say first?`, `How many messages are there?`, `Summarize`, `Repeat that`
- `Search for coats`: I search all your conversations
- `Show me some code`, `Think about it`, `Tell me a long story` (stop me with Ctrl-C)
- `call NAME {{"argument": 1}}`: I call any tool of this agent

For a real model, say for example `recollect chat -m anthropic:MODEL`."""

CODE = '''Here is a little Python, with a table below it.

```python
def fibonacci(count: int) -> list[int]:
    """Give the first numbers of the row."""
    row = [0, 1]
    while len(row) < count:
        row.append(row[-1] + row[-2])
    return row[:count]
```

| n | value |
|---|---|
| 1 | 0 |
| 10 | 34 |

1. The first two are given.
2. Each of the others is the sum of the two before it.

> I am a demo model: this answer is always the same.'''

_STORY = (
    "Chapter {number}. The archivist opened drawer {number} and found a letter that nobody had lost. "
    "She read it twice, wrote its number on a card, and put the card where the next reader would look for it."
)


_SPEAKER = re.compile(r"\A\[[^\[\]\n]{1,64}\] ")
"""Who said it, as it stands before a message where several people talk."""


def reply(spoken: Spoken, tools: Sequence[str]) -> Reply:
    """Answer what was said last."""
    place = max((index for index, message in enumerate(spoken) if message.role == "user"), default=-1)
    text = _SPEAKER.sub("", said(spoken[place]).strip()) if place >= 0 else ""
    before = [message for message in spoken[:place] if not is_recalled(message)]
    for pattern, answer in _PHRASES:
        match = pattern.search(text)
        if match:
            made = answer(Heard(text, match, before, tools))
            if made is not None:
                return made
    return Reply(_other(text))


def _other(text: str) -> str:
    if not text:
        return f"{ABOUT} You said nothing that I can read."
    return f"{ABOUT}\n\nYou said: {_quoted(text)}\n\nSay `help` to see what I can do."


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    shown = line if len(line) <= _QUOTED else line[:_QUOTED] + "\u2026"
    return f"\u201c{shown}\u201d"


def _asked(before: Sequence[Spoke]) -> list[str]:
    return [said(message) for message in before if message.role == "user" and said(message)]


def _help(_: Heard) -> Reply:
    return Reply(HELP)


def _hello(heard: Heard) -> Reply:
    name = _name(heard.before)
    greeting = f"Hello{', ' + name if name else ''}!"
    return Reply(f"{greeting} {ABOUT} Say `help` to see what I can do.")


def _time(heard: Heard) -> Reply | None:
    if "current_time" not in heard.tools:
        return None
    return Reply("Let me look at the clock.", calls=[("current_time", {})], after=lambda found: f"It is {found[0]}.")


def _sum(heard: Heard) -> Reply | None:
    expression = heard.match[0].strip().rstrip("=?").strip()
    if "calculate" not in heard.tools or not re.search(r"\d", expression):
        return None

    def after(found: list[str]) -> str:
        return found[0] if ":" in found[0] else f"{expression} = **{found[0]}**"

    return Reply(calls=[("calculate", {"expression": expression})], after=after)


def _search(heard: Heard) -> Reply | None:
    name, query = "search_conversations", heard.match["query"].strip(" \"'?.!")
    if name not in heard.tools or not query:
        return None
    return Reply(
        f"I search your conversations for {_quoted(query)}.",
        calls=[(name, {"query": query})],
        after=lambda found: f"This is what I found:\n\n{found[0]}",
    )


def _call(heard: Heard) -> Reply | None:
    tool = heard.match["tool"]
    if tool not in heard.tools:
        return None
    try:
        arguments = json.loads(heard.match["arguments"] or "{}")
    except ValueError:
        return Reply('The arguments are not JSON. Write them as `call NAME {"argument": 1}`.')
    return Reply(calls=[(tool, arguments)], after=lambda found: f"`{tool}` says: {found[0]}")


def _told_name(heard: Heard) -> Reply:
    return Reply(
        f"Nice to meet you, {heard.match['name']}. Ask me for your name later: it is in this conversation now."
    )


_NAME = re.compile(r"\b(?:my name is|i am called|call me)\s+(?P<name>[A-Z\u00c0-\u024f][\w'-]*)", re.IGNORECASE)


def _name(before: Sequence[Spoke]) -> str | None:
    for text in reversed(_asked(before)):
        match = _NAME.search(text)
        if match:
            return match["name"]
    return None


def _ask_name(heard: Heard) -> Reply:
    name = _name(heard.before)
    if name is None:
        return Reply("You have not told me your name in this conversation. Say `My name is ...`.")
    return Reply(f"Your name is {name}: you told me in this conversation.")


def _count(heard: Heard) -> Reply:
    yours = len(_asked(heard.before)) + 1
    everything = len(heard.before) + 1
    return Reply(f"I can see {everything} messages of this conversation, {yours} of them yours, this one included.")


def _first(heard: Heard) -> Reply:
    asked = _asked(heard.before)
    if not asked:
        return Reply("You have said nothing before this.")
    word = heard.match["which"].lower()
    chosen = asked[0] if word == "first" else asked[-1]
    return Reply(f"{'First' if word == 'first' else 'Just before this'} you said: {_quoted(chosen)}")


def _repeat(heard: Heard) -> Reply:
    answers = [said(message) for message in heard.before if message.role == "assistant" and said(message)]
    return Reply(answers[-1] if answers else "I have said nothing that I could repeat.")


def _echo(heard: Heard) -> Reply:
    return Reply(heard.match["what"])


def _summarize(heard: Heard) -> Reply:
    return Reply(summary(heard.before))


def summary(spoken: Spoken) -> str:
    """Say what was asked, in a list."""
    asked = _asked([message for message in spoken if not is_recalled(message)])
    if not asked:
        return "Nothing was said yet."
    return f"So far you said {len(asked)} things:\n\n" + "\n".join(f"{n}. {_quoted(t)}" for n, t in enumerate(asked, 1))


def _story(heard: Heard) -> Reply:
    chapters = min(int(heard.match["count"] or 12), 500) if "count" in heard.match.re.groupindex else 12
    return Reply("\n\n".join(_STORY.format(number=number) for number in range(1, chapters + 1)))


def _numbers(heard: Heard) -> Reply:
    return Reply(", ".join(str(number) for number in range(1, min(int(heard.match["to"]), 2000) + 1)) + ".")


def _code(_: Heard) -> Reply:
    return Reply(CODE)


def _think(heard: Heard) -> Reply:
    thought = f"The person wants me to think. They said {_quoted(heard.text)} I am a demo, so this thought is canned."
    return Reply("I thought about it, and I am still a demo model.", reasoning=thought)


_PHRASES: list[tuple[re.Pattern[str], Callable[[Heard], Reply | None]]] = [
    (re.compile(r"\A\s*call\s+(?P<tool>[A-Za-z_]\w*)\s*(?P<arguments>\{.*\})?\s*\Z", re.DOTALL), _call),
    (re.compile(r"\A\s*(?:echo|say)[\s:]+(?P<what>.+)", re.IGNORECASE | re.DOTALL), _echo),
    (re.compile(r"\A\s*(?:help|what can you do)\b", re.IGNORECASE), _help),
    (re.compile(r"\bwhat(?:'s| is) my name\b|\bwho am i\b", re.IGNORECASE), _ask_name),
    (_NAME, _told_name),
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
