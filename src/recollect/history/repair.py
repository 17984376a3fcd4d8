"""Repair of a history so that a provider accepts it. Stored messages do not change.

A valid history passes through unchanged. Otherwise repair runs in steps, and each step reports what it changed: the
parts of each message; tool calls and results (every call is answered once, directly after it, under an id that the
provider takes); roles (consecutive messages of one role are joined, and a user message comes first).
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from typing import Any

import msgspec

from recollect import formats
from recollect.formats import common
from recollect.formats.provider_rules import ANY_PROVIDER, ProviderRules
from recollect.history import tool_pairs
from recollect.history.rules import (
    UsedCallIds,
    carries_content,
    ends_with_space,
    find_part_problem,
    has_unread_calls,
    is_joined_by_writing,
    provider_role,
)
from recollect.history.tool_pairs import (
    PartIndex,
    ToolPairs,
    calls_of,
    is_call,
    is_reasoning,
    is_result,
    pair_calls,
    results_of,
)
from recollect.history.validate import is_valid
from recollect.model.compaction import SummaryMessage
from recollect.model.message import Draft, Message, Part, Repair, RepairKind, TextPart, ToolCallPart, ToolResultPart

replace = msgspec.structs.replace
_FUNCTION_NAMES = frozenset({"function", "FunctionMessageChunk"})  # of OpenAI and LangChain


def clean_messages(messages: Sequence[Message], rules: ProviderRules, repairs: list[Repair]) -> list[Message]:
    """Drop parts that the provider refuses, and messages of which nothing is left."""
    answered_ids = {part.call_id for message in messages for part in message.parts if is_result(part)}
    view_messages: list[Message] = []
    for message in messages:
        if message.role == "system" and (rules.system_apart or not _is_rendered(message, rules)):
            if rules.system_apart and message.format == rules.format:
                sentence = f"Message {message.id} has the role system, which the provider refuses: omitted."
                repairs.append(Repair(kind="wrong_role", message=message.id, sentence=sentence))
            continue  # not rendered as a message: the messages around it are adjacent for the provider
        view = _drop_unreadable_calls(message, rules, repairs)
        view = _repair_parts(view, rules, answered_ids, repairs)
        if is_visible(view, rules):
            view_messages.append(_as_user(view, repairs))
        elif _is_rendered(message, rules):
            repairs.append(_dropped_repair(message))
    return view_messages


def _as_user(message: Message, repairs: list[Repair]) -> Message:
    """Return a tool message without a tool result as a user message."""
    if message.role != "tool" or any(is_result(part) for part in message.parts):
        return message
    native = message.native or {}
    if not _FUNCTION_NAMES.isdisjoint(
        (native.get("role"), native.get("type"))
    ):  # the form of tool results before tool calls had ids
        return message
    sentence = f"Message {message.id} has the role tool and no tool result: sent as a user message."
    repairs.append(Repair(kind="wrong_role", message=message.id, sentence=sentence))
    return replace(message, role="user")


def _dropped_repair(message: Message) -> Repair:
    if message.role == "assistant" and any(is_reasoning(part) for part in message.parts):
        return Repair(
            kind="only_reasoning", message=message.id, sentence=f"Message {message.id} has only reasoning: omitted."
        )
    return Repair(kind="empty_message", message=message.id, sentence=f"Message {message.id} is empty: omitted.")


def _drop_unreadable_calls(message: Message, rules: ProviderRules, repairs: list[Repair]) -> Message:
    """Drop a list of tool calls that was not parsed."""
    native: Any = message.native
    if not has_unread_calls(native, rules, is_own=message.format == rules.format):
        return message
    sentence = f"The list of tool calls of message {message.id} is empty or malformed: omitted."
    repairs.append(Repair(kind="unreadable_block", message=message.id, sentence=sentence))
    other_fields = {name: value for name, value in native["fields"].items() if name != rules.calls_field}
    return replace(message, native={**native, "fields": other_fields})


def _repair_parts(message: Message, rules: ProviderRules, answered_ids: set[str], repairs: list[Repair]) -> Message:
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        repaired_part, kind = _repair_part(part, message, rules, answered_ids)
        if repaired_part is not None:
            parts.append(repaired_part)
        changed = changed or repaired_part is not part
        if kind is not None:
            call_id = part.call_id if isinstance(part, ToolCallPart) else None
            sentence = _SENTENCES[kind].format(message=message.id, call=repr(call_id))
            repairs.append(Repair(kind=kind, message=message.id, sentence=sentence, call_id=call_id))
    if not changed:
        return message
    if not any(is_visible(replace(message, parts=(part,)), rules) for part in parts):
        # The message is dropped and reported as a whole, so its blank texts are not reported one by one.
        while repairs and repairs[-1].message == message.id and repairs[-1].kind == "blank_text":
            repairs.pop()
    return replace(message, parts=tuple(parts))


def _repair_part(
    part: Part, message: Message, rules: ProviderRules, answered_ids: set[str]
) -> tuple[Part | None, RepairKind | None]:
    """Return a part in a form that the provider accepts (None: dropped), and the kind of the repair, if any."""
    is_own = message.format == rules.format
    kind = find_part_problem(part, message.role, message.state, rules, is_own=is_own, answered_ids=answered_ids)
    if kind is None:
        return part, None
    if kind == "arguments" and is_call(part):
        return replace(part, arguments=_arguments_object(part), arguments_text=None), kind
    return None, kind


_SENTENCES: dict[RepairKind, str] = {
    "blank_text": "A blank text in message {message} was omitted.",
    "misplaced_call": "Tool call {call} in message {message} is not in an assistant message: omitted.",
    "partial_call": "The arguments of tool call {call} in message {message} are incomplete: omitted.",
    "arguments": "The arguments of tool call {call} in message {message} were not an object: wrapped in one.",
    "unreadable_block": "A malformed block in message {message} was omitted.",
}


def _arguments_object(part: ToolCallPart) -> dict[str, Any]:
    value = part.input
    if type(value) is dict:
        return value
    return {} if value is None else {"arguments": value}


def is_visible(message: Message, rules: ProviderRules) -> bool:
    """Return whether anything of a message is left when it is rendered."""
    is_own = message.format == rules.format
    parts = message.parts
    for part in parts:  # a loop: any() with a generator takes twice the time for one part
        if carries_content(part, is_own=is_own):
            return True
    if is_own and _has_content_fields(message, rules):
        return True
    if (rules.reasoning_alone or rules.free_reasoning) and is_own and parts:
        return all(is_reasoning(part) for part in parts)
    has_other_parts = not all(isinstance(part, TextPart) or is_reasoning(part) for part in parts)
    return has_other_parts and _is_rendered(message, rules)


def _has_content_fields(message: Message, rules: ProviderRules) -> bool:
    fields = (message.native or {}).get("fields") if rules.content_fields else None
    return bool(fields) and any(fields.get(name) for name in rules.content_fields)


def _is_rendered(message: Message, rules: ProviderRules) -> bool:
    """Return whether rendering a message in the provider's format yields anything."""
    return rules.format is None or bool(formats.write([message], rules.format))


