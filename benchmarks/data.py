"""Generated conversations: a person's 200 characters and an agent's 800 on average, tool calls in 40% of the turns.

The lengths differ, as those of people and models do; README.md says why that matters for what all is compared with.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

Turn = list[dict[str, Any]]

_WORDS = (
    "the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "he",
    "his", "but", "at", "are", "this", "have", "from", "or", "had", "an", "they", "which", "one", "you", "were",
    "all", "her", "she", "there", "would", "their", "we", "him", "been", "has", "when", "who", "will", "no",
    "more", "if", "out", "so", "said", "what",
)  # fmt: skip


def text(generator: random.Random, length: int) -> str:
    """Make a text of a length."""
    words = " ".join(generator.choices(_WORDS, k=length // 3 + 2))
    return words[:length]


def about(generator: random.Random, length: int) -> str:
    """Make a text of a length that is half to one and a half of this one."""
    return text(generator, generator.randint(length // 2, length * 3 // 2))


def turns(count: int, seed: int = 1) -> Iterator[Turn]:
    """Make turns in the form of OpenAI's chat completions."""
    generator = random.Random(seed)
    for number in range(count):
        turn: Turn = [{"role": "user", "content": about(generator, 200)}]
        if generator.random() < 0.4:
            turn += _tools(generator, number)
        turn.append({"role": "assistant", "content": about(generator, 800)})
        yield turn


def _tools(generator: random.Random, number: int) -> Turn:
    calls = [f"call_{number}_{index}" for index in range(generator.randint(1, 3))]
    asked = [
        {
            "id": call,
            "type": "function",
            "function": {"name": "read_file", "arguments": json.dumps({"path": text(generator, 20)})},
        }
        for call in calls
    ]
    answered = [
        {"role": "tool", "tool_call_id": call, "content": text(generator, generator.randint(1_000, 8_000))}
        for call in calls
    ]
    return [{"role": "assistant", "content": None, "tool_calls": asked}, *answered]
