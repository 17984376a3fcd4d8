"""TerminalConversation: the loop that reads a line, runs a command or asks the agent, and shows the events.

The menus for approvals and for sessions that another process uses never lose typed text. Messages from other windows
are shown above the prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import msgspec

from recollect.agent import approvals, commands
from recollect.agent.approvals import Approval, Decision, remote_approver
from recollect.agent.commands import resume_hint
from recollect.agent.conversation import Conversation
from recollect.agent.events import Event, TurnEnded, TurnStarted
from recollect.agent.presence import describe_presence
from recollect.errors import NotFound, RecollectError, SessionBusy, SessionTakenOver, StoreClosed, StoreError
from recollect.model.humanize import escape_unprintable, pluralize
from recollect.model.message import Message
from recollect.model.session import Presence

if TYPE_CHECKING:
    from recollect.channels.terminal.prompt import InputPrompt
    from recollect.channels.terminal.screen import Screen


class MenuOption(NamedTuple):
    """One choice of a menu. Its key is never a character of a text: letters typed at a menu are a message."""

    name: str
    text: str
    key: str = ""
    """In prompt_toolkit's notation, such as `c-t`. Options without a key are chosen with the arrow keys."""

    @property
    def label(self) -> str:
        """The key as shown in the menu."""
        return f"Ctrl-{self.key[-1].upper()}" if self.key else ""


class MenuChoice(NamedTuple):
    """The answer to a menu: the option's name, or None if a message was entered instead; and the text in the line."""

    name: str | None
    text: str = ""


class PendingInput:
    """Input that must not be lost while a menu is on the screen."""

    def __init__(self) -> None:
        self.line = ""
        """The initial text of the next input line."""
        self.messages: deque[str] = deque()
        """Messages and commands that were completed with Enter, in order."""

    def take(self, choice: MenuChoice) -> None:
        """Store the text of a menu choice: an entered message is sent, any other text stays in the input line."""
        if choice.name is None and choice.text.strip():
            self.line = ""
            self.messages.append(choice.text)
        else:
            self.line = choice.text

    def put_back(self, message: str) -> None:
        """Insert an unsent message into the input line, before text that was typed since."""
        self.line = f"{message}\n{self.line}" if self.line else message


_APPROVAL_OPTIONS = (
    MenuOption("once", "Allow this call", "c-y"),
    MenuOption("session", "Allow this tool in this conversation", "c-t"),
    MenuOption("always", "Always allow this tool", "c-k"),
    MenuOption("deny", "Do not run it", "c-n"),
)
_SHOW_ARGUMENTS = MenuOption("show", "Show all arguments")


class ApprovalMenu:
    """Asks for approval at the terminal. Events wait while the menu is shown: they would be drawn over it."""

    def __init__(self, screen: Screen, entry: InputPrompt, pending: PendingInput, stop: Callable[[], object]) -> None:
        self._screen = screen
        self._entry = entry
        self._pending = pending
        self._stop = stop
        self._deferred_events: list[Event] | None = None

    def defer(self, event: Event) -> bool:
        """Store an event while the menu is shown; return whether it was stored."""
        if self._deferred_events is None:
            return False
        self._deferred_events.append(event)
        return True

    async def approve(self, approval: Approval) -> Decision:
        """Ask until the person decides. Ctrl-C stops the answer."""
        self._deferred_events = []
        try:
            with self._screen.paused():
                full = self._screen.approval(approval)
                return await self._decision(approval, full=full)
        finally:
            events, self._deferred_events = self._deferred_events, None
            for event in events:
                self._screen.event(event)

    async def _decision(self, approval: Approval, *, full: bool) -> Decision:
        while True:
            options = _APPROVAL_OPTIONS if full else (*_APPROVAL_OPTIONS, _SHOW_ARGUMENTS)
            try:
                choice = await self._entry.choose(
                    options, initial=self._pending.line, default=None, text_hint="Enter sends it after this answer."
                )
            except asyncio.CancelledError:  # answered in another window, or the answer was stopped
                self._pending.line = self._entry.unsent
                raise
            except KeyboardInterrupt:
                self._stop()
                return await remote_approver(approval)
            except EOFError:
                self._pending.messages.append("/quit")
                return "deny"
            self._pending.take(choice)
            if choice.name == "show":
                full = self._screen.approval(approval, full=True)
            elif choice.name is not None:
                return cast("Decision", choice.name)


