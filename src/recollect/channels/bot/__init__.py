"""What every bot shares. An adapter knows its platform and nothing of talks; this room knows talks and no platform.

    incoming.py    a message as a value: Incoming, Author, Attachment
    access.py      who may talk: Access
    desk.py        one line per place, each message answered once: Desk; ledger.py: what is taken on; recovery.py
    delivery.py    an answer shown while it comes; outlet.py: where it goes (Outlet, SlowDown, Undelivered)
    splitting.py   long answers in pieces; tables.py: Markdown tables for platforms that have none
    approving.py   a tool that waits for approval: a message with buttons (Askable outlets), and who pressed one
    presenting.py  what the model sees of a message; command.py: the slash commands; secret.py: keeping a token hidden

How an adapter uses it:

    secrets = Secrets(token)
    with secrets.hidden():                                       # no log record of any library shows the token
        async with agent:
            desk = Desk(agent, "discord:BOT_ID", reach, Access(users, guilds, roles), inherit=...)
            await desk.open()                                    # takes up what a restart left; then see desk.marks
            ...                                                  # for each message of the platform:
            incoming = Incoming(id=..., place=keys.DiscordChannel("42"), author=Author(id, name), text=..., ...)
            if await desk.admit(incoming):                       # addressed, new, allowed; a stranger is told once
                incoming = msgspec.structs.replace(incoming, attachments=await fetch())
                await desk.take(incoming, mark=("42", message_id))   # on disk when it returns; answered behind its back
            ...
            await desk.close()                                   # answers in progress end, and say so

`reach(incoming)` gives an Outlet: limit, pace, gathers, measure(text), and async send(text) -> id, edit(id, text),
typing(). It is also called for messages from before a restart, so it needs nothing but the Incoming (its place, guild
and `extra`, which is the adapter's own JSON). Outlets raise SlowDown(seconds) or Undelivered(reason, again=bool) and
nothing else. Texts are Markdown: the adapter lays them out, with tables.laid_out() where it has no tables. Slash
commands of the platform become `Incoming(text="/rename A title", ...)`; command.described() lists (name, arguments,
help) to register. The text has no mention of the bot in it.
"""

from __future__ import annotations

from recollect.channels.bot.access import Access
from recollect.channels.bot.desk import Desk
from recollect.channels.bot.incoming import Attachment, Author, Incoming
from recollect.channels.bot.outlet import Button, Outlet, SlowDown, Undelivered
from recollect.channels.bot.secret import Secrets
from recollect.channels.bot.splitting import split, utf16

__all__ = [
    "Access",
    "Attachment",
    "Author",
    "Button",
    "Desk",
    "Incoming",
    "Outlet",
    "Secrets",
    "SlowDown",
    "Undelivered",
    "split",
    "utf16",
]