def drop_trailing_reasoning(messages: list[Message], rules: ProviderRules, repairs: list[Repair]) -> list[Message]:
    """Drop reasoning that nothing follows. Reasoning of another format is not rendered anyway."""
    reversed_messages: list[Message] = []
    for message in reversed(messages):  # from the end, because the following message may be dropped itself
        following = reversed_messages[-1] if reversed_messages else None
        is_own_answer = message.role == "assistant" and message.format == rules.format and rules.format is not None
        is_own_answer = is_own_answer and not rules.free_reasoning
        if not is_own_answer or not message.parts or not is_reasoning(message.parts[-1]):
            reversed_messages.append(message)
            continue
        if rules.reasoning_alone and following is not None and following.role == "assistant":
            reversed_messages.append(message)
            continue
        parts = message.parts
        while parts and is_reasoning(parts[-1]):
            parts = parts[:-1]
        if not parts:
            repairs.append(_dropped_repair(message))
            continue
        sentence = f"Reasoning at the end of message {message.id} was omitted: nothing follows it."
        repairs.append(Repair(kind="last_reasoning", message=message.id, sentence=sentence))
        reversed_messages.append(replace(message, parts=parts))
    return reversed_messages[::-1]


def strip_trailing_space(messages: list[Message], rules: ProviderRules, repairs: list[Repair]) -> list[Message]:
    """Strip whitespace from the end of the last assistant message, which some providers refuse."""
    last_index = next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role != "system"), None)
    if last_index is None or messages[last_index].role != "assistant":
        return messages
    last = messages[last_index]
    is_own = last.format == rules.format
    inner = next((i for i in range(len(last.parts) - 1, -1, -1) if carries_content(last.parts[i], is_own=is_own)), 0)
    part = last.parts[inner]
    if not isinstance(part, TextPart) or not ends_with_space(part):
        return messages
    sentence = f"Whitespace at the end of message {last.id} was omitted."
    repairs.append(Repair(kind="last_space", message=last.id, sentence=sentence))
    parts = (*last.parts[:inner], replace(part, text=part.text.rstrip()), *last.parts[inner + 1 :])
    return [*messages[:last_index], replace(last, parts=parts), *messages[last_index + 1 :]]