_POLL_SECONDS = 0.25  # between two polls of another window's turn; a person does not notice the delay
_FORK_OPTION = MenuOption("fork", "Continue in a fork", "c-f")
_PRESENCE_OPTIONS = (
    MenuOption("attach", "Attach: see the others' messages and take turns"),
    _FORK_OPTION,
    MenuOption("take", "Take over the conversation", "c-t"),
)
_BUSY_OPTIONS = (
    MenuOption("watch", "Watch it and wait"),
    _FORK_OPTION,
    MenuOption("take", "Take over the conversation and send", "c-t"),
    MenuOption("leave", "Do not send; keep it in the input line"),
)
_TAKEN_OVER_OPTIONS = (
    MenuOption("attach", "Attach again and send"),
    _FORK_OPTION,
    MenuOption("take", "Take back the conversation and send", "c-t"),
    MenuOption("leave", "Do not send; keep it in the input line"),
)


def presence_notice(presence: Presence) -> str:
    """Return a notice that a session is open elsewhere, with the time since when."""
    since = datetime.datetime.fromtimestamp(presence.since_at_ms / 1000).astimezone()
    today = since.date() == datetime.datetime.now().astimezone().date()
    name = describe_presence(presence)
    start = f"{since:{'%H:%M' if today else '%Y-%m-%d %H:%M'}}"
    return f"This conversation has been open in {name} since {start}."


class BusySessionMenu:
    """Asks what to do in a session that others use, and does it. Typed text is sent or stays in the input line."""

    def __init__(
        self,
        conversation: Conversation,
        screen: Screen,
        entry: InputPrompt,
        view: ConversationView,
        pending: PendingInput,
    ) -> None:
        self._conversation = conversation
        self._view = view
        self._screen = screen
        self._entry = entry
        self._pending = pending

    async def ask_on_arrival(self, others: Sequence[Presence]) -> bool:
        """Show who else has the session open and ask what to do; return whether the conversation continues.

        A message that is entered instead of a choice attaches and is sent.
        """
        for presence in others:
            self._screen.notice(presence_notice(presence), warning=True)
        try:
            choice = await self._entry.choose(
                _PRESENCE_OPTIONS, initial=self._pending.line, text_hint="Enter attaches and sends it."
            )
        except (EOFError, KeyboardInterrupt):
            return False
        self._pending.take(choice)
        if choice.name == "fork":
            self._screen.outcome(await commands.run(self._conversation, "/fork"))
        elif choice.name == "take":
            await self._conversation.arrive("terminal", take_over=True)
            self._screen.notice("You took over the conversation. The other windows were notified.")
        else:
            self._screen.notice("Attached. New messages of the other windows appear here.")
        return True

    async def choose(self, message: str, error: SessionBusy) -> None:
        """Ask what to do with a message that could not be sent, and do it."""
        holder = error.fields.get("holder", "another process")
        if isinstance(error, SessionTakenOver):
            await self._ask_after_takeover(message, holder)
            return
        self._screen.notice(f"Another window is waiting for an answer in this conversation ({holder}).", warning=True)
        name = await self._answer(_BUSY_OPTIONS)
        if name == "watch":
            await self._watch()
        await self._send_as_chosen(name, message)

    async def _ask_after_takeover(self, message: str, holder: str) -> None:
        self._screen.notice(f"This conversation was taken over by {holder}.", warning=True)
        name = await self._answer(_TAKEN_OVER_OPTIONS)
        if name == "attach":
            await self._conversation.arrive("terminal")
            await self._send(message)
        else:
            await self._send_as_chosen(name, message)

    async def _send_as_chosen(self, name: str | None, message: str) -> None:
        """Send the message in a fork or after a takeover; otherwise return it to the input line."""
        if name == "fork":
            self._screen.outcome(await commands.run(self._conversation, "/fork"))
            await self._send(message)
        elif name == "take":
            await self._send(message, take_over=True)
        else:
            self._pending.put_back(message)

    async def _send(self, message: str, *, take_over: bool = False) -> None:
        await send_and_show(self._conversation, message, self._view, take_over=take_over)

    async def _answer(self, options: Sequence[MenuOption]) -> str | None:
        """Return the choice, or None. A message that is entered instead stays in the input line."""
        try:
            choice = await self._entry.choose(options, text_hint="Enter keeps it in the input line.")
        except (EOFError, KeyboardInterrupt):
            return None
        self._pending.line = choice.text
        return choice.name

    async def _watch(self) -> None:
        """Show the messages of the other window's turn until it ends. Ctrl-C stops watching."""
        session = self._conversation.session
        last_position = max((message.position for message in await session.messages(1)), default=0)
        self._screen.notice("Watching. Press Ctrl-C to stop watching.")
        stopped = asyncio.Event()
        with stop_on_interrupt(stopped.set):
            while not stopped.is_set():
                for message in await session.messages(50):
                    if message.position > last_position and message.state != "streaming":
                        self._screen.message(message)
                        last_position = message.position
                if not any(turn.status == "open" for turn in (await session.turns.list())[-1:]):
                    break
                await asyncio.sleep(_POLL_SECONDS)
        self._screen.notice("The other answer is complete." if not stopped.is_set() else "Stopped watching.")


