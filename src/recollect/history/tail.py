"""The tail of a history: its last messages in a provider's format, rendered from the last stored messages only.

The tail equals the end of the whole history without repair. It is rendered from a boundary (formats/boundaries.py), so
that earlier messages cannot change it, except through the tool calls that its results answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recollect import formats
from recollect.formats.registry import boundary_test, renders_each_apart
from recollect.formats.remainder import MALFORMED
from recollect.history.render import History
from recollect.history.tool_pairs import is_call, is_result, pair_calls
from recollect.model.message import Message, MessageColumns, Repair

_JOINED_FORMATS = frozenset({"ai-sdk-ui"})
"""The formats in which a call and its result are in one message, so that no cut separates them."""
_SENTENCE = "The call of tool result {call} in message {message} is before the last {last} messages."


def columns_renderer(format: str, last: int) -> Callable[[MessageColumns], History | None] | None:
    """Return a function that renders the last messages of a history, without reports.

    Its argument has `last` messages, or fewer if there are no others. It returns None if one must be translated, or if
    more must be read. There is no such function, but None, for a format in which a message may depend on another.
    """
    if not renders_each_apart(format):
        return None
    put = formats.put_function(format)

    def render(messages: MessageColumns) -> History | None:
        output: list[dict[str, Any]] = []
        try:
            for role, source_format, parts, native in zip(*messages[1:5], strict=True):
                if not put(output, role, source_format, parts, native):
                    return None
        except MALFORMED:  # a remainder that no format has produced; the message is translated
            return None
        if len(output) < last <= len(messages.positions):
            return None  # some render nothing, and there may be earlier ones
        return History(output[max(len(output) - last, 0) :])

    return render


def render_tail(
    messages: Sequence[Message], earlier_calls: Sequence[Message], format: str, last: int, *, is_whole: bool
) -> History | None:
    """Return the last messages of a history; None if more stored messages must be read to know them.

    - `messages`: the last stored messages; all of them if `is_whole`.
    - `earlier_calls`: the messages before them with the calls of their results.
    """
    output = formats.write([*earlier_calls, *messages], format)
    cut = max(len(output) - last, 0)
    blocks = _split_at_boundaries(messages, format, is_whole=is_whole)
    start = next(blocks, None)
    if start is None:
        return None
    length = len(formats.write([*earlier_calls, *messages[:start]], format))
    if len(output) - length < last and not is_whole:
        return None
    # `first` and `end` are the boundaries around the cut, `length` the length of the output before `end`.
    first = end = start
    while length < cut:
        first, end = end, next(blocks, len(messages))
        length += len(formats.write(messages[first:end], format))
    if length == cut:
        first = end
    result = _last_result_without_call(messages, first, end)
    if result is None or format in _JOINED_FORMATS:
        return History(output[cut:])
    while end <= result:
        first, end = end, next(blocks, len(messages))
        length += len(formats.write(messages[first:end], format))
    return History(output[cut:], _split_pairs(messages[:end], output[:length], cut, format, last))


def _split_at_boundaries(messages: Sequence[Message], format: str, *, is_whole: bool) -> Iterator[int]:
    """Yield the indexes of the messages that are boundaries of the format."""
    is_boundary = boundary_test(format)
    previous: Message | None = None
    if is_whole and not messages:
        yield 0
    for index, message in enumerate(messages):
        if (is_whole and index == 0) or is_boundary(previous, message):
            yield index
        previous = message


def _last_result_without_call(messages: Sequence[Message], first: int, end: int) -> int | None:
    """Return the index of the last message after a cut with a result whose call may be before it, or None.

    The cut is between the indexes `first` and `end`.
    """
    calls: Counter[str] = Counter()
    last: int | None = None
    for index in range(first, len(messages)):
        for part in messages[index].parts:
            if is_call(part):
                calls[part.call_id] += index >= end
            elif is_result(part):
                if calls[part.call_id] > 0:
                    calls[part.call_id] -= 1
                else:
                    last = index
    return last


def _split_pairs(
    messages: Sequence[Message], output: list[dict[str, Any]], cut: int, format: str, last: int
) -> list[Repair]:
    """Return a report for each tool result whose call is before the cut."""
    rendered = [_read_rendered(item, index, format) for index, item in enumerate(output)]
    answers = pair_calls(rendered).answers
    reports: list[Repair] = []
    for index, inner in sorted(result for call, result in answers.items() if call[0] < cut <= result[0]):
        part: Any = rendered[index].parts[inner]
        count = sum(_count_results(message, part.call_id) for message in rendered[index:])
        message = _find_result(messages, part.call_id, count, format)
        sentence = _SENTENCE.format(call=repr(part.call_id), message=message, last=last)
        reports.append(Repair(kind="split_pair", message=message, sentence=sentence, call_id=part.call_id))
    return reports


def _read_rendered(item: dict[str, Any], index: int, format: str) -> Message:
    """Read a rendered message again, so that calls and results are found in any format."""
    try:
        drafts = formats.read(item, format)
    except MALFORMED:
        drafts = []
    parts = tuple([part for draft in drafts for part in draft.parts])
    return Message(1, index, drafts[0].role if drafts else "user", parts, created_at_ms=0)


def _count_results(message: Message, call_id: str) -> int:
    return sum(is_result(part) and part.call_id == call_id for part in message.parts)


def _find_result(messages: Sequence[Message], call_id: str, count: int, format: str) -> str:
    """Return the id of the stored message with a result of a call, the `count`-th from the end."""
    for message in reversed(messages):
        count -= _count_results(message, call_id)
        if count <= 0:
            return message.id
    for message in reversed(messages):  # the format replaces characters of the id
        rendered = formats.write([message], format)
        if any(_count_results(_read_rendered(item, 0, format), call_id) for item in rendered):
            return message.id
    return messages[0].id
