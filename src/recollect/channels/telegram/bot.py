"""TelegramBot: reads updates in order, passes them to the dispatcher, and stops on request.

Requesting the next updates confirms the previous ones to Telegram; the bot does so only after the dispatcher stored
them. The read position is stored too, so that nothing is read twice after a restart. Updates are parsed one by one,
because the library drops a whole batch for one update that it cannot parse.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from telegram import Bot, BotCommand, CallbackQuery, Message, Update, User
from telegram.error import Conflict, EndPointNotFound, InvalidToken, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from recollect.agent import Agent
from recollect.channels.bot import AllowList, Dispatcher, Incoming, Secrets
from recollect.channels.bot.slash_commands import list_commands
from recollect.channels.conversation_keys import TelegramChatKey
from recollect.channels.telegram import messages
from recollect.channels.telegram.outlet import TelegramOutlet, to_seconds
from recollect.errors import BotRejected, RecollectError

_log = logging.getLogger(__name__)


class UpdatesRequest(HTTPXRequest):
    """The connection for getUpdates, which drops malformed updates one by one."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse a response. A malformed update becomes an empty one, so that it is confirmed too."""
        answer: Any = HTTPXRequest.parse_json_payload(payload)
        if not isinstance(answer, dict):
            return {"ok": False, "result": [], "description": "Telegram's response is not a JSON object"}
        if isinstance(answer.get("result"), list):
            return {
                **answer,
                "result": [update for raw in answer["result"] if (update := _check_update(raw)) is not None],
            }
        return answer


def _check_update(raw: Any) -> dict[str, Any] | None:
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    if not isinstance(update_id, int):
        _log.warning("Skipped an update of Telegram without an id")
        return None
    try:
        Update.de_json(raw, None)
    except Exception as error:  # noqa: BLE001  no update may end the bot
        _log.warning("Skipped the malformed update %s: %s", update_id, type(error).__name__)
        return {"update_id": update_id}
    return raw


_READ_MARK = "updates"
_MAX_PAUSE = 30.0  # seconds between two tries while Telegram cannot be reached
_MAX_CONFLICTS = 5  # conflicts in a row before the bot ends: its own last request may still be open after a restart
API_URL = "https://api.telegram.org"


class TelegramOptions(NamedTuple):
    """The options of a bot. Times are in seconds, sizes in bytes. `pace` None: the interval that Telegram allows."""

    token: str
    base_url: str = API_URL
    users: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()
    max_file_size: int = 20_000_000
    search_everything: bool = False
    inherit: bool = False
    poll: int = 30
    pause: float = 1.0
    pace: float | None = None


