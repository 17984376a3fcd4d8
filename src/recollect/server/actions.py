"""Actions of a user in a conversation, for the web app and the API: send, edit, regenerate, retry, continue, stop.

Nothing is overwritten: an edit or a regenerated answer starts a branch, and the old branch stays. With an idempotency
`key`, a repeated action runs once: the same key always returns the same turn, because the store keeps it with the turn.
The same key with different content is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.agent import commands
from recollect.errors import InvalidValue, KeyReused, RecollectError, SessionBusy, TurnExists
from recollect.model.message import AttachmentPart, Draft, Message, Part, TextPart
from recollect.server.account import Account
from recollect.server.turn_runner import TurnRun
from recollect.store_async import AsyncSession

CONTINUE_TEXT = "Continue"
_REPLACES_KEY, _REPEATS_KEY = "instead_of", "asks_again"
"""Metadata of a message that was stored with a key: the message that it replaces, or the one that it repeats."""
_MAX_LOOKBACK = 400  # messages that are searched for the last question; a turn has far fewer steps
_CLIENT_COMMANDS = ("export", "quit")
"""Commands that the client runs: a file on the server's disk is of no use in a browser."""


class StartedTurn(NamedTuple):
    """A turn that has started: its session, the id of its first message, and its run if this server still has it."""

    session: str
    turn: str
    run: TurnRun | None = None


class CommandResult(NamedTuple):
    """The outcome of a slash command, and the session in which the conversation continues."""

    session: str
    outcome: commands.CommandOutcome


async def send_message(
    account: Account,
    session_id: str,
    text: str,
    attachments: Sequence[AttachmentPart] = (),
    *,
    model: str | None = None,
    key: str | None = None,
    take_over: bool = False,
    wait_for_approval: bool = False,
) -> StartedTurn:
    """Store a user message and start the answer. The message is stored when this returns.

    With `wait_for_approval`, tools that need approval wait for it; without, they are not run.
    """
    draft = _user_draft(_message_parts(text, attachments))

    async def start() -> StartedTurn:
        session = await account.store.session(session_id, create=False)
        existing_turn = await _find_turn_by_key(session, key, [draft])
        if existing_turn is not None:
            return existing_turn
        async with account.runner.start_lock(session_id):
            return await _start_turn(
                account, session, draft, model=model, key=key, take_over=take_over, wait_for_approval=wait_for_approval
            )

    return await _start_once(account, session_id, key, ("say", draft.parts), start)


async def edit_message(
    account: Account,
    session_id: str,
    message_id: str,
    text: str,
    attachments: Sequence[AttachmentPart] | None = None,
    *,
    model: str | None = None,
    key: str | None = None,
    wait_for_approval: bool = False,
) -> StartedTurn:
    """Replace a user message on a new branch and answer it. Its attachments are kept unless others are passed."""

    async def start() -> StartedTurn:
        session = await account.store.session(session_id, create=False)
        message = await session.message(message_id)
        if message.role != "user":
            raise InvalidValue(
                f"message must be a user message, got {message_id} of {message.role}. Regenerate an answer instead."
            )
        files = attachments
        if files is None:
            files = [part for part in message.parts if isinstance(part, AttachmentPart)]
        draft = _user_draft(_message_parts(text, files), None if key is None else {_REPLACES_KEY: message.id})
        existing_turn = await _find_turn_by_key(session, key, [draft])
        return existing_turn or await _replace_message(
            account, session, message, draft, model=model, key=key, wait_for_approval=wait_for_approval
        )

    return await _start_once(account, session_id, key, ("edit", message_id, text, attachments), start)


async def regenerate(
    account: Account,
    session_id: str,
    message_id: str | None = None,
    *,
    model: str | None = None,
    key: str | None = None,
    wait_for_approval: bool = False,
) -> StartedTurn:
    """Answer the question of a message's turn again, or the last question. The previous answer stays on its branch."""

    async def start() -> StartedTurn:
        session = await account.store.session(session_id, create=False)
        metadata = None if key is None else {_REPEATS_KEY: message_id or "the last"}
        existing_turn = await _find_turn_by_key(session, key)
        if existing_turn is not None:
            if (await session.message(existing_turn.turn)).metadata != metadata:
                raise KeyReused(session=session_id, key=key)
            return existing_turn
        message = await _find_question(session, None if message_id is None else await session.message(message_id))
        draft = _user_draft(message.parts, metadata)
        return await _replace_message(
            account, session, message, draft, model=model, key=key, wait_for_approval=wait_for_approval
        )

    return await _start_once(account, session_id, key, ("regenerate", message_id), start)


async def retry(
    account: Account,
    session_id: str,
    *,
    model: str | None = None,
    key: str | None = None,
    wait_for_approval: bool = False,
) -> StartedTurn:
    """Answer the last question again after a failed answer."""
    return await regenerate(account, session_id, model=model, key=key, wait_for_approval=wait_for_approval)