INTERRUPTED = "This tool call was interrupted and has no result."


class SyntheticMessage(Message, frozen=True, gc=False):
    """A message that exists only in the rendered history, not in the store."""


def answer_calls(messages: list[Message], rules: ProviderRules, repairs: list[Repair]) -> list[Message]:
    """Place each tool result directly after its call, answer calls without one, drop results without a call."""
    if rules.results_apart:
        messages = [step for message in messages for step in _split_steps(message, rules)]
    pairs = pair_calls(messages)
    if not pairs.answers and not pairs.open_calls and not pairs.orphans:
        return messages
    repair = _ToolCallRepair(messages, rules, pairs, repairs)
    repair.drop()
    repair.rename()
    repair.place_results()
    return repair.view()


def _split_steps(message: Message, rules: ProviderRules) -> list[Message]:
    """Split an answer of another format into its steps, so that each call is answered within its own step."""
    if message.role != "assistant" or message.format == rules.format or not calls_of(message):
        return [message]
    has_step_marks = rules.marked_steps is not None and message.format == rules.marked_steps
    steps: list[Message] = []
    for step in common.group_by_step(message.parts, only_marks=has_step_marks):
        content: Sequence[Part] = step
        results: Sequence[Part] = ()
        if rules.alternates:
            content = [part for part in step if not is_result(part)]
            results = [part for part in step if is_result(part)]
        view = replace(message, parts=tuple(content), native=message.native if has_step_marks else None)
        if is_visible(view, rules):
            steps.append(view)
        if results:
            steps.append(replace(message, role="tool", parts=tuple(results), native=None))
    return steps


def _short_id(id: str, used_ids: set[str]) -> str:
    """Return nine letters and digits, which every provider accepts."""
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:9]
    return digest if digest not in used_ids else _short_id(id + "_", used_ids)


