"""Dispatcher of a bot: one FIFO queue per chat, each message answered once, and recovery after a restart.

Messages of one chat are answered in order, different chats concurrently. A failure is reported in its chat and affects
no other message. After a restart, a message that was never read is answered, and an answer that was cut off is marked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple

from recollect.agent import Agent
from recollect.agent.conversation import Conversation
from recollect.agent.events import Notice, Responded, TextDelta, TurnEnded
from recollect.agent.titles import message_text
from recollect.channels.bot import slash_commands
from recollect.channels.bot.approval_prompts import ApprovalPrompts
from recollect.channels.bot.chat_markdown import split
from recollect.channels.bot.delivery import (
    CONTINUATION_MARK,
    DELIVERY_TIMEOUT,
    Delivery,
    Outlet,
    ReadableOutlet,
    deliver_with_retry,
)
from recollect.channels.bot.incoming import AllowList, Incoming, present_to_model
from recollect.channels.bot.ledger import Ledger, LedgerEntry
from recollect.channels.conversation_keys import ConversationKey, format_key
from recollect.errors import (
    DeliveryFailed,
    KeyReused,
    RateLimited,
    RecollectError,
    SessionBusy,
    SessionNotFound,
    TurnExists,
)
from recollect.formats import display
from recollect.model import humanize, session_ids
from recollect.model.message import Message
from recollect.store_async import AsyncSession, AsyncStore

_log = logging.getLogger(__name__)
_BUSY_TIMEOUT = 30.0  # seconds to wait for another process that answers in the same session: most answers are shorter
_MAX_REMEMBERED = 10_000  # message ids and rejected users in memory: bounds the memory of a bot that runs for months
_CLOSE_TIMEOUT = 10.0  # seconds for answers to end when the bot stops: stopping must not hang
NOT_ALLOWED = "You are not on my allow list. Ask the operator to add your user id: `{id}`"
EMPTY_MESSAGE = "I can read text, images and other files, but this message contains none of them."
STOPPED = "_(Stopped.)_"
CUT_OFF_BY_STOP = (
    "\u26a0\ufe0f _This answer was interrupted because I am stopping. The part above is saved: ask me to continue._"
)
Job = Callable[[], Awaitable[None]]


class _ChatQueue:
    """The pending jobs of one chat, the task that runs them, and the conversation of the chat."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.task: asyncio.Task[None] | None = None
        self.conversation: Conversation | None = None


