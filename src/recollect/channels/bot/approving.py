"""Whether a tool may run, asked in a chat: a message with buttons. Who asked for the tool answers, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from recollect.agent.approvals import DECISIONS, Approval, Decision
from recollect.channels.bot.delivery import insist
from recollect.channels.bot.incoming import Author, Incoming
from recollect.channels.bot.outlet import Askable, Button, Outlet, SlowDown, Undelivered

WAIT = 600.0
"""Seconds that an answer is waited for. Then the tool is not run."""

_SHOWN = 6_000  # characters of the arguments that are sent; the whole call is stored with the conversation
_SETTLING = 10.0
_LABELS: dict[Decision, str] = {
    "once": "Allow once",
    "session": "Allow in this conversation",
    "always": "Always allow",
    "deny": "Deny",
}
_TOLD: dict[Decision, str] = {
    "once": "Allowed once.",
    "session": "Allowed in this conversation.",
    "always": "Always allowed.",
    "deny": "Not allowed.",
}
Send = Callable[[Outlet, str], Awaitable[None]]


class _Question(NamedTuple):
    asker: Author
    answer: asyncio.Future[Decision]


class Questions:
    """The questions of a bot that wait for somebody to press a button."""

    def __init__(self, send: Send, patience: float, wait: float = WAIT) -> None:
        self._send = send
        self._patience = patience
        self._wait = wait
        self._open: dict[str, _Question] = {}

    def approver(self, incoming: Incoming, outlet: Outlet) -> Callable[[Approval], Awaitable[Decision]]:
        """Return what asks the author of a message."""
        return partial(self._approve, incoming.author, outlet)

    def press(self, data: str, user: str) -> str | None:
        """Take the press of a button; return what the person is told, or None if it was an answer."""
        id, _, decision = data.partition(":")
        question = self._open.get(id)
        if question is None or decision not in DECISIONS or question.answer.done():
            return "This was answered already, or the answer came too late."
        if question.asker.id != user:
            return f"Only {question.asker.name} can answer this."
        question.answer.set_result(decision)
        return None

    async def _approve(self, asker: Author, outlet: Outlet, approval: Approval) -> Decision:
        if not isinstance(outlet, Askable):
            return "deny"
        text = await self._shown(asker, outlet, approval)
        buttons = [Button(label, f"{approval.id}:{decision}") for decision, label in _LABELS.items()]
        question = self._open[approval.id] = _Question(asker, asyncio.get_running_loop().create_future())
        told = "Answered in another window, or stopped."
        message = ""
        try:
            message = await insist(lambda: outlet.ask(text, buttons), self._patience)
            async with asyncio.timeout(self._wait):
                decision = await question.answer
            told = _TOLD[decision]
        except TimeoutError:
            decision, told = "deny", f"Not allowed: no answer within {self._wait / 60:g} minutes."
        except Undelivered:
            decision = "deny"
        finally:
            del self._open[approval.id]
            if message:
                with contextlib.suppress(SlowDown, Undelivered, TimeoutError):
                    async with asyncio.timeout(_SETTLING):
                        await outlet.settle(message, f"{text}\n\n{told}")
        return decision

    async def _shown(self, asker: Author, outlet: Outlet, approval: Approval) -> str:
        """Return the question with its arguments; send those in messages of their own if they are too long for one."""
        head = f"{asker.name}, may I run **{approval.tool}** of {approval.server}?"
        laid_out = approval.text
        if len(laid_out) > _SHOWN:
            whole = f"({len(laid_out):,} characters in all: recollect sessions show {approval.session} --full)"
            laid_out = f"{laid_out[:_SHOWN]}\n{whole}"
        block = "```json\n" + laid_out.replace("```", "`\u200b``") + "\n```"
        whole = f"{head}\n{block}"
        if outlet.measure(whole) + 100 <= outlet.limit:
            return whole
        with contextlib.suppress(Undelivered):
            await self._send(outlet, block)
        return f"{head} Its arguments are above."
