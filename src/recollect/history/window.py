"""The window: fits a history to a token budget by dropping whole turns, oldest first, and counts tokens.

System messages, pinned messages, summaries, the newest user message and the last assistant message after it are
always kept. A tool call and its results are kept or dropped together. If the newest turn alone is too large, its
oldest steps are dropped. The tables of a tokenizer are installed with it; nothing is downloaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recollect.errors import InvalidValue, format_value
from recollect.history.tool_pairs import ToolPairs, calls_of, pair_calls
from recollect.model.compaction import SummaryMessage
from recollect.model.json import UNSET, encode_standard
from recollect.model.message import AttachmentPart, DataPart, Message, Part, ToolCallPart, ToolResultPart
from recollect.model.tokens import TOKENS_PER_ATTACHMENT, TOKENS_PER_MESSAGE

Counter = Callable[[Message], int]
"""A function that returns the number of tokens of a message."""


def stored_tokens(message: Message) -> int:
    """Return the stored tokens of a message: passed by the caller, reported by the provider, or estimated."""
    return message.tokens


class Window:
    """The limits of a history, in tokens, messages or both, and the token counter. Each message is counted once."""

    def __init__(self, budget: int | None = None, limit: int | None = None, counter: Counter | None = None) -> None:
        _check_bound("budget", budget)
        _check_bound("limit", limit)
        self.budget, self.limit = budget, limit
        self._count = stored_tokens if counter is None else counter
        self._sizes: dict[tuple[int, int, bool], int] = {}

    @property
    def is_bounded(self) -> bool:
        """True if there is any limit."""
        return self.budget is not None or self.limit is not None

    def size(self, message: Message) -> int:
        """Return the number of tokens of a message."""
        if self._count is stored_tokens:
            return message.tokens
        key = (message.branch, message.position, isinstance(message, SummaryMessage))
        if key not in self._sizes:
            size = self._count(message)
            if type(size) is not int or size < 0:
                raise InvalidValue(f"The counter must return a non-negative integer, got {format_value(size)}.")
            self._sizes[key] = size
        return self._sizes[key]

    def enough(self, messages: Sequence[Message]) -> bool:
        """Return whether messages exceed the limits, so that no older message needs to be read."""
        return self._over(messages)

    def fit(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that fit, in order."""
        if not self.is_bounded or not self._over(messages):
            return list(messages)
        pairs = pair_calls(messages)
        lone_results = {index[0] for index in (*pairs.orphans, *pairs.duplicates)}
        blocks = _group_pairs(messages, pairs)
        kept_blocks = [block for block in blocks if _is_always_kept(messages, block)]
        newest_question = _newest_user_message(messages)
        kept_blocks += [block for block in blocks if newest_question in block and block not in kept_blocks]
        optional_blocks = [
            block for block in blocks if block not in kept_blocks and not _is_orphan(messages, block, lone_results)
        ]
        selection = _Selection(self, messages)
        for block in kept_blocks:
            selection.keep(block)
        turns = _split_blocks(messages, optional_blocks, newest_question)
        # The last turn is the newest one if its last message comes after the newest user message.
        newest = turns.pop() if turns and turns[-1][-1][-1] > newest_question else []
        if newest and len(newest[-1]) == 1 and not calls_of(messages[newest[-1][0]]):
            selection.keep(newest.pop())
        if all(selection.take([block]) for block in reversed(newest)):
            for turn in reversed(turns):
                if not selection.take(turn):
                    break
        return [message for index, message in enumerate(messages) if index in selection.indexes]

    def _over(self, messages: Sequence[Message]) -> bool:
        if self.limit is not None and len(messages) > self.limit:
            return True
        return self.budget is not None and sum(self.size(message) for message in messages) > self.budget


