"""Approvals: a tool of an MCP server runs only after somebody has allowed it.

A call is allowed by the configuration (`approve` of the server), by an earlier decision (for this conversation, or
always), or by the answer to a question. The question goes to the surface of the conversation, and is kept in the store
while it waits, so that another window, page or process can answer it too. If nobody can be asked, the tool is not run.

Decisions are settings of the store. Each names the server, the tool, who decided, and a fingerprint of the server's
configuration and the tool's definition: if one of these changes, the person is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from recollect.agent.events import ApprovalAnswered, ApprovalRequested, Event, Notice
from recollect.agent.recorder import LEASE, Recording
from recollect.config.servers import McpServer
from recollect.errors import ApprovalNotFound, InvalidValue, StoreError
from recollect.model import json, keys
from recollect.store_async import AsyncSession, AsyncStore

if TYPE_CHECKING:
    from recollect.agent.conversation import Conversation

Decision = Literal["once", "session", "always", "deny"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)
"""What can be answered: allow this call, the tool in this conversation, the tool always; or do not run it."""

_GRANTS = "approvals"
_WAITING = "approvals.waiting."
_ANSWER = "approvals.answer."
_MOST_GRANTS = 1_000  # decisions kept; the oldest go first, and are asked for again
_POLL = 0.25  # seconds between two looks for an answer from another process; each is one indexed read
_RENEW = LEASE / 3  # seconds: a lease outlives two renewals that fail

DENIED = "The user did not allow this tool call, and it was not run. Do not repeat it unless the user asks for it."
UNASKED = "This tool needs the user's approval, and nobody can be asked here. It was not run."


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The question whether a tool may run with these arguments."""

    id: str
    session: str
    """The conversation in which it is asked. For a tool of a sub-agent, that of its parent."""
    call_id: str
    server: str
    tool: str
    arguments: Any
    who: str = ""
    """Who asked for it, such as `discord:12`; empty for the owner of the store."""
    holder: str = ""
    """The process that waits for the answer."""
    turn: str | None = None

    @property
    def text(self) -> str:
        """The arguments as indented JSON. Characters that steer a terminal or reverse a line are written as escapes."""
        laid_out = msgspec.json.format(json.encode(json.exact(self.arguments)), indent=2)
        return "".join(_visible(character) for character in laid_out)


def _visible(character: str) -> str:
    return character if character == "\n" or character.isprintable() else f"\\u{ord(character):04x}"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool of an MCP server, and how the server describes the tool."""

    server: McpServer
    tool: str
    definition: Any
    arguments: Any
    call_id: str

    @property
    def fingerprint(self) -> str:
        """A digest of all that decides what the tool does: how its server is reached, and how the tool is described.

        Headers are left out: they hold keys that are renewed.
        """
        server = self.server
        told = [server.command, server.url, server.folder, sorted(server.env.items()), self.definition]
        return hashlib.blake2b(msgspec.json.encode(told), digest_size=16).hexdigest()


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that is remembered; without a session it counts always."""

    server: str
    tool: str
    fingerprint: str
    who: str = ""
    session: str | None = None
    at: int = 0


Approver = Callable[[Approval], Awaitable[Decision]]


