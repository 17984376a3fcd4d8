"""One conversation in one session: asks a model and records the turn.

The question is stored before the model is called; each response, tool call and tool result when it completes; the text
of an answer while it streams. If a run ends early, the received part is stored and marked, and open tool calls get a
result, so that the provider accepts the next question.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from recollect.agent import recorder, titles, tools
from recollect.agent.approvals import Approvals
from recollect.agent.events import (
    Delegated,
    Event,
    Notice,
    ReasoningDelta,
    Responded,
    TextDelta,
    Titled,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from recollect.agent.last_session import store_last_session
from recollect.agent.models import DEMO, Model, ModelInput
from recollect.agent.presence import ConversationPresence
from recollect.agent.recall import is_recalled
from recollect.agent.recorder import Recorder, TurnRecording
from recollect.agent.titles import message_text
from recollect.errors import InvalidValue, ModelError, RecollectError, SessionBusy, StoreError
from recollect.formats.display import is_truncated
from recollect.history.compaction import CompactionPolicy
from recollect.history.drafts import read_question
from recollect.model import session_ids
from recollect.model.compaction import Compaction
from recollect.model.message import Draft, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from recollect.model.session import Presence
from recollect.model.tokens import estimate_tokens
from recollect.model.turn import ChunkKind, FinalStatus, StreamBuffer, describe_error
from recollect.store_async.session import AsyncSession

if TYPE_CHECKING:
    from recollect.agent.agent import Agent


class TurnProgress:
    """The state of one run. Every step is passed to the recording."""

    def __init__(self, recording: TurnRecording) -> None:
        self._recording = recording
        self._buffer = StreamBuffer(time.monotonic())
        self._open_calls: dict[str, ToolCallPart] = {}
        self._responses: list[Draft] = []
        self._running_tools = 0
        self._texts: list[str] = []
        self._thinking_times: list[float] = []

    @property
    def tools_running(self) -> bool:
        """True if a tool is running. The model's timeout does not apply meanwhile."""
        return self._running_tools > 0

    @property
    def text(self) -> str:
        """The text of the model in this turn so far."""
        texts = [*self._texts, message_text(self._buffer.draft("streaming"))]
        return "\n\n".join(text for text in texts if text)

    @property
    def unfinished(self) -> bool:
        """True if the last response is incomplete: its stream ended without a finish reason."""
        return bool(self._responses) and self._responses[-1].state == "interrupted"

    @property
    def truncated(self) -> bool:
        """True if the last response ended at its length limit."""
        return bool(self._responses) and is_truncated(self._responses[-1])

    def add_text(self, text: str, kind: ChunkKind) -> None:
        """Append a piece of the answer."""
        if kind == "reasoning":
            self._thinking_times = [*self._thinking_times[:1], time.monotonic()]
        self._buffer.add(text, kind, time.monotonic())
        self._recording.add_text(text, kind)

    def add_response(self, draft: Draft) -> list[Draft]:
        """Add a complete response; its reasoning part gets the duration of the reasoning."""
        draft = self._with_thinking_time(draft)
        self._buffer = StreamBuffer(time.monotonic())
        self._texts.append(message_text(draft))
        self._responses.append(draft)
        self._open_calls |= {part.call_id: part for part in draft.parts if isinstance(part, ToolCallPart)}
        self._recording.add_response(draft)
        return [draft]

    def _with_thinking_time(self, draft: Draft) -> Draft:
        times, self._thinking_times = self._thinking_times, []
        index = next((number for number, part in enumerate(draft.parts) if isinstance(part, ReasoningPart)), None)
        if index is None or not times:
            return draft
        part = draft.parts[index]
        duration = {"duration_ms": int((times[-1] - times[0]) * 1000)}
        timed_part = msgspec.structs.replace(part, metadata={**duration, **(part.metadata or {})})
        return msgspec.structs.replace(draft, parts=(*draft.parts[:index], timed_part, *draft.parts[index + 1 :]))

    def tool_started(self, event: ToolStarted) -> None:
        """Count a running tool and mark its call as running."""
        self._running_tools += 1
        self._recording.start_tool(event.call_id)

    async def wait_stored(self) -> None:
        """Wait until the calls are stored, so that no tool has effects that the store does not know of."""
        await self._recording.wait_stored()

    def tool_finished(self, event: ToolFinished, draft: Draft) -> list[Draft]:
        """Add a tool's result."""
        self._running_tools = max(self._running_tools - 1, 0)
        self._open_calls.pop(event.call_id, None)
        self._recording.add(draft)
        return [draft]

    def cut_off(self, error: BaseException) -> list[Draft]:
        """Store the received part of a run that ends early, marked as such; open calls get a cancelled result."""
        drafts: list[Draft] = []
        draft = self._buffer.cut_off(error)
        if draft.parts:
            drafts.append(draft)
            self._recording.add_response(draft)
        for part in self._open_calls.values():
            result = _cancelled_result(part, error)
            drafts.append(result)
            self._recording.add(result)
        return drafts

    def usage(self) -> dict[str, Any]:
        """Return the model and the sums of its reported tokens."""
        input_tokens = [draft.input_tokens for draft in self._responses if draft.input_tokens is not None]
        output_tokens = [draft.output_tokens for draft in self._responses if draft.output_tokens is not None]
        return {
            "model": next((draft.model for draft in reversed(self._responses) if draft.model), None),
            "input_tokens": sum(input_tokens) if input_tokens else None,
            "output_tokens": sum(output_tokens) if output_tokens else None,
        }


