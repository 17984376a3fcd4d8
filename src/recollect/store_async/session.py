"""A session as a task holds it: the names of recollect.store.session, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

from recollect import formats, ops
from recollect.context.drafts import drafts, question, tool_result
from recollect.context.history import History, history
from recollect.context.window import fit
from recollect.model import keys
from recollect.model.branch import Branch
from recollect.model.fields import SessionFields
from recollect.model.message import Message
from recollect.model.part import ResultStatus
from recollect.model.session import Session as Info
from recollect.model.tool_call import ToolCall
from recollect.model.turn import LEASE, EndStatus
from recollect.model.turn import Turn as TurnInfo
from recollect.op import Op
from recollect.store_async.turn import AsyncTurn

if TYPE_CHECKING:
    from recollect.store_async import AsyncStore

T = TypeVar("T")
MessageId = ops.paths.MessageId


class AsyncSession(SessionFields):
    """One conversation: what is known about it, and everything that can be done with it."""

    def __init__(self, store: AsyncStore, info: Info) -> None:
        self._info, self._counts = info, None
        self.store = store

    def _run(self, op: Op[T]) -> Coroutine[Any, Any, T]:
        return self.store.run(op)

    async def refresh(self) -> Self:
        """Read again what is known about the session."""
        self.info = await self._run(ops.sessions.read(self.store.scope(), self.id))
        return self

    async def append(
        self, messages: Any, format: str | None = None, key: str | None = None, *, expected: int | None = None
    ) -> ops.messages.Appended:
        """Add one message or many to the end, all or none.

        Messages are dicts or a provider's own objects; the format is guessed where it is clear. With a `key` the same
        append is made once, however often it is repeated; with `expected` only at that revision.
        """
        given = drafts(messages, format)
        op = ops.messages.append(self.store.scope(), self.id, given, key=key, expected=expected)
        appended, counts = await self._run(op)
        self.saw(counts)
        return appended

    async def messages(
        self, last: int | None = None, *, before: MessageId | None = None, deleted: bool = False
    ) -> list[Message]:
        """Read the active path: all of it, the last messages, or the last ones before a message."""
        scope = self.store.scope()
        if last is None and before is None:
            return await self.store.follow(ops.messages.everything(scope, self.id, deleted=deleted))
        limit = ops.messages.PAGE if last is None else last
        return (
            await self._run(ops.messages.backward(scope, self.id, before=before, limit=limit, deleted=deleted))
        ).messages

    async def iter_messages(self, *, deleted: bool = False, branch: int | None = None) -> AsyncIterator[Message]:
        """Go through the active path, or another branch, in constant memory, up to the end that it has now."""
        scope = self.store.scope()
        key = None if branch is None else await self._run(ops.branches.key(scope, self.id, branch))
        page = await self._run(ops.messages.forward(scope, self.id, branch=key, deleted=deleted))
        for message in page.messages:
            yield message
        while page.more is not None:
            page = await self._run(ops.messages.following(self.store.scope(), self.id, page, deleted=deleted))
            for message in page.messages:
                yield message

    async def message(self, id: MessageId) -> Message:
        """Read one message by its id."""
        return await self._run(ops.messages.get(self.store.scope(), self.id, id))

    async def response(self, id: MessageId) -> dict[str, Any] | None:
        """Give the whole response that a message came with, as the provider sent it; None where there was none."""
        return formats.response(await self.message(id))

    async def history(self, format: str = "recollect", budget: int | None = None) -> History:
        """Give what the provider accepts next, as plain dicts, within a budget of tokens."""
        return history(fit(await self.messages(), budget), format)

    async def delete_message(self, id: MessageId) -> Message:
        """Take a message out of the conversation; restore_message() brings it back."""
        return await self._marked(id, deleted=True)

    async def restore_message(self, id: MessageId) -> Message:
        """Bring a deleted message back."""
        return await self._marked(id, deleted=False)

    async def _marked(self, id: MessageId, *, deleted: bool) -> Message:
        message = await self._run(ops.messages.mark(self.store.scope(), self.id, id, deleted=deleted))
        await self.refresh()
        return message

    async def update(self, *, expected: int | None = None, **fields: Any) -> Self:
        """Change what is known about the session: title, status, model, color, metadata, pinned, archived, ..."""
        self.info = await self._run(ops.sessions.update(self.store.scope(), self.id, fields, expected))
        return self

    def turn(
        self,
        said: Any,
        format: str | None = None,
        *,
        lease: float = LEASE,
        wait: float = 0.0,
        take_over: bool = False,
        expected: int | None = None,
    ) -> AsyncTurn:
        """Open a turn with what the person said: `async with session.turn(...) as turn`, or `await` it.

        The question is on disk when the block begins. A branch takes one turn at a time: `wait` says for how many
        seconds to wait for another, `take_over` ends it. The turn is held for `lease` seconds after each of its writes.
        """
        given = question(said, format)

        def begin() -> Op[ops.turns.Step]:
            return ops.turns.begin(
                self.store.scope(), self.id, given, lease=int(lease * 1000), take_over=take_over, expected=expected
            )

        return AsyncTurn(self, begin, lease, wait)

    async def save_turn(
        self,
        message: Any,
        response: Any = None,
        format: str | None = None,
        *,
        status: EndStatus = "completed",
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        latency_ms: int | None = None,
        error: Any = None,
        key: str | None = None,
        expected: int | None = None,
    ) -> ops.messages.Appended:
        """Store a whole turn at once: what was said, and the provider's response or the messages that followed."""
        usage = ops.turns.Usage(model, input_tokens, output_tokens, latency_ms, error)
        said = question(message, format)
        answer = [] if response is None else drafts(response, format)
        op = ops.turns.save(
            self.store.scope(), self.id, said, answer, status=status, usage=usage, key=key, expected=expected
        )
        step = await self._run(op)
        self.saw(step.counts)
        return step.appended

    async def turns(self) -> list[TurnInfo]:
        """Read the turns of the active path, oldest first."""
        return await self._run(ops.turns.turns(self.store.scope(), self.id))

    async def tool_calls(self) -> list[ToolCall]:
        """Read the tool calls of the active path, oldest first."""
        return await self._run(ops.tools.calls(self.store.scope(), self.id))

    async def start_tool_call(self, call_id: str) -> None:
        """Mark a tool call as running."""
        self.info = await self._run(ops.tools.start(self.store.scope(), self.id, call_id))

    async def record_tool_result(
        self,
        call_id: str,
        output: Any = None,
        *,
        status: ResultStatus = "success",
        error_code: str | None = None,
        error_message: str | None = None,
        latency_ms: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Message:
        """Store the result of a tool call, text or any JSON value. The same result twice is stored once."""
        draft = tool_result(
            call_id, output, status=status, error_code=error_code, error_message=error_message,
            latency_ms=latency_ms, metadata=metadata,
        )  # fmt: skip
        recorded = await self._run(ops.results.store(self.store.scope(), self.id, draft))
        self.info = recorded.session
        return recorded.message

    async def branches(self) -> list[Branch]:
        """List the branches of this session."""
        return await self._run(ops.branches.branches(self.store.scope(), self.id))

    async def rewind(self, to: MessageId) -> Self:
        """Go back to a message without losing what followed, which stays on its own branch. 0: before the first."""
        self.info = await self._run(ops.branches.rewind(self.store.scope(), self.id, to))
        return self

    async def switch(self, branch: int | Branch) -> Self:
        """Make another branch the active path."""
        number = branch.id if isinstance(branch, Branch) else branch
        self.info = await self._run(ops.branches.switch(self.store.scope(), self.id, number))
        return self

    async def fork(self, at: MessageId | None = None, *, id: str | None = None, **fields: Any) -> AsyncSession:
        """Make a new session that shares the past of this one up to a message; nothing is copied."""
        scope = self.store.scope()
        new = keys.new_id(scope.now) if id is None else id
        return AsyncSession(self.store, await self._run(ops.branches.fork(scope, self.id, at, new, fields)))