class _ToolCallRepair:
    """The changes to tool calls and results: parts to drop, new call ids, and messages to insert."""

    def __init__(self, messages: list[Message], rules: ProviderRules, pairs: ToolPairs, repairs: list[Repair]) -> None:
        self.messages, self.rules, self.pairs, self.repairs = messages, rules, pairs, repairs
        self.dropped_parts: set[PartIndex] = set()
        self.results_first_in: set[int] = set()
        self.new_ids: dict[PartIndex, str] = {}
        self.added_after: dict[int, list[Message]] = {}

    def _part(self, index: PartIndex) -> Any:
        return self.messages[index[0]].parts[index[1]]

    def _add_repair(self, kind: Any, index: PartIndex, sentence: str) -> None:
        message, call_id = self.messages[index[0]].id, self._part(index).call_id
        text = sentence.format(call=repr(call_id), message=message)
        self.repairs.append(Repair(kind=kind, message=message, sentence=text, call_id=call_id))

    def drop(self) -> None:
        """Drop results without a call, and second results of a call."""
        for index in self.pairs.orphans:
            self._add_repair(
                "orphan_result", index, "Message {message} has a result of tool call {call}, which is missing."
            )
        for index in self.pairs.duplicates:
            self._add_repair("duplicate_result", index, "Message {message} has a second result of tool call {call}.")
        self.dropped_parts.update(self.pairs.orphans, self.pairs.duplicates)

    def rename(self) -> None:
        """Replace call ids that are missing, duplicated or refused by the provider, in calls and results."""
        used_ids = UsedCallIds(self.rules)
        all_ids = {part.call_id for message in self.messages for part in message.parts if is_call(part)}
        for index, message in enumerate(self.messages):
            used_ids.begin_message()
            for inner in calls_of(message):
                call_id = self._part((index, inner)).call_id
                if not used_ids.accepts(call_id):
                    call_id = self._new_call_id(call_id, message, inner, used_ids.ids | all_ids)
                    self._add_repair(
                        "call_id", (index, inner), f"Tool call {{call}} of message {{message}} was renamed {call_id!r}."
                    )
                    self.new_ids[index, inner] = call_id
                    if (index, inner) in self.pairs.answers:
                        self.new_ids[self.pairs.answers[index, inner]] = call_id
                used_ids.ids.add(call_id)

    def _new_call_id(self, call_id: str, message: Message, inner: int, used_ids: set[str]) -> str:
        """Return an id made of the old one and the position of the call, so that it is the same in every history."""
        safe_id = "".join(
            letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in call_id
        )
        stem = safe_id[:24] if safe_id.strip("_") else "call"
        new_id = f"{stem}_{message.branch}_{message.position}_{inner}"
        while new_id in used_ids:
            new_id += "_"
        pattern = self.rules.call_id
        return new_id if pattern is None or pattern.fullmatch(new_id) else _short_id(new_id, used_ids)

    def place_results(self) -> None:
        """Move results that are not directly after their call there, and add results for calls without one."""
        unanswered_calls = set(self.pairs.open_calls)
        for index, message in enumerate(self.messages):
            calls = calls_of(message)
            if not calls:
                continue
            in_place = self._in_place(index, calls)
            results: list[Message] = []
            for inner in calls:
                result = self.pairs.answers.get((index, inner))
                if result is not None and result not in in_place:
                    results.append(self._move_result(result, report=result[0] != index or self._is_own_format(index)))
                elif (index, inner) in unanswered_calls:
                    results.append(self._interrupted_result(message, (index, inner)))
            if results:
                self.added_after[index] = results

    def _in_place(self, index: int, calls: Sequence[int]) -> set[PartIndex]:
        """Return the results of a message's calls that are already at a position that the provider accepts."""
        expected = {self.pairs.answers[index, inner] for inner in calls if (index, inner) in self.pairs.answers}
        same_message = {  # after their call, in the same message
            self.pairs.answers[index, inner]
            for inner in calls
            if (index, inner) < self.pairs.answers.get((index, inner), (0, 0)) < (index + 1, 0)
        }
        if not self.rules.results_apart:
            return same_message | {result for result in expected if result[0] > index}
        in_place = set[PartIndex]() if self.rules.alternates or self._is_own_format(index) else same_message
        for after in range(index + 1, len(self.messages)):
            message = self.messages[after]
            results = {(after, inner) for inner in results_of(message)} - self.dropped_parts
            if message.role == "assistant" or not results & expected:
                if results_of(message) and not results and len(results_of(message)) == len(message.parts):
                    continue  # all of its results are dropped, so nothing of it is rendered
                break
            in_place |= results & expected
            if len(results_of(message)) < len(message.parts):
                self._results_first(after, results & expected)
                break
        return in_place

    def _results_first(self, index: int, results: set[PartIndex]) -> None:
        """Move the results of a message before its other parts, and report it, if they are not first."""
        parts = self.messages[index].parts
        first_content = next(inner for inner, part in enumerate(parts) if not is_result(part))
        late = sorted(result for result in results if result[1] > first_content)
        if late:
            self.results_first_in.add(index)
            self._add_repair(
                "moved_result", late[0], "The result of tool call {call} was moved to the start of message {message}."
            )

    def _is_own_format(self, index: int) -> bool:
        return self.messages[index].format == self.rules.format

    def _move_result(self, index: PartIndex, *, report: bool) -> Message:
        """Return a message with one result, taken from its own. In other formats, results next to calls are normal."""
        if report:
            sentence = "The result of tool call {call} in message {message} was moved after its call."
            self._add_repair("moved_result", index, sentence)
        self.dropped_parts.add(index)
        message = self.messages[index[0]]
        part = self._with_new_id(index)
        native = None if message.role == "assistant" else message.native
        return replace(message, role="tool", parts=(part,), native=native, state="completed")

    def _interrupted_result(self, message: Message, index: PartIndex) -> Message:
        self._add_repair(
            "interrupted_call", index, "Tool call {call} of message {message} has no result: an error was added."
        )
        call: ToolCallPart = self._part(index)
        part = ToolResultPart(
            call_id=self.new_ids.get(index, call.call_id),
            tool=call.tool,
            status="error",
            text=INTERRUPTED,
            error_code="interrupted",
        )
        return SyntheticMessage(message.branch, message.position, "tool", (part,), message.created_at_ms)

    def _with_new_id(self, index: PartIndex) -> Part:
        part = self._part(index)
        if index not in self.new_ids:
            return part
        native = part.native
        replaces_fields = type(native) is dict and "whole" in native  # it would be rendered instead of the new id
        return replace(part, call_id=self.new_ids[index], native=None if replaces_fields else native)

    def view(self) -> list[Message]:
        """Return the repaired messages."""
        messages: list[Message] = []
        renamed_indexes = {part[0] for part in self.new_ids}
        changed_indexes = {part[0] for part in self.dropped_parts} | renamed_indexes | self.results_first_in
        for index, message in enumerate(self.messages):
            view = self._remaining_message(index) if index in changed_indexes else message
            if view is not None:
                messages.append(view)
            messages += self.added_after.get(index, [])
        return messages

    def _remaining_message(self, index: int) -> Message | None:
        """Return a message without the dropped parts; None if nothing of it is left."""
        message = self.messages[index]
        parts = [
            self._with_new_id((index, inner))
            for inner in range(len(message.parts))
            if (index, inner) not in self.dropped_parts
        ]
        if index in self.results_first_in:
            parts = [part for part in parts if is_result(part)] + [part for part in parts if not is_result(part)]
        role = "user" if message.role == "tool" and not any(is_result(part) for part in parts) else message.role
        view = replace(message, parts=tuple(parts), role=role)
        return view if is_visible(view, self.rules) else None


