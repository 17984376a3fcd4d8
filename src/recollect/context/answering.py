"""Mending calls and results: every call answered once, directly after it; no result without its call; ids that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recollect.context.cleaning import is_visible
from recollect.context.pairs import Pairs, Place, calls_of, is_call, is_result, pair, results_of
from recollect.context.rules import Rules
from recollect.formats import neutral
from recollect.model.message import Message
from recollect.model.part import Part, ToolCallPart, ToolResultPart
from recollect.model.repair import Repair

INTERRUPTED = "This tool call was interrupted and has no result."

replace = msgspec.structs.replace


class Made(Message, frozen=True, gc=False):
    """A message that is only in the view."""


def answer(messages: list[Message], rules: Rules, repairs: list[Repair]) -> list[Message]:
    """Put each result directly after its call, answer calls that have none, leave out the others."""
    if rules.results_apart:
        messages = [piece for message in messages for piece in _apart(message, rules)]
    pairs = pair(messages)
    if not pairs.answers and not pairs.unanswered and not pairs.orphans:
        return messages
    work = _Work(messages, rules, pairs, repairs)
    work.drop()
    work.rename()
    work.place()
    return work.view()


def _apart(message: Message, rules: Rules) -> list[Message]:
    """Take an answer of another format that has several steps apart, so that each call is answered in its own."""
    if message.role != "assistant" or message.format == rules.format or not calls_of(message):
        return [message]
    converted = rules.format == "ai-sdk" and message.format == "ai-sdk-ui"  # step by step, as it is marked
    pieces: list[Message] = []
    for step in neutral.stretches(message.parts, marked=converted):
        told: Sequence[Part] = step
        results: Sequence[Part] = ()
        if rules.alternates:
            told = [part for part in step if not is_result(part)]
            results = [part for part in step if is_result(part)]
        piece = replace(message, parts=tuple(told), native=message.native if converted else None)
        if is_visible(piece, rules):
            pieces.append(piece)
        if results:
            pieces.append(replace(message, role="tool", parts=tuple(results), native=None))
    return pieces


class _Work:
    """What is taken from which message, and what is put after which."""

    def __init__(self, messages: list[Message], rules: Rules, pairs: Pairs, repairs: list[Repair]) -> None:
        self.messages, self.rules, self.pairs, self.repairs = messages, rules, pairs, repairs
        self.taken: set[Place] = set()
        self.first: set[int] = set()
        self.ids: dict[Place, str] = {}
        self.after: dict[int, list[Message]] = {}

    def _part(self, place: Place) -> Any:
        return self.messages[place[0]].parts[place[1]]

    def _note(self, kind: Any, place: Place, sentence: str) -> None:
        message, call_id = self.messages[place[0]].id, self._part(place).call_id
        told = sentence.format(call=repr(call_id), message=message)
        self.repairs.append(Repair(kind=kind, message=message, sentence=told, call_id=call_id))

    def drop(self) -> None:
        """Leave out results that answer nothing, or what was answered before."""
        for place in self.pairs.orphans:
            self._note("orphan_result", place, "Message {message} has a result of tool call {call}, which is not here.")
        for place in self.pairs.duplicates:
            self._note("duplicate_result", place, "Message {message} has a second result of tool call {call}.")
        self.taken.update(self.pairs.orphans, self.pairs.duplicates)

    def rename(self) -> None:
        """Give calls whose id is missing, taken or not in the provider's form another one, and their results too."""
        seen: set[str] = set()
        known = {part.call_id for message in self.messages for part in message.parts if is_call(part)}
        for index, message in enumerate(self.messages):
            if self.rules.unique == "message":
                seen = set()
            for inner in calls_of(message):
                call_id = self._part((index, inner)).call_id
                if not self._fits(call_id) or call_id in seen:
                    call_id = self._new(call_id, message, inner, seen | known)
                    self._note(
                        "call_id", (index, inner), f"Tool call {{call}} of message {{message}} is {call_id!r} here."
                    )
                    self.ids[index, inner] = call_id
                    if (index, inner) in self.pairs.answers:
                        self.ids[self.pairs.answers[index, inner]] = call_id
                seen.add(call_id)

    def _fits(self, call_id: str) -> bool:
        pattern = self.rules.call_id
        return bool(call_id) and (pattern is None or pattern.fullmatch(call_id) is not None)

    def _new(self, call_id: str, message: Message, inner: int, taken: set[str]) -> str:
        """Make an id from the old one, or from the place of the call: the same in every view."""
        plain = "".join(
            letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in call_id
        )
        stem = plain[:24] if plain.strip("_") else "call"
        found = f"{stem}_{message.branch}_{message.position}_{inner}"
        while found in taken:
            found += "_"
        return found

    def place(self) -> None:
        """Find what is in its place; take the rest from where it is, and put it after its call."""
        missing = set(self.pairs.unanswered)
        for index, message in enumerate(self.messages):
            calls = calls_of(message)
            if not calls:
                continue
            here = self._in_place(index, calls)
            put: list[Message] = []
            for inner in calls:
                result = self.pairs.answers.get((index, inner))
                if result is not None and result not in here:
                    put.append(self._moved(result, told=result[0] != index or self._own(index)))
                elif (index, inner) in missing:
                    put.append(self._made(message, (index, inner)))
            if put:
                self.after[index] = put

    def _in_place(self, index: int, calls: Sequence[int]) -> set[Place]:
        """Find the results of a message's calls that are where they belong."""
        wanted = {self.pairs.answers[index, inner] for inner in calls if (index, inner) in self.pairs.answers}
        inside = {
            self.pairs.answers[index, inner]
            for inner in calls
            if (index, inner) < self.pairs.answers.get((index, inner), (0, 0)) < (index + 1, 0)
        }
        if not self.rules.results_apart:
            return inside | {place for place in wanted if place[0] > index}
        found = set[Place]() if self.rules.alternates or self._own(index) else inside
        for after in range(index + 1, len(self.messages)):
            message = self.messages[after]
            results = {(after, inner) for inner in results_of(message)} - self.taken
            if message.role == "assistant" or not results & wanted:
                if results_of(message) and not results and len(results_of(message)) == len(message.parts):
                    continue  # a message of which nothing is left
                break
            found |= results & wanted
            if len(results_of(message)) < len(message.parts):
                self._results_first(after, results & wanted)
                break
        return found

    def _results_first(self, index: int, results: set[Place]) -> None:
        """Note that the results of a message stand after its other parts, if they do."""
        parts = self.messages[index].parts
        words = next(inner for inner, part in enumerate(parts) if not is_result(part))
        late = sorted(place for place in results if place[1] > words)
        if late:
            self.first.add(index)
            self._note("moved_result", late[0], "The result of tool call {call} was put first in message {message}.")

    def _own(self, index: int) -> bool:
        return self.messages[index].format == self.rules.format

    def _moved(self, place: Place, *, told: bool) -> Message:
        """Take a result from its message. Other formats have it beside the call, and nothing is wrong with that."""
        if told:
            sentence = "The result of tool call {call} in message {message} was put after its call."
            self._note("moved_result", place, sentence)
        self.taken.add(place)
        message = self.messages[place[0]]
        part = self._renamed(place)
        native = None if message.role == "assistant" else message.native
        return replace(message, role="tool", parts=(part,), native=native, state="completed")

    def _made(self, message: Message, place: Place) -> Message:
        self._note("interrupted_call", place, "Tool call {call} of message {message} has no result: it says so here.")
        call: ToolCallPart = self._part(place)
        part = ToolResultPart(
            call_id=self.ids.get(place, call.call_id),
            tool=call.tool,
            status="error",
            text=INTERRUPTED,
            error_code="interrupted",
        )
        return Made(message.branch, message.position, "tool", (part,), message.created_at)

    def _renamed(self, place: Place) -> Part:
        part = self._part(place)
        if place not in self.ids:
            return part
        native = part.native
        whole = type(native) is dict and "whole" in native  # it would be written instead of our fields
        return replace(part, call_id=self.ids[place], native=None if whole else native)

    def view(self) -> list[Message]:
        """Put it all together."""
        found: list[Message] = []
        renamed = {place[0] for place in self.ids}
        touched = {place[0] for place in self.taken} | renamed | self.first
        for index, message in enumerate(self.messages):
            view = self._without(index) if index in touched else message
            if view is not None:
                found.append(view)
            found += self.after.get(index, [])
        return found

    def _without(self, index: int) -> Message | None:
        """Give a message as it is left; None where nothing is."""
        message = self.messages[index]
        parts = [
            self._renamed((index, inner)) for inner in range(len(message.parts)) if (index, inner) not in self.taken
        ]
        if index in self.first:
            parts = [part for part in parts if is_result(part)] + [part for part in parts if not is_result(part)]
        role = "user" if message.role == "tool" and not any(is_result(part) for part in parts) else message.role
        left = replace(message, parts=tuple(parts), role=role)
        return left if is_visible(left, self.rules) else None
