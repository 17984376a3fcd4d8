"""The bot itself: it reads what comes in the order it came, hands it to the desk, and stops when it is told to.

An update is confirmed to Telegram by asking for the next ones, and that is done only when the desk has it on disk. How
far was read is kept too, so that nothing is read twice after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from telegram import Bot, BotCommand, CallbackQuery, Message, Update, User
from telegram.error import Conflict, EndPointNotFound, InvalidToken, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from recollect.agent import Agent
from recollect.channels.bot import Access, Desk, Incoming, Secrets
from recollect.channels.bot.command import described
from recollect.channels.telegram import files, reading
from recollect.channels.telegram.outlet import TelegramOutlet, seconds
from recollect.channels.telegram.updates import UpdatesRequest
from recollect.errors import BotRefused, RecollectError
from recollect.model import keys

_log = logging.getLogger(__name__)
_MARK = "updates"
_LONGEST_PAUSE = 30.0
_CONFLICTS = 5
ADDRESS = "https://api.telegram.org"


class Settings(NamedTuple):
    """How the bot is set up. Times are in seconds; `pace` is None for what Telegram allows."""

    token: str
    base_url: str = ADDRESS
    users: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()
    max_file_size: int = 20_000_000
    search_everything: bool = False
    inherit: bool = False
    poll: int = 30
    pause: float = 1.0
    pace: float | None = None


class TelegramBot:
    """One bot. `run()` talks until `stop()` is called."""

    def __init__(self, agent: Agent, settings: Settings, tell: Callable[[str], None] = lambda _: None) -> None:
        self._agent = agent
        self._settings = settings
        self._tell = tell
        self._secrets = Secrets(settings.token)
        self._stopped = asyncio.Event()
        with self._secrets.hidden():
            self._bot = _library(settings)

    def stop(self) -> None:
        """Have run() end: answers in progress end, and say so."""
        self._stopped.set()

    async def run(self) -> None:
        """Talk until stopped. What can not be mended by waiting is a BotRefused, without the token in it."""
        with self._secrets.hidden():
            try:
                await self._run()
            except TelegramError as error:
                raise self._refused(error) from None
            finally:
                await self._bot.shutdown()

    async def _run(self) -> None:
        me = await self._begun()
        if me is None:
            return
        settings = self._settings
        access = Access(users=settings.users, guilds=settings.chats)
        desk = Desk(
            self._agent, f"telegram:{me.id}", self._reach, access, everything=settings.search_everything,
            inherit=settings.inherit,
        )  # fmt: skip
        try:
            await desk.open()
            self._tell(_welcome(me, access))
            await self._poll(desk, me)
        finally:
            await desk.close()

    def _reach(self, incoming: Incoming) -> TelegramOutlet:
        return TelegramOutlet(self._bot, incoming, self._secrets, self._settings.pace)

    async def _begun(self) -> User | None:
        """Say hello to Telegram; wait for a network that is not there yet. None where it was stopped meanwhile."""
        pause = self._settings.pause
        while not self._stopped.is_set():
            try:
                await self._bot.initialize()
                me = await self._bot.get_me()
                await self._bot.set_my_commands([BotCommand(name, does[:256]) for name, _, does in described()])
            except (InvalidToken, EndPointNotFound) as error:
                raise self._refused(error) from None
            except TelegramError as error:
                wait = _wait(error, pause)
                self._tell(f"Telegram can not be reached: {self._secrets.hide(str(error))}. Trying again.")
                await self._rest(wait)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                return me
        return None

    async def _rest(self, seconds: float) -> None:
        """Wait, or stop waiting when the bot is stopped."""
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except TimeoutError:
            return

    async def _poll(self, desk: Desk, me: User) -> None:
        """Read and hand over, until stopped."""
        offset = int(desk.marks.get(_MARK, 0)) + 1
        pause, conflicts, reached = self._settings.pause, 0, True
        while not self._stopped.is_set():
            try:
                updates = await self._updates(offset)
            except InvalidToken as error:
                raise self._refused(error) from None
            except Conflict as error:
                conflicts += 1
                if conflicts >= _CONFLICTS:  # one that ends at once is the end of this bot's own last start
                    raise self._refused(error) from None
                await self._rest(pause)
            except TelegramError as error:
                if reached:
                    _log.warning("Telegram can not be reached, and is tried again: %s", error)
                reached = False
                await self._rest(_wait(error, pause))
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                pause, conflicts, reached = self._settings.pause, 0, True
                if updates:
                    offset = max(offset, await self._take(desk, me, updates) + 1)

    async def _updates(self, offset: int) -> Sequence[Update]:
        """Ask for what came, until the bot is stopped."""
        asking = asyncio.ensure_future(
            self._bot.get_updates(offset, timeout=self._settings.poll, allowed_updates=["message", "callback_query"])
        )
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait([asking, stopping], return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else ()
        finally:
            for task in (asking, stopping):
                task.cancel()
            await asyncio.wait([asking, stopping])

    async def _take(self, desk: Desk, me: User, updates: Sequence[Update]) -> int:
        """Hand a batch to the desk: each place's in order, places beside each other. Give the last update's id."""
        places: defaultdict[tuple[int, int | None], list[list[Message]]] = defaultdict(list)
        for update in updates:
            if update.callback_query is not None:
                await self._pressed(desk, update.callback_query)
            if update.message is not None:
                _gather(places[update.message.chat.id, update.message.message_thread_id], update.message)
        await asyncio.gather(*(self._place(desk, me, albums) for albums in places.values()))
        last = max(update.update_id for update in updates)
        await desk.mark(_MARK, str(last))
        return last

    async def _pressed(self, desk: Desk, query: CallbackQuery) -> None:
        """Take the press of a button. Telegram shows a spinner on it until it is answered."""
        told = desk.questions.press(query.data or "", str(query.from_user.id))
        try:
            await self._bot.answer_callback_query(query.id, told)
        except TelegramError as error:
            _log.warning("The press of a button could not be answered: %s", self._secrets.hide(str(error)))

    async def _place(self, desk: Desk, me: User, albums: list[list[Message]]) -> None:
        for album in albums:
            try:
                await self._hear(desk, me, album)
            except Exception:  # noqa: BLE001  the bot outlives every message
                _log.exception("A message could not be taken")

    async def _hear(self, desk: Desk, me: User, album: list[Message]) -> None:
        first = album[0]
        if first.migrate_from_chat_id is not None:
            here, before = keys.TelegramChat(str(first.chat.id)), keys.TelegramChat(str(first.migrate_from_chat_id))
            await desk.follow(here, before)
            return
        read = [incoming for message in album if (incoming := reading.incoming(message, me)) is not None]
        if not read:
            return
        incoming = _joined(read)
        if not await desk.admit(incoming):
            return
        listed = [file for message in album for file in files.found(message)]
        came, notes = await files.fetched(self._bot, listed, self._settings.max_file_size)
        await desk.take(msgspec.structs.replace(incoming, attachments=tuple(came), notes=tuple(notes)))

    def _refused(self, error: TelegramError) -> RecollectError:
        told = self._secrets.hide(str(error)).rstrip(".")
        if isinstance(error, InvalidToken | EndPointNotFound):
            reason = "it does not know the token. Check channels.telegram.token, or ask @BotFather for a new one"
        elif isinstance(error, Conflict) and "webhook" in told.lower():
            reason = f"{told}. Remove the webhook of this bot (deleteWebhook), then start again"
        elif isinstance(error, Conflict):
            reason = "another program reads the messages of this bot. Stop it, or give each program a bot of its own"
        else:
            reason = told
        return BotRefused(platform="Telegram", reason=reason)


def _library(settings: Settings) -> Bot:
    base = settings.base_url.rstrip("/")
    return Bot(
        settings.token,
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=HTTPXRequest(connection_pool_size=64, pool_timeout=30.0, read_timeout=20.0),
        get_updates_request=UpdatesRequest(connection_pool_size=2, read_timeout=20.0),
    )


def _gather(albums: list[list[Message]], message: Message) -> None:
    """Put pictures that were sent together into one message, as the person sees them."""
    group = message.media_group_id
    if group is not None and albums and albums[-1][0].media_group_id == group:
        albums[-1].append(message)
    else:
        albums.append([message])


def _joined(read: list[Incoming]) -> Incoming:
    """Make one message of an album: it is called where one of them is."""
    called = next((incoming for incoming in read if incoming.addressed), read[0])
    text = "\n\n".join(incoming.text for incoming in read if incoming.text)
    return msgspec.structs.replace(called, id=read[0].id, text=text)


def _wait(error: TelegramError, pause: float) -> float:
    """Say how long to wait after a failure."""
    return seconds(error.retry_after) if isinstance(error, RetryAfter) else pause


def _welcome(me: User, access: Access) -> str:
    name = f"@{me.username}" if me.username else me.full_name
    if access.nobody:
        return (
            f"This is {name} on Telegram. Nobody may talk to it yet: write to it, and it answers with your id, which "
            f"goes into channels.telegram.allow."
        )
    who = [f"{len(access.users)} people" if len(access.users) != 1 else "1 person"] if access.users else []
    who += [f"{len(access.guilds)} groups" if len(access.guilds) != 1 else "1 group"] if access.guilds else []
    return f"This is {name} on Telegram. {' and '.join(who)} may talk to it. Ctrl-C stops it."
