"""Approval prompts: a message with buttons that asks whether a tool may run.

Only the author of the message that led to the tool call may answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from recollect.agent.approvals import DECISIONS, Approval, Decision
from recollect.channels.bot.delivery import Button, ButtonOutlet, Outlet, deliver_with_retry
from recollect.channels.bot.incoming import Author, Incoming
from recollect.errors import DeliveryFailed, RateLimited
from recollect.model.humanize import quote_for_shell

APPROVAL_TIMEOUT = 600.0
"""Seconds to wait for an answer. After that the tool is not run."""

# Characters of the arguments that are sent. The complete call is stored with the conversation.
_MAX_ARGUMENTS_LENGTH = 6_000
_SETTLE_TIMEOUT = 10.0  # seconds for removing the buttons: a slow platform must not delay the answer
_LABELS: dict[Decision, str] = {
    "once": "Allow once",
    "session": "Allow in this conversation",
    "always": "Always allow",
    "deny": "Deny",
}
_DECISION_TEXTS: dict[Decision, str] = {
    "once": "Allowed once.",
    "session": "Allowed in this conversation.",
    "always": "Always allowed.",
    "deny": "Not allowed. The tool was not run.",
}
Send = Callable[[Outlet, str], Awaitable[None]]


class _PendingApproval(NamedTuple):
    asker: Author
    answer: asyncio.Future[Decision]


class ApprovalPrompts:
    """The approvals of a bot that wait for a button press."""

    def __init__(self, send: Send, patience: float, timeout: float = APPROVAL_TIMEOUT) -> None:
        self._send = send
        self._patience = patience
        self._timeout = timeout
        self._open: dict[str, _PendingApproval] = {}

    def approver(self, incoming: Incoming, outlet: Outlet) -> Callable[[Approval], Awaitable[Decision]]:
        """Return an approver that asks the author of a message."""
        return partial(self._approve, incoming.author, outlet)

    def press(self, data: str, user: str) -> str | None:
        """Handle a button press; return the refusal to show to the user, or None if it was accepted."""
        id, _, decision = data.partition(":")
        question = self._open.get(id)
        if question is None or decision not in DECISIONS or question.answer.done():
            return "This question is closed: it was already answered, or it timed out."
        if question.asker.id != user:
            return f"Only {question.asker.name} can answer this."
        question.answer.set_result(decision)
        return None

    async def _approve(self, asker: Author, outlet: Outlet, approval: Approval) -> Decision:
        if not isinstance(outlet, ButtonOutlet):
            return "deny"
        text = await self._question_text(asker, outlet, approval)
        buttons = [Button(label, f"{approval.id}:{decision}") for decision, label in _LABELS.items()]
        question = self._open[approval.id] = _PendingApproval(asker, asyncio.get_running_loop().create_future())
        outcome = "Answered elsewhere, or the answer was stopped."
        message = ""
        try:
            message = await deliver_with_retry(lambda: outlet.ask(text, buttons), self._patience)
            async with asyncio.timeout(self._timeout):
                decision = await question.answer
            outcome = _DECISION_TEXTS[decision]
        except TimeoutError:
            decision, outcome = "deny", f"Not allowed: no answer within {self._timeout / 60:g} minutes."
        except DeliveryFailed:
            decision = "deny"
        finally:
            del self._open[approval.id]
            if message:
                with contextlib.suppress(RateLimited, DeliveryFailed, TimeoutError):
                    async with asyncio.timeout(_SETTLE_TIMEOUT):
                        await outlet.settle(message, f"{text}\n\n{outcome}")
        return decision

    async def _question_text(self, asker: Author, outlet: Outlet, approval: Approval) -> str:
        """Return the question with its arguments. Arguments that do not fit are sent before it as separate messages."""
        question = f"{asker.name}, may I run **{approval.tool}** of {approval.server}?"
        arguments = approval.text
        if len(arguments) > _MAX_ARGUMENTS_LENGTH:
            session = quote_for_shell(approval.session) or "ID"  # no shell can pass an id with NUL
            text = f"({len(arguments):,} characters in total: recollect sessions show {session} --full)"
            arguments = f"{arguments[:_MAX_ARGUMENTS_LENGTH]}\n{text}"
        # A zero-width space keeps the arguments from closing the code block.
        block = "```json\n" + arguments.replace("```", "`\u200b``") + "\n```"
        text = f"{question}\n{block}"
        if outlet.measure(text) + 100 <= outlet.limit:  # space for the outcome that settle() appends
            return text
        with contextlib.suppress(DeliveryFailed):
            await self._send(outlet, block)
        return f"{question} Its arguments are above."
