"""The rules of a provider, as data: what a request must fulfil, and which stored fields have a meaning.

Each provider format declares its rules once, next to its reader and writer. Validation and repair (recollect.history)
both read them.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple


class ProviderRules(NamedTuple):
    """The requirements of a provider on the messages of a request, and the meaning of its fields."""

    format: str | None
    alternates: bool = False
    """No two consecutive messages of one role; user and tool messages count as one role."""
    user_first: bool = False
    """The first message is a user message."""
    no_blanks: bool = False
    """No text is empty or whitespace."""
    no_trailing_space: bool = False
    """The last message of the assistant does not end with whitespace."""
    results_apart: bool = True
    """Results are not in the message of their calls, and come directly after it."""
    answered_results: bool = False
    """A message of the assistant follows results before one of the user."""
    objects: bool = False
    """The arguments of a call are a JSON object."""
    unique: Literal["message", "history"] | None = "history"
    """The scope in which a call id is unique; None if calls need no ids."""
    call_id: re.Pattern[str] | None = None
    """The pattern of a call id; None if any non-empty text is accepted."""
    own_outputs: bool = False
    """A call is answered by an output of its own type; a screenshot or an approval cannot be synthesized."""
    reasoning_alone: bool = False
    """Reasoning may be a separate message, if text or calls of the assistant follow in the next one."""
    free_reasoning: bool = False
    """Reasoning may be a separate message anywhere, also at the end."""
    parsed_blocks: frozenset[str] | None = None
    """The types of the blocks that read() parses: the provider refuses one that was stored unparsed, and reasoning
    that is not the assistant's. None if it refuses no block."""
    typed_blocks: bool = False
    """Every block has a type, unless it has only an id, which refers to another one."""
    calls_field: str | None = None
    """The field that holds the calls of a message. It is stored unparsed if one of the calls is malformed."""
    content_fields: tuple[str, ...] = ()
    """Fields that carry content if a message has no part."""
    marked_steps: str | None = None
    """The format whose messages have marks between the steps of an answer."""
    bare_fields: frozenset[str] | None = None
    """Fields that only describe other content: the provider refuses a block that has nothing else. None if its blocks
    have a type."""
    system_apart: bool = False
    """Instructions are a parameter of the request: no message has the role system."""
    length_stop: tuple[tuple[tuple[str | int, ...], ...], frozenset[str]] | None = None
    """The field of a response, in each spelling, and its values, that report an answer cut off at its length limit.
    The response may be the message itself."""
    hidden_keys: frozenset[str] = frozenset()
    """Fields that hold nothing that a model reads, such as signatures: people need not see them."""


ANY_PROVIDER = ProviderRules(None, unique="message", results_apart=False)
"""The rules that every provider has."""
