"""What a person does in a conversation, once for the page and the API: say, edit, regenerate, retry, carry on, stop.

Nothing here is destroyed: what is said in the place of something else makes a branch, and the old one stays beside it.
A `key` makes an action that may be sent twice happen once: the same key gives the same turn, for good, since the store
keeps it with the turn. The same key with other content is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from recollect import ops
from recollect.agent import commands
from recollect.errors import AlreadySaid, InvalidValue, KeyReused, RecollectError, SessionBusy
from recollect.model.message import Draft, Message
from recollect.model.part import AttachmentPart, Part, TextPart
from recollect.server.account import Account
from recollect.server.talks import Run
from recollect.store_async import AsyncSession

CONTINUE = "Continue"
_INSTEAD, _AGAIN = "instead_of", "asks_again"
"""What the metadata of a message under a key says: in the place of which one it was said, or what was asked again."""
_WALKED_BACK = 400
_ELSEWHERE = ("export", "quit")
"""Commands that mean something else here: a file on the server's disk is of no use to who looks at a page."""


class Said(NamedTuple):
    """A turn that has begun: its session, the id of the message that opened it, and the run where it is still known."""

    session: str
    turn: str
    run: Run | None = None


class Done(NamedTuple):
    """What a command did, and in which session the talk goes on."""

    session: str
    outcome: commands.Outcome


async def say(
    account: Account,
    session_id: str,
    text: str,
    attachments: Sequence[AttachmentPart] = (),
    *,
    model: str | None = None,
    key: str | None = None,
    take_over: bool = False,
    asks: bool = False,
) -> Said:
    """Say something, and begin the answer. What was said is stored when this returns.

    With `asks`, tools that need approval wait for it; without, they are not run.
    """
    draft = _draft(_parts(text, attachments))

    async def begin() -> Said:
        session = await account.store.session(session_id, create=False)
        before = await _before(session, key, [draft])
        if before is not None:
            return before
        async with account.talks.beginning(session_id):
            return await _begin(account, session, draft, model=model, key=key, take_over=take_over, asks=asks)

    return await _once(account, session_id, key, ("say", draft.parts), begin)


async def edit(
    account: Account,
    session_id: str,
    message_id: str,
    text: str,
    attachments: Sequence[AttachmentPart] | None = None,
    *,
    model: str | None = None,
    key: str | None = None,
    asks: bool = False,
) -> Said:
    """Say something else in the place of a message; its attachments stay unless others are given."""

    async def begin() -> Said:
        session = await account.store.session(session_id, create=False)
        message = await session.message(message_id)
        if message.role != "user":
            raise InvalidValue(f"{message_id} is not what a person said. Regenerate an answer instead.")
        kept = attachments
        if kept is None:
            kept = [part for part in message.parts if isinstance(part, AttachmentPart)]
        draft = _draft(_parts(text, kept), None if key is None else {_INSTEAD: message.id})
        before = await _before(session, key, [draft])
        return before or await _instead(account, session, message, draft, model=model, key=key, asks=asks)

    return await _once(account, session_id, key, ("edit", message_id, text, attachments), begin)


async def regenerate(
    account: Account,
    session_id: str,
    message_id: str | None = None,
    *,
    model: str | None = None,
    key: str | None = None,
    asks: bool = False,
) -> Said:
    """Ask the same again: the question of a message's turn, or the last one. The answer that was there is kept."""

    async def begin() -> Said:
        session = await account.store.session(session_id, create=False)
        about = None if key is None else {_AGAIN: message_id or "the last"}
        before = await _before(session, key)
        if before is not None:
            if (await session.message(before.turn)).metadata != about:
                raise KeyReused(session=session_id, key=key)
            return before
        message = await _question(session, None if message_id is None else await session.message(message_id))
        draft = _draft(message.parts, about)
        return await _instead(account, session, message, draft, model=model, key=key, asks=asks)

    return await _once(account, session_id, key, ("regenerate", message_id), begin)


async def retry(
    account: Account, session_id: str, *, model: str | None = None, key: str | None = None, asks: bool = False
) -> Said:
    """Ask the last question again, after an answer that failed."""
    return await regenerate(account, session_id, model=model, key=key, asks=asks)


async def carry_on(
    account: Account, session_id: str, *, model: str | None = None, key: str | None = None, asks: bool = False
) -> Said:
    """Ask for the rest of an answer that was cut off."""
    return await say(account, session_id, CONTINUE, model=model, key=key, asks=asks)