ASSISTANT_FIRST_TEXT = "(The conversation begins with the assistant.)"


def join_roles(messages: Sequence[Message], rules: ProviderRules, repairs: list[Repair]) -> list[Message]:
    """Join consecutive messages that have the same role for the provider."""
    assert rules.format is not None
    result: list[Message] = []
    run: list[Message] = []
    for message in messages:
        if run and provider_role(message.role) != provider_role(run[-1].role):
            result += _join_run(run, result, rules.format, repairs)
            run = []
        run.append(message)
    return result + _join_run(run, result, rules.format, repairs)


def _join_run(run: list[Message], before: list[Message], format: str, repairs: list[Repair]) -> list[Message]:
    if len(run) < 2 or run[0].role == "system":  # noqa: PLR2004  a single message needs no joining
        return run
    if all(is_joined_by_writing(item.role, item.parts, is_own=item.format == format) for item in run):
        return run
    stored_messages = [message for message in run if not isinstance(message, SyntheticMessage | SummaryMessage)]
    if len(stored_messages) > 1:
        ids = ", ".join(message.id for message in stored_messages)
        sentence = f"Messages {ids} have the same role: joined."
        repairs.append(Repair(kind="same_role", message=stored_messages[0].id, sentence=sentence))
    return [_merge_run(run, before[-1:], format)]