class Dispatcher:
    """The dispatcher of one bot. `reach` returns the outlet for a message, also for one from before a restart.

    `search_everything` lets searches find messages of other chats. With `inherit`, a new thread begins as a fork of its
    parent. `refetch` downloads the files of a message again if a restart left it unanswered.
    """

    def __init__(
        self,
        agent: Agent,
        bot: str,
        reach: Callable[[Incoming], Outlet],
        access: AllowList,
        *,
        search_everything: bool = False,
        inherit: bool = False,
        patience: float = DELIVERY_TIMEOUT,
        refetch: Callable[[Incoming], Awaitable[Incoming | None]] | None = None,
    ) -> None:
        self.agent = agent
        self.ledger = Ledger(agent.store, bot)
        self.access = access
        self.reach, self.refetch = reach, refetch
        self._search_everything, self._inherit, self._patience = search_everything, inherit, patience
        self.approval_prompts = ApprovalPrompts(self.send_text, patience)
        """The pending approvals. An adapter passes each button press to press()."""
        self._platform = bot.partition(":")[0]
        self._queues: dict[str, _ChatQueue] = {}
        self._recent_ids: OrderedDict[str, None] = OrderedDict()
        self._rejected_users: set[str] = set()
        self.orphans: set[str] = set()
        """Sessions with a turn that an earlier process of this bot left open: the next answer takes it over."""
        self._closing = False

    @property
    def marks(self) -> Mapping[str, str]:
        """The read positions of the adapter, as of its last call of take() or mark()."""
        return self.ledger.marks

    async def open(self) -> None:
        """Load the ledger, mark answers that a restart cut off, and answer messages that were never read."""
        await self.ledger.load()
        for entry in self.ledger.entries:
            self._remember(entry.incoming)
            self._put(entry.incoming.session, recovery_job(self, entry))

    async def admit(self, incoming: Incoming) -> bool:
        """Return whether a message is addressed to the bot, new, and allowed. Fetch its files only after this.

        The bot sends NOT_ALLOWED once to a user who is not on the allow list and writes directly. In groups it stays
        silent.
        """
        if not incoming.is_addressed or self.knows(incoming):
            return False
        if self.access.allows(incoming):
            return True
        if (
            incoming.direct
            and incoming.author.id not in self._rejected_users
            and len(self._rejected_users) < _MAX_REMEMBERED
        ):
            self._rejected_users.add(incoming.author.id)
            with contextlib.suppress(RateLimited, DeliveryFailed):
                await self.reach(incoming).send(NOT_ALLOWED.format(id=incoming.author.id))
        return False

    def knows(self, incoming: Incoming) -> bool:
        """Return whether memory or the ledger has a message. Older ones are recognized by their idempotency key."""
        return incoming.name in self._recent_ids or self.ledger.has(incoming)

    async def take(self, incoming: Incoming, mark: tuple[str, str] | None = None) -> bool:
        """Store a message that was admitted, and queue its answer. Return False if it was accepted before.

        When this returns, the message is on disk, and the adapter may confirm it to the platform. `mark` stores the
        adapter's read position in the same write.
        """
        if self._closing or self.knows(incoming):
            return False
        self._remember(incoming)
        if slash_commands.parse_command(incoming.text) == (slash_commands.STOP, "") and self.stop(incoming.session):
            await self.ledger.mark(mark)
            return True
        await self.ledger.take(incoming, mark)
        if (
            not self._closing
        ):  # close() may have begun during the write; then the message is answered after the next start
            self._put(incoming.session, lambda: self.answer(incoming))
        return True

    async def mark(self, name: str, value: str) -> None:
        """Store a read position of the adapter that belongs to no message."""
        await self.ledger.mark((name, value))

    def stop(self, session: str) -> bool:
        """Stop the answer in progress in a session; return whether there was one."""
        queue = self._queues.get(session)
        return queue is not None and queue.conversation is not None and queue.conversation.stop()

    def _remember(self, incoming: Incoming) -> None:
        self._recent_ids[incoming.name] = None
        while len(self._recent_ids) > _MAX_REMEMBERED:
            self._recent_ids.popitem(last=False)

    def _queue(self, session: str) -> _ChatQueue:
        return self._queues.setdefault(session, _ChatQueue())

    def _put(self, session: str, job: Job) -> None:
        queue = self._queue(session)
        queue.jobs.append(job)
        if queue.task is None or queue.task.done():
            queue.task = asyncio.create_task(self._work(session, queue), name=f"chat {session}")

    async def _work(self, session: str, queue: _ChatQueue) -> None:
        """Run the jobs of one chat in order until its queue is empty."""
        while queue.jobs:
            job = queue.jobs.popleft()
            try:
                await job()
            except Exception:  # noqa: BLE001  no message may end the bot
                _log.exception("Could not answer a message in %s", session)
        # A conversation whose messages are not stored yet must stay: it holds them.
        if queue.conversation is None or not queue.conversation.held_count:
            self._queues.pop(session, None)

    async def settle(self) -> None:
        """Wait until all queues are empty."""
        while tasks := [
            queue.task for queue in self._queues.values() if queue.task is not None and not queue.task.done()
        ]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop the answers in progress, with a note in the chat. Queued messages are answered after the next start."""
        self._closing = True
        tasks: list[asyncio.Task[None]] = []
        for queue in self._queues.values():
            queue.jobs.clear()
            if queue.task is not None and not queue.task.done():
                tasks.append(queue.task)
                if queue.conversation is not None:
                    queue.conversation.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def answer(self, incoming: Incoming) -> None:
        """Answer one message, and remove it from the ledger when the answer is delivered."""
        outlet = self.reach(incoming)
        try:
            command = slash_commands.parse_command(incoming.text)
            if command is None:
                await self._answer_message(incoming, outlet)
            else:
                await self.send_text(outlet, await self._command(incoming, *command))
        except RecollectError as error:
            _log.warning("Could not answer a message in %s: %s", incoming.session, error)
            with contextlib.suppress(DeliveryFailed):
                await self.send_text(outlet, f"\u26a0\ufe0f {error}")
        except Exception as error:
            await self.ledger.done(incoming)
            with contextlib.suppress(DeliveryFailed):
                await self.send_text(outlet, f"\u26a0\ufe0f I could not answer this message: {type(error).__name__}.")
            raise
        await self.ledger.done(incoming)

    async def send_text(self, outlet: Outlet, text: str) -> None:
        """Send a text, in as many messages as it needs."""
        for piece in await asyncio.to_thread(
            split, text, outlet.limit, outlet.measure
        ):  # in a thread: splitting a long text takes hundreds of milliseconds
            await deliver_with_retry(lambda piece=piece: outlet.send(piece), self.patience)

    @property
    def patience(self) -> float:
        """Seconds for which a delivery is retried; shorter while the bot stops."""
        return min(self._patience, _CLOSE_TIMEOUT / 2) if self._closing else self._patience

    async def _command(self, incoming: Incoming, name: str, argument: str) -> str:
        if name == "fork" and argument.lower() in ("channel", "parent", "group"):
            return await self._fork_parent(incoming)
        conversation = await self.conversation(incoming)
        return (await slash_commands.run_command(conversation, name, argument)).text

    async def _fork_parent(self, incoming: Incoming) -> str:
        """Make the session of a thread a fork of its parent's session; return the reply."""
        store, session = self.agent.store, incoming.session
        parent = None if incoming.parent is None else await store.get_session(format_key(incoming.parent))
        if parent is None or not parent.message_count:
            return "There is no history to start from: this chat has no parent channel with messages."
        existing = await store.get_session(session)
        if existing is not None:
            if existing.message_count or len(await existing.branches.list()) > 1:
                return "This conversation already has messages. Use `/fork channel` in a new thread."
            await store.erase_session(session)
        await _fork_session(parent, incoming.session)
        [messages] = await store.shown_counts([parent])
        count_text = humanize.pluralize(messages, "message")
        return f"This conversation is a fork of `{parent.id}` and starts with its {count_text}."

    async def follow(self, chat: ConversationKey, old_chat: ConversationKey) -> None:
        """Continue the conversation of a chat under its new key, after the platform changed the chat's id."""
        store, session = self.agent.store, format_key(chat)
        old = await store.get_session(format_key(old_chat))
        if old is not None and old.message_count and await store.get_session(session) is None:
            await _fork_session(old, session, title=old.title)

    async def conversation(self, incoming: Incoming) -> Conversation:
        """Return the conversation of a message's chat."""
        queue = self._queue(incoming.session)
        if queue.conversation is None:
            session = await self._session(incoming)
            queue.conversation = await self.agent.conversation(session)
            queue.conversation.keeps_session, queue.conversation.prepare_message = True, present_to_model
            queue.conversation.search_session = None if self._search_everything else session.id
            if session.model is None:
                await session.update(model=queue.conversation.model.name)
        return queue.conversation

    async def _session(self, incoming: Incoming) -> AsyncSession:
        store = self.agent.store
        if self._inherit and incoming.parent is not None and await store.get_session(incoming.session) is None:
            parent = await store.get_session(format_key(incoming.parent))
            if parent is not None and parent.message_count:
                return await _fork_session(parent, incoming.session)
        return await store.session(incoming.session)

    async def _answer_message(self, incoming: Incoming, outlet: Outlet) -> None:
        """Send a message to the agent and show the answer while it streams."""
        draft = incoming.draft()
        if not draft.parts:
            await self.send_text(outlet, EMPTY_MESSAGE)
            return
        for note in incoming.notes:
            with contextlib.suppress(DeliveryFailed):
                await self.send_text(outlet, f"\u26a0\ufe0f {note}")
        conversation = await self.conversation(incoming)
        conversation.approvals.who = f"{self._platform}:{incoming.author.id}"
        conversation.approvals.approver = self.approval_prompts.approver(incoming, outlet)
        delivery = Delivery(outlet, lambda ids: self.ledger.record_sent(incoming, ids), patience=self.patience)
        delivery.begin()
        take_over = incoming.session in self.orphans
        self.orphans.discard(incoming.session)
        end_event: TurnEnded | None = None
        try:
            separator = ""
            async for event in conversation.send(draft, key=incoming.key(), wait=_BUSY_TIMEOUT, take_over=take_over):
                match event:
                    case TextDelta():
                        delivery.write(separator + event.text)
                        separator = ""
                    case Responded():
                        separator = "\n\n" if delivery.text.strip() else ""
                    case Notice() if event.level == "warning":
                        _log.warning("%s: %s", incoming.session, event.text)
                    case TurnEnded():
                        end_event = event
                    case _:
                        pass
        except (TurnExists, KeyReused):
            return  # the platform delivered the message twice, and it is already answered
        except SessionBusy:
            await self.send_text(
                outlet,
                "Another program is answering in this conversation. Send your message again when it has finished.",
            )
            return
        finally:
            await delivery.drop()
        await self._finish(delivery, end_event)

    async def _finish(self, delivery: Delivery, end_event: TurnEnded | None) -> None:
        """Show the end of an answer, with a note if it was stopped, cut off or empty."""
        note = ""
        if end_event is not None and not delivery.text.strip():
            delivery.write(end_event.text)
        if end_event is None or end_event.status == "cancelled":
            note = CUT_OFF_BY_STOP if self._closing else STOPPED
        elif end_event.status != "completed":
            note = f"\u26a0\ufe0f {end_event.error or 'The answer was interrupted.'}"
        elif not delivery.text.strip():
            note = "_(The model returned no answer.)_"
        elif end_event.truncated:
            note = f"\u26a0\ufe0f {display.TRUNCATED_NOTICE}"
        try:
            await delivery.finish(note, patience=self.patience)
        except DeliveryFailed as error:
            _log.warning("An answer was stored, but could not be delivered: %s", error)