_MAX_FOLLOWED = 50  # latest messages that are read after a change; more than a turn usually stores
_RETRY_SECONDS = 2.0  # before watching again after the store failed


class Follower:
    """Shows messages of other windows. It is quiet while an answer or a picker uses the screen."""

    def __init__(self, conversation: Conversation, screen: Screen, entry: InputPrompt) -> None:
        self._conversation = conversation
        self._screen = screen
        self._entry = entry
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._quiet_count = 0
        self._own_turns: set[str] = set()
        self._session, self._branch, self._last_position = "", 0, 0
        self._last_turn: tuple[int, int | None] = (0, None)
        self._warning_shown = False
        self._approval_id = ""

    async def begin(self) -> None:
        """Watch the current session for messages after its present end."""
        session = self._conversation.session
        await self.settle()
        if self._task is None or self._session != session.id:
            await self.end()
            self._session, self._warning_shown = session.id, False
            self._task = asyncio.create_task(self._watch_session(session.id))

    async def settle(self) -> None:
        """Treat the current messages as shown."""
        session = self._conversation.session
        with contextlib.suppress(StoreError, NotFound):
            await session.refresh()
            self._branch = session.branch
            self._last_position = max((message.position for message in await session.messages(1)), default=0)

    def note(self, event: Event) -> None:
        """Remember the turns of this window."""
        if isinstance(event, TurnStarted) and event.turn is not None:
            self._own_turns.add(event.turn)

    @contextlib.contextmanager
    def quiet(self) -> Generator[None]:
        """Show nothing inside this context."""
        self._quiet_count += 1
        try:
            yield
        finally:
            self._quiet_count -= 1

    async def _watch_session(self, session: str) -> None:
        while True:
            try:
                async with self._conversation.session.store.watch(session) as changes:
                    async for _ in changes:
                        await self.show_new()
            except StoreClosed:
                return
            except (StoreError, NotFound):
                await asyncio.sleep(_RETRY_SECONDS)  # the conversation itself reports that the store fails

    async def show_new(self) -> None:
        """Show new messages, unless the screen is in use; its user calls this again afterwards."""
        if self._quiet_count or self._session != self._conversation.session.id:
            return
        async with self._lock:
            try:
                messages, rewind = await self._read_new()
                await self._report_takeover()
                await self._report_approval()
            except StoreError:
                return
            except NotFound as error:
                if not self._warning_shown:
                    self._warning_shown = True
                    await self._warn(str(error))
                return
            if messages or rewind:
                await self._entry.draw_above(lambda: self._show(messages, rewind=rewind))

    async def _read_new(self) -> tuple[list[Message], bool]:
        session = self._conversation.session
        await session.refresh()
        rewind = session.branch != self._branch
        self._branch = session.branch
        messages = await session.messages(_MAX_FOLLOWED)
        unfinished = [message for message in messages if message.state in ("streaming", "pending")]
        others = any(not self._is_own(message) for message in unfinished)
        self._entry.status("Another window is receiving an answer." if others else "")
        if unfinished:
            messages = messages[: messages.index(unfinished[0])]
        if rewind:
            messages = messages[-2:]  # the last exchange, to show where the conversation continues
        new_messages = [message for message in messages if rewind or message.position > self._last_position]
        self._last_position = max(
            (message.position for message in messages), default=0 if rewind else self._last_position
        )
        return [message for message in new_messages if not self._is_own(message)], rewind

    def _is_own(self, message: Message) -> bool:
        return f"{message.branch}.{message.turn}" in self._own_turns

    def _show(self, messages: list[Message], *, rewind: bool) -> None:
        if rewind:
            self._screen.notice("Another window rewound this conversation.")
        for message in messages:
            if message.turn is None or (message.branch, message.turn) != self._last_turn:
                self._screen.notice("From another window:")
            self._last_turn = (message.branch, message.turn)
            self._screen.message(message)

    async def _report_approval(self) -> None:
        """Show that a tool of another window waits for approval, which can be given here."""
        session = self._conversation.session
        approval = await approvals.pending_approval(session)
        if approval is None or approval.id == self._approval_id or approval.holder == session.store.holder:
            return
        self._approval_id = approval.id
        await self._warn(f"{approvals.question_text(approval)} Answer with /approve once, session, always or deny.")

    async def _report_takeover(self) -> None:
        presence_id = self._conversation.presence.id
        others = await self._conversation.session.presence.list()
        is_taken_over = presence_id is not None and all(presence.id != presence_id for presence in others)
        if is_taken_over and not self._warning_shown:
            names = ", ".join(describe_presence(presence) for presence in others) or "Another window"
            await self._warn(f"This conversation was taken over by {names}. You can still read it.")
        self._warning_shown = is_taken_over

    async def _warn(self, text: str) -> None:
        await self._entry.draw_above(lambda: self._screen.notice(text, warning=True))

    async def end(self) -> None:
        """Stop watching."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


_SHOWN_MESSAGES = 6  # latest messages that are shown at start: about one screen
_HISTORY_MESSAGES = 200  # latest messages that the Up key reaches
_MAX_COMPLETED_SESSIONS = 200  # latest sessions that /resume completes


class ConversationView(Protocol):
    """Shows a conversation: on a screen, as plain text, or as JSON lines."""

    def event(self, event: Event) -> None:
        """Show an event."""
        ...

    def outcome(self, outcome: commands.CommandOutcome) -> None:
        """Show the outcome of a command."""
        ...


@contextlib.contextmanager
def stop_on_interrupt(stop: Callable[[], object]):  # noqa: ANN201  its type adds nothing to the decorator
    """Call `stop` on Ctrl-C inside this context, instead of ending the program."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, RuntimeError, ValueError):
        yield  # not on this platform, or not in the main thread
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def send_and_show(
    conversation: Conversation, message: str, view: ConversationView, *, wait: float = 0.0, take_over: bool = False
) -> TurnEnded | None:
    """Send a message and show the answer."""
    end_event: TurnEnded | None = None
    with stop_on_interrupt(conversation.stop):
        async for event in conversation.send(message, wait=wait, take_over=take_over):
            view.event(event)
            if isinstance(event, TurnEnded):
                end_event = event
    return end_event


