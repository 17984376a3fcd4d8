"""Translation for providers whose roles alternate: all results of an answer are in the one message after it.

Anthropic, Bedrock and Google share these rules; each passes the functions that write its own blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from recollect.formats import common
from recollect.formats.common import PutMessage
from recollect.formats.remainder import without_remainder
from recollect.model.message import Message, Part, Role, ToolCallPart, ToolResultPart

Block = dict[str, Any]


class BlockWriters(NamedTuple):
    """The functions that write the blocks of a provider."""

    message: Callable[[Role, list[Block]], Block]
    """Returns a message; the list of results is extended afterwards."""
    answer: Callable[[Sequence[Part]], list[Block]]
    """Returns the parts of an answer without its results."""
    content: Callable[[Iterable[Part]], list[Block]]
    """Returns texts and files of a user."""
    result: Callable[[ToolResultPart, ToolCallPart | None], Block]
    """Returns a result, from its part and the part of its call, which has a remainder only if it is of the format."""
    result_files: Callable[[ToolResultPart], list[Block]] | None = None
    """Returns the files of a result that follow the results, if a result cannot contain them."""


def write_alternating(
    messages: Sequence[Message], name: str, put: PutMessage, blocks: BlockWriters
) -> list[dict[str, Any]]:
    """Write messages: those of the format unchanged, others translated, without system messages of other formats."""
    writer = _Writer(blocks)
    for message in common.join_items(messages, "openai-responses"):
        for part in message.parts:
            if type(part) is ToolCallPart:
                writer.calls[part.call_id] = part if message.format == name else without_remainder(part)
        if message.role == "system" and message.format != name:
            continue  # a parameter of the request, not a message
        if put(writer.output, message.role, message.format, message.parts, message.native):
            writer.results = None
        elif message.role == "assistant":
            writer.add_answer(message)
        elif message.role != "system":
            writer.add_message(message)
    return writer.output


class _Writer:
    """The messages that were written so far, and the results to which those of the next message are added."""

    def __init__(self, blocks: BlockWriters) -> None:
        self.output: list[dict[str, Any]] = []
        self.results: list[Block] | None = None
        self.calls: dict[str, ToolCallPart] = {}
        self._blocks = blocks
        self._result_count = 0  # of self.results; files follow them

    def add_answer(self, message: Message) -> None:
        """Write an answer and its results; steps without results between them become one message."""
        blocks: list[Block] = []
        for step_parts, results in common.split_steps(message.parts):
            blocks += self._blocks.answer(step_parts)
            if results:
                self._end_answer(blocks)
                blocks = []
                self._add_results(results)
        self._end_answer(blocks)

    def add_message(self, message: Message) -> None:
        """Write a message of a user, or results of tools."""
        results = [part for part in message.parts if type(part) is ToolResultPart]
        content = self._blocks.content(message.parts)
        if results:
            if message.role != "tool":
                self.results = None
            self._add_results(results)
            if self.results is not None:
                self.results.extend(content)
            if content or message.role != "tool":
                self.results = None
        elif content:
            self.output.append(self._blocks.message("user", content))
            self.results = None

    def _end_answer(self, blocks: list[Block]) -> None:
        if blocks:
            self.output.append(self._blocks.message("assistant", blocks))
            self.results = None

    def _add_results(self, results: Sequence[ToolResultPart]) -> None:
        if self.results is None:
            self.results, self._result_count = [], 0
            self.output.append(self._blocks.message("user", self.results))
        for part in results:
            self.results.insert(self._result_count, self._blocks.result(part, self.calls.get(part.call_id)))
            self._result_count += 1
            if self._blocks.result_files is not None:
                self.results.extend(self._blocks.result_files(part))