async def _fork_session(parent: AsyncSession, session: str, title: str | None = None) -> AsyncSession:
    """Fork a session under the id of a chat."""
    channel, channel_id = session_ids.split_key(session)
    return await parent.fork(id=session, title=title, channel=channel, channel_id=channel_id, metadata=None)


CUT_OFF_BY_RESTART = (
    "\u26a0\ufe0f _This answer was interrupted because I was restarted. The part above is saved: ask me to continue._"
)
LOST_FILES = "\u26a0\ufe0f _I was restarted before I read this message and its files. Please send it again._"
_SEARCHED_MESSAGES = 500  # newest messages in which an unanswered one is looked up: far more than a restart can miss


class AnswerState(NamedTuple):
    """The state of a message in the store, and the text of its answer so far."""

    state: Literal["unread", "answered", "cut off", "open"]
    text: str = ""


def recovery_job(dispatcher: Dispatcher, entry: LedgerEntry) -> Callable[[], Awaitable[None]]:
    """Return the job that handles one ledger entry after a restart."""

    async def recover() -> None:
        incoming = entry.incoming
        answer = (
            AnswerState("unread")
            if slash_commands.parse_command(incoming.text)
            else await find_answer_state(dispatcher.agent.store, incoming)
        )
        if answer.state == "unread" and entry.files and dispatcher.refetch is not None:
            incoming = await dispatcher.refetch(incoming) or incoming
        if answer.state == "unread" and (incoming.attachments or not entry.files):
            await dispatcher.answer(incoming)
            return
        outlet = dispatcher.reach(incoming)
        if answer.state == "open":  # left by a process on another machine, whose liveness cannot be checked
            dispatcher.orphans.add(incoming.session)
        try:
            if answer.state == "unread":
                await dispatcher.send_text(outlet, LOST_FILES)
            else:
                note = "" if answer.state == "answered" else CUT_OFF_BY_RESTART
                if not (note and await _append_note(dispatcher, outlet, entry.sent, note)):
                    await _rewrite_answer(dispatcher, outlet, entry.sent, f"{answer.text}\n\n{note}".strip(), note)
        except DeliveryFailed as error:
            if error.retryable:
                return  # after the next start
        await dispatcher.ledger.done(incoming)

    return recover


