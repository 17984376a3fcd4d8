"""Approvals: a tool of an MCP server runs only after a person has allowed it.

A call is allowed by the configuration (`approve` of the server), by an earlier decision (for this conversation, or
always), or by the answer to a question. The question goes to the channel of the conversation, and is stored while it is
pending, so that another window or process can answer it too. If nobody can be asked, the tool is not run.

Remembered decisions are a record of the store. Each names the server, the tool, the user who decided, and a fingerprint
of the server's configuration and the tool's definition: if one of these changes, the question is asked again. A pending
question and its answer are records of the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

from recollect.agent.events import ApprovalAnswered, ApprovalRequested, Event, Notice
from recollect.agent.recorder import LEASE, TurnRecording
from recollect.config.mcp_servers import McpServer
from recollect.errors import ApprovalNotFound, InvalidValue, SessionNotFound, StaleRecord, StoreError
from recollect.model import json, session_ids
from recollect.model.humanize import truncate
from recollect.store_async import AsyncSession, AsyncStore

if TYPE_CHECKING:
    from recollect.agent.conversation import Conversation

Decision = Literal["once", "session", "always", "deny"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)
"""The possible answers: allow this call, the tool in this conversation, or the tool always; or deny the call."""

_GRANTS_KIND, _GRANTS_KEY = "agent.approvals", "grants"
_QUESTION_KIND, _PENDING_KEY = "agent.approval", "pending"
_ANSWER_PREFIX = "answer."
_NOT_STORED = (StoreError, SessionNotFound)  # the store fails, or the session was deleted meanwhile
_MAX_GRANTS = 1_000  # stored decisions; the oldest are dropped first, and asked again
_POLL = 0.25  # seconds between two polls for an answer from another process; each is one indexed read
_RENEW = LEASE / 3  # seconds: a lease outlives two renewals that fail

DENIED = "The user denied this tool call, and it was not run. Do not repeat it unless the user asks for it."
NOBODY_TO_ASK = "This tool needs the user's approval, and nobody can be asked here. It was not run."


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The question whether a tool may run with these arguments."""

    id: str
    session: str
    """The session in which to answer. For a tool of a sub-agent, its parent's session."""
    call_id: str
    server: str
    tool: str
    arguments: Any
    who: str = ""
    """The user whose message led to the call, such as `discord:12`; empty for the owner of the store."""
    holder: str = ""
    """The process that waits for the answer."""
    turn: str | None = None

    @property
    def text(self) -> str:
        """The arguments as indented JSON. Control characters and direction marks are escaped."""
        arguments = msgspec.json.format(json.encode(json.to_json_data(self.arguments)), indent=2)
        return "".join(_escape_unprintable(character) for character in arguments)


def _escape_unprintable(character: str) -> str:
    return character if character == "\n" or character.isprintable() else f"\\u{ord(character):04x}"


class McpCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool of an MCP server, and how the server describes the tool."""

    server: McpServer
    tool: str
    definition: Any
    arguments: Any
    call_id: str

    @property
    def fingerprint(self) -> str:
        """A digest of the server's command, URL, folder and environment, and of the tool's definition.

        Headers are left out, because they contain keys, which change.
        """
        server = self.server
        identity = [server.command, server.url, server.folder, sorted(server.env.items()), self.definition]
        return hashlib.blake2b(msgspec.json.encode(identity), digest_size=16).hexdigest()


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A stored decision. Without a session it applies to all sessions."""

    server: str
    tool: str
    fingerprint: str
    who: str = ""
    session: str | None = None
    at: int = 0


Approver = Callable[[Approval], Awaitable[Decision]]