def _cancelled_result(part: ToolCallPart, error: BaseException) -> Draft:
    stopped = isinstance(error, asyncio.CancelledError)
    text = "Stopped before it returned a result." if stopped else f"Interrupted: {describe_error(error)['message']}"
    result = ToolResultPart(call_id=part.call_id, tool=part.tool, status="cancelled", text=text, error_message=text)
    return Draft(role="tool", parts=(result,))


_REPORT_INTERVAL = 0.2
"""Seconds between two progress events: a channel shows progress, not every word."""

_MAX_LINE = 200  # characters of a progress line: channels show it on one line


class DelegateMonitor:
    """Turns the events of a sub-agent into a few Delegated events."""

    def __init__(self, name: str, session: str, emit: Callable[[Event], None]) -> None:
        self._name = name
        self._session = session
        self._emit = emit
        self._text = ""
        self._tools: dict[str, str] = {}
        self._last_report = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def handle(self, event: Event) -> None:
        """Process an event of the sub-agent."""
        match event:
            case TextDelta():
                self._text = (self._text + event.text)[-_MAX_LINE * 2 :]
                if self._timer is None:
                    delay = max(self._last_report + _REPORT_INTERVAL - time.monotonic(), 0)
                    self._timer = asyncio.get_running_loop().call_later(delay, self._report)
            case ToolStarted():
                self._tools[event.call_id] = event.tool
                self._report()
            case ToolFinished():
                self._tools.pop(event.call_id, None)
                self._report()
            case TurnStarted() | TurnEnded():
                self._report(ended=isinstance(event, TurnEnded))
            case Delegated():
                self._emit(event)  # a sub-agent of the sub-agent
            case _:
                pass

    def end(self) -> None:
        """Cancel the pending progress event."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self, *, ended: bool = False) -> None:
        self._last_report = time.monotonic()
        self.end()
        lines = [line for line in self._text.splitlines() if line.strip()]
        last = lines[-1].strip()[-_MAX_LINE:] if lines else ""
        tool = next(reversed(self._tools.values()), None)
        self._emit(Delegated(agent=self._name, session=self._session, tool=tool, line=last, ended=ended))


TitleWriter = Callable[[ModelInput], Awaitable[str]]

_TITLE_MESSAGES = 6
"""Messages that a title is made from: the first exchange, and a few tool calls in it."""

_TITLE_TIMEOUT = 2.0
"""Seconds that close() waits for titles that are being generated."""


class TitleGenerator:
    """Sets the title of a session after its first turn."""

    def __init__(self, on_title: Callable[[AsyncSession, str], None]) -> None:
        self._on_title = on_title
        self._tasks: set[asyncio.Task[None]] = set()

    async def generate(self, session: AsyncSession, messages: ModelInput, write: TitleWriter | None) -> None:
        """Set the title of an untitled session: the first sentence at once, then the one from `write`, if not None."""
        if session.title:
            return
        first = next((draft for draft in messages if draft.role == "user" and not is_recalled(draft)), None)
        title = titles.title_of(first)
        if not title:
            return
        await self._set_title(session, None, title)
        if write is not None:
            task = asyncio.create_task(self._improve(session, title, write, messages[:_TITLE_MESSAGES]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _improve(self, session: AsyncSession, title: str, write: TitleWriter, messages: ModelInput) -> None:
        try:
            text = await write(messages)
        except Exception:  # noqa: BLE001  a title is optional: the first sentence stays
            return
        if text and (new_title := titles.shorten_title(text)):
            await self._set_title(session, title, new_title)

    async def _set_title(self, session: AsyncSession, old_title: str | None, title: str) -> None:
        with contextlib.suppress(RecollectError):
            await session.refresh()
            if session.title == old_title:
                await session.update(title=title)
                self._on_title(session, title)

    async def end(self) -> None:
        """Wait up to _TITLE_TIMEOUT for titles in progress, and cancel the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_TITLE_TIMEOUT)
            for task in self._tasks:
                task.cancel()