async def find_answer_state(store: AsyncStore, incoming: Incoming) -> AnswerState:
    """Return the state of the answer to a message. Opening its session marks turns of dead processes as interrupted."""
    try:
        session = await store.session(incoming.session, create=False)
    except SessionNotFound:
        return AnswerState("unread")
    messages = await session.messages(_SEARCHED_MESSAGES)
    for index, message in enumerate(messages):
        if message.role == "user" and (message.metadata or {}).get("message_id") == incoming.id:
            return await _read_answer_state(session, message, messages[index + 1 :])
    return AnswerState("unread")


async def _read_answer_state(session: AsyncSession, question: Message, after: list[Message]) -> AnswerState:
    texts: list[str] = []
    for message in after:
        if message.role == "user":
            break
        if message.role == "assistant" and (text := message_text(message)):
            texts.append(text)
    status = next((turn.status for turn in await session.turns.list() if turn.id == question.id), "interrupted")
    state: Any = {"completed": "answered", "open": "open"}.get(status, "cut off")
    return AnswerState(state, "\n\n".join(texts))


async def _append_note(dispatcher: Dispatcher, outlet: Outlet, ids: list[str], note: str) -> bool:
    """Append a note to the visible answer, which may be longer than the stored one. Return False if it cannot."""
    if not ids or not isinstance(outlet, ReadableOutlet):
        return False
    current = await deliver_with_retry(lambda: outlet.read(ids[-1]), dispatcher.patience)
    new_text = f"{(current or '').removesuffix(CONTINUATION_MARK)}\n\n{note}"
    if current and outlet.measure(new_text) <= outlet.limit:
        await deliver_with_retry(lambda: outlet.edit(ids[-1], new_text), dispatcher.patience)
    else:
        await dispatcher.send_text(outlet, note)
    return True


async def _rewrite_answer(dispatcher: Dispatcher, outlet: Outlet, ids: list[str], text: str, note: str) -> None:
    """Write an answer over the messages that it already has, and send the remaining pieces."""
    pieces = await asyncio.to_thread(split, text, outlet.limit, outlet.measure)
    if len(pieces) < len(ids) or (ids and text == note):  # the person saw more than was stored: leave it visible
        await dispatcher.send_text(outlet, note)
        return
    for number, piece in enumerate(pieces):
        if number < len(ids):
            try:
                await deliver_with_retry(
                    lambda message=ids[number], piece=piece: outlet.edit(message, piece), dispatcher.patience
                )
            except DeliveryFailed as error:
                if error.retryable:
                    raise
            else:
                continue
        await deliver_with_retry(lambda piece=piece: outlet.send(piece), dispatcher.patience)
