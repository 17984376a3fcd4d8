"""Generated conversations: 200 characters from a user, 800 from an agent on average, tool calls in 40% of the turns.

The lengths vary, as in real conversations; README.md explains why this matters for the baseline.
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
    """Return a text of a length."""
    words = " ".join(generator.choices(_WORDS, k=length // 3 + 2))
    return words[:length]


def about(generator: random.Random, length: int) -> str:
    """Return a text of 50% to 150% of a length."""
    return text(generator, generator.randint(length // 2, length * 3 // 2))


def turns(count: int, seed: int = 1) -> Iterator[Turn]:
    """Yield turns in the format of OpenAI's chat completions."""
    generator = random.Random(seed)
    for number in range(count):
        turn: Turn = [{"role": "user", "content": about(generator, 200)}]
        if generator.random() < 0.4:
            turn += _tools(generator, number)
        turn.append({"role": "assistant", "content": about(generator, 800)})
        yield turn


def _tools(generator: random.Random, number: int) -> Turn:
    call_ids = [f"call_{number}_{index}" for index in range(generator.randint(1, 3))]
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "read_file", "arguments": json.dumps({"path": text(generator, 20)})},
        }
        for call_id in call_ids
    ]
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": text(generator, generator.randint(1_000, 8_000))}
        for call_id in call_ids
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