_RESERVED_SHARE = 0.25
"""The share of the window that is reserved for the answer, the tools and errors of the token estimate."""

_COMPACTION_POLICY = CompactionPolicy()
UNFINISHED = (
    "The model's stream ended without a finish reason. The answer may be incomplete; the received part is saved."
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A complete answer: its text, the turn status, and the tokens it used."""

    text: str
    status: str
    session: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: int | None = None
    truncated: bool = False


class Conversation:
    """A conversation. `send()` yields events, `ask()` returns the complete answer, `stop()` ends an answer early."""

    def __init__(self, agent: Agent, session: AsyncSession, model: Model) -> None:
        self.agent = agent
        self.session = session
        self.model = model
        self.presence = ConversationPresence()
        self.keeps_session = False
        """Whether the conversation always keeps its session, as a bot's chat does: /new and /fork stay inside it."""
        self.search_session: str | None = None
        """The session that searches are limited to; None searches all sessions."""
        self.prepare_message: Callable[[Draft | Message], Draft | Message] | None = None
        """Converts a message before the model reads it, for example to add its author or drop unreadable files."""
        self.approvals = Approvals(self, self._emit)
        self.approvals.approver = agent.approve
        self._recorder = Recorder(self._emit)
        self._titles = TitleGenerator(self._emit_title)
        self._queue: asyncio.Queue[Event | None] | None = None
        self._notices: list[Event] = []
        self._run: asyncio.Task[None] | None = None
        self._conflict: RecollectError | None = None
        self._closing = self._has_history = False
        self._memory: list[Draft | Message] = []

    @property
    def budget(self) -> int:
        """Maximum tokens sent to the model, including the instructions."""
        return max(int(self.model.window * (1 - _RESERVED_SHARE)), 1)

    @property
    def busy(self) -> bool:
        """True if an answer is in progress here."""
        return self._run is not None and not self._run.done()

    @property
    def held_count(self) -> int:
        """Number of messages that wait in memory because the store fails."""
        return self._recorder.held_count

    def _emit(self, event: Event) -> None:
        if self._queue is None:
            self._notices.append(event)
        else:
            self._queue.put_nowait(event)

    def unsaved(self) -> list[Draft]:
        """Return the messages that wait in memory because the store fails."""
        return self._recorder.unsaved()

    def notices(self) -> list[Event]:
        """Return and clear the events between two turns, such as a new title or a recovered store."""
        events, self._notices = self._notices, []
        return events

    async def send(
        self, message: Any, *, wait: float = 0.0, take_over: bool = False, key: str | None = None, hold: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Send a message and yield the events of the turn. The last event is TurnEnded.

        A session runs one turn at a time: SessionBusy is raised if another turn, of any process, does not end within
        `wait` seconds; `take_over` ends the other turn. An idempotency `key` that was used before raises TurnExists.
        If the store fails, messages are held in memory and the conversation continues. Use `hold=False` if storing the
        message must not be deferred: a store failure then raises.
        """
        async with self._exclusive(wait):
            await self.presence.check(take_over=take_over)
            queue = self._queue = asyncio.Queue[Event | None]()
            for event in self.notices():
                queue.put_nowait(event)
            run = self._run = asyncio.create_task(
                self._run_turn(read_question(message), wait, take_over, key, hold=hold)
            )
            run.add_done_callback(lambda _: queue.put_nowait(None))
            try:
                while (event := await queue.get()) is not None:
                    yield event
                if run.cancelled():  # while it waited for another turn: nothing was stored
                    yield TurnEnded(session=self.session.id, status="cancelled")
                else:
                    run.result()
            finally:
                self._queue = None
                await self._wait_until_done(run)

    async def _wait_until_done(self, run: asyncio.Task[None]) -> None:
        """Cancel a run and wait until it has ended, even if this task is cancelled meanwhile."""
        if not run.done() and not self._closing:
            run.cancel()
        while not run.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([run])

    @contextlib.asynccontextmanager
    async def _exclusive(self, wait: float) -> AsyncGenerator[None]:
        lock = self.agent.lock(self.session.id)
        # No timeout for a free lock: wait_for(..., 0) raises TimeoutError before acquire() runs.
        try:
            await asyncio.wait_for(lock.acquire(), wait if lock.locked() else None)
        except TimeoutError as error:
            raise SessionBusy(session=self.session.id, holder="this process", until="its answer is complete") from error
        try:
            yield
        finally:
            lock.release()

    async def ask(
        self,
        message: Any,
        *,
        wait: float = 0.0,
        take_over: bool = False,
        on_event: Callable[[Event], None] | None = None,
    ) -> Answer:
        """Send a message and return the complete answer. Raises ModelError if the model fails.

        `on_event` is called with each event.
        """
        end_event: TurnEnded | None = None
        async with contextlib.aclosing(self.send(message, wait=wait, take_over=take_over)) as events:
            async for event in events:
                if on_event is not None:
                    on_event(event)
                if isinstance(event, TurnEnded):
                    end_event = event
        assert end_event is not None
        if end_event.status == "failed":
            raise ModelError(end_event.error, model=self.model.name, reason=end_event.error)
        fields = {name: getattr(end_event, name) for name in Answer.__struct_fields__}
        return Answer(**fields)

    def stop(self) -> bool:
        """Stop the answer in progress and keep the received part; return whether there was one."""
        return self._run is not None and not self._closing and not self._run.done() and self._run.cancel()

    async def _run_turn(
        self, drafts: Sequence[Draft], wait: float, take_over: bool, key: str | None, *, hold: bool
    ) -> None:
        """Run one turn: store the question, run the model, store its events, end the turn."""
        self._conflict, self._closing = None, False
        started = time.monotonic()
        recording = TurnRecording(self._recorder, self.session, self._on_conflict)
        drafts = [self._with_time_and_size(draft) for draft in drafts]
        await recording.open(drafts, wait=wait, take_over=take_over, key=key, hold=hold)
        self._memory += drafts
        self.approvals.begin(recording)
        self._emit(TurnStarted(session=self.session.id, turn=recording.id))
        progress = TurnProgress(recording)
        status: FinalStatus = "completed"
        error: BaseException | None = None
        try:
            await self._run_model(progress)
            if progress.unfinished:
                status, error = "interrupted", ModelError(UNFINISHED, model=self.model.name, reason=UNFINISHED)
        except asyncio.CancelledError as cancellation:
            status, error = "cancelled", cancellation
        except Exception as failure:  # noqa: BLE001  any error of a model ends the turn as failed
            status, error = "failed", failure
        self._closing = True  # from here, stop() has no effect: the received part must be marked
        if error is not None and status != "interrupted":
            self._remember(progress.cut_off(error))
        await self._finish_turn(recording, progress, status, error, int((time.monotonic() - started) * 1000))

    async def _finish_turn(
        self,
        recording: TurnRecording,
        progress: TurnProgress,
        status: FinalStatus,
        error: BaseException | None,
        latency: int,
    ) -> None:
        await recording.end(status, latency, error)
        if status == "completed":
            await self._make_title()
        reason = None if error is None or status == "cancelled" else _describe_error(error)
        final_status: Any = "interrupted" if self._conflict is not None else status
        if self._conflict is not None:
            reason = f"Another process took over this conversation, and this answer ends here. {self._conflict}"
        usage = recording.usage() or progress.usage()
        end_event = TurnEnded(
            session=self.session.id,
            status=final_status,
            text=progress.text,
            latency_ms=latency,
            error=reason,
            truncated=progress.truncated,
            **usage,
        )
        self._emit(end_event)

    async def _run_model(self, progress: TurnProgress) -> None:
        instructions = self.agent.instructions()
        messages = await self._model_messages(self.budget - estimate_tokens([TextPart(text=instructions)]))
        if self.prepare_message is not None:
            messages = [self.prepare_message(draft) for draft in messages]
        functions = [
            *tools.built_in_tools(self.session.store, self.session.id, self.search_session),
            *self.agent.tools,
            *[self._delegate_tool(agent) for agent in self.agent.delegates],
        ]
        toolsets = [] if self.model.name == DEMO else await self.agent.available_toolsets(self._emit, self.approvals)
        events = self.model.run(messages, instructions=instructions, tools=functions, toolsets=toolsets)
        async with contextlib.aclosing(events):
            while (event := await self._next_event(events, progress)) is not None:
                match event:
                    case TextDelta():
                        progress.add_text(event.text, "text")
                    case ReasoningDelta():
                        progress.add_text(event.text, "reasoning")
                    case Responded():
                        drafts = progress.add_response(self._with_time_and_size(event.message))
                        self._remember(drafts)
                        event = Responded(message=drafts[0])
                    case ToolStarted():
                        progress.tool_started(event)
                    case ToolFinished():
                        self._remember(progress.tool_finished(event, self._with_time_and_size(event.message)))
                    case _:
                        pass
                self._emit(event)
                if isinstance(event, ToolStarted):
                    await progress.wait_stored()

    async def _next_event(self, events: AsyncGenerator[Event, None], progress: TurnProgress) -> Event | None:
        """Return the next event, or None at the end. Raises ModelError after `agent.timeout` seconds without one.

        The timeout does not apply while a tool runs.
        """
        try:
            async with asyncio.timeout(None if progress.tools_running else self.agent.timeout):
                return await anext(events, None)
        except TimeoutError as error:
            reason = f"it sent nothing for {self.agent.timeout:g} seconds"
            raise ModelError(model=self.model.name, reason=reason) from error

    async def _model_messages(self, budget: int) -> list[Draft | Message]:
        """Return the messages for the model: from the store, plus those in memory that are not stored yet."""
        recorder_idle = self._recorder.idle
        if recorder_idle or not self._has_history:
            with contextlib.suppress(StoreError, TimeoutError):
                if recorder_idle and self.agent.compact:
                    await self._compact_if_full()
                history = self._read_history(max(budget, 1))
                messages = await asyncio.wait_for(history, None if recorder_idle else recorder.STORE_TIMEOUT)
                self._memory = messages if recorder_idle else messages + self._memory
                self._has_history = True
        return list(self._memory)

    async def _read_history(self, budget: int) -> list[Draft | Message]:
        """Read the active messages, as history() does, without converting them to dicts and back."""
        return list(await self.session.messages(active=True, budget=budget))

    def _remember(self, drafts: Sequence[Draft]) -> None:
        self._memory += drafts

    def _with_time_and_size(self, draft: Draft) -> Draft:
        """Return a draft with its creation time, which is now even if it is stored later, and its counted tokens."""
        tokens, count = draft.tokens, self.agent.count_tokens
        if count is not None and tokens is None:
            tokens = max(int(count(titles.message_text(draft))), 0)
        created_at = draft.created_at or time.time_ns() // 1_000_000
        return msgspec.structs.replace(draft, tokens=tokens, created_at=created_at)

    def _on_conflict(self, error: RecollectError) -> None:
        """Stop the run: another process has the session, or it was deleted, so nothing more may be written."""
        self._conflict = error
        self.stop()

    async def _make_title(self) -> None:
        if self._recorder.idle:
            has_writer = self.agent.title is not None or self.model.name != DEMO
            await self._titles.generate(
                self.session, self._memory, partial(self._write_text, "title") if has_writer else None
            )

    def _emit_title(self, session: AsyncSession, title: str) -> None:
        if session.id == self.session.id:  # the conversation may have moved while the title was generated
            self._emit(Titled(title=title))

    async def _write_text(self, task: str, messages: Sequence[Any]) -> str:
        hook = self.agent.title if task == "title" else self.agent.summary
        if hook is None:
            return await self.model.write(task, messages)
        text: Any = hook(messages)
        return (await text if inspect.isawaitable(text) else text) or ""

    async def summarize(self) -> str:
        """Return a summary of the conversation so far, from the hook or the model."""
        return await self._write_text("summary", await self._read_history(self.budget))

    async def compact(self) -> Compaction:
        """Replace all but the newest turns by a summary for the model. Nothing is deleted, and it can be undone."""

        async def summarize(messages: Sequence[Any]) -> str:
            return await self._write_text("summary", messages)

        return await self.session.compact(summarize=summarize, keep_turns=_COMPACTION_POLICY.keep_turns)

    async def _compact_if_full(self) -> None:
        if not _COMPACTION_POLICY.due(await self.session.active_tokens(), self.budget):
            return
        try:
            await self.compact()
        except InvalidValue:
            return  # one long turn: there is nothing older to compact
        except RecollectError as error:
            self._emit(Notice(text=f"The conversation could not be compacted: {error}", level="warning"))
            return
        self._emit(Notice(text="Older messages were summarized for the model. All of them are kept."))

    async def delegate(self, name: str, task: str, agent: Agent | None = None) -> Answer:
        """Run a task with a sub-agent in its own session `{this session}:delegate:{name}`; return its answer."""
        from recollect.agent.agent import Agent as Delegate  # noqa: PLC0415  agent.py imports this module

        delegate = agent or Delegate(self.model, store=self.session.store, name=name)
        delegate.adopt(self.session.store)
        session = session_ids.delegate_id(self.session.id, name)
        conversation = await delegate.conversation(
            session, title=f"{name}: {titles.shorten_title(task)}", parent=self.session.id
        )
        conversation.approvals.set_parent(self.approvals)
        monitor = DelegateMonitor(name, conversation.session.id, self._emit)
        try:
            return await conversation.ask(task, wait=self.agent.timeout, on_event=monitor.handle)
        finally:
            monitor.end()

    def _delegate_tool(self, agent: Agent) -> tools.Tool:
        async def ask(task: str) -> str:
            return (await self.delegate(agent.name, task, agent)).text

        ask.__name__ = f"ask_{agent.name}"
        ask.__doc__ = f"Give a task to the sub-agent {agent.name!r} and get its answer."
        return ask

    async def arrive(self, surface: str, *, take_over: bool = False) -> list[Presence]:
        """Announce presence in the session, so that other channels can show it; return the other presences.

        It lasts until the conversation is closed or moves. `take_over` removes the others and ends their turns.
        """
        return await self.presence.begin(self.session, surface, take_over=take_over)

    async def move(self, session: AsyncSession) -> None:
        """Continue in another session. Pending writes of this one are completed first."""
        await self._recorder.drain()
        await self.presence.move(session)
        self.session, self._memory, self._has_history = session, [], False
        await store_last_session(session)

    async def close(self) -> bool:
        """Stop the running turn and write pending messages; return whether everything is stored."""
        if self._run is not None:
            await self._wait_until_done(self._run)
        await self.presence.end()
        await self._titles.end()
        return await self._recorder.close()


def _describe_error(error: BaseException) -> str:
    return str(error) if isinstance(error, RecollectError) else f"{type(error).__name__}: {error}"