async def forever(_: Approval) -> Decision:
    """Wait for an answer that comes through the store: the approver of a surface whose people answer by a request."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


class Approvals:
    """The approvals of one conversation. Without an approver, only what is allowed already is run."""

    def __init__(self, talk: Conversation, tell: Callable[[Event], None]) -> None:
        self.approver: Approver | None = None
        self.who = ""
        """Whose decisions count, and who is asked; empty for the owner of the store."""
        self._talk = talk
        self._tell = tell
        self._parent: Approvals | None = None
        self._recording: Recording | None = None
        self._asking = asyncio.Lock()

    def begin(self, recording: Recording) -> None:
        """Belong to a turn that begins."""
        self._recording = recording

    def ask_in(self, parent: Approvals) -> None:
        """Ask in the conversation that delegated this one."""
        self._parent = parent

    async def refusal(self, call: Call, turns: tuple[Recording, ...] = ()) -> str | None:
        """Return None if a tool may run, else the reason that the model is told. Asks if that is needed.

        The leases of this turn, and of the `turns` that were delegated by it, are renewed while somebody is asked.
        """
        if call.server.approve == "all" or call.tool in call.server.approve:
            return None
        if self._recording is not None:
            turns = (*turns, self._recording)
        if self._parent is not None:
            return await self._parent.refusal(call, turns)
        async with self._asking:  # one question at a time: the answer to one may allow the next
            if await self._granted(call):
                return None
            if self.approver is None:
                self._tell(Notice(text=unasked(call.server.name, call.tool), level="warning"))
                return UNASKED
            approval = self._approval(call)
            decision = await self._decided(approval, self.approver, turns)
            if decision in ("session", "always"):
                await self._remember(call, session=None if decision == "always" else approval.session)
        return DENIED if decision == "deny" else None

    def _approval(self, call: Call) -> Approval:
        scope, session = self._talk.session.store.scope(), self._talk.session
        return Approval(
            id=keys.new_id(scope.now),
            session=session.id,
            call_id=call.call_id,
            server=call.server.name,
            tool=call.tool,
            arguments=call.arguments,
            who=self.who,
            holder=scope.holder,
            turn=None if self._recording is None else self._recording.id,
        )

    async def _granted(self, call: Call) -> bool:
        session, wanted = self._talk.session, (call.server.name, call.tool, call.fingerprint, self.who)
        try:
            known = await grants(session.store)
        except StoreError:
            return False  # then it is asked
        return any(
            (grant.server, grant.tool, grant.fingerprint, grant.who) == wanted and grant.session in (None, session.id)
            for grant in known
        )

    async def _remember(self, call: Call, session: str | None) -> None:
        store = self._talk.session.store
        grant = Grant(
            server=call.server.name, tool=call.tool, fingerprint=call.fingerprint, who=self.who, session=session,
            at=store.scope().now,
        )  # fmt: skip
        try:
            await _write(store, [*await grants(store), grant][-_MOST_GRANTS:])
        except StoreError as error:
            text = f"The approval could not be stored, and counts for this call only. {error}"
            self._tell(Notice(text=text, level="warning"))

    async def _decided(self, approval: Approval, approver: Approver, turns: tuple[Recording, ...]) -> Decision:
        """Ask the surface, and whoever else looks at the conversation; the first answer counts."""
        decision: Decision = "deny"
        async with self._announced(approval):
            answers = [
                asyncio.create_task(_asked(approver, approval)),
                asyncio.create_task(_answered(self._talk.session.store, approval.id)),
            ]
            renewing = asyncio.create_task(_renewed(turns))
            try:
                done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
                decision = done.pop().result()
            finally:
                for task in (*answers, renewing):
                    task.cancel()
                await asyncio.wait([*answers, renewing])
        self._tell(ApprovalAnswered(id=approval.id, call_id=approval.call_id, decision=decision))
        return decision

    @contextlib.asynccontextmanager
    async def _announced(self, approval: Approval) -> AsyncGenerator[None]:
        """Have the question in the store while it waits. A store that fails does not stop it from being asked here."""
        store, key = self._talk.session.store, _waiting_key(approval.session)
        with contextlib.suppress(StoreError):
            await store.set_setting(key, msgspec.to_builtins(approval))
        self._changed()
        fields = ("id", "session", "call_id", "server", "tool", "arguments")
        self._tell(ApprovalRequested(**{name: getattr(approval, name) for name in fields}))
        try:
            yield
        finally:
            with contextlib.suppress(StoreError):
                await store.set_setting(key, None)
                await store.set_setting(_ANSWER + approval.id, None)
            self._changed()

    def _changed(self) -> None:
        """Notify whoever watches the session: a question came or went."""
        if self._recording is not None:
            self._recording.renew()


async def _renewed(turns: tuple[Recording, ...]) -> None:
    while True:
        await asyncio.sleep(_RENEW)
        for recording in turns:
            recording.renew()


async def _asked(approver: Approver, approval: Approval) -> Decision:
    return await approver(approval)


async def _answered(store: AsyncStore, id: str) -> Decision:
    """Wait until another process, or a request, has answered."""
    while True:
        with contextlib.suppress(StoreError):
            answer = await store.setting(_ANSWER + id)
            if answer in DECISIONS:
                return answer
        await asyncio.sleep(_POLL)


def question(approval: Approval, longest: int = 300) -> str:
    """Return the question as one line of plain text, its arguments cut short."""
    told = " ".join(approval.text.split())
    told = told if len(told) <= longest else f"{told[:longest]}\u2026"
    return f"May {approval.tool} of {approval.server} run with {told}?"


def unasked(server: str, tool: str) -> str:
    """Say that a tool was not run because nobody could be asked, and what allows it."""
    return (
        f"The tool {tool!r} of the MCP server {server!r} was not run: it needs approval, and nobody can be asked here. "
        f"Allow it in `recollect chat` at a terminal or in the web app, or set approve = [{tool!r}] under "
        f"[mcp.{server}] in the configuration."
    )


def _waiting_key(session: str) -> str:
    """Return the key of a session's question: a digest, because the key of a setting is as short as a session's id."""
    return _WAITING + hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


async def waiting(session: AsyncSession) -> Approval | None:
    """Return the question that waits for an answer in a session; None if its turn is over, or its process is gone."""
    record = await session.store.setting(_waiting_key(session.id))
    if record is None:
        return None
    try:
        approval = msgspec.convert(record, Approval)
    except msgspec.ValidationError:
        return None
    begins = 0 if approval.turn is None else int(approval.turn.partition(".")[2]) - 1
    is_open = any(turn.status == "open" for turn in await session.turns(after=begins))
    there = is_open and any(one.holder == approval.holder for one in await session.present())
    return approval if there else None


async def answer(session: AsyncSession, decision: str, id: str | None = None) -> Approval:
    """Answer the question that waits in a session. `id` makes sure that it is the one that was meant."""
    if decision not in DECISIONS:
        raise InvalidValue(f"decision must be one of {', '.join(DECISIONS)}, got {decision!r}.")
    approval = await waiting(session)
    if approval is None or id not in (None, approval.id):
        raise ApprovalNotFound(session=session.id)
    await session.store.set_setting(_ANSWER + approval.id, decision)
    return approval


async def grants(store: AsyncStore) -> list[Grant]:
    """List the decisions that are remembered, the oldest first."""
    try:
        return msgspec.convert(await store.setting(_GRANTS, []), list[Grant])
    except msgspec.ValidationError:
        return []


async def revoke(store: AsyncStore, grant: Grant | None = None) -> int:
    """Forget a decision, or all of them; return how many were forgotten."""
    before = await grants(store)
    after = [] if grant is None else [other for other in before if other != grant]
    await _write(store, after)
    return len(before) - len(after)


async def _write(store: AsyncStore, kept: list[Grant]) -> None:
    await store.set_setting(_GRANTS, msgspec.to_builtins(kept) or None)
