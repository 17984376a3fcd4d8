"""A session as its user holds it: what is known about it, and everything that can be done with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from recollect import context, formats, ops
from recollect.context.drafts import drafts, question, tool_result
from recollect.context.history import History, history
from recollect.errors import SessionBusy
from recollect.model import argument, figure, keys
from recollect.model.branch import Branch
from recollect.model.compaction import KEEP_TURNS, Compaction
from recollect.model.fields import SessionFields
from recollect.model.message import Format, Message, Messages
from recollect.model.part import ResultStatus
from recollect.model.presence import Arrived, Presence
from recollect.model.session import Session as Info
from recollect.model.session import SessionChanges
from recollect.model.snapshot import Snapshot, SnapshotKind
from recollect.model.tool_call import ToolCall
from recollect.model.turn import LEASE, POLL, EndStatus
from recollect.model.turn import Turn as TurnInfo
from recollect.op import Op
from recollect.store.turn import Turn

if TYPE_CHECKING:
    from recollect.context.compaction import Summarize
    from recollect.context.window import Counter
    from recollect.model.statistics import Stats
    from recollect.store import Store

T = TypeVar("T")
MessageId = ops.paths.MessageId


class Session(SessionFields):
    """One conversation: what is known about it, and everything that can be done with it."""

    def __init__(self, store: Store, info: Info) -> None:
        self._info, self._counts = info, None
        self.store = store

    def _run(self, op: Op[T]) -> T:
        return self.store.run(op)

    def refresh(self) -> Self:
        """Read again what is known about the session."""
        self.info = self._run(ops.sessions.read(self.store.scope(), self.id))
        return self

    def append(
        self, messages: Messages, format: Format | None = None, key: str | None = None, *, expected: int | None = None
    ) -> ops.appends.Appended:
        """Add one message or many to the end, all or none.

        Messages are dicts or a provider's own objects; the format is guessed where it is clear. With a `key` the same
        append is made once, however often it is repeated; with `expected` only at that revision.
        """
        given = drafts(messages, format)
        op = ops.appends.append(self.store.scope(), self.id, given, key=key, expected=expected)
        appended, counts = self._run(op)
        self.saw(counts)
        return appended

    def arrive(self, surface: str, *, id: str | None = None, take_over: bool = False) -> Arrived:
        """Say that someone talks here from now on, in a terminal or elsewhere; give one's own place and who else does.

        `take_over` sends the others away, and ends what they have begun. With the `id` of a place it is taken again.
        """
        scope = self.store.scope()
        place = keys.new_id(scope.now) if id is None else id
        return self._run(ops.presence.arrive(scope, self.id, place, surface, take_over=take_over))

    def stay(self, id: str) -> bool:
        """Say that one is still at one's place; False where someone has taken the session over."""
        return self._run(ops.presence.stay(self.store.scope(), id))

    def leave(self, id: str) -> None:
        """Say that one has left one's place."""
        self._run(ops.presence.leave(self.store.scope(), id))

    def present(self) -> list[Presence]:
        """Give who talks here now, whoever came first before the others. A process that died is not there."""
        return self._run(ops.presence.present(self.store.scope(), self.id))

    def messages(
        self, last: int | None = None, *, before: MessageId | None = None, deleted: bool = False, active: bool = False
    ) -> list[Message]:
        """Read the active path: all of it, the last messages, or the last ones before a message.

        With `active` it is what is sent on: summaries stand in the place of what was compacted.
        """
        scope = self.store.scope()
        if argument.flag("active", active):
            plan = ops.views.active(scope, self.id, before=before, last=last)
            return (self.store.follow(plan)).messages
        if last is None and before is None:
            return self.store.follow(ops.messages.everything(scope, self.id, deleted=deleted))
        limit = ops.messages.PAGE if last is None else last
        return self._run(ops.messages.backward(scope, self.id, before=before, limit=limit, deleted=deleted)).messages

    def iter_messages(self, *, deleted: bool = False, branch: int | None = None) -> Iterator[Message]:
        """Go through the active path, or another branch, in constant memory, up to the end that it has now."""
        scope = self.store.scope()
        key = None if branch is None else self._run(ops.branches.key(scope, self.id, branch))
        page = self._run(ops.messages.forward(scope, self.id, branch=key, deleted=deleted))
        yield from page.messages
        while page.more is not None:
            page = self._run(ops.messages.following(self.store.scope(), self.id, page, deleted=deleted))
            yield from page.messages

    def message(self, id: MessageId) -> Message:
        """Read one message by its id."""
        return self._run(ops.messages.get(self.store.scope(), self.id, id))

    def response(self, id: MessageId) -> dict[str, Any] | None:
        """Give the whole response that a message came with, as the provider sent it; None where there was none."""
        return formats.response(self.message(id))

    def history(
        self,
        format: Format = "recollect",
        budget: int | None = None,
        *,
        limit: int | None = None,
        counter: Counter | str | None = None,
        repair: bool = True,
    ) -> History:
        """Give what the provider accepts next, as plain dicts, within a budget of tokens and a limit of messages.

        Tokens are those stored with the messages, or what `counter` says: "o200k", "cl100k" or a function.
        """
        window = context.window.Window(budget, limit, context.counting.counter(counter))
        repair = argument.flag("repair", repair)
        sheet = context.sheet.sheet(format) if repair and not window.bounded else None
        enough = window.enough if window.bounded else None
        view = self.store.follow(ops.views.active(self.store.scope(), self.id, enough=enough, taker=sheet))
        if sheet is not None and sheet.whole:
            return sheet.history
        return history(window.fit(view.messages), format, repair=repair)

    def active_tokens(self) -> int:
        """Add up the stored sizes of what is sent on: the active path without what was compacted."""
        return self._run(ops.views.tokens(self.store.scope(), self.id))

    def compact(
        self,
        before: MessageId | None = None,
        *,
        summary: str | None = None,
        summarize: Summarize | None = None,
        tokens: int | None = None,
        keep_turns: int = KEEP_TURNS,
    ) -> Compaction:
        """Put a summary in the place of all before a message, or of all but the newest turns.

        `summarize` is given the messages and gives the summary; nothing is locked meanwhile. The messages stay stored.
        """
        context.compaction.chosen(summary, summarize)
        ready = self.store.follow(ops.views.prepare(self.store.scope(), self.id, before))
        span = context.compaction.replaced(ready.messages, ready.view.covers, ready.before, keep_turns)
        text = summary if summarize is None else context.compaction.told(summarize(list(span.messages)))
        op = ops.compactions.compact(
            self.store.scope(), self.id, ready.view.branch, ready.view.rounds, (span.low, span.high),
            summary=text, before=span.tokens, after=tokens,
        )  # fmt: skip
        made = self._run(op)
        self.info = made.session
        return made.compaction

    def undo_compaction(self, round: int | None = None) -> Compaction:
        """Undo the last compaction of the active path, or the one of a round: its messages are sent on again."""
        undone = self._run(ops.compactions.undo(self.store.scope(), self.id, round))
        self.info = undone.session
        return undone.compaction

    def compactions(self) -> list[Compaction]:
        """Read all compactions of the active path, oldest first, undone ones too."""
        return self._run(ops.compactions.compactions(self.store.scope(), self.id))

    def compaction(self) -> Compaction | None:
        """Read the last compaction of the active path that is in force; None where there is none."""
        return next((item for item in reversed(self.compactions()) if item.undone_at is None), None)

    def snapshot(
        self, kind: SnapshotKind, content: Any, *, at: MessageId | None = None, tokens: int | None = None
    ) -> Snapshot:
        """Store a title, summary or memory made from the session up to a message, or up to its end."""
        made = self._run(ops.snapshots.keep(self.store.scope(), self.id, kind, content, at=at, tokens=tokens))
        self.refresh()
        return made

    def snapshots(self, kind: SnapshotKind | None = None) -> list[Snapshot]:
        """Read the snapshots of the session, of one kind or of all, the oldest first."""
        return self._run(ops.snapshots.snapshots(self.store.scope(), self.id, kind))

    def pin_message(self, id: MessageId) -> Message:
        """Keep a message in every history, however old it is; unpin_message() lets go of it."""
        return self._pinned(id, pinned=True)

    def unpin_message(self, id: MessageId) -> Message:
        """Let a message leave the history again when it is old."""
        return self._pinned(id, pinned=False)

    def _pinned(self, id: MessageId, *, pinned: bool) -> Message:
        message = self._run(ops.pins.mark(self.store.scope(), self.id, id, pinned=pinned))
        self.refresh()
        return message

    def delete_message(self, id: MessageId) -> Message:
        """Take a message out of the conversation; restore_message() brings it back."""
        return self._marked(id, deleted=True)

    def restore_message(self, id: MessageId) -> Message:
        """Bring a deleted message back."""
        return self._marked(id, deleted=False)

    def _marked(self, id: MessageId, *, deleted: bool) -> Message:
        message = self._run(ops.messages.mark(self.store.scope(), self.id, id, deleted=deleted))
        self.refresh()
        return message

    def update(self, *, expected: int | None = None, **fields: Unpack[SessionChanges]) -> Self:
        """Change what is known about the session: title, status, model, color, metadata, pinned, archived, ..."""
        self.info = self._run(ops.sessions.update(self.store.scope(), self.id, fields, expected))
        return self

    def turn(
        self,
        said: str | Messages,
        format: Format | None = None,
        *,
        lease: float = LEASE,
        wait: float = 0.0,
        take_over: bool = False,
        expected: int | None = None,
        key: str | None = None,
    ) -> Turn:
        """Open a turn with what the person said, which is on disk when this returns.

        A branch takes one turn at a time: `wait` says for how many seconds to wait for another, `take_over` ends it.
        The turn is held for `lease` seconds after each of its writes. A `key` opens one turn: a second is AlreadySaid.
        """
        given = question(said, format)
        figure.seconds(lease, wait)
        until = time.monotonic() + wait
        while True:
            op = ops.turns.begin(
                self.store.scope(),
                self.id,
                given,
                lease=int(lease * 1000),
                take_over=argument.flag("take_over", take_over),
                expected=expected,
                key=key,
            )
            try:
                step = self._run(op)
            except SessionBusy:
                if time.monotonic() >= until:
                    raise
                time.sleep(POLL)
            else:
                self.saw(step.counts)
                return Turn(self, step.held, lease)

    def resume_turn(self, id: MessageId, *, lease: float = LEASE) -> Turn:
        """Take up an open turn by its id, or reopen one that was interrupted, to add to it or end it.

        The last turn of the active branch is reopened; TurnClosed for another interrupted one.
        """
        figure.seconds(lease)
        step = self._run(ops.turns.resume(self.store.scope(), self.id, id, lease=int(lease * 1000)))
        self.saw(step.counts)
        return Turn(self, step.held, lease, reopened=step.reopened)

    def save_turn(
        self,
        message: str | Messages,
        response: Messages | None = None,
        format: Format | None = None,
        *,
        status: EndStatus = "completed",
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
        error: Any = None,
        key: str | None = None,
        expected: int | None = None,
    ) -> ops.appends.Appended:
        """Store a whole turn at once: what was said, and the provider's response or the messages that followed."""
        usage = ops.turns.Usage(model, input_tokens, output_tokens, latency_ms, error)
        said = question(message, format)
        answer = [] if response is None else drafts(response, format)
        op = ops.turns.save(
            self.store.scope(), self.id, said, answer, status=status, usage=usage, key=key, expected=expected
        )
        step = self._run(op)
        self.saw(step.counts)
        return step.appended

    def turns(self, *, after: int = 0, until: int | None = None) -> list[TurnInfo]:
        """Read the turns of the active path, oldest first: all, or those that begin after a position, up to another."""
        return self._run(ops.turns.turns(self.store.scope(), self.id, after, until))

    def tool_calls(self) -> list[ToolCall]:
        """Read the tool calls of the active path, oldest first."""
        return self._run(ops.tools.calls(self.store.scope(), self.id))

    def start_tool_call(self, call_id: str) -> None:
        """Mark a tool call as running."""
        self.info = self._run(ops.tools.start(self.store.scope(), self.id, call_id))

    def record_tool_result(
        self,
        call_id: str,
        output: Any = None,
        *,
        status: ResultStatus = "success",
        error_code: str | None = None,
        error_message: str | None = None,
        latency_ms: float | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Message:
        """Store the result of a tool call, text or any JSON value. The same result twice is stored once."""
        draft = tool_result(
            call_id, output, status=status, error_code=error_code, error_message=error_message,
            latency_ms=latency_ms, metadata=metadata,
        )  # fmt: skip
        recorded = self._run(ops.results.store(self.store.scope(), self.id, draft))
        self.info = recorded.session
        return recorded.message

    def branches(self) -> list[Branch]:
        """List the branches of this session."""
        return self._run(ops.branches.branches(self.store.scope(), self.id))

    def rewind(self, to: MessageId) -> Self:
        """Go back to a message without losing what followed, which stays on its own branch. 0: before the first."""
        self.info = self._run(ops.branches.rewind(self.store.scope(), self.id, to))
        return self

    def switch(self, branch: int | Branch) -> Self:
        """Make another branch the active path."""
        number = branch.id if isinstance(branch, Branch) else branch
        self.info = self._run(ops.branches.switch(self.store.scope(), self.id, number))
        return self

    def fork(self, at: MessageId | None = None, *, id: str | None = None, **fields: Unpack[SessionChanges]) -> Session:
        """Make a new session that shares the past of this one up to a message; nothing is copied."""
        scope = self.store.scope()
        new = keys.new_id(scope.now) if id is None else id
        return Session(self.store, self._run(ops.branches.fork(scope, self.id, at, new, fields)))

    def stats(self, *, utc_offset: int = 0) -> Stats:
        """Add up what was said in this session, on all its branches, in all and by model and day."""
        return self.store.follow(ops.statistics.of_session(self.store.scope(), self.id, utc_offset=utc_offset))