async def run_once(conversation: Conversation, message: str, view: ConversationView) -> int:
    """Send one message or command without a terminal; return the exit status."""
    if commands.is_command(message):
        outcome = await commands.run(conversation, message)
        view.outcome(outcome)
        return int(outcome.failed)
    end_event = await send_and_show(conversation, message, view)
    for event in conversation.notices():
        view.event(event)
    return 0 if end_event is not None and end_event.status == "completed" else 1


class TerminalConversation:
    """A conversation with a person at a terminal."""

    def __init__(self, conversation: Conversation, screen: Screen, entry: InputPrompt) -> None:
        self.conversation = conversation
        self._screen = screen
        self._entry = entry
        self._pending = PendingInput()
        self._busy_menu = BusySessionMenu(conversation, screen, entry, self, self._pending)
        self._follower = Follower(conversation, screen, entry)
        self._approval_menu = ApprovalMenu(screen, entry, self._pending, conversation.stop)
        conversation.approvals.approver = self._approval_menu.approve
        self._announced_session = ""

    async def run(self) -> None:
        """Run until the person quits."""
        with contextlib.suppress(StoreError):  # the conversation works without presence, and without a store
            await self.conversation.arrive("terminal")
        running = await self._show_session()
        while running:
            await self._follower.show_new()
            for event in self.conversation.notices():
                self._screen.event(event)
            text = await self._read()
            if text is None:
                return
            with self._follower.quiet():
                running = await self._handle(text)

    async def _handle(self, text: str) -> bool:
        """Run a command or send a message; return whether to continue."""
        if commands.is_command(text):
            return await self._command(text)
        await self._send(text)
        return True

    async def _read(self) -> str | None:
        """Read an input; return None if the person quits."""
        if self._pending.messages:
            message = self._pending.messages.popleft().strip()
            self._screen.user_message(message)
            return message
        initial, self._pending.line = self._pending.line, ""
        while True:
            try:
                text = (await self._entry.read(initial)).strip()
            except KeyboardInterrupt:
                initial = ""
                self._screen.notice("Press Ctrl-D to quit.")
                continue
            except EOFError:
                return None
            if text:
                return text

    async def _send(self, message: str) -> None:
        try:
            await send_and_show(self.conversation, message, self)
        except SessionBusy as error:
            session_id = self.conversation.session.id
            await self._busy_menu.choose(message, error)
            if self.conversation.session.id != session_id:
                await self._follower.begin()
        except RecollectError as error:
            self._pending.put_back(message)
            self._screen.notice(str(error), warning=True)

    def event(self, event: Event) -> None:
        """Show an event of this window's turn."""
        self._follower.note(event)
        if not self._approval_menu.defer(event):
            self._screen.event(event)

    def outcome(self, outcome: commands.CommandOutcome) -> None:
        """Show the outcome of a command."""
        self._screen.outcome(outcome)

    async def _command(self, line: str) -> bool:
        """Run a command; return whether to continue."""
        outcome = await commands.run(self.conversation, line)
        if outcome.action == "pick":
            from recollect.channels.terminal.picker import Picker  # noqa: PLC0415  rarely needed

            session_id = await Picker(self.conversation.session.store).run()
            if session_id is None:
                return True
            outcome = await commands.resume(self.conversation, session_id)
        self._screen.outcome(outcome)
        if outcome.action in ("moved", "edit") and not outcome.failed and not await self._show_session():
            return False
        await self._follower.settle()
        if outcome.action == "edit":
            self._pending.put_back(str(outcome.data))
        return outcome.action != "quit"

    async def _show_session(self) -> bool:
        """Show the session, its latest messages and who else has it open; return whether to continue."""
        await self._show_transcript()
        await self._follower.begin()
        if self._announced_session == self.conversation.session.id:
            return True
        others: list[Presence] = []
        with contextlib.suppress(StoreError):
            others = await self.conversation.presence.others()
        session_id = self._announced_session = self.conversation.session.id
        if others and not await self._busy_menu.ask_on_arrival(others):
            return False
        if self.conversation.session.id != session_id:
            self._announced_session = self.conversation.session.id
            await self._follower.begin()
        return True

    async def _show_transcript(self) -> None:
        session = self.conversation.session
        title = session.title or ("New conversation" if not session.message_count else escape_unprintable(session.id))
        self._screen.welcome(
            title,
            f"{self.conversation.model.name} \u00b7 {escape_unprintable(session.id)} \u00b7 /help lists the commands",
        )
        if session.title:
            self._screen.set_title(session.title)
        messages = await session.messages(_HISTORY_MESSAGES)
        self._screen.show_history(messages[-_SHOWN_MESSAGES:], await self._count_earlier(messages[-_SHOWN_MESSAGES:]))
        self._entry.remember([message.text for message in messages if message.role == "user" and message.text])
        sessions = await session.store.list_sessions(_MAX_COMPLETED_SESSIONS)
        self._entry.completer.sessions = [(other.id, other.title or "") for other in sessions if other.id != session.id]

    async def _count_earlier(self, visible: Sequence[Message]) -> int:
        """Return the number of earlier messages, without tool steps."""
        if not visible:
            return 0
        [earlier] = await self.conversation.session.shown_counts([(0, visible[0].position - 1)])
        return earlier

    async def leave(self) -> None:
        """Close the conversation; write messages that could not be stored to a file."""
        await self._follower.end()
        if not await self.conversation.close():
            self._screen.notice(save_unsaved(self.conversation), warning=True)


def save_unsaved(conversation: Conversation) -> str:
    """Write messages that could not be stored to a file, and return a notice with its path."""
    unsaved = conversation.unsaved()
    message = f"{pluralize(len(unsaved), 'message')} could not be stored: the database is still unavailable."
    try:
        handle, path = tempfile.mkstemp(prefix="recollect-unsaved-", suffix=".jsonl")
        with os.fdopen(handle, "wb") as file:
            file.writelines(msgspec.json.encode(draft) + b"\n" for draft in unsaved)
    except (OSError, ValueError) as error:
        return f"{message} They could not be written to a file either: {error}"
    return f"{message} They are in {path}, one per line."


def resume_message(conversation: Conversation) -> str:
    """Return a notice with the command that resumes the conversation."""
    return f"Resume with: {resume_hint(conversation.session)}"
