"""AsyncSession: the fields of one conversation and every operation on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from recollect import formats, storage
from recollect import history as model_history
from recollect.errors import InvalidValue
from recollect.history.drafts import read_drafts, read_question, read_replacement, tool_result_draft
from recollect.history.render import History, render_history
from recollect.model import session_ids, validation
from recollect.model.compaction import KEEP_TURNS, Compaction
from recollect.model.message import Format, Message, Messages, ResultStatus, ToolCall
from recollect.model.session import (
    ArriveResult,
    Branch,
    Presence,
    SessionChanges,
    SessionFields,
    SessionInfo,
    SessionUpdates,
    Snapshot,
    SnapshotKind,
)
from recollect.model.turn import DEFAULT_LEASE, EndStatus, TurnInfo
from recollect.storage.operation import Operation
from recollect.store_async.records import AsyncRecords
from recollect.store_async.turn import AsyncTurn
from recollect.store_async.waiting import open_if_sync, summarize_messages

if TYPE_CHECKING:
    from recollect.history.compaction import Summarize
    from recollect.history.window import Counter
    from recollect.model.reports import Stats
    from recollect.store_async import AsyncStore

T = TypeVar("T")
MessageId = storage.paths.MessageId
Cursor = storage.pages.Cursor


class AsyncSession(SessionFields):
    """One conversation: its fields as attributes, and every operation on it.

    A session is a handle: it is cheap, and several handles may refer to the same session. The attributes hold the
    values that the handle last read or wrote; refresh() reads them again.
    """

    def __init__(self, store: AsyncStore, info: SessionInfo) -> None:
        self._info, self._counts = info, None
        self.store = store

    @property
    def records(self) -> AsyncRecords:
        """The records of this session. They are erased with it, and a fork does not inherit them."""
        return AsyncRecords(self.store, self.id)

    def _run(self, op: Operation[T]) -> Coroutine[Any, Any, T]:
        return self.store.run(op)

    async def refresh(self) -> Self:
        """Read the fields of the session again, and return the session."""
        self.info = await self._run(storage.sessions.read(self.store.scope(), self.id))
        return self

    async def append(
        self,
        messages: Messages,
        format: Format | None = None,
        key: str | None = None,
        *,
        after: MessageId | None = None,
        update: SessionChanges | None = None,
        expected: int | None = None,
    ) -> storage.appends.Appended:
        """Append one message or several to the active path, and change fields with them, in one transaction.

        - `messages`: dicts, objects of a provider's SDK, a whole response, or drafts; one or a list. With `after` or
          `update`, the list may be empty.
        - `format`: their format. It is detected if it is unambiguous.
        - `key`: an idempotency key. Repeating the append with the same key stores nothing and returns the first result;
          with different content, `after` or `update` it raises KeyReused.
        - `after`: the message that they follow; 0 is the beginning. They replace the messages after it, which stay on
          their branch, as after a rewind().
        - `update`: a dict of fields to change, as in update().
        - `expected`: the revision that the session must have, otherwise StaleRevision is raised.

        The messages are on disk when this returns. The cost does not depend on the length of the session, except with
        `after`.
        """
        drafts = read_drafts(messages, format)
        if after is not None or update is not None:
            op = storage.combined_appends.append_and_update(
                self.store.scope(), self.id, drafts, key=key, expected=expected, after=after, update=update
            )
            appended, self.info = await self._run(op)
            return appended
        op = storage.appends.append(self.store.scope(), self.id, drafts, key=key, expected=expected)
        appended, counts = await self._run(op)
        self.saw(counts)
        return appended

    async def arrive(self, surface: str, *, id: str | None = None, take_over: bool = False) -> ArriveResult:
        """Register your presence in this session, and return its id and the other presences.

        - `surface`: "terminal", "web", "discord", or a name of your own.
        - `id`: the id of an earlier presence to reuse; None creates a new one.
        - `take_over`: remove the others and end their open turn. Their stay() then returns False.

        A presence is information, not a lock: leases prevent concurrent turns.
        """
        scope = self.store.scope()
        presence_id = session_ids.new_id(scope.now) if id is None else id
        return await self._run(storage.presence.arrive(scope, self.id, presence_id, surface, take_over=take_over))

    async def stay(self, id: str) -> bool:
        """Renew the presence with this id. Return False if someone took the session over."""
        return await self._run(storage.presence.stay(self.store.scope(), id))

    async def leave(self, id: str) -> None:
        """Remove the presence with this id."""
        await self._run(storage.presence.leave(self.store.scope(), id))

    async def present(self) -> list[Presence]:
        """Return the current presences, oldest first. Processes that have ended are not included."""
        return await self._run(storage.presence.present(self.store.scope(), self.id))

    async def messages(
        self,
        last: int | None = None,
        *,
        after: Cursor | None = None,
        before: Cursor | None = None,
        limit: int | None = None,
        deleted: bool = False,
        active: bool = False,
    ) -> list[Message]:
        """Return messages of the active path, oldest first: all of them, the last ones, or a page.

        - `last`: only this number of the last messages.
        - `after`, `before`: only messages after and before a message, which is excluded: a message, its id or its
          position. A time (a datetime, or ISO 8601) selects the messages created after or before it.
        - `limit`: the size of a page: the first messages, or the last ones before `before` if `after` is None. 500 if
          a page has neither `limit` nor `last`.
        - `deleted`: include deleted messages.
        - `active`: return the model-visible messages instead, with summaries in place of compacted messages.

        Continue after the last message of a page, or before its first one. A message that is not on the active path
        raises MessageNotFound.
        """
        scope, active = self.store.scope(), validation.check_flag("active", active)
        if limit is None and after is None and before is None:
            if last is None and active:
                return (await self.store.follow(storage.views.read_active(scope, self.id))).messages
            if last is None:
                return await self.store.follow(storage.messages.read_all(scope, self.id, deleted=deleted))
            if not active:
                page = await self._run(storage.messages.read_backward(scope, self.id, limit=last, deleted=deleted))
                return page.messages
        request = storage.pages.parse_page(last, limit, after, before)
        if active:
            return await self._run(storage.view_pages.read_page(scope, self.id, request))
        page = await self._run(storage.messages.read_page(scope, self.id, request, deleted=deleted))
        return page.messages

    async def iter_messages(self, *, deleted: bool = False, branch: int | None = None) -> AsyncIterator[Message]:
        """Yield the messages of the active path, or of another branch, oldest first, in constant memory.

        The iteration ends at the message that was the last one when it began. A missing branch raises BranchNotFound.
        """
        scope = self.store.scope()
        key = None if branch is None else await self._run(storage.branches.branch_key(scope, self.id, branch))
        page = await self._run(storage.messages.read_forward(scope, self.id, branch=key, deleted=deleted))
        for message in page.messages:
            yield message
        while page.more is not None:
            page = await self._run(storage.messages.read_next(self.store.scope(), self.id, page, deleted=deleted))
            for message in page.messages:
                yield message

    async def message(self, id: MessageId | None = None, *, key: str | None = None) -> Message:
        """Return one message by its id or by the caller's key, deleted or not. Raise MessageNotFound if there is none.

        An id is "branch.position", such as "1.2", on any branch. A number alone is a position on the active path. Of
        several messages with a key, the one on the active path is returned, or else the newest one of another branch;
        a deleted message only if there is no other.
        """
        return await self._run(storage.messages.get(self.store.scope(), self.id, id, key))

    async def message_versions(self, id: MessageId) -> list[Message]:
        """Return the earlier versions of a message that replace_message() has replaced, oldest first."""
        return await self._run(storage.edits.read_versions(self.store.scope(), self.id, id))

    async def response(self, id: MessageId) -> dict[str, Any] | None:
        """Return the provider's whole response that contained a message, equal to the original.

        Return None if the message was not part of a whole response, and raise MessageNotFound if it does not exist.
        """
        return formats.response(await self.message(id))

    async def history(
        self,
        format: Format = "recollect",
        budget: int | None = None,
        *,
        limit: int | None = None,
        last: int | None = None,
        counter: Counter | str | None = None,
        repair: bool = True,
    ) -> History:
        """Return the messages for the next request to the provider: plain dicts, oldest first.

        - `budget`: maximum number of tokens of all messages. Whole turns are omitted, oldest first; system messages,
          pinned messages, summaries and the newest user message always stay.
        - `limit`: the same with a number of messages.
        - `last`: exactly this number of the last dicts, without repair and without a `budget` or a `limit`: the end of
          history(format, repair=False). `repairs` names the results whose calls come before them.
        - `counter`: how tokens are counted: None for the number stored with each message, "o200k", "cl100k", or a
          function that takes a message.
        - `repair`: correct what the provider would reject, such as a tool call without a result. Nothing stored
          changes.

        With a `budget`, a `limit` or `last`, the session is read from its end and only as far as needed; otherwise the
        cost grows with the number of active messages. An unknown format raises InvalidValue.
        """
        name = formats.check_format(format)
        if last is not None:
            return await self._history_tail(name, last, budget, limit, counter)
        window = model_history.window.Window(budget, limit, model_history.window.token_counter(counter))
        repair = validation.check_flag("repair", repair)
        renderer = model_history.streaming_renderer.make_renderer(name) if repair and not window.is_bounded else None
        enough = window.enough if window.is_bounded else None
        view = await self.store.follow(
            storage.views.read_active(self.store.scope(), self.id, enough=enough, consumer=renderer)
        )
        if renderer is not None and renderer.complete:
            return renderer.history
        return render_history(window.fit(view.messages), name, repair=repair)

    async def _history_tail(self, format: str, last: int, *bounds: object) -> History:
        """Return the last dicts of a history."""
        if any(bound is not None for bound in bounds):
            raise InvalidValue("last must not be combined with budget, limit or counter. Pass one of them.")
        validation.check_integer("last", last)

        def render(tail: storage.view_pages.ViewTail) -> History | None:
            return model_history.tail.render_tail(
                tail.messages, tail.earlier_calls, format, last, is_whole=tail.is_whole
            )

        return await self.store.follow(storage.view_pages.read_tail(self.store.scope(), self.id, last, render))

    async def active_tokens(self) -> int:
        """Return the sum of the stored token counts of the active messages."""
        return await self._run(storage.views.count_tokens(self.store.scope(), self.id))

    async def compact(
        self,
        before: MessageId | None = None,
        *,
        summary: str | None = None,
        summarize: Summarize | None = None,
        tokens: int | None = None,
        keep_turns: int = KEEP_TURNS,
    ) -> Compaction:
        """Replace the beginning of the active messages by a summary, and return the compaction.

        - `before`: the first message that is not replaced. None replaces all except the newest `keep_turns` turns.
        - `summary`: the text; or `summarize`: a function that takes the replaced messages and returns the text. Nothing
          is locked while it runs.
        - `tokens`: the size of the summary, estimated if None.

        The messages stay stored and undo_compaction() restores them. Raise InvalidValue if there is nothing to replace,
        and CompactionConflict if the session was compacted while `summarize` ran.
        """
        model_history.compaction.check_summary_source(summary, summarize)
        state = await self.store.follow(storage.views.prepare_compaction(self.store.scope(), self.id, before))
        span = model_history.compaction.choose_range(state.messages, state.view.covers, state.before, keep_turns)
        text = summary if summarize is None else await summarize_messages(summarize, list(span.messages))
        op = storage.views.compact(
            self.store.scope(), self.id, state.view.branch, state.view.rounds, (span.low, span.high),
            summary=text, before=span.tokens, after=tokens,
        )  # fmt: skip
        result = await self._run(op)
        self.info = result.session
        return result.compaction

    async def undo_compaction(self, round: int | None = None) -> Compaction:
        """Undo the latest compaction in effect on the active path, or the one of a round, and return it.

        Its messages are active again. Undoing twice is allowed. Raise CompactionNotFound if there is none.
        """
        result = await self._run(storage.views.undo_compaction(self.store.scope(), self.id, round))
        self.info = result.session
        return result.compaction

    async def compactions(self) -> list[Compaction]:
        """Return all compactions of the active path, oldest first, including undone ones."""
        return await self._run(storage.views.list_compactions(self.store.scope(), self.id))

    async def compaction(self) -> Compaction | None:
        """Return the latest compaction of the active path that is in effect, or None."""
        return next((item for item in reversed(await self.compactions()) if item.undone_at is None), None)

    async def snapshot(
        self, kind: SnapshotKind, content: Any, *, at: MessageId | None = None, tokens: int | None = None
    ) -> Snapshot:
        """Store a title, summary or memory derived from the session, and return the snapshot.

        `content` is any JSON value, `at` the last message that it covers (None: the last of the path), `tokens` its
        size (None: estimated). It replaces the snapshot of the same kind and message.
        """
        snapshot = await self._run(
            storage.views.store_snapshot(self.store.scope(), self.id, kind, content, at=at, tokens=tokens)
        )
        await self.refresh()
        return snapshot

    async def snapshots(self, kind: SnapshotKind | None = None) -> list[Snapshot]:
        """Return the snapshots of the session, of one kind or of all, oldest first."""
        return await self._run(storage.views.list_snapshots(self.store.scope(), self.id, kind))

    async def pin_message(self, id: MessageId) -> Message:
        """Pin a message, so that every history includes it, and return it. Forks that share it see the pin too."""
        return await self._set_pinned(id, pinned=True)

    async def unpin_message(self, id: MessageId) -> Message:
        """Unpin a message, and return it."""
        return await self._set_pinned(id, pinned=False)

    async def _set_pinned(self, id: MessageId, *, pinned: bool) -> Message:
        message = await self._run(storage.edits.set_pinned(self.store.scope(), self.id, id, pinned=pinned))
        await self.refresh()
        return message

    async def mark_message(self, id: MessageId, metadata: dict[str, Any], *, expected: int | None = None) -> Message:
        """Change keys of the metadata of a message, and return it. None removes a key; the other keys stay.

        The key "pinned" pins and unpins the message. Forks that share it see the change too. Raise StaleRevision if
        `expected` is not the current revision of the session.
        """
        message = await self._run(storage.edits.mark(self.store.scope(), self.id, id, metadata, expected))
        await self.refresh()
        return message

    async def replace_message(
        self,
        id: MessageId,
        message: Messages,
        *,
        format: Format | None = None,
        erase: bool = False,
        expected: int | None = None,
    ) -> Message:
        """Replace the content of a message, and return it. Its id, position, time, turn and key stay.

        - `message`: the new content: one message, as in append().
        - `erase`: erase the former content and all earlier versions, so that no file contains them when this returns.
          Otherwise message_versions() returns them.
        - `expected`: the revision that the session must have, otherwise StaleRevision is raised.

        The metadata, the model and the usage stay if the new message does not state them. It is replaced in every fork
        that shares it. Summaries and snapshots do not change. Raise Conflict while a turn writes the message.
        """
        draft = read_replacement(message, format)
        erase = validation.check_flag("erase", erase)
        op = storage.edits.replace(self.store.scope(), self.id, id, draft, erase=erase, expected=expected)
        replaced_message = await self._run(op)
        await self.refresh()
        return replaced_message

    async def delete_message(self, id: MessageId, *, expected: int | None = None) -> bool:
        """Mark a message as deleted, and return whether this call did it: False if it was deleted before.

        It stays stored, and restore_message() restores it. It is deleted in every fork that shares it. Raise
        StaleRevision if `expected` is not the current revision of the session.
        """
        return await self._set_deleted(id, deleted=True, expected=expected)

    async def restore_message(self, id: MessageId, *, expected: int | None = None) -> bool:
        """Restore a deleted message at its position, and return whether this call did it.

        Raise KeyReused if another message has its key now, and StaleRevision if `expected` is not the current revision
        of the session.
        """
        return await self._set_deleted(id, deleted=False, expected=expected)

    async def _set_deleted(self, id: MessageId, *, deleted: bool, expected: int | None) -> bool:
        op = storage.messages.set_deleted(self.store.scope(), self.id, id, deleted=deleted, expected=expected)
        is_changed, self.info = await self._run(op)
        return is_changed

    async def delete_messages(self, ids: Iterable[MessageId]) -> list[str]:
        """Mark messages as deleted in one transaction, and return the ids of those that this call deleted.

        Messages that were deleted before are left out. If one does not exist, MessageNotFound is raised and none is
        deleted.
        """
        deleted_ids = await self._run(storage.edits.delete(self.store.scope(), self.id, ids))
        await self.refresh()
        return deleted_ids

    async def pop(self, n: int = 1) -> list[Message]:
        """Mark the last `n` messages of the active path as deleted, and return them, the newest last.

        Fewer are returned if the path has fewer. Of two callers at the same time, each gets other messages.
        """
        messages = await self._run(storage.edits.pop(self.store.scope(), self.id, n))
        await self.refresh()
        return messages

    async def update(self, *, expected: int | None = None, **fields: Unpack[SessionUpdates]) -> Self:
        """Change fields of the session, such as title, status, model, labels or metadata, and return the session.

        `parent` sets or clears the parent, and `relation` the relation to it ("fork" or "delegate"). Raise InvalidValue
        for an unknown field or a wrong value, such as a parent that descends from the session, SessionNotFound if the
        parent does not exist, and StaleRevision if `expected` is not the current revision.
        """
        self.info = await self._run(storage.relations.update(self.store.scope(), self.id, fields, expected))
        return self

    async def add_labels(self, *labels: str) -> Self:
        """Add labels to the session, and return the session. Its other labels stay.

        Raise InvalidValue for an invalid label, or if the session would have more than 100.
        """
        self.info = await self._run(storage.labels.add(self.store.scope(), self.id, labels))
        return self

    async def remove_labels(self, *labels: str) -> Self:
        """Remove labels from the session, and return the session. Labels that it does not have are ignored."""
        self.info = await self._run(storage.labels.remove(self.store.scope(), self.id, labels))
        return self

    def turn(
        self,
        message: str | Messages,
        format: Format | None = None,
        *,
        lease: float = DEFAULT_LEASE,
        wait: float = 0.0,
        take_over: bool = False,
        expected: int | None = None,
        key: str | None = None,
    ) -> AsyncTurn:
        """Open a turn with the user's message: `async with session.turn(...) as turn`, or await it.

        - `message`: a text, which becomes a user message, or one or more messages as in append().
        - `lease`: seconds for which the turn is held after each of its writes.
        - `wait`: seconds to wait while another turn is open on the branch. After that, SessionBusy is raised.
        - `take_over`: end another open turn as interrupted. Its messages stay.
        - `expected`: the revision that the session must have, otherwise StaleRevision is raised.
        - `key`: an idempotency key. A second turn with the same key raises TurnExists, which names the first one; the
          same key with a different message raises KeyReused.

        The message is on disk when the block begins.
        """
        question = read_question(message, format)
        validation.check_lease(lease, wait)

        def begin() -> Operation[storage.turns.TurnWrite]:
            return storage.turns.begin_turn(
                self.store.scope(),
                self.id,
                question,
                lease=int(lease * 1000),
                take_over=validation.check_flag("take_over", take_over),
                expected=expected,
                key=key,
            )

        return open_if_sync(AsyncTurn(self, begin, lease, wait))

    def resume_turn(self, id: MessageId, *, lease: float = DEFAULT_LEASE) -> AsyncTurn:
        """Return an open turn by its id, or reopen one that was interrupted, so that you can add to it or end it.

        Only the last turn of the active branch can be reopened, and not one that someone took over: any other
        interrupted turn raises TurnClosed. If nothing is added to a reopened turn, the end of its block interrupts it
        again.
        """
        validation.check_lease(lease)

        def resume() -> Operation[storage.turns.TurnWrite]:
            return storage.turns.resume_turn(self.store.scope(), self.id, id, lease=int(lease * 1000))

        return open_if_sync(AsyncTurn(self, resume, lease, 0.0))

    async def save_turn(
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
    ) -> storage.appends.Appended:
        """Store a whole turn in one transaction: the user's message, and the response or the messages that followed.

        - `message`: a text, which becomes a user message, or messages as in append().
        - `response`: the provider's whole response, or the messages that followed, or None.
        - `status`: "completed", "failed" or "cancelled".
        - `model`, `input_tokens`, `output_tokens`: the usage of the run. None takes the values that the response
          reports.
        - `latency_ms`: the duration in milliseconds. `error`: any JSON value.
        - `key`, `expected`: as in append().

        Raise SessionBusy while another turn is open on the branch.
        """
        usage = storage.turns.TurnUsage(model, input_tokens, output_tokens, latency_ms, error)
        question = read_question(message, format)
        answer = [] if response is None else read_drafts(response, format)
        op = storage.turns.save_turn(
            self.store.scope(), self.id, question, answer, status=status, usage=usage, key=key, expected=expected
        )
        step = await self._run(op)
        self.saw(step.counts)
        return step.appended

    async def turns(self, *, after: int = 0, until: int | None = None) -> list[TurnInfo]:
        """Return the turns of the active path, oldest first.

        `after` and `until` are positions: only turns that begin after `after`, and at or before `until`, are returned.
        """
        return await self._run(storage.turns.list_turns(self.store.scope(), self.id, after, until))

    async def tool_calls(self) -> list[ToolCall]:
        """Return the tool calls of the active path, oldest first."""
        return await self._run(storage.tools.list_calls(self.store.scope(), self.id))

    async def start_tool_call(self, call_id: str) -> None:
        """Mark the newest tool call with this id and without a result as running. Raise ToolCallNotFound otherwise."""
        self.info = await self._run(storage.tools.start_call(self.store.scope(), self.id, call_id))

    async def record_tool_result(
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
        """Store the result of a tool call, text or any JSON value, and return its message.

        The result belongs to the newest call with this id on the active path that has none. `latency_ms` is the
        duration; None measures it from the start of the call. Recording the same result again stores nothing and
        returns the first message; another result raises ToolCallAnswered, an unknown id ToolCallNotFound.
        """
        draft = tool_result_draft(
            call_id, output, status=status, error_code=error_code, error_message=error_message,
            latency_ms=latency_ms, metadata=metadata,
        )  # fmt: skip
        result = await self._run(storage.appends.record_tool_result(self.store.scope(), self.id, draft))
        self.info = result.session
        return result.message

    async def branches(self) -> list[Branch]:
        """Return the branches of the session, oldest first. Empty branches are omitted, unless active."""
        return await self._run(storage.branches.list_branches(self.store.scope(), self.id))

    async def rewind(self, to: MessageId, *, expected: int | None = None) -> Self:
        """Continue from an earlier message: make it the last one of the active path, and return the session.

        Later messages stay on their branch. 0 rewinds to before the first message. Raise StaleRevision if `expected` is
        not the current revision.
        """
        self.info = await self._run(storage.branches.rewind(self.store.scope(), self.id, to, expected))
        return self

    async def switch(self, branch: int | Branch, *, expected: int | None = None) -> Self:
        """Make another branch the active one, and return the session.

        Raise BranchNotFound if it does not exist, and StaleRevision if `expected` is not the current revision.
        """
        number = branch.id if isinstance(branch, Branch) else branch
        self.info = await self._run(storage.branches.switch(self.store.scope(), self.id, number, expected))
        return self

    async def fork(
        self,
        at: MessageId | None = None,
        *,
        id: str | None = None,
        expected: int | None = None,
        **fields: Unpack[SessionChanges],
    ) -> AsyncSession:
        """Create a session that shares the path of this one up to a message, and return it.

        - `at`: the last shared message; None shares the whole path.
        - `id`: the id of the new session, generated if None. An id in use raises SessionExists.
        - `expected`: the revision that this session must have, otherwise StaleRevision is raised.
        - `fields`: as in update(). Fields that are not passed are inherited.

        No message is copied, so the cost does not depend on the length of the session.
        """
        scope = self.store.scope()
        new_id = session_ids.new_id(scope.now) if id is None else id
        op = storage.branches.fork(scope, self.id, at, new_id, fields, expected)
        return AsyncSession(self.store, await self._run(op))

    async def stats(self, *, utc_offset: int = 0) -> Stats:
        """Return the totals of this session, on all its branches, overall and by model and day.

        `utc_offset` is the number of minutes by which the days are ahead of UTC.
        """
        return await self.store.follow(
            storage.statistics.session_stats(self.store.scope(), self.id, utc_offset=utc_offset)
        )
