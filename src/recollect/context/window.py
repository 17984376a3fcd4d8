"""Fitting a conversation to a budget: whole turns are left out, from the oldest on.

Instructions (system messages), pinned messages, summaries, the newest thing that a person said and the agent's last
words after it always stay. A tool call and its results stay or go together. Where the newest turn alone is too large,
its oldest steps go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.context.pairs import Pairs, calls_of, pair
from recollect.errors import InvalidValue, displayed
from recollect.model.compaction import Summary
from recollect.model.message import Message

Counter = Callable[[Message], int]
"""How large a message is, in tokens."""


def stored(message: Message) -> int:
    """Give the size that is stored with a message: given, reported by the provider, or estimated."""
    return message.tokens


class Window:
    """How much may be sent: tokens, messages, or both; and how tokens are counted. Each message is counted once."""

    def __init__(self, budget: int | None = None, limit: int | None = None, counter: Counter | None = None) -> None:
        _check("budget", budget)
        _check("limit", limit)
        self.budget, self.limit = budget, limit
        self._count = stored if counter is None else counter
        self._sizes: dict[tuple[int, int, bool], int] = {}

    @property
    def bounded(self) -> bool:
        """Whether there is a bound at all."""
        return self.budget is not None or self.limit is not None

    def size(self, message: Message) -> int:
        """Count a message."""
        if self._count is stored:
            return message.tokens
        key = (message.branch, message.position, isinstance(message, Summary))
        if key not in self._sizes:
            size = self._count(message)
            if type(size) is not int or size < 0:
                raise InvalidValue(f"A counter gives a number of tokens from 0 on; got {displayed(size)}.")
            self._sizes[key] = size
        return self._sizes[key]

    def enough(self, messages: Sequence[Message]) -> bool:
        """Say whether messages are more than there is room for, so that nothing older can be in the view."""
        return self._over(messages)

    def fit(self, messages: Sequence[Message]) -> list[Message]:
        """Keep what there is room for, in order."""
        if not self.bounded or not self._over(messages):
            return list(messages)
        pairs = pair(messages)
        alone = {place[0] for place in (*pairs.orphans, *pairs.duplicates)}
        blocks = _blocks(messages, pairs)
        always = [block for block in blocks if _stays(messages, block)]
        asked = _newest_asked(messages)
        always += [block for block in blocks if asked in block and block not in always]
        rest = [block for block in blocks if block not in always and not _is_lost(messages, block, alone)]
        room = _Room(self, messages)
        for block in always:
            room.keep(block)
        turns = _turns(messages, rest, asked)
        newest = turns.pop() if turns and turns[-1][-1][-1] > asked else []
        if newest and len(newest[-1]) == 1 and not calls_of(messages[newest[-1][0]]):
            room.keep(newest.pop())
        if all(room.take([block]) for block in reversed(newest)):
            for turn in reversed(turns):
                if not room.take(turn):
                    break
        return [message for index, message in enumerate(messages) if index in room.kept]

    def _over(self, messages: Sequence[Message]) -> bool:
        if self.limit is not None and len(messages) > self.limit:
            return True
        return self.budget is not None and sum(self.size(message) for message in messages) > self.budget


def _check(name: str, value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise InvalidValue(f"{name} is a number from 0 on, or None for no bound; got {displayed(value)}.")


def _stays(messages: Sequence[Message], block: Sequence[int]) -> bool:
    return any(
        messages[index].role == "system" or messages[index].pinned or isinstance(messages[index], Summary)
        for index in block
    )


class _Room:
    """What was kept so far, and how much room is left."""

    def __init__(self, window: Window, messages: Sequence[Message]) -> None:
        self.kept: set[int] = set()
        self._window, self._messages = window, messages
        self._tokens = 0

    def keep(self, block: Sequence[int]) -> None:
        """Keep a block, whether there is room for it or not."""
        self.kept.update(block)
        self._tokens += sum(self._window.size(self._messages[index]) for index in block)

    def take(self, blocks: Sequence[Sequence[int]]) -> bool:
        """Keep blocks if there is room for all of them."""
        window = self._window
        indexes = [index for block in blocks for index in block]
        tokens = self._tokens + sum(window.size(self._messages[index]) for index in indexes)
        if window.budget is not None and tokens > window.budget:
            return False
        if window.limit is not None and len(self.kept) + len(indexes) > window.limit:
            return False
        self.kept.update(indexes)
        self._tokens = tokens
        return True


def _newest_asked(messages: Sequence[Message]) -> int:
    """Find the newest thing that a person said; -1 where there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user" and not isinstance(messages[index], Summary):
            return index
    return -1


def _is_lost(messages: Sequence[Message], block: Sequence[int], alone: set[int]) -> bool:
    """Whether a block is nothing but results whose call is not here: it was left out, or never made."""
    return len(block) == 1 and block[0] in alone and messages[block[0]].role == "tool"


def _blocks(messages: Sequence[Message], pairs: Pairs) -> list[list[int]]:
    """Put messages that hold a call and its results together; the others stand alone. By their first message."""
    leader = list(range(len(messages)))

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


def _turns(messages: Sequence[Message], blocks: Sequence[list[int]], asked: int = -1) -> list[list[list[int]]]:
    """Split before each thing that a person said, where that parts no call from its results.

    What was said last may not be among the blocks: `asked` says where it was.
    """
    turns: list[list[list[int]]] = []
    reach = -1
    for block in blocks:
        begins = messages[block[0]].role == "user" or reach < asked < block[0]
        if not turns or (begins and reach < block[0]):
            turns.append([])
        turns[-1].append(block)
        reach = max(reach, block[-1])
    return turns


def turns(messages: Sequence[Message]) -> list[list[int]]:
    """Split a conversation into turns, as indexes of messages, the oldest first."""
    blocks = _blocks(messages, pair(messages))
    return [sorted(index for block in turn for index in block) for turn in _turns(messages, blocks)]


def staying(messages: Sequence[Message]) -> set[int]:
    """Find what always stays, and the calls and results that belong to it."""
    return {
        index
        for block in _blocks(messages, pair(messages))
        for index in block
        if any(messages[i].role == "system" or messages[i].pinned for i in block)
    }


def unparted(messages: Sequence[Message], index: int) -> int:
    """Move a place between two messages back until no call is before it whose result is after it."""
    for block in reversed(_blocks(messages, pair(messages))):
        if block[0] < index <= block[-1]:
            index = block[0]
    return index