def _merge_run(run: list[Message], before: list[Message], format: str) -> Message:
    """Return one message with the parts of all, results first; their calls are in the message before it, if any."""
    parts: list[Part] = []
    fields: dict[str, Any] = {}
    for message in run:
        for draft in _in_format(message, before, format):
            parts += draft.parts
            message_fields = (draft.native or {}).get("fields")
            fields = {**message_fields, **fields} if type(message_fields) is dict else fields
    results = [part for part in parts if is_result(part)]
    content = [part for part in parts if not is_result(part)]
    role = run[0].role if run[0].role == "assistant" else "user" if content else "tool"
    native = {"content": "blocks", "fields": fields} if fields else {"content": "blocks"}
    return msgspec.structs.replace(
        run[0], role=role, parts=(*results, *content), format=format, native=native, state="completed"
    )


def _in_format(message: Message, before: list[Message], format: str) -> Sequence[Message | Draft]:
    """Return a message converted to a format, by rendering it after its calls and reading the result."""
    if message.format == format:
        return (message,)
    calls = before if any(is_result(part) for part in message.parts) else []
    output = formats.write([*calls, message], format)
    return formats.read(output[len(formats.write(calls, format)) :], format)


def start_with_user(messages: list[Message], repairs: list[Repair]) -> list[Message]:
    """Insert a short user message before an assistant message that comes first."""
    first = next((message for message in messages if message.role != "system"), None)
    if first is None or first.role != "assistant":
        return messages
    sentence = f"Message {first.id} is the first and from the assistant: a user message was added before it."
    repairs.append(Repair(kind="first_role", message=first.id, sentence=sentence))
    opening = SyntheticMessage(
        first.branch, first.position, "user", (TextPart(text=ASSISTANT_FIRST_TEXT),), first.created_at_ms
    )
    index = messages.index(first)
    return [*messages[:index], opening, *messages[index:]]


RESULTS_ANSWER = "OK"


def answer_results(messages: Sequence[Message], repairs: list[Repair]) -> list[Message]:
    """Insert a short answer between results and a message of the user."""
    view: list[Message] = []
    for message in messages:
        if message.role == "user" and view and view[-1].role == "tool":
            sentence = f"Message {message.id} follows results of tools: an answer was added before it."
            repairs.append(Repair(kind="same_role", message=message.id, sentence=sentence))
            parts = (TextPart(text=RESULTS_ANSWER),)
            view.append(SyntheticMessage(message.branch, message.position, "assistant", parts, message.created_at_ms))
        view.append(message)
    return view


def repair_history(messages: Sequence[Message], format: str) -> tuple[Sequence[Message], list[Repair]]:
    """Return messages that the provider accepts, and the repairs. Recollect's own format is not repaired."""
    if not formats.is_provider(format):
        return messages, []
    rules = formats.load_rules(format)
    messages = _drop_contradictions(messages)
    return (messages, []) if is_valid(messages, rules) else repair_messages(messages, rules)


def find_problems(messages: Sequence[Message], format: str | None = None) -> list[Repair]:
    """Return the repairs that messages need for one format, or those that every provider needs."""
    rules = formats.load_rules(format) if format is not None and formats.is_provider(format) else ANY_PROVIDER
    return repair_messages(_drop_contradictions(messages), rules)[1]


def _drop_contradictions(messages: Sequence[Message]) -> Sequence[Message]:
    """Drop remainders that contradict the common fields; nearly every history has none."""
    view = [formats.without_contradicting_remainder(message) for message in messages]
    return messages if all(map(operator.is_, view, messages)) else view


def repair_messages(messages: Sequence[Message], rules: ProviderRules) -> tuple[list[Message], list[Repair]]:
    """Run every repair step and return the messages and the repairs."""
    repairs: list[Repair] = []
    view = clean_messages(messages, rules, repairs)
    if rules.own_outputs:
        from recollect.history import approvals  # noqa: PLC0415  only for one provider

        view = tool_pairs.retype_outputs(approvals.drop_unanswered(view, repairs), rules.format, repairs)
    view = answer_calls(view, rules, repairs)
    view = drop_trailing_reasoning(view, rules, repairs)
    if rules.alternates:
        view = join_roles(view, rules, repairs)
    if rules.user_first:
        view = start_with_user(view, repairs)
    if rules.answered_results:
        view = answer_results(view, repairs)
    if rules.no_trailing_space:
        view = strip_trailing_space(view, rules, repairs)
    return view, repairs
