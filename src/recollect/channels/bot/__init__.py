"""The part of a bot that does not depend on a platform. The adapters are channels/discord and channels/telegram.

    incoming.py          Incoming, Author and IncomingFile; AllowList; how a message is presented to the model
    dispatcher.py        Dispatcher: one FIFO queue per chat, each message answered once; recovery after a restart
    ledger.py            Ledger: the messages that are accepted and not answered yet
    delivery.py          Outlet; Delivery: an answer shown while it streams
    chat_markdown.py     splitting long answers into messages; Markdown tables for platforms without tables
    approval_prompts.py  asking for approval of a tool call with buttons
    slash_commands.py    the slash commands of a bot
    token_redaction.py   Secrets: keeps a bot's token out of logs and errors

How an adapter uses it:

    secrets = Secrets(token)
    with secrets.hidden():                                       # no log record of any library contains the token
        async with agent:
            dispatcher = Dispatcher(agent, "discord:BOT_ID", reach, AllowList(users, guilds, roles), inherit=...)
            await dispatcher.open()                              # resumes after a restart; then read dispatcher.marks
            ...                                                  # for each message of the platform:
            incoming = Incoming(id=..., place=DiscordChannelKey("42"), author=Author(id, name), text=...)
            if await dispatcher.admit(incoming):                 # addressed to the bot, new and allowed
                incoming = msgspec.structs.replace(incoming, attachments=await fetch())
                await dispatcher.take(incoming, mark=("42", message_id))  # stored; answered in the background
            ...
            await dispatcher.close()                             # stops answers in progress, with a note in the chat

`reach(incoming)` returns an Outlet: limit, pace, gathers, measure(text), and async send(text) -> id, edit(id, text),
typing(). It is also called for messages from before a restart, so it must need nothing but the Incoming (its place,
guild and `extra`, which is the adapter's own JSON). Outlets raise errors.RateLimited or errors.DeliveryFailed
and nothing else. Texts are Markdown: the adapter renders them, with chat_markdown.render_tables() if the platform has
no tables. Slash commands of the platform become `Incoming(text="/rename A title", ...)`;
slash_commands.list_commands() returns (name, arguments, help) to register. Remove mentions of the bot from `text`.
"""

from __future__ import annotations

from recollect.channels.bot.chat_markdown import split, utf16_length
from recollect.channels.bot.delivery import Button, Outlet
from recollect.channels.bot.dispatcher import Dispatcher
from recollect.channels.bot.incoming import AllowList, Author, Incoming, IncomingFile
from recollect.channels.bot.token_redaction import Secrets

__all__ = [
    "AllowList",
    "Author",
    "Button",
    "Dispatcher",
    "Incoming",
    "IncomingFile",
    "Outlet",
    "Secrets",
    "split",
    "utf16_length",
]
