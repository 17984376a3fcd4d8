"""A bot on Telegram, over the desk that every bot shares.

    bot.py      reading what comes, in order and once; starting and stopping
    updates.py  what came, one by one
    reading.py  a message of Telegram as an Incoming; files.py: what is attached to it
    outlet.py   where an answer goes, and what Telegram's refusals mean
    markup.py   Markdown as Telegram's text and entities

Only this folder knows python-telegram-bot, and only `recollect telegram` loads it.
"""

from __future__ import annotations

import os

os.environ.setdefault("PTB_TIMEDELTA", "true")  # the library's own future, and a warning for each wait without it