async def continue_answer(
    account: Account,
    session_id: str,
    *,
    model: str | None = None,
    key: str | None = None,
    wait_for_approval: bool = False,
) -> StartedTurn:
    """Ask the model to continue an answer that was cut off."""
    return await send_message(
        account, session_id, CONTINUE_TEXT, model=model, key=key, wait_for_approval=wait_for_approval
    )


async def stop_answer(account: Account, session_id: str) -> bool:
    """Stop the running answer and keep its text. Return whether one was running."""
    return account.runner.stop(session_id)


async def run_command(account: Account, session_id: str, line: str) -> CommandResult:
    """Run a slash command in a session. A failed command returns an outcome too."""
    name = line.strip().removeprefix("/").split(maxsplit=1)[0].lower() if line.strip("/ ") else ""
    if name in _CLIENT_COMMANDS:
        return CommandResult(session_id, commands.CommandOutcome(action="quit" if name == "quit" else None, data=name))
    conversation = account.runner.current(session_id)
    if conversation is None:
        conversation = await account.runner.conversation(
            await account.session(session_id)
        )  # a command does not count as activity
    outcome = await commands.run(conversation, line)
    return CommandResult(conversation.session.id, outcome)


async def choose_model(account: Account, session_id: str, model: str | None) -> AsyncSession:
    """Set the model of a session. Raise ModelError if it cannot be loaded."""
    if model:
        await _load_model(account, model)
    session = await account.session(session_id)
    return await session.update(model=model or None)


async def _load_model(account: Account, model: str | None) -> None:
    """Load a model in a thread: importing a provider's library takes a second."""
    await asyncio.to_thread(account.agent.model, model)


async def _find_turn_by_key(
    session: AsyncSession, key: str | None, drafts: Sequence[Draft] | None = None
) -> StartedTurn | None:
    """Return the turn that any process started with a key, or None. Raise KeyReused if its drafts differ."""
    if key is None:
        return None
    append = await session.find_append(key, drafts)
    return None if append is None else StartedTurn(session.id, append.ids[0])


async def _start_turn(
    account: Account,
    session: AsyncSession,
    draft: Draft,
    *,
    model: str | None,
    key: str | None,
    take_over: bool = False,
    wait_for_approval: bool,
) -> StartedTurn:
    if model is not None:
        await _load_model(account, model)
        if session.model != model:
            await session.update(model=model)
    run = await account.runner.start_turn(
        session, [draft], model=model, take_over=take_over, key=key, wait_for_approval=wait_for_approval
    )
    return StartedTurn(session.id, run.turn or "", run)


async def _replace_message(
    account: Account,
    session: AsyncSession,
    message: Message,
    draft: Draft,
    *,
    model: str | None,
    key: str | None,
    wait_for_approval: bool,
) -> StartedTurn:
    """Rewind to before a message and start a turn on a new branch. Switch back if that fails."""
    async with account.runner.start_lock(session.id):
        if account.runner.running(session.id):
            raise SessionBusy(session=session.id, holder="this server", until="its answer is complete")
        branch = (await session.refresh()).branch
        current_messages = await session.messages(1, before=message.position + 1)
        if not current_messages or current_messages[0].id != message.id:
            await session.rewind(message.id)
        await session.rewind(message.position - 1)
        try:
            return await _start_turn(account, session, draft, model=model, key=key, wait_for_approval=wait_for_approval)
        except BaseException:
            with contextlib.suppress(RecollectError):
                await session.branches.switch(branch)
            raise


async def _find_question(session: AsyncSession, message: Message | None) -> Message:
    """Return the question of a message: the first message of its turn, or the last user message before it."""
    if message is not None and message.role == "user":
        return message
    if message is not None and message.turn is not None:
        question = await session.message(f"{message.branch}.{message.turn}")
        if question.role == "user":
            return question
    before = None if message is None else message.position
    for candidate in reversed(await session.messages(_MAX_LOOKBACK, before=before)):
        if candidate.role == "user":
            return candidate
    raise InvalidValue("There is no user message to answer. Send a message first.")


def _message_parts(text: str, attachments: Sequence[AttachmentPart]) -> tuple[Part, ...]:
    if not text.strip() and not attachments:
        raise InvalidValue("The message is empty. Enter a text or attach a file.")
    text_parts: tuple[Part, ...] = (TextPart(text=text),) if text.strip() else ()
    return (*text_parts, *attachments)


def _user_draft(parts: Sequence[Part], metadata: Mapping[str, Any] | None = None) -> Draft:
    return Draft(role="user", parts=tuple(parts), metadata=None if metadata is None else dict(metadata))


async def _start_once(
    account: Account, session_id: str, key: str | None, content: Any, start: Callable[[], Awaitable[StartedTurn]]
) -> StartedTurn:
    """Start a turn once per key. The cache here has recent turns with their runs; the store has all keys."""
    if key is None:
        return await start()

    async def start_or_find() -> StartedTurn:
        try:
            return await start()
        except TurnExists as error:  # another process was faster
            return StartedTurn(session_id, error.fields["turn"])

    return await account.idempotency.run((session_id, key), content, start_or_find)