async def stop(account: Account, session_id: str) -> bool:
    """End the answer that is in progress; what came is kept. Say whether there was one."""
    return account.talks.stop(session_id)


async def command(account: Account, session_id: str, line: str) -> Done:
    """Run a slash command in a session. A mistake is an outcome too."""
    name = line.strip().removeprefix("/").split(maxsplit=1)[0].lower() if line.strip("/ ") else ""
    if name in _ELSEWHERE:
        return Done(session_id, commands.Outcome(action="quit" if name == "quit" else None, data=name))
    talk = account.talks.current(session_id)
    if talk is None:
        talk = await account.talks.talk(await account.session(session_id))  # a command is no activity by itself
    outcome = await commands.run(talk, line)
    return Done(talk.session.id, outcome)


async def choose_model(account: Account, session_id: str, model: str | None) -> AsyncSession:
    """Choose the model that a session goes on with; it must be one that can be talked to."""
    if model:
        await _known(account, model)
    session = await account.session(session_id)
    return await session.update(model=model or None)


async def _known(account: Account, model: str | None) -> None:
    """Load a model beside the loop: the first one of a provider takes a second."""
    await asyncio.to_thread(account.agent.model, model)


async def _before(session: AsyncSession, key: str | None, drafts: Sequence[Draft] | None = None) -> Said | None:
    """Find the turn that was begun under a key, by whichever process; other drafts than its own are an error."""
    if key is None:
        return None
    made = await session.store.run(ops.appends.under_key(session.store.scope(), session.id, key, drafts))
    return None if made is None else Said(session.id, made.ids[0])


async def _begin(
    account: Account,
    session: AsyncSession,
    draft: Draft,
    *,
    model: str | None,
    key: str | None,
    take_over: bool = False,
    asks: bool,
) -> Said:
    if model is not None:
        await _known(account, model)
        if session.model != model:
            await session.update(model=model)
    run = await account.talks.say(session, [draft], model=model, take_over=take_over, key=key, asks=asks)
    return Said(session.id, run.turn or "", run)


async def _instead(
    account: Account,
    session: AsyncSession,
    message: Message,
    draft: Draft,
    *,
    model: str | None,
    key: str | None,
    asks: bool,
) -> Said:
    """Go back to before a message, on a branch of its own, and say something there; go forward again if that fails."""
    async with account.talks.beginning(session.id):
        if account.talks.running(session.id):
            raise SessionBusy(session=session.id, holder="this server", until="its answer is complete")
        branch = (await session.refresh()).branch
        here = await session.messages(1, before=message.position + 1)
        if not here or here[0].id != message.id:
            await session.rewind(message.id)
        await session.rewind(message.position - 1)
        try:
            return await _begin(account, session, draft, model=model, key=key, asks=asks)
        except BaseException:
            with contextlib.suppress(RecollectError):
                await session.switch(branch)
            raise


async def _question(session: AsyncSession, message: Message | None) -> Message:
    """Find what was asked: the message that opened a message's turn, or the last one that a person said before it."""
    if message is not None and message.role == "user":
        return message
    if message is not None and message.turn is not None:
        opened = await session.message(f"{message.branch}.{message.turn}")
        if opened.role == "user":
            return opened
    before = None if message is None else message.position
    for found in reversed(await session.messages(_WALKED_BACK, before=before)):
        if found.role == "user":
            return found
    raise InvalidValue("Nothing was asked yet. Say something first.")


def _parts(text: str, attachments: Sequence[AttachmentPart]) -> tuple[Part, ...]:
    if not text.strip() and not attachments:
        raise InvalidValue("There is nothing to say. Write something, or attach a file.")
    said: tuple[Part, ...] = (TextPart(text=text),) if text.strip() else ()
    return (*said, *attachments)


def _draft(parts: Sequence[Part], about: Mapping[str, Any] | None = None) -> Draft:
    return Draft(role="user", parts=tuple(parts), metadata=None if about is None else dict(about))


async def _once(
    account: Account, session_id: str, key: str | None, content: Any, begin: Callable[[], Awaitable[Said]]
) -> Said:
    """Begin a turn once under its key. What began here lately is known with its run; the store knows all."""
    if key is None:
        return await begin()

    async def unless_said() -> Said:
        try:
            return await begin()
        except AlreadySaid as said:  # another process was faster by a moment
            return Said(session_id, said.fields["turn"])

    return await account.once.run((session_id, key), content, unless_said)
