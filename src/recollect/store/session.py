# Generated from store_async/session.py. Change that file, then run: python tools/generate_sync_store.py
"""Session: the fields of one conversation and every operation on it."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from recollect import formats, storage
from recollect import history as model_history
from recollect.errors import InvalidValue
from recollect.history.drafts import read_batch, read_drafts, read_question, read_replacement
from recollect.history.render import History, render_history
from recollect.model import session_ids, validation
from recollect.model.compaction import KEEP_TURNS, Compaction
from recollect.model.message import Format, Message, Messages
from recollect.model.session import (
    Branch,
    SessionChanges,
    SessionEdits,
    SessionFields,
    SessionInfo,
    SessionUpdates,
)
from recollect.model.turn import DEFAULT_LEASE, EndStatus
from recollect.storage.operation import Operation
from recollect.store.records import Records
from recollect.store.turn import Turn
from recollect.store.waiting import open_if_sync, summarize_messages

if TYPE_CHECKING:
    from recollect.history.compaction import Summarize
    from recollect.history.window import Counter
    from recollect.model.reports import Stats
    from recollect.store import Store
    from recollect.store.session_groups import (
        SessionBranches,
        SessionCompactions,
        SessionPresence,
        SessionSnapshots,
        SessionTurns,
    )
    from recollect.store.tools import SessionTools

MessageId = storage.paths.MessageId
Cursor = storage.pages.Cursor


class Session(SessionFields):
    """One conversation: its fields as attributes, and every operation on it.

    A session is a handle: creating it costs little, you may use it for any length of time, and several handles may
    refer to the same session. Two handles are equal if their ids are equal.

    The fields of [SessionInfo] are attributes, such as `session.id`, `session.title` and `session.revision`. They hold
    the values that the handle last read. An append or update through the handle refreshes them; after a change from
    elsewhere, call [session.refresh()].
    """

    store: Store
    """The store that the session was opened from."""

    def __init__(self, store: Store, info: SessionInfo) -> None:
        self._info, self._counts = info, None
        self.store = store

    @property
    def records(self) -> Records:
        """The [records] of the session: state of your program that belongs to this conversation.

        It is erased with the session, stays while the session is in the trash, and is exported and imported with it. A
        fork does not inherit it. Writing a record changes neither the session's revision nor its activity time, and
        watches do not report it. A missing session raises `SessionNotFound`, one in the trash `SessionInTrash`.
        """
        return Records(self.store, self.id)

    @property
    def branches(self) -> SessionBranches:
        """The branches of this session: list them, and switch to one."""
        from recollect.store.session_groups import SessionBranches  # noqa: PLC0415  few programs use it

        return SessionBranches(self)

    @property
    def turns(self) -> SessionTurns:
        """The turns of this session: list them, and resume one."""
        from recollect.store.session_groups import SessionTurns  # noqa: PLC0415

        return SessionTurns(self)

    @property
    def compactions(self) -> SessionCompactions:
        """The compactions of this session, which [session.compact()] creates: list them, and undo one."""
        from recollect.store.session_groups import SessionCompactions  # noqa: PLC0415

        return SessionCompactions(self)

    @property
    def snapshots(self) -> SessionSnapshots:
        """The titles, summaries and memories that programs derived from this session."""
        from recollect.store.session_groups import SessionSnapshots  # noqa: PLC0415

        return SessionSnapshots(self)

    @property
    def presence(self) -> SessionPresence:
        """The terminals, windows and programs that have this session open."""
        from recollect.store.session_groups import SessionPresence  # noqa: PLC0415

        return SessionPresence(self)

    @property
    def tools(self) -> SessionTools:
        """The tool calls of this session: list them, and record their results."""
        from recollect.store.tools import SessionTools  # noqa: PLC0415

        return SessionTools(self)

    def refresh(self) -> Self:
        """Read the fields again and return the session."""
        self._set_info(self.store._run(storage.sessions.read(self.store._scope(), self.id)))
        return self

    def append(
        self,
        messages: Messages,
        format: Format | None = None,
        key: str | None = None,
        *,
        keys: Sequence[str | None] | None = None,
        after: MessageId | None = None,
        update: SessionEdits | None = None,
        expected: int | None = None,
    ) -> storage.appends.Appended:
        """Append one or more messages to the active path, and change fields with them, in one transaction.

        Return an [Appended]. The messages are on disk when it returns. The cost does not depend on the length of the
        session, except with `after`.

        - `messages`: the messages, or a provider's whole response. With `after` or `update`, the list may be empty.
        - `format`: their format. `None` detects it; see [Formats].
        - `key`: an idempotency key; see [Idempotency keys].
        - `keys`: the [key][Message keys] of each message, or `None` for one without. Each is then one message, also the
          items of an answer in the format `"openai-responses"`, which are joined otherwise.
        - `after`: the message that they follow, on any branch of the session; `0` is the beginning, `None` the last
          message of the active path. The messages after it are replaced: they stay on their branch, as after a
          [session.rewind()]. Raises `MessageNotFound` if the session does not have the message.
        - `update`: a dict of fields to change, with `add_labels` and `remove_labels` too, as in [session.update()].
        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].

        ```python
        appended = session.append([
            {"role": "user", "content": "What is 2 + 2?"},
            {"role": "assistant", "content": "4"},
        ])
        appended.ids    # -> ['1.1', '1.2']
        ```

        `after` and `update` replace the end of a conversation, or all of it, together with the state that you keep in
        its fields. Everything is committed in one transaction, in which the revision rises by 1. A reader sees the old
        messages and fields or the new ones, and a watch reports one change. After a crash, the session has the old ones
        or the new ones.

        ```python
        draft = store.session("cli:draft", metadata={"step": 0})
        draft.append([
            {"role": "user", "content": "Write a haiku."},
            {"role": "assistant", "content": "Too long a poem"},
        ])

        draft.append({"role": "assistant", "content": "An old silent pond"}, after="1.1")    # replaces "1.2"
        [message.text for message in draft.messages()]     # -> ['Write a haiku.', 'An old silent pond']

        draft.append([{"role": "user", "content": "Write a limerick."}], after=0, update={"metadata": {"step": 1}})
        [message.text for message in draft.messages()]     # -> ['Write a limerick.']
        (draft.metadata, len(draft.branches.list()))            # -> ({'step': 1}, 3)

        draft.append([], after=0).ids                      # -> []
        draft.messages()                                   # -> []
        draft.branches.switch(2).messages()[-1].text                # -> 'An old silent pond'
        ```

        An open turn is not affected: its next step is added to the branch on which the turn began.
        """
        drafts = read_batch(messages, format, keys)
        if after is not None or update is not None:
            op = storage.combined_appends.append_and_update(
                self.store._scope(), self.id, drafts, key=key, expected=expected, after=after, update=update
            )
            appended, info = self.store._run(op)
            self._set_info(info)
            return appended
        op = storage.appends.append(self.store._scope(), self.id, drafts, key=key, expected=expected)
        appended, counts = self.store._run(op)
        self._set_counts(counts)
        return appended

    def find_append(
        self, key: str, messages: Messages | None = None, format: Format | None = None
    ) -> storage.appends.Appended | None:
        """Return the [Appended] of the append or turn with an idempotency key, or `None` if the key was not used.

        The key is looked up in this session. The method only reads.

        - `key`: the [idempotency key][Idempotency keys].
        - `messages`: the messages that you would append. If others were stored with the key, `KeyReused` is raised.
          `None` compares nothing.
        - `format`: their format.

        ```python
        session.append({"role": "user", "content": "once"}, key="delivery-1").ids    # -> ['1.3']
        session.find_append("delivery-1").ids                                        # -> ['1.3']
        session.find_append("delivery-2") is None                                    # -> True
        session.delete_messages(["1.3"])                                             # -> ['1.3']
        ```
        """
        drafts = None if messages is None else read_drafts(messages, format)
        return self.store._run(storage.appends.find_by_key(self.store._scope(), self.id, key, drafts))

    def messages(
        self,
        last: int | None = None,
        *,
        after: Cursor | None = None,
        before: Cursor | None = None,
        limit: int | None = None,
        branch: int | Branch | None = None,
        deleted: bool = False,
        active: bool = False,
        budget: int | None = None,
    ) -> list[Message]:
        """Return messages of the active path, oldest first: a list of [Message].

        Without `last`, `after`, `before` and `limit`, it returns all of them.

        - `last`: only this number of the last messages.
        - `after`, `before`: only messages after and before this one, which is excluded. With both, the messages between
          them.
          - The cursor is a message, its id or its position. In both directions, the id of a message that you have read
            is the cursor of the next page. A message that is not on the active path raises `MessageNotFound`, for
            example after a rewind; a deleted message is a valid cursor. A position may be any non-negative number, also
            one after the end.
          - A time (a `datetime`, a `date` or ISO 8601 text; UTC without a time zone) selects the messages whose
            `created_at` is later or earlier, in the order of their positions. Messages can be older than those before
            them, for example after an import. So the store compares the time with every message of the range, about 1
            ms per 1,000 messages. Continue with ids after the first page.
        - `limit`: the maximum number of messages of a page: the first ones, or the last ones if you pass only `before`.
          A page without `limit` and `last` has at most 500 messages. Pass either `limit` or `last`.
        - `branch`: the number of a [Branch], or a branch. Reads the path of that branch instead; the active branch does
          not change. A missing branch raises `BranchNotFound`.
        - `deleted`: whether to include deleted messages.
        - `active`: return the model-visible messages instead: each summary replaces the messages that were
          [compacted][session.compact()], and deleted messages are omitted. A summary is a `Message` with the role
          `user`, the id of the first message that it replaces, and `{"compaction": round}` in its metadata. Its text
          begins with the line `[Summary of earlier messages in this conversation]`, so that a model does not mistake it
          for text of the user; its `tokens` include that line. Cursors of model-visible messages cannot be times.
        - `budget`: with `active=True`, the maximum number of tokens of all messages: whole turns are omitted as in
          [session.history()]. It cannot be combined with the other arguments.

        ```python
        long = store.session("cli:long")
        long.append([{"role": "user", "content": f"message {number}"} for number in range(1, 8)])

        page = long.messages(limit=3)                       # the first page
        [message.text for message in page]                  # -> ['message 1', 'message 2', 'message 3']
        page = long.messages(after=page[-1].id, limit=3)    # the next page
        [message.id for message in page]                    # -> ['1.4', '1.5', '1.6']
        page = long.messages(before=page[0].id, limit=2)    # backward
        [message.id for message in page]                    # -> ['1.2', '1.3']
        long.messages(after=long.messages(last=1)[0])       # -> []
        ```

        Without arguments, the whole path is in memory. To read a long session in constant memory, read it page by page:

        ```python
        def read_in_pages(session, size=500):
            after = 0
            while page := session.messages(after=after, limit=size):
                yield from page
                after = page[-1].id

        sum(message.role == "user" for message in read_in_pages(long, 2))    # -> 7
        ```
        """
        scope, active = self.store._scope(), validation.check_flag("active", active)
        if budget is not None or branch is not None:
            return self._special_messages(
                storage.pages.MessageSelection(last, limit, after, before, deleted, active), branch, budget
            )
        if limit is None and after is None and before is None:
            if last is None and active:
                return (self.store._follow(storage.views.read_active(scope, self.id))).messages
            if last is None:
                return self.store._follow(storage.messages.read_all(scope, self.id, deleted=deleted))
            if not active:
                page = self.store._run(storage.messages.read_backward(scope, self.id, limit=last, deleted=deleted))
                return page.messages
        request = storage.pages.parse_page(last, limit, after, before)
        if active:
            return self.store._run(storage.view_pages.read_page(scope, self.id, request))
        page = self.store._run(storage.messages.read_page(scope, self.id, request, deleted=deleted))
        return page.messages

    def _special_messages(
        self, selection: storage.pages.MessageSelection, branch: int | Branch | None, budget: int | None
    ) -> list[Message]:
        """Return messages of a branch, or the model-visible ones within a budget."""
        scope = self.store._scope()
        if budget is not None:
            if branch is not None or selection != storage.pages.MessageSelection(active=True):
                raise InvalidValue("budget must be passed with active=True, and without last, limit, after and before.")
            window = model_history.window.Window(budget)
            view = self.store._follow(storage.views.read_active(scope, self.id, enough=window.enough))
            return window.fit(view.messages)
        if selection.active:
            raise InvalidValue("branch must not be combined with active=True. Call session.branches.switch() first.")
        number: Any = branch.id if isinstance(branch, Branch) else branch
        key = self.store._run(storage.branches.branch_key(scope, self.id, number))
        request = selection.page_request()
        if request is None:
            return self.store._follow(storage.messages.read_all(scope, self.id, branch=key, deleted=selection.deleted))
        op = storage.messages.read_page(scope, self.id, request, branch=key, deleted=selection.deleted)
        return (self.store._run(op)).messages

    def message(self, id: MessageId | None = None, *, key: str | None = None) -> Message:
        """Return one [Message], deleted or not.

        Raise `MessageNotFound` if it does not exist. Pass one of the two:

        - `id`: an id, `"branch.position"`, such as `"1.2"`, on any branch of the session, or a position on the active
          path.
        - `key`: the key of the message; see [Message keys]. The message on the active path is returned, or else the
          newest one of another branch; a deleted message only if there is no other.
        """
        return self.store._run(storage.messages.get(self.store._scope(), self.id, id, key))

    def message_versions(self, id: MessageId) -> list[Message]:
        """Return the earlier versions of the message with this `id`, oldest first.

        They are values of the type [Message] with the contents that [session.replace_message()] has replaced.
        `edited_at` of a version is the time when that content was written.
        """
        return self.store._run(storage.edits.read_versions(self.store._scope(), self.id, id))

    def history(
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

        Return a [History]: the active path, with summaries in place of compacted messages.

        - `format`: the format of the dicts; see [Formats].
        - `budget`: maximum number of tokens of all messages. The history omits whole turns, oldest first. System
          messages, pinned messages, summaries, the newest user message and the last assistant message after it always
          stay, even if they exceed the budget. A tool call and its results stay together. If the newest turn alone is
          too large, the history omits its oldest steps. Tokens that [repair] adds do not count.
        - `limit`: maximum number of messages; the history omits messages as for `budget`. With a `budget` or a `limit`,
          the cost does not depend on the length of the conversation, because the store reads it from its end and only
          as far as needed.
        - `last`: exactly this number of the last dicts: `history(format, last=n)` equals `history(format,
          repair=False)[-n:]`, and the store reads the conversation from its end and only as far as needed. Nothing is
          repaired. If a tool result is among them and its call is before them, [repairs][Repair] contains a
          `split_pair`: pass a larger `last` before you send the dicts to a provider. `repair=False` omits the report
          and is faster for `"openai-responses"`. `last` cannot be combined with `budget`, `limit` and `counter`.
        - `counter`: the method of counting tokens.
          - `None`: the stored `tokens` of each message: your value, the provider's, or an estimate that was made when
            the message was stored (1 token per 4 bytes of UTF-8, 4 per message, 1,000 per attachment)
          - `"o200k"` or `"cl100k"`: a tokenizer, which `pip install 'recollect[tokens]'` installs with its tables
          - a function that takes a [Message] and returns an `int`
        - `repair`: whether to [repair] messages that the provider would reject. With `False`, the history contains the
          stored messages.

        ```python
        session.history("openai")[0]         # -> {'role': 'user', 'content': 'What is 2 + 2?'}
        session.history("openai", last=1)    # -> [{'role': 'assistant', 'content': '4'}]
        ```
        """
        name = formats.check_format(format)
        repair = validation.check_flag("repair", repair)
        if last is not None:
            return self._history_tail(name, last, repair, budget, limit, counter)
        window = model_history.window.Window(budget, limit, model_history.window.token_counter(counter))
        renderer = None if window.is_bounded else model_history.streaming_renderer.make_renderer(name, repair=repair)
        enough = window.enough if window.is_bounded else None
        view = self.store._follow(
            storage.views.read_active(self.store._scope(), self.id, enough=enough, consumer=renderer)
        )
        if renderer is not None and renderer.complete:
            return renderer.history
        return render_history(window.fit(view.messages), name, repair=repair)

    def _history_tail(self, format: str, last: int, repair: bool, *bounds: object) -> History:
        """Return the last dicts of a history; with `repair`, report tool results whose call is before them."""
        if any(bound is not None for bound in bounds):
            raise InvalidValue("last must not be combined with budget, limit or counter. Pass one of them.")
        validation.check_integer("last", last)

        def render(tail: storage.view_pages.ViewTail) -> History | None:
            messages, calls, is_whole = tail
            return model_history.tail.render_tail(messages, calls, format, last, is_whole=is_whole)

        render_columns = None if repair else model_history.tail.columns_renderer(format, last)
        plan = storage.view_pages.read_tail(self.store._scope(), self.id, last, render, render_columns)
        history = self.store._follow(plan)
        return history if repair else History(history)

    def active_tokens(self) -> int:
        """Return the sum of the stored `tokens` of the model-visible messages.

        A [CompactionPolicy] decides with it whether to compact.
        """
        return self.store._run(storage.views.count_tokens(self.store._scope(), self.id))

    def compact(
        self,
        before: MessageId | None = None,
        *,
        summary: str | None = None,
        summarize: Summarize | None = None,
        tokens: int | None = None,
        keep_turns: int = KEEP_TURNS,
    ) -> Compaction:
        """Replace the beginning of the model-visible messages by a summary and return a [Compaction].

        The messages stay stored: you can still read, search and export them, and undo the compaction. Only the history
        changes.

        - `before`: the first message that is not replaced. `None` replaces all except the newest turns.
        - `keep_turns`: the number of turns not replaced if `before` is `None`. In a shorter conversation fewer turns
          stay, at least one; 0 replaces everything.
        - `summary`: the text of the summary. Pass either `summary` or `summarize`.
        - `summarize`: a function that takes the list of replaced messages, including an earlier summary, and returns
          the text. Nothing is locked while it runs.
        - `tokens`: the number of tokens of the summary; `None` estimates it.

        System messages and pinned messages are not replaced. A tool call is never separated from its results; fewer
        messages are replaced instead. Raise `InvalidValue` if no message can be replaced. While `summarize` runs, other
        writers may change the session:

        - A message appended in the meantime follows the summary.
        - If the session was compacted in the meantime, the method raises `CompactionConflict`.
        - If the session switched branches, the original branch is compacted.

        Each branch has its own compactions. A new branch or fork inherits the compactions whose whole span it shares;
        later compactions and undos on one side do not affect the other.

        ```python
        notes = store.session("cli:notes")
        for number in range(1, 5):
            notes.append([{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"r{number}"}])

        notes.compact(summary="Two questions were answered.").round    # -> 1
        notes.history("openai")[0]["content"].splitlines()[1]          # -> 'Two questions were answered.'
        len(notes.messages())                                          # -> 8
        notes.compactions.undo().round                                  # -> 1
        len(notes.history("openai"))                                   # -> 8
        ```
        """
        model_history.compaction.check_summary_source(summary, summarize)
        state = self.store._follow(storage.views.prepare_compaction(self.store._scope(), self.id, before))
        span = model_history.compaction.choose_range(state.messages, state.view.covers, state.before, keep_turns)
        text = summary if summarize is None else summarize_messages(summarize, list(span.messages))
        op = storage.views.compact(
            self.store._scope(), self.id, state.view.branch, state.view.rounds, (span.low, span.high),
            summary=text, before=span.tokens, after=tokens,
        )  # fmt: skip
        result = self.store._run(op)
        self._set_info(result.session)
        return result.compaction

    def mark_message(
        self,
        id: MessageId,
        metadata: dict[str, Any],
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        expected: int | None = None,
    ) -> Message:
        """Change keys of the metadata of the message with this `id`, or its usage, and return the message.

        The message is marked in every fork that shares it.

        - `metadata`: the keys to set, with any JSON values. `None` removes a key; keys that you do not pass stay.
          `{"pinned": True}` pins the message, so that every history includes it; `{"pinned": None}` unpins it.
        - `input_tokens`, `output_tokens`: the usage, if it is known only later. `None` does not change it.
        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].

        ```python
        session.mark_message("1.2", {"rating": 5, "reviewed": True})
        session.mark_message("1.2", {"reviewed": None}).metadata    # -> {'rating': 5}
        ```
        """
        usage = storage.edits.MessageUsage(input_tokens, output_tokens)
        message = self.store._run(storage.edits.mark(self.store._scope(), self.id, id, metadata, expected, usage))
        self.refresh()
        return message

    def replace_message(
        self,
        id: MessageId,
        message: Messages,
        *,
        format: Format | None = None,
        erase: bool = False,
        expected: int | None = None,
    ) -> Message:
        """Replace the content of the message with this `id`, and return the message.

        Its id, position, `created_at`, turn and key stay, and `edited_at` is set. Use it to correct or redact a
        message, or to complete a placeholder.

        - `message`: the new content: one message, as in `append()`.
        - `format`: as in `append()`.
        - `erase`: erase the former content and all earlier versions. They are not in the file, its WAL or the search
          index any more when the method returns; see [Deleting and erasing]. Otherwise the former content stays stored
          as a version.
        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].

        The role, parts, format, state and error are those of the new message. The metadata, `model`, `input_tokens` and
        `output_tokens` stay if the new message does not state them; `Draft(metadata={})` clears the metadata. A tool
        call or result continues the one with the same call id. A call that loses its result is pending again; a result
        whose call is gone stays, and `history()` repairs it. Equal content changes nothing.

        The message is replaced in every fork that shares it. Summaries of compactions, snapshots and titles that were
        made from the former content do not change: write them again if they repeat it. Raise `InvalidValue` if
        `message` is not exactly one message or has another key, and `Conflict` while a turn still writes the message.

        ```python
        secret = recollect.TextPart(text="My password is 1234.")
        session.append(recollect.Draft(role="user", parts=(secret,), key="note-7"))
        id = session.message(key="note-7").id
        redacted = session.replace_message(id, {"role": "user", "content": "[redacted]"}, erase=True)
        (redacted.text, redacted.key, session.message_versions(redacted.id))    # -> ('[redacted]', 'note-7', [])
        ```
        """
        draft = read_replacement(message, format)
        erase = validation.check_flag("erase", erase)
        op = storage.edits.replace(self.store._scope(), self.id, id, draft, erase=erase, expected=expected)
        replaced_message = self.store._run(op)
        self.refresh()
        return replaced_message

    def delete_messages(self, ids: Iterable[MessageId], *, expected: int | None = None) -> list[str]:
        """Mark messages as deleted in one transaction, and return the ids of those that this call deleted.

        Either all of the messages are deleted or none. Messages that were deleted before are left out of the result.
        The messages stay stored, and [session.restore_messages()] restores them. They are deleted in every fork that
        shares them. Raise `MessageNotFound` if one of them does not exist.

        - `ids`: the messages.
        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].
        """
        change = self.store._run(storage.edits.delete(self.store._scope(), self.id, ids, expected))
        self._set_info(change.session)
        return change.ids

    def restore_messages(self, ids: Iterable[MessageId], *, expected: int | None = None) -> list[str]:
        """Restore deleted messages at their positions in one transaction, and return the ids of those it restored.

        Either all of the messages are restored or none. Messages that are not deleted are left out of the result. Raise
        `MessageNotFound` if one of them does not exist, and `KeyReused` if another message of a path that contains one
        of them has its [key][Message keys] now.

        - `ids`: the messages.
        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].
        """
        change = self.store._run(storage.edits.restore(self.store._scope(), self.id, ids, expected))
        self._set_info(change.session)
        return change.ids

    def pop(self, n: int = 1) -> list[Message]:
        """Mark the last `n` messages of the active path as deleted, and return them, the newest last.

        The result has fewer messages if the path has fewer. Of several callers at the same time, in any process, each
        gets other messages. [session.restore_messages()] restores them. A message that forks share is deleted in them
        too. Raise `InvalidValue` if `n` is less than 1.

        ```python
        [message.text for message in session.pop()]    # -> ['[redacted]']
        session.delete_messages([redacted.id])            # -> []
        ```
        """
        messages = self.store._run(storage.edits.pop(self.store._scope(), self.id, n))
        self.refresh()
        return messages

    def update(self, *, expected: int | None = None, **fields: Unpack[SessionUpdates]) -> Self:
        """Change fields of the session and return the session.

        - `fields`: any of `title`, `task`, `status`, `provider`, `provider_config`, `model`, `working_dir`,
          `system_prompt`, `color`, `channel`, `channel_id`, `external_id` (text, or `None` to clear); `metadata` (a
          dict, which replaces the old one, or `None`); `labels` (a list, which replaces the old ones, or `None`);
          `add_labels` and `remove_labels` (lists); `pinned` and `archived` (`True` or `False`); `parent` and
          `relation`. Any other name raises `InvalidValue`. `model` and `channel` have at most 512 characters. No
          text may contain NUL or a lone surrogate. Lists sort by the first 500 characters of a title.
          - A label has 1 to 200 characters, without control characters and without spaces at its ends. A session has at
            most 100 labels.
          - `add_labels` and `remove_labels` change single labels. The others stay, also those that another program adds
            at the same time. If the session has these labels already, and nothing else changes, nothing is written and
            the revision stays. Labels to remove that the session does not have are ignored. They cannot be combined
            with `labels`.
          - `parent` is the id of a session, or `None` to clear parent and relation. Without `relation`, the relation
            stays, or is `"delegate"` if there was none. `relation` alone (`"fork"` or `"delegate"`) changes the
            relation to the parent. A missing parent raises `SessionNotFound`. A session cannot become its own ancestor:
            that raises `InvalidValue`.
        - `expected`: the revision that the session must have.

        ```python
        session.update(title="Sums", pinned=True, metadata={"topic": "arithmetic"})
        session.title                       # -> 'Sums'
        session.pinned_at is not None       # -> True

        session.update(add_labels=["math", "easy"]).labels    # -> ('easy', 'math')
        session.update(remove_labels=["easy"]).labels         # -> ('math',)
        ```
        """
        self._set_info(self.store._run(storage.relations.update(self.store._scope(), self.id, fields, expected)))
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
    ) -> Turn:
        """Open a turn with the user's message: `with session.turn(...) as turn`.

        Return a [Turn]. The message is on disk when the turn is open.

        - `message`: a text, which becomes a user message, or messages as in `append()`.
        - `format`: as in `append()`.
        - `lease`: seconds for which the turn blocks other turns after each of its writes; see [Leases].
        - `wait`: maximum number of seconds to wait while another turn is open; then `turn()` raises `SessionBusy`. 0
          raises it immediately.
        - `take_over`: whether to end another open turn. Recollect marks that turn `interrupted`; its messages stay.
        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].
        - `key`: an idempotency key. A second call with the same key raises `TurnExists`, which names the first turn,
          also after a restart. Use it if a message can be delivered to your program twice. The same key with different
          content raises `KeyReused`.
        """
        question = read_question(message, format)
        validation.check_lease(lease, wait)

        def begin() -> Operation[storage.turns.TurnWrite]:
            return storage.turns.begin_turn(
                self.store._scope(),
                self.id,
                question,
                lease=int(lease * 1000),
                take_over=validation.check_flag("take_over", take_over),
                expected=expected,
                key=key,
            )

        return open_if_sync(Turn(self, begin, lease, wait))

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
    ) -> storage.appends.Appended:
        """Store a whole turn in one transaction and return an [Appended].

        Use it if your program has all messages only at the end of a run.

        - `message`: the user's message, as in `turn()`.
        - `response`: the provider's whole response, the messages that followed, or `None`.
        - `format`: as in `append()`.
        - `status`: `"completed"`, `"failed"` or `"cancelled"`.
        - `model`: the model of the run. `None` takes the model that the response reports.
        - `input_tokens`, `output_tokens`: the usage of the run. `None` takes the values that the response reports.
        - `latency_ms`: the duration in milliseconds; a fraction is rounded.
        - `error`: any JSON value.
        - `key`: as in `append()`.
        - `expected`: as in `append()`.

        ```python
        response = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "some-model",
            "content": [{"type": "text", "text": "9"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 12, "output_tokens": 1},
        }
        saved = session.save_turn("And 3 * 3?", response, latency_ms=640)
        turn_info = session.turns.list()[-1]
        (turn_info.status, turn_info.model)    # -> ('completed', 'some-model')
        (turn_info.input_tokens, turn_info.output_tokens)    # -> (12, 1)
        recollect.formats.response(session.message(saved.ids[1])) == response    # -> True
        ```

        Raise `SessionBusy` while another turn is open on the branch.
        """
        usage = storage.turns.TurnUsage(model, input_tokens, output_tokens, latency_ms, error)
        question = read_question(message, format)
        answer = [] if response is None else read_drafts(response, format)
        op = storage.turns.save_turn(
            self.store._scope(), self.id, question, answer, status=status, usage=usage, key=key, expected=expected
        )
        step = self.store._run(op)
        self._set_counts(step.counts)
        return step.appended

    def rewind(self, to: MessageId, *, expected: int | None = None) -> Self:
        """Make a message the last one of the active path and return the session.

        Later messages stay on their branch.

        - `to`: the message. `0` rewinds to before the first message.
        - `expected`: the revision that the session must have, otherwise `StaleRevision` is raised; see [Revisions].
        """
        self._set_info(self.store._run(storage.branches.rewind(self.store._scope(), self.id, to, expected)))
        return self

    def fork(
        self,
        at: MessageId | None = None,
        *,
        id: str | None = None,
        expected: int | None = None,
        **fields: Unpack[SessionChanges],
    ) -> Session:
        """Create a new session that shares the path of this one up to a message, and return it.

        No message is copied. The fork survives the deletion of its origin.

        - `at`: the last shared message; `None` shares the whole path.
        - `id`: the id of the new session; `None` generates one. An id in use raises `SessionExists`.
        - `expected`: the revision that this session must have, otherwise `StaleRevision` is raised; see [Revisions].
        - `fields`: as in `update()`. Title, task, provider, provider config, model, working folder, system prompt,
          color and metadata are inherited from the origin unless you pass them.

        ```python
        session.rewind("1.1").append({"role": "assistant", "content": "Four."})
        [(branch.id, branch.parent) for branch in session.branches.list()]    # -> [(1, None), (2, 1)]
        session.branches.switch(1)
        copy = session.fork(at="1.2", id="cli:copy")
        [message.id for message in copy.messages()]    # -> ['1.1', '1.2']
        (copy.parent, copy.relation)                   # -> ('cli:default', 'fork')
        ```
        """
        scope = self.store._scope()
        new_id = session_ids.new_id(scope.now) if id is None else id
        op = storage.branches.fork(scope, self.id, at, new_id, fields, expected)
        return Session(self.store, self.store._run(op))

    def shown_counts(self, ranges: Sequence[tuple[int, int | None]]) -> list[int]:
        """Return how many messages of the active path each of several ranges shows to people, in one transaction.

        Messages are counted as in [store.shown_counts()], without deleted messages and tool steps.

        - `ranges`: pairs of positions: after the first, up to the second, which is included; `None` is the end.

        ```python
        long.shown_counts([(0, 2), (2, None)])    # -> [2, 5]
        ```
        """
        return self.store._run(storage.messages.count_shown_of_ranges(self.store._scope(), self.id, ranges))

    def stats(self, *, utc_offset: int = 0) -> Stats:
        """Return the totals of this session, on all its branches, as a [Stats].

        - `utc_offset`: as in [store.stats()].
        """
        return self.store._follow(storage.statistics.session_stats(self.store._scope(), self.id, utc_offset=utc_offset))