async def remote_approver(_: Approval) -> Decision:
    """Wait until cancelled: the approver of channels whose answers arrive through the store, such as the web app."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


class Approvals:
    """The approvals of one conversation. Without an approver, only tools that are already allowed run."""

    def __init__(self, conversation: Conversation, emit: Callable[[Event], None]) -> None:
        self.approver: Approver | None = None
        self.who = ""
        """The user to ask, whose decisions count; empty for the owner of the store."""
        self._conversation = conversation
        self._emit = emit
        self._parent: Approvals | None = None
        self._recording: TurnRecording | None = None
        self._question_lock = asyncio.Lock()

    def begin(self, recording: TurnRecording) -> None:
        """Attach the recording of a new turn, whose lease is renewed while a question is pending."""
        self._recording = recording

    def set_parent(self, parent: Approvals) -> None:
        """Ask in the conversation that delegated this one."""
        self._parent = parent

    async def refusal(self, call: McpCall, turns: tuple[TurnRecording, ...] = ()) -> str | None:
        """Return None if a tool may run, else the reason for the model. Asks the person if necessary.

        The leases of this turn, and of the `turns` that it delegated, are renewed while the question is pending.
        """
        if call.server.approve == "all" or call.tool in call.server.approve:
            return None
        if self._recording is not None:
            turns = (*turns, self._recording)
        if self._parent is not None:
            return await self._parent.refusal(call, turns)
        async with self._question_lock:  # one question at a time: the answer to one may allow the next
            if await self._is_granted(call):
                return None
            if self.approver is None:
                self._emit(Notice(text=nobody_to_ask_text(call.server.name, call.tool), level="warning"))
                return NOBODY_TO_ASK
            approval = self._approval(call)
            decision = await self._decide(approval, self.approver, turns)
            if decision in ("session", "always"):
                await self._remember(call, session=None if decision == "always" else approval.session)
        return DENIED if decision == "deny" else None

    def _approval(self, call: McpCall) -> Approval:
        session = self._conversation.session
        return Approval(
            id=session_ids.new_id(time.time_ns() // 1_000_000),
            session=session.id,
            call_id=call.call_id,
            server=call.server.name,
            tool=call.tool,
            arguments=call.arguments,
            who=self.who,
            holder=session.store.holder,
            turn=None if self._recording is None else self._recording.id,
        )

    async def _is_granted(self, call: McpCall) -> bool:
        session, key = self._conversation.session, (call.server.name, call.tool, call.fingerprint, self.who)
        try:
            stored_grants = await grants(session.store)
        except StoreError:
            return False  # ask the person instead
        return any(
            (grant.server, grant.tool, grant.fingerprint, grant.who) == key and grant.session in (None, session.id)
            for grant in stored_grants
        )

    async def _remember(self, call: McpCall, session: str | None) -> None:
        store = self._conversation.session.store
        grant = Grant(
            server=call.server.name, tool=call.tool, fingerprint=call.fingerprint, who=self.who, session=session,
            at=time.time_ns() // 1_000_000,
        )  # fmt: skip
        try:
            await _change_grants(store, lambda before: [*before, grant][-_MAX_GRANTS:])
        except StoreError as error:
            text = f"The approval could not be stored and applies to this call only. {error}"
            self._emit(Notice(text=text, level="warning"))

    async def _decide(self, approval: Approval, approver: Approver, turns: tuple[TurnRecording, ...]) -> Decision:
        """Ask in this channel and through the store; the first answer counts."""
        decision: Decision = "deny"
        async with self._announce(approval):
            answers = [
                asyncio.create_task(_ask_approver(approver, approval)),
                asyncio.create_task(_poll_answer(self._conversation.session, approval.id)),
            ]
            renewing = asyncio.create_task(_renew_leases(turns))
            try:
                done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
                decision = done.pop().result()
            finally:
                for task in (*answers, renewing):
                    task.cancel()
                await asyncio.wait([*answers, renewing])
        self._emit(ApprovalAnswered(id=approval.id, call_id=approval.call_id, decision=decision))
        return decision

    @contextlib.asynccontextmanager
    async def _announce(self, approval: Approval) -> AsyncGenerator[None]:
        """Store the question while it is pending. If the store fails, it is asked in this channel only."""
        records = self._conversation.session.records
        with contextlib.suppress(*_NOT_STORED):
            await records.put(_QUESTION_KIND, _PENDING_KEY, msgspec.to_builtins(approval))
        self._notify_watchers()
        fields = ("id", "session", "call_id", "server", "tool", "arguments")
        self._emit(ApprovalRequested(**{name: getattr(approval, name) for name in fields}))
        try:
            yield
        finally:
            with contextlib.suppress(*_NOT_STORED):
                await records.delete(_QUESTION_KIND, _PENDING_KEY)
                await records.delete(_QUESTION_KIND, _ANSWER_PREFIX + approval.id)
            self._notify_watchers()

    def _notify_watchers(self) -> None:
        """Notify watchers of the session that a question was asked or answered."""
        if self._recording is not None:
            self._recording.renew()


async def _renew_leases(turns: tuple[TurnRecording, ...]) -> None:
    while True:
        await asyncio.sleep(_RENEW)
        for recording in turns:
            recording.renew()


async def _ask_approver(approver: Approver, approval: Approval) -> Decision:
    return await approver(approval)


async def _poll_answer(session: AsyncSession, id: str) -> Decision:
    """Poll until another process has stored an answer, and return it."""
    while True:
        with contextlib.suppress(*_NOT_STORED):
            record = await session.records.get(_QUESTION_KIND, _ANSWER_PREFIX + id)
            if record is not None and record.value in DECISIONS:
                return record.value
        await asyncio.sleep(_POLL)


def question_text(approval: Approval, limit: int = 300) -> str:
    """Return the question as one line of plain text, with truncated arguments."""
    arguments = " ".join(approval.text.split())
    arguments = truncate(arguments, limit)
    return f"May the model run {approval.tool} of the MCP server {approval.server} with {arguments}?"


def nobody_to_ask_text(server: str, tool: str) -> str:
    """Return the notice that a tool was not run because nobody could be asked, with the ways to allow it."""
    return (
        f"The tool {tool!r} of the MCP server {server!r} was not run: it needs approval, and nobody can be asked here. "
        f"Allow it in `recollect chat` at a terminal or in the web app, or set approve = [{tool!r}] under "
        f"[mcp.{server}] in the configuration."
    )


async def pending_approval(session: AsyncSession) -> Approval | None:
    """Return the pending approval of a session; None if its turn is over or its process has ended."""
    record = await session.records.get(_QUESTION_KIND, _PENDING_KEY)
    if record is None:
        return None
    try:
        approval = msgspec.convert(record.value, Approval)
    except msgspec.ValidationError:
        return None
    # turns(after=...) excludes the position itself, so pass the one before the turn.
    position = 0 if approval.turn is None else int(approval.turn.partition(".")[2]) - 1
    is_open = any(turn.status == "open" for turn in await session.turns.list(after=position))
    is_alive = is_open and any(presence.holder == approval.holder for presence in await session.presence.list())
    return approval if is_alive else None


async def answer(session: AsyncSession, decision: str, id: str | None = None) -> Approval:
    """Answer the pending approval of a session. Raises ApprovalNotFound if none, or not `id`, is pending."""
    if decision not in DECISIONS:
        raise InvalidValue(f"decision must be one of {', '.join(DECISIONS)}, got {decision!r}.")
    approval = await pending_approval(session)
    if approval is None or id not in (None, approval.id):
        raise ApprovalNotFound(session=session.id)
    await session.records.put(_QUESTION_KIND, _ANSWER_PREFIX + approval.id, decision)
    return approval


async def grants(store: AsyncStore) -> list[Grant]:
    """Return the stored decisions, oldest first."""
    return _grants_from((await _read_grants(store)).value)


async def revoke(store: AsyncStore, grant: Grant | None = None) -> int:
    """Delete a stored decision, or all of them; return how many were deleted."""
    before, after = await _change_grants(
        store, lambda before: [] if grant is None else [other for other in before if other != grant]
    )
    return len(before) - len(after)


async def _change_grants(
    store: AsyncStore, change: Callable[[list[Grant]], list[Grant]]
) -> tuple[list[Grant], list[Grant]]:
    """Change the stored decisions, and return them before and after. Changes of other processes are kept."""
    while True:
        state = await _read_grants(store)
        before = _grants_from(state.value)
        after = change(before)
        with contextlib.suppress(StaleRecord):
            await store.records.put(_GRANTS_KIND, _GRANTS_KEY, msgspec.to_builtins(after), expected=state.revision)
            return before, after


class _GrantsState(NamedTuple):
    """The value of the record of decisions, and its revision; 0 if it does not exist."""

    value: Any
    revision: int


async def _read_grants(store: AsyncStore) -> _GrantsState:
    record = await store.records.get(_GRANTS_KIND, _GRANTS_KEY)
    return _GrantsState([], 0) if record is None else _GrantsState(record.value, record.revision)


def _grants_from(value: Any) -> list[Grant]:
    """Return the decisions of a stored value; none if a program has stored something else."""
    try:
        return msgspec.convert(value, list[Grant])
    except msgspec.ValidationError:
        return []
