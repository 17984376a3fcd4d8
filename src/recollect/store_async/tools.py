"""AsyncStoreTools and AsyncSessionTools: the tool calls of a store and of a session."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from recollect import storage
from recollect.history.drafts import tool_result_draft
from recollect.model.message import Message, ResultStatus, ToolCall

if TYPE_CHECKING:
    from recollect.model.reports import Period, ToolStats
    from recollect.model.times import TimeLike
    from recollect.store_async.session import AsyncSession
    from recollect.store_async.store import AsyncStore


class AsyncStoreTools:
    """The tool calls of all sessions of a store."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def stats(
        self,
        *,
        since: TimeLike | None = None,
        until: TimeLike | None = None,
        tool: str | None = None,
        period: Period | None = None,
        utc_offset: int = 0,
    ) -> list[ToolStats]:
        """Return the totals of tool calls as a list of [ToolStats]: one for each tool, or for each tool and period.

        A call that several forks answer counts once for each answer.

        - `since`, `until`: only calls at or after `since`, and before `until`.
        - `tool`: only calls of this tool.
        - `period`: `"day"`, `"week"` (from Monday) or `"month"`.
        - `utc_offset`: as in `stats()`.

        ```python
        worker = store.session("worker:1")
        call = {"type": "tool_use", "id": "t1", "name": "grep", "input": {"for": "x"}}
        worker.append({"role": "assistant", "content": [call]})
        worker.tools.record_result("t1", "3 lines", latency_ms=40)
        [(tool.tool, tool.calls, tool.failures, tool.p50_ms) for tool in store.tools.stats()]  # -> [('grep', 1, 0, 40)]
        store.stats(channel="worker").messages                                                  # -> 2
        ```
        """
        op = storage.statistics.tool_stats(
            self._store._scope(), since=since, until=until, tool=tool, period=period, utc_offset=utc_offset
        )
        return await self._store._run(op)


class AsyncSessionTools:
    """The tool calls of a session, and their results."""

    def __init__(self, session: AsyncSession) -> None:
        self._session, self._store = session, session.store

    async def list(self) -> builtins.list[ToolCall]:
        """Return the tool calls of the active path, oldest first: a list of [ToolCall]."""
        return await self._store._run(storage.tools.list_calls(self._store._scope(), self._session.id))

    async def start(self, call_id: str) -> None:
        """Mark a tool call as running: the newest one with this `call_id` that has no result.

        Raise `ToolCallNotFound` if the call does not exist, and `ToolCallAnswered` if it has a result.
        """
        self._session._set_info(
            await self._store._run(storage.tools.start_call(self._store._scope(), self._session.id, call_id))
        )

    async def record_result(
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
        """Store the result of a tool call as a message and return the [Message].

        Recollect links the result to the newest call with this id that has no result on the active path. If a turn is
        open, the message belongs to it.

        - `call_id`: the provider's id of the call.
        - `output`: text, or any JSON value.
        - `status`: `"success"`, `"error"` or `"cancelled"`.
        - `error_code`, `error_message`: text, for a failed call.
        - `latency_ms`: the duration in milliseconds. `None` measures it from the start of the call.
        - `metadata`: your own dict, stored with the result.

        An unknown id raises `ToolCallNotFound`. Recording the same result again stores nothing and returns the existing
        message. Another result for an answered call raises `ToolCallAnswered`.

        ```python
        session.append({
            "role": "assistant", "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
            ],
        })
        session.tools.start("c1")
        session.tools.list()[0].status                                # -> 'running'
        result = session.tools.record_result("c1", {"sum": 3}, latency_ms=7)
        session.tools.record_result("c1", {"sum": 3}).id == result.id  # -> True
        (session.tools.list()[0].status, session.tools.list()[0].latency_ms)    # -> ('success', 7)
        ```

        You can also add a result as a message in the provider's format, with `append()` or `turn.add()`. Recollect
        links it to its call in the same way, and stores a result that matches no call without a link.
        """
        draft = tool_result_draft(
            call_id, output, status=status, error_code=error_code, error_message=error_message,
            latency_ms=latency_ms, metadata=metadata,
        )  # fmt: skip
        result = await self._store._run(
            storage.appends.record_tool_result(self._store._scope(), self._session.id, draft)
        )
        self._session._set_info(result.session)
        return result.message