class TelegramBot:
    """One bot. `run()` answers until `stop()` is called."""

    def __init__(self, agent: Agent, settings: TelegramOptions, notify: Callable[[str], None] = lambda _: None) -> None:
        self._agent = agent
        self._settings = settings
        self._notify = notify
        self._secrets = Secrets(settings.token)
        self._stopped = asyncio.Event()
        with self._secrets.hidden():
            self._bot = _build_bot(settings)

    def stop(self) -> None:
        """Make run() return. Answers in progress are stopped, with a note in the chat."""
        self._stopped.set()

    async def run(self) -> None:
        """Answer until stopped. Raises BotRejected, without the token in it, for errors that a retry cannot fix."""
        with self._secrets.hidden():
            try:
                await self._run()
            except TelegramError as error:
                raise self._rejection(error) from None
            finally:
                await self._bot.shutdown()

    async def _run(self) -> None:
        me = await self._connect()
        if me is None:
            return
        settings = self._settings
        access = AllowList(users=settings.users, guilds=settings.chats)
        dispatcher = Dispatcher(
            self._agent, f"telegram:{me.id}", self._reach, access, search_everything=settings.search_everything,
            inherit=settings.inherit,
        )  # fmt: skip
        try:
            await dispatcher.open()
            self._notify(_welcome_text(me, access))
            await self._poll(dispatcher, me)
        finally:
            await dispatcher.close()

    def _reach(self, incoming: Incoming) -> TelegramOutlet:
        return TelegramOutlet(self._bot, incoming, self._secrets, self._settings.pace)

    async def _connect(self) -> User | None:
        """Connect and register the commands; retry while the network fails. Return None if stopped meanwhile."""
        pause = self._settings.pause
        while not self._stopped.is_set():
            try:
                await self._bot.initialize()
                me = await self._bot.get_me()
                await self._bot.set_my_commands([BotCommand(name, help[:256]) for name, _, help in list_commands()])
            except (InvalidToken, EndPointNotFound) as error:
                raise self._rejection(error) from None
            except TelegramError as error:
                wait = _retry_delay(error, pause)
                self._notify(f"Cannot reach Telegram: {self._secrets.redact(str(error))}. Retrying.")
                await self._sleep(wait)
                pause = min(pause * 2, _MAX_PAUSE)
            else:
                return me
        return None

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the time is over or the bot is stopped."""
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except TimeoutError:
            return

    async def _poll(self, dispatcher: Dispatcher, me: User) -> None:
        """Read updates and pass them to the dispatcher until stopped."""
        offset = int(dispatcher.marks.get(_READ_MARK, 0)) + 1
        pause, conflicts, is_reachable = self._settings.pause, 0, True
        while not self._stopped.is_set():
            try:
                updates = await self._updates(offset)
            except InvalidToken as error:
                raise self._rejection(error) from None
            except Conflict as error:
                conflicts += 1
                if conflicts >= _MAX_CONFLICTS:  # the previous process of this bot causes a few at a restart
                    raise self._rejection(error) from None
                await self._sleep(pause)
            except TelegramError as error:
                if is_reachable:
                    _log.warning("Cannot reach Telegram, retrying: %s", error)
                is_reachable = False
                await self._sleep(_retry_delay(error, pause))
                pause = min(pause * 2, _MAX_PAUSE)
            else:
                pause, conflicts, is_reachable = self._settings.pause, 0, True
                if updates:
                    offset = max(offset, await self._take(dispatcher, me, updates) + 1)

    async def _updates(self, offset: int) -> Sequence[Update]:
        """Return the next updates; empty if the bot is stopped."""
        request = asyncio.ensure_future(
            self._bot.get_updates(offset, timeout=self._settings.poll, allowed_updates=["message", "callback_query"])
        )
        stop_wait = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait([request, stop_wait], return_when=asyncio.FIRST_COMPLETED)
            return request.result() if request.done() else ()
        finally:
            for task in (request, stop_wait):
                task.cancel()
            await asyncio.wait([request, stop_wait])

    async def _take(self, dispatcher: Dispatcher, me: User, updates: Sequence[Update]) -> int:
        """Pass a batch to the dispatcher, in order per chat and chats concurrently; return the last update id."""
        chats: defaultdict[tuple[int, int | None], list[list[Message]]] = defaultdict(list)
        for update in updates:
            if update.callback_query is not None:
                await self._handle_button(dispatcher, update.callback_query)
            if update.message is not None:
                _add_to_albums(chats[update.message.chat.id, update.message.message_thread_id], update.message)
        await asyncio.gather(*(self._handle_chat(dispatcher, me, albums) for albums in chats.values()))
        last = max(update.update_id for update in updates)
        await dispatcher.mark(_READ_MARK, str(last))
        return last

    async def _handle_button(self, dispatcher: Dispatcher, query: CallbackQuery) -> None:
        """Handle a button press. Telegram shows a spinner on the button until it is answered."""
        reply = dispatcher.approval_prompts.press(query.data or "", str(query.from_user.id))
        try:
            await self._bot.answer_callback_query(query.id, reply)
        except TelegramError as error:
            _log.warning("Could not answer a button press: %s", self._secrets.redact(str(error)))

    async def _handle_chat(self, dispatcher: Dispatcher, me: User, albums: list[list[Message]]) -> None:
        for album in albums:
            try:
                await self._handle_album(dispatcher, me, album)
            except Exception:  # noqa: BLE001  no message may end the bot
                _log.exception("Could not accept a message")

    async def _handle_album(self, dispatcher: Dispatcher, me: User, album: list[Message]) -> None:
        first = album[0]
        if first.migrate_from_chat_id is not None:
            chat, old_chat = (
                TelegramChatKey(str(first.chat.id)),
                TelegramChatKey(str(first.migrate_from_chat_id)),
            )
            await dispatcher.follow(chat, old_chat)
            return
        incomings = [incoming for message in album if (incoming := messages.to_incoming(message, me)) is not None]
        if not incomings:
            return
        incoming = _join_album(incomings)
        if not await dispatcher.admit(incoming):
            return
        files = [file for message in album for file in messages.list_files(message)]
        attachments, notes = await messages.fetch_files(self._bot, files, self._settings.max_file_size)
        await dispatcher.take(msgspec.structs.replace(incoming, attachments=tuple(attachments), notes=tuple(notes)))

    def _rejection(self, error: TelegramError) -> RecollectError:
        text = self._secrets.redact(str(error)).rstrip(".")
        if isinstance(error, InvalidToken | EndPointNotFound):
            reason = "the token is unknown. Check channels.telegram.token, or get a new one from @BotFather"
        elif isinstance(error, Conflict) and "webhook" in text.lower():
            reason = f"{text}. Remove the webhook of this bot (deleteWebhook), then start the bot again"
        elif isinstance(error, Conflict):
            reason = "another program reads the messages of this bot. Stop it, or use a separate bot for each program"
        else:
            reason = text
        return BotRejected(platform="Telegram", reason=reason)


def _build_bot(settings: TelegramOptions) -> Bot:
    base = settings.base_url.rstrip("/")
    return Bot(
        settings.token,
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=HTTPXRequest(connection_pool_size=64, pool_timeout=30.0, read_timeout=20.0),
        get_updates_request=UpdatesRequest(connection_pool_size=2, read_timeout=20.0),
    )


def _add_to_albums(albums: list[list[Message]], message: Message) -> None:
    """Add a message to the album that it was sent with, or start a new one."""
    group = message.media_group_id
    if group is not None and albums and albums[-1][0].media_group_id == group:
        albums[-1].append(message)
    else:
        albums.append([message])


def _join_album(incomings: list[Incoming]) -> Incoming:
    """Return one message for an album, addressed to the bot if one of its messages is."""
    addressee = next((incoming for incoming in incomings if incoming.is_addressed), incomings[0])
    text = "\n\n".join(incoming.text for incoming in incomings if incoming.text)
    return msgspec.structs.replace(addressee, id=incomings[0].id, text=text)


def _retry_delay(error: TelegramError, pause: float) -> float:
    """Return the seconds to wait after a failure."""
    return to_seconds(error.retry_after) if isinstance(error, RetryAfter) else pause


def _welcome_text(me: User, access: AllowList) -> str:
    name = f"@{me.username}" if me.username else me.full_name
    if access.is_empty:
        return (
            f"Connected to Telegram as {name}. Its allow list is empty: send it a message, and it replies with your "
            f"user id. Add the id to channels.telegram.allow."
        )
    groups = [f"{len(access.users)} people" if len(access.users) != 1 else "1 person"] if access.users else []
    groups += [f"{len(access.guilds)} groups" if len(access.guilds) != 1 else "1 group"] if access.guilds else []
    return f"Connected to Telegram as {name}. Allowed to use it: {' and '.join(groups)}. Press Ctrl-C to stop."