def _check_bound(name: str, value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise InvalidValue(f"{name} must be a non-negative integer or None, got {format_value(value)}.")


def _is_always_kept(messages: Sequence[Message], block: Sequence[int]) -> bool:
    return any(
        messages[index].role == "system" or messages[index].pinned or isinstance(messages[index], SummaryMessage)
        for index in block
    )


class _Selection:
    """The messages selected so far, and their tokens."""

    def __init__(self, window: Window, messages: Sequence[Message]) -> None:
        self.indexes: set[int] = set()
        self._window, self._messages = window, messages
        self._tokens = 0

    def keep(self, block: Sequence[int]) -> None:
        """Select a block, even if it exceeds the limits."""
        self.indexes.update(block)
        self._tokens += sum(self._window.size(self._messages[index]) for index in block)

    def take(self, blocks: Sequence[Sequence[int]]) -> bool:
        """Select blocks if all of them fit. Return whether they did."""
        window = self._window
        indexes = [index for block in blocks for index in block]
        tokens = self._tokens + sum(window.size(self._messages[index]) for index in indexes)
        if window.budget is not None and tokens > window.budget:
            return False
        if window.limit is not None and len(self.indexes) + len(indexes) > window.limit:
            return False
        self.indexes.update(indexes)
        self._tokens = tokens
        return True


def _newest_user_message(messages: Sequence[Message]) -> int:
    """Return the index of the newest user message; -1 if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user" and not isinstance(messages[index], SummaryMessage):
            return index
    return -1


def _is_orphan(messages: Sequence[Message], block: Sequence[int], lone_results: set[int]) -> bool:
    """Return whether a block has only results without a call, which was dropped or never stored."""
    return len(block) == 1 and block[0] in lone_results and messages[block[0]].role == "tool"


def _group_pairs(messages: Sequence[Message], pairs: ToolPairs) -> list[list[int]]:
    """Group messages that share calls and results into blocks, ordered by their first message."""
    leader = list(range(len(messages)))  # union-find: the first message of each block represents it

    def root(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    for (call, _), (result, _) in pairs.answers.items():
        first, second = sorted((root(call), root(result)))
        leader[second] = first
    blocks: dict[int, list[int]] = {}
    for index in range(len(messages)):
        blocks.setdefault(root(index), []).append(index)
    return [blocks[first] for first in sorted(blocks)]


def _split_blocks(
    messages: Sequence[Message], blocks: Sequence[list[int]], newest_question: int = -1
) -> list[list[list[int]]]:
    """Split blocks into turns before each user message, unless that separates a call from its results.

    The newest user message may not be among the blocks; `newest_question` is its index.
    """
    turns: list[list[list[int]]] = []
    end = -1
    for block in blocks:
        starts_turn = messages[block[0]].role == "user" or end < newest_question < block[0]
        if not turns or (starts_turn and end < block[0]):
            turns.append([])
        turns[-1].append(block)
        end = max(end, block[-1])
    return turns


def split_turns(messages: Sequence[Message]) -> list[list[int]]:
    """Split messages into turns, as lists of indexes, oldest first."""
    blocks = _group_pairs(messages, pair_calls(messages))
    return [sorted(index for block in turn for index in block) for turn in _split_blocks(messages, blocks)]


def always_kept(messages: Sequence[Message]) -> set[int]:
    """Return the indexes of system and pinned messages, and of the calls and results that belong to them."""
    return {
        index
        for block in _group_pairs(messages, pair_calls(messages))
        for index in block
        if any(messages[i].role == "system" or messages[i].pinned for i in block)
    }


def align_to_pairs(messages: Sequence[Message], index: int) -> int:
    """Move an index back until no call before it has its result after it."""
    for block in reversed(_group_pairs(messages, pair_calls(messages))):
        if block[0] < index <= block[-1]:
            index = block[0]
    return index


TOKENIZERS = {"o200k": "o200k_base", "cl100k": "cl100k_base"}


def token_counter(counter: Counter | str | None) -> Counter | None:
    """Return the caller's counter, or the one of a tokenizer by its name."""
    if counter is None or callable(counter):
        return counter
    if type(counter) is not str or counter not in TOKENIZERS:
        raise InvalidValue(
            f"counter must be one of {', '.join(TOKENIZERS)}, or a function that takes a message, "
            f"got {format_value(counter)}."
        )
    encoder = _encoder(TOKENIZERS[counter])

    def count(message: Message) -> int:
        total = TOKENS_PER_MESSAGE
        for part in message.parts:
            if isinstance(part, AttachmentPart):
                total += TOKENS_PER_ATTACHMENT
            for text in _model_texts(part):
                total += len(encoder(text))
        return total

    return count


@functools.cache
def _encoder(name: str) -> Any:
    try:
        import splintr  # noqa: PLC0415  an optional dependency
    except ImportError as error:
        raise InvalidValue(
            "The tokenizer is not installed. Install it with: pip install 'recollect[tokens]'"
        ) from error
    encode_ordinary = splintr.Tokenizer.from_pretrained(name).encode_ordinary
    return lambda text: encode_ordinary(text.encode("utf-8", "replace").decode())  # a lone surrogate becomes "?"


def _model_texts(part: Part) -> Iterator[str]:
    """Yield the texts of a part that a model reads."""
    if isinstance(part, ToolCallPart):
        yield part.tool
        if part.arguments_text is not None:
            yield part.arguments_text
        elif part.arguments is not UNSET:
            yield encode_standard(part.arguments)
    elif isinstance(part, ToolResultPart):
        yield part.output
    elif isinstance(part, DataPart):
        yield encode_standard(part.native if part.data is UNSET else part.data)
    elif not isinstance(part, AttachmentPart):
        yield part.text
